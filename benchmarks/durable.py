"""What a data directory costs: throughput, one send at a time, recovery; each beside memory or the bare disk.

python -m benchmarks.run --only durable
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.macro.processes import Broker, run_workload

__all__ = ["run"]

SIZE = 256


def run(quick: bool, repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All rows: what, figure, beside what, figure, ratio.

    Args:
        quick: a tenth of everything.
        repeats: runs of each; the median counts.
        say: is told of progress.
    """
    folder = Path(tempfile.mkdtemp(prefix="sievemq-bench-"))
    try:
        return [
            throughput(folder, 6_000 if quick else 60_000, repeats, say),
            one_at_a_time(folder, 300 if quick else 2_000, repeats, say),
            recovery(folder, 100_000 if quick else 1_000_000, say),
        ]
    finally:
        shutil.rmtree(folder)


def throughput(folder: Path, n: int, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """W1c, PERSISTENT and confirmed, with a data directory and without, alternating."""
    rates: dict[str, list[int]] = {"durable": [], "memory": []}
    cpu: dict[str, list[float]] = {"durable": [], "memory": []}
    for repeat in range(repeats):
        say(f"durable throughput: run {repeat + 1} of {repeats}")
        for mode, own in rates.items():
            options = ("--data-dir", str(folder / f"w{repeat}")) if mode == "durable" else ()
            with Broker(*options) as broker:
                row = run_workload(broker, "W1c", n, SIZE, "blocking", f"d{repeat}")
            own.append(row["msgs_per_s"])
            cpu[mode].append(row["cpu_s"]["broker"])
    durable, memory = (statistics.median(rates[mode]) for mode in ("durable", "memory"))
    return {
        "what": f"{n:,} PERSISTENT messages of {SIZE} bytes, confirmed, many in flight",
        "figure": f"{durable:,.0f}/s",
        "beside": "in memory",
        "other": f"{memory:,.0f}/s",
        "ratio": round(durable / memory, 2),
        "rates": rates,
        "broker_us": {mode: round(statistics.median(cpu[mode]) / n * 1e6, 2) for mode in cpu},
    }


def one_at_a_time(folder: Path, n: int, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Each send waits for its confirm. Beside it what the disk takes to sync as many bytes appended to a file."""
    durable, memory, bare = [], [], []
    for repeat in range(repeats):
        say(f"durable, one at a time: run {repeat + 1} of {repeats}")
        bare.append(sync_us(folder / "bare", n))
        with Broker("--data-dir", str(folder / f"o{repeat}")) as broker:
            durable.append(send_us(broker.url, n))
        bare.append(sync_us(folder / "bare", n))
        with Broker() as broker:
            memory.append(send_us(broker.url, n))
    took, plain, sync = map(statistics.median, (durable, memory, bare))
    return {
        "what": "one confirmed send at a time",
        "figure": f"{took:.0f} µs",
        "beside": f"in memory {plain:.0f} µs + bare sync",
        "other": f"{sync:.0f} µs",
        "ratio": round((took - plain) / sync, 2),
        "durable_us": durable,
        "memory_us": memory,
        "sync_us": bare,
    }


def sync_us(path: Path, n: int) -> float:
    """Median of writing some 400 bytes to the end of a file and syncing them."""
    data = os.urandom(400)
    times = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for _ in range(n):
            begin = time.perf_counter()
            os.write(descriptor, data)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - begin)
    finally:
        os.close(descriptor)
    return statistics.median(times) * 1e6


def send_us(url: str, n: int) -> float:
    """Median of a send that waits for its confirm."""
    from sievemq import ConnectionFactory  # after the brokers' processes, which need none of it

    with ConnectionFactory(url).create_context() as context:
        queue, producer = context.create_queue("one"), context.create_producer()
        body = b"x" * SIZE
        times = []
        for number in range(n + n // 10):
            begin = time.perf_counter()
            producer.send(queue, body)
            if number >= n // 10:
                times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def recovery(folder: Path, n: int, say: Callable[[str], None]) -> dict[str, Any]:
    """From the start of the process until clients may come, with so many messages waiting."""
    from sievemq_broker.domain import Broker as Domain
    from sievemq_broker.domain.restore import restore
    from sievemq_broker.store import SqliteStore
    from sievemq_core.message.envelope import Envelope, pack_properties

    say(f"recovery of {n:,} messages")
    store = SqliteStore(folder / "many", "bench")
    domain = Domain()
    restore(domain, store, 1)
    assert domain.journal is not None
    space = domain.namespace("")
    packed, letters = pack_properties({"region": "r1", "qty": 5, "urgent": True})
    for number in range(n):
        fields = (f"ID:b-1:{number}", 1, 4, 2, 0, 0, None, None, None, packed, letters, 2, b"x" * SIZE)
        space.send(f"queue:q{number % 10}", Envelope(fields), 1)
        if number % 500 == 499:
            store.write(domain.journal.cut(), 1)
            if number % 50_000 == 49_999:  # only the store is wanted
                domain = Domain()
                restore(domain, _Empty(store), 1)
                assert domain.journal is not None
                space = domain.namespace("")
                domain.journal.cut()
    store.close()
    size = sum(file.stat().st_size for file in (folder / "many").glob("store.db*"))
    took, cpu, resident = until_welcome("--data-dir", str(folder / "many"))
    empty, own, idle = until_welcome("--data-dir", str(folder / "none"))
    return {
        "what": f"start with {n:,} messages waiting, {size / 1e6:,.0f} MB on disk",
        "figure": f"{took:.2f} s ({cpu:.2f} s of CPU), {resident:,.0f} MB resident",
        "beside": "start with none",
        "other": f"{empty:.2f} s ({own:.2f} s), {idle:,.0f} MB",
        "ratio": None,
        "seconds": took,
        "cpu_s": cpu,
        "rss_mb": resident,
    }


def until_welcome(*options: str) -> tuple[float, float, float]:
    """Seconds from the start of a broker's process until a client is welcome; its CPU seconds and megabytes."""
    from sievemq import ConnectionFactory

    begin = time.monotonic()
    # It listens already, and answers when it is ready.
    with Broker(*options) as broker, ConnectionFactory(f"{broker.url}?connect_timeout=60000").create_context():
        return time.monotonic() - begin, broker.cpu_s(), broker.rss_mb()


class _Empty:
    """What a store has kept, without its messages."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.definitions = store.definitions

    @property
    def next_batch(self) -> int:
        return int(self._store.next_batch)

    def entries(self) -> tuple[()]:
        return ()
