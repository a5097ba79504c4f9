"""Pages of a tap as Arrow record batches, column by column: most columns need no look at single messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    values = _values(page, origin, columns)
    for begin in range(0, len(page), size):
        part = [column[begin : begin + size] for column in values]
        yield pa.RecordBatch.from_arrays(to_arrays(part, schema), schema=schema)


def _values(page: TapPage, origin: tuple[str, str, str], columns: Mapping[str, str]) -> list[Sequence[Any]]:
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
    values: list[Sequence[Any]] = [
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
        [{utf8(name): typed(value) for name, value in each.items()} for each in properties],
    ]
    if columns:
        values += zip(*[promoted(each, columns) for each in properties], strict=True)
    return values


def _text(value: str | None) -> str | None:
    return value if value is None or value.isascii() else utf8(value)
