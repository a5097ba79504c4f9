"""A send is put together from pieces that were packed before: it says what packing it as a whole says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq import BytesMessage, MapMessage, Message, ObjectMessage, Queue, StreamMessage, TextMessage, Topic
from sievemq._engine import EngineOptions
from sievemq.exceptions import MessageFormatException, ResourceAllocationException
from sievemq.messages import received
from sievemq_core.limits import MAX_PROPERTY_CHARS
from sievemq_core.message.values import Byte, Float
from sievemq_core.wire.codec import pack, unpack_value
from sievemq_core.wire.commands import Command

from .harness import NOW, FakeBroker

QUEUE, OTHER = Queue("q"), Topic("other")

#: Around where the form of a length changes.
SIZES = (0, 1, 255, 256, 257, 1_023, 1_024, 1_025, 65_535, 65_536, 70_000)

texts = st.text(st.characters(codec=None), max_size=40)
properties = st.dictionaries(
    st.sampled_from(["a", "region", "JMSXGroupID", "JMSXState"]),
    st.one_of(texts, st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.none(), st.just(Byte(3))),
)


def session_of(options: EngineOptions | None = None) -> tuple[FakeBroker, Any]:
    broker = FakeBroker(options)
    broker.welcome()
    return broker, broker.session()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [TextMessage, BytesMessage])
def test_bodies_of_every_length(size: int, kind: Any) -> None:
    broker, session = session_of()
    broker.producer(session).send(kind("x" * size if kind is TextMessage else b"x" * size), QUEUE)
    ((_, number, sequence, address, fields),) = broker.heard()
    assert (number, sequence, address) == (session.id, 1, "queue:q")
    assert fields[12] == (b"x" * size if size or kind is TextMessage else None)


@pytest.mark.parametrize("size", SIZES)
def test_properties_of_every_length(size: int) -> None:
    broker, session = session_of()
    starts = range(0, max(1, size), MAX_PROPERTY_CHARS)
    values = {f"p{start}": "x" * min(size - start, MAX_PROPERTY_CHARS) for start in starts}
    broker.producer(session).send(Message(properties=values), QUEUE)
    ((*_, fields),) = broker.heard()
    assert fields[9] == pack(values)


def repaired(value: Any) -> Any:
    """A header as the broker reads it: a surrogate that is not one of a pair is replaced."""
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value


@given(properties, texts, st.none() | texts | st.binary(max_size=40), st.none() | texts, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_send_says_all_of_a_message(
    values: dict[str, Any], text: str, correlation: Any, kind: str | None, reply: bool
) -> None:
    broker, session = session_of()
    for message in (TextMessage(text), MapMessage({"a": text}), StreamMessage([text]), ObjectMessage(text)):
        for name, value in values.items():
            message.set_object_property(name, value)
        if isinstance(correlation, bytes):
            message.set_jms_correlation_id_as_bytes(correlation)
        else:
            message.set_jms_correlation_id(correlation)
        message.set_jms_type(kind)
        message.set_jms_reply_to(OTHER if reply else None)
        message_id = f"ID:c1:{session.sends.sequence + 1}"
        broker.producer(session).send(message, QUEUE, delivery_mode=1)
        ((*_, fields),) = broker.heard()
        assert fields[:6] == message._fields[:6] == (message_id, NOW, 4, 1, 0, 0)
        assert fields[6:9] == (repaired(correlation), "topic:other" if reply else None, repaired(kind))
        assert fields[11] == message._body_kind
        assert fields[12] == message._encode_body()
        there = received(fields, QUEUE, 0, None)
        sent = {name: value for name, value in values.items() if name != "JMSXState"}  # JSX-11
        assert repr(dict(there.properties)) == repr(sent)
        # Passed on by whoever received it: not decoded, and the same.
        broker.producer(session).send(there, QUEUE, delivery_mode=1)
        ((*_, again),) = broker.heard()
        assert again[6:] == fields[6:]


def test_properties_that_are_no_well_formed_text_leave_nothing_behind() -> None:
    """A lone surrogate, in a value that others come before: the next message's properties are its own."""
    broker, session = session_of()
    producer = broker.producer(session, QUEUE)
    for values in ({"a": "x", "b": "\ud800"}, {"a": "y"}, {"a": "\udfff", "b": "\ud800\udc00"}, {"c": "é"}):
        producer.send(Message(properties=values), QUEUE)
        ((*_, fields),) = broker.heard()
        assert dict(received(fields, QUEUE, 0, None).properties) == values


def test_hdr_06_ids_grow_longer() -> None:
    broker, session = session_of()
    producer = broker.producer(session)
    for _ in range(1_002):
        producer.send(Message(), QUEUE, delivery_mode=1)
    heard = broker.heard()
    assert [command[2] for command in heard] == [*range(1, 1_003)]
    assert [command[4][0] for command in heard] == [f"ID:c1:{number}" for number in range(1, 1_003)]


def test_every_send_reaches_its_destination() -> None:
    broker, session = session_of()
    one, two = broker.producer(session), broker.producer(session)
    same = Queue("q")
    for destination in (QUEUE, OTHER, QUEUE, same, OTHER, OTHER, same):
        one.send(Message(), destination, delivery_mode=1)
        two.send(Message(), OTHER, delivery_mode=1)
        assert [command[3] for command in broker.heard()] == [str(destination), "topic:other"]


def test_d_27_arguments_and_setters_apply_in_the_same_millisecond() -> None:
    broker, session = session_of()
    producer = broker.producer(session)

    def sent(*arguments: Any, **options: Any) -> tuple[Any, ...]:
        message = Message()
        producer.send(message, QUEUE, *arguments, **options)
        ((*_, fields),) = broker.heard()
        assert message._fields[:6] == fields[:6]
        return tuple(fields[1:6])

    assert sent() == sent() == (NOW, 4, 2, 0, 0)
    assert sent(delivery_mode=1) == (NOW, 4, 1, 0, 0)
    assert sent() == (NOW, 4, 2, 0, 0)
    assert sent(priority=9, time_to_live=5) == (NOW, 9, 2, NOW + 5, 0)
    assert sent() == (NOW, 4, 2, 0, 0)
    producer.set_priority(7)
    assert sent() == (NOW, 7, 2, 0, 0)
    producer.set_time_to_live(3)
    assert sent() == (NOW, 7, 2, NOW + 3, 0)
    assert sent(time_to_live=0) == (NOW, 7, 2, 0, 0)
    producer.set_delivery_delay(8)
    assert sent() == (NOW, 7, 2, NOW + 3, NOW + 8)
    producer.set_delivery_mode(1)
    assert sent() == (NOW, 7, 1, NOW + 3, NOW + 8)
    producer.set_disable_timestamp(True)
    assert sent() == (0, 7, 1, NOW + 3, NOW + 8)
    producer.set_disable_timestamp(False)
    assert sent() == (NOW, 7, 1, NOW + 3, NOW + 8)
    broker.engine.terms.move_clock(100, None)
    assert sent() == (NOW + 100, 7, 1, NOW + 103, NOW + 108)


def test_pro_01_ids_are_disabled_and_enabled_again() -> None:
    broker, session = session_of()
    producer = broker.producer(session)
    ids = []
    for disabled in (False, True, True, False, False, True):
        producer.disable_message_id = disabled
        message = Message()
        producer.send(message, QUEUE, delivery_mode=1)
        ((*_, fields),) = broker.heard()
        assert fields[0] == message.get_jms_message_id()
        ids.append(fields[0])
    assert ids == ["ID:c1:1", None, None, "ID:c1:2", "ID:c1:3", None]


def test_a_sequence_may_be_as_long_as_it_likes() -> None:
    broker, session = session_of()
    sends = session.sends
    sends.sequence = sends.confirmed = 2**40
    sends.open_window()
    broker.producer(session).send(Message(), QUEUE, delivery_mode=1)
    ((_, _, sequence, *_),) = broker.heard()
    assert sequence == 2**40 + 1
    broker.say(Command.CONFIRM, session.id, sequence)
    assert not sends.unconfirmed


@pytest.mark.parametrize("bad", [Message(properties={f"p{n}": 1 for n in range(1_001)}), TextMessage("x" * 100)])
def test_a_message_that_cannot_be_sent_leaves_no_trace(bad: Message) -> None:
    broker, session = session_of()
    broker.engine.terms.max_body = 99
    producer = broker.producer(session)
    producer.send(Message(), QUEUE, delivery_mode=1)
    with pytest.raises((MessageFormatException, ResourceAllocationException)):
        producer.send(bad, QUEUE, delivery_mode=1)
    assert bad.get_jms_message_id() is None
    producer.send(Message(), QUEUE, delivery_mode=1)
    assert [command[2] for command in broker.heard()] == [1, 2]


def test_letters_of_types_travel_in_place() -> None:
    broker, session = session_of()
    message = BytesMessage(b"x", properties={"b": Byte(1), "f": Float(0.5), "s": "text"})
    broker.producer(session).send(message, QUEUE)
    ((*_, fields),) = broker.heard()
    assert fields[9:] == (pack({"b": 1, "f": 0.5, "s": "text"}), "bfs", 2, b"x")
    assert unpack_value(fields[9]) == {"b": 1, "f": 0.5, "s": "text"}
