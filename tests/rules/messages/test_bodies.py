"""Section 23: Text- and ObjectMessage (TXT, OBJ), BytesMessage (BYT), StreamMessage (STR), MapMessage (MAP)."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum

import msgpack
import pytest

from sievemq import (
    Byte,
    BytesMessage,
    Char,
    Double,
    Float,
    Int,
    Long,
    MapMessage,
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    NullValueError,
    NumberFormatError,
    ObjectMessage,
    Short,
    StreamMessage,
    TextMessage,
    register_type,
)
from sievemq.object_codec import decode_object, encode_object
from sievemq_core.errors import FormatError

# -- TextMessage ------------------------------------------------------------------------------------------------------


def test_txt_01_set_text():
    message = TextMessage()
    message.set_text("x")
    message.set_text(None)
    assert message.get_text() is None
    for value in (b"x", 7, ["x"]):
        with pytest.raises(MessageFormatException, match="holds a str"):
            message.set_text(value)
        with pytest.raises(MessageFormatException):
            TextMessage(value)


def test_txt_01_a_received_text_is_read_only(deliver):
    here = deliver(TextMessage("x"))
    with pytest.raises(MessageNotWriteableException):
        here.set_text("y")
    here.clear_body()
    assert here.get_text() is None
    here.set_text("y")
    assert here.get_text() == "y"


def test_txt_02_none_and_empty_differ_and_both_survive(deliver):
    assert TextMessage().get_text() is None
    assert deliver(TextMessage()).get_text() is None
    assert deliver(TextMessage("")).get_text() == ""


@pytest.mark.parametrize("text", ["größe", "数量", "😀", "\0", "\ud83d", "\ud83d\ude00", "a\r\n\t\x1b", "x" * 100_000])
def test_txt_03_any_text_is_carried_unchanged(text, deliver):
    assert deliver(TextMessage(text)).get_text() == text


def test_text_of_an_enumeration_is_text(deliver):
    class Region(StrEnum):
        EU = "EU"

    assert type(TextMessage(Region.EU).get_text()) is str
    assert deliver(TextMessage(Region.EU)).get_text() == "EU"


# -- ObjectMessage ----------------------------------------------------------------------------------------------------


@register_type
@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)
    norm: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise RuntimeError("x is negative")
        self.norm = math.hypot(self.x, self.y)


@register_type
class Colour(Enum):
    RED = 1


PLAIN = [
    True, 5, -(2**63), 2**64 - 1, 2**70, -(10**40), 1.5, "x", "\ud83d", b"x", [1, [2]], {"a": {"b": 1}},
    {1: "a", (1, 2): "b"},
    (1, "a"), {1, 2}, frozenset({1}), complex(1, 2), decimal.Decimal("1.10"), uuid.UUID(int=7),
    dt.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=dt.timezone(dt.timedelta(hours=1))), dt.date(2026, 1, 31),
    dt.time(12, 30, tzinfo=dt.UTC), dt.timedelta(days=-1, microseconds=5), Byte(1), Short(1), Long(1), Float(0.5),
    Int(1), Double(0.5), Char("c"), Point(3, 4, ["a"]), Colour.RED, [Point(1), {"c": Colour.RED}], "", 0, False, [], {},
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_py_23_obj_02_plain_data_and_registered_types_travel(value, deliver):
    message = ObjectMessage(value)
    for here in (message, deliver(message)):
        read = here.get_object()
        assert type(read) is type(value)
        assert read == value
        assert here.is_body_assignable_to(type(value))


def test_a_bytearray_arrives_as_bytes(deliver):
    assert deliver(ObjectMessage(bytearray(b"x"))).get_object() == b"x"


@dataclass
class Unregistered:
    x: int


class NotPlain:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Unregistered(1), "register_type"),
        (IntEnum("Level", "LOW").LOW, "register_type"),
        (NotPlain(), "not plain data"),
        ([NotPlain], "not plain data"),
        (open, "not plain data"),
        ({"a": lambda: 0}, "not plain data"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_obj_01_what_cannot_travel_is_refused_when_set(value, text):
    message = ObjectMessage("before")
    with pytest.raises(MessageFormatException, match=text):
        message.set_object(value)
    assert message.get_object() == "before"


def test_obj_01_what_is_nested_too_deeply_is_refused_when_set():
    for make in (lambda inner: [inner], lambda inner: (inner,)):
        value: object = 1
        for _ in range(2000):
            value = make(value)
        with pytest.raises(MessageFormatException):
            ObjectMessage(value)
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(MessageFormatException):
        ObjectMessage(cycle)


def test_obj_01_set_object_takes_a_snapshot():
    value = {"a": [1]}
    message = ObjectMessage(value)
    value["a"].append(2)
    assert message.get_object() == {"a": [1]}


def test_obj_02_none_by_default_and_a_fresh_copy_each_time(deliver):
    assert ObjectMessage().get_object() is None
    assert deliver(ObjectMessage(None)).get_object() is None
    here = deliver(ObjectMessage([1]))
    here.get_object().append(2)
    assert here.get_object() == [1]


def test_obj_02_a_type_that_is_not_registered_here_is_a_message_format_exception(monkeypatch, deliver):
    from sievemq import object_codec as codec

    here = deliver(ObjectMessage(Point(1)))
    monkeypatch.setattr(codec, "_by_name", {})
    with pytest.raises(MessageFormatException, match="not registered here"):
        here.get_object()
    assert "cannot be decoded here" in repr(here)


def test_obj_02_fields_may_differ_between_two_versions_of_a_type(monkeypatch):
    from sievemq import object_codec as codec

    @dataclass
    class Old:
        x: int

    @dataclass
    class Other:
        z: int

    name = f"{Point.__module__}.{Point.__qualname__}"
    newer = encode_object(Point(1, 2))
    monkeypatch.setattr(codec, "_by_name", {name: Old})
    assert decode_object(newer) == Old(1)
    monkeypatch.setattr(codec, "_names", {Old: name})
    older = encode_object(Old(1))
    monkeypatch.setattr(codec, "_by_name", {name: Point})
    assert decode_object(older) == Point(1, 0)
    monkeypatch.setattr(codec, "_by_name", {name: Other})
    with pytest.raises(FormatError, match="without its field 'z'"):
        decode_object(older)


def test_obj_02_what_a_class_refuses_does_not_get_through(deliver):
    point = Point(1)
    point.x = -1
    here = deliver(ObjectMessage(point))
    with pytest.raises(MessageFormatException, match="x is negative"):
        here.get_object()


def test_register_type_refuses_other_classes_and_a_name_that_is_taken():
    with pytest.raises(TypeError):
        register_type(NotPlain)
    with pytest.raises(TypeError):
        register_type(Point(1))
    with pytest.raises(ValueError, match="registered as"):
        register_type(Unregistered, f"{Point.__module__}.{Point.__qualname__}")
    assert register_type(Point) is Point  # a second time does no harm


@pytest.mark.parametrize("depth", [70, 5000])
def test_a_hostile_object_is_a_message_format_exception(depth):
    nested = b"\x90"
    for _ in range(depth):
        nested = msgpack.packb(msgpack.ExtType(1, nested))
    hostile = [
        nested,
        b"\x91" * depth * 100 + b"\xc0",
        msgpack.packb(msgpack.ExtType(99, b"\xc0")),
        msgpack.packb(msgpack.ExtType(2, b"\x91\x90")),
        msgpack.packb(msgpack.ExtType(5, b"\xa1x")),
        msgpack.packb(msgpack.ExtType(11, msgpack.packb(["os.system", {"command": "x"}]))),
        msgpack.packb(msgpack.ExtType(11, b"\xc0")),
        msgpack.packb(msgpack.ExtType(12, msgpack.packb(["b", 300]))),
        msgpack.packb(msgpack.ExtType(4, msgpack.packb("9" * 10_000))),
        msgpack.packb(msgpack.ExtType(9, msgpack.packb("x"))),
    ]
    for body in hostile:
        with pytest.raises(FormatError):
            decode_object(body)


# -- BytesMessage -----------------------------------------------------------------------------------------------------

#: method suffix, values, bytes of the first value
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
def test_numbers_are_big_endian_and_come_back(kind, values, first, deliver):
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
        assert message.get_body(bytes) is None if type(message) is BytesMessage else True
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


def test_byt_18_nothing_says_what_the_bytes_are(deliver):
    message = BytesMessage()
    message.write_int(0x41424344)
    here = deliver(message)
    assert not hasattr(here, "read_object")
    assert (here.read_char(), here.read_byte(), here.read_unsigned_byte()) == ("\u4142", 0x43, 0x44)


def test_byt_19_reset_goes_to_the_start(deliver):
    here = deliver(BytesMessage(b"ab"))
    assert here.read_byte() == 97
    here.reset()
    assert here.read_byte() == 97


def test_byt_21_a_smaller_read_after_a_failed_one():
    message = reading(b"\x00\x07")
    with pytest.raises(MessageEOFException, match="4 bytes wanted at position 0, 2 left"):
        message.read_int()
    assert message.read_short() == 7


# -- StreamMessage ----------------------------------------------------------------------------------------------------

TYPED = [
    ("boolean", True), ("byte", 7), ("short", 300), ("char", "c"), ("int", 70_000), ("long", 5), ("long", 2**40),
    ("float", 0.5), ("double", 0.1), ("string", "x"), ("string", None), ("string", "\ud83d"),
]  # fmt: skip


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


OBJECTS = [True, Byte(1), Short(2), Char("c"), 3, Long(4), 2**40, Float(0.5), 1.5, "x", b"raw", None]


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


def test_str_17_reset_drops_what_was_read_in_part(deliver):
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


# -- MapMessage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string"])
def test_map_01_typed_entries(kind, deliver):
    for number, (written, value) in enumerate(TYPED):
        if written == kind:
            message = MapMessage()
            getattr(message, f"set_{kind}")(f"n{number}", value)
            assert getattr(deliver(message), f"get_{kind}")(f"n{number}") == value


@pytest.mark.parametrize(
    "kind", ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes", "object"]
)
@pytest.mark.parametrize("name", [None, "", 7])
def test_map_01_a_name_must_be_text_and_not_empty(kind, name):
    value = {"boolean": True, "char": "c", "string": "x", "bytes": b"x"}.get(kind, 1)
    with pytest.raises(ValueError):
        getattr(MapMessage(), f"set_{kind}")(name, value)


def test_map_02_set_bytes(deliver):
    message = MapMessage()
    message.set_bytes("a", b"abc")
    message.set_bytes("b", bytearray(b"abcdef"), 1, 2)
    message.set_bytes("c", None)
    here = deliver(message)
    assert (here.get_bytes("a"), here.get_bytes("b"), here.get_bytes("c")) == (b"abc", b"bc", None)
    with pytest.raises(IndexError):
        message.set_bytes("a", b"abc", 2, 2)


def test_map_03_map_04_nul_11_set_object_and_get_object_keep_the_type(deliver):
    here = deliver(MapMessage({f"n{n}": value for n, value in enumerate(OBJECTS)}))
    read = [here.get_object(f"n{n}") for n in range(len(OBJECTS))]
    assert read == OBJECTS
    assert [type(value) for value in read] == [type(value) for value in OBJECTS]


def test_map_05_a_name_never_set_is_a_null():
    message = MapMessage()
    assert (message.get_string("a"), message.get_bytes("a"), message.get_object("a")) == (None, None, None)
    assert message.get_boolean("a") is False
    for kind, error in (("int", NumberFormatError), ("float", NullValueError), ("char", NullValueError)):
        with pytest.raises(error, match="entry 'a'"):
            getattr(message, f"get_{kind}")("a")


def test_map_06_map_07_names_include_those_with_a_null(deliver):
    here = deliver(MapMessage({"a": None, "b": 1}))
    names = here.get_map_names()
    assert isinstance(names, Iterator)
    assert sorted(names) == ["a", "b"]
    assert here.item_exists("a")
    assert not here.item_exists("c")


def test_map_08_a_received_map_is_read_only(deliver):
    here = deliver(MapMessage({"a": 1}))
    with pytest.raises(MessageNotWriteableException, match=r"clear_body\(\)"):
        here.set_int("b", 1)
    with pytest.raises(MessageNotWriteableException):
        here.set_bytes("b", b"")
    here.clear_body()
    assert not here.item_exists("a")
    here.set_int("b", 1)
    assert here.get_body(dict) == {"b": 1}


def test_map_09_get_body_gives_all_entries_in_their_types(deliver):
    body = deliver(MapMessage({"a": Short(1), "b": "x", "c": None})).get_body(dict)
    assert body == {"a": 1, "b": "x", "c": None}
    assert type(body["a"]) is Short


def test_map_10_a_second_set_replaces_value_and_type(deliver):
    message = MapMessage({"a": Short(1)})
    message.set_string("a", "two")
    assert deliver(message).get_object("a") == "two"


@pytest.mark.parametrize("name", ["a b", "1", "NULL", "größe", "\0", "a.b", " "])
def test_map_11_names_are_any_text(name, deliver):
    assert deliver(MapMessage({name: 7})).get_int(name) == 7
