"""Fixtures: a real broker over a real socket, a namespace per test, connections that are closed at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from sievemq import Connection, ConnectionFactory, JMSContext, MessageConsumer, MessageProducer, Queue, Session
from sievemq_broker import EmbeddedBroker

_numbers = itertools.count(1)

Connect = Callable[..., Connection]


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests that need nothing special of theirs."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def url(shared_broker: EmbeddedBroker) -> str:
    """A URL whose namespace no other test has."""
    return shared_broker.namespace(f"blocking{next(_numbers)}").url


@pytest.fixture
def factory(url: str) -> ConnectionFactory:
    return ConnectionFactory(url)


@pytest.fixture
def connect(factory: ConnectionFactory) -> Iterator[Connect]:
    """Makes started connections; all are closed at the end."""
    made: list[Connection] = []

    def connect(start: bool = True, factory: ConnectionFactory = factory) -> Connection:
        connection = factory.create_connection()
        made.append(connection)
        if start:
            connection.start()
        return connection

    yield connect
    for connection in made:
        connection.close()


@pytest.fixture
def connection(connect: Connect) -> Connection:
    """A started connection."""
    return connect()


@pytest.fixture
def session(connection: Connection) -> Session:
    """An AUTO_ACKNOWLEDGE session of a started connection."""
    return connection.create_session()


@pytest.fixture
def queue() -> Queue:
    return Queue("orders")


@pytest.fixture
def producer(session: Session, queue: Queue) -> MessageProducer:
    return session.create_producer(queue)


@pytest.fixture
def consumer(session: Session, queue: Queue) -> MessageConsumer:
    return session.create_consumer(queue)


@pytest.fixture
def context(factory: ConnectionFactory) -> Iterator[JMSContext]:
    """A context, AUTO_ACKNOWLEDGE."""
    with factory.create_context() as context:
        yield context
