"""The harness itself: what a rule test relies on, in both worlds."""

from __future__ import annotations

import asyncio
import threading

import pytest

import sievemq.aio
from sievemq import IllegalStateException, Message, MessageFormatRuntimeException, TextMessage

from .both import SOON, Api, outline, text


async def test_send_and_receive(api: Api) -> None:
    session = await api.session()
    producer = await session.create_producer(api.queue())
    await producer.send(session.create_text_message("hello"))
    consumer = await session.create_consumer(api.queue())
    assert outline(await consumer.receive(SOON)) == ("hello", False, 1)
    assert await consumer.receive_no_wait() is None


async def test_the_classes_belong_to_the_chosen_api(api: Api) -> None:
    session = await api.session()
    real = session._object if api.world == "blocking" else session
    assert type(real) is (sievemq.Session if api.world == "blocking" else sievemq.aio.Session)


async def test_iteration_and_closing_by_with(api: Api) -> None:
    await api.fill("orders", "one", "two")
    async with await api.context() as context:
        consumer = await context.create_consumer(api.queue())
        got = []
        async for message in consumer:
            got.append(text(message))
            if len(got) == 2:
                await consumer.close()
        assert got == ["one", "two"]
    with pytest.raises(IllegalStateException):
        context.create_message()


async def test_acknowledge_and_delete_are_awaited(api: Api) -> None:
    await api.fill("orders", "one")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    message = await (await session.create_consumer(api.queue())).receive(SOON)
    await message.acknowledge()
    await session.create_message().acknowledge()
    await api.acknowledge(TextMessage())
    await session.close()
    assert await api.left() == []
    temporary = await (await api.session()).create_temporary_queue()
    await temporary.delete()


async def test_a_listener_awaits_api_calls_and_signals(api: Api) -> None:
    await api.fill("orders", "one", "two")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    go, threads = api.signal(), set()

    async def act(message: Message) -> None:
        threads.add(threading.get_ident())
        await go.wait()
        await message.acknowledge()
        threads.add(threading.get_ident())

    listener = api.listener(act)
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    assert listener.messages == []
    go.set()
    await listener.arrived(2)
    assert listener.texts == ["one", "two"]
    assert len(threads) == 1
    assert (threading.get_ident() in threads) is (api.world == "aio")


async def test_a_listener_is_given_back_as_it_was_set(api: Api) -> None:
    consumer = await (await api.session()).create_consumer(api.queue())
    listener = api.listener()
    consumer.set_message_listener(listener)
    assert consumer.get_message_listener() is listener
    consumer.set_message_listener(None)
    assert consumer.get_message_listener() is None


async def test_completions_keep_outcomes(api: Api) -> None:
    session = await api.session()
    producer = await session.create_producer(api.queue())
    completions = api.completions()
    sent = [TextMessage(str(number)) for number in range(5)]
    for message in sent:
        await producer.send(message, completion_listener=completions)
    assert await completions.arrived(5) == [(message, None) for message in sent]


async def test_a_task_is_a_thread_of_control_of_its_own(api: Api) -> None:
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive())
    await api.until_receiving(consumer)
    assert not receiving.done()
    await api.fill("orders", "hello")
    assert text(await asyncio.wait_for(receiving, 60)) == "hello"


async def test_exceptions_are_raised_through_the_wrapper(api: Api) -> None:
    context = await api.context()
    with pytest.raises(MessageFormatRuntimeException):
        await context.create_producer().send(api.queue(), None)
    chained = context.create_producer().set_priority(7)
    assert chained.get_priority() == 7


async def test_a_broker_of_its_own_with_a_clock(api: Api) -> None:
    broker = api.start_broker()
    await api.fill("orders", "now")
    session = await api.session()
    producer = await session.create_producer(api.queue("later"))
    producer.set_delivery_delay(60_000)
    await producer.send(TextMessage("later"))
    consumer = await session.create_consumer(api.queue("later"))
    assert await consumer.receive_no_wait() is None
    await broker.clock.advance(seconds=60)
    assert text(await consumer.receive(SOON)) == "later"
