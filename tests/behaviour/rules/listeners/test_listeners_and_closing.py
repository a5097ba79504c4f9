"""start, stop and close around running listeners (sections 5, 13 and 30 of the API map)."""

from __future__ import annotations

import pytest
from tests.client.both import Api, outline, text

from sievemq import IllegalStateException, IllegalStateRuntimeException, Message


@pytest.mark.parametrize("what", ["session", "connection"])
async def test_clo_08_close_waits_for_a_running_listener(api: Api, what: str) -> None:
    """The listener keeps the session until it returns, and its message is acknowledged."""
    await api.fill("orders", "one", "two")
    connection = await api.connect()
    session = await connection.create_session()
    producer = await session.create_producer(api.queue("answers"))
    running, go = api.signal(), api.signal()

    async def act(message: Message) -> None:
        running.set()
        await go.wait()
        await producer.send(session.create_text_message(f"answer to {text(message)}"))

    listener = api.listener(act)
    consumer = await session.create_consumer(api.queue())
    consumer.set_message_listener(listener)
    await running.wait()
    closing = api.task({"session": session, "connection": connection}[what].close())
    await api.until_gated(consumer)
    assert await api.left("answers") == []
    assert not closing.done()
    go.set()
    await closing
    assert listener.texts == ["one"]
    assert await api.left("answers") == ["answer to one"]
    rest = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(rest, 1) == [("two", False, 1)]  # MCO-10


async def test_mco_07_closing_a_consumer_waits_for_its_listener_alone(api: Api) -> None:
    await api.fill("orders", "one")
    session = await api.session()
    running, go = api.signal(), api.signal()

    async def act(message: Message) -> None:
        running.set()
        await go.wait()

    listener = api.listener(act)
    consumer = await session.create_consumer(api.queue())
    other = await session.create_consumer(api.queue("other"))
    consumer.set_message_listener(listener)
    other.set_message_listener(api.listener())
    await running.wait()
    await other.close()
    closing = api.task(consumer.close())
    await api.left()
    assert not closing.done()
    go.set()
    await closing
    assert listener.texts == ["one"]


async def test_mco_08_clo_12_a_listener_closes_its_own_consumer(api: Api) -> None:
    """The call completes normally and its message is acknowledged; no other comes."""
    await api.fill("orders", "one", "two")
    session = await api.session()
    consumer = await session.create_consumer(api.queue())

    async def act(message: Message) -> None:
        await consumer.close()
        with pytest.raises(IllegalStateException):
            await consumer.receive_no_wait()

    listener = api.listener(act)
    consumer.set_message_listener(listener)
    await listener.arrived(1)
    rest = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(rest, 1) == [("two", False, 1)]
    await session.close()
    assert listener.texts == ["one"]
    assert await rest.receive_no_wait() is None


async def test_con_19_clo_09_clo_10_stop_and_close_raise_in_a_listener(api: Api) -> None:
    await api.fill("orders", "one")
    connection = await api.connect()
    session = await connection.create_session()
    refused = []

    async def act(message: Message) -> None:
        for call in (connection.stop, connection.close, session.close):
            try:
                await call()
            except IllegalStateException as error:
                refused.append(error)

    listener = api.listener(act)
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    await listener.arrived(1)
    assert len(refused) == 3
    await session.create_consumer(api.queue("other"))  # nothing is closed


async def test_clo_11_ctx_05_a_contexts_listener(api: Api) -> None:
    """Nor those of another context on the same connection."""
    await api.fill("orders", "one")
    context = await api.context()
    other = await context.create_context(api.AUTO_ACKNOWLEDGE)
    refused = []

    async def act(message: Message) -> None:
        for call in (context.stop, other.stop, context.close):
            try:
                await call()
            except IllegalStateRuntimeException as error:
                refused.append(error)

    listener = api.listener(act)
    (await context.create_consumer(api.queue())).set_message_listener(listener)
    await listener.arrived(1)
    assert len(refused) == 3
    await other.close()


async def test_con_16_con_18_stop_waits_for_running_listeners(api: Api) -> None:
    await api.fill("orders", "one", "two")
    connection = await api.connect()
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    running, go = api.signal(), api.signal()

    async def act(message: Message) -> None:
        running.set()
        await go.wait()
        await message.acknowledge()  # full service

    listener = api.listener(act)
    consumer = await session.create_consumer(api.queue())
    consumer.set_message_listener(listener)
    await running.wait()
    stopping = api.task(connection.stop())
    await api.until_gated(consumer)
    await api.left()
    assert not stopping.done()
    go.set()
    await stopping
    assert listener.texts == ["one"]
    await connection.start()
    messages = await listener.arrived(2)
    assert outline(messages[1]) == ("two", False, 1)


async def test_con_17_no_listener_is_called_while_stopped(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    listener = api.listener()
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    await connection.stop()
    await api.fill("orders", "one")
    await (await session.create_consumer(api.queue("other"))).close()  # the broker has had every occasion
    assert listener.messages == []
    await connection.start()
    await listener.arrived(1)


async def test_clo_24_clo_25_a_listener_set_before_the_start(api: Api) -> None:
    await api.fill("orders", "one")
    connection = await api.connect(start=False)
    session = await connection.create_session()
    listener = api.listener()
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    await (await session.create_consumer(api.queue("other"))).close()
    assert listener.messages == []
    await connection.start()
    await listener.arrived(1)


async def test_clo_14_close_does_not_wait_for_an_exception_listener(api: Api) -> None:
    broker = api.start_broker()
    running, go = api.signal(), api.signal()
    connection = await api.connect(reconnect=0)

    async def on_exception(error: Exception) -> None:
        running.set()
        await go.wait()

    connection.set_exception_listener(on_exception)
    broker.drop_connections()
    await running.wait()
    await connection.close()
    go.set()
