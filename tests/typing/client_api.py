"""What a type checker must infer from the client's API, and what it must refuse. Checked by mypy, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from sievemq import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    JMSContext,
    JMSProducer,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    Session,
    SessionMode,
    aio,
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
    consumer.receive(0.5)  # type: ignore[arg-type]
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
