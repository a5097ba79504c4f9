"""The fate of an asynchronous send, which a CompletionListener hears of (section 12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sievemq._engine.completion import Completion
from sievemq.messages import Message

__all__ = ["AsyncSend"]


class Calls(Protocol):
    """Who calls the callbacks: in order, one at a time, later, each by :meth:`AsyncSend.tell`."""

    def add(self, fate: AsyncSend) -> None: ...


class AsyncSend(Completion[None]):
    """The fate of one asynchronous send: once known, a callback is called soon.

    There is one for each message, and ten thousand may be on their way, which a garbage collector looks at again and
    again: so there is neither a closure nor a list of callbacks, and it waits itself for its turn to be called.

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

    def succeed(self, value: None) -> None:
        """The broker has the message."""
        if not self.done:
            self.done = True
            self._calls.add(self)

    def _settle(self) -> None:
        self.done = True
        self._calls.add(self)

    def tell(self) -> Any:
        """Call the callback; what it returns."""
        message = self._message
        if isinstance(message, Message):
            message._completed()  # CPL-15
        error = self.error
        return self._on_completion(message) if error is None else self._on_exception(message, error)
