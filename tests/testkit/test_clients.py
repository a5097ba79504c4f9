"""Both clients against the broker of the fixtures: long streams, faults, credentials, a restart."""

from __future__ import annotations

import asyncio

import pytest

import sievemq.aio
from sievemq import (
    ConnectionFactory,
    JMSContext,
    JMSException,
    JMSRuntimeException,
    JMSSecurityException,
    Message,
    Queue,
)
from sievemq_testing import TestBroker, TestNamespace

ORDERS = Queue("orders")
SOON = 60.0


@pytest.fixture
def factory(sievemq_namespace: TestNamespace) -> ConnectionFactory:
    return ConnectionFactory(sievemq_namespace.url)


@pytest.fixture
def aio_factory(sievemq_namespace: TestNamespace) -> sievemq.aio.ConnectionFactory:
    return sievemq.aio.ConnectionFactory(sievemq_namespace.url)


# -- blocking ---------------------------------------------------------------------------------------------------------


def test_a_transaction(factory: ConnectionFactory, sievemq_namespace: TestNamespace) -> None:
    with factory.create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        context.commit()
        assert context.create_consumer(ORDERS).receive_body(str, 60_000) == "x"
        context.commit()
    sievemq_namespace.queue("orders").assert_consumed(count=1)
    sievemq_namespace.queue("orders").assert_empty()


def test_more_than_any_buffer_holds_in_order(factory: ConnectionFactory) -> None:
    with factory.create_context() as context:
        for number in range(600):
            context.create_producer().send(ORDERS, f"{number:>5000}")
        consumer = context.create_consumer(ORDERS)
        assert [int(consumer.receive_body(str, 60_000) or -1) for _ in range(600)] == list(range(600))


def test_a_listener_and_a_reply(factory: ConnectionFactory) -> None:
    with factory.create_context() as service, factory.create_context() as client:
        answering = service.create_context(JMSContext.AUTO_ACKNOWLEDGE)

        def answer(message: Message) -> None:
            reply_to, body = message.get_jms_reply_to(), message.get_body(str)
            assert reply_to is not None
            assert body is not None
            answering.create_producer().send(reply_to, body.upper())

        service.create_consumer(ORDERS).set_message_listener(answer)
        replies = client.create_temporary_queue()
        client.create_producer().set_jms_reply_to(replies).send(ORDERS, "a chair")
        assert client.create_consumer(replies).receive_body(str, 60_000) == "A CHAIR"
        answering.close()


def test_a_cut_frame_and_the_repair(factory: ConnectionFactory, sievemq_namespace: TestNamespace) -> None:
    with factory.create_context() as context:
        for to_client in (True, False):
            sievemq_namespace.faults.cut_frame(to_client=to_client)
            context.create_producer().send(ORDERS, "x")
        assert sievemq_namespace.queue("orders").depth == 2


def test_a_lost_connection_that_is_not_repaired(sievemq_namespace: TestNamespace) -> None:
    context = ConnectionFactory(sievemq_namespace.url, reconnect=0).create_context()
    sievemq_namespace.faults.drop_connections()
    with pytest.raises(JMSRuntimeException):
        context.create_producer().send(ORDERS, "x")
    context.close()


def test_a_slow_reader_blocks_no_other_client(factory: ConnectionFactory, sievemq_namespace: TestNamespace) -> None:
    slow = ConnectionFactory(sievemq_namespace.url, client_id="slow", prefetch=1000)
    with slow.create_context() as reader, factory.create_context() as context:
        reader.create_consumer(ORDERS)
        with reader._connection._transport.lock:  # its I/O thread reads no further
            for _ in range(200):
                context.create_producer().send(ORDERS, "x" * 20_000)
        sievemq_namespace.wait_until_idle()


def test_credentials_and_a_broker_that_is_gone() -> None:
    with TestBroker(users={"me": "secret"}) as broker:
        factory = ConnectionFactory(broker.url, reconnect=0)
        with pytest.raises(JMSSecurityException):
            factory.create_connection("me", "guess")
        factory.create_connection("me", "secret").close()
    with pytest.raises(JMSException, match="no broker could be reached"):
        factory.create_connection("me", "secret")


def test_a_restart() -> None:
    with TestBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(ORDERS, "kept")
        broker.restart()
        context.create_producer().send(ORDERS, "and another")
        consumer = context.create_consumer(ORDERS)
        assert [consumer.receive_body(str, 60_000) for _ in range(2)] == ["kept", "and another"]
        broker.assert_nothing_lost(within=SOON)


# -- asyncio ----------------------------------------------------------------------------------------------------------


async def test_asyncio(aio_factory: sievemq.aio.ConnectionFactory, sievemq_test_broker: TestBroker) -> None:
    async with await aio_factory.create_context() as context:
        await context.create_producer().send(ORDERS, "x")
        consumer = await context.create_consumer(ORDERS)
        assert await consumer.receive_body(str, 60_000) == "x"
        moved = await sievemq_test_broker.clock.advance(seconds=0)
        assert moved.seen


async def test_asyncio_more_than_any_buffer_holds_in_order(aio_factory: sievemq.aio.ConnectionFactory) -> None:
    async with await aio_factory.create_context() as context:
        producer = context.create_producer()
        await asyncio.gather(*(producer.send(ORDERS, f"{number:>20000}") for number in range(200)))
        consumer = await context.create_consumer(ORDERS)
        assert [int(await consumer.receive_body(str, 60_000) or -1) for _ in range(200)] == list(range(200))


async def test_asyncio_is_repaired(
    aio_factory: sievemq.aio.ConnectionFactory, sievemq_namespace: TestNamespace
) -> None:
    async with await aio_factory.create_context() as context:
        for to_client in (True, False):
            sievemq_namespace.faults.cut_frame(to_client=to_client)
            await context.create_producer().send(ORDERS, "x")
        assert sievemq_namespace.queue("orders").depth == 2


async def test_asyncio_credentials_and_a_broker_that_is_gone() -> None:
    async with TestBroker(users={"me": "secret"}) as broker:
        factory = sievemq.aio.ConnectionFactory(broker.url, reconnect=0)
        with pytest.raises(JMSSecurityException):
            await factory.create_connection("me", "guess")
        await (await factory.create_connection("me", "secret")).close()
    with pytest.raises(JMSException, match="no broker could be reached"):
        await factory.create_connection("me", "secret")


async def test_asyncio_over_a_restart() -> None:
    async with TestBroker() as broker, await sievemq.aio.ConnectionFactory(broker.url).create_context() as context:
        await context.create_producer().send(ORDERS, "kept")
        await asyncio.to_thread(broker.restart)
        consumer = await context.create_consumer(ORDERS)
        assert await consumer.receive_body(str, 60_000) == "kept"
