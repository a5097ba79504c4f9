"""Latency under load: from send to receipt at 10, 50 and 80 % of the rate that the machine sustains.

    python -m benchmarks.latency                  blocking SDK, five seconds each
    python -m benchmarks.latency --api aio --seconds 10
    make bench-latency PEERS=all                  beside other brokers (peers/latency.py)

One producer process, one queue, one consumer process, 256-byte bodies, NON_PERSISTENT, AUTO_ACKNOWLEDGE. The producer
keeps to a timetable and the time of a message counts from its place in that table, not from when it was sent: a client
that is late is late for the messages behind, too (no coordinated omission). What the machine sustains is measured just
before, as W1 of ``make bench``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import calibrate_ms, describe
from benchmarks.macro.processes import Broker, run_workload

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
SHARES = (0.1, 0.5, 0.8)
SIZE = 256
WARM = 0.2  # of the messages: not counted
#: Nanoseconds before its time at which a message is sent: less than the system's clock would sleep too long.
EARLY = 50_000
now = time.monotonic_ns


def body(due: int) -> bytes:
    return b"%020d" % due + b"x" * (SIZE - 20)


def due_times(rate: float, n: int) -> Iterator[int]:
    """The timetable: nanoseconds on the clock of :data:`now`, beginning in a moment."""
    start = now() + 200_000_000
    return (start + int(i * 1e9 / rate) for i in range(n))


class Timetable:
    """What is due, a batch at a time.

    Args:
        rate: messages a second.
    """

    def __init__(self, rate: float, n: int) -> None:
        self._due = due_times(rate, n)
        self._next = next(self._due, None)

    @property
    def ahead(self) -> float | None:
        """Seconds until something is due, 0 if something is; None when all was."""
        return None if self._next is None else max(0.0, (self._next - now() - EARLY) / 1e9)

    def take(self) -> Iterator[bytes]:
        while self._next is not None and self._next - now() <= EARLY:
            yield body(self._next)
            self._next = next(self._due, None)


def send_all(
    timetable: Timetable, send: Callable[[bytes], object], rest: Callable[[float], object] = time.sleep
) -> None:
    """Keep to the timetable with a client that blocks."""
    while (ahead := timetable.ahead) is not None:
        if ahead:
            rest(ahead)
        for each in timetable.take():
            send(each)


def percentiles(times: list[int]) -> dict[str, float]:
    """Of nanoseconds in the order in which they were measured, in microseconds; the first ones are not counted."""
    counted = sorted(times[int(len(times) * WARM) :])
    last = len(counted) - 1
    shown = {f"p{share:g}": round(counted[int(last * share / 100)] / 1e3, 1) for share in (50, 99, 99.9)}
    return {**shown, "max": round(counted[-1] / 1e3, 1)}


def table_row(*first: str, rate: float, found: Mapping[str, float]) -> str:
    return f"| {' | '.join([*first, f'{rate:,.0f}', *(f'{value:,.0f}' for value in found.values())])} |"


def send_blocking(url: str, queue: str, rate: float, n: int) -> None:
    from sievemq import BytesMessage, ConnectionFactory, DeliveryMode

    with ConnectionFactory(url).create_context() as context:
        destination = context.create_queue(queue)
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        send_all(Timetable(rate, n), lambda each: producer.send(destination, BytesMessage(each)))


def receive_blocking(url: str, queue: str, n: int) -> list[int]:
    """Nanoseconds of each message."""
    from sievemq import ConnectionFactory

    times = []
    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(context.create_queue(queue))
        print("READY", flush=True)
        for message in consumer:
            times.append(now() - int((message.get_body(bytes) or b"")[:20]))
            if len(times) == n:
                break
    return times


async def send_aio(url: str, queue: str, rate: float, n: int) -> None:
    """As :func:`send_blocking`."""
    from sievemq import BytesMessage, DeliveryMode
    from sievemq.aio import ConnectionFactory

    async with await ConnectionFactory(url).create_context() as context:
        destination = context.create_queue(queue)
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        timetable = Timetable(rate, n)
        while (ahead := timetable.ahead) is not None:
            await asyncio.sleep(ahead)  # the loop writes
            for each in timetable.take():
                await producer.send(destination, BytesMessage(each))


async def receive_aio(url: str, queue: str, n: int) -> list[int]:
    """As :func:`receive_blocking`."""
    from sievemq.aio import ConnectionFactory

    times = []
    async with await ConnectionFactory(url).create_context() as context:
        consumer = await context.create_consumer(context.create_queue(queue))
        print("READY", flush=True)
        async for message in consumer:
            times.append(now() - int((message.get_body(bytes) or b"")[:20]))
            if len(times) == n:
                break
    return times


def play(part: dict[str, Any]) -> None:
    """One process's part."""
    url, queue, n = part["url"], part["queue"], part["n"]
    times: list[int] | None = None
    if part["api"] == "blocking":
        if part["role"] == "send":
            send_blocking(url, queue, part["rate"], n)
        else:
            times = receive_blocking(url, queue, n)
    else:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if part["role"] == "send":
                runner.run(send_aio(url, queue, part["rate"], n))
            else:
                times = runner.run(receive_aio(url, queue, n))
    if times is not None:
        print("RESULT " + json.dumps(percentiles(times)), flush=True)


def measure(broker: Broker, api: str, rate: float, seconds: float) -> dict[str, float]:
    """Percentiles at one rate, in microseconds."""
    common = {"url": broker.url, "queue": f"latency.{rate:.0f}", "api": api, "n": max(1_000, int(rate * seconds))}
    command = [sys.executable, "-m", "benchmarks.latency", "--part"]
    with subprocess.Popen(
        [*command, json.dumps({**common, "role": "receive"})], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        subprocess.run([*command, json.dumps({**common, "role": "send", "rate": rate})], check=True, cwd=ROOT)
        for line in receiver.stdout:
            if line.startswith("RESULT "):
                return dict(json.loads(line.removeprefix("RESULT ")))
    raise RuntimeError(f"the consumer gave no result at {rate:.0f} messages/s")


def main() -> None:
    """Parse arguments, measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__.partition("\n")[0])
    parser.add_argument("--api", choices=("blocking", "aio"), default="blocking")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each rate")
    parser.add_argument("--json", type=Path, default=RESULTS / "latency.json")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        play(json.loads(arguments.part))
        return
    rows = []
    with Broker() as broker:
        sustained = run_workload(broker, "W1", 100_000, SIZE, arguments.api, "max")["msgs_per_s"]
        print(f"{arguments.api} SDK; W1 sustains {sustained:,} messages/s\n")
        print("| share | messages/s | p50 µs | p99 µs | p99.9 µs | longest µs |\n|---|---|---|---|---|---|")
        for share in SHARES:
            rate = sustained * share
            found = measure(broker, arguments.api, rate, arguments.seconds)
            rows.append({"share": share, "rate": round(rate), **found})
            print(table_row(f"{share:.0%}", rate=rate, found=found), flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": describe(), "calib_ms": calibrate_ms(), "api": arguments.api, "w1": sustained, "rows": rows}
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
