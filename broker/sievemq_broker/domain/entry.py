"""One message on one queue."""

from __future__ import annotations

from typing import Final

from sievemq_core.compiled import i32, u8
from sievemq_core.message.envelope import Envelope

READY: Final = 0
"""Waits in the lanes, in the order of arrival."""
STRAY: Final = 1
"""Waits after it came back from a consumer. It is in the heaps of the views, and its old places in the lanes are
void."""
HELD: Final = 2
"""Delivered to a consumer and not acknowledged, or about to be delivered."""
DELAYED: Final = 3
"""Waits for its delivery time (EXP-07) or for the end of its redelivery delay (D-22)."""
GONE: Final = 4
"""Acknowledged, expired, moved or removed. References to it are tombstones."""

_ATTEMPT_BITS: Final = 20
_ATTEMPTS: Final = (1 << _ATTEMPT_BITS) - 1


class Entry:
    """A message on a queue: the bytes, shared with other queues, and the state that belongs to this queue.

    Attributes:
        sequence: position of arrival in the queue; the order among equal priorities (D-34).
        envelope: the message; dropped when the entry is gone, so that a tombstone is small.
        state: READY … GONE. Authoritative: a reference in a view counts only if the state agrees.
        count: deliveries that count, that is, the message was or may have been handed to an application, and came back.
        places: references to this entry in views while it waits.
        due: ms epoch at which it stops being DELAYED; only there while it is.
        stored: its number in the journal, 0 if it is not stored; only there on a queue that has a journal.
    """

    __slots__ = ("_failures", "count", "due", "envelope", "places", "sequence", "state", "stored")
    __deletable__ = ("envelope",)  # mypyc needs the declaration

    state: u8
    count: i32
    places: i32
    due: int
    envelope: Envelope
    stored: int
    #: The time of the first attempt, and the attempts in the lowest bits; only there if count > 0. One number, since
    #: there may be millions of entries.
    _failures: int

    def __init__(self, sequence: int, envelope: Envelope, state: int = READY) -> None:
        self.sequence = sequence
        self.envelope = envelope
        self.state = state
        self.count = 0
        self.places = 0

    @property
    def attempts(self) -> int:
        """How many of its deliveries failed while it was the message in work; see :mod:`settlement`."""
        return self._failures & _ATTEMPTS if self.count else 0

    @property
    def failed(self) -> int:
        """ms epoch of the first attempt; 0 if there was none."""
        return self._failures >> _ATTEMPT_BITS if self.attempts else 0

    def keep(self, stored: int) -> None:
        """The journal has stored it under this number, or removed it (0)."""
        self.stored = stored

    def resume(self, stored: int, count: int, attempts: int, failed: int) -> None:
        """Restore the state that the journal has stored.

        Args:
            failed: ms epoch of its first attempt, if there was one.
        """
        self.stored, self.count = stored, count
        if count:
            self._failures = failed << _ATTEMPT_BITS | min(attempts, _ATTEMPTS)

    def file(self) -> None:
        """One more view has it."""
        self.places += 1

    def unfile(self) -> None:
        """One view has dropped it."""
        self.places -= 1

    def hold(self) -> None:
        """It is about to be delivered, and waits nowhere: references to it are tombstones."""
        self.state = HELD
        self.places = 0

    def make_ready(self) -> None:
        """One more view has it: it waits in the order of arrival."""
        self.state = READY
        self.places += 1

    def arrive(self, sequence: int) -> None:
        """It arrives behind all others: after its delay, or after a restart."""
        self.sequence = sequence
        self.state = READY

    @staticmethod
    def arrive_all(entries: list[Entry], last: int) -> None:
        """New ones arrive, in order, behind the sequence `last`, and one view has them."""
        for entry in entries:
            last += 1
            entry.sequence = last
            entry.places = 1

    def come_back(self) -> None:
        self.state = STRAY

    def mark(self) -> None:
        """Count a delivery: the message comes back, and an application may have seen it."""
        self.state = STRAY
        self.count += 1
        if self.count == 1:
            self._failures = 0

    def fail(self, now: int) -> None:
        """Count an attempt: it was the message in work."""
        attempts = self.attempts
        if not attempts:
            self._failures = now << _ATTEMPT_BITS | 1
        elif attempts < _ATTEMPTS:
            self._failures += 1

    def unmark(self, attempted: bool) -> None:
        """No application has seen the last delivery after all."""
        if attempted and self.attempts:
            self._failures -= 1
        self.count -= 1

    def delay(self, due: int) -> None:
        """It is delayed until a time (ms epoch)."""
        self.state = DELAYED
        self.due = due

    def end_delay(self, state: int) -> None:
        self.state = state

    def shift(self, by: int) -> None:
        """Move the end of its delay by so many ms."""
        self.due += by

    def end(self) -> None:
        self.state = GONE
        del self.envelope

    @staticmethod
    def end_all(entries: list[Entry]) -> None:
        for entry in entries:
            entry.state = GONE
            del entry.envelope

    def __repr__(self) -> str:
        state = ("READY", "STRAY", "HELD", "DELAYED", "GONE")[self.state]
        return f"<Entry {self.sequence} {state} count={self.count} attempts={self.attempts}>"


def key_of(entry: Entry) -> int:
    """The place in the order of delivery, lower first; also the browse cursor.

    Higher priority first (D-34); within it, redelivered messages before those never delivered (ORD-07); then arrival.
    """
    return (((9 - entry.envelope.priority) << 1) | (not entry.count)) << 48 | entry.sequence
