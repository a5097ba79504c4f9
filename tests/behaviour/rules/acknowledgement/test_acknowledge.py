"""Acknowledgement: when a message is done (section 24 of the API map, §6.2.10)."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, outline, text

from sievemq import IllegalStateException, IllegalStateRuntimeException, Message, TextMessage

MODES = [Api.AUTO_ACKNOWLEDGE, Api.DUPS_OK_ACKNOWLEDGE, Api.CLIENT_ACKNOWLEDGE, Api.SESSION_TRANSACTED]


@pytest.mark.parametrize("mode", [Api.AUTO_ACKNOWLEDGE, Api.DUPS_OK_ACKNOWLEDGE])
async def test_ack_01_ack_03_ack_06_received_is_acknowledged(api: Api, mode: int) -> None:
    await api.fill("orders", "one", "two", "three")
    session = await api.session(mode)
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 2) == ["one", "two"]
    await session.close()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 1) == [("three", False, 1)]
    assert await again.receive_no_wait() is None


async def test_ack_02_lis_03_a_listeners_message_is_acknowledged_when_it_has_returned(api: Api) -> None:
    """Not before: the connection is lost while the listener runs, and the message comes again. Once it has returned,
    never again."""
    broker = api.start_broker()
    await api.fill("orders", "one", "two")
    running, go = api.signal(), api.signal()

    async def act(message: Message) -> None:
        if text(message) == "two":
            running.set()
            await go.wait()

    listener = api.listener(act)
    consumer = await (await api.session(reconnect=0)).create_consumer(api.queue())
    consumer.set_message_listener(listener)
    await running.wait()  # so the call for "one" has returned
    await _acknowledged(api, consumer)
    broker.drop_connections()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 1) == [("two", True, 2)]
    assert await again.receive_no_wait() is None
    go.set()


async def test_ack_04_nothing_is_acknowledged_until_acknowledge(api: Api) -> None:
    await api.fill("orders", "one", "two")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    assert await api.texts(await session.create_consumer(api.queue()), 2) == ["one", "two"]
    await session.close()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 2) == [("one", True, 2), ("two", True, 2)]


async def test_ack_05_msg_01_ord_10_acknowledge_covers_the_session_so_far(api: Api) -> None:
    """All consumers, also what was received after the message on which it is called; nothing later."""
    await api.fill("first", "a", "b", "c")
    await api.fill("second", "x", "y")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    first = await session.create_consumer(api.queue("first"))
    second = await session.create_consumer(api.queue("second"))
    oldest = await first.receive(SOON)
    assert await api.texts(second, 1) == ["x"]
    assert await api.texts(first, 1) == ["b"]
    await oldest.acknowledge()
    assert await api.texts(first, 1) == ["c"]
    assert await api.texts(second, 1) == ["y"]
    await session.close()
    assert await api.left("first") == ["c"]
    assert await api.left("second") == ["y"]


async def test_ack_06_an_acknowledged_message_is_never_redelivered(api: Api) -> None:
    await api.fill("orders", "one", "two")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 1)
    await (await consumer.receive(SOON)).acknowledge()
    await session.recover()
    assert await consumer.receive_no_wait() is None
    await session.close()
    assert await api.left() == []


async def test_ack_07_txn_13_acknowledge_is_ignored_in_a_transaction(api: Api) -> None:
    await api.fill("orders", "one")
    session = await api.session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.queue())
    await (await consumer.receive(SOON)).acknowledge()
    await session.rollback()
    assert await api.outlines(consumer, 1) == [("one", True, 2)]


@pytest.mark.parametrize("mode", [Api.AUTO_ACKNOWLEDGE, Api.DUPS_OK_ACKNOWLEDGE])
async def test_ack_07_acknowledge_is_ignored_where_the_session_does_it(api: Api, mode: int) -> None:
    await api.fill("orders", "one", "two")
    session = await api.session(mode)
    consumer = await session.create_consumer(api.queue())
    await (await consumer.receive(SOON)).acknowledge()
    assert await api.outlines(consumer, 1) == [("two", False, 1)]


async def test_msg_02_acknowledge_of_a_message_that_was_never_received(api: Api) -> None:
    await api.fill("orders", "one")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    await api.texts(await session.create_consumer(api.queue()), 1)
    await session.create_text_message("mine").acknowledge()
    await api.acknowledge(TextMessage("nobody's"))
    await session.close()
    assert await api.left() == ["one"]


async def test_msg_03_a_second_acknowledge_has_no_effect(api: Api) -> None:
    await api.fill("orders", "one", "two")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    message = await consumer.receive(SOON)
    await message.acknowledge()
    await message.acknowledge()
    await session.close()
    assert await api.left() == ["two"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("closed", ["session", "connection"])
async def test_clo_20_msg_20_a_message_outlives_its_session_but_for_acknowledge(
    api: Api, mode: int, closed: str
) -> None:
    await api.fill("orders", "one")
    connection = await api.connect()
    session = await connection.create_session(mode)
    message = await (await session.create_consumer(api.queue())).receive(SOON)
    await {"session": session, "connection": connection}[closed].close()
    assert outline(message) == ("one", False, 1)
    with pytest.raises(IllegalStateException):
        await message.acknowledge()


async def test_ctx_15_a_contexts_acknowledge(api: Api) -> None:
    await api.fill("orders", "one", "two", "three")
    context = await api.context(api.CLIENT_ACKNOWLEDGE)
    consumer = await context.create_consumer(api.queue())
    await api.texts(consumer, 2)
    await context.acknowledge()
    await api.texts(consumer, 1)
    await context.close()
    assert await api.left() == ["three"]
    with pytest.raises(IllegalStateRuntimeException):
        await context.acknowledge()


@pytest.mark.parametrize("mode", [Api.AUTO_ACKNOWLEDGE, Api.DUPS_OK_ACKNOWLEDGE, Api.SESSION_TRANSACTED])
async def test_ctx_15_a_contexts_acknowledge_has_no_effect_in_other_modes(api: Api, mode: int) -> None:
    await api.fill("orders", "one")
    context = await api.context(mode)
    consumer = await context.create_consumer(api.queue())
    await api.texts(consumer, 1)
    await context.acknowledge()
    await context.close()
    assert await api.left() == (["one"] if mode == api.SESSION_TRANSACTED else [])


async def test_ack_24_acknowledged_messages_are_not_redelivered_after_a_loss(api: Api) -> None:
    """In doubt is what was received so shortly before that its acknowledgement had not left (D-25)."""
    broker = api.start_broker()
    await api.fill("orders", "one", "two", "three")
    consumer = await (await api.session(reconnect=0)).create_consumer(api.queue())
    assert await api.texts(consumer, 2) == ["one", "two"]
    await _acknowledged(api, consumer)
    broker.drop_connections()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.texts(again, 1) == ["three"]
    assert await again.receive_no_wait() is None


async def _acknowledged(api: Api, consumer: object) -> None:
    """Return once the acknowledgements of a consumer's session have reached the broker by themselves."""
    await api.until_quiet(consumer)
    # A request of another connection, behind what the broker has read: its turn comes after it.
    await api.left("nothing")
