"""What the HTTP port shows of an object's body: plain data, whatever a sender packed."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from sievemq_broker.server.http.api.partly import Outline, beginning
from sievemq_core.errors import FormatError


def outline(content: bytes, values: int = 100, depth: int = 10) -> Any:
    return Outline(values, depth).of(content)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": [1, None, True, "x"]}, {"a": [1, None, True, "x"]}),
        ({1: "one", "two": 2}, {"$type": "dict", "value": [[1, "one"], ["two", 2]]}),
        (b"\x00\xff", {"$type": "bytes", "value": "AP8="}),
        (float("inf"), {"$type": "float", "value": "inf"}),
        (0.5, 0.5),
        (msgpack.Timestamp(1, 500), {"$type": "timestamp", "value": str(msgpack.Timestamp(1, 500))}),
        (msgpack.ExtType(1, msgpack.packb([1, 2])), {"$type": "tuple", "value": [1, 2]}),
        (msgpack.ExtType(99, b"whatever"), {"$type": "extension 99", "value": None}),
    ],
)
def test_a_value_that_json_lacks_is_named(value: object, shown: object) -> None:
    assert outline(msgpack.packb(value)) == shown


def test_values_beyond_the_limit_are_cut_off() -> None:
    cut = {"$type": "…"}
    assert outline(msgpack.packb([1, 2, 3, 4]), values=3) == [1, 2, cut]
    assert outline(msgpack.packb({"a": 1, "b": 2, "c": 3}), values=4) == {"a": 1, "b": cut}
    assert outline(msgpack.packb({"a": 1, "b": 2, "c": 3}), values=5) == {"a": 1, "b": 2}
    assert outline(msgpack.packb([[[[1]]]]), depth=2) == [[[cut]]]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xc1", msgpack.packb([1, 2])[:-1], msgpack.packb(1) + b"\x01", msgpack.packb(msgpack.ExtType(1, b"\xc1"))],
    ids=["nothing", "no value", "half an array", "two values", "a broken extension"],
)
def test_an_object_that_cannot_be_decoded_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError, match="cannot be decoded"):
        outline(content)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (msgpack.packb([None, {"a": 1}]) + b"\x01", True),
        (msgpack.packb([None, [1]]), True),
        (msgpack.packb([None, {"a": 1}]), False),
        (msgpack.packb([None]), False),
        (msgpack.packb({"a": 1}), True),
        (b"", True),
    ],
    ids=["two values", "no map", "no array", "no values", "no types", "nothing"],
)
def test_a_map_or_stream_that_cannot_be_decoded_is_refused(content: bytes, named: bool) -> None:
    with pytest.raises(FormatError, match="cannot be decoded"):
        beginning(content, 10, named=named)


def test_nested_values_of_a_map_or_stream_are_refused() -> None:
    with pytest.raises(FormatError, match="scalars only"):
        beginning(msgpack.packb([None, [[1]]]), 10, named=False)


def test_types_are_cut_with_their_values() -> None:
    packed, cut = beginning(msgpack.packb(["ihl", [1, 2, 3]]), 2, named=False)
    assert (msgpack.unpackb(packed), cut) == (["ih", [1, 2]], True)
    packed, cut = beginning(msgpack.packb([None, {"a": 1, "b": 2}]), 1, named=True)
    assert (msgpack.unpackb(packed), cut) == ([None, {"a": 1}], True)
