"""Messages as rows, as a reader makes them, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sievemq.taps import TapPage
from sievemq_core.message.envelope import EnvelopeFields
from sievemq_spark.schema import COLUMNS
from sievemq_spark.tap_rows import record_batches

_PLAIN = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(), "binary": pa.binary(),
          "double": pa.float64(), "float": pa.float32(), "smallint": pa.int16(), "tinyint": pa.int8()}  # fmt: skip
_ITEM = pa.struct([("t", pa.string()), ("b", pa.bool_()), ("l", pa.int64()), ("d", pa.float64()), ("s", pa.string())])


def arrow_schema(columns: Mapping[str, str]) -> Any:
    """As Spark's ``to_arrow_schema`` makes it."""
    return pa.schema([(name, _PLAIN.get(kind) or pa.map_(pa.string(), _ITEM)) for name, kind in columns.items()])


def batch_of(
    messages: Sequence[EnvelopeFields],
    counts: Sequence[int] | None = None,
    first: int = 1,
    origin: tuple[str, str, str] = ("h:1", "", "queue:q"),
    columns: Mapping[str, str] | None = None,
) -> Any:
    """A page of messages as one record batch."""
    counts = counts or [0] * len(messages)
    page = TapPage(first, counts, counts, tuple(zip(*messages, strict=True)))
    schema = arrow_schema({**COLUMNS, **(columns or {})})
    (batch,) = record_batches(page, origin, columns or {}, schema, len(messages))
    batch.validate(full=True)
    return batch


def row_of(
    fields: EnvelopeFields,
    count: int = 0,
    seq: int = 1,
    origin: tuple[str, str, str] = ("h:1", "", "queue:q"),
    columns: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One message as a row; properties by name."""
    (row,) = batch_of([fields], [count], seq, origin, columns).to_pylist()
    return {**row, "properties": dict(row["properties"])}
