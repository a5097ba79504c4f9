"""A stream's sink: each micro-batch becomes visible together, and once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sievemq_spark.errors import PipelineError
from sievemq_spark.options import WriteOptions
from sievemq_spark.writer import Written, check_schema, discard_all, publish_all, write_rows

#: Spark's properties of a task that name the query. Its id is part of the checkpoint: it stays after a restart.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class MessageStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches, each keyed by query and batch: Spark repeats a batch under the same number."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema({field.name: field.dataType.simpleString() for field in schema.fields}, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        if query is None or batch is None:
            raise PipelineError("Spark does not say which batch of which query this is; is it a streaming query?")
        return write_rows(iterator, self._options, self._columns, f"query {query}", int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every task has staged its rows."""
        key = _key_of(messages)
        if key is not None:
            publish_all(messages, self._options, key, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        key = _key_of(messages)
        if key is not None:
            discard_all(self._options, key, batchId)


def _key_of(messages: list[WriterCommitMessage | None]) -> str | None:
    """The query that the tasks belong to; None if there were no tasks, or none got so far."""
    return next((each.key for each in messages if isinstance(each, Written)), None)
