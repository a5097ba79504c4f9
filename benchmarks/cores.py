"""More than one core, on paper: N shards that divide namespaces by name, from measured processor time.

    python -m benchmarks.cores            two minutes; blocking SDK, brokers in memory
    python -m benchmarks.cores --store    the same with messages kept in PostgreSQL on this machine, its time as well
    python -m benchmarks.cores --api aio

A broker is one process on one core. Measured is the processor time of a message at the broker, at its clients and at
the database, which depends on the load of the machine far less than a rate does. The rest is arithmetic: a broker
serves at most one core's worth of messages, and the broker with the largest share of the namespaces is the first to be
busy. Nothing here is a measurement of several brokers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from zlib import crc32

from benchmarks.machine import calibrate_ms, cpu_seconds, processes_of
from benchmarks.macro.processes import Broker, run_workload
from sievemq import ConnectionFactory

#: Sends that each wait for their confirm: one write of the store for each, where W1c has many messages in a write.
ONE = "one at a time"
MESSAGES = {"W1": 40_000, "W1c": 40_000, "W2": 2_000, "W3": 5_000, "W4": 20_000, "W5": 10_000, ONE: 2_000}
#: Of these, what is measured with a store: NON_PERSISTENT messages, PERSISTENT ones, and a request with its reply.
STORED = ("W1", "W1c", ONE, "W2")
CORES = (8, 64)
NAMESPACES = (64, 1_000, 10_000)


class Spent(NamedTuple):
    """Microseconds of processor time for a message."""

    broker: float
    clients: float
    database: float = 0.0


def balance(brokers: int, namespaces: int) -> float:
    """The mean share of the namespaces, by the largest share: 1 where each broker has as many. They are divided as
    those without a pattern are (sievemq_broker.server.placement)."""
    shares = Counter(crc32(b"orders.%d" % number) % brokers for number in range(namespaces))
    return namespaces / brokers / max(shares.values())


def rates(broker: float, others: float, cores: int, namespaces: int = 1_000) -> tuple[float, int, float]:
    """Messages a second on so many cores.

    Args:
        broker: microseconds of processor time for a message.
        others: those of clients and database.
        namespaces: of equal traffic.

    Returns:
        With a broker on each core and the others on other machines; the number of brokers that leaves the others enough
        cores of the same machine; the rate with these.
    """
    together = min(cores - 1, max(1, round(cores * broker / (broker + others))))
    shared = min(together * balance(together, namespaces) / broker, (cores - together) / others)
    return cores * balance(cores, namespaces) / broker * 1e6, together, shared * 1e6


def row(workload: str, spent: Spent) -> list[str]:
    """Cells of the table: rates are multiples of one broker with a core of its own."""
    cells = [workload, *(f"{us:.1f}" for us in spent)]
    for cores in CORES:
        elsewhere, together, shared = rates(spent.broker, spent.clients + spent.database, cores)
        one = 1e6 / spent.broker
        cells += [f"{elsewhere / one:.1f}", f"{elsewhere * spent.database / 1e6:.1f}", str(together)]
        cells.append(f"{shared / one:.1f}")
    return cells


@contextmanager
def brokers(store: bool) -> Iterator[tuple[Broker, int | None]]:
    """A broker, and the process of the database that it keeps messages in; None if it has none."""
    if not store:
        with Broker() as broker:
            yield broker, None
        return
    from tests.postgres import Database, Server

    server = Server(fsync=True)
    try:
        server.start()
        database = Database(server)
        with Broker("--store", database.url) as broker:
            yield broker, server.pid
    finally:
        server.close()


def measure(workload: str, api: str, repeats: int, *, store: bool = False) -> Spent:
    """Medians.

    Args:
        store: keep messages in PostgreSQL.
    """
    found = []
    with brokers(store) as (broker, database):
        for number in range(repeats):
            before, messages = _spent_by(database), MESSAGES[workload]
            if workload == ONE:
                us = _one_at_a_time(broker, messages)
            else:
                us = run_workload(broker, workload, messages, 256, api, f"r{number}")["us_per_message"]
            of_clients = sum(each for part, each in us.items() if part != "broker")
            found.append(Spent(us["broker"], of_clients, (_spent_by(database) - before) / messages * 1e6))
    return Spent(*map(statistics.median, zip(*found, strict=True)))


def _one_at_a_time(broker: Broker, messages: int) -> dict[str, float]:
    """Microseconds for a message, of the broker and of this process, by the blocking SDK."""
    with ConnectionFactory(broker.url).create_context() as context:
        queue, producer = context.create_queue("one"), context.create_producer()
        of_broker, of_client = broker.cpu_s(), time.process_time()
        for _ in range(messages):
            producer.send(queue, b"x" * 256)
        of_broker, of_client = broker.cpu_s() - of_broker, time.process_time() - of_client
    return {"broker": of_broker / messages * 1e6, "client": of_client / messages * 1e6}


def _spent_by(database: int | None) -> float:
    return 0.0 if database is None else sum(map(cpu_seconds, processes_of(database)))


def main() -> None:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", default="blocking", choices=["blocking", "aio"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"calibration {calibrate_ms()} ms; load {load}; 1,000 namespaces of equal traffic\n")
    heads = ["", "broker µs", "clients µs", "database µs"]
    for cores in CORES:
        heads += [f"{cores} cores, others elsewhere", "cores of the database"]
        heads += [f"{cores} cores: brokers", "with the others"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for workload in STORED if given.store else [name for name in MESSAGES if name != ONE]:
        spent = measure(workload, given.api, given.repeats, store=given.store)
        print(f"| {' | '.join(row(workload, spent))} |", flush=True)
    print(f"\n| namespaces | {' | '.join(f'{cores} brokers' for cores in CORES)} |\n|{' --- |' * (len(CORES) + 1)}")
    for namespaces in NAMESPACES:
        print(f"| {namespaces:,} | {' | '.join(f'{balance(cores, namespaces):.2f}' for cores in CORES)} |")


if __name__ == "__main__":
    main()
