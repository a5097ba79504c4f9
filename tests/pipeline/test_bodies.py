"""Bodies of Map-, Stream- and ObjectMessages as values of Spark, and back."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sievemq import (
    Byte,
    Char,
    ConnectionFactory,
    Float,
    Long,
    MapMessage,
    ObjectMessage,
    Queue,
    Short,
    StreamMessage,
    TextMessage,
    register_type,
)
from sievemq.object_codec import encode_object
from sievemq_broker import EmbeddedBroker
from sievemq_core.errors import FormatError
from sievemq_core.message.body import decode_map, decode_stream, encode_map, encode_stream
from sievemq_core.message.values import BodyValue
from sievemq_spark import bodies
from sievemq_spark.errors import PipelineError

from .test_schema import TEXT, VALUES

pytestmark = pytest.mark.spark  # which is when Arrow is there

FIELDS = st.one_of(VALUES, st.binary(max_size=4), st.characters(max_codepoint=0xD7FF).map(Char))


@register_type
@dataclass
class Order:
    number: int
    when: dt.date


@given(st.lists(st.one_of(st.none(), st.dictionaries(TEXT, FIELDS, max_size=4))))
def test_maps_round_trip(maps: list[dict[str, BodyValue] | None]) -> None:
    packed = pa.array([None if each is None else encode_map(each) for each in maps], pa.binary())
    back = bodies._map_bodies(bodies._maps(packed)).to_pylist()
    assert repr([None if each is None else decode_map(each) for each in back]) == repr(maps)


@given(st.lists(st.one_of(st.none(), st.lists(FIELDS, max_size=4))))
def test_streams_round_trip(streams: list[list[BodyValue] | None]) -> None:
    packed = pa.array([None if each is None else encode_stream(each) for each in streams], pa.binary())
    back = bodies._stream_bodies(bodies._streams(packed)).to_pylist()
    assert repr([None if each is None else decode_stream(each) for each in back]) == repr(streams)


def test_plain_values_have_the_types_of_their_columns() -> None:
    kind = pa.struct([("b", pa.int8()), ("l", pa.int64()), ("f", pa.float32()), ("x", pa.binary()), ("n", pa.string())])
    row = pa.array([{"b": 1, "l": 2, "f": 0.5, "x": b"y", "n": None}], kind)
    (body,) = bodies._map_bodies(row).to_pylist()
    assert repr(decode_map(body)) == repr({"b": Byte(1), "l": Long(2), "f": Float(0.5), "x": b"y", "n": None})
    (body,) = bodies._stream_bodies(pa.array([[1, 2]], pa.list_(pa.int16()))).to_pylist()
    assert repr(decode_stream(body)) == repr([Short(1), Short(2)])
    (body,) = bodies._map_bodies(pa.array([[("a", 1.5)]], pa.map_(pa.string(), pa.float64()))).to_pylist()
    assert decode_map(body) == {"a": 1.5}


def test_json_of_all_kinds() -> None:
    number = uuid.UUID(int=7)
    thing = {"order": Order(7, dt.date(2026, 1, 31)), "price": decimal.Decimal("1.10"), 5: (1, {2}), "id": number,
             "raw": b"\x00", "nan": float("nan"), "big": 2**70, "short": Short(3)}  # fmt: skip
    entries: dict[str, BodyValue] = {"a": Byte(1), "c": Char("z"), "x": b"\xff"}
    given = [("MAP", encode_map(entries)), ("STREAM", encode_stream([1, None, 0.5])), ("OBJECT", encode_object(thing)),
             ("TEXT", b"x"), ("MAP", None)]  # fmt: skip
    found = bodies._texts(pa.array([kind for kind, _ in given]), pa.array([body for _, body in given], pa.binary()))
    assert [text and json.loads(text) for text in found.to_pylist()] == [
        {"a": 1, "c": "z", "x": "/w=="},
        [1, None, 0.5],
        {"order": {"number": 7, "when": "2026-01-31"}, "price": "1.10", "5": [1, [2]], "id": str(number),
         "raw": "AA==", "nan": "nan", "big": 2**70, "short": 3},
        None,
        None,
    ]  # fmt: skip


def test_mistakes() -> None:
    with pytest.raises(FormatError, match="body of a MapMessage"):
        bodies._maps(pa.array([b"\x01"]))
    with pytest.raises(FormatError, match="body of an ObjectMessage"):
        bodies._texts(pa.array(["OBJECT"]), pa.array([b"\xc1"]))
    with pytest.raises(PipelineError, match="price is decimal128"):
        bodies._map_bodies(pa.array([{"price": decimal.Decimal("1.1")}]))
    with pytest.raises(PipelineError, match="made of a struct or a map, not of int64"):
        bodies._map_bodies(pa.array([1]))
    with pytest.raises(PipelineError, match="t = 'i' has no value in its field l"):
        bodies._stream_bodies(pa.array([[{"t": "i"}]], pa.list_(bodies._ENTRY)))


@pytest.mark.timeout(1_200)
def test_bodies_through_spark(spark: Any) -> None:
    """Read, looked into, built anew from columns, and received by the SDK."""
    from pyspark.sql import functions as f

    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        producer, stream = context.create_producer(), StreamMessage()
        stream.write_short(5)
        for message in (
            MapMessage({"qty": Short(3), "name": "tea"}),
            stream,
            ObjectMessage([1, "x"]),
            TextMessage("t"),
        ):
            producer.send(Queue("in"), message)
        rows = spark.read.format("sievemq").options(url=broker.url, destination="queue:in").load()
        texts = rows.orderBy("seq").select(bodies.body_json("body_kind", "body_bytes").alias("text")).collect()
        assert [row.text for row in texts] == ['{"qty": 3, "name": "tea"}', "[5]", '[1, "x"]', None]
        entries = rows.filter("body_kind = 'MAP'").select(bodies.body_map("body_bytes").alias("m"))
        assert entries.select("m.qty.t", "m.qty.l", "m.name.s").collect() == [("h", 3, "tea")]
        values = rows.filter("body_kind = 'STREAM'").select(bodies.body_stream(f.col("body_bytes"))[0]["l"])
        assert values.collect() == [(5,)]

        plain = spark.sql("SELECT 2Y AS qty, 'tea' AS name, array(1.5D) AS list, '{\"a\": [1]}' AS text")
        for kind, body in (
            ("MAP", bodies.map_body(f.struct("qty", "name"))),
            ("STREAM", bodies.stream_body("list")),
            ("OBJECT", bodies.object_body("text")),
        ):
            made = plain.select(f.lit(kind).alias("body_kind"), body.alias("body_bytes"))
            made.write.format("sievemq").options(url=broker.url, destination="queue:out").mode("append").save()
        one, two, three = list(context.create_browser(Queue("out")))
        assert isinstance(one, MapMessage)
        assert (one.get_byte("qty"), one.get_string("name")) == (2, "tea")
        assert isinstance(two, StreamMessage)
        assert two.read_double() == 1.5
        assert isinstance(three, ObjectMessage)
        assert three.get_object() == {"a": [1]}
