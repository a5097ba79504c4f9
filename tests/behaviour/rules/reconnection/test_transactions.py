"""An outage rolls back the transaction it falls into, and no other (TXN-09, D-32)."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, outline
from tests.client.relay import Relay, options

from sievemq import TextMessage, TransactionRolledBackException, TransactionRolledBackRuntimeException

from .outage import connect, lose


async def test_txn_09_a_transaction_that_was_open_is_rolled_back(api: Api, relay: Relay) -> None:
    await api.fill("in", "a")
    connection = await connect(api, relay)
    session = await connection.create_session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.queue("in"))
    producer = await session.create_producer(api.queue("out"))
    assert await api.texts(consumer, 1) == ["a"]
    await producer.send(TextMessage("before"))
    await lose(api, relay, connection)
    await producer.send(TextMessage("after"))
    with pytest.raises(TransactionRolledBackException):
        await session.commit()
    assert await api.left("out") == []
    assert outline(await consumer.receive(SOON))[:2] == ("a", True)
    await producer.send(TextMessage("again"))
    await session.commit()
    assert await api.left("out") == ["again"]
    await connection.close()
    assert await api.left("in") == []


async def test_txn_09_in_a_context_it_is_the_runtime_twin(api: Api, relay: Relay) -> None:
    context = await api.factory(relay.url(api.url), **options()).create_context(session_mode=api.SESSION_TRANSACTED)
    api._closeables.append(context)
    await context.create_producer().send(api.queue(), "x")
    relay.cut()
    with pytest.raises(TransactionRolledBackRuntimeException):
        await context.commit()
    await context.create_producer().send(api.queue(), "y")
    await context.commit()
    assert await api.left() == ["y"]


async def test_txn_04_rollback_over_an_outage_ends_it_without_a_word(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    await producer.send(TextMessage("x"))
    relay.cut()
    await session.rollback()
    await producer.send(TextMessage("y"))
    await session.commit()
    assert await api.left() == ["y"]


async def test_txn_01_a_session_between_two_transactions_is_not_concerned(api: Api, relay: Relay) -> None:
    connection = await connect(api, relay)
    session = await connection.create_session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    await producer.send(TextMessage("x"))
    await session.commit()
    relay.cut()
    await producer.send(TextMessage("y"))
    try:
        await session.commit()
    except TransactionRolledBackException:  # the loss was noticed only after the send
        await producer.send(TextMessage("y"))
        await session.commit()
    assert await api.left() == ["x", "y"]
