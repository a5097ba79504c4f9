"""Section 23, BytesMessage (BYT)."""

from __future__ import annotations

import math
import struct

import pytest

from sievemq import (
    Byte,
    BytesMessage,
    Char,
    Float,
    Long,
    MapMessage,
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    NullValueError,
    Short,
    StreamMessage,
)

NUMBERS = [
    pytest.param("boolean", [True, False], b"\x01", id="BYT-02"),
    pytest.param("byte", [-128, -1, 0, 127], b"\x80", id="BYT-03"),
    pytest.param("short", [-32768, -1, 32767], b"\x80\x00", id="BYT-05"),
    pytest.param("char", ["a", "\0", "é", "\ud83d", "\uffff"], b"\x00a", id="BYT-07"),
    pytest.param("int", [-(2**31), -1, 2**31 - 1], b"\x80\x00\x00\x00", id="BYT-08"),
    pytest.param("long", [-(2**63), -1, 2**63 - 1], b"\x80" + b"\x00" * 7, id="BYT-09"),
    pytest.param("float", [1.5, -0.0, math.inf, 0.10000000149011612], b"\x3f\xc0\x00\x00", id="BYT-10"),
    pytest.param("double", [1.5, 0.1, -math.inf, 5e-324], b"\x3f\xf8" + b"\x00" * 6, id="BYT-11"),
]


@pytest.mark.parametrize(("kind", "values", "first"), NUMBERS)
def test_numbers_are_big_endian_and_round_trip(kind, values, first, deliver):
    message = BytesMessage()
    for value in values:
        getattr(message, f"write_{kind}")(value)
    here = deliver(message)
    assert here.get_body(bytes).startswith(first)
    assert here.get_body_length() == len(first) * len(values)
    assert [getattr(here, f"read_{kind}")() for _ in values] == values
    with pytest.raises(MessageEOFException):
        getattr(here, f"read_{kind}")()


def reading(data: bytes) -> BytesMessage:
    message = BytesMessage(data)
    message.reset()
    return message


def test_byt_01_the_length_wherever_the_pointer_is():
    message = BytesMessage(b"abc")
    with pytest.raises(MessageNotReadableException):
        message.get_body_length()
    message.reset()
    message.read_byte()
    assert message.get_body_length() == 3
    assert reading(b"").get_body_length() == 0


def test_byt_02_every_byte_but_zero_is_true():
    message = reading(b"\x00\x01\x02\xff")
    assert [message.read_boolean() for _ in range(4)] == [False, True, True, True]


def test_byt_04_byt_06_unsigned_reads():
    message = reading(b"\xff\xff\xfe")
    assert message.read_unsigned_byte() == 255
    assert message.read_unsigned_short() == 65534
    assert not hasattr(message, "write_unsigned_byte")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        ("abc", b"abc"),
        ("\0", b"\xc0\x80"),
        ("é", b"\xc3\xa9"),
        ("数", b"\xe6\x95\xb0"),
        ("😀", b"\xed\xa0\xbd\xed\xb8\x80"),
        ("\ud83d", b"\xed\xa0\xbd"),
        ("a\0😀", b"a\xc0\x80\xed\xa0\xbd\xed\xb8\x80"),
    ],
)
def test_byt_12_write_utf_uses_modified_utf8(text, data, deliver):
    message = BytesMessage()
    message.write_utf(text)
    message.write_byte(7)
    here = deliver(message)
    assert here.get_body(bytes) == struct.pack(">H", len(data)) + data + b"\x07"
    assert here.read_utf() == text
    assert here.read_byte() == 7


def test_byt_12_more_than_65535_bytes_are_refused():
    message = BytesMessage()
    message.write_utf("é" * 32_767 + "x")
    with pytest.raises(MessageFormatException, match="65535"):
        message.write_utf("é" * 32_768)
    message.reset()
    assert message.get_body_length() == 65_537


@pytest.mark.parametrize("data", [b"\x00\x01\xff", b"\x00\x02\xc3x", b"\x00\x04\xf0\x9f\x98\x80", b"\x00\x01\xe6"])
def test_byt_12_byt_20_bad_modified_utf8_leaves_the_pointer(data):
    message = reading(data)
    with pytest.raises(MessageFormatException, match="modified UTF-8"):
        message.read_utf()
    assert message.read_unsigned_short() == data[1]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x05abc"])
def test_byt_12_byt_20_a_text_cut_short_leaves_the_pointer(data):
    message = reading(data)
    with pytest.raises(MessageEOFException):
        message.read_utf()
    assert message.read_bytes(bytearray(9)) == (len(data) or -1)


def test_byt_13_read_bytes_fills_as_far_as_data_lasts():
    message, buffer = reading(b"abcde"), bytearray(3)
    assert message.read_bytes(buffer) == 3
    assert buffer == b"abc"
    assert message.read_bytes(buffer) == 2
    assert buffer == b"dec"
    assert message.read_bytes(buffer) == -1
    assert buffer == b"dec"


def test_byt_13_empty_buffers_and_bodies():
    assert reading(b"a").read_bytes(bytearray()) == 0
    assert reading(b"").read_bytes(bytearray(1)) == -1


def test_byt_14_read_bytes_with_a_length():
    message, buffer = reading(b"abcde"), bytearray(4)
    assert message.read_bytes(buffer, 2) == 2
    assert buffer == b"ab\0\0"
    for length in (-1, 5):
        with pytest.raises(IndexError):
            message.read_bytes(buffer, length)
    assert message.read_bytes(memoryview(buffer), 4) == 3
    assert buffer == b"cde\0"


def test_read_bytes_needs_a_buffer_that_can_be_filled():
    with pytest.raises(NullValueError):
        reading(b"a").read_bytes(None)
    for buffer in (b"abc", "abc", 3):
        with pytest.raises(TypeError):
            reading(b"a").read_bytes(buffer)


def test_byt_15_write_bytes_joins(deliver):
    message = BytesMessage(b"a")
    message.write_bytes(bytearray(b"bcd"), 1, 1)
    message.write_bytes(memoryview(b"xyz"), 1)
    assert deliver(message).get_body(bytes) == b"acyz"
    for offset, length in ((-1, 1), (0, 4), (4, 0), (2, -1), (4, None)):
        with pytest.raises(IndexError):
            message.write_bytes(b"abc", offset, length)
    with pytest.raises(MessageFormatException):
        message.write_bytes("text")


def test_byt_16_write_object(deliver):
    message = BytesMessage()
    for value in (True, Byte(1), Short(2), Char("c"), 3, Long(4), 2**40, Float(0.5), 1.5, "x", b"raw", bytearray(b"!")):
        message.write_object(value)
    here = deliver(message)
    assert (here.read_boolean(), here.read_byte(), here.read_short(), here.read_char()) == (True, 1, 2, "c")
    assert (here.read_int(), here.read_long(), here.read_long()) == (3, 4, 2**40)
    assert (here.read_float(), here.read_double(), here.read_utf()) == (0.5, 1.5, "x")
    rest = bytearray(9)
    assert here.read_bytes(rest) == 4
    assert rest[:4] == b"raw!"
    for value in ([1], {"a": 1}, object(), 2**63):
        with pytest.raises(MessageFormatException):
            message.write_object(value)


WRITES = ["boolean", "byte", "short", "char", "int", "long", "float", "double", "utf", "bytes", "object"]


@pytest.mark.parametrize("kind", WRITES)
def test_byt_17_none_cannot_be_written(kind):
    message = BytesMessage()
    with pytest.raises(NullValueError):
        getattr(message, f"write_{kind}")(None)
    message.reset()
    assert message.get_body_length() == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", 1), ("byte", 128), ("byte", True), ("short", 40_000), ("char", "ab"), ("char", "😀"), ("char", 7),
        ("int", 2**31), ("int", 1.0), ("long", 2**63), ("float", "1"), ("double", "1"), ("utf", b"x"), ("utf", 7),
    ],
)  # fmt: skip
def test_py_08_py_11_a_value_of_another_type_or_out_of_range(kind, value):
    for message in (BytesMessage(), StreamMessage()):
        method = f"write_{'string' if kind == 'utf' and type(message) is StreamMessage else kind}"
        with pytest.raises(MessageFormatException):
            getattr(message, method)(value)
        message.reset()
        assert message.get_body(bytes) == b"" if type(message) is BytesMessage else True
    with pytest.raises(MessageFormatException):
        getattr(MapMessage(), f"set_{'string' if kind == 'utf' else kind}")("a", value)


def test_py_12_bytes_are_copied_in_and_out(deliver):
    data = bytearray(b"abc")
    message, stream, entries = BytesMessage(), StreamMessage(), MapMessage()
    message.write_bytes(data)
    stream.write_bytes(data)
    stream.write_object(data)
    entries.set_bytes("a", data)
    entries.set_object("b", memoryview(data))
    data[0] = 0
    stream.reset()
    assert message.get_body(bytes) == b"abc"
    assert (stream.read_object(), stream.read_object()) == (b"abc", b"abc")
    assert (entries.get_bytes("a"), entries.get_bytes("b")) == (b"abc", b"abc")


def test_byt_18_bytes_carry_no_types(deliver):
    message = BytesMessage()
    message.write_int(0x41424344)
    here = deliver(message)
    assert not hasattr(here, "read_object")
    assert (here.read_char(), here.read_byte(), here.read_unsigned_byte()) == ("\u4142", 0x43, 0x44)


def test_byt_19_reset_moves_to_the_start(deliver):
    here = deliver(BytesMessage(b"ab"))
    assert here.read_byte() == 97
    here.reset()
    assert here.read_byte() == 97


def test_byt_21_a_smaller_read_after_a_failed_one():
    message = reading(b"\x00\x07")
    with pytest.raises(MessageEOFException, match="4 bytes wanted at position 0, 2 left"):
        message.read_int()
    assert message.read_short() == 7
