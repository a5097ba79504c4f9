"""MessageConsumer: section 13 of the API map."""

from __future__ import annotations

import threading
import time
from _thread import LockType

import pytest

from sievemq import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateException,
    MessageConsumer,
    Queue,
    Session,
    TextMessage,
)
from sievemq._engine import PATIENCE
from sievemq.blocking.transport import Lead

from .conftest import Connect
from .helpers import SOON, Background, Collector, nothing_left, receive_text, text, texts, wait_until_receiving


def test_mco_05_receive_no_wait_is_not_misled_by_another_buffer(
    connect: Connect, session: Session, queue: Queue
) -> None:
    idle = connect().create_session().create_consumer(queue)
    producer = session.create_producer(queue)
    for number in range(10):
        producer.send(TextMessage(str(number)))
    assert receive_text(idle) == "0"  # the rest is in its buffer
    consumer = session.create_consumer(queue)
    assert [text(consumer.receive_no_wait()) for _ in range(9)] == [str(number) for number in range(1, 10)]


def test_mco_14_in_one_session(session: Session, queue: Queue) -> None:
    first, second = session.create_consumer(queue), session.create_consumer(queue)
    for number in range(20):
        session.create_producer(queue).send(TextMessage(str(number)))
    received = [receive_text(first), *texts(second, 18), receive_text(first)]
    assert sorted(received, key=lambda t: int(t or 0)) == [str(number) for number in range(20)]


@pytest.mark.parametrize("prefetch", [0, 1, 2, 7, 1_000])
def test_prefetch_of_a_fixed_size(url: str, queue: Queue, prefetch: int) -> None:
    with ConnectionFactory(url, prefetch=prefetch).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(queue)
        for number in range(50):
            producer.send(TextMessage(str(number)), delivery_mode=DeliveryMode.NON_PERSISTENT)
        consumer = session.create_consumer(queue)
        assert texts(consumer, 25) == [str(number) for number in range(25)]
        assert [text(consumer.receive_no_wait()) for _ in range(25)] == [str(number) for number in range(25, 50)]
        assert nothing_left(consumer)
        assert consumer.receive(5) is None
        listener = Collector()
        consumer.set_message_listener(listener)
        for number in range(50):
            producer.send(TextMessage(str(number)))
        listener.wait(50)
        assert listener.texts == [str(number) for number in range(50)]


def test_iteration_from_another_thread_ends_with_the_session(session: Session, consumer: MessageConsumer) -> None:
    iterating = Background(lambda: list(consumer))
    wait_until_receiving(consumer)
    session.close()
    assert iterating.result() == []


def test_a_timeout_never_drops_a_message(connect: Connect, session: Session, queue: Queue) -> None:
    """Short timeouts race with arrivals; every message is received once, in order."""
    count = 300
    consumer = session.create_consumer(queue)
    producer = connect(start=False).create_session().create_producer(queue)
    go = threading.Event()

    def send() -> None:
        go.wait()
        for number in range(count):
            producer.send(TextMessage(str(number)))

    sending = Background(send)
    go.set()
    received: list[str | None] = []
    deadline = time.monotonic() + 60
    while len(received) < count and time.monotonic() < deadline:
        message = consumer.receive(1)
        if message is not None:
            received.append(text(message))
    sending.result()
    assert received == [str(number) for number in range(count)]


def test_close_while_another_thread_receives_at_full_speed(connect: Connect, queue: Queue) -> None:
    """CLO-06: the other thread ends with None or an IllegalStateException; nothing it did not get is lost or marked."""
    count = 400
    producer = connect(start=False).create_session().create_producer(queue)
    for number in range(count):
        producer.send(TextMessage(str(number)), delivery_mode=DeliveryMode.NON_PERSISTENT)
    received: list[str | None] = []
    while len(received) < count:
        consumer = connect().create_session().create_consumer(queue)
        some = threading.Event()

        def drain(
            consumer: MessageConsumer = consumer, some: threading.Event = some, left: int = count - len(received)
        ) -> list[str | None]:
            mine: list[str | None] = []
            try:
                while (message := consumer.receive()) is not None:
                    assert not message.get_jms_redelivered()
                    mine.append(text(message))
                    if len(mine) >= min(30, left):
                        some.set()
            except IllegalStateException:
                pass
            return mine

        draining = Background(drain)
        assert some.wait(SOON / 1000)
        consumer.close()
        received += draining.result()
    assert received == [str(number) for number in range(count)]


def test_thr_03_closing_a_sister_does_not_disturb_a_receive(session: Session, connect: Connect, queue: Queue) -> None:
    """Another thread closes consumers of the session while this one receives, without waiting, all the time."""
    consumer = session.create_consumer(queue)
    sisters = [session.create_consumer(Queue(f"sister{number}")) for number in range(30)]
    closing = Background(lambda: [sister.close() for sister in sisters])
    while closing.running:
        assert consumer.receive_no_wait() is None
    closing.result()


def test_con_16_stopping_does_not_disturb_a_receive(connection: Connection, session: Session, queue: Queue) -> None:
    consumer = session.create_consumer(queue)
    stopping = Background(lambda: [(connection.stop(), connection.start()) for _ in range(50)])
    while stopping.running:
        assert consumer.receive(1) is None
    stopping.result()


@pytest.mark.parametrize("timeout", [1, 5, 1_000, None])
def test_mco_14_a_waiting_receive_recalls_messages_held_by_others(
    connect: Connect, session: Session, queue: Queue, timeout: int | None
) -> None:
    """However long it waits: a receive gets what lies in the buffer of a consumer that sleeps."""
    idle = connect().create_session().create_consumer(queue)
    producer = session.create_producer(queue)
    for number in range(5):
        producer.send(TextMessage(str(number)))
    assert receive_text(idle) == "0"
    busy = session.create_consumer(queue)
    received: list[str | None] = []
    for _ in range(200):  # a short timeout may end before the answer is here; the next call then finds it
        message = busy.receive(timeout)
        if message is not None:
            received.append(text(message))
        if len(received) == 4:
            break
    assert received == ["1", "2", "3", "4"]


def test_d_23_a_receive_alone_on_a_temporary_queue_waits_for_nothing_but_its_message(
    connect: Connect, session: Session, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other buffer can hold it: there is no WANT to send after a moment, as there is on any other queue."""
    sending, waits, waited = connect().create_session(), Lead.wait, []

    def wait(lead: Lead, woken: LockType, seconds: float) -> bool:
        waited.append(seconds)
        producer.send(TextMessage("1"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        return waits(lead, woken, seconds)

    for destination, first in ((session.create_temporary_queue(), -1.0), (queue, PATIENCE)):
        waited.clear()
        consumer, producer = session.create_consumer(destination), sending.create_producer(destination)
        with monkeypatch.context() as patch:
            patch.setattr(Lead, "wait", wait)
            assert consumer.receive() is not None
        assert waited[0] == first


def test_d_25_an_acknowledgement_leaves_by_itself(connect: Connect, queue: Queue) -> None:
    """Nobody calls anything after the receive; within milliseconds the acknowledgement is at the broker."""
    producer = connect(start=False).create_session().create_producer(queue)
    ten = [str(number) for number in range(10)]
    for body in ten:
        producer.send(TextMessage(body))
    session = connect().create_session()
    assert texts(session.create_consumer(queue), 10) == ten
    other = connect().create_session()
    for _ in range(5_000):
        with other.create_browser(queue) as browser:
            if not list(browser) and not session._engine.outbox.has_output:
                break
    assert not session._engine.outbox.has_output
