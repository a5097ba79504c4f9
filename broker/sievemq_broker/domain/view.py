"""A queue's waiting messages as one group of consumers sees them, in order.

Every queue has one view of everything and one per distinct selector in use. A view holds references; the state of an
entry says whether a reference still counts. A reference that does not is a tombstone and skipped when its turn comes:
so taking a message through one view costs nothing in the others, however many hold it.

    lanes    per priority, entries in order of arrival (READY)
    heap     entries that came back (STRAY), by key: few, compared with the lanes
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING

from sievemq_broker.domain.entry import READY, STRAY, Entry, key_of
from sievemq_broker.matching.asking import Answers
from sievemq_broker.matching.condition import Condition, is_true

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.groups import Groups

__all__ = ["ALL_SCANNED", "Lane", "View"]

ALL_SCANNED = -1
"""Value of :attr:`View.scanning` when nothing is left to scan."""

#: References that one step of compaction looks at.
PIECE = 8_192

_sequence = attrgetter("sequence")


class Lane:
    """Entries of one priority in order of arrival: a list with a moving head, so that bisection finds any place."""

    __slots__ = ("head", "items")

    def __init__(self) -> None:
        self.items: list[Entry] = []
        self.head = 0

    def __len__(self) -> int:
        return len(self.items) - self.head

    def after(self, sequence: int) -> int:
        """Index of the first entry that arrived after `sequence`."""
        return bisect_right(self.items, sequence, lo=self.head, key=_sequence)

    def first(self) -> Entry | None:
        """What arrived first and still waits; tombstones before it are dropped."""
        items, head = self.items, self.head
        end = len(items)
        while head < end and items[head].state:
            head += 1
        self.head = head
        if head == end:
            return None
        entry = items[head]
        if head > 256 and (head + head > end or head > PIECE):
            self.trim()
        return entry

    def trim(self) -> None:
        """Give back what lies before the head."""
        del self.items[: self.head]
        self.head = 0


class View:
    """What consumers with the same selector see of a queue.

    Attributes:
        condition: their selector, None for none.
        groups: message groups; only there while the view has several consumers.
        consumers: who is served through this view.
        ready: those of them that may have credit, next one first. One without is dropped when its turn comes.
        waiting: those that asked to be served at once (WANT), next one first.
        scanning: the highest priority whose backlog has not been looked through to its end; ALL_SCANNED if none. An
            arrival of at most this priority is left for the scan to find, so that order is kept.
        scanned: key up to which the backlog has been looked through.
        matched: messages that the selector matched, in the backlog and since.
        since: what the queue's `examined` was when the view was made, less the backlog that it was to look through.
    """

    __slots__ = (
        "condition",
        "consumers",
        "evaluations",
        "groups",
        "heap",
        "lanes",
        "mask",
        "matched",
        "passed",
        "ready",
        "scanned",
        "scanning",
        "since",
        "strays",
        "waiting",
    )

    def __init__(self, condition: Condition | None) -> None:
        self.condition = condition
        self.evaluations = self.matched = self.since = 0
        self.groups: Groups | None = None
        #: Entries that wait, but were passed over for the owner of their group: in no lane or heap here any more.
        self.passed: dict[Entry, None] = {}
        self.consumers: list[Consumer] = []
        self.ready: deque[Consumer] = deque()
        self.waiting: deque[Consumer] = deque()
        self.lanes: list[Lane | None] = [None] * 10
        self.mask = 0
        self.heap: list[tuple[int, Entry]] = []
        self.strays: dict[Entry, int] = {}
        self.scanning = ALL_SCANNED
        self.scanned = 0

    # -- filling ------------------------------------------------------------------------------------------------

    def push(self, entry: Entry, priority: int) -> None:
        """Append an arrival (READY)."""
        lane = self.lanes[priority]
        if lane is None:
            lane = self.lanes[priority] = Lane()
        lane.items.append(entry)
        self.mask |= 1 << priority
        entry.places += 1

    def push_back(self, entry: Entry) -> None:
        """Take in an entry that came back (STRAY). One that is in the heap already, at the same place, stays there."""
        key = key_of(entry)
        if self.strays.get(entry) != key:
            self.strays[entry] = key
            heappush(self.heap, (key, entry))
            self.passed.pop(entry, None)
        entry.places += 1

    def matches(self, entry: Entry) -> bool:
        """True if the selector of this view is TRUE for an entry; False also where that cannot be found out (D-14)."""
        if self.condition is None:
            return True
        answers: Answers[View] | None = entry.envelope.answers
        if answers is not None and (known := answers.of(self)) is not None:
            self.matched += known
            return known
        self.evaluations += 1
        try:
            if not is_true(self.condition, entry.envelope):
                return False
        except Exception:
            return False  # reported when the message arrived
        self.matched += 1
        return True

    # -- looking ------------------------------------------------------------------------------------------------

    def first(self) -> Entry | None:
        """The next entry in order, or None. Tombstones before it are dropped. A view that is still scanning shows only
        what cannot be overtaken by something not yet found."""
        heap = self.heap
        while heap:
            key, entry = heap[0]
            if entry.state <= STRAY and self.strays.get(entry) == key:
                break
            heappop(heap)
            if self.strays.get(entry) == key:
                del self.strays[entry]
        mask = self.mask
        while mask:
            priority = mask.bit_length() - 1
            lane = self.lanes[priority]
            assert lane is not None
            items, head = lane.items, lane.head
            end = len(items)
            while head < end:
                entry = items[head]
                if not entry.state:
                    lane.head = head
                    if head > 256 and (head + head > end or head > PIECE):
                        lane.trim()
                    if heap and heap[0][0] < key_of(entry):
                        return self._if_scanned(heap[0][1])
                    return entry
                head += 1
            items.clear()
            lane.head = 0
            mask &= ~(1 << priority)
            self.mask = mask
        return self._if_scanned(heap[0][1]) if heap else None

    def oldest(self) -> Entry | None:
        """What has waited longest among the lowest priority that waits; None if nothing does but what came back."""
        for lane in self.lanes:
            if lane is not None and (entry := lane.first()) is not None:
                return entry
        return None

    def heads(self) -> Iterator[Entry]:
        """What has waited longest of each priority, and what is next of what came back: one of them has waited longest
        of all, unless that came back behind another of a higher priority."""
        if self.mask:
            for lane in self.lanes:
                if lane is not None and (entry := lane.first()) is not None:
                    yield entry
        while self.heap:
            key, entry = self.heap[0]
            if entry.state <= STRAY and self.strays.get(entry) == key:
                yield entry
                break
            heappop(self.heap)  # a tombstone, as in first()
            if self.strays.get(entry) == key:
                del self.strays[entry]

    def _if_scanned(self, stray: Entry) -> Entry | None:
        return None if self.scanning != ALL_SCANNED and self.heap[0][0] > self.scanned else stray

    def take(self, entry: Entry) -> None:
        """Drop the reference to what :meth:`first` has just returned."""
        if entry.state == STRAY or entry in self.strays:
            heappop(self.heap)
            del self.strays[entry]
        else:
            lane = self.lanes[entry.envelope.priority]
            assert lane is not None
            lane.head += 1
        entry.places -= 1

    def pass_over(self, entry: Entry) -> None:
        """Drop the reference to what :meth:`first` has just returned, though it goes on waiting."""
        self.take(entry)
        self.passed[entry] = None

    def waits(self, after: int, limit: int) -> list[Entry]:
        """Up to `limit` waiting entries with a key above `after`, in order; nothing is changed.

        Cost: logarithmic in the depth, plus what is returned, plus tombstones between, plus the heap.
        """
        strays = [
            (key, entry)
            for key, entry in self.heap
            if key > after and entry.state <= STRAY and self.strays.get(entry) == key
        ]
        strays += [(key_of(entry), entry) for entry in self.passed if entry.state <= STRAY and key_of(entry) > after]
        strays.sort()
        found: list[Entry] = []
        merged = 0
        for entry in self._lane_entries(after):
            key = key_of(entry)
            while merged < len(strays) and strays[merged][0] < key:
                found.append(strays[merged][1])
                merged += 1
            found.append(entry)
            if len(found) >= limit:
                return found[:limit]
        found.extend(entry for _, entry in strays[merged : merged + limit - len(found)])
        return found

    def arrivals(self, after: int, limit: int) -> tuple[list[Entry], int | None]:
        """Up to `limit` entries (READY only) with a key above `after`, in order, and the key up to which there are no
        others; None for the last. Bounded however many tombstones lie between: it may be fewer, or none."""
        found: list[Entry] = []
        looked = PIECE
        for items, start, first_key in self._lanes_after(after):
            for index in range(start, len(items)):
                entry = items[index]
                looked -= 1
                if not entry.state:
                    found.append(entry)
                if len(found) == limit or not looked:
                    return found, first_key + entry.sequence
        return found, None

    def _lane_entries(self, after: int) -> Iterator[Entry]:
        for items, start, _ in self._lanes_after(after):
            for index in range(start, len(items)):
                if not items[index].state:
                    yield items[index]

    def _lanes_after(self, after: int) -> Iterator[tuple[list[Entry], int, int]]:
        """In order, of each lane with keys above `after`: its entries, where those begin, the key before its first."""
        for priority in range(9, -1, -1):
            lane = self.lanes[priority]
            first_key = ((9 - priority) << 1 | 1) << 48
            if lane is not None and after < first_key + (1 << 48):
                yield lane.items, lane.after(after - first_key) if after > first_key else lane.head, first_key

    def clear(self) -> None:
        """Drop everything. A scan under way finds nothing more."""
        self.lanes = [None] * 10
        self.mask = 0
        self.heap = []
        self.strays = {}
        self.passed = {}

    # -- serving ------------------------------------------------------------------------------------------------

    def next_consumer(self) -> Consumer | None:
        """Whose turn it is, if any consumer can take a message now."""
        waiting = self.waiting
        while waiting:
            consumer = waiting[0]
            if consumer.waiting and consumer.credit > 0 and consumer.port.writable:
                return consumer
            waiting.popleft()  # resume() brings one back whose port was not writable
        ready = self.ready
        while ready:
            consumer = ready[0]
            if consumer.credit > 0 and consumer.port.writable:
                return consumer
            ready.popleft()
            consumer.listed = False
        return None

    # -- upkeep -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """References held, tombstones included."""
        return len(self.heap) + sum(len(lane) for lane in self.lanes if lane is not None)

    def compaction(self) -> Iterator[int]:
        """Drop all tombstones, a piece at a time; yields how many references each piece had."""
        for lane in self.lanes:
            done = -1
            while lane is not None:
                start = lane.after(done)
                piece = lane.items[start : start + PIECE]
                if not piece:
                    break
                done = piece[-1].sequence
                lane.items[start : start + PIECE] = [entry for entry in piece if entry.state == READY]
                yield len(piece)
        yield len(self.heap)
        self.heap = [item for item in self.heap if item[1].state <= STRAY and self.strays.get(item[1]) == item[0]]
        heapify(self.heap)
        self.strays = {entry: key for key, entry in self.heap}
        self.passed = {entry: None for entry in self.passed if entry.state <= STRAY}
