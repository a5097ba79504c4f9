"""What a type checker must infer from the client's API, and what it must refuse. Checked by mypy, never run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, assert_type

from sievemq import (
    Byte,
    Connection,
    ConnectionFactory,
    DeliveryMode,
    JMSConsumer,
    JMSContext,
    JMSProducer,
    MapMessage,
    Message,
    MessageConsumer,
    MessageProducer,
    ObjectMessage,
    Queue,
    QueueBrowser,
    Selector,
    Session,
    SessionMode,
    StreamMessage,
    TextMessage,
    Topic,
    TopicPublisher,
    aio,
    register_type,
)
from sievemq.url import parse_url
from sievemq_broker.embedded import BrokerClock
from sievemq_testing import QueueView


def modes_of_a_context(factory: ConnectionFactory, context: JMSContext, mode: int) -> None:
    factory.create_context(JMSContext.SESSION_TRANSACTED)
    factory.create_context(SessionMode.CLIENT_ACKNOWLEDGE)
    factory.create_context(session_mode=Session.AUTO_ACKNOWLEDGE)
    factory.create_context(1)  # D-28
    factory.create_context("anna", "rosebud")
    factory.create_context(user_name="anna", password="rosebud", session_mode=JMSContext.SESSION_TRANSACTED)
    factory.create_context("transacted")  # type: ignore[call-overload]
    factory.create_context(7)  # type: ignore[call-overload]
    factory.create_context(mode)  # type: ignore[call-overload]
    factory.create_context(session_mode="transacted")  # type: ignore[call-overload]
    context.create_context(JMSContext.SESSION_TRANSACTED)
    context.create_context("transacted")  # type: ignore[arg-type]
    assert_type(context.get_session_mode(), SessionMode)


def modes_of_a_session(connection: Connection, session: Session) -> None:
    connection.create_session()
    connection.create_session(Session.SESSION_TRANSACTED)
    connection.create_session(False, Session.CLIENT_ACKNOWLEDGE)
    connection.create_session(session_mode=Session.DUPS_OK_ACKNOWLEDGE)
    connection.create_session("transacted")  # type: ignore[call-overload]
    connection.create_session(session_mode=7)  # type: ignore[call-overload]
    connection.create_session(False, "auto")  # type: ignore[call-overload]
    assert_type(session.get_acknowledge_mode(), SessionMode)


async def modes_in_asyncio(factory: aio.ConnectionFactory, connection: aio.Connection, context: aio.JMSContext) -> None:
    await factory.create_context(aio.JMSContext.SESSION_TRANSACTED)
    await factory.create_context("transacted")  # type: ignore[call-overload]
    await connection.create_session("transacted")  # type: ignore[call-overload]
    await context.create_context("transacted")  # type: ignore[arg-type]


def delivery_modes(producer: MessageProducer, light: JMSProducer, message: Message) -> None:
    producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    producer.set_delivery_mode(Message.DEFAULT_DELIVERY_MODE)
    producer.set_delivery_mode(1)
    producer.set_delivery_mode(3)  # type: ignore[arg-type]
    producer.send(Queue("q"), message, delivery_mode=DeliveryMode.PERSISTENT)
    producer.send(Queue("q"), message, delivery_mode="PERSISTENT")  # type: ignore[call-overload]
    light.set_delivery_mode(DeliveryMode.NON_PERSISTENT).set_priority(9)
    light.set_delivery_mode("PERSISTENT")  # type: ignore[arg-type]
    assert_type(producer.get_delivery_mode(), DeliveryMode)
    assert_type(light.get_delivery_mode(), DeliveryMode)


def lengths_of_time(consumer: MessageConsumer, light: JMSProducer, clock: BrokerClock, queue: QueueView) -> None:
    consumer.receive(500)
    consumer.receive(timedelta(seconds=0.5))
    consumer.receive(0.5)  # type: ignore[call-overload]
    light.set_time_to_live(timedelta(hours=1)).set_delivery_delay(60_000)
    light.set_time_to_live(0.5)  # type: ignore[arg-type]
    clock.advance(timedelta(minutes=1))
    clock.advance(60)  # type: ignore[arg-type]
    queue.assert_empty(within=timedelta(milliseconds=10))
    queue.assert_empty(within=0.01)
    queue.assert_empty(within="1s")  # type: ignore[arg-type]


def options(factory: type[ConnectionFactory], settings: dict[str, Any]) -> None:
    factory()
    factory("sievemq://localhost", client_id="billing", prefetch=1, reconnect=timedelta(hours=1), tls_verify=False)
    factory(prefetch="auto", send_confirm="always")
    factory("sievemq://localhost", **settings)
    factory(prefecth=3)  # type: ignore[call-arg]
    factory(reconnect="5s")  # type: ignore[arg-type]
    factory(send_confirm="sometimes")  # type: ignore[arg-type]
    aio.ConnectionFactory(reconnect=timedelta(hours=1))
    aio.ConnectionFactory(prefecth=3)  # type: ignore[call-arg]
    parse_url("sievemq://localhost", prefecth=3)  # type: ignore[call-arg]


class Foreign:
    """A message of another library (D-31)."""

    def get_jms_message_id(self) -> str | None: ...

    def get_jms_type(self) -> str | None: ...

    def get_object_property(self, name: str) -> object: ...

    def get_property_names(self) -> list[str]:
        return []

    def set_jms_message_id(self, message_id: str | None) -> None: ...

    def set_jms_timestamp(self, timestamp: int) -> None: ...

    def set_jms_priority(self, priority: int) -> None: ...

    def set_jms_delivery_mode(self, delivery_mode: int) -> None: ...

    def set_jms_expiration(self, expiration: int) -> None: ...

    def set_jms_delivery_time(self, delivery_time: int) -> None: ...

    def set_jms_destination(self, destination: object) -> None: ...


@register_type
@dataclass
class Order:
    number: int


async def sends(
    light: JMSProducer, classic: MessageProducer, publisher: TopicPublisher, later: aio.JMSProducer, anything: Any
) -> None:
    q = Queue("q")
    counts: dict[str, int] = {}
    light.send(q, "text").send(q, {"a": 1}).send(q, counts).send(q, {1: {"b": [2]}}).send(q, b"x").send(q, bytearray(2))
    light.send(q, [1, "x", None, (2, 3)]).send(q, {1, 2}).send(q, Decimal(1)).send(q, [counts])
    light.send(q, Order(7)).send(q, memoryview(b"x")).send(q, TextMessage("hi")).send(q, Foreign()).send(q, anything)
    light.send(q, object())  # type: ignore[arg-type]
    light.send(q, print)  # type: ignore[arg-type]
    light.send("q", "text")  # type: ignore[arg-type]
    await later.send(q, {"a": 1})
    await later.send(q, object())  # type: ignore[arg-type]
    classic.send(TextMessage("hi"), priority=9)
    classic.send(Foreign())
    classic.send(q, Foreign(), time_to_live=timedelta(hours=1))
    classic.send("text")  # type: ignore[call-overload]
    classic.send(TextMessage("hi"), prioritty=9)  # type: ignore[call-overload]
    publisher.publish(TextMessage("hi"), priority=9)
    publisher.publish(Topic("t"), TextMessage("hi"))
    publisher.publish("hi")  # type: ignore[call-overload]
    publisher.publish(TextMessage("hi"), prioritty=9)  # type: ignore[call-overload]


def parts_of_messages(light: JMSProducer, message: MapMessage, context: JMSContext) -> None:
    light.set_property("p", 1).set_property("p", None).set_property("p", Byte(1)).set_property("p", "x")
    light.set_property("p", [1])  # type: ignore[arg-type]
    light.set_property("p", b"x")  # type: ignore[arg-type]
    Message(properties={"region": "EU", "amount": 12, "urgent": True, "note": None})
    Message(properties={"p": [1]})  # type: ignore[dict-item]
    message.set_object("data", b"x")
    message.set_object("data", [1])  # type: ignore[arg-type]
    MapMessage({"a": b"x"})
    MapMessage({"a": {}})  # type: ignore[dict-item]
    StreamMessage([1, "x", b"x", None])
    ObjectMessage({"lines": [("tea", 2)], "at": date(2026, 1, 31)})
    ObjectMessage(object())  # type: ignore[arg-type]
    assert_type(context.create_text_message("hi"), TextMessage)
    assert_type(context.create_object_message([1]), ObjectMessage)
    context.create_object_message(object())  # type: ignore[arg-type]


def selectors(selector: Selector) -> None:
    selector.matches(Foreign())
    selector.explain(Message())
    selector.matches({"region": "EU"})  # type: ignore[arg-type]


def kinds_of_messages(consumer: MessageConsumer, light: JMSConsumer, browser: QueueBrowser) -> None:
    assert_type(consumer.receive(), Message | None)
    assert_type(consumer.receive(500), Message | None)
    assert_type(consumer.receive(500, TextMessage), TextMessage | None)
    assert_type(consumer.receive(message_type=TextMessage), TextMessage | None)
    assert_type(consumer.receive_no_wait(), Message | None)
    assert_type(consumer.receive_no_wait(TextMessage), TextMessage | None)
    assert_type(light.receive(timedelta(seconds=5), MapMessage), MapMessage | None)
    assert_type(light.receive(message_type=MapMessage), MapMessage | None)
    assert_type(light.receive_no_wait(MapMessage), MapMessage | None)
    assert_type(light.receive_body(str, 500), str | None)
    assert_type(next(iter(consumer)), Message)
    assert_type(next(consumer.messages(TextMessage)), TextMessage)
    assert_type(next(light.messages(TextMessage)), TextMessage)
    assert_type(next(browser.get_enumeration()), Message)
    assert_type(next(browser.get_enumeration(TextMessage)), TextMessage)
    consumer.receive(500, str)  # type: ignore[type-var]
    light.receive_no_wait("TextMessage")  # type: ignore[call-overload]


async def kinds_in_asyncio(consumer: aio.MessageConsumer, light: aio.JMSConsumer, browser: aio.QueueBrowser) -> None:
    assert_type(await consumer.receive(500, TextMessage), TextMessage | None)
    assert_type(await consumer.receive_no_wait(TextMessage), TextMessage | None)
    assert_type(await light.receive(message_type=MapMessage), MapMessage | None)
    async for message in light.messages(TextMessage):
        assert_type(message, TextMessage)
    async for shown in browser.get_enumeration(TextMessage):
        assert_type(shown, TextMessage)
    async for each in light:
        assert_type(each, Message)


async def openings(factory: aio.ConnectionFactory) -> None:
    async with factory.create_context() as context, context.create_consumer(Queue("q")) as consumer:
        assert_type(context, aio.JMSContext)
        assert_type(consumer, aio.JMSConsumer)
    async with factory.create_connection() as connection, connection.create_session() as session:
        assert_type(session, aio.Session)
    assert_type(await factory.create_context(), aio.JMSContext)
    factory.create_context().commit()  # type: ignore[attr-defined]
