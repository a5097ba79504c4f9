"""A port that is a list, and short ways to make messages and selectors."""

from __future__ import annotations

from typing import Any, NamedTuple

from sievemq_broker.domain import Broker, Consumer, DestinationPolicy, DomainSettings, Namespace
from sievemq_broker.domain.failure import NOBODY
from sievemq_broker.domain.ports import Stored, deliver_each
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import MESSAGE_ID, BodyKind, Envelope, pack_properties
from sievemq_core.selector import CompiledSelector, compile_selector

NOW = 1_700_000_000_000


class Delivery(NamedTuple):
    """What a port was told."""

    consumer: int
    tag: int
    count: int
    name: str


def message(name: str = "m", *, priority: int = 4, expires: int = 0, at: int = 0, **more: Any) -> Envelope:
    """A message whose id is `name`; `more`: correlation_id, type, properties (raw bytes or a dict), body."""
    properties = more.get("properties")
    packed, letters = properties if isinstance(properties, tuple) else pack_properties(properties or {})
    fields = (
        name, NOW, priority, 1, expires, at, more.get("correlation_id"), None, more.get("type"), packed, letters,
        int(BodyKind.BYTES), more.get("body", b""),
    )  # fmt: skip
    return Envelope(fields)


def name_of(packed: bytes) -> str:
    """The name of a packed message."""
    envelope = Envelope((None, 0, 4, 1, 0, 0, None), packed)
    envelope.compact()
    return str(envelope.fields[MESSAGE_ID])


def selector(text: str | None) -> CompiledSelector | None:
    """The compiled selector."""
    return compile_selector(text)


class Port:
    """A DeliveryPort that records its calls, and how many came in a row."""

    def __init__(self) -> None:
        self.writable = True
        self.needs: list[Stored] = []
        self.party = NOBODY
        self.deliveries: list[Delivery] = []
        self.rows: list[int] = []
        self.recalls: list[tuple[int, list[int]]] = []
        self.held_back: list[int] = []
        self.closures: list[tuple[int, ErrorCode, str]] = []
        self.settlements: list[int] = []
        self.events: list[str] = []

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        self.deliveries.append(Delivery(consumer_id, tag, count, name_of(packed)))
        self.events.append("deliver")

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        taken = deliver_each(self, consumer_id, tag, row)
        self.rows.append(taken)
        return taken

    def hold_back(self, consumer_id: int) -> None:
        self.held_back.append(consumer_id)

    def recall(self, consumer_id: int, tags: list[int]) -> None:
        self.recalls.append((consumer_id, list(tags)))

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        self.closures.append((consumer_id, code, text))

    def settled(self, consumer_id: int) -> None:
        self.settlements.append(consumer_id)
        self.events.append("settled")


class World:
    """A namespace, a clock and a port per consumer."""

    def __init__(self, *policies: tuple[str, DestinationPolicy], **settings: Any) -> None:
        self.broker = Broker(DomainSettings(policies=policies, **settings))
        self.namespace: Namespace = self.broker.namespace("test")
        self.now = NOW
        self.ports: dict[int, Port] = {}

    def send(self, address: str, *envelopes: Envelope | str, connection: str | None = None, **how: Any) -> None:
        for envelope in envelopes:
            self.namespace.send(
                address, message(envelope, **how) if isinstance(envelope, str) else envelope, self.now, connection
            )

    def consumer(
        self, address: str, text: str | None = None, *, credit: int = 100, connection: str = "c1", **how: Any
    ) -> Consumer:
        number = len(self.ports) + 1
        port = self.ports[number] = Port()
        return self.namespace.open_consumer(
            port, number, address, selector(text), connection=connection, credit=credit, now=self.now, **how
        )

    def port(self, consumer: Consumer) -> Port:
        return self.ports[consumer.id]

    def resume(self, consumer: Consumer) -> None:
        """Its port is writable again, and resumes it if it has held it back."""
        port = self.ports[consumer.id]
        port.writable = True
        if consumer.id in port.held_back:
            port.held_back.clear()
            consumer.resume(self.now)

    def got(self, consumer: Consumer) -> list[str]:
        """Names of what was delivered to a consumer, in order."""
        return [delivery.name for delivery in self.ports[consumer.id].deliveries]

    def counts(self, consumer: Consumer) -> list[tuple[str, int]]:
        """Names and delivery counts."""
        return [(delivery.name, delivery.count) for delivery in self.ports[consumer.id].deliveries]

    def clear(self, *consumers: Consumer) -> None:
        for consumer in consumers:
            self.ports[consumer.id].deliveries.clear()

    def advance(self, ms: int) -> None:
        """Let time pass, and do what becomes due."""
        self.now += ms
        while (due := self.broker.due(self.now)) is not None and due <= self.now:
            pass

    def browse(self, address: str, text: str | None = None, limit: int = 1000) -> list[str]:
        """Names of what waits, over all pages."""
        names: list[str] = []
        cursor: int | None = None
        while True:
            cursor, page = self.namespace.browse(address, selector(text), cursor, limit, self.now)
            names += [str(envelope.fields[MESSAGE_ID]) for _, envelope in page]
            if cursor is None:
                return names

    def work(self, budget: int = 1000) -> None:
        """Finish pending work."""
        while self.broker.work(self.now, budget):
            pass
