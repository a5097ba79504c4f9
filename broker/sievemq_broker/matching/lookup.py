"""Waiting messages by the value of a header or property, so that a selector on one value need not search the backlog
(D-17)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from math import inf
from typing import Any, Generic, TypeVar

E = TypeVar("E")

#: Values that one step of compaction visits.
PIECE = 1_024


class ValueIndex(Generic[E]):
    """Entries by one value. What is no longer waiting stays filed until :meth:`compaction`; the caller filters.

    Args:
        value_of: reads the value; None is not filed, since no equality is TRUE for it.
        waits: whether an entry is still of interest.

    Attributes:
        first: ``first(value, entry)`` files an entry whose value, not None, was read already, and returns it; or what
            is filed under that value: then it is for :meth:`again`. One call, in C, for very many of them.
        scanning: as :attr:`View.scanning`: arrivals of at most this priority are still left for a scan to file.
    """

    __slots__ = ("_entries", "_more", "_value_of", "_waits", "first", "scanning")

    def __init__(self, value_of: Callable[[E], Any], waits: Callable[[E], bool]) -> None:
        self._value_of = value_of
        self._waits = waits
        # Most values are unique, and a list for each would double the memory.
        self._entries: dict[Any, E | list[E]] = {}
        self._more = 0  # further entries of values with several, without the first
        self.first: Callable[[Any, E], E | list[E]] = self._entries.setdefault
        self.scanning = 9

    def add(self, entry: E) -> bool:
        """File an entry; False if it has no value."""
        value = self._value_of(entry)
        if value is None:
            return False
        if self.first(value, entry) is not entry:
            self.again(value, entry)
        return True

    def again(self, value: Any, entry: E) -> None:
        """File an entry under a value that others have as well."""
        self._more += 1
        filed = self._entries[value]
        if type(filed) is list:
            filed.append(entry)
        else:
            self._entries[value] = [filed, entry]  # type: ignore[list-item]  # no entry is a list

    @property
    def distinct(self) -> int:
        return len(self._entries)

    def find(self, values: Collection[Any], most: float = inf) -> list[E] | None:
        """The entries with one of the values, each once; None if that may be more than `most`."""
        filed = [found for value in values if (found := self._entries.get(value)) is not None]
        if len(filed) == 1 and type(filed[0]) is not list:  # usually one value is looked up, and one entry has it
            return filed  # type: ignore[return-value]  # no list in it
        lists: list[list[E]] = [each if type(each) is list else [each] for each in filed]  # type: ignore[list-item]
        if sum(map(len, lists)) > most:
            return None
        return list(dict.fromkeys(chain.from_iterable(lists)))

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
                if filed:
                    self._more -= len(filed) - max(1, len(kept))
                if kept:
                    self._entries[value] = kept if len(kept) > 1 else kept[0]
                else:
                    self._entries.pop(value, None)
            yield looked

    def scanned_to(self, scanning: int) -> None:
        """The backlog has been searched down to the priority above `scanning`."""
        self.scanning = scanning

    def clear(self) -> None:
        self._entries.clear()
        self._more = 0

    def __len__(self) -> int:
        """Entries filed, those no longer waiting included."""
        return len(self._entries) + self._more
