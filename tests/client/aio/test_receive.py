"""Receiving with asyncio: cancellation, closing, fairness, misuse."""

from __future__ import annotations

import asyncio

import pytest

from sievemq import JMSException, Queue, TextMessage
from sievemq.aio import Connection, MessageConsumer, MessageProducer
from sievemq_core.wire.commands import Command

from ..both import SOON, text
from .conftest import Connect
from .scripted import ScriptedBroker, until


async def spin(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(12))
async def test_a_cancelled_receive_takes_nothing(
    consumer: MessageConsumer, producer: MessageProducer, turns: int
) -> None:
    """Wherever the cancellation hits: a message was received or comes with the next receive, never neither or both."""
    got: list[str | None] = []

    async def receive() -> None:
        got.append(text(await consumer.receive()))

    for number in range(10):
        task = asyncio.create_task(receive())
        await asyncio.sleep(0)
        await producer.send(TextMessage(str(number)))
        await spin(turns)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    while len(got) < 10:
        got.append(text(await consumer.receive(SOON)))
    assert got == [str(number) for number in range(10)]
    assert await consumer.receive_no_wait() is None


async def test_cancelled_in_the_turn_in_which_the_message_arrives(linked: Connection, broker: ScriptedBroker) -> None:
    consumer = await (await linked.create_session()).create_consumer(Queue("q"))
    task = asyncio.create_task(consumer.receive())
    await broker.until(Command.WANT)
    broker.deliver("one", "two")
    await until(lambda: bool(consumer._engine.buffer))
    task.cancel()  # woken already, not yet run
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [text(await consumer.receive(SOON)) for _ in range(2)] == ["one", "two"]


async def test_d_23_a_receive_sends_want_once_its_temporary_queue_has_another_consumer(
    linked: Connection, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that no other buffer can hold a message for it, however long it waits."""
    monkeypatch.setattr("sievemq.aio.control.PATIENCE", 0.0)
    session = await linked.create_session()
    replies = await session.create_temporary_queue()
    consumer = await session.create_consumer(replies)
    task = asyncio.create_task(consumer.receive())
    await until(lambda: consumer._engine.waker is not None)
    for _ in range(5):  # round trips
        await session.create_temporary_queue()
    assert not broker.count(Command.WANT)
    await session.create_consumer(replies)
    await broker.until(Command.WANT)
    broker.deliver("one")
    assert text(await task) == "one"


async def test_wait_for_is_safe_too(consumer: MessageConsumer, producer: MessageProducer) -> None:
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.receive(), 0.001)
    await producer.send(TextMessage("late"))
    assert text(await consumer.receive(SOON)) == "late"


async def test_a_full_buffer_needs_no_turn_of_the_loop_but_now_and_then(
    linked: Connection, broker: ScriptedBroker
) -> None:
    """Messages that are there are received without suspending; still others run, about once in 128."""
    session = await linked.create_session()
    consumer = await session.create_consumer(Queue("q"))
    broker.deliver(*map(str, range(512)))
    await until(lambda: len(consumer._engine.buffer) == 512)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    got = [text(await consumer.receive()) for _ in range(512)]
    task.cancel()
    assert got == list(map(str, range(512)))
    assert 3 <= turns <= 16


async def test_a_first_message_that_is_there_costs_no_turn(linked: Connection, broker: ScriptedBroker) -> None:
    session = await linked.create_session()
    consumer = await session.create_consumer(Queue("q"))
    broker.deliver("one")
    await until(lambda: len(consumer._engine.buffer) == 1)
    receiving = consumer.receive()
    with pytest.raises(StopIteration) as returned:
        receiving.send(None)  # it does not wait for anything
    assert text(returned.value.value) == "one"


async def test_d_25_acknowledgements_leave_by_themselves_and_together(
    linked: Connection, broker: ScriptedBroker
) -> None:
    consumer = await (await linked.create_session()).create_consumer(Queue("q"))
    broker.deliver("one", "two", "three")
    for _ in range(3):
        await consumer.receive()
    assert await broker.until(Command.ACKNOWLEDGE) == (Command.ACKNOWLEDGE, 1, 3, 0)
    assert broker.count(Command.ACKNOWLEDGE) == 1


@pytest.mark.parametrize("prefetch", [0, 1])
async def test_prefetch_may_be_off(connect: Connect, queue: Queue, prefetch: int) -> None:
    connection = await connect(prefetch=prefetch)
    session = await connection.create_session()
    producer = await session.create_producer(queue)
    for number in range(5):
        await producer.send(TextMessage(str(number)))
    consumer = await session.create_consumer(queue)
    assert [text(await consumer.receive(SOON)) for _ in range(5)] == list("01234")
    assert await consumer.receive_no_wait() is None


async def test_a_lost_connection_fails_a_receive(linked: Connection, broker: ScriptedBroker) -> None:
    reports: list[JMSException] = []
    linked.set_exception_listener(reports.append)
    consumer = await (await linked.create_session()).create_consumer(Queue("q"))
    task = asyncio.create_task(consumer.receive())
    await broker.until(Command.WANT)
    broker.transport.abort()
    with pytest.raises(JMSException) as lost:
        await asyncio.wait_for(task, 60)
    assert lost.value.get_error_code() == "CONNECTION_LOST"
    assert [report.get_error_code() for report in reports] == ["CONNECTION_LOST"]
    with pytest.raises(JMSException):
        await consumer.receive()
    await consumer.close()
