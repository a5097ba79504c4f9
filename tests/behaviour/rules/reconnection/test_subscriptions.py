"""Subscriptions, client ids and temporary destinations outlive an outage (D-32)."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, text
from tests.client.relay import Relay

from sievemq import IllegalStateException, InvalidClientIDException, InvalidDestinationException, TextMessage

from .outage import begin_outage, connect, lose


async def test_durable_shared_and_selective_subscriptions_are_reopened(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, client_id="me")
    session = await connection.create_session()
    consumers = [
        await session.create_durable_consumer(api.topic(), "durable", "n > 1"),
        await session.create_shared_durable_consumer(api.topic(), "shared"),
        await session.create_shared_consumer(api.topic(), "brief"),
        await session.create_consumer(api.topic()),
    ]
    await lose(api, relay, connection)
    assert connection.get_client_id() == "me"
    await connection.create_session()  # everything before it is open again
    await api.fill(api.topic(), "x", n=2)
    assert [text(await consumer.receive(SOON)) for consumer in consumers] == ["x"] * 4


async def test_ses_21_no_local_holds_over_an_outage(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    consumer = await session.create_consumer(api.topic(), None, True)
    producer = await session.create_producer(api.topic())
    relay.cut()
    await producer.send(TextMessage("own"))
    await api.fill(api.topic(), "foreign")
    assert text(await consumer.receive(SOON)) == "foreign"


async def test_con_05_a_client_id_in_use_after_the_outage(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay, client_id="me")
    hooks = await begin_outage(api, relay, connection)
    await _claim(api, "me")
    relay.accept()
    await hooks.failed.wait()
    assert isinstance(hooks.errors[-1], InvalidClientIDException)


async def _claim(api: Api, client_id: str) -> None:
    """Take a client id as soon as the broker has seen that its holder is gone."""
    for _ in range(1_000):
        try:
            await api.connect(client_id=client_id)
        except InvalidClientIDException:
            continue
        return
    raise AssertionError("the id was never free")


async def test_tmp_05_temporary_destinations_stay_and_keep_their_messages(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session()
    reply = await session.create_temporary_queue()
    consumer = await session.create_consumer(reply)
    await begin_outage(api, relay, connection)
    await api.fill(reply, "answer")
    relay.accept()
    assert text(await consumer.receive(SOON)) == "answer"
    await consumer.close()
    await reply.delete()
    with pytest.raises(InvalidDestinationException):
        await api.fill(reply, "too late")


async def test_a_consumer_of_a_queue_deleted_during_the_outage(api: Api, relay: Relay) -> None:
    """A temporary topic, so that nothing makes it anew."""
    connection = await connect(api, relay)
    session = await connection.create_session()
    gone = await session.create_temporary_topic()
    consumer = await session.create_consumer(gone)
    hooks = await begin_outage(api, relay, connection)
    api.broker.call(lambda domain: domain.namespace(api.namespace).delete(str(gone)))
    relay.accept()
    await hooks.failed.wait()
    assert isinstance(hooks.errors[-1], InvalidDestinationException)
    with pytest.raises(IllegalStateException):
        await consumer.receive(SOON)
    await connection.create_session()  # the connection lives
