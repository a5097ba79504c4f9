"""MessageListener: section 15 of the API map; threads: section 32."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from sievemq import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    JMSContext,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    Session,
    TextMessage,
)

from .conftest import Connect
from .helpers import SOON, Background, Collector, nothing_left, receive_text, text, texts, wait_until_gated


def test_lis_01_mco_02_py_22_objects_and_callables(
    session: Session, consumer: MessageConsumer, connect: Connect, queue: Queue
) -> None:
    producer = connect().create_session().create_producer(queue)
    collector = Collector()
    assert consumer.get_message_listener() is None
    consumer.set_message_listener(collector)
    assert consumer.get_message_listener() is collector
    producer.send(TextMessage("object"))
    collector.wait(1)
    callback = collector.on_message
    consumer.set_message_listener(callback)
    assert consumer.get_message_listener() is callback
    producer.send(TextMessage("callable"))
    collector.wait(2)
    consumer.set_message_listener(None)
    assert consumer.get_message_listener() is None
    producer.send(TextMessage("received"))
    assert receive_text(consumer) == "received"
    assert collector.texts == ["object", "callable"]
    with pytest.raises(TypeError):
        consumer.set_message_listener("me")  # type: ignore[arg-type]


def test_lis_02_one_call_at_a_time_over_all_consumers(connection: Connection, session: Session) -> None:
    queues = [Queue(f"q{number}") for number in range(3)]
    inside, most, threads = 0, 0, set()
    there, back = socket.socketpair()

    def act(message: Message) -> None:
        nonlocal inside, most
        threads.add(threading.get_ident())
        inside += 1
        most = max(most, inside)
        for _ in range(50):  # system calls let another thread in, if there were one
            there.send(b".")
            back.recv(1)
        inside -= 1

    collector = Collector(act)
    connection.stop()  # so that there is work at all of them when it starts
    for queue in queues:
        session.create_consumer(queue).set_message_listener(collector)
    producer = connection.create_session().create_producer()
    for _ in range(20):
        for queue in queues:
            producer.send(queue, TextMessage())
    connection.start()
    collector.wait(60)
    there.close()
    back.close()
    assert most == 1
    assert len(threads) == 1


def test_lis_03_ack_02_acknowledged_when_the_listener_has_returned(connect: Connect, queue: Queue) -> None:
    """The connection breaks off inside the listener: the message comes again, marked."""
    broken = connect()
    entered, leave = threading.Event(), threading.Event()

    def act(message: Message) -> None:
        entered.set()
        leave.wait(SOON / 1000)

    producer = connect(start=False).create_session().create_producer(queue)
    producer.send(TextMessage("done"))
    producer.send(TextMessage("in doubt"))
    collector = Collector(lambda message: act(message) if text(message) == "in doubt" else None)
    broken.create_session().create_consumer(queue).set_message_listener(collector)
    assert entered.wait(SOON / 1000)
    other = connect().create_session().create_consumer(queue)
    with broken._transport.lock:
        broken._engine.lost(ConnectionResetError("cut"))
    broken._transport.wake()
    message = other.receive(SOON)
    leave.set()
    assert text(message) == "in doubt"
    assert message is not None
    assert message.get_jms_redelivered()
    assert nothing_left(other)


def test_lis_04_lis_09_a_listener_that_raises_sees_the_message_again_at_once(
    session: Session, connect: Connect, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    producer = connect(start=False).create_session().create_producer(queue)
    for number in range(5):
        producer.send(TextMessage(str(number)))
    attempts: list[tuple[str | None, bool, int]] = []

    def act(message: Message) -> None:
        count = message.get_int_property("JMSXDeliveryCount")
        attempts.append((text(message), message.get_jms_redelivered(), count))
        if text(message) == "2" and count < 3:
            raise RuntimeError("not yet")

    collector = Collector(act)
    with caplog.at_level(logging.WARNING, "sievemq"):
        session.create_consumer(queue).set_message_listener(collector)
        collector.wait(7)
    assert attempts == [
        ("0", False, 1),
        ("1", False, 1),
        ("2", False, 1),
        ("2", True, 2),
        ("2", True, 3),
        ("3", False, 1),
        ("4", False, 1),
    ]
    assert "not yet" in caplog.text


@pytest.mark.filterwarnings("default")
def test_lis_05_a_raising_listener_in_client_mode(connection: Connection, connect: Connect, queue: Queue) -> None:
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    producer = connect(start=False).create_session().create_producer(queue)
    for number in range(3):
        producer.send(TextMessage(str(number)))

    def act(message: Message) -> None:
        if text(message) == "0" and not message.get_jms_redelivered():
            raise RuntimeError

    collector = Collector(act)
    session.create_consumer(queue).set_message_listener(collector)
    collector.wait(3)
    assert collector.texts == ["0", "1", "2"]
    session.recover()
    collector.wait(6)
    assert collector.texts[3:] == ["0", "1", "2"]
    assert all(message.get_jms_redelivered() for message in collector.messages[3:])


def test_lis_06_txn_16_a_raising_listener_in_a_transaction(
    connection: Connection, connect: Connect, queue: Queue
) -> None:
    session = connection.create_session(True)
    producer = connect(start=False).create_session().create_producer(queue)
    for number in range(2):
        producer.send(TextMessage(str(number)))

    def act(message: Message) -> None:
        if text(message) == "0":
            raise RuntimeError
        session.commit()

    collector = Collector(act)
    session.create_consumer(queue).set_message_listener(collector)
    collector.wait(2)
    session.close()
    assert nothing_left(connect().create_session().create_consumer(queue))


def test_lis_07_ack_11_recover_inside_a_listener(session: Session, connect: Connect, queue: Queue) -> None:
    producer = connect(start=False).create_session().create_producer(queue)
    for number in range(3):
        producer.send(TextMessage(str(number)))

    def act(message: Message) -> None:
        if text(message) == "1" and not message.get_jms_redelivered():
            session.recover()

    collector = Collector(act)
    session.create_consumer(queue).set_message_listener(collector)
    collector.wait(4)
    assert collector.texts == ["0", "1", "1", "2"]
    assert [message.get_jms_redelivered() for message in collector.messages] == [False, False, True, False]


def test_lis_08_listeners_on_a_started_context(factory: ConnectionFactory) -> None:
    with factory.create_context() as context, factory.create_context() as other:
        collector = Collector()
        for number in range(10):
            context.create_consumer(Queue(f"q{number}")).set_message_listener(collector)
            other.create_producer().send(Queue(f"q{number}"), str(number))
        collector.wait(10)
        assert sorted(collector.texts, key=lambda t: int(t or 0)) == [str(number) for number in range(10)]


def test_thr_05_a_listener_uses_its_own_session(connection: Connection, connect: Connect, queue: Queue) -> None:
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    replies = Queue("replies")
    answer = session.create_producer(replies)

    def act(message: Message) -> None:
        assert isinstance(message, TextMessage)
        answer.send(session.create_text_message(f"re: {message.get_text()}"))
        with session.create_browser(replies) as browser:
            assert list(browser)
        message.acknowledge()

    collector = Collector(act)
    session.create_consumer(queue).set_message_listener(collector)
    other = connect().create_session()
    for number in range(3):
        other.create_producer(queue).send(TextMessage(str(number)))
    collector.wait(3)
    assert texts(other.create_consumer(replies), 3) == ["re: 0", "re: 1", "re: 2"]
    session.close()
    assert nothing_left(other.create_consumer(queue))


def test_mco_08_clo_12_closing_a_consumer_in_its_own_listener(
    session: Session, consumer: MessageConsumer, connect: Connect, queue: Queue
) -> None:
    producer = connect(start=False).create_session().create_producer(queue)
    for number in range(3):
        producer.send(TextMessage(str(number)))
    collector = Collector(lambda message: consumer.close())
    consumer.set_message_listener(collector)
    collector.wait(1)
    session.close()
    left = connect().create_session().create_consumer(queue)
    assert texts(left, 2) == ["1", "2"]  # the first is acknowledged
    assert nothing_left(left)
    assert collector.texts == ["0"]


def test_clo_09_clo_10_clo_11_closing_from_the_own_listener(connection: Connection, context: JMSContext) -> None:
    session = connection.create_session()
    refused: list[str] = []

    def act(message: Message) -> None:
        for name, call in (
            ("connection", connection.close),
            ("stop", connection.stop),
            ("session", session.close),
        ):
            with pytest.raises(IllegalStateException):
                call()
            refused.append(name)

    collector = Collector(act)
    session.create_consumer(Queue("a")).set_message_listener(collector)
    other = connection.create_session()
    other.create_producer(Queue("a")).send(TextMessage())
    collector.wait(1)
    assert refused == ["connection", "stop", "session"]

    sibling = context.create_context(JMSContext.AUTO_ACKNOWLEDGE)

    def act_in_context(message: Message) -> None:
        for call in (context.close, context.stop, sibling.stop):
            with pytest.raises(IllegalStateException) as caught:
                call()
            assert isinstance(caught.value, RuntimeError)
            refused.append("context")

    collector = Collector(act_in_context)
    context.create_consumer(Queue("b")).set_message_listener(collector)
    other.create_producer(Queue("b")).send(TextMessage())
    collector.wait(1)
    assert refused.count("context") == 3
    sibling.close()


def test_clo_08_close_waits_for_a_running_listener(connect: Connect, queue: Queue) -> None:
    connection = connect()
    session = connection.create_session()
    answer = session.create_producer(Queue("replies"))
    entered, leave = threading.Event(), threading.Event()

    def act(message: Message) -> None:
        entered.set()
        assert leave.wait(SOON / 1000)
        answer.send(session.create_text_message("full service"))

    collector = Collector(act)
    consumer = session.create_consumer(queue)
    consumer.set_message_listener(collector)
    other = connect().create_session()
    other.create_producer(queue).send(TextMessage("one"))
    other.create_producer(queue).send(TextMessage("two"))
    assert entered.wait(SOON / 1000)
    closing = Background(connection.close)
    wait_until_gated(consumer)
    assert closing.running
    leave.set()
    closing.result()
    assert len(collector.messages) == 1
    assert receive_text(other.create_consumer(Queue("replies"))) == "full service"
    left = other.create_consumer(queue)
    assert receive_text(left) == "two"  # its message is acknowledged as usual, the next one was not seen
    assert nothing_left(left)


def test_mco_07_closing_a_consumer_waits_for_its_running_listener(
    consumer: MessageConsumer, connect: Connect, queue: Queue
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def act(message: Message) -> None:
        entered.set()
        assert leave.wait(SOON / 1000)

    collector = Collector(act)
    consumer.set_message_listener(collector)
    producer = connect().create_session().create_producer(queue)
    for _ in range(3):
        producer.send(TextMessage())
    assert entered.wait(SOON / 1000)
    closing = Background(consumer.close)
    wait_until_gated(consumer)
    assert closing.running
    leave.set()
    closing.result()
    assert len(collector.messages) == 1


def test_mco_07_closing_one_consumer_does_not_wait_for_another_ones_listener(
    session: Session, consumer: MessageConsumer, connect: Connect, queue: Queue
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def act(message: Message) -> None:
        entered.set()
        assert leave.wait(SOON / 1000)

    listening = session.create_consumer(Queue("other"))
    collector = Collector(act)
    listening.set_message_listener(collector)
    connect().create_session().create_producer(Queue("other")).send(TextMessage())
    assert entered.wait(SOON / 1000)
    consumer.close()
    leave.set()
    collector.wait(1)


def test_listeners_at_full_speed(connection: Connection, connect: Connect, queue: Queue) -> None:
    """Two listeners share a queue; at its end they take from each other's buffers. Each message goes to one of them."""
    count = 3_000
    left = threading.Semaphore(0)
    collectors = [Collector(lambda _: left.release()) for _ in range(2)]
    sessions = [connection.create_session() for _ in collectors]
    for session, collector in zip(sessions, collectors, strict=True):
        session.create_consumer(queue).set_message_listener(collector)
    producer: MessageProducer = connect(start=False).create_session().create_producer(queue)
    for number in range(count):
        producer.send(TextMessage(str(number)), delivery_mode=1)
    for _ in range(count):
        assert left.acquire(timeout=SOON / 1000)
    for session in sessions:
        session.close()  # the last calls have returned
    received = [collector.texts for collector in collectors]
    assert sorted(int(t or 0) for some in received for t in some) == list(range(count))


def test_mco_12_receiving_inside_a_listener(
    session: Session, consumer: MessageConsumer, connect: Connect, queue: Queue
) -> None:
    refused: list[Exception] = []
    left = threading.Event()

    def act(message: Message) -> None:
        for listener in (act, None):  # also when it has just taken itself out
            consumer.set_message_listener(listener)
            with pytest.raises(IllegalStateException) as caught:
                consumer.receive()
            refused.append(caught.value)
        left.set()

    consumer.set_message_listener(act)
    connect().create_session().create_producer(queue).send(TextMessage("one"))
    assert left.wait(SOON / 1000)
    assert len(refused) == 2
    connect().create_session().create_producer(queue).send(TextMessage("two"))
    assert receive_text(consumer) == "two"
