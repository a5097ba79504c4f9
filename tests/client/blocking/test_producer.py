"""MessageProducer: section 10 of the API map, and the headers that a send sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sievemq import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    MessageConsumer,
    MessageFormatException,
    MessageProducer,
    Queue,
    ResourceAllocationException,
    Session,
    TextMessage,
    UnsupportedOperationError,
)
from sievemq_broker import EmbeddedBroker

from .conftest import Connect
from .helpers import SOON, Background, receive_text, texts


def now() -> int:
    return int(time.time() * 1000)


def test_pro_01_pro_02_hints(producer: MessageProducer, consumer: MessageConsumer) -> None:
    assert producer.get_disable_message_id() is False
    assert producer.get_disable_message_timestamp() is False
    producer.set_disable_message_id(True)
    producer.set_disable_message_timestamp(True)
    assert producer.get_disable_message_id() is True
    assert producer.get_disable_message_timestamp() is True
    sent = TextMessage()
    producer.send(sent)
    received = consumer.receive(SOON)
    for message in (sent, received):
        assert message is not None
        assert message.get_jms_message_id() is None
        assert message.get_jms_timestamp() == 0


def test_pro_03_to_pro_06_defaults(producer: MessageProducer) -> None:
    assert producer.get_delivery_mode() == DeliveryMode.PERSISTENT
    assert producer.get_priority() == 4
    assert producer.get_time_to_live() == 0
    assert producer.get_delivery_delay() == 0
    for setter, wrong in (
        (producer.set_delivery_mode, (-1, 0, 3, True, "PERSISTENT")),
        (producer.set_priority, (-1, 10, 1.5, None)),
        (producer.set_time_to_live, (-1, 1.5, 2**63)),
        (producer.set_delivery_delay, (-1, "1")),
    ):
        for value in wrong:
            with pytest.raises(JMSException):
                setter(value)  # type: ignore[operator]
    producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    producer.set_priority(9)
    producer.set_time_to_live(60_000)
    producer.set_delivery_delay(1)
    assert producer.get_delivery_mode() == DeliveryMode.NON_PERSISTENT
    assert producer.get_priority() == 9
    assert producer.get_time_to_live() == 60_000
    assert producer.get_delivery_delay() == 1


def test_pro_09_pro_10_pro_21_hdr_01_to_hdr_07_headers_of_a_send(
    producer: MessageProducer, consumer: MessageConsumer, queue: Queue
) -> None:
    sent = TextMessage()
    before = now()
    producer.send(sent, delivery_mode=DeliveryMode.NON_PERSISTENT, priority=7, time_to_live=60_000)
    after = now()
    received = consumer.receive(SOON)
    assert received is not None
    for message in (sent, received):  # HDR-14
        assert message.get_jms_destination() == queue
        assert message.get_jms_delivery_mode() == DeliveryMode.NON_PERSISTENT
        assert message.get_jms_priority() == 7
        assert before <= message.get_jms_timestamp() <= after
        assert message.get_jms_expiration() == message.get_jms_timestamp() + 60_000
        assert message.get_jms_delivery_time() == message.get_jms_timestamp()
        assert (message.get_jms_message_id() or "").startswith("ID:")
    assert sent.get_jms_message_id() == received.get_jms_message_id()
    assert received.get_jms_redelivered() is False
    assert received.get_int_property("JMSXDeliveryCount") == 1
    again = TextMessage()
    producer.send(again)  # for that send only
    assert (again.get_jms_delivery_mode(), again.get_jms_priority(), again.get_jms_expiration()) == (2, 4, 0)


def test_d_27_one_of_the_options_alone(producer: MessageProducer) -> None:
    producer.set_priority(8)
    sent = TextMessage()
    producer.send(sent, time_to_live=1_000)
    assert sent.get_jms_priority() == 8
    assert sent.get_jms_expiration() == sent.get_jms_timestamp() + 1_000


def test_pro_11_pro_12_d_27_forms_of_an_unidentified_send(session: Session, queue: Queue) -> None:
    anyone = session.create_producer()
    anyone.send(queue, TextMessage("0"))
    anyone.send(TextMessage("1"), destination=queue)
    anyone.send(queue, TextMessage("2"), priority=4)
    anyone.send(message=TextMessage("3"), destination=queue)
    anyone.send(queue, message=TextMessage("4"))  # type: ignore[call-overload]
    assert texts(session.create_consumer(queue), 5) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((), {}),
        ((1, 2, 3), {}),
        ((1, 2), {"message": 3}),
        ((1, 2), {"destination": 3}),
        ((1,), {"destination": 1, "message": 3}),
    ],
)
def test_d_27_a_send_that_python_refuses(session: Session, arguments: Any, keywords: Any) -> None:
    with pytest.raises(TypeError):
        session.create_producer().send(*arguments, **keywords)


def test_pro_14_pro_15_pro_16_producer_or_send_names_the_destination(session: Session, queue: Queue) -> None:
    identified, anyone = session.create_producer(queue), session.create_producer()
    with pytest.raises(UnsupportedOperationError):
        anyone.send(TextMessage())
    with pytest.raises(UnsupportedOperationError):
        identified.send(queue, TextMessage())
    with pytest.raises(UnsupportedOperationError):
        identified.send(TextMessage(), destination=queue)
    with pytest.raises(InvalidDestinationException):
        anyone.send(None, TextMessage())
    with pytest.raises(InvalidDestinationException):
        anyone.send(TextMessage(), destination=None)
    with pytest.raises(InvalidDestinationException):
        anyone.send("orders", TextMessage())  # type: ignore[call-overload]


@pytest.mark.parametrize("wrong", [None, "text", 7, object()])
def test_pro_17_exc_08_other_types_than_messages_are_refused(producer: MessageProducer, wrong: Any) -> None:
    with pytest.raises(MessageFormatException):
        producer.send(wrong)


def test_pro_18_tmp_08_a_deleted_destination(session: Session) -> None:
    gone = session.create_temporary_queue()
    anyone = session.create_producer()
    anyone.send(gone, TextMessage())
    gone.delete()
    with pytest.raises(InvalidDestinationException):
        anyone.send(gone, TextMessage())


@pytest.mark.parametrize(
    "wrong",
    [
        {"delivery_mode": -1}, {"priority": 10}, {"time_to_live": -1}, {"priority": True}, {"priority": "high"},
        {"delivery_mode": "PERSISTENT"}, {"time_to_live": 1.5}, {"time_to_live": False}, {"priority": 2**70},
    ],
)  # fmt: skip
def test_pro_19_bad_options_of_a_call(
    producer: MessageProducer, consumer: MessageConsumer, wrong: dict[str, Any]
) -> None:
    with pytest.raises(JMSException):
        producer.send(TextMessage("never"), **wrong)
    producer.send(TextMessage("next"))
    assert receive_text(consumer) == "next"


def test_pro_22_msg_17_hdr_17_one_object_sent_twice(producer: MessageProducer, consumer: MessageConsumer) -> None:
    message = TextMessage("first")
    message.set_jms_type("kept")
    producer.send(message)
    first = message.get_jms_message_id()
    message.set_text("second")
    message.set_int_property("n", 2)
    producer.send(message)
    assert message.get_jms_message_id() != first
    received = [consumer.receive(SOON) for _ in range(2)]
    assert [m.get_text() for m in received if isinstance(m, TextMessage)] == ["first", "second"]
    assert [m.property_exists("n") for m in received if m] == [False, True]
    assert {m.get_jms_type() for m in received if m} == {"kept"}


def test_pro_23_sending_a_received_message(session: Session, queue: Queue) -> None:
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    producer.send(TextMessage("round", properties={"a": 1}))
    received = consumer.receive(SOON)
    assert received is not None
    first = received.get_jms_message_id()
    producer.send(received)
    again = consumer.receive(SOON)
    assert isinstance(again, TextMessage)
    assert (again.get_text(), again.get_int_property("a")) == ("round", 1)
    assert again.get_jms_message_id() != first


def test_msg_21_d_31_a_foreign_message(producer: MessageProducer, consumer: MessageConsumer, queue: Queue) -> None:
    class Foreign:
        def __init__(self) -> None:
            self.headers: dict[str, Any] = {}

        def get_text(self) -> str:
            return "foreign"

        def get_jms_type(self) -> str:
            return "t"

        def get_property_names(self) -> list[str]:
            return ["a"]

        def get_object_property(self, name: str) -> int:
            return 1

        def __getattr__(self, name: str) -> Any:
            if name.startswith("set_jms_"):
                return lambda value: self.headers.__setitem__(name[8:], value)
            if name == "get_jms_message_id":
                return lambda: None
            raise AttributeError(name)

    message = Foreign()
    producer.send(message)  # type: ignore[call-overload]
    received = consumer.receive(SOON)
    assert isinstance(received, TextMessage)
    assert (received.get_text(), received.get_jms_type(), received.get_int_property("a")) == ("foreign", "t", 1)
    assert message.headers["message_id"] == received.get_jms_message_id()
    assert message.headers["destination"] == queue


def test_pro_07_pro_08_pro_26_clo_05_clo_19_a_closed_producer(session: Session, queue: Queue) -> None:
    with session.create_producer(queue) as producer:
        assert producer.get_destination() == queue
    producer.close()
    for call in (
        lambda: producer.send(TextMessage()),
        producer.get_destination,
        producer.get_delivery_mode,
        producer.get_priority,
        producer.get_time_to_live,
        producer.get_delivery_delay,
        producer.get_disable_message_id,
        producer.get_disable_message_timestamp,
        lambda: producer.set_delivery_mode(1),
        lambda: producer.set_priority(1),
        lambda: producer.set_time_to_live(1),
        lambda: producer.set_delivery_delay(1),
        lambda: producer.set_disable_message_id(True),
        lambda: producer.set_disable_message_timestamp(True),
    ):
        with pytest.raises(IllegalStateException):
            call()


def test_hdr_06_ids_are_unique_over_connections(connect: Connect, queue: Queue) -> None:
    ids = set()
    for _ in range(2):
        connection = connect()
        for _ in range(2):
            producer = connection.create_session().create_producer(queue)
            for _ in range(10):
                message = TextMessage()
                producer.send(message)
                ids.add(message.get_jms_message_id())
    assert len(ids) == 40


def test_ord_01_ord_09_one_session_one_order(session: Session, queue: Queue) -> None:
    persistent, quick = session.create_producer(queue), session.create_producer(queue)
    quick.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    for number in range(0, 1_000, 2):
        quick.send(TextMessage(str(number)))
        (persistent if number % 100 == 0 else quick).send(TextMessage(str(number + 1)))
    assert texts(session.create_consumer(queue), 1_000) == [str(number) for number in range(1_000)]


def test_d_24_confirm_policies(url: str, queue: Queue) -> None:
    """What a send to a queue that is gone does: raises where it waits, is reported where it does not."""
    for policy, mode, waits in (
        ("auto", DeliveryMode.PERSISTENT, True),
        ("auto", DeliveryMode.NON_PERSISTENT, False),
        ("always", DeliveryMode.NON_PERSISTENT, True),
        ("never", DeliveryMode.PERSISTENT, False),
    ):
        reported: list[JMSException] = []
        with ConnectionFactory(url, send_confirm=policy).create_connection() as connection:
            connection.set_exception_listener(reported.append)
            session = connection.create_session()
            gone = session.create_temporary_queue()
            producer = session.create_producer(gone)
            gone.delete()
            if waits:
                with pytest.raises(InvalidDestinationException):
                    producer.send(TextMessage(), delivery_mode=mode)
            else:
                producer.send(TextMessage(), delivery_mode=mode)
            session.create_consumer(queue).receive_no_wait()  # a round trip behind the send
            session.close()
        deadline = time.monotonic() + 60
        while not waits and not reported and time.monotonic() < deadline:
            Background(lambda: None).result()
        assert [type(error) for error in reported] == ([] if waits else [InvalidDestinationException])


def test_d_26_close_flushes_sends(connect: Connect, queue: Queue) -> None:
    connection = connect(start=False)
    producer = connection.create_session().create_producer(queue)
    for number in range(500):
        producer.send(TextMessage(str(number)), delivery_mode=DeliveryMode.NON_PERSISTENT)
    connection.close()
    consumer = connect().create_session().create_consumer(queue)
    assert texts(consumer, 500) == [str(number) for number in range(500)]


def test_a_lone_send_is_written_within_milliseconds(connect: Connect, queue: Queue) -> None:
    """Sends that do not wait, in one millisecond: the first is written by the caller, the rest by the I/O thread."""
    consumer = connect().create_session().create_consumer(queue)
    producer = connect(start=False).create_session().create_producer(queue)
    for burst in range(5):
        for number in range(3):
            producer.send(TextMessage(f"{burst}.{number}"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        assert texts(consumer, 3) == [f"{burst}.{number}" for number in range(3)]


def test_sends_leave_under_a_clock_that_stands_still(
    connect: Connect, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests like to freeze the time; what is written when must not depend on it."""
    monkeypatch.setattr("sievemq.blocking.transport.wall_clock", lambda: 1_700_000_000_000)
    connection = connect()
    connection._engine.terms.clock = lambda: 1_700_000_000_000
    session = connection.create_session()
    producer, consumer = session.create_producer(queue), connect().create_session().create_consumer(queue)
    for number in range(3):
        producer.send(TextMessage(str(number)), delivery_mode=DeliveryMode.NON_PERSISTENT)
        assert receive_text(consumer) == str(number)


def test_large_messages(connection: Connection, session: Session, queue: Queue) -> None:
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    body = "x" * (5 * 1024 * 1024)
    for mode in (DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT):
        for _ in range(3):
            producer.send(TextMessage(body), delivery_mode=mode)
        for _ in range(3):
            assert receive_text(consumer) == body


def test_a_body_larger_than_the_broker_takes(connect: Connect, queue: Queue) -> None:
    connection = connect()
    connection._engine.terms.max_body = 1_000  # as WELCOME would say
    producer = connection.create_session().create_producer(queue)
    with pytest.raises(ResourceAllocationException, match="1001 bytes"):
        producer.send(TextMessage("x" * 1_001))
    producer.send(TextMessage("x" * 1_000))


@pytest.mark.parametrize("policy", ["auto", "never"])
def test_a_window_of_unconfirmed_sends_that_is_full(url: str, queue: Queue, policy: str) -> None:
    """Many more messages than may be unconfirmed at once: the sender waits, nothing is lost."""
    with ConnectionFactory(url, send_confirm=policy).create_connection() as connection:
        terms = connection._engine.terms
        terms.window_messages, terms.window_bytes = 10, 2_000  # as WELCOME would say
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        completed: list[str | None] = []
        for number in range(300):
            message = TextMessage(str(number).rjust(100))
            if number % 7 == 0:
                producer.send(
                    message, completion_listener=(lambda message: completed.append(message.get_text()), print)
                )
            else:
                producer.send(message)
            assert session._engine.sends.sequence - session._engine.sends.confirmed <= 10
        assert [t and t.strip() for t in texts(session.create_consumer(queue), 300)] == [
            str(number) for number in range(300)
        ]
        producer.close()
        assert [t and t.strip() for t in completed] == [str(number) for number in range(0, 300, 7)]


@pytest.fixture
def full(shared_broker: EmbeddedBroker) -> Iterator[Callable[[bool], None]]:
    """Makes the broker take no sends, as when it has no room, and go on."""

    def full(blocked: bool) -> None:
        shared_broker._submit(lambda server: server.shard.services.flow("a test's wish" if blocked else None)).result()

    yield full
    full(False)


def test_a_broker_without_room_makes_senders_wait(
    full: Callable[[bool], None], connection: Connection, session: Session, queue: Queue
) -> None:
    producer = session.create_producer(queue)
    full(True)
    sending = Background(lambda: producer.send(TextMessage("waits")))
    session.create_browser(queue).close()  # requests are answered all the same
    assert (None, "a test's wish") in connection.blocked
    assert sending.running
    full(False)
    sending.result()
    assert receive_text(session.create_consumer(queue)) == "waits"


class Blocked:
    """An exception listener that receives of a destination at a limit."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def on_exception(self, exception: JMSException) -> None:
        raise exception

    def on_blocked(self, destination: str | None, reason: str) -> None:
        if destination is not None:
            self.event.set()


def test_d_26_close_waits_until_sends_are_accepted(
    full: Callable[[bool], None], connect: Connect, queue: Queue
) -> None:
    connection = connect()
    producer = connection.create_session().create_producer(queue)
    waits = Blocked()
    connection.set_exception_listener(waits)
    producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    full(True)
    producer.send(TextMessage("0"))  # it need not wait
    closing = Background(connection.close)
    assert waits.event.wait(SOON / 1000)
    assert closing.running
    full(False)
    closing.result()
    assert texts(connect().create_session().create_consumer(queue), 1) == ["0"]
