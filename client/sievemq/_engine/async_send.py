"""The fate of a send: who waits for it, a completion or a CompletionListener (section 12).

There is one for each message, and ten thousand may be on their way, which a garbage collector looks at again and again:
so it is a tuple of what is there anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from sievemq._engine.completion import Completion
from sievemq.messages import Message

__all__ = ["Callbacks", "Fate", "call", "failing", "of_another"]

Callbacks: TypeAlias = tuple[Callable[..., Any], Callable[..., Any]]
"""Of a CompletionListener: for success and failure."""

Fate: TypeAlias = tuple[int, Completion[None] | Callbacks, Any]
"""Sequence of the send; what is settled, or whose first is called, once it is known; the message."""


def failing(fate: Fate, callbacks: Callbacks, error: Exception) -> Fate:
    """As `fate`, of an asynchronous send that has failed."""
    on_exception = callbacks[1]
    return fate[0], (lambda message: on_exception(message, error), on_exception), fate[2]


def of_another(message: object, callbacks: Callbacks) -> Callbacks:
    """As `callbacks`, for what is sent in the place of this message."""
    on_completion, on_exception = callbacks
    return lambda _: on_completion(message), lambda _, error: on_exception(message, error)


def call(fate: Fate) -> Any:
    """Call the callback of an asynchronous send whose fate is known; what it returns."""
    _, callbacks, message = fate
    if isinstance(message, Message):
        message._completed()  # CPL-15
    return callbacks[0](message)  # type: ignore[index]  # nothing else is here
