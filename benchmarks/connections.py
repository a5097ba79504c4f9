"""What an open connection costs the broker: KiB each, with a session and a consumer, and whether probes are answered.

python -m benchmarks.connections [--number 5000]

Each connection is a socket of this process that says HELLO, opens a session and a consumer of one of a hundred queues,
and sends nothing more. Meanwhile a thread asks ``/readyz`` all the time.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from benchmarks.machine import calibrate_ms, cpu_seconds, resident_mb
from benchmarks.macro.processes import Broker, free_port
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

QUEUES = 100
ANSWER_S = 20.0


class Idle:
    """A connection with one consumer.

    Args:
        number: of the connection; says which queue.
    """

    def __init__(self, port: int, number: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        wire = WireConnection("client")
        wire.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "benchmark", None, {})
        self._say(wire, Command.WELCOME, 1)
        wire.send(Command.OPEN_SESSION, 1, 1, 1)
        queue = f"queue:idle{number % QUEUES}"
        wire.send(Command.OPEN_CONSUMER, 2, 1, 1, queue, None, None, False, None, False, False, 32)
        self._say(wire, Command.OK, 2)

    def _say(self, wire: WireConnection, answer: int, times: int) -> None:
        self.sock.sendall(wire.data_to_send())
        while times:
            data = self.sock.recv(65_536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for command in wire.receive_data(data):
                if command[0] == Command.ERROR:
                    raise ConnectionError(command)
                times -= command[0] == answer


class Prober(threading.Thread):
    """Asks whether the broker is ready until it is stopped; milliseconds of each answer."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._done = threading.Event()
        self.took: list[float] = []
        self.failures = 0

    def run(self) -> None:
        while not self._done.wait(0.05):
            begin = time.perf_counter()
            try:
                with urllib.request.urlopen(self._url, timeout=ANSWER_S) as answer:
                    answer.read()
            except OSError:
                self.failures += 1
            self.took.append((time.perf_counter() - begin) * 1e3)

    def stop(self) -> None:
        self._done.set()
        self.join()


def run(number: int) -> dict[str, Any]:
    """Open so many connections and say what they took."""
    _raise_file_limit(number + 256)
    http_port = free_port()
    with Broker("--http-port", str(http_port), "--max-connections", str(number + 100)) as broker:
        ready = f"http://127.0.0.1:{http_port}/readyz"
        _await(ready)
        first = [Idle(broker.port, n) for n in range(100)]  # what is loaded and made once is not theirs
        before, cpu = resident_mb(broker.process.pid), cpu_seconds(broker.process.pid)
        prober = Prober(ready)
        prober.start()
        begin = time.perf_counter()
        idle = [Idle(broker.port, n) for n in range(number)]
        seconds = time.perf_counter() - begin
        prober.stop()
        after = resident_mb(broker.process.pid)
        for connection in (*first, *idle):
            connection.sock.close()
        return {
            "calib_ms": calibrate_ms(),
            "connections": number,
            "kib_each": round((after - before) * 1e6 / 1024 / number, 1),
            "broker_mb": after,
            "opened_per_s": round(number / seconds),
            "broker_us_each": round((cpu_seconds(broker.process.pid) - cpu) / number * 1e6),
            "readyz": {
                "asked": len(prober.took),
                "failed": prober.failures,
                "median_ms": round(statistics.median(prober.took), 1),
                "longest_ms": round(max(prober.took), 1),
            },
        }


def _await(url: str) -> None:
    begin = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_S):
                return
        except urllib.error.URLError:
            if time.monotonic() - begin > ANSWER_S:
                raise
            time.sleep(0.02)


def _raise_file_limit(wanted: int) -> None:
    """As many files as there will be sockets; a soft limit of 1024 is the usual default. The broker inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            sys.exit(
                f"{wanted} files are needed and {hard} allowed: raise the hard limit (ulimit -Hn), or ask for less"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> None:
    parser = argparse.ArgumentParser(description="what an open connection costs the broker")
    parser.add_argument("--number", type=int, default=5_000, help="connections (default: %(default)s)")
    print(json.dumps(run(parser.parse_args().number), indent=2))


if __name__ == "__main__":
    main()
