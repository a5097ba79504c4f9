"""The longest turn of a broker's loop while a selector that no index can answer is new on a deep queue.

A turn may take 10 ms: so long at most everybody else waits. In processor time of the loop's thread.
"""

from __future__ import annotations

import gc

from benchmarks.micro.matching import lag_while_attaching
from benchmarks.micro.timing import Row

TURN = 10_000.0


def run(seconds: float) -> list[Row]:
    """A million messages; a tenth of it for a quick look."""
    depth = 1_000_000 if seconds >= 0.1 else 100_000
    histograms, longest, took = lag_while_attaching(depth)
    gc.collect()
    turns = histograms[1]
    rows = [Row(f"longest turn, fresh selector on {depth:,}", round(longest[1] * 1e3, 1), "a turn's limit", TURN)]
    rows.append(
        Row(f"{sum(turns.values())} turns, all, per message", round(took * 1e6 / depth, 3), "a microsecond", 1.0)
    )
    return rows
