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
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.alarm import Alarm
from benchmarks.machine import calibrate_ms, describe
from benchmarks.macro.processes import Broker, Role, Server, role_command, run_workload
from benchmarks.workloads import Job

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
SHARES = (0.1, 0.5, 0.8)
SIZE = 256
WARM = 0.2  # of the messages: not counted
#: Nanoseconds before its time at which a message is sent: less than the system's clock would sleep too long.
EARLY = 50_000
#: Seconds that a producer may take, and then its consumer.
LIMIT_S = 90
now = time.monotonic_ns


def body(due: int) -> bytes:
    return b"%020d" % due + b"x" * (SIZE - 20)


def due_times(rate: float, n: int) -> Iterator[int]:
    """The timetable: nanoseconds on the clock of :data:`now`, beginning in a moment."""
    start = now() + 200_000_000
    return (start + int(i * 1e9 / rate) for i in range(n))


class Timetable:
    """What is due, a batch at a time. It begins when it is made: a producer connects first.

    Args:
        job: its `n` messages, `rate` of them a second.
    """

    def __init__(self, job: Job) -> None:
        self._due = due_times(job["rate"], job["n"])
        self._next = next(self._due, None)
        self._alarm: Alarm | None = None

    @property
    def ahead(self) -> float | None:
        """Seconds until something is due, 0 if something is; None when all was."""
        return None if self._next is None else max(0.0, (self._next - now() - EARLY) / 1e9)

    def take(self) -> Iterator[bytes]:
        while self._next is not None and self._next - now() <= EARLY:
            yield body(self._next)
            self._next = next(self._due, None)

    async def rest(self, seconds: float) -> None:
        """Wait for what is due, with a client on an event loop; 0 for a turn of it."""
        if self._alarm is None:
            self._alarm = Alarm()
        await self._alarm.wait(seconds)


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


Sender: TypeAlias = Callable[[Job], Any]


def send_blocking(job: Job) -> None:
    from sievemq import BytesMessage, ConnectionFactory, DeliveryMode

    with ConnectionFactory(job["url"]).create_context() as context:
        destination = context.create_queue(job["dest"])
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        send_all(Timetable(job), lambda each: producer.send(destination, BytesMessage(each)))


async def send_aio(job: Job) -> None:
    from sievemq import BytesMessage, DeliveryMode
    from sievemq.aio import ConnectionFactory

    async with await ConnectionFactory(job["url"]).create_context() as context:
        destination = context.create_queue(job["dest"])
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        timetable = Timetable(job)
        while (ahead := timetable.ahead) is not None:
            await timetable.rest(ahead)  # the loop writes
            for each in timetable.take():
                await producer.send(destination, BytesMessage(each))


SENDERS: dict[str, Sender] = {"blocking": send_blocking, "aio": send_aio}


def send(job: Job, senders: Mapping[str, Sender]) -> None:
    """Be the producer: keep to the job's timetable."""
    sender = senders[job["api"]]
    if inspect.iscoroutinefunction(sender):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(sender(job))
    else:
        sender(job)
    os._exit(0)  # threads of client libraries need not end


def sender_command(job: Job) -> list[str]:
    """How a producer starts that is one of :data:`SENDERS`."""
    return [sys.executable, "-m", "benchmarks.latency", "--send", json.dumps(job)]


def measure(
    broker: Server,
    api: str,
    rate: float,
    seconds: float,
    run: str = "0",
    *,
    receive: Callable[[Job], Sequence[str]] = role_command,
    send: Callable[[Job], Sequence[str]] = sender_command,
) -> dict[str, float]:
    """Percentiles at one rate, in microseconds.

    Args:
        run: text that makes the queue the run's own.
        receive, send: how the consumer and the producer start.

    Raises:
        RuntimeError: not all messages came in time.
        subprocess.SubprocessError: the producer failed.
    """
    n, dest = max(1_000, int(rate * seconds)), f"latency.{run}.{rate:.0f}"
    sub = {"conn": 0, "dest": dest, "kind": "queue", "selector": None, "key": None, "expected": n}
    job = {"url": broker.url, "api": api, "workload": "W1", "dest": dest, "kind": "queue", "n": n, "size": SIZE}
    receiving = {**job, "role": "consume", "timed": True, "subs": [sub]}
    receiver = Role(receiving, receive(receiving))
    try:
        receiver.wait_ready()
        subprocess.run(send({**job, "role": "send", "rate": rate}), check=True, timeout=LIMIT_S, cwd=ROOT)
        times = receiver.wait_result(LIMIT_S)["times"]
    finally:
        receiver.stop()
    if len(times) != n:
        raise RuntimeError(f"{len(times)} of {n} messages came")
    return percentiles(times)


def main() -> None:
    """Parse arguments, measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__.partition("\n")[0])
    parser.add_argument("--api", choices=("blocking", "aio"), default="blocking")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each rate")
    parser.add_argument("--json", type=Path, default=RESULTS / "latency.json")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.send:
        send(json.loads(arguments.send), SENDERS)
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
