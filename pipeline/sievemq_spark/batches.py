"""Rows as Arrow record batches, column by column: what Spark takes several times faster than tuples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from sievemq_spark.schema import Row

__all__ = ["batches", "to_arrays"]


def batches(rows: Iterable[Row], schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    """Record batches of up to `size` rows.

    Args:
        rows: in the order of the schema's fields.
        schema: Spark's, from ``to_arrow_schema``; a batch has exactly this one.
        size: rows of a batch.
    """
    rest = iter(rows)
    while chunk := list(islice(rest, size)):
        yield pa.RecordBatch.from_arrays(to_arrays(list(zip(*chunk, strict=True)), schema), schema=schema)


def to_arrays(columns: Sequence[Sequence[Any] | pa.Array], schema: pa.Schema) -> list[pa.Array]:
    """Columns of values as Arrow's, each of the type that the schema's field has. One that is Arrow's already stays."""
    return [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]


def _array(values: Sequence[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return _maps(values, kind) if pa.types.is_map(kind) else pa.array(values, kind)


def _maps(values: Sequence[dict[str, tuple[Any, ...]]], kind: pa.MapType) -> pa.Array:
    """Maps of structs from flat columns; Arrow's own way through nested Python values takes much longer."""
    offsets, at = [0], 0
    for value in values:
        at += len(value)
        offsets.append(at)
    keys = pa.array([name for value in values for name in value], kind.key_type)
    items = [item for value in values for item in value.values()]
    parts = list(zip(*items, strict=True)) if items else [()] * kind.item_type.num_fields
    columns = [pa.array(part, field.type) for part, field in zip(parts, kind.item_type, strict=True)]
    structs = pa.StructArray.from_arrays(columns, fields=list(kind.item_type))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, structs, type=kind)
