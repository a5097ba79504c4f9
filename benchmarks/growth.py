"""Cost as it grows: one figure over size, queues, consumers, depth, connections, selectors; data and a plot of each.

    python -m benchmarks.growth                        everything, some minutes
    python -m benchmarks.growth --quick --only depth   smaller, one of them

What is measured is the processor time of the broker's body for a message that is sent, delivered and acknowledged
(rig.py: the real broker from the bytes in to the bytes out, without the kernel), and the memory that one more of
something takes. Files go to ``benchmarks/results/growth``: NAME.json and, where matplotlib is installed, NAME.svg.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.machine import calibrate_ms, describe
from benchmarks.rig import BATCH, Client, Rig, envelope, resident_bytes
from sievemq_core.wire.commands import Command

OUT = Path(__file__).parent / "results" / "growth"
#: Messages of a measurement, for which the best of three counts.
MESSAGES = 5_000

Point = dict[str, float]


class Series(NamedTuple):
    """What grows, how far, and how one point is measured.

    Attributes:
        title: of the plot.
        axis: what grows.
        sizes: the points; the quick ones are the first four.
        point: measures one, in a process of its own.
        flat: the cost of a message should not grow with it.
    """

    title: str
    axis: str
    sizes: tuple[int, ...]
    point: Callable[[int], Point]
    flat: bool = True


def _exchange(
    rig: Rig,
    sender: Client,
    receivers: list[tuple[Client, int]],
    sends: Iterator[tuple[str, tuple[Any, ...]]],
    n: int,
    pull: bool = False,
) -> float:
    """Send `n` messages in batches; every receiver acknowledges what it gets, cumulatively.

    Args:
        pull: the receivers have no credit: for each batch the first is given as much as was sent, so that what waits
            stays as deep as it is.

    Returns:
        Microseconds of the broker for a message.
    """
    clients = list(dict.fromkeys(client for client, _ in receivers))
    gc.collect()
    gc.freeze()
    gc.disable()  # what it costs in the broker is bounded by its settings, and would be noise here
    best = float("inf")
    try:
        for _ in range(3):
            before, left, delivered = rig.spent, n, 0
            while left > 0:
                batch = min(BATCH, left)
                left -= batch
                for _ in range(batch):
                    sender.send(*next(sends))
                sender.flush()
                if pull:
                    receivers[0][0].acknowledge(receivers[0][1], 0, batch)
                for client in clients:
                    heard = client.flush()
                    while heard:  # large messages come in several writes
                        last: dict[int, tuple[int, int]] = {}
                        for command in heard:
                            if command[0] in (Command.DELIVER, Command.DELIVER_SEVERAL):
                                number, consumer, tag, envelopes = command[:4]
                                more = len(envelopes) if number == Command.DELIVER_SEVERAL else 1
                                _, count = last.get(consumer, (0, 0))
                                last[consumer] = (tag + more - 1, count + more)
                                delivered += more
                        for consumer, (tag, count) in last.items():
                            client.acknowledge(consumer, tag, 0 if pull else count)
                        heard = client.flush()
            assert delivered == n, f"{delivered} of {n} messages were delivered"
            best = min(best, (rig.spent - before) / n * 1e6)
    finally:
        gc.enable()
        gc.unfreeze()
    return best


def size(n: int) -> Point:
    """A message of `n` bytes, on a queue with one consumer."""
    rig = Rig()
    sender, receiver = rig.client(), rig.client()
    consumer = receiver.consumer("queue:q", credit=2 * BATCH)
    fields = envelope(0, n)
    count = max(20, min(MESSAGES, 20_000_000 // (n + 1_000)))
    sends = iter(lambda: ("queue:q", fields), None)
    us = _exchange(rig, sender, [(receiver, consumer)], sends, count)
    return {"us_per_message": us, "ns_per_byte": us * 1e3 / max(1, n)}


def _in_turn(addresses: list[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    number = 0
    while True:
        number += 1
        yield addresses[number * 7919 % len(addresses)], envelope(number)


def queues(n: int) -> Point:
    """Messages to `n` queues in turn, of which a hundred have a consumer."""
    rig = Rig()
    sender, receiver = rig.client(), rig.client()
    before = resident_bytes()
    addresses = [f"queue:q{i}" for i in range(n)]
    for number, address in enumerate(addresses):
        sender.send(address, envelope(number, 0))
        if not number % BATCH:
            sender.flush()
    sender.flush()
    taken = addresses[:: max(1, n // 100)]
    receivers = [(receiver, receiver.consumer(address, credit=2 * BATCH)) for address in taken]
    for client, consumer in receivers:
        client.acknowledge(consumer, 1, 1)
    receiver.flush()
    memory = (resident_bytes() - before) / n
    return {"us_per_message": _exchange(rig, sender, receivers, _in_turn(taken), MESSAGES), "bytes_each": memory}


def consumers(n: int) -> Point:
    """One queue, `n` consumers on ten connections."""
    rig = Rig()
    sender = rig.client()
    clients = [rig.client() for _ in range(min(10, n))]
    before = resident_bytes()
    receivers = [
        (client, client.consumer("queue:q", credit=2 * BATCH)) for client in clients for _ in range(n // len(clients))
    ]
    memory = (resident_bytes() - before) / n
    return {"us_per_message": _exchange(rig, sender, receivers, _in_turn(["queue:q"]), MESSAGES), "bytes_each": memory}


def depth(n: int) -> Point:
    """A queue in which `n` messages of 256 bytes wait, the second half of them with a correlation id: one in, the
    oldest out; and a selector on one of them."""
    rig = Rig()
    sender, receiver = rig.client(), rig.client()
    half = n // 2
    plain = _fill(rig, sender, range(half), lambda number: None)
    correlated = _fill(rig, sender, range(half, n), lambda number: f"c{number}")
    found = _correlated(rig, receiver, range(half, n)) if n else 0.0
    consumer = receiver.consumer("queue:q")
    us = _exchange(rig, sender, [(receiver, consumer)], _in_turn(["queue:q"]), MESSAGES, pull=True)
    return {
        "us_per_message": us,
        "bytes_each": plain,
        "bytes_each_with_correlation_id": correlated,
        "us_by_correlation_id": found,
    }


def _fill(rig: Rig, sender: Client, numbers: range, correlation_id: Callable[[int], str | None]) -> float:
    """Have messages wait; bytes that one of them takes."""
    before = resident_bytes()
    for number in numbers:
        fields = envelope(number)
        sender.send("queue:q", (*fields[:6], correlation_id(number), *fields[7:]))
        if not number % BATCH:
            sender.flush()
    sender.flush()
    return (resident_bytes() - before) / len(numbers) if numbers else 0.0


def _correlated(rig: Rig, client: Client, numbers: range) -> float:
    """Microseconds to open a consumer for one correlation id, take the message and close; the index is there."""
    picked = [numbers[place * 7919 % len(numbers)] for place in range(min(51, len(numbers)))]
    before = 0.0
    for place, number in enumerate(picked):
        if place == 1:
            before = rig.spent
        consumer = client.consumer("queue:q", f"JMSCorrelationID = 'c{number}'", credit=1)
        rig.work()
        client.acknowledge(consumer, 0, 0)
        client.ask(Command.CLOSE_CONSUMER, consumer, 0)
    return (rig.spent - before) / max(1, len(picked) - 1) * 1e6


def connections(n: int) -> Point:
    """`n` connections with a session, a consumer and a queue each; one of a hundred gets messages."""
    rig = Rig()
    sender = rig.client()
    before = resident_bytes()
    clients = [rig.client() for _ in range(n)]
    opened = [(client, client.consumer(f"queue:q{number}", credit=2 * BATCH)) for number, client in enumerate(clients)]
    memory = (resident_bytes() - before) / n
    step = max(1, n // 100)
    addresses = [f"queue:q{number}" for number in range(0, n, step)]
    us = _exchange(rig, sender, opened[::step], _in_turn(addresses), MESSAGES)
    return {"us_per_message": us, "bytes_each": memory}


def selectors(n: int) -> Point:
    """A topic with `n` subscribers that select differently; each message is for one of them."""
    rig = Rig()
    sender = rig.client()
    clients = [rig.client() for _ in range(4)]
    before = resident_bytes()
    if not n:
        receivers = [(clients[0], clients[0].consumer("topic:t", credit=2 * BATCH))]
    else:
        receivers = [
            (clients[k % 4], clients[k % 4].consumer("topic:t", f"symbol = 'S{k}' AND price > 0", 2 * BATCH))
            for k in range(n)
        ]
    memory = (resident_bytes() - before) / max(1, n)
    sends = ((("topic:t"), envelope(i, symbol=f"S{i * 7919 % max(1, n)}", price=1 + i % 100)) for i in range(10**9))
    return {"us_per_message": _exchange(rig, sender, receivers, sends, MESSAGES), "bytes_each": memory}


SERIES: Final[dict[str, Series]] = {
    "size": Series("Message size", "bytes of the body", (0, 256, 4_096, 65_536, 1_048_576), size, flat=False),
    "queues": Series("Queues", "queues with a message", (1, 100, 1_000, 10_000, 100_000), queues),
    "consumers": Series("Consumers", "consumers of one queue", (1, 10, 100, 1_000, 10_000), consumers),
    "depth": Series("Depth", "messages that wait", (0, 1_000, 10_000, 100_000, 1_000_000, 5_000_000), depth),
    "connections": Series("Connections", "open connections", (1, 10, 100, 1_000, 5_000), connections),
    "selectors": Series("Selectors", "different selectors on one topic", (0, 10, 100, 1_000, 10_000), selectors),
}


def measure(name: str, quick: bool) -> list[Point]:
    """Every point of a series, each in a process of its own, so that its memory is its own."""
    series = SERIES[name]
    points: list[Point] = []
    for n in series.sizes[:4] if quick else series.sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            points.append({"n": n, **pool.apply(series.point, (n,))})
        print(f"{name:12}", "  ".join(f"{key} {value:,.1f}" for key, value in points[-1].items()), flush=True)
    return points


def plot(name: str, points: list[Point], path: Path) -> bool:
    """The cost of a message, and below it the memory; False without matplotlib."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        return False
    series = SERIES[name]
    values = [key for key in points[0] if key != "n"]
    figure = Figure(figsize=(6.5, 2.4 * len(values)), layout="constrained")
    FigureCanvasSVG(figure)
    for number, key in enumerate(values, 1):
        axes = figure.add_subplot(len(values), 1, number)
        known = [(point["n"], point[key]) for point in points if point[key] > 0]
        axes.plot([max(n, 0.5) for n, _ in known], [value for _, value in known], marker="o", color="#2a6f97")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylabel(key.replace("_", " ").replace("us ", "µs "))
        axes.grid(visible=True, which="major", alpha=0.3)
        if series.flat and key == "us_per_message":
            axes.set_ylim(1, 1_000)
    figure.axes[0].set_title(f"{series.title}: what a message costs the broker")
    figure.axes[-1].set_xlabel(series.axis)
    figure.savefig(path, metadata={"Date": None})
    return True


def main() -> None:
    """Parse arguments, measure, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="without the largest point of each")
    parser.add_argument("--only", help=f"comma-separated: {', '.join(SERIES)}")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for data and plots")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(SERIES)
    if unknown := set(chosen) - set(SERIES):
        parser.error(f"nothing grows that is called {', '.join(sorted(unknown))}; there are {', '.join(SERIES)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        points = measure(name, arguments.quick)
        data = {"series": name, "axis": SERIES[name].axis, "machine": describe(), "calib_ms": calibrate_ms()}
        (arguments.out / f"{name}.json").write_text(json.dumps({**data, "points": points}, indent=1) + "\n")
        if not plot(name, points, arguments.out / f"{name}.svg"):
            print("matplotlib is not installed (extra spark): no plot")


if __name__ == "__main__":
    main()
