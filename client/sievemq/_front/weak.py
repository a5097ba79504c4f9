"""References of the engine to a front do not keep it alive: a connection that nothing else refers to is garbage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn
from weakref import WeakMethod

from sievemq._engine.connection import ClientConnection
from sievemq.exceptions import IllegalStateException


def weakly(method: Callable[..., Any], otherwise: Callable[[], Any] = lambda: None) -> Callable[..., Any]:
    """A callable that calls a bound method, or `otherwise` when the method's object is gone."""
    reference = WeakMethod(method)

    def call(*arguments: Any) -> Any:
        found = reference()
        return otherwise() if found is None else found(*arguments)

    return call


def is_gone() -> NoReturn:
    """Acknowledge a message whose session is garbage.

    Raises:
        IllegalStateException: always.
    """
    raise IllegalStateException("the session is closed")


def is_unclosed(engine: ClientConnection) -> bool:
    """True if the connection is neither closed, nor closing, nor lost beyond repair."""
    return engine.usable and not engine.closing


def unclosed(connection: object, engine: ClientConnection) -> str:
    """The text of a ResourceWarning."""
    to = "" if engine.terms.peer is None else " to {}:{}".format(*engine.terms.peer)
    return f"unclosed {connection!r}{to} ({engine.options.agent}): close it or its context, or use `with`"
