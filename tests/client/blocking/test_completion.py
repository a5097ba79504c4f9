"""Asynchronous sends: section 12 of the API map."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sievemq import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    IllegalStateRuntimeException,
    InvalidDestinationException,
    JMSContext,
    JMSException,
    Message,
    MessageProducer,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
)

from .conftest import Connect
from .helpers import SOON, Background, receive_text, texts


class Completions:
    """A completion listener that keeps what it hears."""

    def __init__(self, act: Any = None) -> None:
        self.heard: list[tuple[str, Message, Exception | None]] = []
        self.threads: set[int] = set()
        self._act = act
        self._changed = threading.Condition()

    def on_completion(self, message: Message) -> None:
        self._hear("completed", message, None)

    def on_exception(self, message: Message, exception: Exception) -> None:
        self._hear("failed", message, exception)

    def _hear(self, what: str, message: Message, error: Exception | None) -> None:
        self.threads.add(threading.get_ident())
        try:
            if self._act is not None:
                self._act(message)
        finally:
            with self._changed:
                self.heard.append((what, message, error))
                self._changed.notify_all()

    def wait(self, count: int) -> list[tuple[str, Message, Exception | None]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.heard) >= count, SOON / 1000), self.heard
            return list(self.heard)


def test_cpl_01_cpl_05_cpl_14_completed(producer: MessageProducer, session: Session, queue: Queue) -> None:
    listener, message = Completions(), TextMessage("x")
    producer.send(message, completion_listener=listener)
    assert [what for what, _, _ in listener.wait(1)] == ["completed"]
    assert listener.heard[0][1] is message
    assert threading.get_ident() not in listener.threads
    assert (message.get_jms_message_id() or "").startswith("ID:")
    assert receive_text(session.create_consumer(queue)) == "x"


def test_cpl_02_failed(session: Session) -> None:
    gone = session.create_temporary_queue()
    anyone = session.create_producer()
    gone.delete()
    listener, message = Completions(), TextMessage("x")
    anyone.send(gone, message, completion_listener=listener)
    ((what, heard, error),) = listener.wait(1)
    assert (what, heard) == ("failed", message)
    assert isinstance(error, InvalidDestinationException)


def test_cpl_03_cpl_04_pro_24_errors_of_the_call(producer: MessageProducer) -> None:
    listener = Completions()
    with pytest.raises(JMSException):
        producer.send(TextMessage(), priority=11, completion_listener=listener)
    with pytest.raises(JMSException):
        producer.send(None, completion_listener=listener)  # type: ignore[call-overload]
    with pytest.raises(ValueError):
        producer.send(TextMessage(), completion_listener=None)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        producer.send(TextMessage(), completion_listener=object())  # type: ignore[call-overload]
    producer.close()
    assert listener.heard == []


def test_cpl_06_cpl_07_order_of_success_and_failure(session: Session, queue: Queue) -> None:
    gone = session.create_temporary_queue()
    gone.delete()
    anyone, listener = session.create_producer(), Completions()
    for number in range(200):
        anyone.send(gone if number % 5 == 3 else queue, TextMessage(str(number)), completion_listener=listener)
    heard = listener.wait(200)
    assert [m.get_text() for _, m, _ in heard if isinstance(m, TextMessage)] == [str(n) for n in range(200)]
    assert [what for what, _, _ in heard] == ["failed" if n % 5 == 3 else "completed" for n in range(200)]
    assert len(listener.threads) == 1


def test_cpl_08_sync_and_async_sends_keep_their_order(
    producer: MessageProducer, session: Session, queue: Queue
) -> None:
    listener = Completions()
    for number in range(100):
        if number % 3:
            producer.send(TextMessage(str(number)), completion_listener=listener)
        else:
            producer.send(TextMessage(str(number)), delivery_mode=1 + number % 2)
    assert texts(session.create_consumer(queue), 100) == [str(number) for number in range(100)]


@pytest.mark.parametrize("what", ["producer", "session", "connection", "context"])
def test_cpl_09_clo_23_close_waits_for_callbacks(connect: Connect, factory: ConnectionFactory, what: str) -> None:
    entered, leave = threading.Event(), threading.Event()

    def act(message: Message) -> None:
        entered.set()
        assert leave.wait(SOON / 1000)

    listener = Completions(act)
    close: Any
    if what == "context":
        context = factory.create_context()
        context.create_producer().set_async(listener).send(Queue("q"), "1").send(Queue("q"), "2")
        close = context.close
    else:
        connection = connect()
        session = connection.create_session()
        producer = session.create_producer(Queue("q"))
        for number in range(2):
            producer.send(TextMessage(str(number)), completion_listener=listener)
        close = {"producer": producer, "session": session, "connection": connection}[what].close
    assert entered.wait(SOON / 1000)
    closing = Background(close)
    assert closing.running
    leave.set()
    closing.result()
    assert [name for name, _, _ in listener.heard] == ["completed", "completed"]


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_cpl_10_cpl_16_txn_15_the_end_of_a_transaction_waits(connection: Connection, queue: Queue, verb: str) -> None:
    session = connection.create_session(True)
    entered, leave = threading.Event(), threading.Event()

    def act(message: Message) -> None:
        entered.set()
        assert leave.wait(SOON / 1000)

    listener = Completions(act)
    session.create_producer(queue).send(TextMessage("x"), completion_listener=listener)
    assert entered.wait(SOON / 1000)  # CPL-16: complete before the commit
    ending = Background(getattr(session, verb))
    assert ending.running
    leave.set()
    ending.result()
    assert len(listener.heard) == 1


def test_cpl_11_clo_13_cpl_18_inside_a_callback(connection: Connection, factory: ConnectionFactory) -> None:
    session = connection.create_session(True)
    producer = session.create_producer(Queue("q"))
    refused: list[type[Exception]] = []

    def act(message: Message) -> None:
        for call in (producer.close, session.close, connection.close, session.commit, session.rollback):
            with pytest.raises(IllegalStateException) as caught:
                call()
            refused.append(type(caught.value))
        connection.stop()

    listener = Completions(act)
    producer.send(TextMessage(), completion_listener=listener)
    listener.wait(1)
    assert refused == [IllegalStateException] * 5
    connection.start()

    context = factory.create_context(JMSContext.SESSION_TRANSACTED)

    def act_in_context(message: Message) -> None:
        for call in (context.close, context.commit, context.rollback):
            with pytest.raises(IllegalStateRuntimeException) as caught:
                call()
            refused.append(type(caught.value))

    listener = Completions(act_in_context)
    context.create_producer().set_async(listener).send(Queue("q"), "x")
    listener.wait(1)
    assert refused[5:] == [IllegalStateRuntimeException] * 3
    context.close()


def test_cpl_12_cpl_17_using_the_session_in_a_callback(session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)

    def act(message: Message) -> None:
        if isinstance(message, TextMessage) and message.get_text() == "first":
            producer.send(session.create_text_message("second"), completion_listener=listener)

    listener = Completions(act)
    producer.send(TextMessage("first"), completion_listener=listener)
    listener.wait(2)
    assert texts(session.create_consumer(queue), 2) == ["first", "second"]


def test_cpl_15_mod_09_messages_in_write_mode_are_reset_for_the_callback(producer: MessageProducer) -> None:
    listener = Completions()
    raw, stream = BytesMessage(), StreamMessage()
    raw.write_int(7)
    stream.write_int(8)
    producer.send(raw, completion_listener=listener)
    producer.send(stream, completion_listener=listener)
    listener.wait(2)
    assert raw.read_int() == 7
    assert stream.read_int() == 8


def test_jpr_10_set_async(context: JMSContext, queue: Queue) -> None:
    listener = Completions()
    producer = context.create_producer()
    assert producer.get_async() is None
    assert producer.set_async(listener) is producer
    assert producer.get_async() is listener
    producer.send(queue, "a")
    listener.wait(1)
    assert producer.set_async(None).get_async() is None
    producer.send(queue, "b")
    assert texts(context.create_consumer(queue), 2) == ["a", "b"]
    assert len(listener.heard) == 1
    with pytest.raises(TypeError):
        producer.set_async(object())  # type: ignore[arg-type]


def test_py_22_a_pair_of_callables(producer: MessageProducer) -> None:
    done = threading.Event()
    producer.send(TextMessage(), completion_listener=(lambda message: done.set(), lambda message, error: None))
    assert done.wait(SOON / 1000)


def test_d_32_a_lost_connection_fails_async_sends_in_order(connect: Connect, queue: Queue) -> None:
    connection = connect()
    connection._engine.leaving = True  # as if it were about to be closed: the loss is not repaired
    producer = connection.create_session().create_producer(queue)
    transport, listener = connection._transport, Completions()
    connection._engine.terms.clock = lambda: 2**62
    with transport.lock:  # nothing can be written
        transport.written_at = 2**62  # and no send tries to
        for number in range(3):
            producer.send(TextMessage(str(number)), completion_listener=listener)
        connection._engine.lost(ConnectionResetError("cut"))
    transport.wake()
    heard = listener.wait(3)
    assert [what for what, _, _ in heard] == ["failed"] * 3
    assert [m.get_text() for _, m, _ in heard if isinstance(m, TextMessage)] == ["0", "1", "2"]
    with pytest.raises(JMSException, match="cut"):
        producer.send(TextMessage("late"), completion_listener=listener)
    producer.close()
    assert len(listener.heard) == 3


def test_a_raising_listener_does_not_end_the_callbacks(producer: MessageProducer) -> None:
    def act(message: Message) -> None:
        raise RuntimeError

    listener = Completions(act)
    for _ in range(2):
        producer.send(TextMessage(), completion_listener=listener)
    listener.wait(2)
    producer.close()
