"""What is measured, as data: the messages, and who plays which part.

``benchmarks/peers`` sends the same to other brokers, so that a figure here and a figure beside them mean the same.
Every body begins with a ten-digit number; a run counts only if the receivers' count and sum of these numbers are
exactly what was sent.
"""

from __future__ import annotations

import random
from typing import Any, TypeAlias

Job: TypeAlias = dict[str, Any]
"""One process's part: role, workload, n, size, confirm, dest, kind, and for consumers `subs`."""

REGIONS = 4
SYMBOLS = 1000
W6_RECEIVES = 500

DEFAULT_COUNTS = {"W1": 100_000, "W1c": 100_000, "W2": 2_000, "W3": 10_000, "W4": 40_000, "W5": 20_000, "W6": 50_000}


def properties_of(workload: str, i: int) -> dict[str, Any]:
    """The three application properties of message `i`: a string, an integer, a boolean."""
    if workload == "W4":
        return {"region": f"r{i % REGIONS}", "qty": 51 + i % 49, "urgent": i % 2 == 0}
    if workload == "W5":
        return {"symbol": f"S{i % SYMBOLS}", "qty": i % 100, "urgent": i % 2 == 0}
    return {"region": f"r{i % REGIONS}", "qty": i % 100, "urgent": i % 2 == 0}


def body_of(i: int, size: int) -> bytes:
    return b"%010d" % i + b"x" * (size - 10)


def correlated(n: int) -> list[int]:
    """W6: the messages received by correlation id, in the order of the requests."""
    return random.Random(7).sample(range(n), min(W6_RECEIVES, n))


def plan(workload: str, n: int, size: int, run: str) -> list[Job]:
    """The parts of a run in the order they are started; the last one is given the sign to begin."""
    dest = f"{workload.lower()}.{run}"
    kind = "topic" if workload in ("W3", "W5") else "queue"
    job = {"workload": workload, "n": n, "size": size, "confirm": workload == "W1c", "dest": dest, "kind": kind}

    def consumers(count: int, selector: str | None, connections: int, processes: int, expected: Any) -> list[Job]:
        jobs = []
        each = count // processes
        for process in range(processes):
            subs = [
                {
                    "conn": k % connections,
                    "dest": dest,
                    "kind": kind,
                    "selector": selector and selector.format(k=k),
                    "key": f"S{k}" if workload == "W5" else None,  # for a peer with a subject per symbol
                    "expected": expected(k),
                }
                for k in range(process * each, (process + 1) * each)
            ]
            jobs.append({**job, "role": "consume", "subs": subs})
        return jobs

    if workload in ("W1", "W1c"):
        return [*consumers(1, None, 1, 1, lambda k: n), {**job, "role": "produce"}]
    if workload == "W2":
        return [{**job, "role": "respond"}, {**job, "role": "request"}]
    if workload == "W3":
        return [*consumers(10, None, 10, 2, lambda k: n), {**job, "role": "produce"}]
    if workload == "W4":
        matching = "region = 'r{k}' AND qty > 50"
        return [*consumers(4, matching, 4, 2, lambda k: len(range(k, n, REGIONS))), {**job, "role": "produce"}]
    if workload == "W5":
        matching = "symbol = 'S{k}'"
        return [*consumers(SYMBOLS, matching, 2, 2, lambda k: len(range(k, n, SYMBOLS))), {**job, "role": "produce"}]
    if workload == "W6":
        return [{**job, "role": "produce"}, {**job, "role": "correlate"}]
    raise ValueError(f"no workload {workload!r}; there are {', '.join(DEFAULT_COUNTS)}")
