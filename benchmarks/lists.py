"""Lists over many queues and connections: how long each takes, the longest turn of the loop, whether ticks come.

python -m benchmarks.lists [--queues 35000] [--connections 2000]

The broker runs in a thread of this process on asyncio's own loop, whose turns are measured in processor time of that
thread: what other work on the machine takes is not in them. The connections are sockets that have opened a session and
a consumer of one of a hundred queues, which hold messages.
"""

from __future__ import annotations

import argparse
import asyncio.base_events
import http.client
import sys
import threading
import time
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.connections import QUEUES, Idle
from benchmarks.machine import calibrate_ms
from sievemq_broker import EmbeddedBroker

#: What the console reads, and programs.
REQUESTS: Final = (
    "/namespaces/default/destinations?kind=queue&sort=address&limit=50&recent=60",
    "/namespaces/default/destinations?kind=queue&sort=-depth&limit=50&recent=60",
    "/namespaces/default/destinations?kind=queue&sort=-oldest&limit=50&recent=60",
    "/namespaces/default/destinations?kind=queue&sort=consumers&only=unconsumed&limit=50&recent=60",
    "/namespaces/default/destinations?like=q1*9&sort=-in_rate&limit=50&recent=60",
    "/namespaces/default/destinations?limit=1000",
    "/connections?limit=50",
    "/connections?sort=-unacknowledged&limit=50",
    "/connections?like=127*7&sort=-bytes_in&limit=1000",
    "/consumers?sort=-oldest&limit=50",
    "/consumers?destination=queue:idle7&limit=50",
    "/namespaces/default/dead-letters",
    "/attention",
    "/broker",
    "/definitions",
)


class Turns:
    """Processor time of each turn of the broker's loop, in milliseconds."""

    def __init__(self) -> None:
        self.found: list[float] = []
        run_once = asyncio.base_events.BaseEventLoop._run_once  # type: ignore[attr-defined]

        def measured(loop: Any) -> None:
            begin = time.thread_time()
            run_once(loop)
            self.found.append((time.thread_time() - begin) * 1e3)

        asyncio.base_events.BaseEventLoop._run_once = measured  # type: ignore[attr-defined]

    def take(self) -> list[float]:
        """Those since the last call."""
        found, self.found = self.found, []
        return found


class Ticks(threading.Thread):
    """When ticks came."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self._connection = http.client.HTTPConnection(host, port)

    def run(self) -> None:
        self._connection.request("GET", "/api/v1/events")
        answer = self._connection.getresponse()
        for line in answer:
            if line.startswith(b"event: tick"):
                self.times.append(time.perf_counter())


def ask(host: str, port: int, path: str) -> tuple[float, int]:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    begin = time.perf_counter()
    connection.request("GET", f"/api/v1{path}")
    answer = connection.getresponse()
    size = len(answer.read())
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}")
    return (time.perf_counter() - begin) * 1e3, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, default=35_000)
    parser.add_argument("--connections", type=int, default=2_000)
    options = parser.parse_args()
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # its turns cannot be measured from outside
    turns = Turns()
    with EmbeddedBroker(http=True, settings={"heartbeat_seconds": 0}) as broker:
        parts = urlsplit(broker.http_url)
        host, port = str(parts.hostname), int(parts.port or 0)
        for first in range(0, options.queues, 500):
            broker.call(_declare, range(first, min(first + 500, options.queues)))
        clients = [Idle(broker.port, number) for number in range(options.connections)]
        for number in range(QUEUES):
            for _ in range(60):
                _send(host, port, f"queue:idle{number}")
        for number in range(0, options.queues, max(1, options.queues // 300)):
            _send(host, port, f"queue:q{number}")
        ticks = Ticks(host, port)
        ticks.start()
        print(f"{options.queues} queues, {len(clients)} connections; calibration {calibrate_ms()} ms")
        broker.call(lambda _: turns.take())
        time.sleep(12)
        quiet = broker.call(lambda _: turns.take())
        print(f"{'nothing':<95} longest turn {max(quiet):5.1f} ms, {sum(quiet) / 120:.1f} % of a processor")
        for path in REQUESTS:
            rows = []
            for _ in range(3):
                broker.call(lambda _: turns.take())
                ms, size = ask(host, port, path)
                found = broker.call(lambda _: turns.take())
                rows.append((ms, max(found), sum(found), size))
            ms, _, used, size = min(rows)
            longest = min(row[1] for row in rows)
            figures = f"longest turn {longest:5.1f} ms, {used:6.1f} ms of processor, {ms:6.1f} ms, {size:>9,} bytes"
            print(f"{path:<95} {figures}")
        gaps = [b - a for a, b in zip(ticks.times, ticks.times[1:], strict=False)]
        print(f"ticks: {len(gaps)}, apart by {min(gaps):.2f} to {max(gaps):.2f} s")


def _declare(domain: Any, numbers: range) -> None:
    for number in numbers:
        domain.namespace("default").declare(f"queue:q{number}")


def _send(host: str, port: int, address: str) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    path = f"/api/v1/namespaces/default/destinations/{address.replace(':', '%3A')}/messages"
    connection.request("POST", path, b'{"body": "x"}', {"Content-Type": "application/json"})
    connection.getresponse().read()
    connection.close()


if __name__ == "__main__":
    main()
