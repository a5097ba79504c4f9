"""Searches a backlog for a selector that is new on a queue, a slice at a time.

Order is kept meanwhile: the view shows only messages that no later find can overtake. The scan goes through the lanes
from the highest priority down, each to its end. An arrival whose lane is not finished is left for the scan to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sievemq_broker.domain.entry import STRAY, Entry
from sievemq_broker.domain.view import ALL_SCANNED, View
from sievemq_broker.matching.condition import HEADERS, Condition, indexable, units
from sievemq_broker.matching.lookup import ValueIndex
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import CORRELATION_ID
from sievemq_core.selector import bucket_key

#: Header fields with so few values that an index of them would lead to a large part of the backlog.
COARSE = frozenset({"JMSDeliveryMode", "JMSPriority"})

#: The most indexes of a queue: each costs some 150 bytes a message, and work for each arrival.
MAX_LOOKUPS = 4

#: Messages that are examined at once if an index leads to them; more are searched by a scan, in slices. An index whose
#: values have more messages than this on average is dropped.
FEW = 1_000

#: Messages examined for the cost of one, if only the correlation id is read.
CHEAPER = 8

_CORRELATION_ID = "JMSCorrelationID"

#: A smaller backlog is searched faster than an index is kept.
INDEX_FROM = 1_000


class Scan:
    """Fills a new view, and new lookups, from the waiting messages.

    Attributes:
        view: the view.
        examined: entries looked at so far; of cheap ones, a part.
    """

    __slots__ = (
        "_cheap", "_lookups", "_made", "_main", "_priority", "_sequence", "_strays", "_view_gone", "_wanted",
        "examined", "view",
    )  # fmt: skip

    def __init__(
        self, main: View, lookups: dict[str, ValueIndex[Entry]], view: View, made: dict[str, ValueIndex[Entry]]
    ) -> None:
        self.view = view
        self.examined = 0
        self._main = main
        self._lookups = lookups
        self._made = made
        self._strays = [*main.strays, *main.passed]
        self._priority = 9
        self._view_gone = False
        assert view.condition is not None
        #: The correlation ids that a message may have; None if any.
        self._wanted = dict(indexable(view.condition)).get(_CORRELATION_ID)
        self._cheap = self._wanted is not None and made.keys() <= {_CORRELATION_ID}
        self._sequence = -1
        view.begin_scan()

    def forget(self, view: View) -> bool:
        """The view is no longer in use. True if the scan is not needed either; it may still build an index."""
        if view is not self.view:
            return False
        self._view_gone = True
        return not self._made

    def step(self, limit: int) -> bool:
        """Examine entries, up to a cost of `limit`.

        Returns:
            True if the backlog has been looked through.
        """
        view = self.view
        if self.examined == 0 and not self._made and fill_from_index(self._lookups, view):
            return True  # an index was built while this scan waited for its turn
        each = CHEAPER if self._cheap else 1
        left = limit * each
        strays = self._strays
        while strays and left > 0:
            left -= self._examine(strays.pop(), stray=True) * each
        while left > 0 and self._priority >= 0:
            priority = self._priority
            lane = self._main.lanes[priority]
            if lane is not None:
                items = lane.items
                start = lane.after(self._sequence)
                stop = min(start + left, len(items))
                if self._cheap:
                    self._examine_ids(items[start:stop])
                    left -= stop - start
                else:
                    for index in range(start, stop):
                        left -= self._examine(items[index]) * each
                        if left <= 0:
                            stop = index + 1
                            break
                if stop > start:
                    self._sequence = items[stop - 1].sequence
                if stop < len(items):
                    view.scanned_to(((9 - priority) << 1 | 1) << 48 | self._sequence, priority)
                    break
            self._sequence = -1
            self._priority = priority - 1
            view.scanned_to((((9 - priority) << 1 | 1) << 48) + (1 << 48) - 1, self._priority)
            for lookup in self._made.values():
                lookup.scanned_to(self._priority)
        self.examined += limit - left // each
        if self._priority >= 0:
            return False
        for name, lookup in self._made.items():
            if len(lookup) > FEW * lookup.distinct and self._lookups.get(name) is lookup:
                del self._lookups[name]
        return True

    def _examine_ids(self, entries: list[Entry]) -> None:
        """:meth:`_examine` for each entry, if the correlation id alone selects the candidates. One loop: the entries
        are usually not in the processor's cache, and the first consumer of an id waits until all are examined."""
        wanted, view = self._wanted, self.view
        assert wanted is not None
        if self._view_gone:
            wanted = frozenset()
        lookup = self._made.get(_CORRELATION_ID)
        first = None if lookup is None else lookup.first
        for entry in entries:
            if entry.state:  # not READY
                continue
            value: Any = entry.envelope._fields  # Envelope.correlation_id, without the call of a property
            if value.__class__ is tuple:
                value = value[CORRELATION_ID]
            if value.__class__ is not str:
                continue
            if first is not None and first(value, entry) is not entry:
                assert lookup is not None
                lookup.again(value, entry)
            if value in wanted and view.matches(entry):
                view.push(entry, entry.envelope.priority)
                entry.envelope.compact()

    def _examine(self, entry: Entry, stray: bool = False) -> int:
        """Examine one entry. Returns the cost."""
        state = entry.state
        if state > STRAY:
            return 1
        condition = self.view.condition
        assert condition is not None
        cost = 1 if self._view_gone else units(condition, entry.envelope)
        for lookup in self._made.values():
            lookup.add(entry)
        if not self._view_gone and self.view.matches(entry):
            self.view.show(entry, stray)
        entry.envelope.compact()
        return cost


def lookups_for(
    lookups: dict[str, ValueIndex[Entry]], condition: Condition, names: frozenset[str] | None = None
) -> dict[str, ValueIndex[Entry]]:
    """The new lookups that the scan for a condition shall build: for the header fields and properties that the
    condition compares with single values, unless they exist. So the next consumer with another value finds its message
    at once in a deep queue (D-17).

    Args:
        names: what a lookup may be built for; None for anything.
    """
    made: dict[str, ValueIndex[Entry]] = {}
    for name, _ in indexable(condition):
        if names is not None and name not in names:
            continue
        if name not in lookups and name not in COARSE and len(lookups) < MAX_LOOKUPS:
            made[name] = lookups[name] = ValueIndex(_reader(name), _waits)
    return made


def fill_from_index(lookups: dict[str, ValueIndex[Entry]], view: View) -> bool:
    """Fill a new view from a complete lookup. False if there is none."""
    assert view.condition is not None
    for name, values in indexable(view.condition):
        lookup = lookups.get(name)
        if lookup is None or lookup.scanning != ALL_SCANNED or (filed := lookup.find(values, FEW)) is None:
            continue
        # If the selector is a lookup, every message there matches: nothing need be decoded.
        view.fill([entry for entry in filed if entry.state <= STRAY], view.condition.is_lookup)
        return True
    return False


def _waits(entry: Entry) -> bool:
    return entry.state <= STRAY


def _reader(name: str) -> Callable[[Entry], Any]:
    """Returns a function that reads the key (``bucket_key``) of a name for selectors; None for NULL."""
    position = HEADERS.get(name)

    def of_correlation_id(entry: Entry) -> Any:
        value = entry.envelope.correlation_id
        return None if type(value) is bytes else value

    def of_header(entry: Entry) -> Any:
        assert position is not None
        value = entry.envelope.fields[position]
        return None if type(value) is bytes else value  # an id set as bytes is NULL to a selector

    def of_property(entry: Entry) -> Any:
        try:
            return bucket_key(entry.envelope.properties.get(name))
        except SieveError:
            return None  # logged when the message arrived (D-14)

    if name == _CORRELATION_ID:
        return of_correlation_id
    return of_property if position is None else of_header
