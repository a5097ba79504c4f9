"""A coroutine function is no listener of the blocking API: nothing would run it, and its message would be lost."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import sievemq.aio
from sievemq import ConnectionFactory, JMSContext, JMSException, Message, Queue
from sievemq_testing import TestBroker

from ..both import SOON

QUEUE = Queue("orders")


async def handle(*arguments: object) -> None:
    pytest.fail("it cannot run")


async def handle_in_steps(*arguments: object) -> AsyncIterator[None]:
    pytest.fail("it cannot run")
    yield


def handle_lazily(*arguments: object) -> Iterator[None]:
    pytest.fail("it cannot run")
    yield


class Coroutine:
    async def __call__(self, message: object) -> None:
        pytest.fail("it cannot run")

    on_message = on_exception = on_completion = on_connection_lost = __call__
    on_connection_restored = on_blocked = on_unblocked = __call__


class Without:
    """An exception listener, and one coroutine function."""

    def __init__(self, name: str) -> None:
        setattr(self, name, handle)

    def on_exception(self, error: JMSException) -> None:
        """Never called here."""


LISTENERS: list[Callable[..., Any]] = [
    handle,
    Coroutine(),
    Coroutine().on_message,
    functools.partial(handle, "more"),
    handle_in_steps,
    handle_lazily,
]


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


@pytest.fixture
def context(broker: TestBroker) -> Iterator[JMSContext]:
    with ConnectionFactory(broker.url).create_context() as context:
        yield context


@pytest.mark.parametrize(
    "listener", LISTENERS, ids=lambda listener: getattr(listener, "__qualname__", type(listener).__qualname__)
)
def test_a_coroutine_function_is_no_listener(context: JMSContext, listener: Any) -> None:
    consumer, producer = context.create_consumer(QUEUE), context.create_producer()
    with pytest.raises(TypeError, match=r"coroutine function.*sievemq\.aio|generator function"):
        consumer.set_message_listener(listener)
    assert consumer.get_message_listener() is None
    with pytest.raises(TypeError, match="function"):
        context.set_exception_listener(listener)
    assert context.get_exception_listener() is None
    with pytest.raises(TypeError, match="function"):
        producer.set_async((listener, print))
    with pytest.raises(TypeError, match="function"):
        producer.set_async((print, listener))
    assert producer.get_async() is None


def test_nor_is_a_method_that_is_one(context: JMSContext) -> None:
    for name in ("on_connection_lost", "on_connection_restored", "on_blocked", "on_unblocked"):
        with pytest.raises(TypeError, match="coroutine function"):
            context.set_exception_listener(Without(name))
    with pytest.raises(TypeError, match="coroutine function"):
        context.create_producer().set_async(Coroutine())  # type: ignore[arg-type]


def test_a_message_is_not_lost_where_its_listener_returns_a_coroutine(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It is redelivered as where a listener raises, and ends as a dead letter."""
    with ConnectionFactory(broker.url).create_context() as context:
        consumer = context.create_consumer(QUEUE)
        consumer.set_message_listener(lambda message: handle(message))  # type: ignore[arg-type]
        context.create_producer().send(QUEUE, "hello")
        with ConnectionFactory(broker.url).create_context() as other:
            dead = other.create_consumer(Queue("DLQ.orders")).receive(SOON)
    assert dead is not None
    assert dead.get_body(str) == "hello"
    assert "cannot await" in caplog.text
    assert "never awaited" not in caplog.text
    raised = [record for record in caplog.records if "a message listener raised" in record.getMessage()]
    assert [record.levelname for record in raised] == ["ERROR"] * 6
    assert [record.getMessage()[-10:] for record in raised] == [f"delivery {number}" for number in range(1, 7)]


def test_a_completion_listener_that_returns_a_coroutine_is_logged(
    context: JMSContext, caplog: pytest.LogCaptureFixture
) -> None:
    context.create_producer().set_async((lambda message: handle(message), print)).send(QUEUE, "hello")  # type: ignore[arg-type]
    context.close()
    assert "a completion listener raised" in caplog.text
    assert "cannot await" in caplog.text


def test_an_exception_listener_that_returns_a_coroutine_is_logged(
    broker: TestBroker, context: JMSContext, caplog: pytest.LogCaptureFixture
) -> None:
    class Watch:
        def on_exception(self, error: JMSException) -> None:
            """Not called."""

        def on_connection_lost(self, error: JMSException) -> object:
            return handle(error)

        def on_connection_restored(self) -> None:
            restored.set()

    restored = threading.Event()
    context.set_exception_listener(Watch())
    with caplog.at_level(logging.ERROR, "sievemq"):
        broker.faults.drop_connections()
        assert restored.wait(SOON / 1000)
    assert "an exception listener raised" in caplog.text
    assert "cannot await" in caplog.text


async def test_asyncio_awaits_a_coroutine_and_refuses_a_generator(broker: TestBroker) -> None:
    seen: asyncio.Queue[str | None] = asyncio.Queue()

    async def listener(message: Message) -> None:
        await seen.put(message.get_body(str))

    async with await sievemq.aio.ConnectionFactory(broker.url).create_context() as context:
        consumer = await context.create_consumer(QUEUE)
        for generator in (handle_in_steps, handle_lazily):
            with pytest.raises(TypeError, match="generator function"):
                consumer.set_message_listener(generator)
        consumer.set_message_listener(functools.partial(listener))
        await context.create_producer().send(QUEUE, "hello")
        async with asyncio.timeout(SOON / 1000):
            assert await seen.get() == "hello"
