"""Section 23, ObjectMessage (OBJ)."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from dataclasses import dataclass, field
from enum import Enum, IntEnum

import msgpack
import pytest

from sievemq import Byte, Char, Double, Float, Int, Long, MessageFormatException, ObjectMessage, Short, register_type
from sievemq.object_codec import decode_object, encode_object
from sievemq_core.errors import FormatError


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
def test_obj_01_values_that_cannot_be_encoded_are_refused_when_set(value, text):
    message = ObjectMessage("before")
    with pytest.raises(MessageFormatException, match=text):
        message.set_object(value)
    assert message.get_object() == "before"


def test_obj_01_values_nested_too_deeply_are_refused_when_set():
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


def test_obj_02_values_that_a_class_rejects_are_refused(deliver):
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
