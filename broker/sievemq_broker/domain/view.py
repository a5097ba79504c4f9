"""A queue's waiting messages as one selector sees them, in order.

Every queue has one view of everything and one per distinct selector in use. A view holds references; the state of an
entry says whether a reference is still valid. An invalid one is a tombstone, skipped when its turn comes. So taking a
message through one view costs nothing in the others.

    lanes     per priority, entries in order of arrival (READY)
    heap      entries that came back (STRAY), by key: few, compared with the lanes
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from sievemq_broker.domain.entry import READY, STRAY, Entry, key_of
from sievemq_broker.domain.work import Budget
from sievemq_broker.matching.asking import Answers
from sievemq_broker.matching.condition import Condition, is_true

ALL_SCANNED: Final = -1
"""Value of :attr:`View.scanning` when the scan is done."""

#: References that one step of compaction examines.
PIECE = 8_192

#: References to messages that came back, examined at once when a walk begins, and for one unit of work.
GATHERED = 2_000
GATHERED_PER_UNIT = 16

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
        """The oldest entry that still waits; tombstones before it are dropped."""
        items, head = self.items, self.head
        end = len(items)
        while head < end and items[head].state:
            head += 1
        if head == end:
            self.head = head
            return None
        entry = items[head]
        self.reach(head)
        return entry

    def skip(self, last: Entry) -> None:
        self.head = head = self.items.index(last, self.head) + 1
        if head > PIECE:  # as in first(), for a queue that is never quite empty
            self.trim()

    def take(self) -> None:
        """Drop the entry that :meth:`first` has just returned."""
        self.head += 1

    def reach(self, head: int) -> None:
        """Drop the places before `head`, all of them tombstones."""
        self.head = head
        if head > 256 and (head + head > len(self.items) or head > PIECE):
            self.trim()

    def clear(self) -> None:
        self.items.clear()
        self.head = 0

    def trim(self) -> None:
        """Free the places before the head."""
        del self.items[: self.head]
        self.head = 0


class View:
    """The messages of a queue that consumers with the same selector see.

    Args:
        condition: their selector, None for none.
        since: the queue's `examined` when the view was created, less the backlog that it is to search.

    Attributes:
        condition, since: as above.
        scanning: the highest priority whose backlog is not searched to its end; ALL_SCANNED if there is none. An
            arrival of at most this priority is left for the scan to find, so that order is kept.
        scanned: key up to which the backlog has been searched.
        matched: messages in the backlog that the selector matched.
        evaluations: messages in the backlog on which the selector was evaluated.
        passed: entries that wait for the owner of their group: they are in no lane or heap here any more.
    """

    __slots__ = (
        "condition", "evaluations", "heap", "lanes", "mask", "matched", "passed", "scanned", "scanning", "since",
        "strays",
    )  # fmt: skip

    def __init__(self, condition: Condition | None, since: int = 0) -> None:
        self.condition = condition
        self.since = since
        self.evaluations = self.matched = 0
        self.passed: dict[Entry, None] = {}
        self.lanes: list[Lane | None] = [None] * 10
        self.mask = 0
        self.heap: list[tuple[int, Entry]] = []
        self.strays: dict[Entry, int] = {}
        self.scanning = ALL_SCANNED
        self.scanned = 0

    # -- filling ------------------------------------------------------------------------------------------------

    def push(self, entry: Entry, priority: int) -> None:
        """Append an arrival, which is READY from now on."""
        lane = self.lanes[priority]
        if lane is None:
            lane = self.lanes[priority] = Lane()
        lane.items.append(entry)
        self.mask |= 1 << priority
        entry.make_ready()

    def push_row(self, entries: list[Entry], priority: int) -> None:
        """Append arrivals of one priority, which count themselves as filed."""
        lane = self.lanes[priority]
        if lane is None:
            lane = self.lanes[priority] = Lane()
        lane.items.extend(entries)
        self.mask |= 1 << priority

    def push_back(self, entry: Entry) -> None:
        """Add an entry that came back (STRAY), unless the heap has it at the same place."""
        key = key_of(entry)
        if self.strays.get(entry) != key:
            self.strays[entry] = key
            heappush(self.heap, (key, entry))
            self.passed.pop(entry, None)
        entry.file()

    def begin_scan(self) -> None:
        """Begin to search the backlog for the selector, from the highest priority down."""
        self.scanning = 9
        self.scanned = 0

    def scanned_to(self, key: int, scanning: int) -> None:
        """The backlog has been searched up to a key; `scanning` is the priority that is next."""
        self.scanned = key
        self.scanning = scanning

    def fill(self, entries: list[Entry], known: bool) -> None:
        """Show all matching entries among these. The scan is done then.

        Args:
            known: the selector matches them; otherwise it is evaluated.
        """
        self.scanning = ALL_SCANNED
        if known:
            self.evaluations += len(entries)
            self.matched += len(entries)
        else:
            entries = [entry for entry in entries if self.matches(entry)]
        if len(entries) > 1:
            entries.sort(key=key_of)
        for entry in entries:
            self.show(entry, stray=False)
            entry.envelope.compact()

    def show(self, entry: Entry, stray: bool) -> None:
        """Show an entry that waits and matches; `stray` if a consumer has returned it since that was found out."""
        if entry.state == READY and not stray:
            self.push(entry, entry.envelope.priority)
        else:
            self.push_back(entry)

    def matches(self, entry: Entry) -> bool:
        """True if the selector of this view is TRUE for an entry; False also if it cannot be evaluated (D-14)."""
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
            return False  # logged when the message arrived
        self.matched += 1
        return True

    # -- looking ------------------------------------------------------------------------------------------------

    def first(self) -> Entry | None:
        """The next entry in order, or None. Tombstones before it are dropped. During a scan a view shows only entries
        that no later find can overtake."""
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
                    if head != lane.head or head > 256:
                        lane.reach(head)
                    if heap and heap[0][0] < key_of(entry):
                        return self._if_scanned(heap[0][1])
                    return entry
                head += 1
            lane.clear()
            mask &= ~(1 << priority)
            self.mask = mask
        return self._if_scanned(heap[0][1]) if heap else None

    def oldest(self) -> Entry | None:
        """The entry that has waited longest among those of the lowest priority; None if there are only returned
        ones."""
        for lane in self.lanes:
            if lane is not None and (entry := lane.first()) is not None:
                return entry
        return None

    def heads(self) -> Iterator[Entry]:
        """The oldest entry of each priority, and the next of the returned ones. The entry that has waited longest of
        all is among them, unless it is a returned one behind another of a higher priority."""
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

    def row(self, limit: int, now: int) -> list[Entry]:
        """The next entries, up to `limit`, if they can be delivered together: arrivals of one priority that were never
        delivered and have not expired. Empty if the next one must be examined. Changes nothing."""
        row: list[Entry] = []
        if self.heap or not self.mask:
            return row
        lane = self.lanes[self.mask.bit_length() - 1]
        assert lane is not None
        head = lane.head
        for entry in lane.items[head : head + limit]:
            if not entry.state:  # otherwise a tombstone
                if entry.count or 0 < entry.envelope.expiration <= now:
                    break
                row.append(entry)
        return row

    def take_row(self, last: Entry) -> None:
        """Drop the references up to `last`, which :meth:`row` has just returned."""
        lane = self.lanes[last.envelope.priority]
        assert lane is not None
        lane.skip(last)

    def take(self, entry: Entry) -> None:
        """Drop the reference that :meth:`first` has just returned."""
        if entry.state == STRAY or entry in self.strays:
            heappop(self.heap)
            del self.strays[entry]
        else:
            lane = self.lanes[entry.envelope.priority]
            assert lane is not None
            lane.take()
        entry.unfile()

    def pass_over(self, entry: Entry) -> None:
        """Drop the reference that :meth:`first` has just returned, although the entry still waits."""
        self.take(entry)
        self.passed[entry] = None

    def forget_passed(self, entry: Entry) -> None:
        """Entries that were passed over no longer wait."""
        self.passed.pop(entry, None)

    def waits(self, after: int, limit: int) -> list[Entry]:
        """Up to `limit` waiting entries with a key above `after`, in order. Changes nothing. The cost is logarithmic in
        the depth, plus the result, the tombstones between, and the heap."""
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
        others; None at the end. It may be fewer, or none: the work is bounded however many tombstones lie between."""
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
        """The lanes with keys above `after`, in order: the entries, the index where these begin, the key before the
        first."""
        for priority in range(9, -1, -1):
            lane = self.lanes[priority]
            first_key = ((9 - priority) << 1 | 1) << 48
            if lane is not None and after < first_key + (1 << 48):
                yield lane.items, lane.after(after - first_key) if after > first_key else lane.head, first_key

    def clear(self) -> None:
        """Drop everything. A scan finds nothing more."""
        self.lanes = [None] * 10
        self.mask = 0
        self.heap = []
        self.strays = {}
        self.passed = {}

    # -- upkeep -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """References, tombstones included."""
        return len(self.heap) + sum(len(lane) for lane in self.lanes if lane is not None)

    def compaction(self) -> Iterator[int]:
        """Drop all tombstones, piece by piece. Yields the number of references of each piece."""
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


class Walk:
    """A position in the order of delivery of a queue that changes meanwhile.

    A walk stands between two messages of the queue as it was when it began. It skips messages that are taken away
    meanwhile. It may also skip messages that consumers return meanwhile, since these did not wait when it began.

    Args:
        view: the queue's view of everything.
        after: key (entry.key_of) behind which it begins.

    Attributes:
        after: key of the last entry that was taken, or of a tombstone behind it.
        done: True at the end.
    """

    __slots__ = ("_strays", "_view", "after", "done")

    def __init__(self, view: View, after: int = -1) -> None:
        self._view = view
        self._strays: list[tuple[int, Entry]] = []
        self.after = after
        self.done = False

    def gather(self, budget: Budget) -> Iterator[None]:
        """Collect the entries that consumers have returned; must be done before the first :meth:`take`. Yields when the
        budget is spent."""
        view, after, found = self._view, self.after, self._strays
        heap = view.heap.copy()
        for start in range(0, len(heap), GATHERED):
            part = heap[start : start + GATHERED]
            for key, entry in part:
                if key > after and entry.state <= STRAY and view.strays.get(entry) == key:
                    found.append((key, entry))
            budget.spend(1 + len(part) // GATHERED_PER_UNIT)
            if budget.spent:
                yield
        passed = list(view.passed)
        for start in range(0, len(passed), GATHERED):
            others = passed[start : start + GATHERED]
            for entry in others:
                if entry.state <= STRAY and key_of(entry) > after:
                    found.append((key_of(entry), entry))
            budget.spend(1 + len(others) // GATHERED_PER_UNIT)
            if budget.spent:
                yield
        heapify(found)

    def take(self, limit: int) -> list[Entry]:
        """The next waiting entries, at most `limit`. There may be fewer, or none, before the end: see :attr:`done`."""
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


class Few:
    """A :class:`Walk` through a few known entries.

    Attributes:
        after: key of the last entry that was taken.
        done: nothing follows.
    """

    __slots__ = ("_entries", "after", "done")

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self.after = -1
        self.done = not entries

    def gather(self, budget: Budget) -> Iterator[None]:
        """Do nothing: no preparation is needed."""
        return iter(())

    def take(self, limit: int) -> list[Entry]:
        """The next entries that still wait, `limit` at most."""
        taken, self._entries = self._entries[:limit], self._entries[limit:]
        self.done = not self._entries
        taken = [entry for entry in taken if entry.state <= STRAY]
        if taken:
            self.after = key_of(taken[-1])
        return taken
