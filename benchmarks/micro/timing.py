"""Timing of small functions, with something to compare each with: in processor time, for the machine is shared."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One line of a table: what took how long, beside what it is compared with."""

    case: str
    us: float
    baseline: str
    baseline_us: float

    @property
    def ratio(self) -> float:
        """How many times faster than the baseline; below 1 is slower."""
        return round(self.baseline_us / self.us, 2)


def time_us(function: Callable[[], object], operations: int = 1, seconds: float = 0.1) -> float:
    """Microseconds per operation: the median of three stretches of about `seconds` each."""
    function()
    calls, spent = 1, 0.0
    while spent < seconds / 10:  # how many calls fill a tenth of a stretch
        calls *= 2
        spent = _stretch(function, calls)
    calls = max(1, int(calls * seconds / spent))
    return statistics.median(_stretch(function, calls) for _ in range(3)) / calls / operations * 1e6


def _stretch(function: Callable[[], object], calls: int) -> float:
    enabled = gc.isenabled()
    gc.disable()  # as timeit does: a collection belongs to whoever made the garbage
    try:
        start = time.process_time()
        for _ in range(calls):
            function()
        return time.process_time() - start
    finally:
        if enabled:
            gc.enable()


def compare(
    case: str,
    function: Callable[[], object],
    baseline: str,
    base: Callable[[], object] | float,
    operations: int = 1,
    seconds: float = 0.1,
) -> Row:
    """Time `function`, and `base` in the same breath unless its microseconds are given."""
    us = time_us(function, operations, seconds)
    base_us = base if isinstance(base, float) else time_us(base, operations, seconds)
    return Row(case, round(us, 4), baseline, round(base_us, 4))
