"""Backups of a broker under load, each restored: every message is accounted for.

    python -m tests.broker.store.backups --backups 10 --messages 200000 [--postgres]

    producers, three messages a transaction ─► queue:in ─► relays, in transactions ─► queue:out

A restored store has each producer's transactions up to one of them, each as a whole, and at least up to the last one
that was confirmed before the backup began. What a relay consumed is in queue:out once, or still in queue:in.

The program measures one confirmed send after the other, before and while backups are made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.store.cli import store as command

from .kill import COMMAND, DEADLINE

TOGETHER = 3


class Load:
    """Clients of a broker, until :meth:`end`.

    Args:
        url: of the broker.
        size: bytes of a message.
    """

    def __init__(self, url: str, *, producers: int = 2, relays: int = 1, size: int = 200) -> None:
        self._url, self._body = url, "x" * size
        self._over = threading.Event()
        self._more = threading.Condition()
        #: Transactions of each producer that are confirmed, and of relays.
        self.confirmed: Counter[int] = Counter()
        self.relayed = 0
        parts = [(self._produce, number) for number in range(producers)] + [(self._relay, 0)] * relays
        self._threads = [threading.Thread(target=part, args=(number,)) for part, number in parts]
        for thread in self._threads:
            thread.start()

    def _produce(self, producer: int) -> None:
        with ConnectionFactory(self._url).create_context(JMSContext.SESSION_TRANSACTED) as context:
            queue, sender = context.create_queue("in"), context.create_producer()
            step = 0
            while not self._over.is_set():
                for place in range(TOGETHER):
                    sender.set_property("name", f"{producer} {step} {place}").send(queue, self._body)
                context.commit()
                step += 1
                with self._more:
                    self.confirmed[producer] = step
                    self._more.notify_all()

    def _relay(self, _: int) -> None:
        chance = random.Random(1)
        with ConnectionFactory(self._url).create_context(JMSContext.SESSION_TRANSACTED) as context:
            consumer, sender = context.create_consumer(context.create_queue("in")), context.create_producer()
            while not self._over.is_set():
                for _ in range(chance.randrange(1, 5)):
                    if (message := consumer.receive(100)) is not None:
                        sender.set_property("name", message.get_string_property("name"))
                        sender.send(context.create_queue("out"), self._body)
                context.commit()
                with self._more:
                    self.relayed += 1
                    self._more.notify_all()

    def until(self, steps: int) -> None:
        """Wait until each producer and the relays have so many transactions."""

        def reached() -> bool:
            return len(self.confirmed) > 0 and min(self.confirmed.values()) >= steps and self.relayed >= steps

        with self._more:
            assert self._more.wait_for(reached, DEADLINE)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(DEADLINE)


def faults_of(lines: list[dict[str, Any]], confirmed: Counter[int]) -> list[str]:
    """What is wrong with a store.

    Args:
        lines: of its export.
        confirmed: transactions that it must have, by producer.
    """
    found: list[str] = []
    steps: defaultdict[int, Counter[int]] = defaultdict(Counter)
    names = Counter(line["properties"]["name"] for line in lines if "name" in line["properties"])
    found += [f"{name} is there {count} times" for name, count in names.items() if count > 1]
    for name in names:
        producer, step, _ = map(int, name.split())
        steps[producer][step] += 1
    for producer, least in confirmed.items():
        there = steps[producer]
        found += [f"transaction {step} of {producer} is torn" for step, n in there.items() if n != TOGETHER]
        if sorted(there) != list(range(len(there))):
            found.append(f"transactions of {producer} are missing")
        if len(there) < least:
            found.append(f"{producer} had {least} confirmed transactions, and {len(there)} are there")
    return found


def make_backup(store: str, file: Path) -> None:
    """Run `sievemq store backup` in this process."""
    result = CliRunner().invoke(command, ["backup", store, str(file)])
    assert result.exit_code == 0, result.output


def restored(file: Path, folder: Path) -> list[dict[str, Any]]:
    """Restore a backup; the messages of the store."""
    result = CliRunner().invoke(command, ["restore", str(file), str(folder)])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(command, ["export", str(folder)])
    assert result.exit_code == 0, result.output
    return list(map(json.loads, result.stdout.splitlines()))


def play(folder: Path, store: str | None = None, *, backups: int, steps: int) -> None:
    """The short form: a broker in this process.

    Args:
        store: URL of a database; None for a data directory.
        steps: transactions before each backup.
    """
    settings: dict[str, Any] = (
        {"data_dir": str(folder / "data")} if store is None else {"store": store, "beat_seconds": 0.05}
    )
    with EmbeddedBroker(settings=settings) as broker:
        load = Load(broker.url)
        try:
            for number in range(backups):
                load.until(steps * (number + 1))
                before = load.confirmed.copy()
                make_backup(store or str(folder / "data"), folder / f"backup{number}")
                assert faults_of(restored(folder / f"backup{number}", folder / f"new{number}"), before) == []
        finally:
            load.end()


# -- the program ------------------------------------------------------------------------------------------------------


class Probe:
    """One confirmed send after the other; how long each took, in seconds."""

    def __init__(self, url: str) -> None:
        self.times: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url,))
        self._thread.start()

    def _run(self, url: str) -> None:
        with ConnectionFactory(url).create_context() as context:
            queue, sender = context.create_queue("probe"), context.create_producer()
            while not self._over.wait(0.005):
                begun = time.perf_counter()
                sender.send(queue, "x" * 200)
                self.times.append(time.perf_counter() - begun)

    def taken(self) -> str:
        """The times since the last call."""
        times, self.times = sorted(self.times), []
        at = [times[min(len(times) - 1, int(len(times) * share))] * 1e3 for share in (0.5, 0.99, 1)]
        return f"{len(times):,} confirmed sends: median {at[0]:.1f}, 99 % {at[1]:.1f}, longest {at[2]:.1f} ms"

    def end(self) -> None:
        self._over.set()
        self._thread.join(DEADLINE)


def lag_of(http_url: str) -> dict[str, int]:
    """How often the broker's loop was later than so many seconds."""
    with urllib.request.urlopen(f"{http_url}/metrics", timeout=DEADLINE) as answer:
        lines = answer.read().decode().splitlines()
    rows = [line for line in lines if line.startswith("sievemq_event_loop_lag_seconds_bucket")]
    counts = {line.partition('le="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2])) for line in rows}
    return {upto: counts["+Inf"] - count for upto, count in counts.items() if upto != "+Inf"}


@contextlib.contextmanager
def database() -> Iterator[str]:
    from tests.postgres import Database, Server

    server = Server(fsync=True)
    try:
        server.start()
        yield Database(server).url
    finally:
        server.close()


def fill(url: str, messages: int, size: int) -> None:
    with ConnectionFactory(url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        queue, sender = context.create_queue("filled"), context.create_producer()
        for number in range(1, messages + 1):
            sender.send(queue, "x" * size)
            if not number % 500:
                context.commit()
        context.commit()


@contextlib.contextmanager
def broker(where: str) -> Iterator[tuple[str, str]]:
    """A broker in a process of its own; its URLs."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
    at = ("--store", where) if where.startswith("postgresql:") else ("--data-dir", where)
    process = subprocess.Popen(
        [*COMMAND, "broker", "--port", "0", "--http-port", "0", "--json-logs", *at],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = next(found for line in process.stdout if (found := json.loads(line))["event"] == "broker.ready")
        yield ready["url"], ready["http_url"]
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE)


def measure(folder: Path, where: str, backups: int, messages: int, size: int) -> list[str]:
    """Make backups of a broker, each by a process of its own; print what that costs, and return faults."""
    faults: list[str] = []
    with broker(where) as (url, http_url):
        fill(url, messages, size)
        load, probe = Load(url), Probe(url)
        try:
            load.until(20)
            probe.taken()
            load.until(120)
            print(f"before: {probe.taken()}", flush=True)
            for number in range(backups):
                before, late, begun = load.confirmed.copy(), lag_of(http_url), time.perf_counter()
                file = folder / f"backup{number}"
                subprocess.run([*COMMAND, "store", "backup", where, str(file)], check=True, stdout=subprocess.DEVNULL)
                seconds = time.perf_counter() - begun
                more = {upto: count - late[upto] for upto, count in lag_of(http_url).items() if count > late[upto]}
                print(f"backup {number}: {file.stat().st_size / 1e6:.0f} MB in {seconds:.1f} s. Meanwhile "
                      f"{probe.taken()}; loop later than {more}", flush=True)  # fmt: skip
                faults += faults_of(restored(file, folder / f"new{number}"), before)
                file.unlink()
        finally:
            load.end()
            probe.end()
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backups", type=int, default=5)
    parser.add_argument("--messages", type=int, default=100_000, help="that wait when the first one begins")
    parser.add_argument("--size", type=int, default=1_000, help="bytes of each")
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sievemq-backups-") as folder,
        database() if options.postgres else contextlib.nullcontext(f"{folder}/data") as where,
    ):
        faults = measure(Path(folder), where, options.backups, options.messages, options.size)
    print("\n".join(faults) or f"{options.backups} backups, no fault")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
