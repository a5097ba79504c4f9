"""The values that satisfy conditions on one name: sets that can be intersected, united with nothing and found empty.

A set may hold more than it should (a pattern is not taken apart), never less: "empty" is certain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from sievemq_core.selector.like import LikePattern


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers between two bounds, both included, without some; and perhaps NaN."""

    low: float = -inf
    high: float = inf
    without: frozenset[float] = frozenset()
    nan: bool = True

    @property
    def empty(self) -> bool:
        """No number is in it."""
        return not self.nan and (self.low > self.high or (self.low == self.high and self.low in self.without))

    def __and__(self, other: Interval) -> Interval:
        return Interval(
            max(self.low, other.low),
            min(self.high, other.high),
            self.without | other.without,
            self.nan and other.nan,
        )


@dataclass(frozen=True, slots=True)
class Texts:
    """Strings: some, or all but some, that match and do not match patterns."""

    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    like: tuple[LikePattern, ...] = ()
    unlike: tuple[LikePattern, ...] = ()

    @property
    def empty(self) -> bool:
        """No string is in it, for certain."""
        if self.only is not None:
            return not any(self._has(text) for text in self.only)
        prefixes = sorted(pattern.prefix for pattern in self.like)
        if any(not longer.startswith(shorter) for shorter, longer in pairwise(prefixes)):
            return True
        return any(pattern.matches_all or pattern in self.like for pattern in self.unlike)

    def _has(self, text: str) -> bool:
        return (
            text not in self.without
            and all(pattern.matches(text) for pattern in self.like)
            and not any(pattern.matches(text) for pattern in self.unlike)
        )

    def __and__(self, other: Texts) -> Texts:
        only = self.only if other.only is None else other.only if self.only is None else self.only & other.only
        return Texts(only, self.without | other.without, self.like + other.like, self.unlike + other.unlike)


@dataclass(frozen=True, slots=True)
class Possible:
    """A set of values: NULL, booleans, numbers, strings. By default every value there is."""

    null: bool = True
    booleans: frozenset[bool] = frozenset({True, False})
    numbers: Interval | None = field(default_factory=Interval)
    texts: Texts | None = field(default_factory=Texts)

    @property
    def empty(self) -> bool:
        """No value is in it, for certain."""
        return (
            not self.null
            and not self.booleans
            and (self.numbers is None or self.numbers.empty)
            and (self.texts is None or self.texts.empty)
        )

    def __and__(self, other: Possible) -> Possible:
        return Possible(
            self.null and other.null,
            self.booleans & other.booleans,
            None if self.numbers is None or other.numbers is None else self.numbers & other.numbers,
            None if self.texts is None or other.texts is None else self.texts & other.texts,
        )
