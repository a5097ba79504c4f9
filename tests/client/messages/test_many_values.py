"""The number of values in a body is limited: a byte may become an empty map of 64."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sievemq import MapMessage, Message, MessageFormatException, ObjectMessage, Queue, StreamMessage
from sievemq.messages import received
from sievemq.object_codec import decode_object, encode_object
from sievemq_core.errors import FormatError
from sievemq_core.limits import MAX_BODY_VALUES
from sievemq_core.message import body as bodies
from sievemq_core.message.body import check_count
from sievemq_core.message.envelope import BodyKind

MANY = b"\xdd" + (MAX_BODY_VALUES + 1_000).to_bytes(4, "big")


def arrived(kind: BodyKind, body: bytes) -> Message:
    return received(("ID:1", 1, 4, 2, 0, 0, None, None, None, None, None, int(kind), body), Queue("q"), 1, None)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (BodyKind.OBJECT, MANY + b"\x80" * (MAX_BODY_VALUES + 1_000)),
        (BodyKind.OBJECT, b"\xdc\xff\xff" + (b"\xc8\xff\xff\x01\xdc\xff\xfc" + b"\x80" * 0xFFFC) * 66),
        (BodyKind.STREAM, b"\x92\xc0" + MANY + b"\xc0" * (MAX_BODY_VALUES + 1_000)),
        (BodyKind.MAP, b"\x92\xc0\xdf\x00\x40\x00\x00" + b"\xa1a\xc0" * MAX_BODY_VALUES),
    ],
    ids=["empty maps", "empty maps in tuples", "stream", "map"],
)
def test_a_received_body_of_too_many_values_is_refused_before_they_are_made(kind: BodyKind, body: bytes) -> None:
    message = arrived(kind, body)
    read: dict[type, Any] = {
        ObjectMessage: lambda: message.get_body(object),
        StreamMessage: lambda: message.read_object(),
        MapMessage: lambda: message.get_object("a"),
    }
    with pytest.raises(MessageFormatException, match=r"more than 4,194,304 values; send them in several"):
        read[type(message)]()
    repr(message)


def test_a_body_of_too_many_values_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_VALUES", 100)
    with pytest.raises(MessageFormatException, match="an ObjectMessage holds more than 100 values"):
        ObjectMessage([None] * 100)
    assert ObjectMessage([None] * 99).get_object() == [None] * 99
    mapped, stream = MapMessage({f"n{number}": number for number in range(60)}), StreamMessage()
    for number in range(120):
        stream.write_int(number)
    for message in (mapped, stream):
        with pytest.raises(MessageFormatException, match=f"a {type(message).__name__} holds more than 100 values"):
            message._encode_body()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40)
    | st.binary(max_size=40) | st.uuids() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)  # fmt: skip


def values_in(value: Any) -> int:
    if isinstance(value, msgpack.ExtType):
        inner = msgpack.unpackb(value.data, ext_hook=msgpack.ExtType, strict_map_key=False)
        return 1 + values_in(inner)
    if isinstance(value, dict):
        return 1 + sum(map(values_in, value)) + sum(map(values_in, value.values()))
    return 1 + (sum(map(values_in, value)) if isinstance(value, list) else 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plain)
def test_values_are_counted_as_they_are_decoded(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    packed = encode_object([value, "x" * 300, "y" * 70_000, b"z" * 300])
    assert decode_object(packed)[0] == value
    count = values_in(msgpack.unpackb(packed, ext_hook=msgpack.ExtType, strict_map_key=False))
    with monkeypatch.context() as patched:
        patched.setattr(bodies, "MAX_BODY_VALUES", count)
        check_count(packed, "it")
        patched.setattr(bodies, "MAX_BODY_VALUES", count - 1)
        with pytest.raises(FormatError):
            check_count(packed, "it")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=2, max_size=200))
def test_any_bytes_are_counted_to_their_end(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(bodies, "MAX_BODY_VALUES", len(data) - 1)
        try:
            check_count(data, "it")
        except FormatError:
            pass
