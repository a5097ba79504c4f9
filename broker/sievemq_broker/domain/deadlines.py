"""Moments at which something happens to a message: expiry, delivery time, end of a redelivery delay.

There are two heaps of them. Times of the calendar stay where they are when the machine's clock is set; what is so long
from a moment that has been (a delay, a lease) moves with it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from sievemq_broker.domain.entry import DELAYED, READY, STRAY

__all__ = ["Deadlines"]

#: Deadlines handled in one call: bounds what a crowd of messages with the same expiry can take of a loop turn.
BATCH = 2_000


class Item(Protocol):
    """What a deadline is about: a message that waits, or something that looks like one here."""

    @property
    def state(self) -> int:
        """READY … GONE: the deadline is void unless it waits."""

    @property
    def sequence(self) -> int:
        """Decides between deadlines of the same millisecond."""


class Target(Protocol):
    """Called when a deadline has passed."""

    def on_deadline(self, entry: Any, when: int, now: int) -> None:
        """The moment has come.

        Args:
            entry: what the deadline is about.
            when: the moment, ms epoch.
            now: ms epoch.
        """

    def on_jump(self, entry: Any, by: int) -> None:
        """The end of a length of time was moved by so many ms, since the clock was set."""

    def __lt__(self, other: Any) -> bool: ...


class Deadlines:
    """Who must be looked at when. A deadline whose entry has moved on is void and dropped when its turn comes."""

    __slots__ = ("_heap", "_left", "_spans", "_void", "_void_limit")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Target, Item]] = []
        self._spans: list[tuple[int, int, Target, Item]] = []
        self._void = 0
        self._void_limit = 1_024
        self._left = 0  # of the batch that is being handled

    def __len__(self) -> int:
        return len(self._heap) + len(self._spans)

    def push(self, when: int, target: Target, entry: Item) -> None:
        """Call ``target.on_deadline(entry, …)`` at `when` (ms epoch), unless the entry is held or gone by then."""
        heappush(self._heap, (when, entry.sequence, target, entry))

    def push_span(self, when: int, target: Target, entry: Item) -> None:
        """The same for the end of a length of time that has begun."""
        heappush(self._spans, (when, entry.sequence, target, entry))

    def jumped(self, by: int) -> None:
        """The machine's clock was set, by so many ms: lengths of time last as long as they would have."""
        # All are moved alike, so it stays a heap.
        self._spans = [(when + by, sequence, target, entry) for when, sequence, target, entry in self._spans]
        for _, _, target, entry in self._spans:
            if entry.state == DELAYED:
                target.on_jump(entry, by)

    def spend(self, cost: int) -> None:
        """What a deadline has led to took as long as so many others: fewer are handled in this turn."""
        self._left -= cost

    def void(self) -> None:
        """One deadline has lost its meaning. When many have, they are dropped; amortised O(1)."""
        self._void += 1
        if self._void > self._void_limit and 2 * self._void > len(self):
            self._heap = [item for item in self._heap if item[3].state in (READY, STRAY, DELAYED)]
            heapify(self._heap)
            self._spans = [item for item in self._spans if item[3].state in (READY, STRAY, DELAYED)]
            heapify(self._spans)
            self._void = 0
            self._void_limit = max(1_024, len(self))

    def due(self, now: int) -> int | None:
        """Handle what is due.

        Args:
            now: ms epoch.

        Returns:
            When to call again (ms epoch, `now` if more is due already), or None if nothing is known.
        """
        self._left = BATCH
        while self._left > 0:
            self._left -= 1
            heap, spans = self._heap, self._spans  # each time: a callee may have compacted them
            if spans and (not heap or spans[0][0] < heap[0][0]):
                heap = spans
            if not heap or heap[0][0] > now:
                return heap[0][0] if heap else None
            when, _sequence, target, entry = heappop(heap)
            if entry.state in (READY, STRAY, DELAYED):
                target.on_deadline(entry, when, now)
        first = [heap[0][0] for heap in (self._heap, self._spans) if heap]
        return max(min(first), now) if first else None
