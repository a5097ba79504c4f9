"""Bodies of Map-, Stream- and ObjectMessages as values of Spark, and back: the column ``body_bytes``.

    maps = messages.filter("body_kind = 'MAP'").select(body_map("body_bytes")["qty"]["l"])
    messages.select(body_json("body_kind", "body_bytes"))
    frame.select(f.lit("MAP").alias("body_kind"), map_body(f.struct("name", "qty")).alias("body_bytes"))

An entry is a struct as in the column ``properties``, with x for bytes: ``t`` is the letter of its JMS type (z b h i l
f d s, c for a char, x for bytes), and one of the other fields holds the value, a char in s.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sievemq.object_codec import encode_object
from sievemq_core.message.body import decode_map, decode_stream, encode_map, encode_stream
from sievemq_core.message.envelope import well_formed
from sievemq_core.message.values import BodyValue, hold, letter_of
from sievemq_spark.errors import PipelineError
from sievemq_spark.objects import decode_plain

if TYPE_CHECKING:
    from pyspark.sql import Column

ENTRY: Final = "struct<t:string,b:boolean,l:bigint,d:double,s:string,x:binary>"

_ENTRY: Final = pa.struct(
    [
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("x", pa.binary()),
    ]
)
_FIELD_OF: Final = {"z": "b", **dict.fromkeys("bhil", "l"), **dict.fromkeys("fd", "d"), "s": "s", "c": "s", "x": "x"}
#: Letter of the JMS type that holds a value of an Arrow type.
_LETTERS: Final = {
    pa.bool_(): "z", pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "l", pa.float32(): "f",
    pa.float64(): "d", pa.string(): "s", pa.binary(): "x",
}  # fmt: skip


# -- as Columns -------------------------------------------------------------------------------------------------------


def body_map(body: Column | str) -> Column:
    """The entries of MapMessages: MAP<STRING, :data:`ENTRY`>; NULL for a NULL.

    Args:
        body: their ``body_bytes``; filter by ``body_kind = 'MAP'`` first, other bodies raise.
    """
    return _function(_maps, f"map<string,{ENTRY}>", body)


def body_stream(body: Column | str) -> Column:
    """The values of StreamMessages in order: ARRAY<:data:`ENTRY`>; arguments as for :func:`body_map`."""
    return _function(_streams, f"array<{ENTRY}>", body)


def body_json(kind: Column | str, body: Column | str) -> Column:
    """Map-, Stream- and ObjectMessages as JSON text, for ``from_json`` and ``parse_json``; NULL for other messages.

    Bytes are base64; dates, times, decimals and UUIDs text; objects of registered types their fields.

    Args:
        kind: the column ``body_kind``.
        body: the column ``body_bytes``.
    """
    return _function(_texts, "string", kind, body)


def map_body(entries: Column | str) -> Column:
    """The body of a MapMessage, for the column ``body_bytes`` beside a ``body_kind`` of ``'MAP'``.

    Args:
        entries: a struct, whose fields are the entries (a NULL field is a null String); or a map of scalars, or of
            :data:`ENTRY`. TINYINT is a byte, SMALLINT a short, INT an int, BIGINT a long, BINARY bytes.
    """
    return _function(_map_bodies, "binary", entries)


def stream_body(values: Column | str) -> Column:
    """The body of a StreamMessage: of a struct, its fields in order; of an array of scalars, or of :data:`ENTRY`."""
    return _function(_stream_bodies, "binary", values)


def object_body(text: Column | str) -> Column:
    """The body of an ObjectMessage, of JSON text: dict, list, str, int, float, bool, None."""
    return _function(_object_bodies, "binary", text)


def _function(work: Callable[..., pa.Array], kind: str, *columns: Column | str) -> Column:
    from pyspark.sql.pandas import functions

    arrow_udf: Any = functions.arrow_udf  # its overloads have no form for a type that is chosen at run time
    return arrow_udf(work, kind)(*columns)  # type: ignore[no-any-return]


# -- as Arrow arrays --------------------------------------------------------------------------------------------------


def _maps(bodies: pa.Array) -> pa.Array:
    found = [None if body is None else decode_map(body) for body in bodies.to_pylist()]
    rows = [
        None if each is None else [(well_formed(name), _entry(value)) for name, value in each.items()] for each in found
    ]
    return pa.array(rows, pa.map_(pa.string(), _ENTRY))


def _streams(bodies: pa.Array) -> pa.Array:
    found = [None if body is None else decode_stream(body) for body in bodies.to_pylist()]
    return pa.array([None if each is None else list(map(_entry, each)) for each in found], pa.list_(_ENTRY))


def _texts(kinds: pa.Array, bodies: pa.Array) -> pa.Array:
    read: dict[str, Callable[[bytes], Any]] = {"MAP": decode_map, "STREAM": decode_stream, "OBJECT": decode_plain}
    rows = zip(kinds.to_pylist(), bodies.to_pylist(), strict=True)
    found = [None if body is None or kind not in read else _text(read[kind](body)) for kind, body in rows]
    return pa.array(found, pa.string())


def _text(value: Any) -> str:
    return well_formed(json.dumps(_clean(value), ensure_ascii=False))


def _map_bodies(entries: pa.Array) -> pa.Array:
    kind = entries.type
    if pa.types.is_struct(kind):
        letters = {field.name: _letter(field.type, field.name) for field in kind}
        rows = [
            None if each is None else {name: _held(letters[name], value) for name, value in each.items()}
            for each in entries.to_pylist()
        ]
    elif pa.types.is_map(kind):
        hold_item = _holder(kind.item_type, "the map's value")
        rows = [
            None if each is None else {name: hold_item(value) for name, value in each} for each in entries.to_pylist()
        ]
    else:
        raise PipelineError(f"a MapMessage is made of a struct or a map, not of {kind}")
    return pa.array([None if each is None else encode_map(each) for each in rows], pa.binary())


def _stream_bodies(values: pa.Array) -> pa.Array:
    kind = values.type
    rows: list[list[BodyValue] | None]
    if pa.types.is_struct(kind):
        letters = [_letter(field.type, field.name) for field in kind]
        rows = [None if each is None else list(map(_held, letters, each.values())) for each in values.to_pylist()]
    elif pa.types.is_list(kind):
        hold_item = _holder(kind.value_type, "the array's element")
        rows = [None if each is None else list(map(hold_item, each)) for each in values.to_pylist()]
    else:
        raise PipelineError(f"a StreamMessage is made of a struct or an array, not of {kind}")
    return pa.array([None if each is None else encode_stream(each) for each in rows], pa.binary())


def _object_bodies(texts: pa.Array) -> pa.Array:
    return pa.array(
        [None if text is None else encode_object(json.loads(text)) for text in texts.to_pylist()], pa.binary()
    )


# -- values -----------------------------------------------------------------------------------------------------------


def _entry(value: BodyValue) -> dict[str, Any]:
    letter = letter_of(value)
    plain: Any = value
    if letter in "bhil":
        plain = int(value)  # type: ignore[arg-type]  # a number, as the letter says
    elif letter in "fd":
        plain = float(value)  # type: ignore[arg-type]
    elif letter in "sc" and value is not None:
        plain = well_formed(str(value))
    return {"t": letter, _FIELD_OF[letter]: plain}


def _letter(kind: pa.DataType, name: str) -> str:
    if kind not in _LETTERS:
        raise PipelineError(
            f"{name} is {kind}, which no entry can be ({', '.join(map(str, _LETTERS))}): cast it or drop it"
        )
    return _LETTERS[kind]


def _holder(kind: pa.DataType, name: str) -> Callable[[Any], BodyValue]:
    if pa.types.is_struct(kind) and {field.name for field in kind} == {field.name for field in _ENTRY}:
        return _untyped
    letter = _letter(kind, name)
    return lambda value: _held(letter, value)


def _held(letter: str, value: Any) -> BodyValue:
    return None if value is None else hold(letter, value)


def _untyped(item: dict[str, Any] | None) -> BodyValue:
    if item is None:
        return None
    letter = item["t"]
    if letter not in _FIELD_OF:
        raise PipelineError(f"an entry's type t is {letter!r}; there are {', '.join(_FIELD_OF)}")
    value = item[_FIELD_OF[letter]]
    if value is None and letter not in "sx":
        raise PipelineError(f"an entry with t = {letter!r} has no value in its field {_FIELD_OF[letter]}")
    return _held(letter, value)


def _clean(value: Any) -> Any:
    """The value as JSON can represent it."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _text(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value if value is None or isinstance(value, str | bool) else int(value)
