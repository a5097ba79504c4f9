"""What most messages are made of takes a short way: it must show in nothing but time."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from tests.client.messages.envelope import send

from sievemq import BytesMessage, Queue, TextMessage
from sievemq.exceptions import MessageFormatException, MessageNotReadableException, MessageNotWriteableException
from sievemq.messages import Message
from sievemq.messages.modes import PROPERTIES_READ_ONLY
from sievemq_core.message.values import Byte, Double, Int, Long, Short

KINDS = (Message, TextMessage, BytesMessage)


class Name(str):
    """Text by another name."""


@pytest.fixture(autouse=True)
def known() -> None:
    """The name has been seen before."""
    Message(properties={"known": 1})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("value", "held"),
    [
        (True, bool),
        (1, int),
        (-(2**63), int),
        (2**63 - 1, int),
        (1.5, float),
        ("text", str),
        (Name("text"), str),
        (None, type(None)),
        (Byte(1), Byte),
        (Short(1), Short),
        (Long(1), Long),
        (Int(1), int),
        (Double(1.5), float),
    ],
)
def test_prp_02_a_known_name_holds_what_a_new_one_holds(kind: type[Message], value: Any, held: type) -> None:
    message = kind()
    message.set_object_property("known", value)
    assert message.get_object_property("known") == value
    assert type(message.get_object_property("known")) is held


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, b"bytes", [], object()])
def test_prp_02_a_known_name_refuses_what_a_new_one_refuses(kind: type[Message], value: Any) -> None:
    message = kind()
    with pytest.raises(MessageFormatException, match="known"):
        message.set_object_property("known", value)
    assert not message.property_exists("known")


def test_prp_07_a_name_that_only_equals_a_known_one() -> None:
    message = Message()
    message.set_object_property(Name("known"), 2)
    assert dict(message.properties) == {"known": 2}
    for name in (["known"], None, 7):
        with pytest.raises(ValueError, match="must be text"):
            message.set_object_property(name, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1, "text", 1.5, True])
def test_prp_10_a_received_message_refuses_a_known_name(value: Any) -> None:
    message = Message(properties={"known": 1})
    message._modes |= PROPERTIES_READ_ONLY
    with pytest.raises(MessageNotWriteableException):
        message.set_object_property("known", value)
    assert message.get_object_property("known") == 1
    message.clear_properties()
    message.set_object_property("known", value)
    assert message.get_object_property("known") == value


def test_mod_02_given_bytes_are_write_only_until_they_are_reset() -> None:
    message = BytesMessage(b"given")
    for read in (message.read_byte, message.get_body_length):
        with pytest.raises(MessageNotReadableException):
            read()
    message.write_bytes(b" and written")
    with pytest.raises(MessageNotReadableException):
        message.read_byte()
    message.reset()
    assert message.get_body(bytes) == b"given and written"
    assert message.read_unsigned_byte() == ord("g")
    with pytest.raises(MessageNotWriteableException):
        message.write_byte(1)
    message.clear_body()
    with pytest.raises(MessageNotReadableException):
        message.read_byte()
    message.write_bytes(b"again")
    assert message.get_body(bytes) == b"again"


@pytest.mark.parametrize("data", [bytearray(b"data"), memoryview(bytearray(b"data"))])
def test_nul_13_mutable_values_are_copied(data: Any) -> None:
    message = BytesMessage(data)
    data[0] = 0
    assert message.get_body(bytes) == b"data"


def test_given_bytes_stay_as_they_are_when_more_is_written() -> None:
    data = b"data"
    first, second = BytesMessage(data), BytesMessage(data)
    first.write_byte(1)
    assert first.get_body(bytes) == b"data\x01"
    assert second.get_body(bytes) == data == b"data"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_msg_17_copies_are_written_independently(again: Any) -> None:
    message = BytesMessage(b"data")
    other = again(message)
    other.write_byte(1)
    message.write_byte(2)
    assert (other.get_body(bytes), message.get_body(bytes)) == (b"data\x01", b"data\x02")


@pytest.mark.parametrize("kind", KINDS)
def test_every_constructor_makes_the_same_message(kind: type[Message]) -> None:
    made, plain = kind(), Message()
    for name in ("_fields", "_properties", "_modes", "_destination", "_acknowledge", "_count", "_redelivered"):
        assert getattr(made, name) == getattr(plain, name)
    assert made._fields is plain._fields
    assert made._properties is not plain._properties


@pytest.mark.parametrize("kind", KINDS)
def test_hdr_17_a_send_keeps_the_clients_headers(kind: type[Message]) -> None:
    message = kind()
    send(message, "ID:c:1", 2, 3, 1, 4, 5, Queue("q"))
    assert message._fields == ("ID:c:1", 2, 3, 1, 4, 5, None, None, None, None, None, 0, None)
    message.set_jms_type("t")
    message.set_jms_correlation_id("c")
    send(message, "ID:c:2", 6, 7, 2, 8, 9, Queue("p"))
    assert message._fields == ("ID:c:2", 6, 7, 2, 8, 9, "c", None, "t", None, None, 0, None)
    assert message.get_jms_destination() == Queue("p")
