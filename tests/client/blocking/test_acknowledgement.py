"""Acknowledgement and recovery: section 24 of the API map, over a socket."""

from __future__ import annotations

import pytest

from sievemq import Connection, IllegalStateException, Message, Queue, Session, TextMessage

from .conftest import Connect
from .helpers import SOON, nothing_left, receive_text, text, texts


@pytest.fixture
def ten(connect: Connect, queue: Queue) -> list[str]:
    """Ten messages on the queue."""
    producer = connect(start=False).create_session().create_producer(queue)
    sent = [str(number) for number in range(10)]
    for body in sent:
        producer.send(TextMessage(body))
    return sent


def counts(messages: list[Message | None]) -> list[tuple[str | None, bool, int]]:
    return [
        (text(m), m.get_jms_redelivered(), m.get_int_property("JMSXDeliveryCount")) for m in messages if m is not None
    ]


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE])
def test_ack_01_ack_03_ack_06_received_is_acknowledged(
    connect: Connect, queue: Queue, ten: list[str], mode: int
) -> None:
    connection = connect()
    assert texts(connection.create_session(mode).create_consumer(queue), 4) == ten[:4]
    connection.close()
    left = connect().create_session().create_consumer(queue)
    assert texts(left, 6) == ten[4:]
    assert nothing_left(left)


def test_d_25_an_acknowledgement_leaves_by_itself(connect: Connect, queue: Queue, ten: list[str]) -> None:
    """Nobody calls anything after the receive; within milliseconds the acknowledgement is at the broker."""
    session = connect().create_session()
    assert texts(session.create_consumer(queue), 10) == ten
    other = connect().create_session()
    for _ in range(5_000):
        with other.create_browser(queue) as browser:
            if not list(browser) and not session._engine.outbox.has_output:
                break
    assert not session._engine.outbox.has_output


def test_ack_04_ack_05_msg_01_client_acknowledge(connection: Connection, connect: Connect, queue: Queue) -> None:
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    other = Queue("other")
    producer = connect(start=False).create_session().create_producer()
    for destination in (queue, other):
        for number in range(3):
            producer.send(destination, TextMessage(f"{destination.name}{number}"))
    first, second = session.create_consumer(queue), session.create_consumer(other)
    message = first.receive(SOON)
    assert message is not None
    assert texts(second, 2) == ["other0", "other1"]
    message.acknowledge()  # also what was received after it, by another consumer
    message.acknowledge()  # MSG-03
    session.close()
    checking = connect().create_session()
    assert texts(checking.create_consumer(queue), 2) == ["orders1", "orders2"]
    assert texts(checking.create_consumer(other), 1) == ["other2"]


def test_ack_07_acknowledge_in_other_modes(connection: Connection, queue: Queue, ten: list[str]) -> None:
    for session in (connection.create_session(), connection.create_session(True), connection.create_session(3)):
        consumer = session.create_consumer(queue)
        message = consumer.receive(SOON)
        assert message is not None
        message.acknowledge()
        session.close()
        with pytest.raises(IllegalStateException):  # CLO-20
            message.acknowledge()
        assert text(message)
    TextMessage("never received").acknowledge()  # MSG-02


def test_ack_08_ack_14_jsx_01_recover(connection: Connection, queue: Queue, ten: list[str]) -> None:
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    assert texts(consumer, 3) == ten[:3]
    session.recover()
    received = [consumer.receive(SOON) for _ in range(10)]
    assert counts(received) == [(body, index < 3, 2 if index < 3 else 1) for index, body in enumerate(ten)]
    session.recover()
    received = [consumer.receive(SOON) for _ in range(10)]
    assert counts(received) == [(body, True, 3 if index < 3 else 2) for index, body in enumerate(ten)]
    assert nothing_left(consumer)


def test_ack_09_recover_after_a_partial_acknowledge(connection: Connection, queue: Queue, ten: list[str]) -> None:
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    messages = [consumer.receive(SOON) for _ in range(3)]
    assert messages[0] is not None
    messages[0].acknowledge()
    assert receive_text(consumer) == "3"
    session.recover()
    assert texts(consumer, 7) == ten[3:]


def test_ack_10_recover_in_auto_mode_between_receives(session: Session, queue: Queue, ten: list[str]) -> None:
    consumer = session.create_consumer(queue)
    assert texts(consumer, 2) == ten[:2]
    session.recover()
    received = [consumer.receive(SOON) for _ in range(8)]
    assert counts(received) == [(body, False, 1) for body in ten[2:]]
    assert nothing_left(consumer)


def test_ack_15_ack_18_a_session_that_closes_without_acknowledging(
    connect: Connect, queue: Queue, ten: list[str]
) -> None:
    session = connect().create_session(Session.CLIENT_ACKNOWLEDGE)
    assert texts(session.create_consumer(queue), 3) == ten[:3]
    session.close()
    consumer = connect().create_session().create_consumer(queue)
    received = [consumer.receive(SOON) for _ in range(10)]
    assert counts(received) == [(body, index < 3, 2 if index < 3 else 1) for index, body in enumerate(ten)]


def test_clo_02_a_connection_that_closes_without_acknowledging(connect: Connect, queue: Queue, ten: list[str]) -> None:
    connection = connect()
    for _ in range(2):
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        receive_text(session.create_consumer(queue))
    connection.close()
    consumer = connect().create_session().create_consumer(queue)
    received = [consumer.receive(SOON) for _ in range(10)]
    assert counts(received) == [(body, index < 2, 2 if index < 2 else 1) for index, body in enumerate(ten)]


def test_ack_19_a_closed_consumers_messages_stay_with_the_session(
    connection: Connection, connect: Connect, queue: Queue, ten: list[str]
) -> None:
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    assert texts(consumer, 2) == ten[:2]
    consumer.close()
    other = connect().create_session().create_consumer(queue)
    assert texts(other, 8) == ten[2:]
    assert nothing_left(other)
    session.recover()  # ACK-20: they go back, marked
    received = [other.receive(SOON) for _ in range(2)]
    assert counts(received) == [(body, True, 2) for body in ten[:2]]


def test_msg_18_redelivery_is_the_original(connection: Connection, queue: Queue, ten: list[str]) -> None:
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    message = consumer.receive(SOON)
    assert isinstance(message, TextMessage)
    message.clear_body()
    message.set_text("changed")
    message.set_jms_type("changed")
    session.recover()
    again = consumer.receive(SOON)
    assert isinstance(again, TextMessage)
    assert (again.get_text(), again.get_jms_type()) == ("0", None)
