"""Deadlines of messages: expiry, delivery time, end of a redelivery delay.

There are two heaps. Deadlines that are times of the calendar stay when the machine's clock is set. Deadlines that end a
length of time (a delay, a lease) move with it."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Protocol

from sievemq_broker.domain.entry import DELAYED, READY, STRAY

#: Deadlines handled in one call, so that many messages with the same expiry do not take a whole turn of the loop. Each
#: may be in another queue.
BATCH = 500

#: Fewer void deadlines than this are not dropped.
VOID = 1_024

#: Deadlines examined for each one that becomes void, while void ones are dropped.
SWEPT = 4


class Item(Protocol):
    """The subject of a deadline: a message that waits, or an object with the same attributes."""

    @property
    def state(self) -> int:
        """READY … GONE: the deadline is void unless the item waits."""

    @property
    def sequence(self) -> int:
        """Orders deadlines of the same millisecond."""


class Target(Protocol):
    """Is called when a deadline has passed."""

    def on_deadline(self, entry: Any, when: int, now: int) -> None:
        """The deadline has passed.

        Args:
            entry: what the deadline is about.
            when: the moment, ms epoch.
            now: ms epoch.
        """

    def on_jump(self, entry: Any, by: int) -> None:
        """The end of a length of time was moved by so many ms, since the clock was set."""

    def __lt__(self, other: Any) -> bool: ...


class Deadlines:
    """The deadlines of a broker, in order.

    A deadline is void once its entry has moved on. A void deadline is dropped when its turn comes; if very many are
    void, they are dropped a few at a time. A heap without its last item is still a heap, so valid deadlines move from
    the end of the old heap to a new one."""

    __slots__ = ("_heap", "_left", "_old", "_old_spans", "_spans", "_void")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Target, Item]] = []
        self._spans: list[tuple[int, int, Target, Item]] = []
        #: The old heap, from which void deadlines are being dropped.
        self._old: list[tuple[int, int, Target, Item]] = []
        self._old_spans: list[tuple[int, int, Target, Item]] = []
        self._void = 0
        self._left = 0  # deadlines of the present call that are still to be handled

    def __len__(self) -> int:
        return len(self._heap) + len(self._spans) + len(self._old) + len(self._old_spans)

    def push(self, when: int, target: Target, entry: Item) -> None:
        """Call ``target.on_deadline(entry, …)`` at `when` (ms epoch), unless the entry is held or gone by then."""
        heappush(self._heap, (when, entry.sequence, target, entry))

    def push_span(self, when: int, target: Target, entry: Item) -> None:
        """As :meth:`push`, for a duration that has begun."""
        heappush(self._spans, (when, entry.sequence, target, entry))

    def jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms: lengths of time stay as they are."""
        self._sweep(len(self._old_spans) + len(self._old))
        # All move by the same, so it stays a heap.
        self._spans = [(when + by, sequence, target, entry) for when, sequence, target, entry in self._spans]
        for _, _, target, entry in self._spans:
            if entry.state == DELAYED:
                target.on_jump(entry, by)

    def spend(self, cost: int) -> None:
        """Handling a deadline took as long as handling so many: handle fewer in this turn."""
        self._left -= cost

    def void(self) -> None:
        """A deadline has become void. If many are, drop them; O(1)."""
        self._void += 1
        if self._old or self._old_spans:
            self._sweep(SWEPT)
        elif self._void > VOID and 2 * self._void > len(self):
            self._old, self._heap = self._heap, []
            self._old_spans, self._spans = self._spans, []
            self._void = 0

    def _sweep(self, count: int) -> None:
        """Examine so many old deadlines, and keep those that are valid."""
        for _ in range(count):
            if self._old:
                item = self._old.pop()
                if item[3].state in (READY, STRAY, DELAYED):
                    heappush(self._heap, item)
            elif self._old_spans:
                item = self._old_spans.pop()
                if item[3].state in (READY, STRAY, DELAYED):
                    heappush(self._spans, item)
            else:
                return

    def _next(self) -> list[tuple[int, int, Target, Item]]:
        """The heap with the next deadline; an empty one if there is none."""
        heap, spans = self._heap, self._spans
        if spans and (not heap or spans[0][0] < heap[0][0]):
            heap = spans
        if self._old or self._old_spans:
            for old in (self._old, self._old_spans):
                if old and (not heap or old[0][:2] < heap[0][:2]):  # in order if both have the same time
                    heap = old
        return heap

    def due(self, now: int) -> int | None:
        """Handle the deadlines that have passed.

        Args:
            now: ms epoch.

        Returns:
            When to call again (ms epoch, `now` if more is due already), or None if nothing is known.
        """
        if not (self._heap or self._spans or self._old or self._old_spans):
            return None
        self._left = BATCH
        while self._left > 0:
            self._left -= 1
            heap = self._next()  # looked up each time: a callee may have moved deadlines
            if not heap or heap[0][0] > now:
                return heap[0][0] if heap else None
            when, _sequence, target, entry = heappop(heap)
            if entry.state in (READY, STRAY, DELAYED):
                target.on_deadline(entry, when, now)
        heap = self._next()
        return max(heap[0][0], now) if heap else None
