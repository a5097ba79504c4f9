"""The broker that is found after an outage knows nothing of the one before it (D-32)."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, text
from tests.client.relay import Relay, options

from sievemq import TextMessage, TransactionRolledBackException
from sievemq_broker import EmbeddedBroker

from .outage import Hooks


async def test_the_next_host_of_the_url_takes_over(api: Api) -> None:
    """Two brokers that know nothing of each other: the second begins empty."""
    first, second = api.broker, EmbeddedBroker().start()
    api._own.append(second)
    with Relay(first.port) as relay:
        url = f"sievemq://127.0.0.1:{relay.port},127.0.0.1:{second.port}/{api.namespace}"
        connection = await api.factory(url, **options()).create_connection()
        api._closeables.append(connection)
        await connection.start()
        session = await connection.create_session()
        temporary = await session.create_temporary_queue()
        consumer = await session.create_consumer(temporary)
        relay.refuse()
        relay.cut()
        await (await session.create_producer(temporary)).send(TextMessage("there"))
        assert text(await consumer.receive(SOON)) == "there"
        assert second.call(lambda domain: domain.namespace(api.namespace).find(str(temporary))) is not None


async def test_a_broker_restarted_without_its_memory(api: Api, port: int) -> None:
    first = EmbeddedBroker(port=port).start()
    connection = await api.factory(first.url, **options()).create_connection()
    api._closeables.append(connection)
    await connection.start()
    hooks = Hooks(api)
    connection.set_exception_listener(hooks)
    session = await connection.create_session()
    transacted = await connection.create_session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.topic())
    reply = await session.create_temporary_queue()
    at_reply = await session.create_consumer(reply)
    producer = await session.create_producer()
    for _ in range(3):
        await producer.send(api.queue("lost"), TextMessage("x"))
    await (await transacted.create_producer(api.queue())).send(TextMessage("in a transaction"))
    first.stop()
    await hooks.lost.wait()
    second = EmbeddedBroker(port=port).start()
    api._own.append(second)
    await hooks.restored.wait()
    await producer.send(api.topic(), TextMessage("news"))
    await producer.send(reply, TextMessage("reply"))
    assert text(await consumer.receive(SOON)) == "news"
    assert text(await at_reply.receive(SOON)) == "reply"
    with pytest.raises(TransactionRolledBackException):
        await transacted.commit()
    assert "exception" not in hooks.heard
