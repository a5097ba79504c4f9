"""Pages of a tap of outcomes as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sievemq.taps import TapPage
from sievemq_core.message.envelope import (
    CORRELATION_ID,
    MESSAGE_ID,
    PROPERTIES,
    PROPERTY_TYPES,
    TIMESTAMP,
    TYPE,
    unpack_properties,
)
from sievemq_core.message.outcomes import ATTEMPTS, OUTCOME, REASON, SELECTOR, SUBSCRIPTION
from sievemq_spark.schema import utf8

__all__ = ["outcome_batches"]

_NO_HEADERS: Final = (None,) * PROPERTIES


def outcome_batches(
    page: TapPage, origin: tuple[str, str, str], schema: pa.Schema, size: int
) -> Iterator[pa.RecordBatch]:
    """The records of a page as rows.

    Args:
        page: of a tap of outcomes.
        origin: broker, namespace, destination.
        schema: Spark's, from ``to_arrow_schema``.
        size: rows of a batch.

    Raises:
        ProtocolError: the properties of a record cannot be decoded.
    """
    fields, count = page.columns, len(page)
    pairs = zip(fields[PROPERTIES], fields[PROPERTY_TYPES], strict=True)
    said: dict[Any, Any] = {}  # most records share a few sets of properties
    properties = []
    for pair in pairs:
        known = said.get(pair)
        if known is None:
            known = said[pair] = unpack_properties((*_NO_HEADERS, *pair))
        properties.append(known)
    columns: dict[str, Any] = {
        **{name: [part] * count for name, part in zip(("broker", "namespace", "destination"), origin, strict=True)},
        "seq": range(page.first, page.first + count),
        "message_id": _texts(fields[MESSAGE_ID]),
        "correlation_id": _texts(fields[CORRELATION_ID]),
        "type": _texts(fields[TYPE]),
        "timestamp": fields[TIMESTAMP],
        "subscription": _texts([each.get(SUBSCRIPTION) for each in properties]),
        "outcome": [each[OUTCOME] for each in properties],
        "reason": [each.get(REASON) for each in properties],
        "attempts": [each[ATTEMPTS] for each in properties],
        "selector": _texts([each.get(SELECTOR) for each in properties]),
        "time": page.times,
    }
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for begin in range(0, count, size):
        yield whole.slice(begin, size)


def _texts(values: Any) -> list[str | None]:
    return [utf8(value) if type(value) is str else None for value in values]
