"""What opens something in asyncio can be awaited, or entered by ``async with`` at once."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from sievemq import JMSSecurityRuntimeException, Queue, Topic
from sievemq.aio import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker


async def test_everything_that_opens_can_be_entered_at_once(url: str) -> None:
    factory = ConnectionFactory(url, client_id="opening")
    async with factory.create_connection() as connection, connection.create_session() as session:
        async with session.create_producer(Queue("opening")), session.create_consumer(Queue("opening")):
            pass
        async with session.create_browser(Queue("opening")), session.create_durable_subscriber(Topic("t"), "s"):
            pass
        await session.unsubscribe("s")
    async with factory.create_context() as context, context.create_context(JMSContext.SESSION_TRANSACTED) as other:
        assert isinstance(context, JMSContext)
        assert other.get_transacted()
        async with context.create_consumer(Queue("opening")) as consumer:
            await context.create_producer().send(Queue("opening"), "hello")
            assert await consumer.receive_body(str, 60_000) == "hello"
        async with context.create_browser(Queue("opening")) as browser:
            assert [message async for message in browser] == []
    with pytest.raises(Exception, match="closed"):
        await context.commit()


async def test_opening_is_a_coroutine_for_gather_and_tasks(url: str) -> None:
    factory = ConnectionFactory(url)
    one, two = await asyncio.gather(factory.create_context(), asyncio.create_task(factory.create_context()))
    three = await asyncio.wait_for(factory.create_context(), 60)
    for context in (one, two, three):
        await context.close()
    never = factory.create_context()
    assert asyncio.iscoroutine(never)
    never.close()
    assert inspect.iscoroutinefunction(inspect.unwrap(ConnectionFactory.create_context))


async def test_a_failed_open_raises_before_the_block_runs() -> None:
    with EmbeddedBroker(users={"me": "secret"}) as broker, pytest.raises(JMSSecurityRuntimeException):
        async with ConnectionFactory(broker.url).create_context("me", "guess"):
            pytest.fail("the block was entered")


async def test_the_block_closes_after_an_error(url: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with ConnectionFactory(url).create_context() as context:
            1 / 0  # noqa: B018
    with pytest.raises(Exception, match="closed"):
        await context.create_consumer(Queue("opening"))
