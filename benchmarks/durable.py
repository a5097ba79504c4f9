"""What a data directory costs: throughput, one send at a time, recovery; each beside memory or the bare disk.

python -m benchmarks.run --only durable     all of it
python -m benchmarks.durable                one at a time alone, with what each of its parts takes
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.macro.processes import Broker, run_workload
from sievemq import ConnectionFactory

SIZE = 256
#: Bytes of a bare write.
RECORD = 400
#: Sends, and bare writes, one after the other.
BLOCK = 100


def run(quick: bool, repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All rows: what, figure, beside what, figure, ratio.

    Args:
        say: called with progress.
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


def one_at_a_time(
    folder: Path, n: int, repeats: int, say: Callable[[str], None], in_a_row: int = BLOCK
) -> dict[str, Any]:
    """Each send waits for its confirm, one after the other. Beside it what the disk takes for as many bytes, bare and
    with a database around them, one after the other as well. All in turns, a block each, so that whatever else the
    machine does meets all of them. No process is pinned to a processor.

    Args:
        say: called with progress.
        in_a_row: of each before the next one's turn. With 1 the broker is asleep each time, and each writer's data have
            left the processor's caches.
    """
    from sievemq import ConnectionFactory  # after the brokers' processes, which need none of it

    times: dict[str, list[float]] = {}
    client_s = 0.0
    say(f"durable, one at a time: {n * repeats:,} in turns")
    with Broker("--data-dir", str(folder / "one")) as kept, Broker() as plain, contextlib.ExitStack() as stack:
        cases: dict[str, Callable[[], object]] = {
            "durable": stack.enter_context(_sending(ConnectionFactory(kept.url))),
            "memory": stack.enter_context(_sending(ConnectionFactory(plain.url))),
            "append": stack.enter_context(_appending(folder / "append", 0)),
            "sync": stack.enter_context(_appending(folder / "sync", n * repeats * 2)),
            "sqlite": stack.enter_context(_committing(folder / "bare.db")),
        }
        for _ in range(n // 10):
            for case in cases.values():
                case()
        broker_s = kept.cpu_s()
        for _ in range(n * repeats // in_a_row):
            for name, case in cases.items():
                own = times.setdefault(name, [])
                used = time.process_time()
                for _ in range(in_a_row):
                    begin = time.perf_counter()
                    case()
                    own.append(time.perf_counter() - begin)
                if name == "durable":
                    client_s += time.process_time() - used
        broker_s = kept.cpu_s() - broker_s
    took = {name: statistics.median(found) * 1e6 for name, found in times.items()}
    sync = took["sync"]
    return {
        "what": "one confirmed send at a time",
        "figure": f"{took['durable']:.0f} µs",
        "beside": f"in memory {took['memory']:.0f} µs + bare sync {sync:.0f} µs",
        "other": f"{took['memory'] + sync:.0f} µs",
        "ratio": round(took["durable"] / (took["memory"] + sync), 2),
        "syncs": round(took["durable"] / sync, 2),
        "appends": round(took["durable"] / took["append"], 2),
        "syncs_more": round((took["durable"] - took["memory"]) / sync, 2),
        "us": {name: round(each, 1) for name, each in took.items()},
        "cpu_us": {"client": round(client_s / n / repeats * 1e6), "broker": round(broker_s / n / repeats * 1e6)},
    }


@contextlib.contextmanager
def _appending(path: Path, records: int) -> Iterator[Callable[[], object]]:
    """Write RECORD bytes behind the last ones and sync them; over zeros, if there is room made for so many."""
    data = os.urandom(RECORD)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, bytes(records * RECORD))
    os.fsync(descriptor)
    os.lseek(descriptor, 0, os.SEEK_SET)

    def append() -> None:
        os.write(descriptor, data)
        os.fdatasync(descriptor)

    yield append
    os.close(descriptor)


@contextlib.contextmanager
def _committing(path: Path) -> Iterator[Callable[[], object]]:
    """Insert RECORD bytes into a table and commit: a database as Python opens one, in WAL mode, synchronous = FULL."""
    data = os.urandom(RECORD)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, data BLOB)")
    yield lambda: database.execute("INSERT INTO record (data) VALUES (?)", (data,))
    database.close()


@contextlib.contextmanager
def _sending(factory: ConnectionFactory) -> Iterator[Callable[[], object]]:
    with factory.create_context() as context:
        queue, producer, body = context.create_queue("one"), context.create_producer(), b"x" * SIZE
        yield lambda: producer.send(queue, body)


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
        self.definitions = store.definitions
        self.next_write: int = store.next_write
        self.next_batch: int = store.next_batch
        self.batch_bytes: int = store.batch_bytes

    def batches(self) -> tuple[()]:
        return ()


def main() -> None:
    """Print what one confirmed send at a time takes, and what its parts do."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durable", description=main.__doc__)
    parser.add_argument("--sends", type=int, default=2_000, help="how many (2,000)")
    parser.add_argument("--in-a-row", type=int, default=BLOCK, help=f"of each before the next one's turn ({BLOCK})")
    parser.add_argument("--folder", type=Path, help="on the disk that is meant")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sievemq-bench-", dir=arguments.folder) as folder:
        row = one_at_a_time(Path(folder), arguments.sends, 1, lambda _: None, arguments.in_a_row)
    us = row["us"]
    cpu = row["cpu_us"]
    print(f"{us['durable']:7.0f} µs  a PERSISTENT send, confirmed, with a data directory", end="")
    print(f" (processor time: client {cpu['client']} µs, broker {cpu['broker']} µs)")
    print(f"{us['memory']:7.0f} µs  the same in memory")
    print(f"{us['sync']:7.0f} µs  bare: {RECORD} bytes written over zeros, fdatasync")
    print(f"{us['append']:7.0f} µs  bare: {RECORD} bytes appended, fdatasync")
    print(f"{us['sqlite']:7.0f} µs  SQLite as it comes: {RECORD} bytes inserted and committed, WAL, synchronous = FULL")
    print(f"durable / bare append and sync, which a log that grows pays = {row['appends']}")
    print(f"durable / bare sync over zeros, which the broker pays = {row['syncs']}")
    print(f"durable / (in memory + bare sync over zeros) = {row['ratio']}")
    print(f"(durable - in memory) / bare sync over zeros = {row['syncs_more']}")


if __name__ == "__main__":
    main()
