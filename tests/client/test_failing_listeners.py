"""What a listener raises ends nothing but its own call, whatever it is: the next call comes, and closing does not wait
for ever. In asyncio KeyboardInterrupt and SystemExit end the loop, as they do everywhere."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

import sievemq.aio
from sievemq import ConnectionFactory, JMSException, Message, Queue
from sievemq_testing import TestBroker

from .both import SOON

FAILURES = [ValueError, SystemExit, pytest.fail.Exception]
FAILURES_OF_TASKS = [ValueError, asyncio.CancelledError, pytest.fail.Exception]


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "sievemq")


class Once:
    """Raises at its first call; notes what all calls were about, and says when the last has come."""

    def __init__(self, kind: type[BaseException], count: int, ready: Callable[[], object]) -> None:
        self.kind, self.count, self.ready = kind, count, ready
        self.seen: list[str | None] = []

    def __call__(self, what: str | None) -> None:
        self.seen.append(what)
        if len(self.seen) == self.count:
            self.ready()
        if len(self.seen) == 1:
            raise self.kind("as a test wants it")


class Tells:
    """An exception listener that receives of a loss and its repair."""

    def __init__(self, once: Once) -> None:
        self.once = once

    def on_exception(self, error: JMSException) -> None:
        self.once("exception")

    def on_connection_lost(self, error: JMSException) -> None:
        self.once("lost")

    def on_connection_restored(self) -> None:
        self.once("restored")


@pytest.mark.parametrize("kind", FAILURES)
def test_a_message_listener(broker: TestBroker, kind: type[BaseException]) -> None:
    ready = threading.Event()
    once = Once(kind, 4, ready.set)
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_consumer(Queue("orders")).set_message_listener(lambda message: once(message.get_body(str)))
        for number in range(3):
            context.create_producer().send(Queue("orders"), str(number))
        assert ready.wait(SOON / 1000)
    assert once.seen == ["0", "0", "1", "2"]


@pytest.mark.parametrize("kind", FAILURES)
def test_a_completion_listener(broker: TestBroker, kind: type[BaseException]) -> None:
    once = Once(kind, 3, lambda: None)

    class Completions:
        def on_completion(self, message: Message) -> None:
            once(message.get_body(str))

        def on_exception(self, message: Message, error: Exception) -> None:
            once("failed")

    with ConnectionFactory(broker.url).create_context() as context:
        for number in range(3):
            context.create_producer().set_async(Completions()).send(Queue("orders"), str(number))
    assert once.seen == ["0", "1", "2"]


@pytest.mark.parametrize("kind", FAILURES)
def test_an_exception_listener(broker: TestBroker, kind: type[BaseException]) -> None:
    ready = threading.Event()
    once = Once(kind, 2, ready.set)
    with ConnectionFactory(broker.url).create_context() as context:
        context.set_exception_listener(Tells(once))
        broker.faults.drop_connections()
        assert ready.wait(SOON / 1000)
    assert once.seen == ["lost", "restored"]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "coroutine"])
@pytest.mark.parametrize("kind", FAILURES_OF_TASKS)
async def test_a_message_listener_of_asyncio(broker: TestBroker, kind: type[BaseException], plain: bool) -> None:
    ready = asyncio.Event()
    once = Once(kind, 4, ready.set)

    async def listener(message: Message) -> None:
        await asyncio.sleep(0)
        once(message.get_body(str))

    async with await sievemq.aio.ConnectionFactory(broker.url).create_context() as context:
        consumer = await context.create_consumer(Queue("orders"))
        consumer.set_message_listener((lambda message: once(message.get_body(str))) if plain else listener)
        for number in range(3):
            await context.create_producer().send(Queue("orders"), str(number))
        async with asyncio.timeout(SOON / 1000):
            await ready.wait()
    assert once.seen == ["0", "0", "1", "2"]


@pytest.mark.parametrize("kind", FAILURES_OF_TASKS)
async def test_a_completion_listener_of_asyncio(broker: TestBroker, kind: type[BaseException]) -> None:
    once = Once(kind, 3, lambda: None)

    class Completions:
        async def on_completion(self, message: Message) -> None:
            once(message.get_body(str))

        async def on_exception(self, message: Message, error: Exception) -> None:
            once("failed")

    async with await sievemq.aio.ConnectionFactory(broker.url).create_context() as context:
        for number in range(3):
            await context.create_producer().set_async(Completions()).send(Queue("orders"), str(number))
    assert once.seen == ["0", "1", "2"]


@pytest.mark.parametrize("kind", FAILURES_OF_TASKS)
async def test_an_exception_listener_of_asyncio(broker: TestBroker, kind: type[BaseException]) -> None:
    ready = asyncio.Event()
    once = Once(kind, 2, ready.set)

    class Watch(Tells):
        async def on_connection_lost(self, error: JMSException) -> None:  # type: ignore[override]
            await restored.wait()  # so that both are to be told when the first one fails
            super().on_connection_lost(error)

    async with await sievemq.aio.ConnectionFactory(broker.url).create_context() as context:
        context.set_exception_listener(Watch(once))
        restored = asyncio.Event()
        broker.faults.drop_connections()
        await context.create_producer().send(Queue("orders"), "the connection is there again")
        restored.set()
        async with asyncio.timeout(SOON / 1000):
            await ready.wait()
    assert once.seen == ["lost", "restored"]


def test_a_listener_of_asyncio_that_ends_the_program(broker: TestBroker) -> None:
    """It ends, and the context is closed in order: the other callbacks are called, nothing waits for ever. asyncio does
    not complain about an unretrieved exception of the task that called it."""
    once = Once(SystemExit, 3, lambda: None)

    class Completions:
        async def on_completion(self, message: Message) -> None:
            await sent.wait()
            once(message.get_body(str))

        async def on_exception(self, message: Message, error: Exception) -> None:
            once("failed")

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: complaints.append(about["message"]))
        async with await sievemq.aio.ConnectionFactory(broker.url).create_context() as context:
            for number in range(3):
                await context.create_producer().set_async(Completions()).send(Queue("orders"), str(number))
            sent.set()
            await asyncio.Event().wait()  # until asyncio.run() cancels it

    sent = asyncio.Event()
    complaints: list[str] = []
    with pytest.raises(SystemExit) as ended:
        asyncio.run(program())
    assert once.seen == ["0", "1", "2"]
    del ended  # its traceback holds the task
    gc.collect()
    assert complaints == []
