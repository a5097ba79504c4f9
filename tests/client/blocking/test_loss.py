"""A connection that is lost: D-32, EXL-01 to EXL-06, ACK-18; and closing: section 30."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from sievemq import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    JMSException,
    JMSRuntimeException,
    Queue,
    Session,
    TextMessage,
)
from sievemq_broker import EmbeddedBroker

from .helpers import SOON, Background, Collector, receive_text, wait_until_receiving


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def url(broker: EmbeddedBroker) -> str:
    return f"{broker.url}?reconnect=0"


def test_exl_01_exl_02_exl_05_the_listener_is_called_once_for_a_loss(
    broker: EmbeddedBroker, connection: Connection, session: Session
) -> None:
    heard: SimpleQueue[JMSException] = SimpleQueue()

    def listener(exception: JMSException) -> None:
        try:
            connection.create_session()  # EXL-05: may fail
        except JMSException:
            heard.put(exception)

    connection.set_exception_listener(listener)
    broker.drop_connections()
    assert type(heard.get(timeout=SOON / 1000)) is JMSException
    for call in (session.create_queue, session.create_consumer):
        with pytest.raises(JMSException):
            call("x")  # type: ignore[operator,arg-type]
    connection.close()
    connection.close()
    assert heard.empty()


def test_d_32_a_loss_wakes_everybody(broker: EmbeddedBroker, connection: Connection, queue: Queue) -> None:
    waiting: list[Background] = []
    for number in range(3):
        consumer = connection.create_session().create_consumer(Queue(f"q{number}"))
        waiting.append(Background(consumer.receive if number else lambda c=consumer: c.receive(60_000)))
        wait_until_receiving(consumer)
    broker.drop_connections()
    for call in waiting:
        with pytest.raises(JMSException):
            call.result()


def test_a_request_that_is_under_way_fails(connection: Connection, session: Session) -> None:
    """The answer never comes: the waiting call raises."""
    transport = connection._transport
    with transport.lock:
        completion = connection._engine.ping()
        connection._engine.outbox.clear()  # it never leaves
    asking = Background(lambda: transport.wait(completion))
    with transport.lock:
        connection._engine.lost(ConnectionResetError("cut"))
    transport.wake()
    with pytest.raises(JMSException, match="cut"):
        asking.result()
    with pytest.raises(JMSException, match="cut"):
        session.create_temporary_queue()


def test_a_request_without_an_answer_in_time(url: str) -> None:
    with ConnectionFactory(f"{url}&request_timeout=1000").create_connection() as connection:
        with connection._transport.lock:
            completion = connection._engine.ping()
            connection._engine.outbox.clear()
        with pytest.raises(JMSException, match="request_timeout"):
            connection._transport.ask(lambda: completion)


@pytest.mark.parametrize("stop", ["drop", "shutdown"])
def test_clo_01_d_32_closing_a_lost_connection(broker: EmbeddedBroker, factory: ConnectionFactory, stop: str) -> None:
    connection = factory.create_connection()
    session = connection.create_session()
    producer, consumer = session.create_producer(Queue("q")), session.create_consumer(Queue("q"))
    consumer.set_message_listener(Collector())
    broker.drop_connections() if stop == "drop" else broker.stop()
    for close in (consumer.close, producer.close, session.close, connection.close, connection.close):
        close()
    with pytest.raises(IllegalStateException):
        connection.start()


def test_a_context_that_is_lost(broker: EmbeddedBroker, factory: ConnectionFactory, queue: Queue) -> None:
    with factory.create_context() as context:
        consumer, producer = context.create_consumer(queue), context.create_producer()
        receiving = Background(consumer.receive)
        broker.drop_connections()
        with pytest.raises(JMSRuntimeException):
            receiving.result()
        with pytest.raises(JMSRuntimeException):
            for _ in range(10_000):
                producer.send(queue, "x")
        with pytest.raises(JMSRuntimeException):
            context.create_temporary_queue()


def test_sends_that_do_not_wait_show_the_loss(
    broker: EmbeddedBroker, connection: Connection, session: Session, queue: Queue
) -> None:
    producer = session.create_producer(queue)
    broker.drop_connections()
    with pytest.raises(JMSException):
        for _ in range(1_000_000):
            producer.send(TextMessage("x"), delivery_mode=1)


def test_heartbeats_find_a_dead_broker() -> None:
    """A host that welcomes and then says nothing more: twice the interval later the connection is lost."""
    import socket

    from sievemq_core.wire.commands import Command
    from sievemq_core.wire.connection import WireConnection

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        factory = ConnectionFactory(f"sievemq://127.0.0.1:{listening.getsockname()[1]}?heartbeat=500&reconnect=0")
        call = Background(factory.create_connection)
        peer, _ = listening.accept()
        with peer:
            wire = WireConnection("broker")
            while not wire.receive_data(peer.recv(4096)):
                pass
            wire.send(Command.WELCOME, 1, "mute", "i", "c1", 0, {}, {})
            peer.sendall(wire.data_to_send())
            connection: Connection = call.result()
            heard: SimpleQueue[JMSException] = SimpleQueue()
            connection.set_exception_listener(heard.put)
            assert "silent" in str(heard.get(timeout=SOON / 1000))
            connection.close()


def test_heartbeats_keep_an_idle_connection(url: str, queue: Queue) -> None:
    with ConnectionFactory(f"{url}&heartbeat=800").create_connection() as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        assert consumer.receive(2_400) is None
        session.create_producer(queue).send(TextMessage("alive"))
        assert receive_text(consumer) == "alive"


def test_clo_02_clo_06_clo_07_clo_26_closing_the_parent_is_enough(connection: Connection, queue: Queue) -> None:
    calls: list[Callable[[], Any]] = []
    waiting = []
    for mode in range(4):
        session = connection.create_session(mode)
        consumer, producer = session.create_consumer(Queue(f"q{mode}")), session.create_producer(queue)
        browser = session.create_browser(queue)
        waiting.append(Background(consumer.receive))
        wait_until_receiving(consumer)
        calls += [session.create_message, consumer.receive, browser.get_queue, producer.get_destination]
    connection.close()
    assert [call.result() for call in waiting] == [None] * 4
    for call in calls:
        with pytest.raises(IllegalStateException):
            call()


def test_clo_15_many_threads_close(connection: Connection, queue: Queue) -> None:
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    consumer.set_message_listener(Collector())
    closing = [Background(close) for close in (consumer.close, session.close, connection.close) for _ in range(3)]
    for call in closing:
        call.result()
    assert connection._engine.closed


def test_no_thread_is_left(factory: ConnectionFactory, queue: Queue) -> None:
    def ours() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name in ("sievemq-io", "sievemq-session")}

    before = ours()
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        session.create_consumer(queue).set_message_listener(Collector())
        session.create_producer(queue).send(TextMessage())
        assert len(ours() - before) == 2
    assert not ours() - before
