"""``make bench-latency PEERS=nats,redis``: from send to receipt under load, beside other brokers.

What each sustains is measured first, as W1; then a producer keeps to a timetable at 10, 50 and 80 % of its own rate,
and a message's time counts from its place in that (benchmarks/latency.py). Consumers are the drivers of ``make
bench-peers``. Producers are written here: those of the drivers gather hundreds of messages, which is right for a rate
and wrong for a latency. All that is due is sent, in one go where the client can. Peers with a Java client are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a sender is started by path, under a Python that has its client
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.latency import SHARES, SIZE, Timetable, percentiles, send_all, table_row
from benchmarks.macro.processes import Role, Server, run_workload
from benchmarks.peers import fetch
from benchmarks.peers.catalogue import OURS, PEERS

ROOT = Path(__file__).resolve().parents[2]
HEAD = "| | share | messages/s | p50 µs | p99 µs | p99.9 µs | longest µs |\n|---|---|---|---|---|---|---|"


# -- a producer for each peer ------------------------------------------------------------------------------------------


async def redis(job: dict[str, Any], timetable: Timetable) -> None:
    from benchmarks.peers.drivers.redis import client as connected

    client = connected(job)
    while (ahead := timetable.ahead) is not None:
        if ahead:
            await asyncio.sleep(ahead)
        pipeline = client.pipeline(transaction=False)
        for each in timetable.take():
            pipeline.xadd(job["dest"], {"b": each})
        await pipeline.execute()
    await client.aclose()


async def nats(job: dict[str, Any], timetable: Timetable) -> None:
    from benchmarks.peers.drivers.nats import connect

    client = await connect(job)
    while (ahead := timetable.ahead) is not None:
        await asyncio.sleep(ahead)  # lets the task run that writes
        for each in timetable.take():
            await client.publish(job["dest"], each)
    await client.flush(60)


async def rabbitmq(job: dict[str, Any], timetable: Timetable) -> None:
    import aio_pika

    from benchmarks.peers.drivers.rabbitmq import connect

    channel = await (await connect(job)).channel(publisher_confirms=False)
    transient = aio_pika.DeliveryMode.NOT_PERSISTENT
    while (ahead := timetable.ahead) is not None:
        if ahead:
            await asyncio.sleep(ahead)
        for each in timetable.take():
            message = aio_pika.Message(each, delivery_mode=transient)
            await channel.default_exchange.publish(message, job["dest"], mandatory=False)
    await channel.close()


def rabbitmq_pika(job: dict[str, Any], timetable: Timetable) -> None:
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(job["url"]))
    channel, transient = connection.channel(), pika.BasicProperties(delivery_mode=1)
    send_all(timetable, lambda each: channel.basic_publish("", job["dest"], each, transient), connection.sleep)
    connection.close()


SENDERS: dict[str, Callable[[dict[str, Any], Timetable], Any]] = {
    "nats": nats,
    "nats_js": nats,
    "redis": redis,
    "rabbitmq": rabbitmq,
    "rabbitmq_pika": rabbitmq_pika,
}

# -- the run -----------------------------------------------------------------------------------------------------------


def send(job: dict[str, Any]) -> None:
    """Be the producer: keep to the job's timetable."""
    sender, timetable = SENDERS[job["api"]], Timetable(job["rate"], job["n"])
    if inspect.iscoroutinefunction(sender):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(sender(job, timetable))
    else:
        sender(job, timetable)
    os._exit(0)  # threads of client libraries need not end


def measure(broker: Server, name: str, rate: float, seconds: float) -> dict[str, float]:
    """Percentiles of a peer at one rate, in microseconds.

    Raises:
        RuntimeError: not all messages came.
    """
    n, dest = max(1_000, int(rate * seconds)), f"latency.{rate:.0f}"
    sub = {"conn": 0, "dest": dest, "kind": "queue", "selector": None, "key": None, "expected": n}
    job = {"url": broker.url, "api": name, "workload": "W1", "dest": dest, "kind": "queue", "n": n, "size": SIZE}
    receiving = {**job, "role": "consume", "timed": True, "subs": [sub]}
    receiver = Role(receiving, PEERS[name].command(receiving))
    try:
        receiver.wait_ready()
        sender = [str(fetch.PYTHON), __file__, "--send", json.dumps({**job, "rate": rate})]
        subprocess.run(sender, check=True, timeout=90)
        times = receiver.wait_result(90)["times"]
    finally:
        receiver.stop()
    if len(times) != n:
        raise RuntimeError(f"{len(times)} of {n} messages came")
    return percentiles(times)


def of_peer(name: str, seconds: float, messages: int) -> Iterator[dict[str, Any]]:
    peer = PEERS[name]
    with peer.start("W1") as broker:
        sustained = run_workload(broker, "W1", messages, SIZE, name, "max", peer.command)["msgs_per_s"]
        for share in SHARES:
            rate = sustained * share
            yield {"peer": name, "share": share, "rate": round(rate), **measure(broker, name, rate, seconds)}


def of_sievemq(name: str, seconds: float, out: Path) -> Iterator[dict[str, Any]]:
    """SieveMQ's rows, from benchmarks/latency.py."""
    file, api = out / f"{name}.json", "aio" if name == "sievemq_aio" else "blocking"
    command = [sys.executable, "-m", "benchmarks.latency", "--api", api, "--seconds", str(seconds), "--json", str(file)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    for row in json.loads(file.read_text())["rows"]:
        yield {"peer": name, **row}


def main() -> None:
    """Run the chosen peers one after the other, print and write the table."""
    parser = argparse.ArgumentParser(prog="make bench-latency PEERS=…", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "peers")
    parser.add_argument("--peers", default="all", help=f"comma-separated, or all: {', '.join(SENDERS)}")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate")
    parser.add_argument("--messages", type=int, default=20_000, help="for what a peer sustains")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.send:
        send(json.loads(arguments.send))
    chosen = list(SENDERS) if arguments.peers == "all" else arguments.peers.split(",")
    if unknown := set(chosen) - set(SENDERS):
        parser.error(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(SENDERS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows, lines = [], [HEAD]
    print(HEAD)
    for name in (*OURS, *chosen):
        found = (
            of_sievemq(name, arguments.seconds, arguments.out)
            if name in OURS
            else of_peer(name, arguments.seconds, arguments.messages)
        )
        try:
            for row in found:
                rows.append(row)
                figures = {key: row[key] for key in ("p50", "p99", "p99.9", "max")}
                lines.append(table_row(PEERS[name].title, f"{row['share']:.0%}", rate=row["rate"], found=figures))
                print(lines[-1], flush=True)
        except fetch.MissingError as reason:
            print(f"{name} is left out: {reason}", flush=True)
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"{name} did not run: {str(error)[-300:]}", flush=True)
    (arguments.out / "latency.json").write_text(json.dumps(rows, indent=1) + "\n")
    (arguments.out / "latency.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
