"""Any message, encoded and received, is the same message: values, types, kind (hypothesis)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.messages.envelope import fields_of

from sievemq import (
    Byte,
    BytesMessage,
    Char,
    Float,
    Long,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    Short,
    StreamMessage,
    TextMessage,
    Topic,
)
from sievemq.messages import received
from sievemq.messages.base import PENDING
from sievemq_core.message.conversion import parse_floating, text_of
from sievemq_core.message.values import letter_of, to_single

text = st.text(st.characters(codec=None), max_size=20)  # surrogates too
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
scalars = st.one_of(
    st.booleans(), int64, st.floats(), text, st.none(),
    st.integers(-128, 127).map(Byte), st.integers(-32768, 32767).map(Short), int32.map(Long),
    st.floats(width=32).map(Float),
)  # fmt: skip
names = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,8}", fullmatch=True).map(lambda name: f"p_{name}")
properties = st.dictionaries(names, scalars, max_size=6)
fields = st.one_of(scalars, st.binary(max_size=20), st.characters(max_codepoint=0xFFFF).map(Char))
headers = st.fixed_dictionaries(
    {
        "correlation_id": st.none() | text,
        "type": st.none() | text,
        "reply_to": st.none() | st.sampled_from([Queue("q"), Topic("t")]),
    }
)


def same(one: Any, other: Any) -> bool:
    """Equal in type and value, NaN included, 0.0 and -0.0 apart."""
    if {type(one), type(other)} == {int, Long}:  # a plain int beyond 32 bits is a long too
        return letter_of(one) == letter_of(other) and bool(one == other)
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (one != one and other != other) or (one == other and math.copysign(1, one) == math.copysign(1, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def travel(message: Message, hops: int = 1) -> Message:
    for _ in range(hops):
        sent = fields_of(message)
        message = received(sent, Queue("q"), 1, None)
    return message


@given(properties, headers, st.integers(1, 2), st.booleans())
def test_properties_and_headers(values, header, hops, look):
    message = Message(properties=values)
    message.set_jms_correlation_id(header["correlation_id"])
    message.set_jms_type(header["type"])
    message.set_jms_reply_to(header["reply_to"])
    here = travel(message)
    if look:
        assert here.property_exists("JMSXDeliveryCount")
    here = travel(here, hops)
    read = dict(here.properties)
    assert read.pop("JMSXDeliveryCount") == 1
    assert same(read, dict(message.properties))
    assert here.get_jms_correlation_id() == header["correlation_id"]
    assert here.get_jms_type() == header["type"]
    assert here.get_jms_reply_to() == header["reply_to"]


@given(st.none() | st.text(st.characters(codec=None)))
def test_text(value):
    assert same(travel(TextMessage(value), 2).get_text(), value)


@given(st.binary())
def test_bytes(value):
    assert travel(BytesMessage(value), 2).get_body(bytes) == value


@given(st.lists(fields))
def test_stream(values):
    message = StreamMessage(values)
    here = travel(message, 2)
    assert same([here.read_object() for _ in values], message._body)


@given(st.dictionaries(text.filter(bool), fields))
def test_map(entries):
    message = MapMessage(entries)
    assert same(travel(message, 2).get_body(dict), dict(message._body))


data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text | st.binary(max_size=5) | st.dates()
    | st.datetimes() | st.timedeltas() | st.uuids() | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4)
    | st.lists(inner, max_size=3).map(tuple),
    max_leaves=12,
)  # fmt: skip


@given(data)
def test_object(value):
    assert same(travel(ObjectMessage(value), 2).get_object(), value)


@given(text)
def test_modified_utf8(value):
    message = BytesMessage()
    message.write_utf(value)
    read = travel(message).read_utf()
    # two surrogates that make a pair are one character to Java, however they were written
    assert read.encode("utf-16-be", "surrogatepass") == value.encode("utf-16-be", "surrogatepass")


printable = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))
xml_fields = st.one_of(
    scalars.filter(lambda value: not isinstance(value, str)), printable, st.binary(max_size=8),
    st.sampled_from([Char("a"), Char("<"), Char("\n")]),
)  # fmt: skip


@given(st.dictionaries(printable.filter(bool), xml_fields, max_size=5))
def test_xml(entries):
    message = MapMessage(entries)
    assert same(dict(MapMessage.from_xml(message.to_xml())._body), dict(message._body))


@given(st.floats())
def test_a_double_as_text_parses_back(value):
    assert same(parse_floating(text_of(value), "d"), value)


@given(st.floats(width=32))
def test_a_float_as_text_parses_back(value):
    assert same(parse_floating(text_of(Float(value)), "f"), value)


@given(st.floats(min_value=-1e30, max_value=1e30, allow_nan=False))
def test_a_float_from_text_is_the_nearest_single(value):
    assert parse_floating(repr(value), "f") == to_single(value)


@given(st.one_of(properties.map(lambda p: Message(properties=p)), st.lists(fields).map(StreamMessage),
                 st.dictionaries(text.filter(bool), fields).map(MapMessage), data.map(ObjectMessage)))  # fmt: skip
def test_the_repr_never_fails(message):
    assert repr(message).startswith(type(message).__name__)
    assert len(repr(travel(message))) < 5000


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (MapMessage({"a": 1, "b": "x"}), "'a': 1, 'b': 'x'"),
        (StreamMessage([1, "x"]), "[1, 'x']"),
        (MapMessage({"a": "x" * 5_000}), "bytes not decoded"),
    ],
)
def test_the_repr_of_a_received_body_shows_it_before_it_is_read(message, shown):
    received = travel(message)
    assert shown in repr(received)
    assert received._body is PENDING
