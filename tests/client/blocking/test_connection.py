"""Connection and ConnectionMetaData: sections 5, 6 and 7 of the API map."""

from __future__ import annotations

import threading

import pytest

from sievemq import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidClientIDException,
    JMSException,
    Message,
    Queue,
    Session,
    TextMessage,
)

from .conftest import Connect
from .helpers import (
    SOON,
    Background,
    Collector,
    nothing_left,
    receive_text,
    wait_until_gated,
    wait_until_receiving,
)


def test_con_01_con_02_con_03_kinds_of_session(connection: Connection) -> None:
    assert connection.create_session().get_acknowledge_mode() == Session.AUTO_ACKNOWLEDGE
    for mode in range(4):
        session = connection.create_session(mode)
        assert session.get_acknowledge_mode() == mode
        assert session.get_transacted() is (mode == Session.SESSION_TRANSACTED)
        assert connection.create_session(session_mode=mode).get_acknowledge_mode() == mode
    assert connection.create_session(True, Session.CLIENT_ACKNOWLEDGE).get_acknowledge_mode() == 0
    assert connection.create_session(False, Session.CLIENT_ACKNOWLEDGE).get_acknowledge_mode() == 2
    for wrong in (-1, 4):
        with pytest.raises(JMSException):
            connection.create_session(wrong)
    with pytest.raises(JMSException):
        connection.create_session(False, 0)


def test_con_04_con_05_con_07_a_client_id_is_set_once(connect: Connect) -> None:
    connection = connect(start=False)
    assert connection.get_client_id() is None
    connection.get_meta_data()  # CON-09: no action
    connection.set_client_id("one")
    assert connection.get_client_id() == "one"
    with pytest.raises(IllegalStateException):
        connection.set_client_id("two")
    assert connection.get_client_id() == "one"


@pytest.mark.parametrize("wrong", [None, ""])
def test_con_05_a_client_id_that_is_none(connect: Connect, wrong: str | None) -> None:
    with pytest.raises(InvalidClientIDException):
        connect(start=False).set_client_id(wrong)


def test_con_05_con_10_con_11_sub_31_a_client_id_that_somebody_has(connect: Connect) -> None:
    first, second = connect(start=False), connect(start=False)
    first.set_client_id("mine")
    with pytest.raises(InvalidClientIDException):
        second.set_client_id("mine")
    assert first.get_client_id() == "mine"
    assert second.get_client_id() is None
    first.close()
    second.set_client_id("mine")
    assert second.get_client_id() == "mine"


def test_con_06_an_administered_client_id_cannot_be_set(connect: Connect, url: str) -> None:
    connection = connect(start=False, factory=ConnectionFactory(url, client_id="given"))
    with pytest.raises(IllegalStateException):
        connection.set_client_id("other")
    assert connection.get_client_id() == "given"


@pytest.mark.parametrize(
    "action",
    [
        lambda c: c.create_session(),
        lambda c: c.start(),
        lambda c: c.stop(),
        lambda c: c.set_exception_listener(None),
    ],
    ids=["create_session", "start", "stop", "set_exception_listener"],
)
def test_con_08_con_09_too_late_for_a_client_id(connect: Connect, action: object) -> None:
    connection = connect(start=False)
    action(connection)  # type: ignore[operator]
    with pytest.raises(IllegalStateException):
        connection.set_client_id("late")


def test_con_12_met_01_to_met_06_metadata(connection: Connection) -> None:
    data = connection.get_meta_data()
    assert (data.get_jms_version(), data.get_jms_major_version(), data.get_jms_minor_version()) == ("3.1", 3, 1)
    assert data.get_jms_provider_name() == "SieveMQ"
    version = data.get_provider_version()
    assert version.startswith(f"{data.get_provider_major_version()}.{data.get_provider_minor_version()}")
    assert {"JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount"} <= set(data.get_jmsx_property_names())
    assert "SieveMQ" in data.broker
    assert data.durable is False


def test_con_13_con_14_exception_listener(connection: Connection) -> None:
    assert connection.get_exception_listener() is None

    def listener(exception: JMSException) -> None:
        raise AssertionError(exception)

    connection.set_exception_listener(listener)
    assert connection.get_exception_listener() is listener
    connection.set_exception_listener(None)
    assert connection.get_exception_listener() is None
    with pytest.raises(TypeError):
        connection.set_exception_listener("me")  # type: ignore[arg-type]


def test_con_15_con_26_messages_flow_once_started(connect: Connect, queue: Queue) -> None:
    connection = connect(start=False)
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    session.create_producer(queue).send(TextMessage("sent while stopped"))
    assert consumer.receive(30) is None
    connection.start()
    connection.start()  # ignored
    assert receive_text(consumer) == "sent while stopped"


def test_clo_25_a_consumer_of_a_started_connection(session: Session, queue: Queue) -> None:
    session.create_producer(queue).send(TextMessage("at once"))
    assert receive_text(session.create_consumer(queue)) == "at once"


def test_con_16_con_17_mco_06_stop_holds_back_what_is_buffered(
    connection: Connection, session: Session, queue: Queue
) -> None:
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    for number in range(3):
        producer.send(TextMessage(str(number)))
    assert receive_text(consumer) == "0"
    connection.stop()
    connection.stop()  # ignored
    producer.send(TextMessage("3"))
    assert consumer.receive(30) is None
    assert nothing_left(consumer)
    connection.start()
    assert [receive_text(consumer) for _ in range(3)] == ["1", "2", "3"]


def test_con_17_a_blocked_receive_survives_stop_and_start(
    connection: Connection, session: Session, connect: Connect, queue: Queue
) -> None:
    consumer = session.create_consumer(queue)
    receiving = Background(lambda: consumer.receive(SOON))
    wait_until_receiving(consumer)
    connection.stop()  # does not wait for it
    connect().create_session().create_producer(queue).send(TextMessage("hello"))
    assert receiving.running
    connection.start()
    assert receiving.result().get_text() == "hello"


def test_con_16_con_18_stop_waits_for_a_running_listener(
    connection: Connection, session: Session, connect: Connect, queue: Queue
) -> None:
    entered, leave = threading.Event(), threading.Event()
    reply = Queue("replies")
    answering = session.create_producer(reply)

    def act(message: Message) -> None:
        entered.set()
        assert leave.wait(SOON / 1000)
        answering.send(TextMessage("full service"))

    listener = Collector(act)
    consumer = session.create_consumer(queue)
    consumer.set_message_listener(listener)
    other = connect().create_session()
    for _ in range(2):
        other.create_producer(queue).send(TextMessage("x"))
    assert entered.wait(SOON / 1000)
    stopping = Background(connection.stop)
    wait_until_gated(consumer)
    assert stopping.running
    leave.set()
    stopping.result()
    assert len(listener.messages) == 1
    assert receive_text(other.create_consumer(reply)) == "full service"
    assert len(listener.messages) == 1
    connection.start()
    listener.wait(2)


def test_con_19_stop_in_a_listener_of_the_connection(connection: Connection, session: Session, queue: Queue) -> None:
    errors: list[Exception] = []

    def act(message: Message) -> None:
        with pytest.raises(IllegalStateException) as caught:
            connection.stop()
        errors.append(caught.value)

    listener = Collector(act)
    session.create_consumer(queue).set_message_listener(listener)
    connection.create_session().create_producer(queue).send(TextMessage())
    listener.wait(1)
    assert len(errors) == 1


def test_con_25_sessions_deliver_at_the_same_time(connection: Connection, queue: Queue) -> None:
    meeting = threading.Barrier(2, timeout=SOON / 1000)
    listeners = [Collector(lambda message: meeting.wait()) for _ in range(2)]
    consumers = [connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue) for _ in listeners]
    for consumer, listener in zip(consumers, listeners, strict=True):
        consumer.set_message_listener(listener)
    producer = connection.create_session().create_producer(queue)
    for _ in range(2):
        producer.send(TextMessage())
    # Each listener waits inside for the other: passes only if both are called, by two threads.
    assert [len(listener.wait(1)) for listener in listeners] == [1, 1]


def test_con_21_clo_01_close_is_idempotent(connection: Connection) -> None:
    connection.close()
    connection.close()


def test_clo_16_a_closed_connection(connect: Connect) -> None:
    connection = connect()
    connection.close()
    for call in (
        connection.get_client_id,
        connection.get_meta_data,
        connection.get_exception_listener,
        lambda: connection.set_exception_listener(None),
        connection.start,
        connection.stop,
        connection.create_session,
        lambda: connection.set_client_id("x"),
    ):
        with pytest.raises(IllegalStateException):
            call()


def test_py_03_a_connection_is_a_context_manager(factory: ConnectionFactory) -> None:
    with factory.create_connection() as connection:
        connection.create_session()
    with pytest.raises(IllegalStateException):
        connection.start()
