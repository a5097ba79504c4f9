"""Going through what waits in a queue, in order of delivery, while everything else goes on.

A walk stands between two messages of the queue as it was when it began. What is taken away meanwhile is passed over;
what comes back from a consumer meanwhile may be passed over as well, since it was not waiting when the walk began.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop
from typing import TYPE_CHECKING

from sievemq_broker.domain.entry import STRAY, Entry, key_of

if TYPE_CHECKING:
    from sievemq_broker.domain.view import View

__all__ = ["Walk"]

#: References to messages that came back, looked at in one go when a walk begins.
PIECE = 10_000


class Walk:
    """A position in the order of delivery.

    Args:
        view: the queue's view of everything.
        after: key (entry.key_of) behind which it begins.

    Attributes:
        after: key of the last entry that was taken, or of a tombstone behind it.
        done: nothing follows.
    """

    __slots__ = ("_strays", "_view", "after", "done")

    def __init__(self, view: View, after: int = -1) -> None:
        self._view = view
        self._strays: list[tuple[int, Entry]] = []
        self.after = after
        self.done = False

    def gather(self) -> Iterator[None]:
        """Note what has come back from consumers, in pieces. To be gone through before the first :meth:`take`."""
        view, after, found = self._view, self.after, self._strays
        heap = view.heap.copy()
        for start in range(0, len(heap), PIECE):
            if start:
                yield
            for key, entry in heap[start : start + PIECE]:
                if key > after and entry.state <= STRAY and view.strays.get(entry) == key:
                    found.append((key, entry))
        passed = list(view.passed)
        for start in range(0, len(passed), PIECE):
            yield
            for entry in passed[start : start + PIECE]:
                if entry.state <= STRAY and key_of(entry) > after:
                    found.append((key_of(entry), entry))
        heapify(found)

    def take(self, limit: int) -> list[Entry]:
        """The next waiting entries, `limit` at most. Fewer, even none, do not mean the end: see :attr:`done`."""
        strays = self._strays
        arrivals, reached = self._view.arrivals(self.after, limit)
        found: list[Entry] = []
        for entry in arrivals:
            key = key_of(entry)
            self._take_strays(found, key, limit)
            if len(found) >= limit:
                return found
            found.append(entry)
            self.after = key
        if len(found) < limit:
            self._take_strays(found, reached, limit)
        if len(found) < limit:
            if reached is None:
                self.done = not strays
            else:
                self.after = reached
        return found

    def _take_strays(self, found: list[Entry], before: int | None, limit: int) -> None:
        strays = self._strays
        while strays and len(found) < limit and (before is None or strays[0][0] < before):
            key, entry = heappop(strays)
            if entry.state <= STRAY and key_of(entry) == key:
                found.append(entry)
                self.after = max(self.after, key)
