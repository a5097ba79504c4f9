"""Finding consumers for messages and messages for consumers, as ratios that should stay near 1.

    python -m benchmarks.micro.matching             everything in this process, and the loop's lag over a socket
    python -m benchmarks.micro.matching --depth 100000

A topic with 10,000 selective subscribers beside one with 10; a receive and a browse by correlation id from a queue of a
million beside one of a thousand, in the domain and over the wire; the lag of a broker's loop while a selector that no
index can answer is new on a million messages.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.macro.processes import Broker as BrokerProcess
from benchmarks.micro.queue import NOW, Port, message
from benchmarks.micro.timing import Row, compare, time_us
from sievemq import ConnectionFactory, DeliveryMode, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker, Namespace
from sievemq_broker.domain.work import finish
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector import CompiledSelector, cache, compile_selector

BATCH = 100


def selector(text: str) -> CompiledSelector:
    compiled = compile_selector(text)
    assert compiled is not None
    return compiled


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- a topic ------------------------------------------------------------------------------------------------------


def topic(subscribers: int) -> tuple[Namespace, Callable[[], None]]:
    """Each subscriber wants one symbol above one price; a message is for one of them, and costs more than it asks."""
    namespace = Broker().namespace("")
    consumers = [
        namespace.open_consumer(
            Port(), 1, "topic:t", selector(f"symbol = 'S{n}' AND price > {n % 100}"), connection="c", credit=0, now=NOW
        )
        for n in range(subscribers)
    ]
    picked = random.Random(1).sample(range(subscribers), 10)
    fields = [message(symbol=f"S{n}", price=n % 100 + 0.5).fields for n in picked] * (BATCH // 10)
    send = namespace.send

    def once() -> None:
        for each in fields:
            send("topic:t", Envelope(each, b""), NOW, "p")  # as they arrive: properties not decoded yet
        for number in picked:
            consumer = consumers[number]
            consumer.grant(BATCH, NOW)
            consumer.acknowledge(consumer.tag, NOW)
            consumer.credit = 0

    return namespace, once


def memory_per_subscriber(count: int = 10_000) -> float:
    """Kilobytes of a subscriber in the domain, its compiled selector included."""
    cache.clear()
    before = resident()
    kept = topic(count)
    size = (resident() - before) / count / 1024
    del kept
    return size


# -- a queue ------------------------------------------------------------------------------------------------------


def deep(depth: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A receive by correlation id, each by a consumer of its own, and a browse by one, from a queue of `depth` messages
    in the domain."""
    broker = Broker()
    namespace = broker.namespace("")
    send = namespace.send
    plain = message(customer=0).fields
    for number in range(depth):
        fields = (*plain[:6], f"c{number}", *plain[7:])
        envelope = Envelope(fields)
        envelope.compact()
        send("queue:q", envelope, NOW)
    namespace.open_consumer(
        Port(), 1, "queue:q", selector("JMSCorrelationID = 'none'"), connection="c", credit=0, now=NOW
    )
    while broker.work(NOW):
        pass
    wanted = random.Random(2).sample(range(depth), min(depth, 1_000))
    compiled = [selector(f"JMSCorrelationID = 'c{number}'") for number in wanted]
    place = 0

    def once() -> None:
        nonlocal place
        condition = compiled[place]
        place = (place + 1) % len(compiled)
        consumer = namespace.open_consumer(Port(), 2, "queue:q", condition, connection="c", credit=1, now=NOW)
        assert consumer.tag == 1
        finish(partial(consumer.close, 0), NOW)  # not handed to anybody: it goes back, and the depth stays

    waiting = namespace.queue("queue:q").backlog

    def browse() -> None:
        nonlocal place
        condition = compiled[place]
        place = (place + 1) % len(compiled)
        before = waiting.examined
        _, page = namespace.browse("queue:q", condition, None, 10, NOW)
        assert len(page) == 1
        assert waiting.examined == before + 1  # not the queue

    return once, browse


def fill(context: JMSContext, depth: int, correlated: bool) -> None:
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    queue = context.create_queue("q")
    for number in range(depth):
        if correlated:
            producer.set_jms_correlation_id(f"c{number}")
        producer.set_property("number", number).send(queue, "")


def receive(context: JMSContext, number: int) -> None:
    """One message by correlation id, with a consumer of its own."""
    with context.create_consumer(context.create_queue("q"), f"JMSCorrelationID = 'c{number}'") as consumer:
        assert consumer.receive(60_000) is not None


def receive_over_the_wire(depths: tuple[int, int], count: int = 300) -> list[float]:
    """Median microseconds of a receive by correlation id from queues of those depths, taken in turns; each broker is a
    process of its own."""
    spent: list[list[float]] = [[] for _ in depths]
    with ExitStack() as stack:
        contexts, wanted = [], []
        for depth in depths:
            broker = stack.enter_context(BrokerProcess())
            contexts.append(stack.enter_context(ConnectionFactory(broker.url).create_context()))
            fill(contexts[-1], depth, correlated=True)
            wanted.append(iter(random.Random(3).sample(range(depth), count + 1)))
            receive(contexts[-1], next(wanted[-1]))  # builds the index
        gc.collect()
        for _ in range(count):
            for context, numbers, times in zip(contexts, wanted, spent, strict=True):
                number = next(numbers)
                start = time.perf_counter()
                receive(context, number)
                times.append(time.perf_counter() - start)
    return [statistics.median(times) * 1e6 for times in spent]


def lag_while_attaching(depth: int) -> tuple[list[dict[str, int]], list[float], float]:
    """The turns of a broker's loop while a selector that no index can answer is new on `depth` messages.

    Returns:
        how many turns took how long, by the clock and in processor time of the loop's thread (on a machine that is
        shared the clock also counts what others do); the longest of each in milliseconds; the seconds until the last
        message was found.
    """
    turns: list[tuple[float, float]] = []
    running = True
    loop: asyncio.AbstractEventLoop | None = None

    def turn(before: float, used_before: float) -> None:
        now, used = time.perf_counter(), time.thread_time()
        if running and loop is not None:
            turns.append((now - before, used - used_before))
            loop.call_soon(turn, now, used)

    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        fill(context, depth, correlated=False)
        loop = broker._loop
        assert loop is not None
        gc.collect()
        gc.freeze()  # as `sievemq broker` does: a collection of the whole backlog is no part of a turn
        try:
            loop.call_soon_threadsafe(lambda: turn(time.perf_counter(), time.thread_time()))
            start = time.perf_counter()
            with context.create_consumer(context.create_queue("q"), f"number * 2 >= {2 * (depth - 1)}") as consumer:
                assert consumer.receive(120_000) is not None
                running = False
            took = time.perf_counter() - start
        finally:
            running = False
            gc.unfreeze()
    bounds = (0.5, 1, 2, 5, 10, 20)
    histograms = []
    for spent in zip(*turns, strict=True):
        histograms.append(dict.fromkeys([f"<= {bound} ms" for bound in bounds] + ["more"], 0))
        for seconds in spent:
            histograms[-1][next((f"<= {bound} ms" for bound in bounds if seconds * 1e3 <= bound), "more")] += 1
    return histograms, [max(spent) * 1e3 for spent in zip(*turns, strict=True)], took


def run(seconds: float, many: int = 10_000, depth: int = 100_000) -> list[Row]:
    """The cases without a histogram, about `seconds` per stretch, with `many` subscribers or `depth` messages; the
    baseline is the same with few."""
    few = time_us(topic(10)[1], BATCH, seconds)
    crowd = f"topic: {many:,} × symbol = … AND price > …"
    rows = [compare(crowd, topic(many)[1], "10 of them", few, BATCH, seconds)]
    shallow, far = deep(1_000), deep(depth)
    for name, near, distant in zip(("receive", "browse"), shallow, far, strict=True):
        rows.append(
            compare(f"queue: {name} by correlation id, {depth:,} deep", distant, "1,000 deep", near, 1, seconds)
        )
    return rows


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.matching", description=__doc__)
    parser.add_argument("--depth", type=int, default=1_000_000, help="messages of the deep queue")
    depth = parser.parse_args().depth
    print(f"memory of a subscriber in the domain, its selector included: {memory_per_subscriber():.1f} KB")
    for row in run(0.2, depth=depth):
        print(f"{row.case:<50} {row.us:8.2f} µs   {row.baseline}: {row.baseline_us:.2f} µs   × {1 / row.ratio:.2f}")
    gc.collect()
    shallow, far = receive_over_the_wire((1_000, depth))
    print(f"over the wire, {depth:,} deep{far:>27.0f} µs   1,000 deep: {shallow:.0f} µs   × {far / shallow:.2f}")
    histograms, longest, took = lag_while_attaching(depth)
    print(f"a fresh selector without an index on {depth:,} messages: found after {took:.2f} s; turns of the loop:")
    for name, histogram, worst in zip(("by the clock", "processor time"), histograms, longest, strict=True):
        print(f"    {name}: {histogram}, longest {worst:.1f} ms")


if __name__ == "__main__":
    main()
