"""Session: section 8 of the API map."""

from __future__ import annotations

import pytest

from sievemq import (
    BytesMessage,
    Connection,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    MapMessage,
    Message,
    MessageProducer,
    ObjectMessage,
    Queue,
    QueueReceiver,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
    TopicSubscriber,
)

from .conftest import Connect
from .helpers import SOON, nothing_left, receive_text


def test_ses_09_any_session_sends_any_message(connect: Connect, session: Session, queue: Queue) -> None:
    message = connect().create_session().create_text_message("from elsewhere")
    session.create_producer(queue).send(message)
    assert receive_text(session.create_consumer(queue)) == "from elsewhere"


def test_msg_19_every_kind_of_message_arrives_in_its_class(session: Session, queue: Queue) -> None:
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    for kind in (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage):
        producer.send(kind())
        assert type(consumer.receive(SOON)) is kind


def test_ses_18_producers(session: Session, queue: Queue) -> None:
    assert session.create_producer().get_destination() is None
    assert session.create_producer(None).get_destination() is None
    assert session.create_producer(queue).get_destination() == queue
    with pytest.raises(InvalidDestinationException):
        session.create_producer("orders")  # type: ignore[arg-type]


def test_ses_20_sel_01_sel_02_exc_05_a_wrong_selector_is_refused_where_it_is_given(session: Session) -> None:
    topic = Topic("t")
    for create in (
        lambda: session.create_consumer(Queue("q"), "price >> 3"),
        lambda: session.create_shared_consumer(topic, "s", "price >> 3"),
        lambda: session.create_shared_durable_consumer(topic, "s", "price >> 3"),
        lambda: session.create_browser(Queue("q"), "price >> 3"),
    ):
        with pytest.raises(InvalidSelectorException) as caught:
            create()
        assert caught.value.position == 7
    with pytest.raises(InvalidDestinationException):  # SEL-02: no subscription was left behind
        session.unsubscribe("s")


def test_ses_21_sub_20_no_local(connection: Connection, connect: Connect) -> None:
    topic = Topic("prices")
    session = connection.create_session()
    deaf, hearing = session.create_consumer(topic, no_local=True), session.create_consumer(topic)
    session.create_producer(topic).send(TextMessage("mine"))
    connect().create_session().create_producer(topic).send(TextMessage("theirs"))
    assert receive_text(deaf) == "theirs"
    assert [receive_text(hearing) for _ in range(2)] == ["mine", "theirs"]
    assert isinstance(deaf, TopicSubscriber)
    assert deaf.get_no_local()
    assert deaf.get_topic() == topic


def test_sel_06_a_selector_leaves_the_rest_for_others(session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    for region in ("EU", "US", "EU"):
        producer.send(TextMessage(region, properties={"region": region}))
    europe = session.create_consumer(queue, "region = 'EU'")
    assert [receive_text(europe) for _ in range(2)] == ["EU", "EU"]
    assert nothing_left(europe)
    assert receive_text(session.create_consumer(queue)) == "US"


def test_ses_28_ses_29_destinations_are_only_named(session: Session) -> None:
    assert session.create_queue("q") == Queue("q")
    assert session.create_topic("t") == Topic("t")
    with pytest.raises(InvalidDestinationException):
        session.create_queue("")


def test_ses_34_closed_comes_before_other_checks(session: Session) -> None:
    session.close()
    with pytest.raises(IllegalStateException):
        session.create_consumer(None, "price >> 3")  # type: ignore[arg-type]


def test_ses_35_ack_10_many_producers_and_consumers(session: Session) -> None:
    queues = [Queue(f"q{number}") for number in range(20)]
    consumers = [session.create_consumer(queue) for queue in queues]
    for queue in queues:
        session.create_producer(queue).send(TextMessage(queue.name))
    assert [receive_text(consumer) for consumer in consumers] == [queue.name for queue in queues]
    assert isinstance(consumers[0], QueueReceiver)
    assert consumers[0].get_queue() == queues[0]


def test_clo_17_ses_15_a_closed_session(session: Session, queue: Queue, producer: MessageProducer) -> None:
    consumer, browser = session.create_consumer(queue), session.create_browser(queue)
    session.close()
    session.close()  # CLO-01
    for call in (
        session.create_message,
        session.create_text_message,
        session.create_bytes_message,
        session.create_map_message,
        session.create_stream_message,
        session.create_object_message,
        session.get_transacted,
        session.get_acknowledge_mode,
        session.commit,
        session.rollback,
        session.recover,
        lambda: session.create_queue("q"),
        lambda: session.create_topic("t"),
        session.create_temporary_queue,
        session.create_temporary_topic,
        lambda: session.create_producer(queue),
        lambda: session.create_consumer(queue),
        lambda: session.create_browser(queue),
        lambda: session.unsubscribe("x"),
        consumer.receive,
        consumer.receive_no_wait,
        consumer.get_message_selector,
        consumer.get_message_listener,
        lambda: consumer.set_message_listener(None),
        browser.get_enumeration,
        browser.get_queue,
        browser.get_message_selector,
        producer.get_priority,
        lambda: producer.send(TextMessage()),
    ):
        with pytest.raises(IllegalStateException):
            call()
    consumer.close()
    producer.close()
    browser.close()
