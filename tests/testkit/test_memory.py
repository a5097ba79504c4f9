"""The same over TCP and through memory: client and broker cannot tell the difference, and neither can these tests."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable
from pathlib import Path

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
from sievemq_testing.memory import Lane, LoopEnd, SocketEnd

ORDERS = Queue("orders")
SOON = 60.0
FDS = Path("/proc/self/fd")

Make = Callable[..., ConnectionFactory]
AioMake = Callable[..., sievemq.aio.ConnectionFactory]


@pytest.fixture(params=["tcp", "memory"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a factory: to a broker, with options behind ``?``."""
    if request.param == "tcp":
        return lambda broker, url=None, options="": ConnectionFactory((url or broker.url) + options)
    return lambda broker, url=None, options="": broker.memory_factory((url or broker.url) + options)


@pytest.fixture(params=["tcp", "memory"])
def make_aio(request: pytest.FixtureRequest) -> AioMake:
    if request.param == "tcp":
        return lambda broker, url=None, options="": sievemq.aio.ConnectionFactory((url or broker.url) + options)
    return lambda broker, url=None, options="": broker.aio_memory_factory((url or broker.url) + options)


@pytest.fixture
def factory(make: Make, sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace) -> ConnectionFactory:
    return make(sievemq_test_broker, sievemq_namespace.url)


@pytest.fixture
def aio_factory(
    make_aio: AioMake, sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace
) -> sievemq.aio.ConnectionFactory:
    return make_aio(sievemq_test_broker, sievemq_namespace.url)


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


def test_a_lost_connection_that_is_not_repaired(
    make: Make, sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace
) -> None:
    context = make(sievemq_test_broker, sievemq_namespace.url, "?reconnect=0").create_context()
    sievemq_namespace.faults.drop_connections()
    with pytest.raises(JMSRuntimeException):
        context.create_producer().send(ORDERS, "x")
    context.close()


def test_a_slow_reader_blocks_nobody(
    factory: ConnectionFactory, make: Make, sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace
) -> None:
    slow = make(sievemq_test_broker, sievemq_namespace.url, "?client_id=slow&prefetch=1000")
    with slow.create_context() as reader, factory.create_context() as context:
        reader.create_consumer(ORDERS)
        with reader._connection._transport.lock:  # its I/O thread reads no further
            for _ in range(200):
                context.create_producer().send(ORDERS, "x" * 20_000)
        sievemq_namespace.wait_until_idle()


def test_credentials_and_a_broker_that_is_gone(make: Make) -> None:
    with TestBroker(users={"me": "secret"}) as broker:
        factory = make(broker, options="?reconnect=0")
        with pytest.raises(JMSSecurityException):
            factory.create_connection("me", "guess")
        factory.create_connection("me", "secret").close()
    with pytest.raises(JMSException, match="no broker could be reached"):
        factory.create_connection("me", "secret")


def test_a_restart(make: Make) -> None:
    with TestBroker() as broker, make(broker).create_context() as context:
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


async def test_asyncio_credentials_and_a_broker_that_is_gone(make_aio: AioMake) -> None:
    async with TestBroker(users={"me": "secret"}) as broker:
        factory = make_aio(broker, options="?reconnect=0")
        with pytest.raises(JMSSecurityException):
            await factory.create_connection("me", "guess")
        await (await factory.create_connection("me", "secret")).close()
    with pytest.raises(JMSException, match="no broker could be reached"):
        await factory.create_connection("me", "secret")


async def test_asyncio_over_a_restart(make_aio: AioMake) -> None:
    async with TestBroker() as broker, await make_aio(broker).create_context() as context:
        await context.create_producer().send(ORDERS, "kept")
        await asyncio.to_thread(broker.restart)
        consumer = await context.create_consumer(ORDERS)
        assert await consumer.receive_body(str, 60_000) == "kept"


# -- what is under it -------------------------------------------------------------------------------------------------


def test_no_socket_joins_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    with TestBroker() as broker:
        monkeypatch.setattr(socket, "create_connection", made.append)
        with broker.memory_factory().create_context() as context:
            context.create_producer().send(ORDERS, "x")
            assert isinstance(context._connection._transport._socket, SocketEnd)
            links = broker.on_server(lambda server: [type(link.transport) for link in server.links.open])
            assert links == [LoopEnd]
    assert not made


@pytest.mark.skipif(not FDS.is_dir(), reason="open files cannot be counted here")
def test_nothing_is_left_open() -> None:
    with TestBroker() as broker:
        broker.memory_factory().create_connection().close()
        broker.wait_until_idle()
        gc.collect()
        before = len(tuple(FDS.iterdir()))
        for _ in range(20):
            broker.memory_factory().create_connection().close()
        assert broker.wait_for(lambda _: not broker.server.links.open, SOON)
        assert len(tuple(FDS.iterdir())) <= before


def test_a_lane_says_once_that_there_is_something_and_keeps_the_end_for_last() -> None:
    lane = Lane()
    told: list[str] = []
    lane.on_data = lambda: told.append("data")
    lane.on_room = lambda: told.append("room")
    lane.put(b"abc")
    lane.put(b"def")
    assert told == ["data"]
    assert lane.take(4) == (b"abcd", False)
    lane.end()
    lane.put(b"too late")
    assert (lane.size, lane.take()) == (2, (b"ef", True))
    assert lane.take() == (b"", True)
    assert told == ["data", "room", "room", "room"]


def test_a_lane_that_nobody_reads_holds_nothing() -> None:
    lane = Lane()
    lane.put(b"abc")
    lane.shut()
    lane.on_data = lambda: pytest.fail("nobody is to be told")
    lane.put(b"def")
    lane.end()
    assert lane.size == 0


def test_a_socket_end_is_one_to_a_selector() -> None:
    import selectors

    there, back = Lane(), Lane()
    end = SocketEnd(there, back)
    with selectors.DefaultSelector() as selector:
        selector.register(end, selectors.EVENT_READ)
        assert not selector.select(0)
        with pytest.raises(BlockingIOError):
            end.recv(10)
        there.put(b"abc")
        assert selector.select(0)
        assert (end.recv(2), bool(selector.select(0))) == (b"ab", True)
        assert (end.recv(2), bool(selector.select(0))) == (b"c", False)
        threading.Thread(target=there.end).start()
        assert selector.select(SOON)
        assert end.recv(10) == b""
        assert not selector.select(0)
        assert end.recv(10) == b""
        selector.unregister(end)
    assert end.send(memoryview(b"xyz")) == 3
    end.close()
    assert end.fileno() == -1
    assert back.take() == (b"xyz", True)
    with pytest.raises(OSError, match="closed"):
        end.send(memoryview(b"x"))
    end.close()
