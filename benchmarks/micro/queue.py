"""What a message costs in the broker's body: send, dispatch, acknowledge; fan-out; selectors. Packing not included."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from benchmarks.micro.timing import Row
from sievemq_broker.domain.broker import Broker
from sievemq_core.message.envelope import Envelope, pack_properties
from sievemq_core.selector import CompiledSelector, compile_selector

COUNT = 100_000
NOW = 1_000_000


class Port:
    """Takes deliveries and does nothing with them."""

    writable = True

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        pass

    def recall(self, consumer_id: int, tags: list[int]) -> None:
        pass

    def closed(self, consumer_id: int, code: int, text: str) -> None:
        pass

    def settled(self, consumer_id: int) -> None:
        pass


def envelope(correlation_id: str | None = None, **properties: Any) -> Envelope:
    packed, letters = pack_properties(properties)
    return Envelope(("ID:x", 1, 4, 1, 0, 0, correlation_id, None, None, packed, letters, 1, b"x" * 100))


def equals(name: str, value: int) -> CompiledSelector:
    """``name = value``."""
    compiled = compile_selector(f"{name} = {value}")
    assert compiled is not None
    return compiled


def plain(batch: int) -> Callable[[], int]:
    namespace = Broker().namespace("")
    consumer = namespace.open_consumer(Port(), 1, "queue:q", connection="c", credit=batch, now=NOW)
    message = envelope(region="EU")

    def run() -> int:
        send = namespace.send
        for _ in range(COUNT // batch):
            for _ in range(batch):
                send("queue:q", message, NOW)
            consumer.acknowledge(consumer.tag, NOW)
            consumer.grant(batch, NOW)
        return COUNT

    return run


def backlog() -> int:
    namespace = Broker().namespace("")
    messages = [envelope(region="EU")] * COUNT
    for message in messages:
        namespace.send("queue:q", message, NOW)
    consumer = namespace.open_consumer(Port(), 1, "queue:q", connection="c", credit=100, now=NOW)
    while consumer.window:
        consumer.acknowledge(consumer.tag, NOW)
        consumer.grant(100, NOW)
    return COUNT


def fan_out(subscribers: int, selective: int = 0) -> Callable[[], int]:
    namespace = Broker().namespace("")
    consumers = [
        namespace.open_consumer(Port(), n, "topic:t", connection="c", credit=100, now=NOW) for n in range(subscribers)
    ]
    for n in range(selective):
        namespace.open_consumer(Port(), n, "topic:t", equals("customer", n + 1), connection="c", credit=100, now=NOW)
    message = envelope(customer=0)
    rounds = max(1, COUNT // subscribers // 100)

    def run() -> int:
        for _ in range(rounds):
            for _ in range(100):
                namespace.send("topic:t", message, NOW)
            for consumer in consumers:
                consumer.acknowledge(consumer.tag, NOW)
                consumer.grant(100, NOW)
        return rounds * 100 * subscribers

    return run


def selective(selectors: int) -> Callable[[], int]:
    namespace = Broker().namespace("")
    consumers = [
        namespace.open_consumer(Port(), n, "queue:q", equals("customer", n), connection="c", credit=100, now=NOW)
        for n in range(selectors)
    ]
    messages = [envelope(customer=n % selectors) for n in range(COUNT // 5)]

    def run() -> int:
        for at in range(0, len(messages), 100):
            for message in messages[at : at + 100]:
                namespace.send("queue:q", message, NOW)
            for consumer in consumers[:100]:
                consumer.acknowledge(consumer.tag, NOW)
                consumer.grant(100 - consumer.credit, NOW)
        for consumer in consumers:
            consumer.acknowledge(consumer.tag, NOW)
            consumer.grant(100 - consumer.credit, NOW)
        return len(messages)

    return run


CASES: dict[str, Callable[[], Callable[[], int]]] = {
    "send, deliver, acknowledge one by one": lambda: plain(1),
    "send, deliver, acknowledge in batches of 100": lambda: plain(100),
    "send to a backlog, then drain it in batches of 100": lambda: backlog,
    "topic: per delivery, 100 subscribers": lambda: fan_out(100),
    "topic: per delivery, 1 subscriber": lambda: fan_out(1),
    "topic: per message, 1 hit among 1,000 selective subscribers": lambda: fan_out(1, 1_000),
    "topic: per message, 1 hit among 10,000 selective subscribers": lambda: fan_out(1, 10_000),
    "queue: 100 consumers with distinct selectors": lambda: selective(100),
    "queue: 10,000 consumers with distinct selectors": lambda: selective(10_000),
}


def bare() -> int:
    """What a message costs at least: it is appended to a deque and popped."""
    waiting: deque[Envelope] = deque()
    message = envelope(region="EU")
    for _ in range(COUNT):
        waiting.append(message)
        waiting.popleft()
    return COUNT


def run(seconds: float) -> list[Row]:
    """Every case beside the bare deque; cases with 10,000 selectors, which take long to make, only if there is time."""
    base = round(statistics.median(_once(bare) for _ in range(3)), 4)
    rows = []
    for name, make in CASES.items():
        if "10,000" not in name or seconds >= 0.1:
            rows.append(Row(name, round(_measured(make()), 4), "deque, append and pop", base))
    return rows


def _measured(run: Callable[[], int]) -> float:
    return statistics.median(_once(run) for _ in range(3))


def _once(run: Callable[[], int]) -> float:
    start = time.perf_counter()
    count = run()
    return (time.perf_counter() - start) / count * 1e6
