"""How long others wait while somebody floods the broker: its longest turns, and the round trips of a bystander.

python -m benchmarks.floods [--only topic,commits] [--scale 1.0]

Each flood has a broker of its own and comes over plain sockets from bytes that were made beforehand, as fast as they
are taken. A turn of the broker's loop may take 10 ms; turns are given in processor time of the loop's thread, since by
the clock they are longer wherever somebody else has the processor. Meanwhile a bystander sends one PERSISTENT message
after the other, each confirmed, from a process of its own, by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar

if __name__ == "__main__":  # run by path as a part: its own folder must not be searched
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.machine import calibrate_ms
from benchmarks.macro.processes import free_port
from benchmarks.workloads import body_of, properties_of
from sievemq_core.message.envelope import BodyKind, pack_properties
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

LIMIT_MS = 10.0
WAIT_S = 60.0
CREDIT = 16_000  # the most that a consumer may have
LAST = 1_000_000  # the request whose answer says that the flood is over
DELIVERY_BYTES = 600  # more than a delivery has
TRANSACTED, AUTO = 0, 1


class Client:
    """A connection without an SDK; what it receives is counted, and dropped after a request to drain."""

    #: All that there are.
    open: ClassVar[list[Client]] = []

    def __init__(self, port: int, mode: int = AUTO) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.open.append(self)
        self.wire = WireConnection("client")
        self.heard: list[tuple[Any, ...]] = []
        self.sequence = 0
        self.alone = False  # one consumer
        self.drainer: threading.Thread | None = None
        features = {"deliver_several": True}
        self.wire.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "benchmark", None, features)
        self.hear(lambda command: command[0] == Command.WELCOME)
        self.wire.send(Command.OPEN_SESSION, 1, 1, mode)
        self.hear(lambda command: command[0] == Command.OK and command[1] == 1)

    def hear(self, wanted: Callable[[tuple[Any, ...]], bool]) -> None:
        """Say what is to be said, and wait for an answer."""
        self.sock.sendall(self.wire.data_to_send())
        while True:
            data = self.sock.recv(262_144)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for command in self.wire.receive_data(data):
                if command[0] == Command.ERROR:
                    raise ConnectionError(command)
                if wanted(command):
                    return

    def consume(self, destination: str, count: int, selector: Callable[[int], str | None]) -> None:
        """Open so many consumers."""
        self.alone = count == 1
        for number in range(2, count + 2):
            self.wire.send(
                Command.OPEN_CONSUMER, number, 1, number, destination, selector(number), None, False, None, False,
                False, CREDIT, 0,
            )  # fmt: skip
        self.hear(lambda command: command[0] == Command.OK and command[1] == count + 1)

    def sends(self, destination: str, count: int, *, commit: int = 0) -> bytes:
        """The bytes of so many sends; with COMMIT after each so many."""
        parts = []
        for number in range(count):
            self.sequence += 1
            packed, letters = pack_properties(properties_of("W1", number))
            fields = (
                f"ID:flood-{number}", 0, 4, 1, 0, 0, None, None, None, packed, letters, int(BodyKind.BYTES),
                body_of(number, 256),
            )  # fmt: skip
            self.wire.send(Command.SEND, 1, self.sequence, destination, fields)
            if commit and not (number + 1) % commit:
                self.wire.send(Command.COMMIT, LAST if number + 1 == count else 9 + number, 1, ())
            if self.wire.pending_bytes > 60_000:
                parts.append(self.wire.data_to_send())
        if not commit:
            self.wire.send(Command.PING, LAST)
        return b"".join([*parts, self.wire.data_to_send()])

    def drain(self) -> None:
        """Take what comes, from now on, and look at none of it. Its first consumer acknowledges what came for sure."""
        self.drainer = threading.Thread(target=self._drain, daemon=True)
        self.drainer.start()

    def _drain(self) -> None:
        buffer, came, done = bytearray(1 << 20), 0, 0
        try:
            while size := self.sock.recv_into(buffer):
                came += size
                if self.alone and (count := came // DELIVERY_BYTES - done) > 1_000:
                    done += count
                    self.wire.send(Command.ACKNOWLEDGE, 2, done, count)
                    self.sock.sendall(self.wire.data_to_send())
        except OSError:
            pass

    def close(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self.drainer is not None:
            self.drainer.join()
        self.sock.close()

    def flood(self, data: bytes) -> None:
        """Say it as fast as it is taken; returns when it has been carried out."""
        writer = threading.Thread(target=self.sock.sendall, args=(data,), daemon=True)
        writer.start()
        self.hear(lambda command: command[0] == Command.OK and command[1] == LAST)
        writer.join()


def subscribed(port: int, connections: int, each: int, selector: str | None = None, to: str = "topic:flood") -> None:
    """Connections with so many subscribers each, who take everything."""
    for _ in range(connections):
        client = Client(port)
        client.consume(to, each, lambda _: selector)
        client.drain()


def to_queue(port: int, scale: float) -> Iterator[None]:
    subscribed(port, 1, 1, to="queue:flood")
    client = Client(port)
    data = client.sends("queue:flood", int(150_000 * scale))
    yield
    client.flood(data)


def by_many(port: int, scale: float) -> Iterator[None]:
    subscribed(port, 1, 1, to="queue:flood")
    clients = [Client(port) for _ in range(100)]
    floods = [client.sends("queue:flood", int(1_500 * scale)) for client in clients]
    threads = [threading.Thread(target=c.flood, args=(data,)) for c, data in zip(clients, floods, strict=True)]
    yield
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def to_topic(
    port: int, scale: float, connections: int = 10, each: int = 100, selector: str | None = None
) -> Iterator[None]:
    subscribed(port, connections, each, selector)
    client = Client(port)
    data = client.sends("topic:flood", int(2_000 * scale))
    yield
    client.flood(data)


def to_group(port: int, scale: float) -> Iterator[None]:
    yield from to_topic(port, scale, selector="urgent = TRUE OR qty >= 0")


def to_connections(port: int, scale: float) -> Iterator[None]:
    yield from to_topic(port, scale / 2, connections=1_000, each=1)


def in_commits(port: int, scale: float) -> Iterator[None]:
    subscribed(port, 10, 20)
    client = Client(port, TRANSACTED)
    data = client.sends("topic:flood", round(5 * scale) * 1_000, commit=1_000)
    yield
    client.flood(data)


def of_consumers(port: int, scale: float) -> Iterator[None]:
    client = Client(port)
    yield
    client.consume("topic:flood", int(5_000 * scale), lambda n: f"region = 'r{n}' AND price BETWEEN {n} AND {n * 2}")


FLOODS: dict[str, tuple[str, Callable[[int, float], Iterator[None]]]] = {
    "queue": ("one producer, one queue, one consumer", to_queue),
    "producers": ("100 producers, one queue, one consumer", by_many),
    "topic": ("a topic with 1,000 subscribers on 10 connections", to_topic),
    "group": ("the same, all with the same selector", to_group),
    "connections": ("a topic with 1,000 subscribers on 1,000 connections", to_connections),
    "commits": ("transactions of 1,000 messages to 200 subscribers", in_commits),
    "consumers": ("5,000 consumers with selectors, opened at once", of_consumers),
}


def measured(name: str, scale: float) -> dict[str, Any]:
    """One flood beside its bystander."""
    title, flood = FLOODS[name]
    port = free_port()
    with ExitStack() as stack:
        stack.callback(close_all)
        broker = start(stack, "broker", str(port))
        steps = flood(port, scale)
        next(steps)
        bystander = start(stack, "bystander", str(port))
        told(broker, signal.SIGUSR1)  # from here on it counts
        begin = time.monotonic()
        for _ in steps:
            pass
        seconds = time.monotonic() - begin
        waits = told(bystander, signal.SIGTERM)
        turns = told(broker, signal.SIGUSR1)
    return {"flood": name, "title": title, "seconds": round(seconds, 2), **turns, **waits}


def close_all() -> None:
    for client in Client.open:
        client.close()
    Client.open.clear()


def start(stack: ExitStack, part: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).resolve()), "--part", part, *options]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout is not None
    if process.stdout.readline() != "READY\n":
        raise RuntimeError(f"the {part} did not start")
    return process


def told(process: subprocess.Popen[str], number: int) -> dict[str, Any]:
    process.send_signal(number)
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


# -- the parts ---------------------------------------------------------------------------------------------------------


def broker(port: int) -> None:
    """A broker that says what its turns took since it was last asked."""
    from sievemq_broker.config import Settings
    from sievemq_broker.server import process, server
    from sievemq_broker.server.net.turn import Turn

    took: list[float] = []

    class Timed(Turn):
        __slots__ = ("_since",)

        def _schedule(self, now: float) -> None:
            self._since = time.thread_time()
            super()._schedule(now)

        def end(self) -> None:
            super().end()
            took.append((time.thread_time() - self._since) * 1e3)

    def tell(*_: object) -> None:
        ordered = sorted(took) or [0.0]
        took.clear()
        over = sum(each > LIMIT_MS for each in ordered)
        found = {
            "turns": len(ordered),
            "p99_ms": ordered[int(len(ordered) * 0.99)],
            "longest_ms": ordered[-1],
            "over": over,
        }
        print(json.dumps(found), flush=True)

    setattr(server, "Turn", Timed)  # noqa: B010 - the broker's own loop, timed
    signal.signal(signal.SIGUSR1, tell)
    http_port = free_port()
    threading.Thread(target=_say_ready, args=(http_port,), daemon=True).start()
    sys.exit(process.run(Settings(port=port, http_port=http_port, log_level="error")))


def _say_ready(http_port: int) -> None:
    """Once it serves HTTP, too, and has laid that aside for its garbage collector, its start is over."""
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=1):
                pass
        except OSError:
            time.sleep(0.05)
        else:
            time.sleep(0.5)
            print("READY", flush=True)
            return


def bystander(port: int) -> None:
    """One confirmed send after the other; returns their times at the end."""
    from sievemq import ConnectionFactory

    ended: list[int] = []  # no Event: its lock may be held by whom the signal interrupts
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    took: list[float] = []
    with ConnectionFactory(f"sievemq://127.0.0.1:{port}").create_context() as context:
        producer, queue = context.create_producer(), context.create_queue("bystander")
        producer.send(queue, "first")
        print("READY", flush=True)
        while not ended:
            time.sleep(0.002)
            begin = time.monotonic()
            producer.send(queue, "word")
            took.append((time.monotonic() - begin) * 1e3)
    took.sort()
    last = len(took) - 1
    found = {f"wait_p{share:g}": round(took[int(last * share / 100)], 2) for share in (50, 99)}
    print(json.dumps({"waits": len(took), **found, "wait_max": round(took[-1], 2)}), flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="how long others wait while somebody floods the broker")
    parser.add_argument("--only", default=",".join(FLOODS), help=f"some of {', '.join(FLOODS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages")
    parser.add_argument("--part", choices=("broker", "bystander"), help=argparse.SUPPRESS)
    parser.add_argument("port", nargs="?", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        (broker if options.part == "broker" else bystander)(options.port)
        return
    print(f"calibration {calibrate_ms()} ms, {os.cpu_count()} processors\n")
    titles = ("flood", "s", "turns", "99 % below, ms", "longest", "over 10 ms", "bystander p50, ms", "p99", "longest")
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name in options.only.split(","):
        row = measured(name, options.scale)
        turns = f"{row['turns']:,} | {row['p99_ms']:.1f} | {row['longest_ms']:.1f} | {row['over']}"
        waits = f"{row['wait_p50']} | {row['wait_p99']} | {row['wait_max']}"
        print(f"| {row['title']} | {row['seconds']} | {turns} | {waits} |", flush=True)


if __name__ == "__main__":
    main()
