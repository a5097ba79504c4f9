"""The domain-specific names of JMS 1.0.2 (section 35 of the API map, §9.2)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.both import SOON, Api, text

import sievemq
import sievemq.aio
from sievemq import IllegalStateException, InvalidDestinationException, JMSSecurityException, TextMessage


def kind_of(api: Api, name: str) -> type[Any]:
    """The class of that name in the API under test."""
    return getattr(sievemq if api.world == "blocking" else sievemq.aio, name)  # type: ignore[no-any-return]


def real(thing: Any) -> Any:
    return getattr(thing, "_object", thing)


async def queue_session(api: Api) -> Any:
    factory = api._world(sievemq.aio.QueueConnectionFactory, api.url)
    connection = await factory.create_queue_connection()
    api._closeables.append(connection)
    await connection.start()
    assert isinstance(real(connection), kind_of(api, "QueueConnection"))
    return await connection.create_queue_session(False, api.AUTO_ACKNOWLEDGE)


async def topic_session(api: Api, **options: Any) -> Any:
    factory = api._world(sievemq.aio.TopicConnectionFactory, api.url, **options)
    connection = await factory.create_topic_connection()
    api._closeables.append(connection)
    await connection.start()
    assert isinstance(real(connection), kind_of(api, "TopicConnection"))
    return await connection.create_topic_session(False, api.AUTO_ACKNOWLEDGE)


async def test_point_to_point(api: Api) -> None:
    session = await queue_session(api)
    queue = session.create_queue("orders")
    sender, anybodys = await session.create_sender(queue), await session.create_sender()
    for thing, name in ((session, "QueueSession"), (sender, "QueueSender")):
        assert type(real(thing)) is kind_of(api, name)
    assert (sender.get_queue(), anybodys.get_queue()) == (queue, None)
    receiver = await session.create_receiver(queue, "n = 1")
    assert type(real(receiver)) is kind_of(api, "QueueReceiver")
    assert (receiver.get_queue(), receiver.get_message_selector()) == (queue, "n = 1")
    for number in range(2):
        message = session.create_text_message(str(number))
        message.set_int_property("n", number)
        await sender.send(message)
    await anybodys.send(queue, TextMessage("named"))
    assert text(await receiver.receive(SOON)) == "1"
    browser = await session.create_browser(queue)
    assert [text(message) async for message in browser] == ["0", "named"]
    temporary = await session.create_temporary_queue()
    assert temporary.get_queue_name()


async def test_publish_and_subscribe(api: Api) -> None:
    session = await topic_session(api, client_id="me")
    topic = session.create_topic("prices")
    publisher, anybodys = await session.create_publisher(topic), await session.create_publisher()
    for thing, name in ((session, "TopicSession"), (publisher, "TopicPublisher")):
        assert type(real(thing)) is kind_of(api, name)
    assert (publisher.get_topic(), anybodys.get_topic()) == (topic, None)
    subscriber = await session.create_subscriber(topic)
    others = await session.create_subscriber(topic, "JMSPriority >= 1", True)
    assert type(real(subscriber)) is kind_of(api, "TopicSubscriber")
    assert (subscriber.get_topic(), subscriber.get_no_local(), others.get_no_local()) == (topic, False, True)
    durable = await session.create_durable_subscriber(topic, "d")
    message = TextMessage("one")
    await publisher.publish(message, delivery_mode=1, priority=7)
    assert message.get_jms_priority() == 7
    await anybodys.publish(topic, TextMessage("two"))
    for consumer in (subscriber, durable):
        assert await api.texts(consumer, 2) == ["one", "two"]
    assert await others.receive_no_wait() is None
    await durable.close()
    await session.unsubscribe("d")
    await session.create_temporary_topic()


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("create_topic", ["t"]),
        ("create_temporary_topic", []),
        ("create_shared_consumer", [sievemq.Topic("t"), "s"]),
        ("create_durable_subscriber", [sievemq.Topic("t"), "s"]),
        ("create_durable_consumer", [sievemq.Topic("t"), "s"]),
        ("create_shared_durable_consumer", [sievemq.Topic("t"), "s"]),
        ("unsubscribe", ["s"]),
    ],
)
async def test_exc_02_a_queue_session_has_no_methods_of_topics(api: Api, method: str, arguments: list[Any]) -> None:
    session = await queue_session(api)
    with pytest.raises(IllegalStateException, match=method):
        await maybe(getattr(session, method)(*arguments))


@pytest.mark.parametrize(
    ("method", "arguments"),
    [("create_queue", ["q"]), ("create_temporary_queue", []), ("create_browser", [sievemq.Queue("q")])],
)
async def test_exc_02_a_topic_session_has_no_methods_of_queues(api: Api, method: str, arguments: list[Any]) -> None:
    session = await topic_session(api)
    with pytest.raises(IllegalStateException, match=method):
        await maybe(getattr(session, method)(*arguments))


async def maybe(result: Any) -> Any:
    return await result if hasattr(result, "__await__") else result


async def test_destinations_of_the_other_domain_are_refused(api: Api) -> None:
    queues, topics = await queue_session(api), await topic_session(api)
    for call, argument in (
        (queues.create_receiver, api.topic()),
        (queues.create_receiver, None),
        (queues.create_sender, api.topic()),
        (topics.create_subscriber, api.queue()),
        (topics.create_subscriber, None),
        (topics.create_publisher, api.queue()),
    ):
        with pytest.raises(InvalidDestinationException):
            await call(argument)


async def test_con_03_transacted_and_closed_sessions(api: Api) -> None:
    connection = await api._world(sievemq.aio.QueueConnectionFactory, api.url).create_queue_connection()
    api._closeables.append(connection)
    session = await connection.create_queue_session(True, api.CLIENT_ACKNOWLEDGE)
    assert session.get_transacted()
    await (await session.create_sender(api.queue())).send(TextMessage("staged"))
    assert await api.left() == []
    await session.commit()
    assert await api.left() == ["staged"]
    await connection.close()
    for call in (
        lambda: session.create_receiver(api.queue()),
        session.create_sender,
        session.create_temporary_topic,
    ):
        with pytest.raises(IllegalStateException):
            await call()


async def test_fac_02_credentials(api: Api) -> None:
    broker = api.start_broker(users={"ann": "secret"})
    factory = api._world(sievemq.aio.TopicConnectionFactory, broker.url)
    await (await factory.create_topic_connection("ann", "secret")).close()
    with pytest.raises(JMSSecurityException):
        await factory.create_topic_connection("ann", "wrong")
