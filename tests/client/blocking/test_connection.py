"""Connection and ConnectionMetaData: sections 5, 6 and 7 of the API map."""

from __future__ import annotations

import pytest

from sievemq import Connection, ConnectionFactory, IllegalStateException, JMSException, Queue, Session, TextMessage

from .conftest import Connect
from .helpers import receive_text


def test_con_04_con_05_con_07_a_client_id_is_set_once(connect: Connect) -> None:
    connection = connect(start=False)
    assert connection.get_client_id() is None
    connection.get_meta_data()  # CON-09: no action
    connection.set_client_id("one")
    assert connection.get_client_id() == "one"
    with pytest.raises(IllegalStateException):
        connection.set_client_id("two")
    assert connection.get_client_id() == "one"


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
