"""Sending with asyncio: what suspends and what does not, cancellation, back-pressure, gathering of writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sievemq import BytesMessage, DeliveryMode, IllegalStateException, JMSException, Message, Queue, TextMessage
from sievemq.aio import Connection, MessageConsumer, MessageProducer
from sievemq_core.wire.commands import Command

from ..both import SOON, text
from .scripted import ScriptedBroker, connected, scripted, until

GATHER = 64 * 1024
QUICK = {"delivery_mode": DeliveryMode.NON_PERSISTENT}


def suspends(coroutine: Any) -> bool:
    """True if the coroutine does not finish in its first step; it is closed then."""
    try:
        coroutine.send(None)
    except StopIteration:
        return False
    coroutine.close()
    return True


@pytest.fixture
async def sender(linked: Connection) -> MessageProducer:
    return await (await linked.create_session()).create_producer(Queue("q"))


async def test_a_non_persistent_send_does_not_suspend(sender: MessageProducer) -> None:
    message = TextMessage("one")
    assert not suspends(sender.send(message, **QUICK))
    assert message.get_jms_message_id() is not None  # D-26


async def test_d_24_a_persistent_send_waits_for_the_confirm(sender: MessageProducer, broker: ScriptedBroker) -> None:
    broker.confirms = False
    task = asyncio.create_task(sender.send(TextMessage("one")))
    command = await broker.until(Command.SEND)
    assert not task.done()
    broker.say(Command.CONFIRM, 1, command[2])
    await asyncio.wait_for(task, 60)


async def test_one_write_per_turn(sender: MessageProducer, broker: ScriptedBroker) -> None:
    before = broker.chunks
    for number in range(50):
        await sender.send(TextMessage(str(number)), **QUICK)
    await broker.until(Command.SEND, 50)
    assert broker.chunks == before + 1


async def test_others_run_while_a_producer_never_waits(sender: MessageProducer, broker: ScriptedBroker) -> None:
    """A producer in a loop gives way whenever 64 KiB have gathered, so that they are written and answers are read."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    body = bytes(GATHER // 8)
    for _ in range(80):
        await sender.send(BytesMessage(body), **QUICK)
    task.cancel()
    assert turns >= 8
    await broker.until(Command.SEND, 80)


async def test_the_window_bounds_unconfirmed_sends() -> None:
    async with scripted(window=3) as broker:
        broker.confirms = False
        connection = await connected(broker)
        producer = await (await connection.create_session()).create_producer(Queue("q"))
        for number in range(3):
            assert not suspends(producer.send(TextMessage(str(number)), **QUICK))
        waiting = TextMessage("3")
        task = asyncio.create_task(producer.send(waiting, **QUICK))
        await broker.until(Command.SEND, 3)
        assert not task.done()

        # Cancelled while it waits for room: nothing was sent, the message is untouched.
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert waiting.get_jms_message_id() is None

        task = asyncio.create_task(producer.send(waiting, **QUICK))
        await asyncio.sleep(0)
        broker.say(Command.CONFIRM, 1, 3)
        await asyncio.wait_for(task, 60)
        assert (await broker.until(Command.SEND, 4))[2] == 4
        broker.transport.abort()
        await connection.close()


async def test_a_send_cancelled_while_it_waits_for_its_confirm_is_sent(
    sender: MessageProducer, linked: Connection, broker: ScriptedBroker
) -> None:
    reports: list[JMSException] = []
    linked.set_exception_listener(reports.append)
    broker.confirms = False
    message = TextMessage("one")
    task = asyncio.create_task(sender.send(message))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert message.get_jms_message_id() is not None
    assert (await broker.until(Command.SEND))[2] == 1
    broker.say(Command.CONFIRM, 1, 1)
    broker.confirms = True
    await asyncio.wait_for(sender.send(TextMessage("two")), 60)
    assert reports == []


async def test_a_peer_that_does_not_read_makes_producers_wait(linked: Connection, broker: ScriptedBroker) -> None:
    producer = await (await linked.create_session()).create_producer(Queue("q"))
    broker.transport.pause_reading()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        for _ in range(400):
            await producer.send(BytesMessage(bytes(60_000)), **QUICK)
            sent += 1

    linked._engine.sessions[1].sends.byte_limit = 1 << 40  # the socket alone shall bound it
    task = asyncio.create_task(flood())
    await until(lambda: linked._transport.paused)
    before = -1
    while before != sent:
        before = sent
        for _ in range(100):
            await asyncio.sleep(0)
    assert sent < 400
    assert linked._transport._transport is not None
    assert linked._transport._transport.get_write_buffer_size() < 1 << 20
    assert linked._engine.outbox.queued_bytes < 1 << 20
    broker.transport.resume_reading()
    await asyncio.wait_for(task, 60)
    await broker.until(Command.SEND, 400)


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_send_is_sent_whole_or_not_at_all(
    producer: MessageProducer, consumer: MessageConsumer, turns: int
) -> None:
    """The id tells: with one it arrives, without it does not."""
    expected = []
    for number in range(10):
        message = TextMessage(str(number))
        task = asyncio.create_task(producer.send(message))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if message.get_jms_message_id() is not None:
            expected.append(str(number))
    await producer.send(TextMessage("end"))
    got = []
    while (body := text(await consumer.receive(SOON))) != "end":
        got.append(body)
    assert got == expected


async def test_several_tasks_may_send_in_one_session(producer: MessageProducer, consumer: MessageConsumer) -> None:
    await asyncio.gather(*(producer.send(TextMessage(str(number))) for number in range(200)))
    got = [text(await consumer.receive(SOON)) for _ in range(200)]
    assert sorted(got, key=lambda body: int(body or -1)) == [str(number) for number in range(200)]


async def test_callbacks_keep_up_with_a_producer_that_never_waits(
    sender: MessageProducer, broker: ScriptedBroker
) -> None:
    """What is unconfirmed the window bounds; what is confirmed and not told yet must not gather either."""
    sent = told = most = 0

    def completed(message: Message) -> None:
        nonlocal told, most
        most = max(most, sent - told)
        told += 1

    def failed(message: Message, error: Exception) -> None:
        raise AssertionError(error)

    sender.set_disable_message_id(True)
    for _ in range(20_000):
        await sender.send(Message(), completion_listener=(completed, failed))
        sent += 1
    await asyncio.wait_for(sender.close(), 60)
    assert told == 20_000
    assert most < 5_000


async def test_others_have_a_turn_among_many_callbacks() -> None:
    async with scripted(window=10_000) as broker:
        connection = await connected(broker)
        broker.confirms = False
        producer = await (await connection.create_session()).create_producer(Queue("q"))
        told = turns = 0
        turns_at: set[int] = set()

        def completed(message: Message) -> None:
            nonlocal told
            told += 1
            turns_at.add(turns)

        def failed(message: Message, error: Exception) -> None:
            raise AssertionError(error)

        for _ in range(10_000):
            await producer.send(Message(), completion_listener=(completed, failed))
        await broker.until(Command.SEND, 10_000)
        broker.say(Command.CONFIRM, 1, 10_000)
        async with asyncio.timeout(60):
            while told < 10_000:
                await asyncio.sleep(0)
                turns += 1
        assert len(turns_at) > 2
        broker.transport.abort()
        await connection.close()


async def test_callbacks_whose_task_was_cancelled_before_it_began_are_called_by_close(
    sender: MessageProducer, broker: ScriptedBroker
) -> None:
    broker.confirms = False
    told: list[Message] = []
    message = TextMessage("x")
    await sender.send(message, completion_listener=(told.append, told.append))
    await broker.until(Command.SEND)
    before = asyncio.all_tasks()
    sender._control.engine.sends.confirm(1)
    (task,) = asyncio.all_tasks() - before
    task.cancel()  # with all others: nobody else knows it
    await asyncio.gather(task, return_exceptions=True)
    assert told == []
    await asyncio.wait_for(sender.close(), 60)
    assert told == [message]


async def test_a_lost_connection_fails_sends_in_order(sender: MessageProducer, broker: ScriptedBroker) -> None:
    broker.confirms = False
    fates: list[tuple[str | None, str]] = []
    listener = (
        lambda message: fates.append((message.get_text(), "sent")),
        lambda message, error: fates.append((message.get_text(), error.get_error_code())),
    )
    for number in range(3):
        await sender.send(TextMessage(str(number)), completion_listener=listener)
    task = asyncio.create_task(sender.send(TextMessage("synchronous")))
    command = await broker.until(Command.SEND, 4)
    assert command[2] == 4
    broker.transport.abort()
    with pytest.raises(JMSException):
        await asyncio.wait_for(task, 60)
    await sender.close()
    assert fates == [(str(number), "CONNECTION_LOST") for number in range(3)]


async def test_d_24_a_failed_send_without_a_waiter_is_reported(
    sender: MessageProducer, linked: Connection, broker: ScriptedBroker
) -> None:
    reported = asyncio.Event()
    reports: list[JMSException] = []

    async def on_exception(error: JMSException) -> None:
        reports.append(error)
        reported.set()

    linked.set_exception_listener(on_exception)
    broker.confirms = False
    await sender.send(TextMessage("one"), **QUICK)
    await broker.until(Command.SEND)
    broker.say(Command.SEND_FAILED, 1, 1, 4, "queue:q was deleted")
    await asyncio.wait_for(reported.wait(), 60)
    assert "deleted" in str(reports[0])


async def test_closed_objects_and_wrong_arguments_raise_before_a_send(
    sender: MessageProducer, broker: ScriptedBroker
) -> None:
    with pytest.raises(JMSException):
        await sender.send(TextMessage("one"), priority=10)
    await sender.close()
    with pytest.raises(IllegalStateException):
        await sender.send(TextMessage("one"))
    assert broker.count(Command.SEND) == 0
