"""Where a browser or an administrator with a selector looks: never at messages that cannot match, if that is known.

    a lookup    on a header field or property that the selector compares with single values: its few entries (D-17)
    a view      of consumers with the same selector, once it is complete: nothing but matches
    the queue   otherwise, a slice at a time

Who asks for a JMSMessageID or JMSCorrelationID leaves a lookup behind, as a consumer does: it is built in slices while
the first answer is still looked for message by message, and whoever asks next is answered at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sievemq_broker.domain.entry import STRAY, Entry, key_of
from sievemq_broker.domain.scan import FEW
from sievemq_broker.domain.view import ALL_SCANNED, View
from sievemq_broker.matching.condition import Condition, group_key, indexable
from sievemq_core.selector import compile_selector

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue

__all__ = ["Few", "few", "view_of", "with_ids"]

#: What D-17 promises a lookup for, whoever asks. By other names only consumers build one: it costs memory.
_PROMISED = frozenset({"JMSMessageID", "JMSCorrelationID"})


def few(queue: Queue, condition: Condition | None, after: int = -1) -> list[Entry] | None:
    """Entries that may match, from a lookup, in order of delivery; None if there is none that helps, or a
    view that has matches only.

    Args:
        queue: whose.
        condition: the selector.
        after: only entries with a key (entry.key_of) above it.
    """
    if condition is None or view_of(queue, condition) is not queue.main:
        return None
    promised = False
    for name, values in indexable(condition):
        lookup = queue.lookups.get(name)
        if lookup is None:
            promised = promised or name in _PROMISED
        elif lookup.scanning == ALL_SCANNED and (entries := lookup.find(values, FEW)) is not None:
            waiting = [(key_of(entry), entry) for entry in entries if entry.state <= STRAY]
            return [entry for key, entry in sorted(waiting) if key > after]
    if promised and after < 0:
        queue.upkeep.index(queue, condition, _PROMISED)
    return None


def with_ids(queue: Queue, names: set[str]) -> list[Entry] | None:
    """Waiting entries with these JMSMessageIDs, from a lookup; None if there is none yet."""
    lookup = queue.lookups.get("JMSMessageID")
    if lookup is None:
        condition = compile_selector("JMSMessageID = ''")
        assert condition is not None
        queue.upkeep.index(queue, condition, _PROMISED)
        return None
    return lookup.find(names) if lookup.scanning == ALL_SCANNED else None


def view_of(queue: Queue, condition: Condition | None) -> View:
    """The view with the fewest entries that has everything the condition matches."""
    if condition is not None:
        view = queue.views.get(group_key(condition))
        if view is not None and view.scanning == ALL_SCANNED:
            return view
    return queue.main


class Few:
    """A walk (walk.py) through a few entries that are known.

    Attributes:
        after: key of the last entry that was taken.
        done: nothing follows.
    """

    __slots__ = ("_entries", "after", "done")

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self.after = -1
        self.done = not entries

    def gather(self) -> Iterator[None]:
        """There is nothing to prepare."""
        return iter(())

    def take(self, limit: int) -> list[Entry]:
        """The next entries that still wait, `limit` at most."""
        taken, self._entries = self._entries[:limit], self._entries[limit:]
        self.done = not self._entries
        taken = [entry for entry in taken if entry.state <= STRAY]
        if taken:
            self.after = key_of(taken[-1])
        return taken
