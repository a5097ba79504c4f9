"""AMQP's values, performatives and frames: round trips, other peers' bytes, and what is no AMQP."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_broker.protocols.amqp.composites import read, write
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, SASL_HEADER, FrameParser, frame_of
from sievemq_broker.protocols.amqp.performatives import Attach, Flow, Open, SaslMechanisms, Source
from sievemq_broker.protocols.amqp.types import (
    MAX_DEPTH,
    VALUES,
    Array,
    Char,
    Decimal,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
)
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.message.values import Byte, Float, Long, Short

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
ASCII = st.text(st.characters(codec="ascii"), max_size=40).map(Symbol)
SCALARS = st.one_of(
    st.none(), st.booleans(), TEXT, ASCII, st.binary(max_size=300), st.floats(), st.floats(width=32).map(Float),
    st.integers(0, 2**8 - 1).map(UByte), st.integers(0, 2**16 - 1).map(UShort), st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong), st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short), st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long), st.integers(-(2**63), 2**63 - 1).map(Timestamp), st.uuids(),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(min_size=8, max_size=8).map(lambda b: Decimal(0x84, b)),
)  # fmt: skip
KEYS = st.one_of(TEXT, ASCII, st.integers(2, 100).map(ULong))
VALUES_OF_ALL_KINDS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(KEYS, inner, max_size=5),
        st.builds(Described, st.integers(0, 300).map(ULong), inner),
    ),
    max_leaves=12,
)
ARRAYS = st.one_of(
    st.lists(ASCII, max_size=5).map(lambda items: Array(items, 0xA3)),
    st.lists(st.integers(0, 2**32 - 1).map(UInt), max_size=5).map(lambda items: Array(items, 0x70)),
    st.lists(st.integers(-(2**63), 2**63 - 1).map(Long), max_size=5).map(lambda items: Array(items, 0x81)),
    st.lists(st.uuids(), max_size=5).map(lambda items: Array(items, 0x98)),
)


def bytes_of(value: object) -> bytes:
    out = bytearray()
    encode(value, out)
    return bytes(out)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, Described):
        return same(one.descriptor, other.descriptor) and same(one.value, other.value)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    return bool(one == other)


@given(VALUES_OF_ALL_KINDS | ARRAYS)
def test_a_value_round_trips_with_its_type(value: Any) -> None:
    data = bytes_of(value)
    found, end = decode(data, 0, len(data))
    assert end == len(data)
    assert same(found, value)


@given(VALUES_OF_ALL_KINDS | ARRAYS, st.data())
def test_a_value_that_is_cut_is_refused(value: Any, data: st.DataObject) -> None:
    whole = bytes_of(value)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProtocolError) as refused:
        decode(whole[:cut], 0, cut)
    assert refused.value.code is ErrorCode.MALFORMED_FRAME


@given(st.binary(max_size=80))
@settings(max_examples=400)
def test_any_bytes_are_a_value_or_are_refused(data: bytes) -> None:
    try:
        value, end = decode(data, 0, len(data))
    except ProtocolError:
        return
    assert 0 < end <= len(data)
    if not isinstance(value, Array):
        read(Described(ULong(0), value))


#: As the specification writes them (part 1, section 1.6), and as other clients do.
KNOWN = [
    ("40", None), ("41", True), ("5601", True), ("5600", False), ("50ff", UByte(255)), ("60ffff", UShort(65_535)),
    ("70000000ff", UInt(255)), ("52ff", UInt(255)), ("43", UInt(0)), ("80000000000000000a", ULong(10)),
    ("530a", ULong(10)),
    ("44", ULong(0)), ("51ff", Byte(-1)), ("61ffff", Short(-1)), ("71ffffffff", -1), ("54ff", -1),
    ("81ffffffffffffffff", Long(-1)), ("55ff", Long(-1)), ("723fc00000", Float(1.5)), ("823ff8000000000000", 1.5),
    ("7300000041", Char("A")), ("83000000000000000a", Timestamp(10)), ("740000000a", Decimal(0x74, b"\0\0\0\n")),
    ("98" + "00" * 15 + "01", UUID(int=1)), ("a00161", b"a"), ("b00000000161", b"a"), ("a10161", "a"),
    ("b10000000161", "a"), ("a30161", Symbol("a")), ("b30000000161", Symbol("a")), ("45", []), ("c0020141", [True]),
    ("d0000000050000000141", [True]), ("c10301a141", None),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value"), KNOWN[:-1])
def test_every_constructor_of_the_specification(data: str, value: object) -> None:
    found, _ = decode(bytes.fromhex(data), 0, len(data) // 2)
    assert same(found, value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "missing"), (b"\x3f", "no type"), (b"\xe5\x01\x00", "no type"), (b"\x56\x02", "boolean"),
        (b"\xa1\x01\xff", "UTF-8"), (b"\xa3\x01\xff", "ASCII"), (b"\x73\x00\x11\x00\x00", "Unicode"),
        (b"\xc1\x02\x01\x40", "without a value"), (b"\xc1\x03\x02\x45\x40", "key of a map"),
        (b"\xc0\x03\x01\x40\x40", "left behind"),
        (b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff", "announced"), (b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff", "announced"),
        (b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40", "announced"), (b"\xb0\xff\xff\xff\xff", "announced"),
        (b"\xf0\x00\x00\x00\x06\x00\x00\x00\x01\x56\x41", "boolean"),
    ],
)  # fmt: skip
def test_a_malformed_value_raises_with_the_reason(data: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        decode(data, 0, len(data))


def test_values_are_bounded_in_depth_and_number() -> None:
    deep = b"\xc0\xff\x01" * (MAX_DEPTH + 1)
    nested: Any = None
    for _ in range(MAX_DEPTH + 1):
        nested = [nested]
    with pytest.raises(ProtocolError, match="deeper"):
        decode(bytes_of(nested), 0, len(bytes_of(nested)))
    with pytest.raises(ProtocolError):
        decode(deep, 0, len(deep))
    with pytest.raises(ProtocolError, match="deeper"):
        decode(b"\0" * 100, 0, 100)
    many = bytes_of([None] * (VALUES + 1))
    with pytest.raises(ProtocolError, match=f"{VALUES} values"):
        decode(many, 0, len(many))
    assert decode(many, 0, len(many), VALUES + 1)[1] == len(many)


def test_values_that_amqp_has_not() -> None:
    with pytest.raises(TypeError, match="object"):
        bytes_of(object())


# -- composites -------------------------------------------------------------------------------------------------------


def test_a_composite_round_trips_without_defaults() -> None:
    out = bytearray()
    write(Open(container_id="c"), out)
    assert bytes(out) == b"\0\x53\x10\xc0\x04\x01\xa1\x01c"
    assert read(decode(bytes(out), 0, len(out))[0]) == Open(container_id="c")
    attach = Attach(name="l", handle=3, role=True, source=Source(address="q", capabilities=["queue", "shared"]))
    out = bytearray()
    write(attach, out)
    assert read(decode(bytes(out), 0, len(out))[0]) == attach


def test_one_symbol_may_stand_for_several_and_a_symbol_for_the_number() -> None:
    value = Described(Symbol("amqp:sasl-mechanisms:list"), [Symbol("PLAIN")])
    assert read(value) == SaslMechanisms(sasl_server_mechanisms=["PLAIN"])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Described(ULong(0x10), []), "open needs container-id"),
        (Described(ULong(0x10), ["c", 5]), "hostname of open must be a string"),
        (Described(ULong(0x10), {}), "open must be a list"),
        (Described(ULong(0x10), ["c"] + [None] * 10), "open has 10 fields, not 11"),
        (Described(ULong(0x13), [None, UInt(1), UInt(1), UInt(1), -1]), "handle of flow must be a uint"),
        (Described(ULong(0x40), [["PLAIN"]]), "must be a symbols"),
    ],
)
def test_a_composite_with_wrong_fields_says_which(value: Described, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        read(value)


# -- frames -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 30), max_size=12))
def test_frames_cut_anywhere(cuts: list[int]) -> None:
    flow = Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3)
    data = SASL_HEADER + AMQP_HEADER + frame_of(Open(container_id="c"), 0) + frame_of(None) + frame_of(flow, 7, b"rest")
    parser = FrameParser(1_000)
    found = []
    at = 0
    for size in [*cuts, len(data)]:
        parser.receive(data[at : at + size])
        at += size
        while (frame := parser.next()) is not None:
            found.append((frame.kind, frame.channel, frame.body, frame.payload))
    assert found == [
        (-1, 0, SASL_HEADER, b""), (-1, 0, AMQP_HEADER, b""), (0, 0, Open(container_id="c"), b""), (0, 0, None, b""),
        (0, 7, flow, b"rest"),
    ]  # fmt: skip
    assert (parser.number, parser.pending) == (5, 0)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (struct.pack(">IBBH", 7, 2, 0, 0), ErrorCode.MALFORMED_FRAME),
        (struct.pack(">IBBH", 8, 1, 0, 0), ErrorCode.MALFORMED_FRAME),
        (struct.pack(">IBBH", 8, 3, 0, 0), ErrorCode.MALFORMED_FRAME),
        (struct.pack(">IBBH", 8, 2, 2, 0), ErrorCode.MALFORMED_FRAME),
        (struct.pack(">IBBH", 1_001, 2, 0, 0), ErrorCode.FRAME_TOO_LARGE),
        (struct.pack(">IBBH", 9, 2, 0, 0) + b"\x40", ErrorCode.MALFORMED_FRAME),
    ],
)
def test_malformed_frames_are_refused(data: bytes, code: ErrorCode) -> None:
    parser = FrameParser(1_000)
    parser.receive(data)
    with pytest.raises(ProtocolError) as refused:
        parser.next()
    assert refused.value.code is code


def test_an_extended_header_is_passed_over() -> None:
    whole = frame_of(Open(container_id="c"))
    parser = FrameParser(1_000)
    parser.receive(struct.pack(">IBBH", len(whole) + 4, 3, 0, 0) + b"more" + whole[8:])
    frame = parser.next()
    assert frame is not None
    assert frame.body == Open(container_id="c")
