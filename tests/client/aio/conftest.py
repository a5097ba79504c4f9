"""Fixtures: a real broker over a real socket, a namespace per test, connections that are closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sievemq import Queue
from sievemq.aio import Connection, ConnectionFactory, MessageConsumer, MessageProducer, Session
from sievemq_broker import EmbeddedBroker

from .scripted import ScriptedBroker, connected, scripted

_numbers = iter(range(1, 1_000_000))

Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture
def url(both_broker: EmbeddedBroker) -> str:
    """A URL whose namespace no other test has."""
    return both_broker.namespace(f"asyncio{next(_numbers)}").url


@pytest.fixture
async def connect(url: str) -> AsyncIterator[Connect]:
    """Makes started connections; all are closed at the end."""
    made: list[Connection] = []

    async def connect(**options: object) -> Connection:
        connection = await ConnectionFactory(url, **options).create_connection()
        made.append(connection)
        await connection.start()
        return connection

    yield connect
    for connection in made:
        await connection.close()


@pytest.fixture
async def connection(connect: Connect) -> Connection:
    return await connect()


@pytest.fixture
async def session(connection: Connection) -> Session:
    """An AUTO_ACKNOWLEDGE session of a started connection."""
    return await connection.create_session()


@pytest.fixture
def queue() -> Queue:
    return Queue("orders")


@pytest.fixture
async def producer(session: Session, queue: Queue) -> MessageProducer:
    return await session.create_producer(queue)


@pytest.fixture
async def consumer(session: Session, queue: Queue) -> MessageConsumer:
    return await session.create_consumer(queue)


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    """A scripted broker."""
    async with scripted() as broker:
        yield broker


@pytest.fixture
async def linked(broker: ScriptedBroker) -> AsyncIterator[Connection]:
    """A started connection to the scripted broker."""
    connection = await connected(broker)
    yield connection
    broker.confirms = True
    broker.silent.clear()
    broker.transport.abort()
    await connection.close()
