"""What waits in queues as rows, through the blocking client; each destination is a partition."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sievemq import Connection, Queue
from sievemq_spark.batches import batches
from sievemq_spark.connect import connect
from sievemq_spark.options import ReadOptions
from sievemq_spark.schema import Row, row_of

__all__ = ["BrowsePartition", "BrowseReader", "browse"]


def browse(connection: Connection, queue: Queue, options: ReadOptions) -> Iterator[Row]:
    """The messages of a queue as rows, in the order in which they would be received."""
    origin = (options.broker, options.broker_url.namespace, str(queue))
    columns = options.promoted
    with connection.create_session() as session, session.create_browser(queue, options.selector) as browser:
        for seq, message in enumerate(islice(browser, options.limit or None), start=1):
            yield row_of(message._fields, message._count, seq, origin, columns)


class BrowsePartition(InputPartition):
    """One queue.

    Args:
        destination: in text.
    """

    def __init__(self, destination: str) -> None:
        super().__init__(destination)
        self.destination = destination


class BrowseReader(DataSourceReader):
    """Reads without changing anything, so that a task which runs twice does no harm.

    Filters are not pushed down: Spark 4.3 would let them leak into other queries over the same DataFrame. The selector
    is an option instead.

    Args:
        options: checked.
        schema: of the rows.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """A partition per queue; the broker verifies them, the credentials and the selector here, before any task."""
        options = self._options
        with self._connect() as connection, connection.create_session() as session:
            for queue in options.queues:
                session.create_browser(queue, options.selector).close()
        return [BrowsePartition(str(queue)) for queue in options.queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a queue."""
        assert isinstance(partition, BrowsePartition)
        options = self._options
        queue = next(queue for queue in options.queues if str(queue) == partition.destination)
        with self._connect() as connection:
            yield from batches(browse(connection, queue, options), to_arrow_schema(self._schema), options.batch_size)

    def _connect(self) -> Connection:
        options = self._options
        return connect(options.url, options.user, options.password, options.dialect)
