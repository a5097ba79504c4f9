"""More than one core, on paper: N brokers that divide destinations by name, from measured processor time.

    python -m benchmarks.cores            two minutes; blocking SDK
    python -m benchmarks.cores --api aio

A broker is one process on one core. Measured is the processor time of a message at the broker and at its clients, which
depends on the load of the machine far less than a rate does. The rest is arithmetic: a broker serves at most one core's
worth of messages, and the broker with the largest share of the destinations is the first to be busy. Nothing here is a
measurement of several brokers, and nothing is counted for a client that needs a connection to each of them.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from zlib import crc32

from benchmarks.machine import calibrate_ms
from benchmarks.macro.processes import Broker, run_workload

MESSAGES = {"W1": 40_000, "W1c": 40_000, "W2": 2_000, "W3": 5_000, "W4": 20_000, "W5": 10_000}
CORES = (8, 64)
DESTINATIONS = (64, 1_000, 10_000)


def balance(brokers: int, destinations: int) -> float:
    """The mean share of the destinations, by the largest share: 1 where each broker has as many."""
    shares = Counter(crc32(b"orders.%d" % number) % brokers for number in range(destinations))
    return destinations / brokers / max(shares.values())


def rates(broker: float, clients: float, cores: int, destinations: int = 1_000) -> tuple[float, int, float]:
    """Messages a second on so many cores.

    Args:
        broker, clients: microseconds of processor time for a message.
        destinations: of equal traffic, divided by the hash of the name.

    Returns:
        With a broker on each core and the clients on other machines; the number of brokers that leaves the clients
        enough cores of the same machine; the rate with these.
    """
    together = min(cores - 1, max(1, round(cores * broker / (broker + clients))))
    shared = min(together * balance(together, destinations) / broker, (cores - together) / clients)
    return cores * balance(cores, destinations) / broker * 1e6, together, shared * 1e6


def measure(workload: str, api: str, repeats: int) -> tuple[float, float]:
    """Microseconds of the broker and of all clients for a message, medians."""
    found = []
    with Broker() as broker:
        for number in range(repeats):
            row = run_workload(broker, workload, MESSAGES[workload], 256, api, f"r{number}")
            spent = row["us_per_message"]
            found.append((spent["broker"], sum(us for part, us in spent.items() if part != "broker")))
    brokers, clients = zip(*found, strict=True)
    return statistics.median(brokers), statistics.median(clients)


def main() -> None:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", default="blocking", choices=["blocking", "aio"])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(f"calibration {calibrate_ms()} ms; 1,000 destinations of equal traffic\n")
    heads = [f"{cores} cores: {what}" for cores in CORES for what in ("clients elsewhere", "brokers", "clients too")]
    columns = ["", "broker µs", "clients µs", "one broker, messages/s", *heads]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for workload in MESSAGES:
        broker, clients = measure(workload, given.api, given.repeats)
        cells = [workload, f"{broker:.1f}", f"{clients:.1f}", f"{1e6 / broker:,.0f}"]
        for cores in CORES:
            elsewhere, together, shared = rates(broker, clients, cores)
            cells += [f"{elsewhere:,.0f}", str(together), f"{shared:,.0f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n| destinations | {' | '.join(f'{cores} brokers' for cores in CORES)} |\n|{' --- |' * (len(CORES) + 1)}")
    for destinations in DESTINATIONS:
        print(f"| {destinations:,} | {' | '.join(f'{balance(cores, destinations):.2f}' for cores in CORES)} |")


if __name__ == "__main__":
    main()
