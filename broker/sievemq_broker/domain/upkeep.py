"""A queue's work that may take longer than a turn should: looking through a backlog, dropping tombstones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sievemq_broker.domain import recall
from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.scan import INDEX_FROM, Scan, fill_from_index, lookups_for
from sievemq_broker.domain.view import View
from sievemq_broker.matching.condition import Condition
from sievemq_broker.matching.lookup import ValueIndex

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue

__all__ = ["Upkeep"]

#: Entries examined before open_consumer returns: a small backlog is complete at once, a large one is pending work.
FIRST_SLICE = 1_000

#: References looked at in one go when tombstones are dropped; more is pending work.
TIDY_AT_ONCE = 20_000


class Upkeep:
    """Pending work of one queue, which its methods are given: a deleted queue must not wait for a garbage collector.

    Attributes:
        examined: messages looked at so far for browsers and administrators.
        scans: new selectors whose view is being filled; one after the other.
        dead: tombstones in views and indexes, at most.
        dead_limit: how many there may be before somebody counts.
    """

    __slots__ = ("_pieces", "dead", "dead_limit", "examined", "scans")

    def __init__(self) -> None:
        self.examined = 0
        self.scans: list[Scan] = []
        self.dead = 0
        self.dead_limit = 1_024
        self._pieces: list[Iterator[int]] = []

    def __bool__(self) -> bool:
        """True if there is something to do."""
        return bool(self.scans or self._pieces)

    def work(self, queue: Queue, budget: int, now: int) -> int:
        """Carry on.

        Returns:
            What it cost, about `budget` at most, in entries examined.
        """
        done = 0
        while self.scans and done < budget:
            scan = self.scans[0]
            before = scan.examined
            finished = scan.step(budget - done)
            done += scan.examined - before
            if finished:
                self.scans.remove(scan)
            queue.serve(scan.view, now)
            if finished:
                recall.scanned(scan.view, now)
        if done < budget:  # a look at a tombstone is much cheaper than one at a message
            done += self._drop_pieces((budget - done) * 8) // 8
        return done

    # -- scans --------------------------------------------------------------------------------------------------

    def fill(self, queue: Queue, view: View) -> None:
        """Fill a new view from the backlog: from an index if there is one, otherwise by looking through it."""
        if not queue.depth or fill_from_index(queue, view):
            return
        scan = Scan(queue, view, lookups_for(queue, view))
        self.scans.append(scan)
        if len(self.scans) == 1 and scan.step(FIRST_SLICE):
            self.scans.remove(scan)
        else:
            queue.namespace.broker.add_work(queue)

    def index(self, queue: Queue, condition: Condition, names: frozenset[str]) -> None:
        """Build the indexes that would answer a condition, for whoever asks next (D-17).

        Args:
            queue: this one.
            condition: a selector that compares something with single values.
            names: what an index may be built for.
        """
        view = View(condition)  # of nobody: it is not filled
        lookups = lookups_for(queue, view, names)
        if lookups:
            scan = Scan(queue, view, lookups)
            scan.forget(view)
            self.scans.append(scan)
            queue.namespace.broker.add_work(queue)

    def forget(self, view: View) -> None:
        """A view is not in use any more."""
        if self.scans:
            self.scans = [scan for scan in self.scans if not scan.forget(view)]

    # -- tombstones ---------------------------------------------------------------------------------------------

    def note_dead(self, queue: Queue, references: int) -> None:
        """References have become tombstones; when there are many, they are dropped."""
        self.dead += references
        if self.dead > self.dead_limit:
            self.tidy(queue)

    def tidy(self, queue: Queue) -> None:
        """Drop tombstones if half of all references are some, so each is paid for once: at once where there are few,
        otherwise as pending work."""
        if queue.depth < INDEX_FROM // 2 and not self.scans:
            queue.lookups.clear()  # so few are looked through as fast; half, so that it is not built again at once
        holders: list[View | ValueIndex[Entry]] = [queue.main, *queue.views.values(), *queue.lookups.values()]
        total = sum(map(len, holders))
        self.dead_limit = max(1_024, total // 2)
        if self.dead <= self.dead_limit:
            return
        self.dead = 0
        self._pieces = [holder.compaction() for holder in holders]
        if total <= TIDY_AT_ONCE:
            self._drop_pieces(total)
        else:
            queue.namespace.broker.add_work(queue)

    def _drop_pieces(self, budget: int) -> int:
        done = 0
        while self._pieces and done <= budget:
            looked = next(self._pieces[-1], None)
            if looked is None:
                self._pieces.pop()
            else:
                done += looked
        return done
