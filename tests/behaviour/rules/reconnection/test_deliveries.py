"""Consumers over an outage: what comes again, marked or not (ACK-15, ACK-18, ACK-24, D-32)."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, outline, text
from tests.client.relay import Relay

from sievemq import JMSException

from .outage import begin_outage, connect, lose


async def test_ack_18_d_32_received_messages_are_redelivered_marked_and_the_rest_unmarked(
    api: Api, relay: Relay
) -> None:
    await api.fill("orders", "a", "b", "c")
    connection = await connect(api, relay)
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    assert outline(await consumer.receive(SOON)) == ("a", False, 1)
    await lose(api, relay, connection)
    assert await api.outlines(consumer, 3) == [("a", True, 2), ("b", False, 1), ("c", False, 1)]


async def test_ack_18_messages_of_a_lost_connection_cannot_be_acknowledged(api: Api, relay: Relay) -> None:
    await api.fill("orders", "a", "b")
    connection = await connect(api, relay)
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    first = await consumer.receive(SOON)
    await lose(api, relay, connection)
    again = await consumer.receive(SOON)
    with pytest.raises(JMSException, match="redelivered") as caught:
        await first.acknowledge()
    assert caught.value.get_error_code() == "CONNECTION_LOST"
    assert outline(again) == ("a", True, 2)
    await again.acknowledge()  # from here on it counts
    assert text(await consumer.receive(SOON)) == "b"
    await connection.close()
    assert await api.left() == ["b"]


async def test_ack_24_auto_acknowledged_messages_are_not_redelivered_unmarked(api: Api, relay: Relay) -> None:
    await api.fill("orders", *(f"{n}" for n in range(20)))
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    seen = []
    while (message := await consumer.receive_no_wait()) is not None:
        seen.append(outline(message))
        if len(seen) in (5, 11):
            relay.cut()
    unmarked = [body for body, redelivered, _ in seen if not redelivered]
    assert len(unmarked) == len(set(unmarked))
    assert {body for body, _, _ in seen} == {f"{n}" for n in range(20)}
    assert await api.left() == []


async def test_listeners_continue_after_a_reconnection(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    listener = api.listener()
    consumer = await session.create_consumer(api.queue(), "color = 'red'")
    consumer.set_message_listener(listener)
    for number in range(4):
        relay.cut()
        await api.fill("orders", f"{number}", color="red")
        await api.fill("orders", "no", color="blue")
        await listener.arrived(number + 1)
    assert set(listener.texts) == {"0", "1", "2", "3"}


async def test_a_receive_waits_over_an_outage_and_its_timeout_counts(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive(SOON))
    await api.until_receiving(consumer)
    hooks = await begin_outage(api, relay, connection)
    await api.fill("orders", "x")
    relay.accept()
    assert text(await receiving) == "x"
    hooks.lost, hooks.restored = api.signal(), api.signal()
    relay.refuse()
    relay.cut()
    await hooks.lost.wait()
    assert await consumer.receive(1) is None
    relay.accept()


async def test_receive_no_wait_waits_for_the_reconnection(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    await begin_outage(api, relay, connection)
    await api.fill("orders", "x")
    asking = api.task(consumer.receive_no_wait())
    relay.accept()
    assert text(await asking) == "x"


async def test_recover_over_an_outage(api: Api, relay: Relay) -> None:
    await api.fill("orders", "a", "b")
    connection = await connect(api, relay)
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 1) == ["a"]
    relay.cut()
    await session.recover()
    assert [outline(await consumer.receive(SOON))[:2] for _ in range(2)] == [("a", True), ("b", False)]
    await session._acknowledge()
    await connection.close()
    assert await api.left() == []


async def test_stopped_stays_stopped(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    await connection.stop()
    await lose(api, relay, connection)
    await api.fill("orders", "x")
    assert await consumer.receive_no_wait() is None
    assert await api.left() == ["x"]
    await connection.start()
    assert text(await consumer.receive(SOON)) == "x"


async def test_prefetch_of_none_over_an_outage(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, prefetch=0)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive(SOON))
    await api.until_receiving(consumer)
    relay.cut()
    await api.fill("orders", "x")
    assert text(await receiving) == "x"


async def test_a_browser_continues_after_a_reconnection(api: Api, relay: Relay) -> None:
    await api.fill("orders", *(f"{n}" for n in range(250)))
    connection = await connect(api, relay)
    session = await connection.create_session()
    browser = await session.create_browser(api.queue())
    shown = []
    async for message in browser:
        shown.append(text(message))
        if len(shown) in (50, 150):
            relay.cut()
    assert shown == [f"{n}" for n in range(250)]


async def test_ack_15_messages_received_since_the_loss_are_redelivered_if_not_acknowledged(
    api: Api, relay: Relay
) -> None:
    await api.fill("orders", "a", "b")
    connection = await connect(api, relay)
    session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 1) == ["a"]
    await lose(api, relay, connection)
    assert await api.outlines(consumer, 2) == [("a", True, 2), ("b", False, 1)]
    with pytest.raises(JMSException, match="redelivered"):
        await session._acknowledge()
    await consumer.close()
    await connection.close()
    other = await (await api.connect()).create_session()
    again = await other.create_consumer(api.queue())
    assert await api.outlines(again, 2) == [("a", True, 3), ("b", True, 2)]
