"""Pages of a tap as Arrow record batches, column by column: most columns are built without visiting single messages.

No message makes its page fail: stores may hold what brokers of earlier versions accepted and no column can hold.
Properties that cannot be decoded are none, text has U+FFFD in the place of lone surrogates, and a time beyond a long is
the last that a long can name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
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
    well_formed,
)
from sievemq_core.message.outcomes import OUTCOME, OUTCOME_ATTEMPTS, OUTCOME_REASON, OUTCOME_SUBSCRIPTION, SELECTOR
from sievemq_core.message.values import to_time
from sievemq_spark.columns import TYPES
from sievemq_spark.property_columns import PropertyColumns, properties_or_none
from sievemq_spark.schema import KINDS
from sievemq_spark.times import FIRST, LAST

_TEXT: Final = int(BodyKind.TEXT)


def record_batches(
    page: TapPage,
    origin: tuple[str, str, str],
    columns: Mapping[str, str],
    schema: pa.Schema,
    size: int,
    places: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The messages of a page as rows of schema.py.

    Args:
        places: column ``seq``; None to count from the first of the page.
    """
    if not len(page):
        return
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, field.type)
        for values, field in zip(_values(page, origin, columns, schema, places), schema, strict=True)
    ]
    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for begin in range(0, len(page), size):
        yield whole.slice(begin, size)


def _values(
    page: TapPage,
    origin: tuple[str, str, str],
    columns: Mapping[str, str],
    schema: pa.Schema,
    places: Sequence[int] | None,
) -> list[Sequence[Any] | pa.Array]:
    fields, count = page.columns, len(page)
    kinds, bodies, packed = (fields[each] for each in (BODY_KIND, BODY, PROPERTIES))
    properties = PropertyColumns(packed, fields[PROPERTY_TYPES])
    counts = np.fromiter(page.counts, np.int32, count)
    return [
        *(pa.repeat(pa.scalar(part, pa.string()), count) for part in origin),
        np.arange(page.first, page.first + count, dtype=np.int64) if places is None else places,
        _texts(fields[MESSAGE_ID]),
        *_correlations(fields[CORRELATION_ID]),
        _texts(fields[TYPE]),
        _texts(fields[REPLY_TO]),
        _times(fields[TIMESTAMP]),
        fields[DELIVERY_MODE],
        fields[PRIORITY],
        _times(fields[EXPIRATION]),
        _times(fields[DELIVERY_TIME]),
        counts > 1,
        counts,
        properties.column("JMSXGroupID", "s"),
        properties.column("JMSXGroupSeq", "l"),
        _names(kinds),
        *_bodies(kinds, bodies),
        _sizes(bodies) + _sizes(packed),
        properties.maps(schema.field("properties").type),
        *(properties.column(name, TYPES[kind]) for name, kind in columns.items()),
        *([_moments(fields[TIMESTAMP])] if pa.types.is_timestamp(schema[-1].type) else ()),
    ]


def _correlations(values: Sequence[str | bytes | None]) -> tuple[pa.Array, Sequence[bytes | None]]:
    """The columns `correlation_id` and `correlation_bytes`."""
    if bytes not in set(map(type, values)):
        return _texts(values), [None] * len(values)  # type: ignore[arg-type]  # as just tested
    return _only_texts(values), [each if type(each) is bytes else None for each in values]


def _names(kinds: Sequence[int]) -> pa.Array:
    """The column `body_kind`."""
    names = {kind: KINDS.get(kind, str(kind)) for kind in set(kinds)}
    if len(names) == 1:
        return pa.repeat(pa.scalar(names[kinds[0]], pa.string()), len(kinds))
    return pa.array(list(map(names.__getitem__, kinds)), pa.string())


def _texts(values: Sequence[str | None]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # a lone surrogate
        return pa.array([value if value is None else well_formed(value) for value in values], pa.string())


def _times(values: Sequence[int]) -> pa.Array:
    try:
        return pa.array(values, pa.int64())
    except OverflowError:
        return pa.array(map(to_time, values), pa.int64())


def _moments(values: Sequence[int]) -> pa.Array:
    """Times as TIMESTAMPs; NULL for those that are none, or a mistake (times.py)."""
    times = _times(values).to_numpy()
    there = (times != 0) & (times >= FIRST) & (times <= LAST)
    return pa.array(np.where(there, times, 0) * 1_000, mask=~there).cast(pa.timestamp("us", "UTC"))


def _only_texts(values: Iterable[object]) -> pa.Array:
    return _texts([value if type(value) is str else None for value in values])


def _sizes(values: Sequence[bytes | None]) -> Any:
    return np.fromiter([0 if value is None else len(value) for value in values], np.int64, len(values))


def _bodies(kinds: Sequence[int], bodies: Sequence[bytes | None]) -> tuple[pa.Array, pa.Array]:
    """The columns `body_text` and `body_bytes`: text that is no UTF-8 stays bytes."""
    if set(kinds) == {_TEXT}:
        with suppress(pa.ArrowInvalid):
            return pa.array(bodies, pa.binary()).cast(pa.string()), pa.nulls(len(bodies), pa.binary())
    texts = [body if kind == _TEXT else None for kind, body in zip(kinds, bodies, strict=True)]
    data = [body if kind != _TEXT else None for kind, body in zip(kinds, bodies, strict=True)]
    try:
        return pa.array(texts, pa.binary()).cast(pa.string()), pa.array(data, pa.binary())
    except pa.ArrowInvalid:
        for place, body in enumerate(texts):
            try:
                _ = body is None or body.decode()
            except UnicodeDecodeError:
                texts[place], data[place] = None, body
        return pa.array(texts, pa.binary()).cast(pa.string()), pa.array(data, pa.binary())


_NO_HEADERS: Final = (None,) * PROPERTIES


def outcome_batches(
    page: TapPage, origin: tuple[str, str, str], schema: pa.Schema, size: int
) -> Iterator[pa.RecordBatch]:
    """The records of a page as rows."""
    fields, count = page.columns, len(page)
    pairs = zip(fields[PROPERTIES], fields[PROPERTY_TYPES], strict=True)
    said: dict[Any, Any] = {}  # most records share a few sets of properties
    properties = []
    for pair in pairs:
        known = said.get(pair)
        if known is None:
            known = said[pair] = properties_or_none((*_NO_HEADERS, *pair))
        properties.append(known)
    columns: dict[str, Any] = {
        **{name: [part] * count for name, part in zip(("shard", "namespace", "destination"), origin, strict=True)},
        "seq": range(page.first, page.first + count),
        "message_id": _only_texts(fields[MESSAGE_ID]),
        "correlation_id": _only_texts(fields[CORRELATION_ID]),
        "type": _only_texts(fields[TYPE]),
        "timestamp": _times(fields[TIMESTAMP]),
        "subscription": _only_texts([each.get(OUTCOME_SUBSCRIPTION) for each in properties]),
        "outcome": [each[OUTCOME] for each in properties],
        "reason": [each.get(OUTCOME_REASON) for each in properties],
        "attempts": [each[OUTCOME_ATTEMPTS] for each in properties],
        "selector": _only_texts([each.get(SELECTOR) for each in properties]),
        "time": page.times,
    }
    if pa.types.is_timestamp(schema[-1].type):
        columns[schema[-1].name] = _moments(page.times)
    given = [(columns[field.name], field.type) for field in schema]
    arrays = [each if isinstance(each, pa.Array) else pa.array(each, kind) for each, kind in given]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for begin in range(0, count, size):
        yield whole.slice(begin, size)
