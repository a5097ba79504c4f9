"""Topic subscriptions and client ids: section 29 of the API map, over a socket."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sievemq import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    Session,
    TextMessage,
    Topic,
)

from .conftest import Connect
from .helpers import SOON, receive_text, text, texts

Publish = Callable[..., None]


@pytest.fixture
def topic() -> Topic:
    return Topic("prices")


@pytest.fixture
def publish(connect: Connect, topic: Topic) -> Publish:
    """Publishes texts, confirmed."""
    producer = connect(start=False).create_session().create_producer(topic)

    def publish(*bodies: str, **properties: object) -> None:
        for body in bodies:
            producer.send(TextMessage(body, properties=properties))

    return publish


@pytest.fixture
def owner(connect: Connect, url: str) -> Connection:
    """A connection with a client id."""
    return connect(factory=ConnectionFactory(url, client_id="owner"))


def test_sub_01_sub_05_sub_06_sub_09_sub_35_non_durable(session: Session, topic: Topic, publish: Publish) -> None:
    publish("before")
    first, second = session.create_consumer(topic), session.create_consumer(topic)
    publish("a", "b")
    assert texts(first, 2) == texts(second, 2) == ["a", "b"]
    first.close()
    publish("meanwhile")
    again = session.create_consumer(topic)
    publish("c")
    assert receive_text(again) == "c"


def test_sub_03_sub_08_sub_12_durable(owner: Connection, topic: Topic, publish: Publish) -> None:
    session = owner.create_session()
    consumer = session.create_durable_subscriber(topic, "s")
    assert consumer.get_topic() == topic
    consumer.close()
    publish("a", "b")
    consumer = session.create_durable_subscriber(topic, "s")
    assert texts(consumer, 2) == ["a", "b"]
    with pytest.raises(JMSException):  # SUB-11
        session.create_durable_consumer(topic, "s")
    with pytest.raises(JMSException):  # SUB-25
        session.unsubscribe("s")
    consumer.close()
    session.unsubscribe("s")
    with pytest.raises(InvalidDestinationException):  # SUB-24
        session.unsubscribe("s")


def test_sub_04_sub_26_shared_durable(connection: Connection, topic: Topic, publish: Publish) -> None:
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_shared_durable_consumer(topic, "s")
    publish("a")
    message = consumer.receive(SOON)
    assert text(message) == "a"
    consumer.close()
    with pytest.raises(JMSException):
        session.unsubscribe("s")
    assert message is not None
    message.acknowledge()
    session.unsubscribe("s")


def test_ack_06_acknowledged_messages_of_a_durable_subscription(
    owner: Connection, topic: Topic, publish: Publish
) -> None:
    session = owner.create_session()
    consumer = session.create_durable_consumer(topic, "s")
    publish(*"abcdef")
    assert texts(consumer, 3) == list("abc")
    consumer.close()
    consumer = session.create_durable_consumer(topic, "s")
    received = [consumer.receive(SOON) for _ in range(3)]
    assert [(text(m), m.get_jms_redelivered()) for m in received if m] == [("d", False), ("e", False), ("f", False)]


def test_a_topic_at_full_speed(connect: Connect, topic: Topic) -> None:
    consumers = [connect().create_session().create_consumer(topic) for _ in range(3)]
    producer = connect(start=False).create_session().create_producer(topic)
    for number in range(1_000):
        producer.send(TextMessage(str(number)), delivery_mode=1)
    for consumer in consumers:
        assert texts(consumer, 1_000) == [str(number) for number in range(1_000)]
