"""Rows as messages to send: column by column gives what row by row gives."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sievemq_core.message.envelope import BodyKind, pack_properties, unpack_properties
from sievemq_spark import outgoing
from sievemq_spark.errors import PipelineError
from sievemq_spark.options import WriteOptions

from .rows import batch_of
from .test_schema import TEXT, VALUES, data_of, fields_of

pytestmark = pytest.mark.spark  # which is when Arrow is there

TO = WriteOptions.read({"destination": "queue:out"})
NAMES = st.sampled_from(["a", "b", "region", "qty_2", "\u00fc"])


def rows(batch: Any, columns: dict[str, str]) -> list[Any]:
    return list(outgoing._by_row(batch.to_pylist(), TO, columns, 1))


@given(
    st.lists(
        st.tuples(
            st.dictionaries(NAMES, VALUES, max_size=5),
            st.one_of(st.none(), TEXT, st.binary(max_size=6)),
            st.sampled_from(BodyKind),
            st.one_of(st.none(), TEXT),
            st.integers(0, 9),
            st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        ),
        min_size=1,
    )
)
def test_batches_are_sent_as_their_rows(messages: list[tuple[Any, ...]]) -> None:
    fields = []
    for properties, correlation, kind, body, priority, _ in messages:
        packed, letters = pack_properties(properties)
        data = data_of(kind, body)
        fields.append(
            fields_of(
                _2=priority, _6=correlation, _7="queue:r", _8="t", _9=packed, _10=letters, _11=int(kind), _12=data
            )
        )
    batch = batch_of(fields)
    own = pa.array([each[-1] for each in messages], pa.int32())
    wider = batch.append_column("own", own).append_column("long", own.cast(pa.int64()))
    for some, columns in ((batch, {}), (wider, {"own": "int", "long": "bigint"})):
        assert outgoing._by_column(some, TO, columns) == rows(some, columns)
    assert [fields[9:11] for fields, _ in outgoing._by_column(batch, TO, {})] == [each[9:11] for each in fields]


def one(**columns: Any) -> Any:
    return pa.RecordBatch.from_pylist([columns])


ITEM = pa.struct([("t", pa.string()), ("b", pa.bool_()), ("l", pa.int64()), ("d", pa.float64()), ("s", pa.string())])


def with_item(**item: Any) -> Any:
    maps = pa.array([[("p", {"t": "i", "l": 1})], [("p", item)]], pa.map_(pa.string(), ITEM))
    return pa.RecordBatch.from_arrays([maps, pa.array(["ID:1", "ID:2"])], ["properties", "message_id"])


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (with_item(t="b", l=128), r"row 2 of this partition \(ID:2\): the property 'p': its value does not fit"),
        (with_item(t="i", l=2**31), "row 2 .* does not fit its type"),
        (with_item(t="x", l=1), "row 2 .* its type t is 'x'"),
        (with_item(t="ii", l=1), "row 2 .* its type t is 'ii'"),
        (with_item(l=1), "row 2 .* its type t is None"),
        (with_item(t="l", d=1.0), "row 2 .* its type t is 'l'"),
        (with_item(t="s", l=1), "row 2 .* its type t is 's'"),
        (one(priority=77, body_text="x"), "row 1 of this partition: 77 is no priority"),
        (one(delivery_mode=0), "row 1 of this partition: 0 is no delivery mode"),
        (one(body_kind="XML"), "there is no body kind 'XML'"),
        (one(body_kind="TEXT", body_bytes=b"\xff"), "UTF-8"),
    ],
)
def test_a_row_that_is_no_message_is_named(batch: Any, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        list(outgoing.outgoing([batch], TO, {}))


def test_places_go_on_from_batch_to_batch() -> None:
    with pytest.raises(PipelineError, match="row 4 of this partition"):
        list(outgoing.outgoing([with_item(t="i", l=1), one(priority=4), one(priority=10)], TO, {}))


def test_what_is_unusual_is_sent_all_the_same() -> None:
    packed, letters = pack_properties({"p": 1})
    nothing = pa.RecordBatch.from_arrays(
        [pa.array([None, [("p", {"t": "i", "l": 1})]], pa.map_(pa.string(), ITEM))], ["properties"]
    )
    assert [fields[9:11] for fields, _ in outgoing.outgoing([nothing], TO, {})] == [(None, None), (packed, letters)]
    own = one(properties=None, p=2)
    assert [fields[9] for fields, _ in outgoing.outgoing([own], TO, {"p": "bigint"})] == [b"\x81\xa1p\x02"]


def test_the_properties_of_a_batch_may_be_a_part_of_an_array() -> None:
    items = [{"t": letter, "l": number} for number, letter in enumerate("hilbi")]
    whole = pa.array(items, ITEM)
    maps = pa.MapArray.from_arrays(pa.array([1, 3, 5], pa.int32()), pa.array(["p", "q", "r", "p", "q"]), whole)
    batch = pa.RecordBatch.from_arrays([maps], ["properties"])
    assert outgoing._by_column(batch, TO, {}) == rows(batch, {})
    assert [unpack_properties(fields) for fields, _ in rows(batch, {})] == [{"q": 1, "r": 2}, {"p": 3, "q": 4}]


@pytest.mark.parametrize("letter", ["", "ii", "\u00fc", "x", None])
def test_a_wrong_letter_is_not_taken_for_another(letter: str | None) -> None:
    with pytest.raises(outgoing._UNUSUAL):
        outgoing._by_column(with_item(t=letter, l=1), TO, {})


def test_the_group_of_a_row() -> None:
    """Columns and properties name the same one in a message that was read; where they differ the column counts."""
    inside = {"t": "s", "s": "inside"}
    maps = pa.array([*[[("JMSXGroupID", inside)]] * 3, []], pa.map_(pa.string(), ITEM))
    columns = {"properties": maps, "group_id": pa.array([None, "inside", "column", "column"]),
               "group_seq": pa.array([None, None, 2**40, 7])}  # fmt: skip
    batch = pa.RecordBatch.from_pydict(columns)
    whole = [unpack_properties(fields) for fields, _ in outgoing.outgoing([batch], TO, {})]
    assert whole == [
        {"JMSXGroupID": "inside"}, {"JMSXGroupID": "inside"}, {"JMSXGroupID": "column", "JMSXGroupSeq": 2**40},
        {"JMSXGroupID": "column", "JMSXGroupSeq": 7},
    ]  # fmt: skip
    quick = batch.take(pa.array([0, 1, 3]))
    assert outgoing._by_column(quick, TO, {}) == rows(quick, {})


def test_each_row_may_have_a_destination() -> None:
    batch = pa.RecordBatch.from_pylist([{"destination": "queue:a"}, {"destination": "topic:b"}])
    found = [str(destination) for _, destination in outgoing.outgoing([batch], WriteOptions.read({}), {})]
    assert found == ["queue:a", "topic:b"]
    with pytest.raises(PipelineError, match="row 1 of this partition: a row has no destination"):
        list(outgoing.outgoing([one(body_text="x")], WriteOptions.read({}), {}))
