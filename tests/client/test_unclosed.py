"""A connection that nobody closed and nothing refers to: a ResourceWarning names it, and it is closed."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

import sievemq.aio
from sievemq import Connection, ConnectionFactory, JMSContext, JMSException, Message, Queue, TextMessage
from sievemq_testing import TestBroker

from .both import LIMIT, SOON

T = TypeVar("T")
ORDERS = Queue("orders")


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


def until(condition: Callable[[], bool]) -> None:
    """Return once a thread has made it so."""
    beginning = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        beginning.wait(0.01)
    pytest.fail("it has not become so")


def collected(work: Callable[[], T]) -> T:
    """What a function returns, once what it left behind is collected."""
    result = work()
    gc.collect()
    return result


def io_threads() -> int:
    return sum(thread.name == "sievemq-io" for thread in threading.enumerate())


class Watch:
    """An exception listener that refers to what it watches."""

    def __init__(self, context: JMSContext) -> None:
        self.context = context

    def on_exception(self, error: JMSException) -> None:
        """Never called here."""


def test_fifty_forgotten_contexts_are_named_and_closed(broker: TestBroker) -> None:
    def forget() -> None:
        for number in range(50):
            context = ConnectionFactory(broker.url, application=f"leaky-{number}").create_context()
            context.set_exception_listener(Watch(context))
            context.create_consumer(ORDERS).receive_no_wait()

    gc.collect()
    threads = io_threads()
    with pytest.warns(
        ResourceWarning, match=r"unclosed <Connection \S+ started> to \S+ \(\S+ leaky-\d+\): close it"
    ) as told:
        collected(forget)
    assert len({str(warning.message) for warning in told}) == 50
    until(lambda: io_threads() == threads)
    until(lambda: not broker.queue("orders").consumers)
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(ORDERS, "mine")
        assert context.create_consumer(ORDERS).receive_body(str, SOON) == "mine"


def test_sends_and_acknowledgements_of_a_forgotten_context_persist(broker: TestBroker) -> None:
    def forget() -> None:
        context = ConnectionFactory(broker.url, send_confirm="never").create_context()
        context.create_producer().send(ORDERS, "one").send(ORDERS, "two")
        assert context.create_consumer(ORDERS).receive_body(str, SOON) == "one"

    with pytest.warns(ResourceWarning, match="unclosed"):
        collected(forget)
    with ConnectionFactory(broker.url).create_context() as context:
        message = context.create_consumer(ORDERS).receive(SOON)
        assert message is not None
        assert (message.get_body(str), message.get_jms_redelivered()) == ("two", False)


def fill(broker: TestBroker) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(ORDERS, "hello")


def context_consumer(broker: TestBroker) -> str | None:
    consumer = ConnectionFactory(broker.url).create_context().create_consumer(ORDERS)
    gc.collect()
    fill(broker)
    return consumer.receive_body(str, SOON)


def context_producer(broker: TestBroker) -> str | None:
    producer = ConnectionFactory(broker.url).create_context().create_producer()
    gc.collect()
    producer.send(ORDERS, "hello")
    return broker.queue("orders").messages()[0].get_body(str)


def session_consumer(broker: TestBroker) -> str | None:
    connection = ConnectionFactory(broker.url).create_connection()
    connection.start()
    consumer = connection.create_session().create_consumer(ORDERS)
    del connection
    gc.collect()
    fill(broker)
    message = consumer.receive(SOON)
    return None if message is None else message.get_body(str)


def session_producer(broker: TestBroker) -> str | None:
    producer = ConnectionFactory(broker.url).create_connection().create_session().create_producer(ORDERS)
    gc.collect()
    producer.send(TextMessage("hello"))
    return broker.queue("orders").messages()[0].get_body(str)


def session(broker: TestBroker) -> str | None:
    kept = ConnectionFactory(broker.url).create_connection().create_session()
    gc.collect()
    kept.create_producer(ORDERS).send(TextMessage("hello"))
    return broker.queue("orders").messages()[0].get_body(str)


def queue_browser(broker: TestBroker) -> str | None:
    browser = ConnectionFactory(broker.url).create_context().create_browser(ORDERS)
    gc.collect()
    fill(broker)
    return next(iter(browser)).get_body(str)


@pytest.mark.parametrize(
    "part", [context_consumer, context_producer, session_consumer, session_producer, session, queue_browser]
)
def test_a_part_of_it_keeps_a_connection_alive(broker: TestBroker, part: Callable[[TestBroker], str | None]) -> None:
    with pytest.warns(ResourceWarning, match="unclosed") as told:
        assert collected(lambda: part(broker)) == "hello"
    assert len(told) == 1, [str(warning.message) for warning in told]


@pytest.mark.parametrize("part", ["consumer", "producer", "browser"])
async def test_a_part_of_it_keeps_a_connection_of_asyncio_alive(broker: TestBroker, part: str) -> None:
    async def context() -> sievemq.aio.JMSContext:
        return await sievemq.aio.ConnectionFactory(broker.url).create_context()

    async def keep() -> str | None:
        if part == "producer":
            producer = (await context()).create_producer()
            gc.collect()
            await producer.send(ORDERS, "hello")
            return broker.queue("orders").messages()[0].get_body(str)
        if part == "browser":
            browser = await (await context()).create_browser(ORDERS)
            gc.collect()
            await asyncio.to_thread(fill, broker)
            return (await anext(aiter(browser))).get_body(str)
        consumer = await (await context()).create_consumer(ORDERS)
        gc.collect()
        await asyncio.to_thread(fill, broker)
        return await consumer.receive_body(str, SOON)

    async def leave() -> str | None:
        body = await keep()
        gc.collect()
        return body

    with pytest.warns(ResourceWarning, match="unclosed") as told:
        assert await leave() == "hello"
    # The collector may finalize asyncio's transport and socket first, which then warn, too.
    texts = [str(warning.message) for warning in told]
    assert len([text for text in texts if not text.startswith(("unclosed <socket", "unclosed transport"))]) == 1, texts


def test_a_listener_keeps_a_connection_alive(broker: TestBroker) -> None:
    heard: list[str | None] = []
    arrived = threading.Event()

    def listen() -> weakref.ref[Connection]:
        context = ConnectionFactory(broker.url).create_context()

        def listener(message: Message) -> None:
            heard.append(message.get_body(str))
            arrived.set()

        context.create_consumer(ORDERS).set_message_listener(listener)
        return weakref.ref(context._connection)

    connection = collected(listen)
    fill(broker)
    assert arrived.wait(SOON / 1000)
    assert heard == ["hello"]
    kept = connection()
    assert kept is not None
    kept.close()


async def test_a_listener_keeps_a_connection_of_asyncio_alive(broker: TestBroker) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()

    async def listen() -> weakref.ref[sievemq.aio.Connection]:
        context = await sievemq.aio.ConnectionFactory(broker.url).create_context()
        consumer = await context.create_consumer(ORDERS)
        consumer.set_message_listener(lambda message: heard.put_nowait(message.get_body(str)))
        return weakref.ref(context._connection)

    connection = await listen()
    gc.collect()
    await asyncio.to_thread(fill, broker)
    assert await asyncio.wait_for(heard.get(), LIMIT) == "hello"
    kept = connection()
    assert kept is not None
    await kept.close()


@pytest.mark.parametrize("end", ["closed", "lost"])
def test_closed_and_lost_connections_cause_no_warning(broker: TestBroker, end: str) -> None:
    def use() -> None:
        connection = ConnectionFactory(broker.url, reconnect=0).create_connection()
        if end == "closed":
            connection.close()
        else:
            failed = threading.Event()
            connection.set_exception_listener(lambda error: failed.set())
            broker.faults.drop_connections()
            assert failed.wait(SOON / 1000)

    use()
    gc.collect()  # warnings are errors


def test_a_message_that_outlives_its_session_cannot_be_acknowledged(broker: TestBroker) -> None:
    def forget() -> Message | None:
        context = ConnectionFactory(broker.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE)
        context.create_producer().send(ORDERS, "hello")
        return context.create_consumer(ORDERS).receive(SOON)

    with pytest.warns(ResourceWarning, match="unclosed"):
        message = collected(forget)
    assert message is not None
    with pytest.raises(sievemq.IllegalStateException, match="the session is closed"):
        message.acknowledge()


async def test_a_forgotten_context_of_asyncio(broker: TestBroker) -> None:
    async def forget() -> None:
        context = await sievemq.aio.ConnectionFactory(broker.url, application="leaky").create_context()
        context.set_exception_listener(lambda error: print(context))
        await context.create_producer().send(ORDERS, "one")
        consumer = await context.create_consumer(ORDERS)
        assert await consumer.receive_body(str, SOON) == "one"

    async def leave() -> None:
        await forget()
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"unclosed <Connection \S+ started> to \S+ \(.*leaky\): close it") as told:
        await leave()
    assert len(told) == 1
    async with asyncio.timeout(LIMIT):
        while broker.queue("orders").consumers:  # noqa: ASYNC110 - the broker's thread makes it so
            await asyncio.sleep(0)
    assert broker.queue("orders").depth == 0
