"""The fate of an asynchronous send, which a CompletionListener hears of (section 12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from sievemq._engine.completion import Completion

if TYPE_CHECKING:
    from sievemq.messages import Message

__all__ = ["AsyncSend"]


class Calls(Protocol):
    """Who calls the callbacks: in order, one at a time, later."""

    def add(self, callback: Callable[..., Any], message: Message, *more: Any) -> None: ...


class AsyncSend(Completion[None]):
    """The fate of one asynchronous send: once known, a callback is called soon.

    Args:
        calls: of the session.
        callbacks: for success and failure.
        message: what was sent.
    """

    __slots__ = ("_calls", "_message", "_on_completion", "_on_exception")

    def __init__(
        self, calls: Calls, callbacks: tuple[Callable[..., Any], Callable[..., Any]], message: Message
    ) -> None:
        self.done = False
        self.error = None
        self._calls = calls
        self._on_completion, self._on_exception = callbacks
        self._message = message

    def _settle(self) -> None:
        # Instead of a closure in a list of callbacks: there is one for every message, and ten thousand may be on their
        # way, which a garbage collector looks at again and again.
        self.done = True
        if self.error is None:
            self._calls.add(self._on_completion, self._message)
        else:
            self._calls.add(self._on_exception, self._message, self.error)
