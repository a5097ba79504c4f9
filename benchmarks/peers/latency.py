"""``make bench-latency PEERS=…``: from send to receipt under load, SieveMQ and the brokers that are installed.

    latency.py HARNESS --out FOLDER [--peers a,b] [--seconds 3] [--messages 20000]

What each sustains is measured first, as W1 of the harness; then a producer keeps to a timetable at 10, 50 and 80 % of
its own rate, and a message's time counts from its place in that (benchmarks/latency.py). Consumers are the harness' own
drivers, told to note times in place of sums. Producers are written here: those of the drivers gather hundreds of
messages, which is right for a rate and wrong for a latency. All that is due is sent, in one go where the client can.

Runs under a Python that has the harness' requirements, as peers/run.py. The Java client is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])  # in place of this folder, whose sievemq.py is no SDK

from benchmarks.latency import SHARES, SIZE, body, due_times, now, percentiles, table_row  # noqa: E402
from benchmarks.peers.run import NAMES, OURS, installed, join  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
#: Nanoseconds before its time at which a message is sent: less than the system's clock would sleep too long.
EARLY = 50_000
HEAD = "| | share | messages/s | p50 µs | p99 µs | p99.9 µs | longest µs |\n|---|---|---|---|---|---|---|"


class Timetable:
    """What is due, a batch at a time.

    Args:
        rate: messages a second.
        n: messages.
    """

    def __init__(self, rate: float, n: int) -> None:
        self._due = due_times(rate, n)
        self._next = next(self._due, None)

    @property
    def ahead(self) -> float | None:
        """Seconds until something is due, 0 if something is; None when all was."""
        return None if self._next is None else max(0.0, (self._next - now() - EARLY) / 1e9)

    def take(self) -> Iterator[bytes]:
        """The bodies that are due now."""
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


# -- a producer for each peer; `driver` is the harness' ---------------------------------------------------------------


async def redis(driver: Any, dest: str, timetable: Timetable) -> None:
    client = driver.client()
    while (ahead := timetable.ahead) is not None:
        if ahead:
            await asyncio.sleep(ahead)
        pipeline = client.pipeline(transaction=False)
        for each in timetable.take():
            pipeline.xadd(dest, {"b": each})
        await pipeline.execute()
    await client.aclose()


async def nats(driver: Any, dest: str, timetable: Timetable) -> None:
    client = await driver.connect()
    while (ahead := timetable.ahead) is not None:
        await asyncio.sleep(ahead)  # lets the task run that writes
        for each in timetable.take():
            await client.publish(dest, each)
    await client.flush(60)


async def rabbitmq(driver: Any, dest: str, timetable: Timetable) -> None:
    import aio_pika

    channel = await (await driver.connect()).channel(publisher_confirms=False)
    transient = aio_pika.DeliveryMode.NOT_PERSISTENT
    while (ahead := timetable.ahead) is not None:
        if ahead:
            await asyncio.sleep(ahead)
        for each in timetable.take():
            message = aio_pika.Message(each, delivery_mode=transient)
            await channel.default_exchange.publish(message, dest, mandatory=False)
    await channel.close()


def rabbitmq_pika(driver: Any, dest: str, timetable: Timetable) -> None:
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1"))
    channel, transient = connection.channel(), pika.BasicProperties(delivery_mode=1)
    send_all(timetable, lambda each: channel.basic_publish("", dest, each, transient), connection.sleep)
    connection.close()


def mosquitto(driver: Any, dest: str, timetable: Timetable) -> None:
    client = driver.client()
    sent: deque[Any] = deque(maxlen=1)
    send_all(timetable, lambda each: sent.append(client.publish(dest, each, qos=1)))
    sent[0].wait_for_publish(60)


def activemq_stomp(driver: Any, dest: str, timetable: Timetable) -> None:
    client = driver.connect()
    send_all(timetable, lambda each: client.send(f"/queue/{dest}", each))
    client.disconnect()


SENDERS: dict[str, Callable[[Any, str, Timetable], Any]] = {
    "activemq_stomp": activemq_stomp,
    "nats": nats,
    "nats_js": nats,
    "redis": redis,
    "rabbitmq": rabbitmq,
    "rabbitmq_pika": rabbitmq_pika,
    "mosquitto": mosquitto,
}

# -- one process's part -----------------------------------------------------------------------------------------------


def carry_out(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it, on a loop if it is a coroutine function."""
    if not inspect.iscoroutinefunction(function):
        return function(*arguments)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(function(*arguments))


def play(part: dict[str, Any]) -> None:
    """Send, or receive with the harness' driver."""
    sys.path[0] = part["harness"]
    sys.path.append(str(ROOT))
    common = importlib.import_module("common")
    driver = importlib.import_module(f"drivers.{part['peer']}")
    if part["role"] == "send":
        carry_out(SENDERS[part["peer"]], driver, part["dest"], Timetable(part["rate"], part["n"]))
    else:
        times: list[int] = []

        class Times(common.Counter):
            def add(self, data: bytes) -> bool:
                times.append(now() - int(data[:20]))
                self.got += 1
                return bool(self.got >= self.need)

        driver.Counter = Times
        sub = {"conn": 0, "dest": part["dest"], "kind": "queue", "selector": None, "key": None, "expected": part["n"]}
        job = {**part, "workload": "W1", "size": SIZE, "confirm": False, "run_id": part["dest"], "subs": [sub]}
        carry_out(driver.consume, {**job, "role": "consume", "proc": 0}, common.IO())
        if len(times) < part["n"]:
            sys.exit(f"{len(times)} of {part['n']} messages came")
        print("RESULT " + json.dumps(percentiles(times)), flush=True)
    os._exit(0)  # threads of client libraries need not end


# -- the run ----------------------------------------------------------------------------------------------------------


def measure(harness: Path, peer: str, rate: float, seconds: float) -> dict[str, float]:
    """Percentiles of a peer at one rate, in microseconds."""
    common = {
        "harness": str(harness),
        "peer": peer,
        "dest": f"latency.{rate:.0f}",
        "n": max(1_000, int(rate * seconds)),
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--part"]
    receiver = subprocess.Popen(
        [*command, json.dumps({**common, "role": "receive"})],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        subprocess.run([*command, json.dumps({**common, "role": "send", "rate": rate})], check=True, timeout=90)
        for line in receiver.stdout:
            if line.startswith("RESULT "):
                return dict(json.loads(line.removeprefix("RESULT ")))
        assert receiver.stderr is not None
        raise RuntimeError(f"the consumer gave no result at {rate:.0f} messages/s: {receiver.stderr.read()[-300:]}")
    finally:
        receiver.kill()
        receiver.wait()


def of_peer(runner: Any, harness: Path, peer: str, seconds: float, messages: int) -> Iterator[dict[str, Any]]:
    """What a peer sustains, and its rows."""
    sustained: list[float] = []
    runner.run_peer(peer, "W1", messages, SIZE, 1, False, None, lambda row: sustained.append(row.get("msgs_per_s", 0)))
    if not sustained or not sustained[0]:
        raise RuntimeError(f"{peer}: W1 did not run")
    driver = importlib.import_module(f"drivers.{peer}")
    broker = runner.procs.start(driver.BROKER)
    try:
        for share in SHARES:
            rate = sustained[0] * share
            yield {"peer": peer, "share": share, "rate": round(rate), **measure(harness, peer, rate, seconds)}
    finally:
        broker.stop()


def of_sievemq(peer: str, seconds: float, out: Path) -> Iterator[dict[str, Any]]:
    """SieveMQ's rows: benchmarks/latency.py under the Python that has it."""
    python, file = os.environ.get("BENCH_PYTHON", sys.executable), out / f"{peer}.json"
    api = "aio" if peer == "sievemq_aio" else "blocking"
    command = [python, "-m", "benchmarks.latency", "--api", api, "--seconds", str(seconds), "--json", str(file)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    for row in json.loads(file.read_text())["rows"]:
        yield {"peer": peer, **row}


def main() -> None:
    """Run the chosen peers one after the other, print and write the table."""
    parser = argparse.ArgumentParser(prog="make bench-latency PEERS=…", description=__doc__.partition("\n")[0])
    parser.add_argument("harness", type=Path, nargs="?", help="folder of the peers harness")
    parser.add_argument("--out", type=Path, help="folder for rows and table")
    parser.add_argument("--peers", help="comma-separated; SieveMQ and all that are installed")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate")
    parser.add_argument("--messages", type=int, default=20_000, help="for what a peer sustains")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        play(json.loads(arguments.part))
        return
    if arguments.harness is None or arguments.out is None:
        parser.error("HARNESS and --out are needed")
    harness, out = arguments.harness.resolve(), arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    runner = join(harness)
    peers = arguments.peers.split(",") if arguments.peers else [*OURS, *(p for p in installed() if p in SENDERS)]
    rows, lines = [], [HEAD]
    print(HEAD)
    for peer in peers:
        try:
            if peer in OURS:
                found = of_sievemq(peer, arguments.seconds, out)
            else:
                found = of_peer(runner, harness, peer, arguments.seconds, arguments.messages)
            for row in found:
                rows.append(row)
                figures = {key: row[key] for key in ("p50", "p99", "p99.9", "max")}
                lines.append(table_row(NAMES[peer], f"{row['share']:.0%}", rate=row["rate"], found=figures))
                print(lines[-1], flush=True)
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"{peer} did not run: {str(error)[-300:]}", flush=True)
    (out / "latency.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "latency.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
