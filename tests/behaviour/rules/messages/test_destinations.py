"""Sections 3 and 17: constants (CST) and destinations (DST)."""

from __future__ import annotations

import copy
import pickle

import pytest

import sievemq
from sievemq import (
    DeliveryMode,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    Message,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    aio,
)
from sievemq.destinations import destination_for, parse_destination
from sievemq_core.message.destination import Address, Kind

KINDS = [Queue, Topic, TemporaryQueue, TemporaryTopic]


@pytest.mark.parametrize("kind", [sievemq.Session, sievemq.JMSContext, aio.Session, aio.JMSContext])
def test_cst_01_cst_02_cst_03_cst_04_session_modes(kind):
    assert kind.SESSION_TRANSACTED == 0
    assert kind.AUTO_ACKNOWLEDGE == 1
    assert kind.CLIENT_ACKNOWLEDGE == 2
    assert kind.DUPS_OK_ACKNOWLEDGE == 3


def test_cst_05_delivery_modes():
    assert (DeliveryMode.NON_PERSISTENT, DeliveryMode.PERSISTENT) == (1, 2)


def test_cst_06_cst_07_cst_08_cst_09_defaults():
    assert Message.DEFAULT_DELIVERY_MODE == DeliveryMode.PERSISTENT
    assert Message.DEFAULT_PRIORITY == 4
    assert Message.DEFAULT_TIME_TO_LIVE == 0
    assert Message.DEFAULT_DELIVERY_DELAY == 0


def test_cst_10_the_default_priority_is_a_normal_one():
    assert 0 <= Message.DEFAULT_PRIORITY <= 4


def test_dst_01_queues_and_topics_are_destinations():
    assert isinstance(Queue("a"), Destination)
    assert isinstance(Topic("a"), Destination)
    with pytest.raises(TypeError, match="make a Queue or a Topic"):
        Destination("a")


def test_dst_02_names():
    assert Queue("orders").get_queue_name() == "orders"
    assert Topic("prices").get_topic_name() == "prices"
    assert TemporaryQueue("c.1").get_queue_name() == "c.1"
    assert TemporaryTopic("c.1").get_topic_name() == "c.1"
    assert Topic("prices").name == "prices"


@pytest.mark.parametrize(
    ("kind", "text"),
    list(zip(KINDS, ["queue:c.1", "topic:c.1", "temporary-queue:c.1", "temporary-topic:c.1"], strict=True)),
)
def test_dst_03_text_parses_back_to_the_destination(kind, text):
    destination = kind("c.1")
    assert str(destination) == text
    assert parse_destination(text) == destination
    assert type(parse_destination(text)) is kind
    assert repr(destination) == f"{kind.__name__}('c.1')"


def test_dst_03_a_bare_name_is_a_queue():
    assert parse_destination("orders") == Queue("orders")
    assert parse_destination("urn:x") == Queue("urn:x")


def test_dst_04_value_objects():
    assert Queue("a") == Queue("a")
    assert hash(Queue("a")) == hash(Queue("a"))
    assert Queue("a") != Queue("b")
    assert len({kind("a") for kind in KINDS} | {kind("a") for kind in KINDS}) == 4
    assert Queue("a") != "queue:a"
    for thing in (copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))):
        assert thing(Topic("a")) == Topic("a")


def test_dst_04_a_destination_cannot_be_changed():
    queue = Queue("a")
    for name in ("_text", "name", "other"):
        with pytest.raises(AttributeError):
            setattr(queue, name, "b")
    with pytest.raises(AttributeError):
        del queue._text
    assert queue == Queue("a")


def test_dst_04_the_receiver_sees_an_equal_destination(deliver):
    assert deliver(Message(), destination=Topic("prices")).get_jms_destination() == Topic("prices")


@pytest.mark.parametrize("kind", [TemporaryQueue, TemporaryTopic])
def test_dst_05_delete_calls_the_connections_callback(kind):
    deleted = []
    kind("c.1", lambda: deleted.append("c.1")).delete()
    assert deleted == ["c.1"]


@pytest.mark.parametrize("kind", [TemporaryQueue, TemporaryTopic])
def test_dst_05_a_temporary_destination_of_a_message_cannot_be_deleted(kind, deliver):
    message = Message()
    message.set_jms_reply_to(kind("c.1", lambda: pytest.fail("not this object")))
    with pytest.raises(IllegalStateException, match=r"c\.1 can only be deleted by the connection that made it"):
        deliver(message).get_jms_reply_to().delete()


def test_dst_06_a_temporary_queue_is_a_queue():
    assert isinstance(TemporaryQueue("c.1"), Queue)
    assert isinstance(TemporaryTopic("c.1"), Topic)
    assert TemporaryQueue("c.1") == TemporaryQueue("c.1", lambda: None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [None, "", " a", "a ", "a\nb", "x" * 513, 7])
def test_dst_07_names_that_are_not_allowed(kind, name):
    with pytest.raises(InvalidDestinationException):
        kind(name)


def test_a_destination_knows_its_address():
    assert Topic("a").address == Address(Kind.TOPIC, "a")


def test_other_types_than_destinations_are_refused():
    for value in (None, 7, "queue:a", object()):
        with pytest.raises(InvalidDestinationException, match="a destination is needed"):
            destination_for(value)
    with pytest.raises(InvalidDestinationException):
        parse_destination("")
