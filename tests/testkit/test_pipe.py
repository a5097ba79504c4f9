"""Client and broker without a port between them."""

from __future__ import annotations

import pytest

from sievemq import JMSContext, JMSRuntimeException, JMSSecurityException, Queue
from sievemq_testing import TestBroker, TestNamespace

ORDERS = Queue("orders")


def test_blocking(sievemq_broker: TestBroker, sievemq_namespace: TestNamespace) -> None:
    with sievemq_broker.pipe_factory(sievemq_namespace.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        context.commit()
        assert context.create_consumer(ORDERS).receive_body(str, 1_000) == "x"
        context.commit()
    sievemq_namespace.queue("orders").assert_consumed(count=1)
    sievemq_namespace.queue("orders").assert_empty()


async def test_asyncio(sievemq_broker: TestBroker, sievemq_namespace: TestNamespace) -> None:
    async with await sievemq_broker.aio_pipe_factory(sievemq_namespace.url).create_context() as context:
        await context.create_producer().send(ORDERS, "x")
        consumer = await context.create_consumer(ORDERS)
        assert await consumer.receive_body(str, 1_000) == "x"
        await sievemq_broker.clock.advance(seconds=0)


def test_a_lot_through_it_in_order(sievemq_broker: TestBroker, sievemq_namespace: TestNamespace) -> None:
    with sievemq_broker.pipe_factory(sievemq_namespace.url).create_context() as context:
        for number in range(300):
            context.create_producer().send(ORDERS, f"{number:>5000}")
        consumer = context.create_consumer(ORDERS)
        assert [int(consumer.receive_body(str, 1_000) or -1) for _ in range(300)] == list(range(300))


def test_faults_reach_it(sievemq_broker: TestBroker, sievemq_namespace: TestNamespace) -> None:
    context = sievemq_broker.pipe_factory(sievemq_namespace.url).create_context()
    sievemq_namespace.faults.cut_frame()
    with pytest.raises(JMSRuntimeException):
        context.create_producer().send(ORDERS, "x")
    context.close()


def test_credentials_count() -> None:
    with TestBroker(users={"me": "secret"}) as broker:
        with pytest.raises(JMSSecurityException):
            broker.pipe_factory().create_connection("me", "guess")
        broker.pipe_factory().create_connection("me", "secret").close()


async def test_credentials_count_with_asyncio() -> None:
    async with TestBroker(users={"me": "secret"}) as broker:
        with pytest.raises(JMSSecurityException):
            await broker.aio_pipe_factory().create_connection("me", "guess")
        await (await broker.aio_pipe_factory().create_connection("me", "secret")).close()


def test_a_broker_that_does_not_run_takes_nobody() -> None:
    with TestBroker() as broker:
        factory = broker.pipe_factory()
    with pytest.raises(RuntimeError, match="does not run"):
        factory.create_connection()
