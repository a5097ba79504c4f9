"""What every driver needs: the clock, the count of what was received, percentiles."""

from __future__ import annotations

import time
from typing import Any

#: A part gives up after this long and reports what it has.
DEADLINE_S = 75
now = time.monotonic_ns


def percentile(times: list[int], percent: float) -> float:
    """Of nanoseconds, in microseconds."""
    ordered = sorted(times)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] / 1e3, 1) if ordered else 0.0


class Receipts:
    """What the consumers of one process received."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.count = self.sum = self.end = 0

    def add(self, body: bytes) -> bool:
        self.sum += int(body[:10])
        self.count += 1
        if self.count == self.expected:
            self.end = now()
        return self.count >= self.expected

    def result(self) -> dict[str, Any]:
        return {"received": self.count, "need": self.expected, "sum": self.sum, "t_end": self.end or now()}


class TimedReceipts(Receipts):
    """Receipts of messages whose bodies begin with the time at which they were due (benchmarks/latency.py)."""

    def __init__(self, expected: int) -> None:
        super().__init__(expected)
        self.times: list[int] = []

    def add(self, body: bytes) -> bool:
        """Note how long the message took; True once nothing more is expected."""
        self.times.append(now() - int(body[:20]))
        return len(self.times) >= self.expected

    def result(self) -> dict[str, Any]:
        """Every message's nanoseconds, in the order of receipt."""
        return {"times": self.times, "need": self.expected}


def receipts_of(job: dict[str, Any]) -> Receipts:
    kind = TimedReceipts if job.get("timed") else Receipts
    return kind(sum(sub["expected"] for sub in job["subs"]))
