"""Waiting messages by the value of a header: a selector on one value need not look through the backlog (D-17)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

__all__ = ["ValueIndex"]

E = TypeVar("E")


class ValueIndex(Generic[E]):
    """Entries by one value. What is no longer waiting stays filed until :meth:`compact`; whoever looks up filters.

    Args:
        value_of: reads the value; None is not filed, since no equality is TRUE for it.
    """

    __slots__ = ("_entries", "_value_of", "scanning")

    def __init__(self, value_of: Callable[[E], Any]) -> None:
        self._value_of = value_of
        self._entries: dict[Any, list[E]] = {}
        #: As View.scanning: arrivals of at most this priority are still left for a scan to file.
        self.scanning = 9

    def add(self, entry: E) -> bool:
        """File an entry; False if it has no value."""
        value = self._value_of(entry)
        if value is None:
            return False
        filed = self._entries.get(value)
        if filed is None:
            self._entries[value] = [entry]
        else:
            filed.append(entry)
        return True

    def find(self, values: Iterable[Any]) -> list[E]:
        """Everything filed under one of the values, each entry once."""
        return list(dict.fromkeys(entry for value in values for entry in self._entries.get(value, ())))

    def compact(self, keep: Callable[[E], bool]) -> None:
        """Drop what `keep` does not want, and what is filed twice."""
        kept = {value: [e for e in dict.fromkeys(filed) if keep(e)] for value, filed in self._entries.items()}
        self._entries = {value: filed for value, filed in kept.items() if filed}

    def __len__(self) -> int:
        """Entries filed, those no longer waiting included."""
        return sum(map(len, self._entries.values()))
