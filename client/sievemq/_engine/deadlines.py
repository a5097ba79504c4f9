"""Sends and commits that may wait for so long and no longer (the option send_timeout)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from sievemq._engine.completion import Completion
from sievemq.exceptions import ResourceAllocationException

if TYPE_CHECKING:
    from sievemq._engine.sends import Sends

__all__ = ["Deadlines"]


class _Wait(NamedTuple):
    """Args: of whom; for what, None of an asynchronous send; when its time is over and how long it was, in ms; of a
    send, its sequence, else 0."""

    sends: Sends
    completion: Completion[Any] | None
    until: int
    timeout: int
    sequence: int

    @property
    def over(self) -> bool:
        done = self.completion is not None and self.completion.done
        return done or 0 < self.sequence <= self.sends.confirmed


class Deadlines:
    """Of one connection.

    Attributes:
        next: the time at which :meth:`due` should be called at the latest; None for never.
    """

    __slots__ = ("_waits", "next")

    def __init__(self) -> None:
        self._waits: deque[_Wait] = deque()
        self.next: int | None = None

    def expect(
        self, sends: Sends, completion: Completion[Any] | None, now: int, timeout: int, sequence: int = 0
    ) -> None:
        """Something is waited for.

        Args:
            sends: of the session whose send or commit it is.
            completion: settled with its fate; None of an asynchronous send.
            now: ms of the clock that :meth:`due` is told of.
            timeout: how long it may take, in ms.
            sequence: of the send; 0 for a commit, and for a window to open.
        """
        waits = self._waits
        while waits and waits[0].over:
            waits.popleft()
        if completion is None or not completion.done:
            waits.append(_Wait(sends, completion, now + timeout, timeout, sequence))
            if self.next is None or now + timeout < self.next:
                self.next = now + timeout

    def due(self, now: int) -> int | None:
        """End what has waited for too long; what :attr:`next` is then."""
        if self.next is None or now < self.next:
            return self.next
        waits = [wait for wait in self._waits if not wait.over]
        self._waits = deque(wait for wait in waits if wait.until > now)
        self.next = min((wait.until for wait in self._waits), default=None)
        for wait in waits:
            if wait.until <= now:
                _end(wait)
        return self.next


def _end(wait: _Wait) -> None:
    sends, completion, timeout = wait.sends, wait.completion, wait.timeout
    blocked = sends.last_blocked
    why = "the broker has not confirmed what was sent" if blocked is None else blocked.reason
    if completion is None or wait.sequence:
        text = f"{why}; this message waited {timeout} ms (send_timeout) and was withdrawn: it was not sent"
        sends.withdraw(wait.sequence, ResourceAllocationException(text, "SEND_TIMEOUT"))
    elif completion in sends.window_waiters:
        sends.window_waiters.remove(completion)
        text = f"{why}; this message waited {timeout} ms (send_timeout) behind others: it was not sent"
        completion.fail(ResourceAllocationException(text, "SEND_TIMEOUT"))
    else:
        sends.withdraw_commit()
