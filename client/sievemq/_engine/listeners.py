"""What to call of a listener: its method, or itself (PY-22). The interfaces are those of the two fronts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sievemq.exceptions import JMSException
from sievemq.messages import Message

__all__ = [
    "completion_callbacks",
    "connection_callbacks",
    "exception_callback",
    "flow_callbacks",
    "log_raised",
    "message_callback",
]

_log = logging.getLogger("sievemq")


def message_callback(listener: object) -> Callable[[Message], Any]:
    """What to call with a message.

    Raises:
        TypeError: the listener is neither an object with `on_message` nor callable.
    """
    return _callback(listener, "on_message", "a message listener has on_message(message)")


def exception_callback(listener: object) -> Callable[[JMSException], Any]:
    """What to call with an exception.

    Raises:
        TypeError: the listener is neither an object with `on_exception` nor callable.
    """
    return _callback(listener, "on_exception", "an exception listener has on_exception(exception)")


def _callback(listener: object, name: str, what: str) -> Callable[..., Any]:
    method = getattr(listener, name, None)
    if callable(method):
        return method  # type: ignore[no-any-return]
    if callable(listener):
        return listener
    raise TypeError(f"{what} or is callable, unlike {listener!r:.80}")


def connection_callbacks(
    listener: object,
) -> tuple[Callable[[JMSException], Any] | None, Callable[[], Any] | None]:
    """What else an exception listener wants to hear: ``on_connection_lost`` and ``on_connection_restored``."""
    lost, restored = getattr(listener, "on_connection_lost", None), getattr(listener, "on_connection_restored", None)
    return lost if callable(lost) else None, restored if callable(restored) else None


def flow_callbacks(
    listener: object,
) -> tuple[Callable[[str | None, str], Any] | None, Callable[[str | None], Any] | None]:
    """What an exception listener wants to hear of limits: ``on_blocked`` and ``on_unblocked``."""
    blocked, unblocked = getattr(listener, "on_blocked", None), getattr(listener, "on_unblocked", None)
    return blocked if callable(blocked) else None, unblocked if callable(unblocked) else None


def completion_callbacks(
    listener: object,
) -> tuple[Callable[[Message], Any], Callable[[Message, Exception], Any]]:
    """What to call when a send has succeeded, and when it has failed.

    Raises:
        ValueError: the listener is None (PRO-24).
        TypeError: it is neither an object with both methods nor a pair of callables.
    """
    if listener is None:
        raise ValueError("a completion listener is needed, not None; leave the argument out for a synchronous send")
    if isinstance(listener, tuple):
        if len(listener) == 2 and all(map(callable, listener)):
            return listener
    else:
        completed, failed = getattr(listener, "on_completion", None), getattr(listener, "on_exception", None)
        if callable(completed) and callable(failed):
            return completed, failed
    raise TypeError(
        "a completion listener has on_completion(message) and on_exception(message, exception), or is a pair of "
        f"callables, unlike {listener!r:.80}"
    )


def log_raised(message: Message, error: BaseException) -> None:
    """A message listener raised (LIS-09). Which message that was is logged, not what it says: who reads logs may be
    somebody who must not read messages."""
    name, destination = message.get_jms_message_id(), message.get_jms_destination()
    _log.warning("a message listener raised; message %.100r of %.100s", name, destination, exc_info=error)
