"""Expiry and administered values (sections 20 and 27 of the API map)."""

from __future__ import annotations

from tests.client.both import SOON, Api, text

from sievemq import Message, TextMessage
from sievemq_broker.domain import DestinationPolicy


async def test_exp_04_an_expiry_is_not_reported(api: Api) -> None:
    broker = api.start_broker()
    connection = await api.connect()
    heard: list[Exception] = []
    connection.set_exception_listener(heard.append)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    completions = api.completions()
    await producer.send(TextMessage("short"), time_to_live=1_000, completion_listener=completions)
    await completions.arrived(1)
    await broker.clock.advance(seconds=2)
    assert await (await session.create_consumer(api.queue())).receive_no_wait() is None
    assert await api.left("DLQ.queue:orders") == await api.left("DLQ.orders") == []
    await session.close()
    assert [error for _, error in completions.outcomes] == [None]
    assert heard == []


async def test_hdr_20_dif_10_administered_values_win_and_show(api: Api) -> None:
    """D-21: delivery mode, priority, time to live and delay, each for the destinations that a pattern names."""
    broker = api.start_broker(
        settings={
            "destinations": {
                "queue:ruled.*": DestinationPolicy(delivery_mode=1, priority=9, time_to_live=60_000, delay=5_000),
                "queue:forever": DestinationPolicy(time_to_live=0),
                "topic:ruled": DestinationPolicy(priority=0),
            }
        }
    )
    session = await api.session()
    producer = await session.create_producer()

    async def send(destination: object, name: str) -> None:
        await producer.send(destination, TextMessage(name), delivery_mode=2, priority=3, time_to_live=1_000_000)

    async def received(consumer: object, name: str) -> Message:
        message = await consumer.receive(SOON)  # type: ignore[attr-defined]
        assert text(message) == name
        assert isinstance(message, Message)
        return message

    ruled = await session.create_consumer(api.queue("ruled.one"))
    topic = await session.create_consumer(api.topic("ruled"))
    await send(api.queue("ruled.one"), "late")
    assert await ruled.receive_no_wait() is None
    await broker.clock.advance(seconds=5)
    message = await received(ruled, "late")
    assert (message.get_jms_delivery_mode(), message.get_jms_priority()) == (1, 9)
    assert message.get_jms_expiration() == message.get_jms_timestamp() + 60_000
    assert message.get_jms_delivery_time() == message.get_jms_timestamp() + 5_000

    await send(api.queue("forever"), "kept")
    message = await received(await session.create_consumer(api.queue("forever")), "kept")
    assert (message.get_jms_expiration(), message.get_jms_priority()) == (0, 3)

    await send(api.topic("ruled"), "low")
    message = await received(topic, "low")
    assert message.get_jms_priority() == 0
    assert message.get_jms_expiration() == message.get_jms_timestamp() + 1_000_000

    await send(api.queue("free"), "as sent")
    message = await received(await session.create_consumer(api.queue("free")), "as sent")
    assert (message.get_jms_delivery_mode(), message.get_jms_priority()) == (2, 3)


async def test_exp_02_exp_11_times_count_from_the_send_call(api: Api) -> None:
    """Not from commit, and not from delivery: a life that ends before the commit means never."""
    broker = api.start_broker()
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    await producer.send(TextMessage("dies first"), time_to_live=60_000)
    await producer.send(TextMessage("lives"), time_to_live=3_600_000)
    producer.set_delivery_delay(60_000)
    await producer.send(TextMessage("was delayed"))
    await broker.clock.advance(seconds=90)
    await session.commit()
    consumer = await (await api.session()).create_consumer(api.queue())
    assert await api.texts(consumer, 2) == ["lives", "was delayed"]
    assert await consumer.receive_no_wait() is None


async def test_exp_07_exp_08_exp_09_a_delayed_message_reaches_the_subscriptions_of_its_send(api: Api) -> None:
    """A topic's to the subscriptions that existed at the send, a queue's to whoever consumes then."""
    broker = api.start_broker()
    session = await api.session()
    before = await session.create_consumer(api.topic())
    gone = await session.create_consumer(api.topic())
    producer = await session.create_producer()
    producer.set_delivery_delay(60_000)
    await producer.send(api.topic(), TextMessage("delayed"))
    await producer.send(api.queue(), TextMessage("queued"))
    await gone.close()
    after = await session.create_consumer(api.topic())
    assert await before.receive_no_wait() is None
    assert await api.left() == []
    await broker.clock.advance(seconds=30)
    assert await before.receive_no_wait() is None
    await broker.clock.advance(seconds=31)
    assert text(await before.receive(SOON)) == "delayed"
    assert await after.receive_no_wait() is None
    assert text(await (await session.create_consumer(api.queue())).receive(SOON)) == "queued"


async def test_exp_10_a_message_that_expires_within_its_delay_is_never_delivered(api: Api) -> None:
    broker = api.start_broker()
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    producer = await session.create_producer(api.queue())
    producer.set_delivery_delay(60_000)
    await producer.send(TextMessage("never"), time_to_live=30_000)
    await producer.send(TextMessage("just"), time_to_live=90_000)
    await broker.clock.advance(seconds=61)
    assert await api.texts(consumer, 1) == ["just"]
    assert await consumer.receive_no_wait() is None
