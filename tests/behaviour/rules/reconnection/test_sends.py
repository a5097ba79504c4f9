"""Sends over an outage: none lost, none doubled, in order (D-32)."""

from __future__ import annotations

from tests.client.both import Api
from tests.client.relay import Relay

from sievemq import TextMessage

from .outage import begin_outage, connect


async def test_d_32_a_send_whose_confirm_is_lost_arrives_once(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    await producer.send(TextMessage("first"))
    sending = [api.task(producer.send(TextMessage("second")))]
    relay.cut()
    for task in sending:
        await task
    await producer.send(TextMessage("third"))
    assert await api.left() == ["first", "second", "third"]


async def test_d_32_sends_during_an_outage_arrive_in_order(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    fates = api.completions()
    await begin_outage(api, relay, connection)
    for number in range(5):
        await producer.send(TextMessage(f"async {number}"), completion_listener=fates)
        await producer.send(TextMessage(f"loose {number}"), delivery_mode=1)
    relay.accept()
    await producer.send(TextMessage("last"))
    outcomes = await fates.arrived(5)
    assert [error for _, error in outcomes] == [None] * 5
    expected = [f"{kind} {number}" for number in range(5) for kind in ("async", "loose")]
    assert await api.left() == [*expected, "last"]


async def test_d_32_message_ids_stay_unique(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    ids = []
    for _ in range(4):
        message = TextMessage("x")
        await producer.send(message)
        ids.append(message.get_jms_message_id())
        relay.cut()
    assert len(set(ids)) == 4
    assert len({message_id.rpartition(":")[0] for message_id in ids}) == 1
