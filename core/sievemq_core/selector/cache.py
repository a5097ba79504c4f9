"""A bounded memory of compiled selectors: every consumer and every reconnect bring the same few texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

#: Selectors that are cached; the least recently used one is evicted first. Errors are not cached.
MAX_ENTRIES = 2_048

#: Characters of a selector that is remembered. A longer one may take megabytes: its users at a time share it.
MAX_CHARS = 2_048

_T = TypeVar("_T")
_D = TypeVar("_D")


class CacheInfo(NamedTuple):
    """The counters of a cache since its last clearing."""

    hits: int
    misses: int
    maximum: int
    size: int


class SelectorCache(Generic[_D, _T]):
    """Calls `make(text, dialect)` once per distinct pair, as long as it is remembered. May be shared by threads."""

    __slots__ = ("_cached", "_long", "_make", "get")

    def __init__(self, make: Callable[[str, _D], _T], maximum: int = MAX_ENTRIES) -> None:
        self._make = make
        self._long: WeakValueDictionary[tuple[str, _D], _T] = WeakValueDictionary()
        self._cached = lru_cache(maximum)(make)
        self.get: Callable[[str, _D], _T] = self._cached

    def share(self, text: str, dialect: _D) -> _T:
        """As ``get``, for a long text: the entry is dropped with its last user."""
        found = self._long.get((text, dialect))
        if found is None:
            found = self._make(text, dialect)
            if found is not None:
                self._long[text, dialect] = found
        return found

    @property
    def long_chars(self) -> int:
        """Characters of the long texts that have users, each counted once."""
        return sum([len(text) for text, _ in self._long])

    def info(self) -> CacheInfo:
        hits, misses, maximum, size = self._cached.cache_info()
        return CacheInfo(hits, misses, maximum or 0, size)

    def clear(self) -> None:
        """Forget everything and set the counters to 0."""
        self._cached.cache_clear()
