"""Session: what it makes (section 8 of the API map)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.both import SOON, Api, text

import sievemq
import sievemq.aio
from sievemq import (
    BytesMessage,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    MapMessage,
    Message,
    MessageNotReadableException,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    UnsupportedOperationError,
)


async def test_ses_01_a_message_without_a_body(api: Api) -> None:
    message = (await api.session()).create_message()
    assert type(message) is Message
    message.set_int_property("n", 1)
    assert message.get_int_property("n") == 1


async def test_ses_02_ses_03_text_messages(api: Api) -> None:
    session = await api.session()
    assert type(session.create_text_message()) is TextMessage
    assert session.create_text_message().get_text() is None
    assert session.create_text_message("hello").get_text() == "hello"


async def test_ses_04_ses_06_bytes_and_stream_messages_are_write_only(api: Api) -> None:
    session = await api.session()
    for message, kind in (
        (session.create_bytes_message(), BytesMessage),
        (session.create_stream_message(), StreamMessage),
    ):
        assert type(message) is kind
        with pytest.raises(MessageNotReadableException):
            message.read_byte()
        message.write_byte(7)
        message.reset()
        assert message.read_byte() == 7


async def test_ses_05_a_map_message_is_readable_and_writable(api: Api) -> None:
    message = (await api.session()).create_map_message()
    assert type(message) is MapMessage
    assert not message.item_exists("n")
    message.set_int("n", 1)
    assert message.get_int("n") == 1


async def test_ses_07_ses_08_object_messages_take_a_snapshot(api: Api) -> None:
    session = await api.session()
    assert type(session.create_object_message()) is ObjectMessage
    assert session.create_object_message().get_object() is None
    value = {"list": [1, 2]}
    message = session.create_object_message(value)
    value["list"].append(3)
    assert message.get_object() == {"list": [1, 2]}


async def test_ses_23_sub_02_a_shared_consumer(api: Api) -> None:
    session = await api.session()
    consumers = [await session.create_shared_consumer(api.topic(), "s") for _ in range(2)]
    await api.fill(api.topic(), "one", "two")
    received = [text(await consumer.receive_no_wait()) for consumer in consumers]
    assert sorted(received, key=str) == ["one", "two"]
    selecting = await session.create_shared_consumer(api.topic(), "selecting", "n = 1")
    assert selecting.get_message_selector() == "n = 1"
    with pytest.raises(InvalidDestinationException):
        await session.create_shared_consumer(None, "s")
    with pytest.raises(InvalidSelectorException):
        await session.create_shared_consumer(api.topic(), "bad", "n =")
    with pytest.raises(TypeError):
        await session.create_shared_consumer(api.topic(), "s", None, no_local=True)


@pytest.mark.parametrize("method", ["create_durable_subscriber", "create_durable_consumer"])
async def test_ses_24_ses_25_an_unshared_durable_consumer(api: Api, method: str) -> None:
    connection = await api.connect(client_id="me")
    session = await connection.create_session()
    consumer = await getattr(session, method)(api.topic(), "d", "n = 1", True)
    if method == "create_durable_subscriber":
        world = sievemq if api.world == "blocking" else sievemq.aio
        assert isinstance(getattr(consumer, "_object", consumer), world.TopicSubscriber)
        assert (consumer.get_topic(), consumer.get_no_local()) == (api.topic(), True)
    assert consumer.get_message_selector() == "n = 1"
    await consumer.close()
    await api.fill(api.topic(), "unselected")
    await api.fill(api.topic(), "selected", n=1)
    own = await session.create_producer(api.topic())
    message = TextMessage("own")
    message.set_int_property("n", 1)
    await own.send(message)
    again = await getattr(session, method)(api.topic(), "d", "n = 1", True)
    assert text(await again.receive(SOON)) == "selected"
    assert await again.receive_no_wait() is None
    with pytest.raises(InvalidDestinationException):
        await getattr(session, method)(None, "e")
    with pytest.raises(InvalidSelectorException):
        await getattr(session, method)(api.topic(), "e", "n =")
    anonymous = await api.session()
    with pytest.raises(IllegalStateException):
        await getattr(anonymous, method)(api.topic(), "d")


async def test_ses_26_sub_04_a_shared_durable_consumer(api: Api) -> None:
    session = await api.session()
    consumers = [await session.create_shared_durable_consumer(api.topic(), "d", "n > 0") for _ in range(2)]
    assert [consumer.get_message_selector() for consumer in consumers] == ["n > 0"] * 2
    for consumer in consumers:
        await consumer.close()
    await api.fill(api.topic(), "unselected")
    await api.fill(api.topic(), "kept", n=1)
    again = await session.create_shared_durable_consumer(api.topic(), "d", "n > 0")
    assert text(await again.receive(SOON)) == "kept"
    assert await again.receive_no_wait() is None
    with pytest.raises(InvalidDestinationException):
        await session.create_shared_durable_consumer(None, "d")
    with pytest.raises(InvalidSelectorException):
        await session.create_shared_durable_consumer(api.topic(), "e", "n =")
    await again.close()
    await session.unsubscribe("d")


@pytest.mark.parametrize("keywords", [{}, {"destination": None}, {"completion_listener": None}], ids=str)
async def test_py_14_absent_is_not_none(api: Api, keywords: dict[str, Any]) -> None:
    """PRO-14, PRO-16, PRO-24: an argument that is left out and one that is None have different consequences."""
    unidentified = await (await api.session()).create_producer()
    expected: type[Exception] = {
        "destination": InvalidDestinationException,
        "completion_listener": ValueError,
    }.get(next(iter(keywords), ""), UnsupportedOperationError)
    if "completion_listener" in keywords:
        keywords = {**keywords, "destination": api.queue()}
    with pytest.raises(expected):
        await unidentified.send(TextMessage("x"), **keywords)
    assert await api.left() == []


async def test_sub_34_every_kind_of_consumer_counts(api: Api) -> None:
    """SUB-11, SUB-25: MessageConsumer, TopicSubscriber and JMSConsumer keep a subscription active alike."""
    connection = await api.connect(client_id="me")
    session = await connection.create_session()
    for method in ("create_durable_subscriber", "create_durable_consumer"):
        active = await getattr(session, method)(api.topic(), "d")
        for again in ("create_durable_subscriber", "create_durable_consumer"):
            with pytest.raises(JMSException):
                await getattr(session, again)(api.topic(), "d")
        with pytest.raises(JMSException):
            await session.unsubscribe("d")
        await active.close()
    await session.unsubscribe("d")
    await connection.close()
    context = await api.context(client_id="me")
    active = await context.create_durable_consumer(api.topic(), "d")
    with pytest.raises(JMSException):
        await context.create_durable_consumer(api.topic(), "d")
    with pytest.raises(JMSException):
        await context.unsubscribe("d")
    await active.close()
    await context.unsubscribe("d")
    # A shared one, across clients and kinds (SUB-14, SUB-25).
    shared = await context.create_shared_durable_consumer(api.topic(), "s")
    with pytest.raises(JMSException):
        await context.unsubscribe("s")
    await shared.close()
    await context.unsubscribe("s")


async def test_ses_19_ses_33_consumers_of_other_types_than_destinations(api: Api) -> None:
    session, queue = await api.session(), api.queue()
    for wrong in (None, "orders", 7):
        with pytest.raises(InvalidDestinationException):
            await session.create_consumer(wrong)
    for create in (
        lambda: session.create_shared_consumer(queue, "s"),
        lambda: session.create_durable_consumer(queue, "s"),
        lambda: session.create_durable_subscriber(None, "s"),
        lambda: session.create_shared_durable_consumer(None, "s"),
        lambda: session.create_shared_consumer(None, "s"),
        lambda: session.create_browser(api.topic()),
        lambda: session.create_browser(None),
    ):
        with pytest.raises(InvalidDestinationException):
            await create()


async def test_sub_10_sub_29_names_of_subscriptions(api: Api) -> None:
    session, topic = await api.session(), api.topic()
    for create in (session.create_durable_consumer, session.create_durable_subscriber):
        for more in ((), ("a = 1", True)):
            with pytest.raises(IllegalStateException):  # SUB-10: the connection has no client id
                await create(topic, "s", *more)
    for name in (None, ""):
        for create in (session.create_shared_consumer, session.create_shared_durable_consumer):
            with pytest.raises(JMSException):
                await create(topic, name)
        with pytest.raises(InvalidDestinationException):
            await session.unsubscribe(name)
