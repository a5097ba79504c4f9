"""Looking through a backlog for a selector that is new on a queue, a slice at a time.

Order is kept while it runs: the view shows only what no later find can overtake. The scan goes through the lanes from
the highest priority down, each to its end; an arrival whose lane has not been finished is left for it to find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sievemq_broker.domain.entry import READY, STRAY, Entry, key_of
from sievemq_broker.domain.view import ALL_SCANNED, View
from sievemq_broker.matching.condition import HEADERS, indexable
from sievemq_broker.matching.lookup import ValueIndex
from sievemq_core.message.envelope import CORRELATION_ID, MESSAGE_ID

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue

__all__ = ["Scan", "fill_from_index", "lookup_for"]

#: Headers whose equality is answered from an index (D-17).
INDEXED = {"JMSMessageID": MESSAGE_ID, "JMSCorrelationID": CORRELATION_ID}

#: A backlog below this is looked through faster than an index is kept.
INDEX_FROM = 1_000


class Scan:
    """Fills a new view, and on the way a new index, from what waits.

    Attributes:
        view: the view.
        examined: entries looked at so far.
    """

    __slots__ = ("_lookup", "_main", "_priority", "_queue", "_sequence", "_strays", "_view_gone", "examined", "view")

    def __init__(self, queue: Queue, view: View, lookup: ValueIndex[Entry] | None) -> None:
        self.view = view
        self.examined = 0
        self._queue = queue
        self._main = queue.main
        self._lookup = lookup
        self._strays = [entry for _, entry in queue.main.heap] + list(queue.main.passed)
        self._priority = 9
        self._view_gone = False
        self._sequence = -1
        view.scanning = 9
        view.scanned = 0

    def forget(self, view: View) -> bool:
        """The view is not in use any more. True if the scan is not needed either (it may still build an index)."""
        if view is not self.view:
            return False
        self._view_gone = True
        return self._lookup is None

    def step(self, limit: int) -> bool:
        """Look at up to `limit` entries.

        Returns:
            True if the backlog has been looked through.
        """
        view = self.view
        if self.examined == 0 and self._lookup is None and fill_from_index(self._queue, view):
            return True  # an index came to be while this scan waited for its turn
        left = limit
        strays = self._strays
        while strays and left > 0:
            left -= 1
            self._examine(strays.pop(), stray=True)
        while left > 0 and self._priority >= 0:
            priority = self._priority
            lane = self._main.lanes[priority]
            if lane is not None:
                items = lane.items
                start = lane.after(self._sequence)
                stop = min(start + left, len(items))
                for index in range(start, stop):
                    self._examine(items[index])
                left -= stop - start
                if stop > start:
                    self._sequence = items[stop - 1].sequence
                if stop < len(items):
                    view.scanned = ((9 - priority) << 1 | 1) << 48 | self._sequence
                    break
            view.scanned = (((9 - priority) << 1 | 1) << 48) + (1 << 48) - 1
            self._sequence = -1
            self._priority = view.scanning = priority - 1
            if self._lookup is not None:
                self._lookup.scanning = self._priority
        self.examined += limit - left
        return self._priority < 0

    def _examine(self, entry: Entry, stray: bool = False) -> None:
        state = entry.state
        if state > STRAY:
            return
        if self._lookup is not None and self._lookup.add(entry):
            entry.places += 1
        if not self._view_gone and self.view.matches(entry):
            if state == READY and not stray:
                self.view.push(entry, entry.envelope.priority)
            else:
                self.view.push_back(entry)
        entry.envelope.compact()


def lookup_for(queue: Queue, view: View) -> ValueIndex[Entry] | None:
    """A new index to be built by the scan that fills `view`, if its selector asks for one value of an indexed header
    and there is none yet."""
    assert view.condition is not None
    if queue.depth < INDEX_FROM:
        return None
    for name, _ in indexable(view.condition):
        if name in INDEXED and name not in queue.lookups:
            lookup = queue.lookups[name] = ValueIndex(_reader(HEADERS[name]), _waits)
            return lookup
    return None


def fill_from_index(queue: Queue, view: View) -> bool:
    """Fill a new view from an index that is complete; False if there is none."""
    assert view.condition is not None
    for name, values in indexable(view.condition):
        lookup = queue.lookups.get(name)
        if lookup is None or lookup.scanning != ALL_SCANNED:
            continue
        view.scanning = ALL_SCANNED
        candidates = [entry for entry in lookup.find(values) if entry.state <= STRAY and view.matches(entry)]
        for entry in sorted(candidates, key=key_of):
            if entry.state == READY:
                view.push(entry, entry.envelope.priority)
            else:
                view.push_back(entry)
            entry.envelope.compact()
        return True
    return False


def _waits(entry: Entry) -> bool:
    return entry.state <= STRAY


def _reader(position: int) -> Any:
    def value_of(entry: Entry) -> Any:
        value = entry.envelope.fields[position]
        return value if type(value) is str else None  # an id set as bytes is NULL to a selector

    return value_of
