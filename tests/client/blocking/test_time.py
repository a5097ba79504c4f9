"""Expiry and delivery delay under a clock that a test moves: section 27 of the API map."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq import Connection, ConnectionFactory, Queue, Session, TextMessage
from sievemq_broker import EmbeddedBroker

from .helpers import SOON, nothing_left, receive_text, text


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def connection(broker: EmbeddedBroker) -> Iterator[Connection]:
    with ConnectionFactory(broker.url).create_connection() as connection:
        connection.start()
        yield connection


def test_exp_01_exp_02_exp_03_expired_messages_are_not_delivered(
    broker: EmbeddedBroker, session: Session, queue: Queue
) -> None:
    producer = session.create_producer(queue)
    producer.send(TextMessage("short"), time_to_live=600_000)
    producer.send(TextMessage("for ever"))
    broker.clock.advance(seconds=600)
    assert receive_text(session.create_consumer(queue)) == "for ever"


def test_exp_03_messages_that_expire_in_the_buffer(broker: EmbeddedBroker, session: Session, queue: Queue) -> None:
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    for number in range(5):
        producer.send(TextMessage(str(number)), time_to_live=600_000 if number % 2 else 0)
    assert receive_text(consumer) == "0"  # the others are in its buffer
    broker.clock.advance(seconds=600)
    assert [receive_text(consumer) for _ in range(2)] == ["2", "4"]
    assert nothing_left(consumer)


def test_exp_07_exp_12_hdr_04_delay(broker: EmbeddedBroker, session: Session, queue: Queue) -> None:
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    producer.set_delivery_delay(600_000)
    sent = TextMessage("late")
    producer.send(sent)
    assert sent.get_jms_delivery_time() == sent.get_jms_timestamp() + 600_000
    assert nothing_left(consumer)
    broker.clock.advance(seconds=300)  # the clock also goes on by itself
    assert nothing_left(consumer)
    broker.clock.advance(seconds=300)
    received = consumer.receive(SOON)
    assert text(received) == "late"
    assert received is not None
    assert received.get_jms_delivery_time() == sent.get_jms_delivery_time()


def test_times_of_sends_follow_a_moved_clock(broker: EmbeddedBroker, session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    first, second = TextMessage(), TextMessage()
    producer.send(first)
    broker.clock.advance(seconds=3_600)
    producer.send(second)
    assert 3_600_000 <= second.get_jms_timestamp() - first.get_jms_timestamp() < 3_700_000
    received = [session.create_consumer(queue).receive(SOON)]
    assert received[0] is not None
    assert received[0].get_jms_timestamp() == first.get_jms_timestamp()


def test_exp_11_delay_in_a_transaction(broker: EmbeddedBroker, connection: Connection, queue: Queue) -> None:
    transacted = connection.create_session(True)
    consumer = connection.create_session().create_consumer(queue)
    producer = transacted.create_producer(queue)
    producer.set_delivery_delay(600_000)
    producer.send(TextMessage("x"))
    assert nothing_left(consumer)  # a round trip on the connection: the send has arrived
    broker.clock.advance(seconds=600)
    assert nothing_left(consumer)
    transacted.commit()
    assert receive_text(consumer) == "x"
