"""MessageConsumer (section 13 of the API map, §8)."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, outline, text

from sievemq import IllegalStateException, Message, Topic


@pytest.mark.parametrize(("given", "shown"), [(None, None), ("", None), ("region = 'EU'", "region = 'EU'")])
async def test_mco_01_ses_22_the_selector(api: Api, given: str | None, shown: str | None) -> None:
    session = await api.session()
    assert (await session.create_consumer(api.queue(), given)).get_message_selector() == shown
    context = await api.context()
    assert (await context.create_consumer(api.queue(), given)).get_message_selector() == shown


async def test_mco_03_receive_waits_for_a_message(api: Api) -> None:
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive())
    await api.until_receiving(consumer)
    assert not receiving.done()
    await api.fill("orders", "one")
    assert text(await receiving) == "one"


async def test_mco_04_timeouts(api: Api) -> None:
    """0 is no timeout; in time there is a message, else None; negative ones are refused."""
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    assert await consumer.receive(1) is None
    receiving = api.task(consumer.receive(0))
    await api.until_receiving(consumer)
    await api.fill("orders", "one", "two")
    assert text(await receiving) == "one"
    assert text(await consumer.receive(2**62)) == "two"  # longer than a clock counts
    for timeout in (-1, -1000, 0.5, 5.0, "5", True):  # half a second is 500 (PY-05)
        with pytest.raises(ValueError, match=r"an int of milliseconds|cannot be negative"):
            await consumer.receive(timeout)


async def test_mco_05_receive_no_wait_asks_the_broker(api: Api) -> None:
    """A message that is there is received, although it has not come to the client yet."""
    session = await api.session(prefetch=0)
    consumer = await session.create_consumer(api.queue())
    assert await consumer.receive_no_wait() is None
    await api.fill("orders", "one", "two")
    assert [text(await consumer.receive_no_wait()) for _ in range(2)] == ["one", "two"]
    assert await consumer.receive_no_wait() is None


async def test_mco_06_con_17_a_stopped_connection(api: Api) -> None:
    connection = await api.connect(start=False)
    consumer = await (await connection.create_session()).create_consumer(api.queue())
    await api.fill("orders", "one")
    assert await consumer.receive_no_wait() is None
    assert await consumer.receive(1) is None
    receiving = api.task(consumer.receive())
    await api.until_receiving(consumer)
    await connection.start()
    assert text(await receiving) == "one"
    await connection.stop()
    await api.fill("orders", "two")
    assert await consumer.receive_no_wait() is None
    await connection.start()
    assert await api.texts(consumer, 1) == ["two"]


@pytest.mark.parametrize("closed", ["consumer", "session", "connection"])
async def test_mco_07_clo_06_clo_07_closing_ends_a_receive(api: Api, closed: str) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive())
    await api.until_receiving(consumer)
    await {"consumer": consumer, "session": session, "connection": connection}[closed].close()
    assert await receiving is None


async def test_mco_07_clo_01_close_is_idempotent(api: Api) -> None:
    consumer = await (await api.session()).create_consumer(api.queue())
    await consumer.close()
    await consumer.close()
    context = await api.context()
    consumer = await context.create_consumer(api.queue())
    await consumer.close()
    await consumer.close()


@pytest.mark.parametrize("after", ["acknowledge", "recover", "close"])
async def test_mco_09_ack_19_closing_keeps_delivered_messages_unacknowledged(api: Api, after: str) -> None:
    await api.fill("orders", "one")
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    message = await consumer.receive(SOON)
    await consumer.close()
    if after == "acknowledge":
        await message.acknowledge()
    elif after == "recover":
        await session.recover()
    await session.close()
    again = await (await api.session()).create_consumer(api.queue())
    if after == "acknowledge":
        assert await again.receive_no_wait() is None
    else:
        assert await api.outlines(again, 1) == [("one", True, 2)]


async def test_mco_10_clo_04_buffered_messages_return_unmarked(api: Api) -> None:
    await api.fill("orders", *map(str, range(10)))
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 3) == ["0", "1", "2"]
    await consumer.close()
    again = await session.create_consumer(api.queue())
    assert await api.outlines(again, 7) == [(str(number), False, 1) for number in range(3, 10)]


async def test_mco_11_clo_18_a_closed_consumer(api: Api) -> None:
    connection = await api.connect()
    for close in ("consumer", "session", "connection"):
        session = await connection.create_session()
        queues = await session.create_consumer(api.queue())
        topics = await session.create_consumer(Topic("prices"))
        closing = {"consumer": [queues, topics], "session": [session], "connection": [connection]}[close]
        for each in closing:
            await each.close()
        for consumer in (queues, topics):
            for wait in (consumer.receive, lambda c=consumer: c.receive(1), consumer.receive_no_wait):
                with pytest.raises(IllegalStateException):
                    await wait()
            with pytest.raises(IllegalStateException):
                consumer.get_message_selector()
            with pytest.raises(IllegalStateException):
                consumer.get_message_listener()
            with pytest.raises(IllegalStateException):
                consumer.set_message_listener(None)
        for getter in (queues.get_queue, topics.get_topic, topics.get_no_local):
            with pytest.raises(IllegalStateException):
                getter()


async def test_mco_12_no_receive_beside_a_listener_of_the_session(api: Api) -> None:
    session = await api.session()
    listening = await session.create_consumer(api.queue())
    other = await session.create_consumer(api.queue("other"))
    listening.set_message_listener(api.listener())
    for consumer in (listening, other):
        for receive in (consumer.receive, consumer.receive_no_wait):
            with pytest.raises(IllegalStateException):
                await receive()
    listening.set_message_listener(None)
    await api.fill("other", "one")
    assert await api.texts(other, 1) == ["one"]


async def test_mco_13_thr_06_one_receive_at_a_time_in_a_session(api: Api) -> None:
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    other = await session.create_consumer(api.queue("other"))
    receiving = api.task(consumer.receive())
    await api.until_receiving(consumer)
    for second in (consumer, other):
        for receive in (second.receive, second.receive_no_wait):
            with pytest.raises(IllegalStateException):
                await receive()
    await api.fill("orders", "one")
    assert text(await receiving) == "one"


async def test_mco_14_d_23_an_idle_buffer_does_not_starve_other_consumers(api: Api) -> None:
    """The first consumer has them all in its buffer and never asks; the second gets them all, unmarked."""
    await api.fill("orders", *map(str, range(10)))
    await (await api.session()).create_consumer(api.queue())
    second = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(second, 10) == [(str(number), False, 1) for number in range(10)]


async def test_mco_14_sub_07_a_shared_subscription_likewise(api: Api) -> None:
    first = await (await api.session()).create_shared_consumer(api.topic(), "shared")
    second = await (await api.session()).create_shared_consumer(api.topic(), "shared")
    await api.fill(api.topic(), *map(str, range(10)))
    got = await api.texts(second, 9)
    got += await api.texts(first, 1)
    assert sorted(got, key=str) == [str(number) for number in range(10)]
    assert await first.receive_no_wait() is None
    assert await second.receive_no_wait() is None


async def test_mco_14_each_message_goes_to_one(api: Api) -> None:
    await api.fill("orders", *map(str, range(20)))
    consumers = [await (await api.session()).create_consumer(api.queue()) for _ in range(2)]
    got: list[str | None] = []
    for _ in range(10):
        for consumer in consumers:
            got += await api.texts(consumer, 1)
    assert sorted(got, key=str) == sorted(map(str, range(20)))
    for consumer in consumers:
        assert await consumer.receive_no_wait() is None


async def test_py_03_iteration_receives_until_the_consumer_is_closed(api: Api) -> None:
    await api.fill("orders", "one", "two")
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    got: list[Message] = []

    async def iterate() -> None:
        async for message in consumer:
            got.append(message)

    iterating = api.task(iterate())
    await api.until_receiving(consumer)
    await consumer.close()
    await iterating
    assert [outline(message) for message in got] == [("one", False, 1), ("two", False, 1)]
    assert [message async for message in consumer] == []


async def test_a_consumer_describes_its_destination(api: Api) -> None:
    session = await api.session()
    assert (await session.create_consumer(api.queue())).get_queue() == api.queue()
    topics = await session.create_consumer(api.topic(), None, True)
    assert topics.get_topic() == api.topic()
    assert topics.get_no_local()
