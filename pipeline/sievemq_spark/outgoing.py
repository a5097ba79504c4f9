"""Rows as messages on their way to a broker.

A record batch is taken column by column; one with anything unusual is taken row by row, which says what is wrong with
which row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from sievemq import Destination, JMSException
from sievemq.destinations import parse_destination
from sievemq.messages.properties import check_property_name
from sievemq_core.limits import MAX_PROPERTIES, MAX_PROPERTIES_BYTES, MAX_PROPERTY_CHARS
from sievemq_core.message.envelope import EnvelopeFields
from sievemq_core.message.headers import ON_RECEIVE
from sievemq_core.message.values import INT_MAX, INT_MIN, PropertyValue, letter_of
from sievemq_spark.columns import TYPES
from sievemq_spark.errors import PipelineError, UnusualError
from sievemq_spark.options import WriteOptions
from sievemq_spark.schema import BODY_KINDS, body_of, envelope_of, kind_of, typed, untyped

Outgoing: TypeAlias = tuple[EnvelopeFields, Destination]

_FIELDS: Final = {"z": 1, "b": 2, "h": 2, "i": 2, "l": 2, "f": 3, "d": 3, "s": 4}
_RANGES: Final = {"b": (-128, 127), "h": (-32768, 32767), "i": (INT_MIN, INT_MAX)}
#: By type letter: integers, reals, booleans, texts; and those whose values alone do not tell their type.
_IS_ANY: Final = [
    np.isin(np.arange(256), np.frombuffer(some, np.uint8)) for some in (b"bhil", b"fd", b"z", b"s", b"bhf")
]
_pack: Final = msgspec.msgpack.Encoder().encode
#: Bytes of packed properties in which no text can be too long.
_LARGEST: Final = min(MAX_PROPERTIES_BYTES, MAX_PROPERTY_CHARS)


#: Whatever it was: the slow way finds the row, and says what is wrong with it.
_UNUSUAL: Final = (
    UnusualError, PipelineError, ValueError, TypeError, LookupError, OverflowError, pa.ArrowException, JMSException
)  # fmt: skip


def outgoing(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, columns: Mapping[str, str], first: int = 1
) -> Iterator[Outgoing]:
    """Each row as a message, with its destination.

    Args:
        columns: that become properties, name -> Spark type.
        first: number of the first row in its partition.

    Raises:
        PipelineError: a row is no message; named by its place and its message id.
    """
    for batch in batches:
        try:
            found: Iterable[Outgoing] = _by_column(batch, options, columns)
        except _UNUSUAL:
            found = _by_row(batch.to_pylist(), options, columns, first)
        yield from found
        first += batch.num_rows


# -- row by row -------------------------------------------------------------------------------------------------------


def _by_row(
    rows: Iterable[dict[str, Any]], options: WriteOptions, columns: Mapping[str, str], first: int
) -> Iterator[Outgoing]:
    for place, row in enumerate(rows, start=first):
        try:
            fields, destination = envelope_of(message_row(row, columns)), _destination(options, row)
        except (PipelineError, JMSException) as error:
            message_id = row.get("message_id")
            named = f" ({message_id})" if message_id else ""
            raise PipelineError(f"row {place} of this partition{named}: {error}") from error
        yield fields, destination


def message_row(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row with the properties of its own columns put into the map; a NULL there is no property."""
    properties: dict[str, Any] = {
        name: value for name, value in (row.get("properties") or ()) if name not in ON_RECEIVE
    }
    for name, kind in columns.items():
        value = row.get(name)
        if value is not None:
            letter = TYPES[kind]
            item: list[PropertyValue] = [letter, None, None, None, None]
            item[_FIELDS[letter]] = value
            properties[name] = typed(untyped(item))
    for name in properties:
        if name not in row:
            check_name(name)
    for column, name in _GROUP.items():
        value = row.get(column)
        if value is not None and (name not in properties or untyped(properties[name]) != value):
            properties[name] = typed(value)
    return {**row, "properties": properties}


#: Columns of a message that are properties of it. The map of a message that was read has them as well.
_GROUP: Final = {"group_id": "JMSXGroupID", "group_seq": "JMSXGroupSeq"}


def check_name(name: str) -> None:
    """Raise PipelineError if no property can have this name."""
    try:
        check_property_name(name)
    except ValueError as error:
        raise PipelineError(f"the column {name!r} cannot be a property: {error}") from error


def _destination(options: WriteOptions, row: Mapping[str, Any]) -> Destination:
    text = options.destination or row.get("destination")
    if not text:
        raise PipelineError("a row has no destination, and there is no option 'destination'")
    return parse_destination(text)


# -- column by column -------------------------------------------------------------------------------------------------


def _by_column(batch: pa.RecordBatch, options: WriteOptions, columns: Mapping[str, str]) -> list[Outgoing]:
    count = batch.num_rows
    there = {name: batch.column(name) for name in batch.schema.names}

    def values(name: str, default: Any = None) -> list[Any]:
        if name not in there:
            return [default] * count
        found: list[Any] = there[name].to_pylist()
        return found if default is None else [default if each is None else each for each in found]

    priorities, modes = values("priority", 4), values("delivery_mode", 2)
    if not set(priorities) <= set(range(10)) or not set(modes) <= {1, 2}:
        raise UnusualError
    correlations = [
        text if text is not None else data
        for text, data in zip(values("correlation_id"), values("correlation_bytes"), strict=True)
    ]
    packed, letters = _properties(there, columns, count)
    envelopes = zip(
        values("message_id"),
        values("timestamp", 0),
        priorities,
        modes,
        values("expiration", 0),
        values("delivery_time", 0),
        correlations,
        values("reply_to"),
        values("type"),
        packed,
        letters,
        *_bodies(there, values("body_kind"), count),
        strict=True,
    )
    return list(zip(envelopes, _destinations(values("destination"), options), strict=True))


def _destinations(texts: list[str | None], options: WriteOptions) -> list[Destination]:
    if options.destination:
        return [parse_destination(options.destination)] * len(texts)
    known = {text: parse_destination(text) for text in set(texts) if text}
    return [known[text] for text in texts]  # type: ignore[index]  # None is a KeyError


def _bodies(there: Mapping[str, pa.Array], kinds: list[str | None], count: int) -> tuple[list[int], list[bytes | None]]:
    nothing: list[bytes | None] = [None] * count
    texts = there["body_text"].cast(pa.binary()).to_pylist() if "body_text" in there else nothing
    data = there["body_bytes"].to_pylist() if "body_bytes" in there else nothing
    found: list[int] = []
    bodies: list[bytes | None] = []
    for named, text, body in zip(kinds, texts, data, strict=True):
        kind = named or kind_of(named, text, body)
        found.append(BODY_KINDS[kind])
        if kind == "TEXT" and body is None:  # Spark's text is UTF-8
            bodies.append(text)
        elif kind == "BYTES" and text is None:
            bodies.append(body)
        else:
            bodies.append(body_of(kind, text, body))
    return found, bodies


def _properties(
    there: Mapping[str, pa.Array], columns: Mapping[str, str], count: int
) -> tuple[list[bytes | None], list[str | None]]:
    """The fields `properties` and `property_types` of the envelopes."""
    names, found, said, typed_by_letter, offsets = _map_of(there, count)
    own = [(name, TYPES[kind], there[name].to_pylist()) for name, kind in columns.items() if name in there]
    group = [
        (name, there[column].to_pylist())
        for column, name in _GROUP.items()
        if column in there and there[column].null_count < count
    ]
    if not {name for name, _, _ in own}.isdisjoint(names):
        raise UnusualError
    packed: list[bytes | None] = []
    letters: list[str | None] = []
    for row, (begin, end) in enumerate(pairwise(offsets)):
        properties = dict(zip(names[begin:end], found[begin:end], strict=True))
        if len(properties) != end - begin:
            raise UnusualError
        types, wrapped = said[begin:end], typed_by_letter[row]
        for name, letter, values in own:
            value = values[row]
            if value is not None:
                properties[name] = value
                types += letter
                wrapped = wrapped or letter in "bhf" or (letter == "l" and INT_MIN <= value <= INT_MAX)
        for name, values in group:
            value = values[row]
            if value is None:
                continue
            if properties.setdefault(name, value) != value:
                raise UnusualError
            if len(properties) > len(types):
                types += letter_of(value)
        if not properties:
            packed.append(None)
            letters.append(None)
            continue
        data = _pack(properties)
        if len(properties) > MAX_PROPERTIES or len(data) > _LARGEST:
            raise UnusualError
        packed.append(data)
        letters.append(types if wrapped else None)
    return packed, letters


def _map_of(there: Mapping[str, pa.Array], count: int) -> tuple[list[str], list[Any], str, list[bool], list[int]]:
    """The column `properties`: names, values and letters of all rows one behind the other; which rows need their
    letters; where each row begins, and the end."""
    column = there.get("properties")
    if column is None or column.null_count == count:
        return [], [], "", [False] * count, [0] * (count + 1)
    if column.null_count or column.offset:
        raise UnusualError
    offsets = column.offsets.to_numpy()
    begin, total = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = column.keys.slice(begin, total), column.items.slice(begin, total)
    if items.null_count:
        raise UnusualError
    t, b, long, d, s = items.flatten()
    codes = _letters(t)
    integers, reals, booleans, texts, wrapped = (is_any[codes] for is_any in _IS_ANY)
    if (~(integers | reals | booleans | texts)).any():
        raise UnusualError
    values = np.empty(total, object)
    numbers = _filled(long, integers)
    kinds = codes[integers]
    for letter, (low, high) in _RANGES.items():
        here = numbers[kinds == ord(letter)]
        if len(here) and (here.min() < low or here.max() > high):
            raise UnusualError
    values[integers] = numbers
    doubles = _filled(d, reals)
    single = codes[reals] == ord("f")
    with np.errstate(over="ignore"):
        doubles[single] = doubles[single].astype(np.float32)
    values[reals] = doubles
    values[booleans] = _filled(b, booleans)
    found = s.filter(pa.array(texts))
    if found.null_count and _any_other(texts & s.is_null().to_numpy(zero_copy_only=False), b, long, d):
        raise UnusualError
    values[texts] = found.to_numpy(zero_copy_only=False)
    wrapped[integers] |= (kinds == ord("l")) & (numbers >= INT_MIN) & (numbers <= INT_MAX)
    sums = np.concatenate(([0], np.cumsum(wrapped)))
    places = offsets - begin
    known = keys.dictionary_encode()
    names = known.dictionary.to_pylist()
    for name in names:
        if name in ON_RECEIVE:
            raise UnusualError
        if name not in there:
            check_name(name)
    spread = np.array(names, object)[known.indices.to_numpy()].tolist() if total else []
    letters_needed = (sums[places[1:]] > sums[places[:-1]]).tolist()
    return spread, values.tolist(), codes.tobytes().decode("ascii"), letters_needed, places.tolist()


def _filled(column: pa.Array, mask: Any) -> Any:
    """The values of a column where the mask is true; none may be NULL."""
    found = column.filter(pa.array(mask))
    if found.null_count:
        raise UnusualError
    return found.to_numpy(zero_copy_only=False).copy()


def _letters(column: pa.StringArray) -> Any:
    """Texts of one byte each, as those bytes."""
    if column.null_count:
        raise UnusualError
    if not len(column):
        return np.empty(0, np.uint8)
    column = column.cast(pa.string())
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    if (np.diff(places) != 1).any():
        raise UnusualError
    return np.frombuffer(data, np.uint8)[places[0] : places[-1]]


def _any_other(nulls: Any, *fields: pa.Array) -> bool:
    """True if a null String has a value in another field."""
    return any((nulls & field.is_valid().to_numpy(zero_copy_only=False)).any() for field in fields)
