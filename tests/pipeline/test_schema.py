"""Message <-> row without Spark."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sievemq.taps import TapPage
from sievemq_core.message.body import encode_map, encode_stream
from sievemq_core.message.envelope import (
    ENVELOPE_FIELDS,
    BodyKind,
    pack_properties,
    unpack_properties,
    well_formed,
)
from sievemq_core.message.outcomes import OUTCOME, OUTCOME_ATTEMPTS
from sievemq_core.message.values import Byte, Float, Long, PropertyValue, Short, letter_of, to_long
from sievemq_core.wire.codec import pack
from sievemq_spark.columns import parse_columns
from sievemq_spark.errors import PipelineError
from sievemq_spark.options import WriteOptions
from sievemq_spark.outgoing import outgoing
from sievemq_spark.property_columns import PropertyColumns
from sievemq_spark.schema import COLUMN_NAMES, OUTCOME_COLUMNS, ddl, envelope_of, typed, untyped
from sievemq_spark.tap_rows import outcome_batches

from .rows import arrow_schema, batch_of, row_of

pytestmark = pytest.mark.spark  # which is when Arrow is there

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(to_long),
    st.floats(width=32).map(Float),
    st.floats(),
    TEXT,
    st.none(),
)


def same(one: PropertyValue, other: PropertyValue) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other) and letter_of(one) == letter_of(other)
    return one == other and letter_of(one) == letter_of(other) and repr(one) == repr(other)


def fields_of(**values: Any) -> tuple[Any, ...]:
    fields: list[Any] = [None] * ENVELOPE_FIELDS
    fields[:6] = "ID:b-1:1", 1_700_000_000_000, 4, 2, 0, 0
    fields[11] = 0
    for position, value in values.items():
        fields[int(position[1:])] = value
    return tuple(fields)


def data_of(kind: BodyKind, text: str | None) -> bytes | None:
    """The body of a message of a kind."""
    if text is None or kind is BodyKind.NONE:
        return None
    made = {BodyKind.MAP: encode_map({"a": text}), BodyKind.STREAM: encode_stream([text]), BodyKind.OBJECT: pack(text)}
    return made.get(kind, text.encode())


@given(VALUES)
def test_typed_values_round_trip(value: PropertyValue) -> None:
    item = typed(value)
    assert item.t == letter_of(value)
    assert sum(part is not None for part in item[1:]) == (value is not None)
    assert same(untyped(item), value)
    assert same(untyped(item._asdict()), value)


@given(
    st.dictionaries(TEXT, VALUES, max_size=5),
    st.one_of(st.none(), TEXT, st.binary(max_size=6)),
    st.sampled_from(BodyKind),
    st.one_of(st.none(), TEXT),
    st.integers(0, 3),
)
def test_messages_round_trip(
    properties: dict[str, PropertyValue], correlation: str | bytes | None, kind: BodyKind, body: str | None, count: int
) -> None:
    packed, letters = pack_properties(properties)
    data = data_of(kind, body)
    fields = fields_of(_6=correlation, _7="queue:answers", _8="order", _9=packed, _10=letters, _11=int(kind), _12=data)
    row = row_of(fields, count, 7, ("h:1", "ns", "queue:q"))
    again = envelope_of(row)
    assert again[:9] == fields[:9]
    assert again[11:] == fields[11:]
    back = unpack_properties(again)
    assert list(back) == list(properties)
    assert all(same(back[name], value) for name, value in properties.items())
    assert (row["seq"], row["delivery_count"], row["redelivered"]) == (7, count, count > 1)
    assert (row["body_text"] is not None) == (kind is BodyKind.TEXT and data is not None)
    assert row["size"] == len(data or b"") + len(packed or b"")


def test_text_that_utf8_cannot_hold() -> None:
    """A body keeps it as bytes; in a column it becomes U+FFFD."""
    body = "a\ud800".encode("utf-8", "surrogatepass")
    packed, letters = pack_properties({"p": "x\udfffy"})
    fields = fields_of(_8="t\ud800", _9=packed, _10=letters, _11=int(BodyKind.TEXT), _12=body)
    row = row_of(fields, 0, 1, ("", "", "queue:q"))
    assert (row["type"], row["body_text"], row["body_bytes"]) == ("t\ufffd", None, body)
    assert row["properties"]["p"]["s"] == "x\ufffdy"
    assert envelope_of(row)[12] == body


def test_group() -> None:
    packed, letters = pack_properties({"JMSXGroupID": "g", "JMSXGroupSeq": 3})
    row = row_of(fields_of(_9=packed, _10=letters), 0, 1, ("", "", ""))
    assert (row["group_id"], row["group_seq"]) == ("g", 3)
    packed, letters = pack_properties({"JMSXGroupID": 5, "JMSXGroupSeq": True})
    row = row_of(fields_of(_9=packed, _10=letters), 0, 1, ("", "", ""))
    assert (row["group_id"], row["group_seq"]) == (None, None)


def test_a_bare_row_is_a_message() -> None:
    fields = envelope_of({"body_text": "hi"})
    assert fields[:6] == (None, 0, 4, 2, 0, 0)
    assert fields[11:] == (int(BodyKind.TEXT), b"hi")
    assert envelope_of({"body_bytes": b"x"})[11] == BodyKind.BYTES
    assert envelope_of({})[11] == BodyKind.NONE


@pytest.mark.parametrize(
    "item",
    [
        ("b", None, 200, None, None),
        ("i", None, 2**31, None, None),
        ("x", None, None, None, None),
        ("d", None, None, None, "1"),
        ("z", None, 1, None, None),
    ],
)
def test_values_that_do_not_fit(item: tuple[Any, ...]) -> None:
    with pytest.raises(PipelineError):
        untyped(item)


def test_broken_rows() -> None:
    with pytest.raises(PipelineError, match="no body kind 'XML'"):
        envelope_of({"body_kind": "XML"})
    with pytest.raises(PipelineError, match="77 is no priority"):
        envelope_of({"priority": 77})
    with pytest.raises(PipelineError, match="3 is no delivery mode"):
        envelope_of({"delivery_mode": 3})


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"body_kind": "TEXT", "body_bytes": b"\xff"}, "UTF-8"),
        ({"body_kind": "MAP", "body_bytes": b"\xff\xfe"}, r"MapMessage .*\(column body_bytes\)"),
        ({"body_kind": "MAP", "body_bytes": b"\x80"}, "MapMessage"),
        ({"body_kind": "STREAM", "body_bytes": b"\xff"}, "StreamMessage"),
        ({"body_kind": "OBJECT", "body_bytes": b"\xc1"}, "ObjectMessage"),
        ({"body_kind": "OBJECT", "body_bytes": b"\xd4\x0a\xc1"}, "ObjectMessage"),
        ({"body_kind": "MAP", "body_text": "a"}, "MAP has its body in body_bytes, .* map_body"),
        ({"body_kind": "BYTES", "body_text": "a"}, "BYTES has its body in body_bytes, .* or name it TEXT"),
        ({"body_kind": "NONE", "body_text": "a"}, "NONE has no body, .* or name it TEXT"),
        ({"body_kind": "NONE", "body_bytes": b"a"}, "NONE has no body, .* name the kind BYTES"),
        ({"body_text": "a", "body_bytes": b"a"}, "one body: clear one of them"),
    ],
)
def test_a_body_that_nobody_could_read_is_refused(row: dict[str, Any], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        envelope_of(row)
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(row), row])
    with pytest.raises(PipelineError, match=rf"row 2 of this partition: .*{says}"):
        list(outgoing([batch], WriteOptions.read({"destination": "q", "dryrun": "true"}), {}))


def promoted(properties: dict[str, PropertyValue], columns: dict[str, str]) -> tuple[Any, ...]:
    packed, letters = pack_properties(properties)
    row = row_of(fields_of(_9=packed, _10=letters), columns=columns)
    return tuple(row[name] for name in columns)


@given(st.lists(st.dictionaries(TEXT | st.sampled_from(["a", "b", "c\ud800"]), VALUES | st.just("\udfff"), max_size=5)))
def test_a_page_has_what_each_message_has(messages: list[dict[str, PropertyValue]]) -> None:
    """The columns of many messages at once, beside each property by itself; of promoted columns likewise."""
    columns = {"a": "bigint", "b": "string", "c": "double"}
    fields = [fields_of(_9=packed, _10=letters) for packed, letters in map(pack_properties, messages)]
    rows = batch_of(fields, columns=columns).to_pylist() if fields else []
    for properties, row in zip(messages, rows, strict=True):
        wanted = {well_formed(name): typed(value)._asdict() for name, value in properties.items()}
        assert str(dict(row["properties"])) == str(wanted)  # as text: a NaN is itself
        alone = promoted(properties, columns)
        assert str(tuple(row[name] for name in columns)) == str(alone)


USUAL: dict[str, PropertyValue] = {
    "z": True, "b": Byte(-5), "h": Short(300), "i": 70_000, "small": -1, "l": Long(7), "long": -(2**40),
    "f": Float(0.1), "d": 0.1, "s": "x", "none": None, "n" * 40: "x" * 40, "m" * 300: "é" * 200, "": "",
    **{f"more {number}": 2**number - 1 for number in range(0, 64, 7)},
}  # fmt: skip


@pytest.mark.parametrize(
    "messages",
    [
        [USUAL, USUAL, USUAL],
        [USUAL, {}, {"a": 1, "b": "x"}, dict(reversed(USUAL.items())), {"b": 2}],
        [{}, {}],
    ],
    ids=["alike", "unlike", "none"],
)
def test_usual_properties_are_converted_together(
    messages: list[dict[str, PropertyValue]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(PropertyColumns, "_read_slowly")
    fields = [fields_of(_9=packed, _10=letters) for packed, letters in map(pack_properties, messages)]
    rows = batch_of(fields).to_pylist()
    found = [{name: tuple(item.values()) for name, item in row["properties"]} for row in rows]
    assert found == [{name: tuple(typed(value)) for name, value in each.items()} for each in messages]


@pytest.mark.parametrize("packed", [b"\x81\xa1a\xca\x7f\x80\x00\x01", b"\x81\xa1a\xcb\x7f\xf0" + bytes(5) + b"\x01"])
@pytest.mark.parametrize("letters", [None, "f"])
def test_a_signaling_nan_is_a_nan_without_a_warning(packed: bytes, letters: str | None) -> None:
    (row,) = batch_of([fields_of(_9=packed, _10=letters)]).to_pylist()
    [(_, item)] = row["properties"]
    assert (item["t"], math.isnan(item["d"])) == (letters or "d", True)


@pytest.mark.parametrize("other", [b"\x82\xa1a\x01\xa1a\x02", b"\x81\xa1b\x01"])
def test_a_name_that_is_there_twice_has_its_last_value(other: bytes) -> None:
    first, _ = batch_of([fields_of(_9=b"\x82\xa1a\x01\xa1a\x02"), fields_of(_9=other)]).to_pylist()
    assert [(name, item["l"]) for name, item in first["properties"]] == [("a", 2)]


@pytest.mark.parametrize(
    ("packed", "letters"),
    [
        (b"\x91\x01", None),  # no map
        (b"\x81\x01\x01", None),  # a name that is no text
        (b"\x81\xa1a\x91\x01", None),  # a value that is no scalar
        (b"\x81\xa1a\xc4\x01x", None),  # bytes
        (b"\x81\xa1a\xcf\xff\xff\xff\xff\xff\xff\xff\xff", None),  # beyond a long
        (b"\x81\xa1a", None),
        (b"\x82\xa1a\x01", None),  # the next message is no part of it
        (b"\xde\xff\xff\xa1a\x01", None),
    ],
)
def test_properties_that_cannot_be_decoded_are_none(packed: bytes, letters: str | None) -> None:
    """A page does not fail for one of its messages: a store may hold what a broker accepts no more."""
    good, none = pack_properties({"a": 1})
    first, odd, last = batch_of(
        [fields_of(_9=good, _10=none), fields_of(_9=packed, _10=letters), fields_of(_9=good, _10=none)]
    ).to_pylist()
    assert dict(first["properties"]) == dict(last["properties"])
    assert first["properties"][0][1]["l"] == 1
    assert odd["properties"] == []
    assert odd["size"] == len(packed)


@pytest.mark.parametrize(
    ("packed", "letters", "letter"),
    [
        (b"\x81\xa1a\x01", "ii", "i"),
        (b"\x81\xa1a\x01", "y", "i"),
        (b"\x81\xa1a\xcd\x01\x00", "b", "i"),  # 256
        (b"\x81\xa1a\xa1x", "l", "s"),
        (b"\x81\xa1a\xc3", "l", "z"),
    ],
)
def test_type_letters_that_do_not_fit_are_ignored(packed: bytes, letters: str, letter: str) -> None:
    row = row_of(fields_of(_9=packed, _10=letters))
    assert row["properties"]["a"]["t"] == letter


@pytest.mark.parametrize("time", [2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0, 253_402_300_800_000])
def test_any_64_bits_are_a_time(time: int) -> None:
    row, good = batch_of([fields_of(_1=time, _4=time, _5=time), fields_of(_1=5)]).to_pylist()
    assert row["timestamp"] == row["expiration"] == row["delivery_time"] == min(time, 2**63 - 1)
    assert good["timestamp"] == 5
    kept = pack({OUTCOME: "acknowledged", OUTCOME_ATTEMPTS: 1})
    page = TapPage(1, [1], [7], tuple(zip(fields_of(_1=time, _9=kept), strict=True)))
    (batch,) = outcome_batches(page, ("h:1", "", "queue:q"), arrow_schema(OUTCOME_COLUMNS), 10)
    assert batch.to_pylist()[0]["timestamp"] == min(time, 2**63 - 1)


def test_an_address_of_half_a_character() -> None:
    assert row_of(fields_of(_7="queue:\ud800"))["reply_to"] == "queue:\ufffd"


def test_letters_that_say_nothing_new() -> None:
    """A float may travel as an integer; a letter that is none of a wrapper's leaves the value's own type."""
    for packed, letters, item in (
        (b"\x81\xa1a\x05", "f", ("f", None, None, 5.0, None)),
        (b"\x81\xa1a\x05", "s", ("i", None, 5, None, None)),
        (b"\x81\xa1a\xc0", "b", ("s", None, None, None, None)),
    ):
        row = row_of(fields_of(_9=packed, _10=letters))
        assert tuple(row["properties"]["a"].values()) == item


def test_promoted_columns() -> None:
    columns = parse_columns("region STRING, qty BIGINT, `a, b` double, flag: boolean, s smallint", COLUMN_NAMES)
    assert columns == {"region": "string", "qty": "bigint", "a, b": "double", "flag": "boolean", "s": "smallint"}
    # a type that widens in Java fits, any other is NULL
    given: dict[str, PropertyValue] = {"region": "EU", "qty": 5, "a, b": Float(0.5), "flag": True, "s": 5}
    assert promoted(given, columns) == ("EU", 5, 0.5, True, None)
    given = {"region": 1, "qty": 5.0, "flag": None, "s": Byte(1)}
    assert promoted(given, columns) == (None, None, None, None, 1)
    assert promoted({"qty": Long(1)}, {"qty": "int"}) == (None,)
    assert ddl({"a`b": "int"}).endswith("`a``b` int")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("region", "cannot be read from 'region'"),
        ("a INT b INT", "cannot be read"),
        ("a DECIMAL", "has the type 'DECIMAL'"),
        ("Priority INT", "is a column of every message"),
        ("a INT, A INT", "is there twice"),
    ],
)
def test_bad_columns(text: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        parse_columns(text, COLUMN_NAMES)
