"""Rows as Arrow record batches, column by column: what Spark takes several times faster than tuples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow

from sievemq_spark.schema import Row

__all__ = ["batches"]


def batches(rows: Iterable[Row], schema: pyarrow.Schema, size: int) -> Iterator[pyarrow.RecordBatch]:
    """Record batches of up to `size` rows.

    Args:
        rows: in the order of the schema's fields.
        schema: Spark's, from ``to_arrow_schema``; a batch has exactly this one.
        size: rows of a batch.
    """
    rest = iter(rows)
    while chunk := list(islice(rest, size)):
        arrays = [_array(values, field.type) for values, field in zip(zip(*chunk, strict=True), schema, strict=True)]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    return _maps(values, kind) if pyarrow.types.is_map(kind) else pyarrow.array(values, kind)


def _maps(values: Sequence[dict[str, tuple[Any, ...]]], kind: pyarrow.MapType) -> pyarrow.Array:
    """Maps of structs from flat columns; Arrow's own way through nested Python values takes much longer."""
    offsets, at = [0], 0
    for value in values:
        at += len(value)
        offsets.append(at)
    keys = pyarrow.array([name for value in values for name in value], kind.key_type)
    items = [item for value in values for item in value.values()]
    parts = list(zip(*items, strict=True)) if items else [()] * kind.item_type.num_fields
    columns = [pyarrow.array(part, field.type) for part, field in zip(parts, kind.item_type, strict=True)]
    structs = pyarrow.StructArray.from_arrays(columns, fields=list(kind.item_type))
    return pyarrow.MapArray.from_arrays(pyarrow.array(offsets, pyarrow.int32()), keys, structs, type=kind)
