"""Durations in buckets, as plain integers; read at a scrape."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """Counts durations by length.

    Args:
        bounds: upper bounds of the buckets in seconds, ascending; a last one takes the rest.

    Attributes:
        buckets: how many fell into each.
        count: how many there were.
        sum: of all, in seconds.
        last: the latest, in seconds.
    """

    __slots__ = ("bounds", "buckets", "count", "last", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = self.last = 0.0
        self.count = 0

    def observe(self, seconds: float) -> None:
        self.last = seconds
        self.sum += seconds
        self.count += 1
        self.buckets[bisect_left(self.bounds, seconds)] += 1
