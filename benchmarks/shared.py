"""What a store in PostgreSQL costs beside a data directory, and how long a takeover is. PostgreSQL is on this machine.

python -m benchmarks.run --only shared      throughput, one send at a time, and shards over processes
python -m benchmarks.shared                 a takeover with many messages waiting, again and again
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.postgres import Database, binaries
from tests.postgres import Server as Postgres

from benchmarks.macro.processes import Broker, Server, free_port, run_workload
from sievemq import ConnectionFactory

SIZE = 256
#: Sends one after the other, of each kind in turn.
BLOCK = 100
#: Seconds within which a broker starts, or takes over.
LIMIT = 240
#: Namespaces, and shards, whose clients are served at once.
SPREAD = 3


def run(quick: bool, repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All rows: what, figure, beside what, figure, ratio. None where PostgreSQL is not installed.

    Args:
        say: called with progress.
    """
    if binaries() is None:
        say("no PostgreSQL here")
        return []
    folder = Path(tempfile.mkdtemp(prefix="sievemq-bench-"))
    server = Postgres(fsync=True)
    try:
        server.start()
        database = Database(server)
        sends = 300 if quick else 2_000
        return [
            throughput(database, folder, 6_000 if quick else 60_000, repeats, say),
            one_at_a_time(database, folder, sends * repeats, say),
            followed(database, folder, 6_000 if quick else 60_000, repeats, say),
            spread(database, 3_000 if quick else 40_000, repeats, say),
        ]
    finally:
        server.close()
        shutil.rmtree(folder)


def throughput(database: Database, folder: Path, n: int, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """W1c, PERSISTENT and confirmed, with PostgreSQL and with a data directory, alternating."""
    rates: dict[str, list[int]] = {"postgres": [], "directory": []}
    cpu: dict[str, list[float]] = {"postgres": [], "directory": []}
    for repeat in range(repeats):
        say(f"store in PostgreSQL: run {repeat + 1} of {repeats}")
        for mode in rates:
            with Broker(*_options(mode, database, folder / f"w{repeat}")) as broker:
                row = run_workload(broker, "W1c", n, SIZE, "blocking", f"d{repeat}")
            rates[mode].append(row["msgs_per_s"])
            cpu[mode].append(row["cpu_s"]["broker"])
    return _rates_row(n, "", "with a data directory", rates, cpu)


def one_at_a_time(database: Database, folder: Path, n: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Each send waits for its confirm, a block with each store in turn."""
    say(f"store in PostgreSQL, one at a time: {n:,} in turns")
    times: dict[str, list[float]] = {"postgres": [], "directory": []}
    with contextlib.ExitStack() as stack:
        sends: dict[str, Callable[[], object]] = {}
        for mode in times:
            broker = stack.enter_context(Broker(*_options(mode, database, folder / "one")))
            context = stack.enter_context(ConnectionFactory(broker.url).create_context())
            sends[mode] = _sender(context)
        for turn in range(n // BLOCK + 1):
            for mode, send in sends.items():
                for _ in range(BLOCK):
                    begin = time.perf_counter()
                    send()
                    if turn:
                        times[mode].append(time.perf_counter() - begin)
    postgres, directory = (statistics.median(times[mode]) * 1e6 for mode in times)
    return {
        "what": "one confirmed send at a time",
        "figure": f"{postgres:.0f} µs",
        "beside": "with a data directory",
        "other": f"{directory:.0f} µs",
        "ratio": round(postgres / directory, 2),
    }


def followed(database: Database, folder: Path, n: int, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """W1c with a broker that follows the owner, and without one, alternating. On a machine with few processors the
    follower takes some of their time as well."""
    rates: dict[str, list[int]] = {"followed": [], "alone": []}
    cpu: dict[str, list[float]] = {"followed": [], "alone": []}
    for repeat in range(repeats):
        say(f"with a follower: run {repeat + 1} of {repeats}")
        for mode in rates:
            store, shard, *rest = _options("postgres", database, folder)
            with Broker(store, shard, *rest) as broker, contextlib.ExitStack() as stack:
                if mode == "followed":
                    node = Node(database.url, rest[-1], folder / f"f{repeat}.log")
                    stack.callback(node.kill)
                    _wait_for([node], "/readyz")
                row = run_workload(broker, "W1c", n, SIZE, "blocking", f"f{repeat}")
            rates[mode].append(row["msgs_per_s"])
            cpu[mode].append(row["cpu_s"]["broker"])
    return _rates_row(n, ", with a follower", "without one", rates, cpu)


def spread(database: Database, n: int, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """W1c in three namespaces at once, in turn: with a shard each in three processes of a cluster, with three brokers
    that know nothing of each other, and with one broker for all. What is compared is the brokers' processor time."""
    modes = ("cluster", "apart", "one")
    cpu: dict[str, list[float]] = {mode: [] for mode in modes}
    rates: dict[str, list[float]] = {mode: [] for mode in modes}
    for repeat in range(repeats):
        for mode in modes:
            say(f"{SPREAD} namespaces, {mode}: run {repeat + 1} of {repeats}")
            seconds, took = _spread_once(database, n, mode)
            cpu[mode].append(seconds / n / SPREAD * 1e6)
            rates[mode].append(n * SPREAD / took)
    cluster, apart = (statistics.median(cpu[mode]) for mode in ("cluster", "apart"))
    return {
        "what": f"{SPREAD} x {n:,} PERSISTENT messages, confirmed: processor time of {SPREAD} shards of a cluster",
        "figure": f"{cluster:.1f} µs a message",
        "beside": f"{SPREAD} brokers with a shard each that are no cluster",
        "other": f"{apart:.1f} µs",
        "ratio": round(cluster / apart, 3),
        "broker_us": {mode: [round(each, 2) for each in found] for mode, found in cpu.items()},
        "rates": {mode: [round(each) for each in found] for mode, found in rates.items()},
    }


def _spread_once(database: Database, n: int, mode: str) -> tuple[float, float]:
    """Processor seconds of the brokers, and seconds, of W1c in three namespaces at once."""
    shards = [database.shard() for _ in range(1 if mode == "one" else SPREAD)]
    names = [f"{shards[0]}-{number}" for number in range(SPREAD)]
    cluster = ("--shards", ",".join(shards)) if mode == "cluster" else ()
    if cluster:
        for name, shard in zip(names, shards, strict=True):
            database.execute("INSERT INTO sievemq.namespace VALUES (%s, %s)", name.encode(), shard)
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(Broker("--store", database.url, *cluster, "--shard", shard)) for shard in shards]
        doors = [Door(brokers[number % len(brokers)], name) for number, name in enumerate(names)]
        with ThreadPoolExecutor(SPREAD) as pool:
            rows = list(pool.map(lambda door: run_workload(door, "W1c", n, SIZE, "blocking", "q"), doors))
        used = sum(
            max(found) - min(found)
            for broker in brokers
            if (found := [each for door in doors if door.broker is broker for each in door.readings])
        )
    return used, max(row["seconds"] for row in rows)


class Door(Server):
    """A broker as the clients of a namespace see it.

    Attributes:
        readings: of its processor time, before and after what its clients do.
    """

    def __init__(self, broker: Broker, namespace: str) -> None:
        self.broker, self.url = broker, f"{broker.url}/{namespace}"
        self.readings: list[float] = []

    def cpu_s(self) -> float:
        self.readings.append(self.broker.cpu_s())
        return self.readings[-1]

    def rss_mb(self) -> float:
        return self.broker.rss_mb()


def _rates_row(
    n: int, how: str, beside: str, rates: dict[str, list[int]], cpu: dict[str, list[float]]
) -> dict[str, Any]:
    """The row of two rates.

    Args:
        n: messages of each run.
        how: added to what was measured.
        beside: what the second one was measured with.
        rates, cpu: messages a second, and processor seconds of the broker, of each run.
    """
    first, second = (statistics.median(each) for each in rates.values())
    return {
        "what": f"{n:,} PERSISTENT messages of {SIZE} bytes, confirmed, many in flight{how}",
        "figure": f"{first:,.0f}/s",
        "beside": beside,
        "other": f"{second:,.0f}/s",
        "ratio": round(first / second, 2),
        "rates": rates,
        "broker_us": {mode: round(statistics.median(each) / n * 1e6, 2) for mode, each in cpu.items()},
    }


def _options(mode: str, database: Database, folder: Path) -> tuple[str, ...]:
    if mode == "postgres":
        return "--store", database.url, "--shard", database.shard()
    return "--data-dir", str(folder)


def _sender(context: Any) -> Callable[[], object]:
    queue, producer, body = context.create_queue("one"), context.create_producer(), b"x" * SIZE
    return lambda: producer.send(queue, body)


# -- takeover ---------------------------------------------------------------------------------------------------------


class Node:
    """A broker of the shard, as owner or follower.

    Attributes:
        port: for clients.
    """

    def __init__(self, url: str, shard: str, log: Path) -> None:
        self.port, self._http = free_port(), free_port()
        self._url, self._shard, self._log = url, shard, log
        self.start()

    def start(self) -> None:
        command = [
            str(Path(sys.executable).with_name("sievemq")), "broker", "--host", "127.0.0.1", "--port", str(self.port),
            "--http-port", str(self._http), "--store", self._url, "--shard", self._shard,
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def answers(self, path: str) -> bool:
        """True if a path of its management port answers 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self._http, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def figure(self, name: str) -> float:
        """A metric, the sum of its series; 0 if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self._http, timeout=5)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        except OSError:
            return 0.0
        finally:
            connection.close()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def takeovers(n: int, kills: int, say: Callable[[str], None], *, warm: bool = True) -> list[float]:
    """Seconds from kill -9 of the owner until a new client has a message from the other broker, with so many messages
    waiting.

    Args:
        warm: the follower has read them before; otherwise it has just been started.
    """
    server = Postgres(fsync=True)
    folder = Path(tempfile.mkdtemp(prefix="sievemq-bench-"))
    nodes: list[Node] = []
    try:
        server.start()
        database = Database(server)
        shard = database.shard()
        say(f"filling the store with {n:,} messages")
        fill(database, shard, n)
        nodes += [Node(database.url, shard, folder / f"{number}.log") for number in range(2)]
        took = []
        for number in range(kills):
            owner = _wait_for(nodes, "/activez")
            follower = next(node for node in nodes if node is not owner)
            _wait_for([follower], "/readyz")
            if warm:
                _wait_until_built(follower, 0.99 * n)
            begin = time.monotonic()
            owner.kill()
            hosts = f"127.0.0.1:{owner.port},127.0.0.1:{follower.port}"
            first_message(f"sievemq://{hosts}?reconnect=60000&reconnect_max_delay=50")
            took.append(time.monotonic() - begin)
            say(f"takeover {number + 1} of {kills}: {took[-1]:.2f} s")
            owner.start()
        return took
    finally:
        for node in nodes:
            node.kill()
        server.close()
        say("".join((folder / "0.log").read_text(errors="replace").splitlines(keepends=True)[-8:]))
        shutil.rmtree(folder)


def _wait_for(nodes: list[Node], path: str) -> Node:
    """The first one of which a path answers 200."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        for node in nodes:
            if node.answers(path):
                return node
        time.sleep(0.05)
    raise TimeoutError(path)


def _wait_until_built(follower: Node, messages: float) -> None:
    """Return when a follower has built so many messages."""
    end = time.monotonic() + LIMIT
    while follower.figure("sievemq_follower_messages") < messages:
        if time.monotonic() > end:
            raise TimeoutError("sievemq_follower_messages")
        time.sleep(0.05)


def first_message(url: str) -> None:
    """Connect as soon as a broker lets clients in, and receive a message."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            with ConnectionFactory(url).create_context() as context:
                assert context.create_consumer(context.create_queue("q0")).receive(LIMIT * 1_000) is not None
                return
        except Exception:
            time.sleep(0.005)
    raise TimeoutError(url)


def fill(database: Database, shard: str, n: int) -> None:
    """Write messages as a broker does."""
    from sievemq_broker.domain import Broker as Domain
    from sievemq_broker.domain.restore import restore
    from sievemq_broker.store.postgres import PostgresStore
    from sievemq_core.message.envelope import Envelope, pack_properties

    database.take(shard, "filling")
    store = PostgresStore(database.url, shard, "filling", "bench")
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
    store.write(domain.journal.cut(), 1)
    store.close()
    database.execute("UPDATE sievemq.lease SET released = true WHERE shard = %s", shard)


def main() -> None:
    """Kill the owner of a shard with many messages again and again, and print how long takeovers took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared", description=main.__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="that wait (1,000,000)")
    parser.add_argument("--kills", type=int, default=30, help="how many (30)")
    parser.add_argument("--cold", action="store_true", help="kill the owner before the follower has read them")
    arguments = parser.parse_args()
    say = partial(print, file=sys.stderr, flush=True)
    took = sorted(takeovers(arguments.messages, arguments.kills, say, warm=not arguments.cold))
    print(f"{len(took)} takeovers with {arguments.messages:,} messages: "
          f"median {statistics.median(took):.2f} s, p99 {took[-1 - len(took) // 100]:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
