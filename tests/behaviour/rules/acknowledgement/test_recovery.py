"""Recovery and redelivery (section 24 of the API map, §6.2.10-6.2.12)."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, outline, text

from sievemq import IllegalStateException, Message, TextMessage


async def test_ack_08_jsx_12_recover_redelivers_unacknowledged_messages(api: Api) -> None:
    """Oldest first, redelivered, count + 1; over all consumers of the session."""
    await api.fill("first", "a", "b")
    await api.fill("second", "x")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    first = await session.create_consumer(api.queue("first"))
    second = await session.create_consumer(api.queue("second"))
    assert await api.outlines(first, 2) == [("a", False, 1), ("b", False, 1)]
    assert await api.outlines(second, 1) == [("x", False, 1)]
    await session.recover()
    assert await api.outlines(first, 2) == [("a", True, 2), ("b", True, 2)]
    assert await api.outlines(second, 1) == [("x", True, 2)]
    await session.recover()
    assert await api.outlines(first, 2) == [("a", True, 3), ("b", True, 3)]


async def test_ack_09_recover_restarts_after_the_last_acknowledged_message(api: Api) -> None:
    await api.fill("orders", "one", "two", "three", "four")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 1)
    await (await consumer.receive(SOON)).acknowledge()
    await api.texts(consumer, 1)
    await session.recover()
    assert await api.outlines(consumer, 2) == [("three", True, 2), ("four", False, 1)]


@pytest.mark.parametrize("mode", [Api.AUTO_ACKNOWLEDGE, Api.DUPS_OK_ACKNOWLEDGE])
async def test_ack_10_nothing_to_recover_between_receives(api: Api, mode: int) -> None:
    await api.fill("orders", "one", "two", "three")
    session = await api.session(mode)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 1)
    await session.recover()
    assert await api.outlines(consumer, 2) == [("two", False, 1), ("three", False, 1)]


async def test_ack_11_lis_07_recover_inside_a_listener(api: Api) -> None:
    """AUTO: the current message is not acknowledged and comes again, before the later ones."""
    session = await api.session()

    async def act(message: Message) -> None:
        if text(message) == "one" and not message.get_jms_redelivered():
            await session.recover()

    listener = api.listener(act)
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    await api.fill("orders", "one", "two")
    messages = await listener.arrived(3)
    assert [outline(message) for message in messages] == [("one", False, 1), ("one", True, 2), ("two", False, 1)]
    await session.close()
    assert await api.left() == []


async def test_ack_12_ses_14_no_recover_in_a_transacted_session(api: Api) -> None:
    session = await api.session(api.SESSION_TRANSACTED)
    with pytest.raises(IllegalStateException):
        await session.recover()


async def test_ack_13_ord_07_order_after_recover(api: Api) -> None:
    """The redelivered ones are in front of what was not delivered yet; higher priority comes first all the same."""
    await api.fill("orders", "one", "two", "three")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 2)
    async with await api.factory().create_context() as context:
        await context.create_producer().set_priority(9).send(api.queue(), "urgent")
    await session.recover()
    assert await api.outlines(consumer, 4) == [
        ("urgent", False, 1),
        ("one", True, 2),
        ("two", True, 2),
        ("three", False, 1),
    ]


async def test_ack_13_exp_05_an_expired_message_is_not_redelivered(api: Api) -> None:
    broker = api.start_broker()
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    producer = await session.create_producer(api.queue())
    await producer.send(TextMessage("short"), time_to_live=60_000)
    await producer.send(TextMessage("long"))
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 2) == ["short", "long"]
    await broker.clock.advance(seconds=61)
    await session.recover()
    assert await api.outlines(consumer, 1) == [("long", True, 2)]


async def test_ack_14_buffered_messages_are_not_marked_redelivered(api: Api) -> None:
    await api.fill("orders", "one", "two", "three")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 1)
    await session.recover()
    assert await api.outlines(consumer, 3) == [("one", True, 2), ("two", False, 1), ("three", False, 1)]


@pytest.mark.parametrize("mode", [Api.CLIENT_ACKNOWLEDGE, Api.SESSION_TRANSACTED])
@pytest.mark.parametrize("closed", ["session", "connection"])
async def test_ack_15_clo_02_closing_returns_unacknowledged_messages(api: Api, mode: int, closed: str) -> None:
    await api.fill("orders", "one", "two", "three")
    connection = await api.connect()
    session = await connection.create_session(mode)
    await api.texts(await session.create_consumer(api.queue()), 2)
    await {"session": session, "connection": connection}[closed].close()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 3) == [("one", True, 2), ("two", True, 2), ("three", False, 1)]


async def test_ack_16_a_durable_subscription_keeps_unacknowledged_messages(api: Api) -> None:
    connection = await api.connect(client_id="me")
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_durable_consumer(api.topic(), "mine")
    await api.fill(api.topic(), "one", "two")
    await api.texts(consumer, 1)
    await connection.close()
    session = await api.session(client_id="me")
    consumer = await session.create_durable_consumer(api.topic(), "mine")
    assert await api.outlines(consumer, 2) == [("one", True, 2), ("two", False, 1)]


async def test_ack_17_a_non_durable_subscription_is_deleted_with_its_messages(api: Api) -> None:
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.topic())
    await api.fill(api.topic(), "one", "two")
    await api.texts(consumer, 1)
    await session.close()
    consumer = await (await api.session()).create_consumer(api.topic())
    assert await consumer.receive_no_wait() is None


@pytest.mark.parametrize("mode", [Api.CLIENT_ACKNOWLEDGE, Api.SESSION_TRANSACTED])
async def test_ack_18_a_lost_connection_returns_messages(api: Api, mode: int) -> None:
    """Marked where delivery may have happened, and only the broker can tell: so all that were on their way."""
    broker = api.start_broker()
    await api.fill("orders", "one", "two")
    consumer = await (await api.session(mode, prefetch=1, reconnect=0)).create_consumer(api.queue())
    await api.texts(consumer, 1)
    broker.drop_connections()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 1) == [("one", True, 2)]
    assert await api.texts(again, 1) == ["two"]


async def test_ack_19_mco_09_a_closed_consumers_messages_stay_with_the_session(api: Api) -> None:
    """They can be acknowledged, and nobody else gets them meanwhile."""
    await api.fill("orders", "one", "two", "three")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    message = await consumer.receive(SOON)
    await api.texts(consumer, 1)
    await consumer.close()
    other = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(other, 1) == [("three", False, 1)]
    assert await other.receive_no_wait() is None
    await message.acknowledge()
    await session.close()
    assert await other.receive_no_wait() is None


async def test_ack_20_recover_after_the_consumer_was_closed(api: Api) -> None:
    await api.fill("orders", "one", "two")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 1)
    await consumer.close()
    await session.recover()
    other = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(other, 2) == [("one", True, 2), ("two", False, 1)]


async def test_ack_21_jsx_01_a_first_delivery_is_not_marked(api: Api) -> None:
    await api.fill("orders", "one")
    await api.fill("orders", "two")
    consumer = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(consumer, 2) == [("one", False, 1), ("two", False, 1)]


async def test_ack_23_d_22_a_message_that_is_never_handled_becomes_a_dead_letter(api: Api) -> None:
    """After 6 deliveries by default; the others are not held up by it."""
    await api.fill("orders", "poison")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    for count in range(1, 7):
        assert await api.outlines(consumer, 1) == [("poison", count > 1, count)]
        await session.recover()
    await api.fill("orders", "good")
    assert await api.outlines(consumer, 1) == [("good", False, 1)]
    dead = await (await api.session()).create_consumer(api.queue("DLQ.orders"))
    letter = await dead.receive(SOON)
    assert text(letter) == "poison"
    assert letter.get_object_property("JMS_SieveMQ_DeadLetterAttempts") == 6
    assert letter.get_string_property("JMS_SieveMQ_DeadLetterOrigin") == "queue:orders"


async def test_msg_18_redelivery_is_the_original(api: Api) -> None:
    """Whatever the consumer did to its copy."""
    await api.fill("orders", "one", region="EU")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    message = await consumer.receive(SOON)
    message.clear_body()
    message.set_text("spoilt")
    message.clear_properties()
    message.set_string_property("region", "US")
    message.set_jms_type("spoilt")
    await session.recover()
    again = await consumer.receive(SOON)
    assert outline(again) == ("one", True, 2)
    assert again.get_string_property("region") == "EU"
    assert again.get_jms_type() is None


async def test_thr_06_no_recover_while_another_receives(api: Api) -> None:
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive())
    await api.until_receiving(consumer)
    with pytest.raises(IllegalStateException):
        await session.recover()
    await api.fill("orders", "one")
    assert text(await receiving) == "one"


async def test_ctx_11_a_contexts_recover(api: Api) -> None:
    await api.fill("orders", "one")
    context = await api.context(api.CLIENT_ACKNOWLEDGE)
    consumer = await context.create_consumer(api.queue())
    await api.texts(consumer, 1)
    await context.recover()
    assert await api.outlines(consumer, 1) == [("one", True, 2)]
