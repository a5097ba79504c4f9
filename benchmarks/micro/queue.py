"""The broker's body: what a message costs to send, dispatch and acknowledge, to fan out, to select. Packing the
deliveries is not included: the port only counts.

The baseline of the plain cases is the least that could do the job: append to a deque, take from it, forget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from benchmarks.micro.timing import Row, compare
from sievemq_broker.domain import Broker, Consumer, Namespace
from sievemq_broker.domain.failure import NOBODY, Party
from sievemq_broker.domain.ports import DeliveryPort, Stored
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import Envelope, pack_properties
from sievemq_core.selector import CompiledSelector, compile_selector

NOW = 1_700_000_000_000
BATCH = 100


class Port(DeliveryPort):
    """Takes deliveries and does nothing with them."""

    def __init__(self) -> None:
        self.writable = True
        self.needs: list[Stored] = []

    @property
    def party(self) -> Party:
        return NOBODY

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        pass

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        return len(row)

    def hold_back(self, consumer_id: int) -> None:
        pass

    def recall(self, consumer_id: int, tags: list[int]) -> None:
        pass

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        pass

    def settled(self, consumer_id: int) -> None:
        pass


def message(**properties: Any) -> Envelope:
    packed, letters = pack_properties(properties)
    return Envelope(("ID:x", NOW, 4, 1, 0, 0, None, None, None, packed, letters, 2, b"x" * 256))


def equals(name: str, value: int) -> CompiledSelector:
    selector = compile_selector(f"{name} = {value}")
    assert selector is not None
    return selector


def open_consumer(
    namespace: Namespace, address: str, selector: CompiledSelector | None = None, credit: int = BATCH
) -> Consumer:
    return namespace.open_consumer(Port(), 1, address, selector, connection="c", credit=credit, now=NOW)


def plain(batch: int) -> Callable[[], None]:
    """`batch` messages through a queue with one consumer, acknowledged together."""
    namespace = Broker().namespace("")
    consumer = open_consumer(namespace, "queue:q", credit=batch)
    envelope, send = message(region="EU"), namespace.send

    def once() -> None:
        for _ in range(batch):
            send("queue:q", envelope, NOW, "p")
        consumer.acknowledge(consumer.tag, NOW)
        consumer.grant(batch, NOW)

    return once


def backlog(selector: CompiledSelector | None = None, depth: int = 0) -> Callable[[], None]:
    """Messages that wait before they are taken, behind `depth` others that the selector does not match."""
    broker = Broker()
    namespace = broker.namespace("")
    other = message(customer=-1)
    for _ in range(depth):
        namespace.send("queue:q", other, NOW)
    consumer = open_consumer(namespace, "queue:q", selector, credit=0)
    while broker.work(NOW):
        pass
    fields, packed, send = message(customer=1).fields, message(customer=1).packed, namespace.send

    def once() -> None:
        for _ in range(BATCH):
            send("queue:q", Envelope(fields, packed), NOW, "p")
        consumer.grant(BATCH, NOW)
        consumer.acknowledge(consumer.tag, NOW)

    return once


def fan_out(subscribers: int, selective: int = 0) -> Callable[[], None]:
    """A batch to a topic with so many plain subscribers, and so many that want another message."""
    namespace = Broker().namespace("")
    consumers = [open_consumer(namespace, "topic:t") for _ in range(subscribers)]
    for number in range(selective):
        open_consumer(namespace, "topic:t", equals("customer", number + 1))
    envelope, send = message(customer=0), namespace.send

    def once() -> None:
        for _ in range(BATCH):
            send("topic:t", envelope, NOW, "p")
        for consumer in consumers:
            consumer.acknowledge(consumer.tag, NOW)
            consumer.grant(BATCH, NOW)

    return once


def selective(selectors: int) -> Callable[[], None]:
    """A batch of messages, each for another of `selectors` consumers with a selector of its own."""
    namespace = Broker().namespace("")
    consumers = [open_consumer(namespace, "queue:q", equals("customer", n)) for n in range(selectors)]
    fields = [message(customer=n % selectors).fields for n in range(BATCH)]
    send = namespace.send

    def once() -> None:
        for each in fields:
            send("queue:q", Envelope(each, b""), NOW, "p")  # as they arrive: properties not decoded yet
        for consumer in consumers[:BATCH]:
            consumer.acknowledge(consumer.tag, NOW)
            consumer.grant(BATCH - consumer.credit, NOW)

    return once


def least() -> Callable[[], None]:
    waiting: deque[Envelope] = deque()
    envelope = message(region="EU")

    def once() -> None:
        for _ in range(BATCH):
            waiting.append(envelope)
        for _ in range(BATCH):
            waiting.popleft()

    return once


def run(seconds: float, many: int = 10_000, depth: int = 100_000) -> list[Row]:
    """Every case, about `seconds` per stretch, the largest with `many` selectors or `depth` messages; microseconds per
    message or delivery."""
    rows = [compare("queue: send, deliver, acknowledge", plain(BATCH), "a deque", least(), BATCH, seconds)]
    base = rows[0].baseline_us
    one = compare("queue: the same, one by one", plain(1), "a deque", base, 1, seconds)
    wait = compare("queue: through a backlog", backlog(), "a deque", base, BATCH, seconds)
    rows += [one, wait]
    deep, behind = backlog(equals("customer", 1), depth), f"queue: a match behind {depth:,} others"
    rows.append(compare(behind, deep, "no selector, no depth", wait.us, BATCH, seconds))
    single = compare("queue: 1 selector", selective(1), "no selector", rows[0].us, BATCH, seconds)
    rows.append(single)
    for count in (100, many):
        rows.append(compare(f"queue: {count:,} selectors", selective(count), "1 selector", single.us, BATCH, seconds))
    rows.append(compare("topic: a delivery, 100 subscribers", fan_out(100), "a deque", base, 100 * BATCH, seconds))
    alone = compare("topic: a message, 1 subscriber", fan_out(1), "a deque", base, BATCH, seconds)
    rows.append(alone)
    crowd = fan_out(1, many)
    rows.append(compare(f"topic: the same among {many:,} with selectors", crowd, "alone", alone.us, BATCH, seconds))
    return rows


if __name__ == "__main__":
    for row in run(0.2):
        print(f"{row.case:<50} {row.us:8.3f} µs   {row.baseline}: {row.baseline_us:.3f} µs")
