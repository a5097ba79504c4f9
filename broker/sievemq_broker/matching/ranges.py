"""Selectors on a number: intervals by the values in them.

Bounded intervals lie in a grid of cells whose size is a power of two just above the interval's width: an interval
covers two cells at most, a value lies in one cell per size in use. Half-open ones are kept in the order of their bound.
Adding and removing cost next to nothing in both, so that subscriptions may come and go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from math import floor, frexp, inf, ldexp
from typing import Any, Generic, TypeVar

B = TypeVar("B", bound="dict[Any, Any]")

#: Exponents of the smallest and the largest cell: a value is looked up in 49 sizes at most. Narrower intervals share
#: the smallest cells, wider ones are filed as if they had no upper bound.
FINEST, COARSEST = -16, 32

#: Numbers of a cell: those whose number a double still tells from the next.
_CELLS = 2.0**52


class _Bounds:
    """Buckets by one bound, in order."""

    __slots__ = ("buckets", "order")

    def __init__(self) -> None:
        self.order: list[float] = []
        self.buckets: dict[float, dict[Any, Any]] = {}


class Ranges(Generic[B]):
    """Buckets (target -> its function) by interval."""

    __slots__ = ("_cells", "_highs", "_lows")

    def __init__(self) -> None:
        # exponent -> (2 ** -exponent, number of the cell -> bucket)
        self._cells: dict[int, tuple[float, dict[int, dict[Any, Any]]]] = {}
        self._lows = _Bounds()
        self._highs = _Bounds()

    def __bool__(self) -> bool:
        return bool(self._cells or self._lows.order or self._highs.order)

    def add(self, low: float, high: float, target: Any, kept: Any) -> None:
        """File `target` under the numbers from `low` to `high`."""
        exponent = _exponent(low, high)
        if exponent is None:
            bounds, bound = (self._lows, low) if low != -inf else (self._highs, high)
            bucket = bounds.buckets.get(bound)
            if bucket is None:
                bucket = bounds.buckets[bound] = {}
                insort(bounds.order, bound)
            bucket[target] = kept
            return
        if exponent not in self._cells:
            self._cells[exponent] = ldexp(1.0, -exponent), {}
        scale, cells = self._cells[exponent]
        for number in range(floor(low * scale), floor(high * scale) + 1):
            cells.setdefault(number, {})[target] = kept

    def remove(self, low: float, high: float, target: Any) -> None:
        """Remove an entry of :meth:`add`, unless it was removed with another interval at the same place."""
        exponent = _exponent(low, high)
        if exponent is None:
            bounds, bound = (self._lows, low) if low != -inf else (self._highs, high)
            bucket = bounds.buckets.get(bound)
            if bucket is None:
                return
            bucket.pop(target, None)
            if not bucket:
                del bounds.buckets[bound]
                del bounds.order[bisect_left(bounds.order, bound)]
            return
        if exponent not in self._cells:
            return
        scale, cells = self._cells[exponent]
        for number in range(floor(low * scale), floor(high * scale) + 1):
            bucket = cells.get(number)
            if bucket is not None:
                bucket.pop(target, None)
                if not bucket:
                    del cells[number]
        if not cells:
            del self._cells[exponent]

    def fullest(self, low: float, high: float) -> int:
        """The number of selectors in the fullest bucket of an interval; for a half-open one, the number of bounds."""
        exponent = _exponent(low, high)
        if exponent is None:
            return len((self._lows if low != -inf else self._highs).order)
        if exponent not in self._cells:
            return 0
        scale, cells = self._cells[exponent]
        return max(len(cells.get(number, ())) for number in range(floor(low * scale), floor(high * scale) + 1))

    def hit(self, value: float) -> Iterator[dict[Any, Any]]:
        """The buckets of all targets whose interval contains `value`, and perhaps of others near it."""
        for scale, cells in self._cells.values():
            place = value * scale
            if -_CELLS < place < _CELLS:
                bucket = cells.get(floor(place))
                if bucket is not None:
                    yield bucket
        lows, highs = self._lows, self._highs
        for bound in lows.order[: bisect_right(lows.order, value)]:
            yield lows.buckets[bound]
        for bound in highs.order[bisect_left(highs.order, value) :]:
            yield highs.buckets[bound]


def _exponent(low: float, high: float) -> int | None:
    """The size of the cells for an interval, as a power of two; None if it is filed by one bound."""
    if low == -inf or high == inf or max(abs(low), abs(high)) >= _CELLS:
        return None
    exponent = max(FINEST, frexp(high - low)[1])
    if exponent > COARSEST or max(abs(low), abs(high)) * 2.0**-exponent >= _CELLS:
        return None
    return exponent
