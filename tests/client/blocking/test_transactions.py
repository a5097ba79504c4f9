"""Local transactions: section 25 of the API map, over a socket."""

from __future__ import annotations

import pytest

from sievemq import (
    Connection,
    DeliveryMode,
    Queue,
    Session,
    TextMessage,
    TransactionRolledBackException,
)

from .conftest import Connect
from .helpers import SOON, nothing_left, receive_text, text, texts


@pytest.fixture
def transacted(connection: Connection) -> Session:
    return connection.create_session(True)


def test_txn_01_txn_02_sends_show_after_commit(transacted: Session, session: Session, queue: Queue) -> None:
    producer = transacted.create_producer(queue)
    watching = session.create_consumer(queue)
    for round_ in range(3):
        producer.send(TextMessage(str(round_)))
        producer.send(TextMessage("quick"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        assert nothing_left(watching)
        with session.create_browser(queue) as browser:  # BRW-08
            assert not list(browser)
        transacted.commit()
        assert texts(watching, 2) == [str(round_), "quick"]


def test_txn_03_txn_04_received_is_acknowledged_by_commit(transacted: Session, session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    for number in range(6):
        producer.send(TextMessage(str(number)))
    consumer = transacted.create_consumer(queue)
    assert texts(consumer, 2) == ["0", "1"]
    transacted.commit()
    assert texts(consumer, 2) == ["2", "3"]
    transacted.rollback()
    received = [consumer.receive(SOON) for _ in range(4)]
    assert [(text(m), m.get_jms_redelivered(), m.get_int_property("JMSXDeliveryCount")) for m in received if m] == [
        ("2", True, 2),
        ("3", True, 2),
        ("4", False, 1),
        ("5", False, 1),
    ]
    transacted.commit()
    assert nothing_left(consumer)


def test_txn_04_rollback_forgets_what_was_sent(transacted: Session, session: Session, queue: Queue) -> None:
    producer = transacted.create_producer(queue)
    producer.send(TextMessage("forgotten"))
    transacted.rollback()
    producer.send(TextMessage("kept"))
    transacted.commit()
    watching = session.create_consumer(queue)
    assert receive_text(watching) == "kept"
    assert nothing_left(watching)


@pytest.mark.parametrize("end", ["session", "connection"])
def test_txn_05_txn_06_close_rolls_back(connect: Connect, queue: Queue, end: str) -> None:
    connection = connect()
    connect().create_session().create_producer(queue).send(TextMessage("consumed"))
    transacted = connection.create_session(True)
    assert receive_text(transacted.create_consumer(queue)) == "consumed"
    transacted.create_producer(queue).send(TextMessage("produced"))
    (transacted if end == "session" else connection).close()
    consumer = connect().create_session().create_consumer(queue)
    message = consumer.receive(SOON)
    assert text(message) == "consumed"
    assert message is not None
    assert message.get_jms_redelivered()
    assert nothing_left(consumer)


@pytest.mark.parametrize("commit", [True, False])
def test_txn_07_a_consumer_closed_before_the_end(
    transacted: Session, session: Session, queue: Queue, commit: bool
) -> None:
    session.create_producer(queue).send(TextMessage("x"))
    consumer = transacted.create_consumer(queue)
    assert receive_text(consumer) == "x"
    consumer.close()
    watching = session.create_consumer(queue)
    assert nothing_left(watching)
    if commit:
        transacted.commit()
        assert nothing_left(watching)
    else:
        transacted.rollback()
        assert receive_text(watching) == "x"


def test_txn_09_exc_13_d_24_a_failed_send_shows_at_commit(transacted: Session, session: Session, queue: Queue) -> None:
    session.create_producer(queue).send(TextMessage("0"))
    session.create_producer(queue).send(TextMessage("1"))
    consumer = transacted.create_consumer(queue)
    assert receive_text(consumer) == "0"
    gone = session.create_temporary_queue()
    gone.delete()
    anyone = transacted.create_producer()
    anyone.send(queue, TextMessage("never"))
    anyone.send(gone, TextMessage("impossible"))  # does not wait, in a transaction
    with pytest.raises(TransactionRolledBackException):
        transacted.commit()
    received = [consumer.receive(SOON) for _ in range(2)]
    assert [(text(m), m.get_jms_redelivered()) for m in received if m] == [("0", True), ("1", False)]
    assert nothing_left(consumer)
    anyone.send(queue, TextMessage("next transaction"))
    transacted.commit()
    assert receive_text(consumer) == "next transaction"
    transacted.commit()
    assert nothing_left(session.create_consumer(queue))


def test_txn_10_txn_12_both_directions_at_once(transacted: Session, session: Session, queue: Queue) -> None:
    there = Queue("there")
    for number in range(20):
        session.create_producer(queue).send(TextMessage(str(number)))
    consumer, producer = transacted.create_consumer(queue), transacted.create_producer(there)
    for number in range(20):
        producer.send(TextMessage(receive_text(consumer)))
        if number % 5 == 4:
            transacted.commit()
    assert texts(session.create_consumer(there), 20) == [str(number) for number in range(20)]
    assert nothing_left(consumer)


def test_txn_14_times_are_those_of_the_send_call(transacted: Session, session: Session, queue: Queue) -> None:
    sent = TextMessage()
    transacted.create_producer(queue).send(sent, time_to_live=60_000)
    at_send = (sent.get_jms_timestamp(), sent.get_jms_expiration(), sent.get_jms_delivery_time())
    transacted.commit()
    received = session.create_consumer(queue).receive(SOON)
    assert received is not None
    assert (received.get_jms_timestamp(), received.get_jms_expiration(), received.get_jms_delivery_time()) == at_send


def test_commit_and_rollback_with_nothing_in_between(transacted: Session) -> None:
    for _ in range(3):
        transacted.commit()
        transacted.rollback()


def test_rollbacks_at_full_buffers_lose_nothing(transacted: Session, connect: Connect, queue: Queue) -> None:
    """Deliveries are on their way whenever a rollback takes them back."""
    count = 500
    producer = connect(start=False).create_session().create_producer(queue)
    for number in range(count):
        producer.send(TextMessage(str(number)), delivery_mode=DeliveryMode.NON_PERSISTENT)
    consumer = transacted.create_consumer(queue)
    received: list[str | None] = []
    step = 0
    while len(received) < count:
        step += 1
        some = texts(consumer, min(step % 9 + 1, count - len(received)))
        if step % 3 == 0:
            transacted.rollback()
        else:
            transacted.commit()
            received += some
    assert received == [str(number) for number in range(count)]
    assert nothing_left(consumer)
