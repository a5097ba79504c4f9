"""A result that arrives later. Knows neither event loop nor thread: a waiter leaves a callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["Completion", "when_settled"]

T = TypeVar("T")


class Completion(Generic[T]):
    """The answer to a request, or the fate of a send; settled exactly once, with a value or an error.

    Callbacks run in the order they were added, inside the engine call that settles the completion (so, in a front with
    threads, under its engine lock): they must only wake somebody or hand the result on. An exception from outside, such
    as KeyboardInterrupt, may break into them: settling once more calls those that have not returned. So a callback may
    be called twice.
    """

    __slots__ = ("_callbacks", "_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None
        self._value: T | None = None
        self._callbacks: list[Callable[[Completion[T]], None]] = []

    def add_callback(self, callback: Callable[[Completion[T]], None]) -> None:
        """Call `callback` with this completion once it is settled; at once if it is already."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def succeed(self, value: T) -> None:
        """Settle with a value. A completion that is settled already stays as it is."""
        if not self.done:
            self._value = value
            self.done = True
        self.tell()

    def fail(self, error: Exception) -> None:
        """Settle with an error. A completion that is settled already stays as it is."""
        if not self.done:
            self.error = error
            self.done = True
        self.tell()

    def result(self) -> T:
        """The value of a settled completion.

        Raises:
            Exception: what :meth:`fail` was given.
        """
        assert self.done, "a completion was asked for its result before it had one"
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def tell(self) -> None:
        """Call the callbacks of a settled completion that have not returned."""
        callbacks = self._callbacks
        if not callbacks:
            return
        self._callbacks = []  # a callback may come back here
        try:
            while callbacks:
                callbacks[0](self)
                del callbacks[0]
        except BaseException as error:
            self._callbacks = callbacks[1:] if isinstance(error, Exception) else callbacks  # a defect would come again
            raise


def when_settled(completions: Sequence[Completion[Any]], then: Callable[[], None]) -> None:
    """Call something once all these completions are settled, whichever way; at once if they are."""
    left = sum(not completion.done for completion in completions)
    if not left:
        then()

    def settled(_: Completion[Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    for completion in completions:
        if not completion.done:
            completion.add_callback(settled)
