"""Pages of a tap as Arrow record batches, column by column: most columns need no look at single messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from sievemq.taps import TapPage
from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    CORRELATION_ID,
    DELIVERY_MODE,
    DELIVERY_TIME,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    PROPERTIES,
    PROPERTY_TYPES,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    BodyKind,
    unpack_properties,
)
from sievemq_core.message.values import PropertyValue
from sievemq_spark.batches import to_arrays
from sievemq_spark.schema import KINDS, promoted, typed, utf8

__all__ = ["record_batches"]


def record_batches(
    page: TapPage, origin: tuple[str, str, str], columns: Mapping[str, str], schema: pa.Schema, size: int
) -> Iterator[pa.RecordBatch]:
    """The messages of a page as rows of schema.py.

    Args:
        page: of a tap.
        origin: broker, namespace, destination.
        columns: promoted properties.
        schema: Spark's, from ``to_arrow_schema``.
        size: rows of a batch.

    Raises:
        ProtocolError: the properties of a message cannot be decoded.
    """
    maps = schema.field("properties").type
    whole = pa.RecordBatch.from_arrays(to_arrays(_values(page, origin, columns, maps), schema), schema=schema)
    for begin in range(0, len(page), size):
        yield whole.slice(begin, size)


def _values(
    page: TapPage, origin: tuple[str, str, str], columns: Mapping[str, str], maps: pa.MapType
) -> list[Sequence[Any] | pa.Array]:
    fields, count = page.columns, len(page)
    correlations = fields[CORRELATION_ID]
    packed, letters, bodies = fields[PROPERTIES], fields[PROPERTY_TYPES], fields[BODY]
    # unpack_properties takes an envelope; of these two fields it is made of
    head = (None,) * PROPERTIES
    properties = [unpack_properties((*head, *pair)) for pair in zip(packed, letters, strict=True)]
    texts: list[str | None] = []
    data: list[bytes | None] = []
    for kind, body in zip(fields[BODY_KIND], bodies, strict=True):
        text = None
        if kind == BodyKind.TEXT and body is not None:
            try:
                text, body = body.decode(), None  # what is no UTF-8 stays bytes
            except UnicodeDecodeError:
                pass
        texts.append(text)
        data.append(body)
    groups = [each.get("JMSXGroupID") for each in properties]
    numbers = [each.get("JMSXGroupSeq") for each in properties]
    values: list[Sequence[Any] | pa.Array] = [
        *([part] * count for part in origin),
        range(page.first, page.first + count),
        [_text(each) for each in fields[MESSAGE_ID]],
        [_text(each) if type(each) is str else None for each in correlations],
        [each if type(each) is bytes else None for each in correlations],
        [_text(each) for each in fields[TYPE]],
        fields[REPLY_TO],
        fields[TIMESTAMP],
        fields[DELIVERY_MODE],
        fields[PRIORITY],
        fields[EXPIRATION],
        fields[DELIVERY_TIME],
        [each > 1 for each in page.counts],
        page.counts,
        [_text(each) if type(each) is str else None for each in groups],
        [int(each) if isinstance(each, int) and type(each) is not bool else None for each in numbers],
        [KINDS.get(kind, str(kind)) for kind in fields[BODY_KIND]],
        texts,
        data,
        [len(body or b"") + len(both or b"") for body, both in zip(bodies, packed, strict=True)],
        _maps(properties, maps),
    ]
    if columns:
        values += zip(*[promoted(each, columns) for each in properties], strict=True)
    return values


def _text(value: str | None) -> str | None:
    return value if value is None or value.isascii() else utf8(value)


def _maps(properties: Sequence[Mapping[str, PropertyValue]], kind: pa.MapType) -> pa.MapArray:
    """The column `properties`, as :func:`~sievemq_spark.schema.typed` makes it value by value, in half the time."""
    offsets = [0, *accumulate(map(len, properties))]
    total = offsets[-1]
    nothing: list[Any] = [None] * total
    t, b, l, d, s = ["s"] * total, nothing[:], nothing[:], nothing[:], nothing[:]  # noqa: E741  # as in schema.py
    at = 0
    for each in properties:
        for value in each.values():
            exact = type(value)
            if exact is str:
                s[at] = value if value.isascii() else utf8(value)  # type: ignore[union-attr, arg-type]  # a str
            elif exact is int:
                t[at] = "i" if -(2**31) <= value < 2**31 else "l"  # type: ignore[operator]  # an int
                l[at] = value
            elif exact is float:
                t[at] = "d"
                d[at] = value
            elif value is not None:
                t[at], b[at], l[at], d[at], s[at] = typed(value)
            at += 1
    names = {name: utf8(name) for name in set(chain.from_iterable(properties))}
    keys = pa.array([names[name] for name in chain.from_iterable(properties)], kind.key_type)
    items = [pa.array(part, field.type) for part, field in zip((t, b, l, d, s), kind.item_type, strict=True)]
    structs = pa.StructArray.from_arrays(items, fields=list(kind.item_type))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, structs, type=kind)
