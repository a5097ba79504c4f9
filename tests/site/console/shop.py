"""A small shop's messages: something to see in every view of the console."""

from __future__ import annotations

import json
import math
import threading
from types import TracebackType
from typing import Self

from sievemq import (
    BytesMessage,
    ConnectionFactory,
    JMSConsumer,
    JMSContext,
    MapMessage,
    Message,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker

SETTINGS = {
    "max_memory_bytes": 8 * 1024 * 1024,
    "destinations": {
        "queue:payments": {"max_attempts": 2},
        "queue:carts": {"dead_letter_expired": True},
        "queue:orders": {
            "max_attempts": 4,
            "redelivery_delay": 2_000,
            "redelivery_factor": 2.0,
            "max_messages": 50_000,
        },
    },
}

_REGIONS = ("EU", "US", "EU", "APAC")
_CARDS = ("visa", "amex", "giro")


def order(number: int) -> TextMessage:
    """One order, with properties of several types."""
    lines = [{"sku": f"A-{number % 90:03}", "quantity": 1 + number % 4}]
    message = TextMessage(json.dumps({"order": number, "lines": lines, "gift": number % 9 == 0}))
    message.set_jms_type("order")
    message.set_jms_correlation_id(f"cart-{number:05}")
    message.set_string_property("region", _REGIONS[number % 4])
    message.set_double_property("amount", round(12.5 + (number * 37) % 400, 2))
    message.set_boolean_property("express", number % 5 == 0)
    message.set_int_property("items", 1 + number % 4)
    message.set_long_property("customer", 4_000_000_000 + number)
    return message


class Shop:
    """Clients of a broker that stay connected while this is open.

    Args:
        broker: whose default namespace is filled.
        orders: that wait in queue:orders.
    """

    def __init__(self, broker: EmbeddedBroker, orders: int = 230) -> None:
        self._broker = broker
        self._contexts: list[JMSContext] = []
        self._consumers: list[JMSConsumer] = []  # an application holds its consumers
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._fill(orders)

    def _client(self, client_id: str | None = None, mode: int = Session.AUTO_ACKNOWLEDGE) -> JMSContext:
        context = ConnectionFactory(self._broker.url).create_context(mode)
        if client_id is not None:
            context.set_client_id(client_id)
        self._contexts.append(context)
        return context

    def _fill(self, orders: int) -> None:
        office = self._client("back-office")
        producer = office.create_producer()
        for name in ("invoices", "shipments.eu", "shipments.us", "inventory", "emails"):
            producer.send(office.create_queue(name), TextMessage(f"first {name}"))
        for number in range(orders):
            producer.send(office.create_queue("orders"), order(number))
        for message in self._bodies():
            producer.send(office.create_queue("inventory"), message)
        for number in range(4):
            producer.set_delivery_delay(3_600_000 + number)  # none is due at the same moment
            reminder = TextMessage(f"Your basket still holds {number + 1} things.")
            reminder.set_jms_type("reminder")
            producer.send(office.create_queue("emails"), reminder)
        self._fail()
        self._tap()
        self._subscribe(producer)
        self._consume()

    def _tap(self) -> None:
        """What an archive has still to read, and a tap without a reader."""
        with ConnectionFactory(self._broker.url).create_connection() as connection:
            open_tap(connection, "archive", Topic("prices"), selector="currency = 'EUR'", retain_age=86_400_000)
            open_tap(connection, "last-year", Topic("prices"), retain_messages=2)

    def _bodies(self) -> list[Message]:
        stock = MapMessage()
        stock.set_string("sku", "A-017")
        stock.set_int("left", 12)
        stock.set_double("weight", 0.75)
        stock.set_boolean("fragile", True)
        stock.set_bytes("digest", bytes(range(8)))
        track = StreamMessage()
        for write, value in ((track.write_string, "Hamburg"), (track.write_long, 1_763_700_000_000)):
            write(value)  # type: ignore[arg-type]
        track.write_double(53.55)
        label = BytesMessage()
        label.write_bytes(b"%PDF-1.7\n" + bytes(range(256)))
        for message, kind in ((stock, "stock"), (track, "track"), (label, "label")):
            message.set_jms_type(kind)
        return [stock, track, label]

    def _fail(self) -> None:
        """Payments that nobody can handle, and carts that nobody took in time."""
        till = self._client("till", Session.SESSION_TRANSACTED)
        queue = till.create_queue("payments")
        for number in range(9):
            payment = TextMessage(f"card declined, attempt {number}")
            payment.set_jms_type("payment")
            payment.set_string_property("card", _CARDS[number % 3])
            till.create_producer().send(queue, payment)
        till.commit()
        consumer = till.create_consumer(queue)
        while consumer.receive_no_wait() is not None:
            till.rollback()
        consumer.close()
        office = self._contexts[0]
        office.create_producer().set_time_to_live(1).send(office.create_queue("carts"), "left in the shop")
        while not self._broker.call(lambda domain: "queue:DLQ.carts" in domain.namespace("default").destinations):
            self._stop.wait(0.005)

    def _subscribe(self, producer: object) -> None:
        desk = self._client("desk-4")
        desk.create_durable_consumer(desk.create_topic("prices"), "late", "currency = 'EUR'").close()
        desk.create_shared_durable_consumer(desk.create_topic("prices"), "archive").close()
        board = self._client("board")
        self._consumers.append(board.create_consumer(board.create_topic("prices"), "change > 0.05"))
        office = self._contexts[0]
        for number in range(40):
            message = TextMessage(str(100 + number))
            message.set_string_property("currency", "EUR" if number % 2 else "USD")
            message.set_double_property("change", (number % 10) / 100)
            office.create_producer().send(office.create_topic("prices"), message)

    def _consume(self) -> None:
        for number, selector in enumerate(
            ("region = 'EU' AND amount > 400", "express AND items >= 3", "region = 'MARS'")
        ):
            worker = self._client(f"picker-{number + 1}", Session.CLIENT_ACKNOWLEDGE)
            self._consumers.append(worker.create_consumer(worker.create_queue("orders"), selector))

    # -- traffic ------------------------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Begin to send and receive, in waves, until this is closed."""
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        client = ConnectionFactory(self._broker.url).create_context()
        producer = client.create_producer()
        busy, slow = client.create_queue("shipments.eu"), client.create_queue("invoices")
        consumers = [client.create_consumer(busy), client.create_consumer(slow)]
        beat = 0
        while not self._stop.wait(0.1):
            beat += 1
            wave = 1 + math.sin(beat / 45) + 0.4 * math.sin(beat / 9)
            for number in range(int(12 * max(0.2, wave))):
                producer.send(busy, order(number))
                consumers[0].receive_no_wait()
            for number in range(int(6 * max(0.1, 2 - wave))):
                producer.send(slow, order(number))
            for _ in range(5):
                consumers[1].receive_no_wait()
        client.close()

    def close(self) -> None:
        """Leave."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for context in self._contexts:
            context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
