"""Section 23, StreamMessage (STR)."""

from __future__ import annotations

import decimal

import pytest

from sievemq import (
    Char,
    MapMessage,
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    NullValueError,
    NumberFormatError,
    StreamMessage,
)

from .values import OBJECTS, TYPED


def stream_of(*values: object) -> StreamMessage:
    message = StreamMessage(values)
    message.reset()
    return message


def test_str_01_str_04_typed_fields_in_order(deliver):
    message = StreamMessage()
    for kind, value in TYPED:
        getattr(message, f"write_{kind}")(value)
    here = deliver(message)
    assert [getattr(here, f"read_{kind}")() for kind, _ in TYPED] == [value for _, value in TYPED]
    for kind in ("boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "object"):
        with pytest.raises(MessageEOFException):
            getattr(here, f"read_{kind}")()
    with pytest.raises(MessageEOFException):
        here.read_bytes(bytearray(1))


def test_str_02_two_writes_of_bytes_are_two_fields(deliver):
    message = StreamMessage()
    message.write_bytes(b"ab")
    message.write_bytes(b"cdef", 1, 2)
    message.write_bytes(b"xyz", 2)
    message.write_bytes(None)
    here = deliver(message)
    assert [here.read_object() for _ in range(4)] == [b"ab", b"de", b"z", None]
    for arguments in ((b"abc", -1), (b"abc", 0, 4)):
        with pytest.raises(IndexError):
            message.write_bytes(*arguments)
    with pytest.raises(MessageFormatException):
        message.write_bytes("text")


def test_str_03_str_05_nul_11_write_object_and_read_object_keep_the_type(deliver):
    here = deliver(StreamMessage(OBJECTS))
    read = [here.read_object() for _ in OBJECTS]
    assert read == OBJECTS
    assert [type(value) for value in read] == [type(value) for value in OBJECTS]


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), 2**63, decimal.Decimal(1), (1,)])
def test_str_03_map_03_other_types_are_refused(value):
    with pytest.raises(MessageFormatException, match="field 0"):
        StreamMessage([value])
    with pytest.raises(MessageFormatException, match="entry 'a'"):
        MapMessage({"a": value})


def test_str_06_str_07_read_bytes_in_parts():
    message, buffer = stream_of(b"abcde", 7), bytearray(3)
    assert message.read_bytes(buffer) == 3
    assert buffer == b"abc"
    assert message.read_bytes(buffer) == 2
    assert buffer == b"dec"
    assert message.read_int() == 7


def test_str_08_a_count_equal_to_the_buffer_needs_another_call():
    message, buffer = stream_of(b"abcd", b"x"), bytearray(2)
    assert [message.read_bytes(buffer) for _ in range(3)] == [2, 2, -1]
    assert message.read_bytes(buffer) == 1
    with pytest.raises(MessageEOFException):
        message.read_bytes(buffer)


def test_str_09_str_10_empty_and_null_fields():
    message, buffer = stream_of(b"", None, b"x"), bytearray(2)
    assert [message.read_bytes(buffer) for _ in range(3)] == [0, -1, 1]


@pytest.mark.parametrize(
    "kind", ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "object"]
)
def test_str_11_no_other_read_while_a_field_is_read_in_part(kind):
    message, buffer = stream_of(b"abcd"), bytearray(2)
    message.read_bytes(buffer)
    with pytest.raises(MessageFormatException, match="in part"):
        getattr(message, f"read_{kind}")()
    assert [message.read_bytes(buffer), message.read_bytes(buffer)] == [2, -1]


@pytest.mark.parametrize("value", ["x", 7, True, Char("c"), 1.5])
def test_str_12_read_bytes_of_another_field(value):
    message = stream_of(value)
    with pytest.raises(MessageFormatException, match="no byte"):
        message.read_bytes(bytearray(2))
    assert message.read_object() == value


def test_str_13_read_object_of_an_untouched_byte_field():
    assert stream_of(b"abc").read_object() == b"abc"


@pytest.mark.parametrize(
    ("value", "failing", "error"),
    [
        (7, "boolean", MessageFormatException),
        ("x", "int", NumberFormatError),
        (None, "int", NumberFormatError),
        (None, "double", NullValueError),
        (None, "char", NullValueError),
    ],
)
def test_str_14_a_failed_conversion_leaves_the_pointer(value, failing, error):
    message = stream_of(value, "next")
    for _ in range(2):
        with pytest.raises(error, match="field 0"):
            getattr(message, f"read_{failing}")()
    assert message.read_object() == value
    assert message.read_string() == "next"


@pytest.mark.parametrize(
    "kind", ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "object"]
)
def test_str_15_str_16_modes_of_every_method(kind, deliver):
    message = StreamMessage([1])
    with pytest.raises(MessageNotReadableException):
        getattr(message, f"read_{kind}")()
    with pytest.raises(MessageNotReadableException):
        message.read_bytes(bytearray(1))
    here = deliver(message)
    with pytest.raises(MessageNotWriteableException):
        getattr(here, f"write_{kind}")(1)
    with pytest.raises(MessageNotWriteableException):
        here.write_bytes(b"x")


def test_str_17_reset_ends_a_partial_read(deliver):
    here = deliver(StreamMessage([b"abcd", 7]))
    here.read_bytes(bytearray(2))
    here.reset()
    assert here.read_object() == b"abcd"
    here.reset()
    assert here.read_object() == b"abcd"


def test_str_18_a_stream_has_no_body_as_a_whole():
    for wanted in (list, object, str):
        with pytest.raises(MessageFormatException):
            StreamMessage([1]).get_body(wanted)
        assert not StreamMessage().is_body_assignable_to(wanted)
