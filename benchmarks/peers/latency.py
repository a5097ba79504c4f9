"""``make bench-latency PEERS=nats,redis``: from send to receipt under load, beside other brokers.

What each sustains is measured first, as W1. Then a producer keeps to a timetable at 10, 50 and 80 % of its own rate,
and at the same 1,000, 10,000 and 50,000 messages a second for all that sustain them. A message's time counts from its
place in the timetable (benchmarks/latency.py). The brokers run together and are measured in turn; medians of the
rounds count. Consumers are the drivers of ``make bench-peers``, and so are the producers of Java clients. The others
are written here: those of the drivers gather hundreds of messages, which is right for a rate and wrong for a latency.

With PEERS=all the figures are kept as benchmarks/latency.json, and drawn into comparison.md and the README;
``--draw`` draws them again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a sender is started by path, under a Python that has its client
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks import latency
from benchmarks.latency import SHARES, SIZE, Sender, Timetable, send_all, sender_command
from benchmarks.machine import calibrate_ms, describe
from benchmarks.macro.processes import Server, role_command, run_workload
from benchmarks.peers import fetch, latency_page
from benchmarks.peers.catalogue import OURS, PEERS
from benchmarks.peers.run import COMPARISON
from benchmarks.workloads import Job

ROOT = Path(__file__).resolve().parents[2]
#: Messages a second at which all are compared that sustain them.
RATES = (1_000, 10_000, 50_000)
#: SieveMQ's interfaces, as benchmarks/latency.py names them.
APIS = dict(zip(OURS, ("blocking", "aio"), strict=True))
#: Peers whose Java client plays both parts.
JAVA = ("activemq", "artemis")


# -- a producer for each peer ------------------------------------------------------------------------------------------


async def redis(job: Job) -> None:
    from benchmarks.peers.drivers.redis import client as connected

    client, timetable = connected(job), Timetable(job)
    while (ahead := timetable.ahead) is not None:
        if ahead:
            await timetable.rest(ahead)
        pipeline = client.pipeline(transaction=False)
        for each in timetable.take():
            pipeline.xadd(job["dest"], {"b": each})
        await pipeline.execute()
    await client.aclose()


async def nats(job: Job) -> None:
    from benchmarks.peers.drivers.nats import connect

    client = await connect(job)
    timetable = Timetable(job)
    while (ahead := timetable.ahead) is not None:
        await timetable.rest(ahead)  # lets the task run that writes
        for each in timetable.take():
            await client.publish(job["dest"], each)
    await client.flush(60)


async def rabbitmq(job: Job) -> None:
    import aio_pika

    from benchmarks.peers.drivers.rabbitmq import connect

    channel = await (await connect(job)).channel(publisher_confirms=False)
    transient, timetable = aio_pika.DeliveryMode.NOT_PERSISTENT, Timetable(job)
    while (ahead := timetable.ahead) is not None:
        if ahead:
            await timetable.rest(ahead)
        for each in timetable.take():
            message = aio_pika.Message(each, delivery_mode=transient)
            await channel.default_exchange.publish(message, job["dest"], mandatory=False)
    await channel.close()


def rabbitmq_pika(job: Job) -> None:
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(job["url"]))
    channel, transient = connection.channel(), pika.BasicProperties(delivery_mode=1)
    send_all(Timetable(job), lambda each: channel.basic_publish("", job["dest"], each, transient), connection.sleep)
    connection.close()


SENDERS: dict[str, Sender] = {
    "nats": nats,
    "nats_js": nats,
    "redis": redis,
    "rabbitmq": rabbitmq,
    "rabbitmq_pika": rabbitmq_pika,
}

# -- the run -----------------------------------------------------------------------------------------------------------


def _commands(name: str) -> dict[str, Callable[[Job], Any]]:
    """How the consumer and the producer of a peer start."""
    if name in OURS:
        return {"receive": role_command, "send": sender_command}
    command = PEERS[name].command
    if name in JAVA:
        return {"receive": command, "send": command}
    return {"receive": command, "send": lambda job: [str(fetch.PYTHON), __file__, "--send", json.dumps(job)]}


def sustained(broker: Server, name: str, messages: int) -> float:
    """Messages a second of W1: the median of three runs."""
    runs = (run_workload(broker, "W1", messages, SIZE, name, f"max{k}", PEERS[name].command) for k in range(3))
    return float(statistics.median(run["msgs_per_s"] for run in runs))


def rates_of(rate: float) -> dict[str, float]:
    """What is measured of a broker that sustains so many messages a second: its name in the figures, and the rate."""
    shares = {f"{share:.0%}": rate * share for share in SHARES}
    return shares | {str(each): float(each) for each in RATES if each <= rate}


def rounds(
    brokers: Mapping[str, Server], rates: Mapping[str, Mapping[str, float]], repeats: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Each peer at each of its rates in turn, so often. A row that did not run has an error."""
    for repeat in range(repeats):
        for name, broker in brokers.items():
            for at, rate in rates[name].items():
                row = {"peer": name, "at": at, "rate": round(rate), "repeat": repeat, "calib_ms": calibrate_ms()}
                try:
                    api, run = APIS.get(name, name), f"{repeat}.{at.rstrip('%')}"
                    row |= latency.measure(broker, api, rate, seconds, run, **_commands(name))
                except (RuntimeError, subprocess.SubprocessError) as error:
                    row["error"] = str(error)[-300:]
                yield row


def medians(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of one peer: rate and percentiles by what was measured."""
    found: dict[str, dict[str, float]] = {}
    good = [row for row in rows if "error" not in row]
    for at in dict.fromkeys(row["at"] for row in good):
        here = [row for row in good if row["at"] == at]
        found[at] = {key: statistics.median(row[key] for row in here) for key in ("rate", "p50", "p99", "p99.9", "max")}
    return found


def compare(names: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """Measure, and return the figures that are kept."""
    load, rows, rates = [os.getloadavg()[0]], [], {}
    with ExitStack() as stack:
        brokers: dict[str, Server] = {}
        for name in names:
            try:
                broker = stack.enter_context(PEERS[name].start("W1"))
                rates[name] = sustained(broker, name, given.messages)
                brokers[name] = broker
                print(f"{name:14} sustains {rates[name]:,.0f} messages/s", flush=True)
            except (fetch.MissingError, RuntimeError) as reason:
                print(f"{name} is left out: {str(reason)[-300:]}", flush=True)
        plan = {name: rates_of(rate) for name, rate in rates.items()}
        for row in rounds(brokers, plan, given.repeats, given.seconds):
            rows.append(row)
            figures = row.get("error") or f"p50 {row['p50']:,.0f} µs, p99 {row['p99']:,.0f}, longest {row['max']:,.0f}"
            print(f"{row['peer']:14} {row['at']:>6} {row['rate']:>8,}/s {figures}", flush=True)
    load.append(os.getloadavg()[0])
    calibration = sorted(row["calib_ms"] for row in rows) or [calibrate_ms()]
    return {
        "machine": describe(),
        "load": [round(each, 1) for each in load],
        "calib_ms": [calibration[0], calibration[-1]],
        "seconds": given.seconds,
        "repeats": given.repeats,
        "peers": {
            name: {"sustained": rate, "at": medians([row for row in rows if row["peer"] == name])}
            for name, rate in rates.items()
        },
        "rows": rows,
    }


def main() -> None:
    """Run the chosen peers in turn, print and write the tables."""
    others = (*SENDERS, *JAVA)
    parser = argparse.ArgumentParser(prog="make bench-latency PEERS=…", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "peers")
    parser.add_argument("--peers", default="all", help=f"comma-separated, or all: {', '.join(others)}")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; medians count")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate")
    parser.add_argument("--messages", type=int, default=50_000, help="for what a peer sustains")
    parser.add_argument("--keep-table", action="store_true", help="leave comparison.md and the README as they are")
    parser.add_argument("--draw", action="store_true", help="measure nothing: draw benchmarks/latency.json again")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        latency.send(json.loads(given.send), SENDERS)
    if given.draw:
        latency_page.write(json.loads(latency_page.FIGURES.read_text()))
        return
    chosen = list(others) if given.peers == "all" else given.peers.split(",")
    if unknown := set(chosen) - set(others):
        parser.error(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(others)}")
    if given.repeats < 1:
        parser.error("--repeats is 1 or more")
    given.out.mkdir(parents=True, exist_ok=True)
    figures = compare([*OURS, *chosen], given)
    rows = figures.pop("rows")
    text = latency_page.tables(figures)
    (given.out / "latency.json").write_text(json.dumps({**figures, "rows": rows}, indent=1) + "\n")
    (given.out / "latency.md").write_text(text + "\n")
    print("\n" + text)
    whole = given.peers == "all" and all(figures["peers"].get(name, {}).get("at") for name in (*OURS, *others))
    if given.keep_table or not whole:
        print(f"\n{COMPARISON.name} keeps its tables")
    else:
        latency_page.FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
        latency_page.write(figures)


if __name__ == "__main__":
    main()
