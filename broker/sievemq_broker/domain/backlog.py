"""What waits in a queue, in order, and every way to look at it.

    main       the view of everything
    views      one per distinct selector of consumers: nothing but matches, once the backlog has been looked through
    lookups    entries by the value of a header field or property that selectors compare with single values (D-17)

A browser or an administrator with a selector never looks at messages that cannot match, if that is known: a lookup
leads to a few entries, a complete view has nothing but matches, and otherwise the whole backlog is gone through, a
slice at a time. A selector on JMSMessageID or JMSCorrelationID leaves a lookup behind: it is built in slices while the
first answer is still looked for message by message, and the next one is found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from zlib import crc32

from sievemq_broker.domain.entry import DELAYED, GONE, READY, STRAY, Entry, key_of
from sievemq_broker.domain.scan import FEW, INDEX_FROM, Scan, fill_from_index, lookups_for
from sievemq_broker.domain.view import ALL_SCANNED, Few, View, Walk
from sievemq_broker.domain.work import TURN, Budget, Task
from sievemq_broker.matching.condition import Condition, group_key, indexable, is_true, units
from sievemq_broker.matching.index import SelectorIndex
from sievemq_broker.matching.lookup import ValueIndex
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import MESSAGE_ID, Envelope
from sievemq_core.selector import compile_selector

#: The cursor of the first page: before every key.
BEGINNING = 0

#: The most that one page may cost, in entries of two to four microseconds each; costly selectors and messages count for
#: more (condition.units). A page may be short, or empty, but never takes a turn of the loop for more than about 5 ms.
EXAMINED = 1_500

#: Packed bytes after which a page ends.
PAGE_BYTES = 1024 * 1024

#: The cost of skipping this many entries of other parts is that of examining one.
PASSED_OVER = 4

#: Packed bytes that decide to which part a message belongs: header fields, with the message id first.
ID_BYTES = 64

#: The names that get a lookup for every caller (D-17). Lookups of other names are built only for consumers: they cost
#: memory.
_COMMON = frozenset({"JMSMessageID", "JMSCorrelationID"})

#: Entries examined for a new view before its consumer is answered. A small backlog is done by then; the rest of a large
#: one is pending work.
FIRST_SLICE = 1_000

#: References examined at once when tombstones are dropped; the rest is pending work.
TIDY_AT_ONCE = 20_000


def check_cursor(cursor: object) -> int:
    """The key after which a page begins.

    Raises:
        RequestError: ILLEGAL_STATE, this is no cursor.
    """
    if cursor is None:
        return -1
    if type(cursor) is not int or cursor < 0:
        raise RequestError("a browse cursor is what the page before answered", ErrorCode.ILLEGAL_STATE)
    return cursor


def check_part(part: int, parts: int) -> None:
    """Check which part of a queue is browsed.

    Raises:
        RequestError: ILLEGAL_STATE, there is no such part.
    """
    if part >= parts and (part or parts):
        raise RequestError(f"there is no part {part} of {parts}: parts count from 0", ErrorCode.ILLEGAL_STATE)


def _part_of(envelope: Envelope, parts: int) -> int:
    """The part to which a message belongs. Only the message decides: a redelivery changes its place in the order, and a
    restart its sequence, but the message stays in its part."""
    return crc32(envelope.packed[:ID_BYTES]) % parts


class Backlog:
    """The waiting messages of one queue.

    Args:
        on_pending: called when there is pending work.

    Attributes:
        main: the view of everything.
        views: one per distinct selector, by key (condition.group_key).
        index: finds the views whose selectors match an arrival.
        lookups: entries by value, by the name of the header field or property.
        depth: messages that wait.
        bytes: their packed size.
        arrivals: messages on which selectors were evaluated as they arrived; counted only while there are selectors.
        examined: messages on which selectors of browsers and administrators were evaluated.
        scans: new selectors whose views are being filled, one after the other.
        dead: an upper bound of the tombstones in views and lookups.
        dead_limit: above this number the tombstones are counted.
    """

    __slots__ = (
        "_matched", "_on_pending", "_pieces", "arrivals", "bytes", "dead", "dead_limit", "depth", "examined", "index",
        "lookups", "main", "scans", "views",
    )  # fmt: skip

    def __init__(self, on_pending: Callable[[], None]) -> None:
        self._on_pending: Callable[[], None] | None = on_pending
        self.main = View(None)
        self.views: dict[object, View] = {}
        self._matched: dict[View, int] = {}  # how many arrivals the selector of each view has matched
        self.index: SelectorIndex[View] = SelectorIndex()
        self.lookups: dict[str, ValueIndex[Entry]] = {}
        self.depth = 0
        self.bytes = 0
        self.arrivals = 0
        self.examined = 0
        self.scans: list[Scan] = []
        self.dead = 0
        self.dead_limit = 1_024
        self._pieces: list[Iterator[int]] = []

    # -- in and out ---------------------------------------------------------------------------------------------------

    def match(self, entry: Entry) -> list[View]:
        """The views whose selectors match an arrival."""
        self.arrivals += 1
        matched = self.index.match(entry.envelope)
        for view in matched:
            self._matched[view] += 1
        return matched

    def matched(self, view: View) -> tuple[int, int]:
        """How many messages a view's selector has matched since the view was opened, and out of how many."""
        return view.matched + self._matched.get(view, 0), self.arrivals - view.since

    def place(self, entry: Entry, matched: list[View] | tuple[()]) -> None:
        """Add an entry to all views that show it: an arrival, or a STRAY one."""
        envelope = entry.envelope
        if entry.state != STRAY:
            priority = envelope.priority
            self.main.push(entry, priority)
            for view in matched:
                if view.scanning < priority:
                    view.push(entry, priority)
        else:
            priority = 10  # the heaps have it: every scan has passed it
            self.main.push_back(entry)
            for view in matched:
                view.push_back(entry)
        if self.lookups:
            for lookup in self.lookups.values():
                if lookup.scanning < priority:
                    lookup.add(entry)
        self.depth += 1
        self.bytes += len(envelope.packed)
        envelope.compact()

    def place_row(self, by_priority: Mapping[int, list[Entry]], count: int, size: int) -> None:
        """Add entries behind all others, while there is no view but that of everything. They count themselves as filed.

        Args:
            count: of the entries.
            size: their packed bytes.
        """
        for priority, entries in by_priority.items():
            self.main.push_row(entries, priority)
        self.depth += count
        self.bytes += size

    def unplace(self, entry: Entry) -> None:
        """Remove an entry. Its places in other views become tombstones."""
        self.depth -= 1
        self.bytes -= len(entry.envelope.packed)
        self.dead += entry.places + len(self.lookups)
        entry.hold()
        if self.dead > self.dead_limit:
            self.tidy()

    def unplace_row(self, view: View, entries: list[Entry]) -> None:
        """Remove entries that come next in a view (:meth:`View.row`)."""
        view.take_row(entries[-1])
        self.depth -= len(entries)
        dead = len(entries) * (len(self.lookups) - 1)  # the view's own places are not tombstones
        size = 0
        for entry in entries:
            size += len(entry.envelope.packed)
            dead += entry.places
            entry.hold()
        self.bytes -= size
        self.dead += dead
        if self.dead > self.dead_limit:
            self.tidy()

    def oldest(self) -> Entry | None:
        """The entry that has waited longest among those of the lowest priority. Redelivered messages are chosen only if
        nothing else waits."""
        main = self.main
        entry = main.oldest()
        if entry is None:
            return next(iter(main.waits(-1, 1)), None)
        if entry not in main.strays:
            main.take(entry)
        return entry

    def detach(self) -> None:
        """The queue is deleted, and nothing more happens here: break the reference cycle, so that both are freed at
        once."""
        self._on_pending = None

    def clear(self) -> list[Entry]:
        """Remove everything that waits, and return it."""
        entries = self.main.waits(-1, self.depth)
        for view in (self.main, *self.views.values()):
            view.clear()
        for lookup in self.lookups.values():
            lookup.clear()
        self.depth = self.bytes = 0
        return entries

    def take(self, count: int) -> list[Entry]:
        """Remove up to `count` messages, and return them: the next ones in order, then those passed over."""
        main = self.main
        entries: list[Entry] = []
        while len(entries) < count:
            entry = main.first()
            if entry is None:
                break
            main.take(entry)
            self.unplace(entry)
            entries.append(entry)
        for entry in list(islice(main.passed, count - len(entries))):
            main.forget_passed(entry)
            if entry.state <= STRAY:
                self.unplace(entry)
                entries.append(entry)
        return entries

    # -- views --------------------------------------------------------------------------------------------------------

    def open_view(self, condition: Condition) -> View:
        """The view of a selector. A new view is filled from the backlog, as pending work if that is long."""
        key = group_key(condition)
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = View(condition, self.arrivals - self.depth)
            self._matched[view] = 0
            self.index.add(condition, view)
            if self.depth and not fill_from_index(self.lookups, view):
                self._begin_scan(Scan(self.main, self.lookups, view, self._lookups_for(condition)), FIRST_SLICE)
        return view

    def close_view(self, view: View) -> None:
        assert view.condition is not None
        del self.views[group_key(view.condition)], self._matched[view]
        self.index.remove(view)
        if self.scans:
            self.scans = [scan for scan in self.scans if not scan.forget(view)]

    def _lookups_for(self, condition: Condition, names: frozenset[str] | None = None) -> dict[str, ValueIndex[Entry]]:
        return lookups_for(self.lookups, condition, names) if self.depth >= INDEX_FROM else {}

    def _begin_scan(self, scan: Scan, first_slice: int) -> None:
        self.scans.append(scan)
        if first_slice and len(self.scans) == 1 and scan.step(first_slice):
            self.scans.remove(scan)
        elif self._on_pending is not None:
            self._on_pending()

    def prepare_lookup(self, condition: Condition, names: frozenset[str] = _COMMON) -> None:
        """Build, as pending work, the lookups that the next caller with such a condition can use (D-17).

        Args:
            condition: a selector that compares something with single values.
        """
        lookups = self._lookups_for(condition, names)
        if lookups:
            view = View(condition)  # no consumer uses it: it is not filled
            scan = Scan(self.main, self.lookups, view, lookups)
            scan.forget(view)
            self._begin_scan(scan, 0)

    # -- pending work -------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        return bool(self.scans or self._pieces)

    def scan(self, budget: int) -> tuple[View, bool, int] | None:
        """Go on searching the backlog for a new selector.

        Returns:
            Its view, whether that is complete, and what it cost, about `budget` at most, in entries examined; None if
            there is nothing to look for.
        """
        if not self.scans:
            return None
        scan = self.scans[0]
        before = scan.examined
        finished = scan.step(budget)
        if finished:
            self.scans.remove(scan)
        return scan.view, finished, scan.examined - before

    def drop_tombstones(self, budget: int) -> int:
        """Go on dropping tombstones. Returns the cost, in entries examined."""
        return self._drop_pieces(budget * 8) // 8  # skipping a tombstone costs much less than examining a message

    def tidy(self) -> None:
        """Drop tombstones once half of all references are tombstones, so that each costs a constant. Many of them
        become pending work."""
        if self.depth < INDEX_FROM // 2 and not self.scans:
            self.lookups.clear()  # skipping so few costs no more; half, so that it is not rebuilt at once
        holders: list[View | ValueIndex[Entry]] = [self.main, *self.views.values(), *self.lookups.values()]
        total = sum(map(len, holders))
        self.dead_limit = max(1_024, total // 2)
        if self.dead <= self.dead_limit:
            return
        self.dead = 0
        self._pieces = [holder.compaction() for holder in holders]
        if total <= TIDY_AT_ONCE:
            self._drop_pieces(total)
        elif self._on_pending is not None:
            self._on_pending()

    def _drop_pieces(self, budget: int) -> int:
        done = 0
        while self._pieces and done <= budget:
            looked = next(self._pieces[-1], None)
            if looked is None:
                self._pieces.pop()
            else:
                done += looked
        return done

    # -- looking ------------------------------------------------------------------------------------------------------

    def matching(self, condition: Condition, entry: Entry) -> bool:
        """True if the condition is TRUE for a waiting entry. False also if it cannot be evaluated (D-14)."""
        self.examined += 1
        try:
            return is_true(condition, entry.envelope)
        except Exception:
            return False  # logged when the message arrived
        finally:
            entry.envelope.compact()

    def view_of(self, condition: Condition | None) -> View:
        """The view with the fewest entries that has everything the condition matches."""
        if condition is not None:
            view = self.views.get(group_key(condition))
            if view is not None and view.scanning == ALL_SCANNED:
                return view
        return self.main

    def few(self, condition: Condition | None, after: int = -1) -> list[Entry] | None:
        """Entries that may match, from a lookup, in order of delivery. None if no lookup helps, or a view has nothing
        but matches.

        Args:
            after: only entries with a key (entry.key_of) above it.
        """
        if condition is None or self.view_of(condition) is not self.main:
            return None
        common = False
        for name, values in indexable(condition):
            lookup = self.lookups.get(name)
            if lookup is None:
                common = common or name in _COMMON
            elif lookup.scanning == ALL_SCANNED and (entries := lookup.find(values, FEW)) is not None:
                waiting = [(key_of(entry), entry) for entry in entries if entry.state <= STRAY]
                return [entry for key, entry in sorted(waiting) if key > after]
        if common and after < 0:
            self.prepare_lookup(condition)
        return None

    def walk(self, condition: Condition | None = None, after: int = -1) -> Walk | Few:
        """Iterate over the entries that may match a condition, in order of delivery, in slices.

        Args:
            condition: the selector, None for none.
            after: key (entry.key_of) behind which the walk begins.
        """
        entries = self.few(condition, after)
        return Walk(self.view_of(condition), after) if entries is None else Few(entries)

    def page(
        self,
        condition: Condition | None,
        after: int,
        limit: int,
        now: int,
        examine: int = EXAMINED,
        part: int = 0,
        parts: int = 0,
    ) -> tuple[int | None, list[Entry]]:
        """Up to `limit` waiting entries that match, in order of delivery, and the cursor for the next page, or None at
        the end. A page leaves out messages that are in flight (BRW-07), delayed (BRW-06) or expired (BRW-09), and those
        of other parts if there are several `parts`."""
        if limit <= 0:
            return max(after, BEGINNING), []
        found: list[Entry] = []
        size = 0
        entries = self.few(condition, after)
        complete = entries is not None
        if entries is None:
            view = self.view_of(condition)
            wanted = examine if condition is not None and view is self.main else min(limit + 1, examine)
            if parts > 1:
                wanted *= min(parts, PASSED_OVER)
            entries = view.waits(after, wanted)
            complete = len(entries) < wanted
        left = examine
        for entry in entries:
            if len(found) == limit or size >= PAGE_BYTES:
                return after, found
            envelope = entry.envelope
            if parts > 1 and _part_of(envelope, parts) != part:
                after = key_of(entry)
                continue
            if condition is not None:
                cost = units(condition, envelope)
                if cost > left < examine:  # the first one is examined at any cost
                    envelope.compact()
                    return after, found
                left -= cost
            after = key_of(entry)
            if envelope.expiration and envelope.expiration <= now:
                continue
            if condition is None or self.matching(condition, entry):
                found.append(entry)
                size += len(envelope.packed)
        return None if complete else after, found

    def locate(
        self,
        ids: Iterable[int | str],
        scheduled: dict[int, Entry],
        held: Iterable[Entry],
        latest: int,
        now: int,
        budget: Budget,
    ) -> Task[list[Entry]]:
        """The entries with these ids, in order of delivery.

        A number is found at once unless a consumer has returned the message. A JMSMessageID is found by its lookup;
        until there is one, all messages are searched. It may name several messages: a copy keeps the id of its
        original.

        Args:
            scheduled: where to look as well, by sequence.
            held: where to look as well.
            now: ms epoch.
        """
        numbers = {number for number in ids if isinstance(number, int) and number <= latest}
        names = {name for name in ids if isinstance(name, str)}
        found: dict[int, Entry] = {}
        for number in numbers:
            entry = self._arrival(number) or scheduled.get(number)
            if entry is not None:
                found[number] = entry
        missing = numbers - found.keys()
        for entry in self._rest(names, scheduled, held, budget) if missing or names else ():
            budget.spend(1)
            if budget.spent:
                yield
            if entry is None or entry.state == GONE or entry.sequence > latest:
                continue
            if entry.sequence in missing:
                found[entry.sequence] = entry
            elif names:
                if entry.envelope.fields[MESSAGE_ID] in names:
                    found[entry.sequence] = entry
                entry.envelope.compact()
        return sorted((entry for entry in found.values() if entry.state != GONE), key=_place)

    def _arrival(self, sequence: int) -> Entry | None:
        for lane in self.main.lanes:
            if lane is not None:
                index = lane.after(sequence - 1)
                if index < len(lane.items) and lane.items[index].sequence == sequence:
                    entry = lane.items[index]
                    return entry if entry.state == READY else None
        return None

    def _rest(
        self, names: set[str], scheduled: dict[int, Entry], held: Iterable[Entry], budget: Budget
    ) -> Iterator[Entry | None]:
        """Search for the ids that no sequence leads to. Yields None in between."""
        named = self._with_ids(names) if names else []
        if named is None:
            walk = Walk(self.main)
            for _ in walk.gather(budget):
                yield None
            while not walk.done:
                yield from walk.take(TURN)
                yield None
        else:
            yield from named
            yield from chain([entry for _, entry in self.main.heap.copy()], list(self.main.passed))
        if names:
            yield from list(scheduled.values())
        yield from held

    def _with_ids(self, names: set[str]) -> list[Entry] | None:
        """Waiting entries with these JMSMessageIDs, from a lookup; None if there is none yet."""
        lookup = self.lookups.get("JMSMessageID")
        if lookup is None:
            condition = compile_selector("JMSMessageID = ''")
            assert condition is not None
            self.prepare_lookup(condition)
            return None
        return lookup.find(names) if lookup.scanning == ALL_SCANNED else None


def _place(entry: Entry) -> tuple[bool, int]:
    return entry.state == DELAYED, key_of(entry)
