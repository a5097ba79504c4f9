"""Temporary destinations (sections 17, 28) and requestors (section 18)."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from sievemq import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Queue,
    Session,
    TemporaryQueue,
    TemporaryTopic,
    TextMessage,
)
from sievemq._engine.connection import HANDLERS
from sievemq_core.wire.commands import Command

from .conftest import Connect
from .helpers import SOON, Background, receive_text, wait_until_receiving


def test_tmp_01_dst_06_ses_30_ses_31_unique(session: Session, connect: Connect) -> None:
    made = [session.create_temporary_queue(), session.create_temporary_queue()]
    made.append(connect().create_session().create_temporary_queue())
    assert len(set(made)) == 3
    assert all(isinstance(queue, TemporaryQueue) and isinstance(queue, Queue) for queue in made)
    assert isinstance(session.create_temporary_topic(), TemporaryTopic)


def test_tmp_02_tmp_03_tmp_04_rights(connection: Connection, connect: Connect) -> None:
    temporary = connection.create_session().create_temporary_queue()
    consumer = connection.create_session().create_consumer(temporary)
    other = connect().create_session()
    other.create_producer(temporary).send(TextMessage("from anybody"))
    assert receive_text(consumer) == "from anybody"
    with pytest.raises(InvalidDestinationException):
        other.create_consumer(temporary)


def test_tmp_05_clo_03_it_outlives_its_session(connection: Connection) -> None:
    session = connection.create_session()
    temporary = session.create_temporary_queue()
    session.close()
    session = connection.create_session()
    session.create_producer(temporary).send(TextMessage("still there"))
    assert receive_text(session.create_consumer(temporary)) == "still there"


def test_tmp_06_it_ends_with_its_connection(connect: Connect, session: Session) -> None:
    connection = connect()
    temporary = connection.create_session().create_temporary_topic()
    anyone = session.create_producer()
    anyone.send(temporary, TextMessage())
    connection.close()
    with pytest.raises(InvalidDestinationException):
        anyone.send(temporary, TextMessage())


def test_tmp_07_dst_05_deleting_one_that_has_consumers(session: Session) -> None:
    for temporary in (session.create_temporary_queue(), session.create_temporary_topic()):
        consumer = session.create_consumer(temporary)
        with pytest.raises(JMSException):
            temporary.delete()
        consumer.close()
        temporary.delete()


def test_tmp_09_hdr_10_reply_to_survives_the_trip(session: Session, connect: Connect, queue: Queue) -> None:
    temporary = session.create_temporary_queue()
    request = TextMessage()
    request.set_jms_reply_to(temporary)
    session.create_producer(queue).send(request)
    other = connect().create_session()
    received = other.create_consumer(queue).receive(SOON)
    assert received is not None
    reply_to = received.get_jms_reply_to()
    assert reply_to == temporary
    assert isinstance(reply_to, TemporaryQueue)
    other.create_producer(reply_to).send(TextMessage("reply"))
    assert receive_text(session.create_consumer(temporary)) == "reply"
    with pytest.raises(IllegalStateException):
        reply_to.delete()


def test_tmp_10_a_durable_subscription_on_a_temporary_topic(session: Session) -> None:
    with pytest.raises(InvalidDestinationException):
        session.create_shared_durable_consumer(session.create_temporary_topic(), "s")


def test_tmp_12_lifetime_with_contexts(factory: ConnectionFactory, session: Session) -> None:
    first = factory.create_context()
    second = first.create_context(1)
    temporary = first.create_temporary_queue()
    first.close()
    second.create_producer().send(temporary, "x")
    second.close()
    with pytest.raises(InvalidDestinationException):
        session.create_producer().send(temporary, TextMessage())


def test_deleting_a_destination_closes_its_consumer(connect: Connect, session: Session) -> None:
    """The broker closes a consumer: a blocked receive returns None, the exception listener receives why."""
    # Only an administrator can delete what has consumers; seen from here it is a CONSUMER_CLOSED like any other.
    connection = connect()
    reported: SimpleQueue[JMSException] = SimpleQueue()
    connection.set_exception_listener(reported.put)
    consumer = connection.create_session().create_consumer(Queue("doomed"))
    receiving = Background(consumer.receive)
    wait_until_receiving(consumer)
    with connection._transport.lock:
        command = (Command.CONSUMER_CLOSED, consumer._engine.id, 4, "queue:doomed was deleted")
        HANDLERS[Command.CONSUMER_CLOSED](connection._engine, command)
    assert receiving.result() is None
    with pytest.raises(IllegalStateException, match="was deleted"):
        consumer.receive()
    consumer.close()
    assert isinstance(reported.get(timeout=SOON / 1000), InvalidDestinationException)
