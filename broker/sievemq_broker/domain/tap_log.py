"""The messages of a tap that its reader has not acknowledged, by sequence; bounded at the old end.

    dropped ◄── first ───────────── last ◄── append
                  └── slice(after, upto) ──┘   repeatable, in any order

A sequence has no holes: between two of them lie exactly as many messages as the numbers say. So a reader can share a
range out, and can tell what is missing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Final, NamedTuple

#: Memory of a message here beside its packed bytes: the tuple and its numbers.
OVERHEAD_BYTES: Final = 160

#: Ms that a lease lasts at least, of a tap or of staged sends.
SHORTEST_LEASE: Final = 1_000

#: Places before the head after which they are freed.
_TRIM: Final = 1_024


class Tapped(NamedTuple):
    """One message of a tap.

    Attributes:
        time: ms epoch at which the tap saw it.
        delivery: its count, 1 for the first (JSX-12).
        end: bytes of the log up to here and since its beginning.
        packed: the envelope; shared with whoever else holds the message.
        stored: number under which the journal keeps it for the tap; 0 if it does not.
    """

    time: int
    delivery: int
    end: int
    packed: bytes
    stored: int


_end = itemgetter(2)
_time = itemgetter(0)


class TapLog:
    """Messages in order.

    Args:
        after: sequence of the last message that was before all of them.

    Attributes:
        bytes: what the messages take, :data:`OVERHEAD_BYTES` included.
    """

    __slots__ = ("_base", "_end", "_head", "_items", "bytes")

    def __init__(self, after: int = 0) -> None:
        self._items: list[Tapped] = []
        self._head = 0
        self._base = after  # sequence before the first item, those before the head included
        self._end = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._items) - self._head

    @property
    def first(self) -> int:
        """Sequence of the oldest message that is here; one more than :attr:`last` if there is none."""
        return self._base + self._head + 1

    @property
    def last(self) -> int:
        """Sequence of the latest message that was ever added."""
        return self._base + len(self._items)

    @property
    def oldest(self) -> int | None:
        """The time at which the oldest message was added (ms epoch); None if there is none."""
        return self._items[self._head].time if self._head < len(self._items) else None

    def append(self, packed: bytes, count: int, now: int, stored: int = 0) -> None:
        """Add a message behind all others.

        Args:
            packed: its envelope.
            count: of its delivery.
            now: ms epoch.
            stored: its number in the journal.
        """
        size = len(packed) + OVERHEAD_BYTES
        self._end += size
        self.bytes += size
        self._items.append(Tapped(now, count, self._end, packed, stored))

    def drop(self, upto: int, gone: list[int] | None = None) -> int:
        """Remove messages up to a sequence.

        Args:
            upto: the sequence.
            gone: is given their numbers in the journal.

        Returns:
            How many of them were still there.
        """
        items = self._items
        head = min(upto - self._base, len(items))
        dropped = head - self._head
        if dropped <= 0:
            return 0
        if gone is not None:
            gone.extend(item.stored for item in items[self._head : head])
        self.bytes -= items[head - 1].end - self._end_before(self._head)
        self._head = head
        if head == len(items):
            items.clear()
        elif head < _TRIM or 2 * head < len(items):
            items[head - dropped : head] = [_ACKNOWLEDGED] * dropped  # the bytes are freed now, the places later
            return dropped
        else:
            del items[:head]
        self._base += head
        self._head = 0
        return dropped

    def over(self, messages: int, size: int) -> int:
        """The sequence up to which messages must be removed so that no more than so many, of so many bytes, remain."""
        upto = self._base + max(self._head, len(self._items) - messages)
        if self.bytes > size:
            upto = max(upto, self._base + bisect_left(self._items, self._end - size, lo=self._head, key=_end) + 1)
        return min(upto, self.last)

    def before(self, time: int) -> int:
        """Sequence of the last message that was added before a time (ms epoch)."""
        return self._base + bisect_left(self._items, time, lo=self._head, key=_time)

    def reach(self, after: int, messages: int, size: int) -> int:
        """The last sequence of so many messages with so many bytes behind `after`; at least one message if there is
        one.

        Args:
            after: a sequence.
            messages: at most; 0 for any number.
            size: bytes at most, overhead included; 0 for any number.
        """
        items = self._items
        start = min(max(after - self._base, self._head), len(items))
        stop = min(start + messages, len(items)) if messages else len(items)
        if size and start < stop:
            fits = bisect_right(items, self._end_before(start) + size, lo=start, hi=stop, key=_end)
            stop = max(fits, start + 1)
        return self._base + stop

    def slice(self, after: int, upto: int, limit: int, size: int) -> list[Tapped]:
        """Messages behind `after` up to `upto` that are here, at most `limit` with about `size` bytes."""
        start = min(max(after - self._base, self._head), len(self._items))
        stop = min(self.reach(after, limit, size), upto) - self._base
        return self._items[start : max(stop, start)]

    def _end_before(self, index: int) -> int:
        if index > 0 and self._items[index - 1] is not _ACKNOWLEDGED:
            return self._items[index - 1].end
        item = self._items[index]
        return item.end - len(item.packed) - OVERHEAD_BYTES


_ACKNOWLEDGED: Final = Tapped(0, 0, 0, b"", 0)
