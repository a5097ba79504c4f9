"""Waiting messages by the value of a header or property: a selector on one value need not look through the backlog
(D-17)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["ValueIndex"]

E = TypeVar("E")

#: Values that one step of compaction looks at.
PIECE = 1_024


class ValueIndex(Generic[E]):
    """Entries by one value. What is no longer waiting stays filed until :meth:`compaction`; whoever looks up filters.

    Args:
        value_of: reads the value; None is not filed, since no equality is TRUE for it.
        waits: whether an entry is still of interest.
    """

    __slots__ = ("_count", "_entries", "_value_of", "_waits", "scanning")

    def __init__(self, value_of: Callable[[E], Any], waits: Callable[[E], bool]) -> None:
        self._value_of = value_of
        self._waits = waits
        self._count = 0
        self._entries: dict[Any, E | list[E]] = {}  # most values are unique, and a list each would double the memory
        #: As View.scanning: arrivals of at most this priority are still left for a scan to file.
        self.scanning = 9

    def add(self, entry: E) -> bool:
        """File an entry; False if it has no value."""
        value = self._value_of(entry)
        if value is None:
            return False
        self._count += 1
        filed = self._entries.get(value)
        if filed is None:
            self._entries[value] = entry
        elif type(filed) is list:
            filed.append(entry)
        else:
            self._entries[value] = [filed, entry]  # type: ignore[list-item]  # no entry is a list
        return True

    def add_all(self, values: Sequence[Any], filed: Sequence[E]) -> None:
        """As :meth:`add`, of many entries whose values, none of them None, were read already."""
        entries = self._entries
        self._count += len(filed)
        fresh: dict[Any, E | list[E]] = dict(zip(values, filed, strict=True))
        if len(fresh) == len(filed) and (not entries or entries.keys().isdisjoint(fresh)):  # as a rule ids are unique
            entries.update(fresh)
            return
        for value, entry in zip(values, filed, strict=True):
            known = entries.get(value)
            if known is None:
                entries[value] = entry
            elif type(known) is list:
                known.append(entry)
            else:
                entries[value] = [known, entry]  # type: ignore[list-item]  # no entry is a list

    def count(self, values: Iterable[Any]) -> int:
        """How many are filed under these values, at most."""
        return sum(map(len, map(self._filed, values)))

    @property
    def distinct(self) -> int:
        """Values that something is filed under."""
        return len(self._entries)

    def find(self, values: Iterable[Any]) -> list[E]:
        """Everything filed under one of the values, each entry once."""
        return list(dict.fromkeys(entry for value in values for entry in self._filed(value)))

    def _filed(self, value: Any) -> list[E]:
        filed = self._entries.get(value)
        if filed is None:
            return []
        return filed if type(filed) is list else [filed]  # type: ignore[list-item]  # as above

    def compaction(self) -> Iterator[int]:
        """Drop what does not wait any more and what is filed twice, a piece at a time; yields how many entries each
        piece had."""
        values = list(self._entries)
        for start in range(0, len(values), PIECE):
            looked = 0
            for value in values[start : start + PIECE]:
                filed = self._filed(value)
                looked += len(filed)
                kept = [entry for entry in dict.fromkeys(filed) if self._waits(entry)]
                self._count += len(kept) - len(filed)
                if kept:
                    self._entries[value] = kept if len(kept) > 1 else kept[0]
                else:
                    self._entries.pop(value, None)
            yield looked

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._count = 0

    def __len__(self) -> int:
        """Entries filed, those no longer waiting included."""
        return self._count
