"""What waits in queues as rows, through the blocking client; each destination is a partition."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sievemq import Connection, Queue
from sievemq.url import parse_url
from sievemq_spark.batches import batches
from sievemq_spark.connect import connect
from sievemq_spark.missing import require_queues
from sievemq_spark.options import ReadOptions, broker_name
from sievemq_spark.schema import Row, row_of

__all__ = ["BrowsePartition", "BrowseReader", "browse"]


def browse(connection: Connection, url: str, queue: Queue, options: ReadOptions) -> Iterator[Row]:
    """The messages of a queue as rows, in the order in which they would be received."""
    broker = parse_url(url)
    origin = (broker_name(broker), broker.namespace, str(queue))
    columns = options.promoted
    with connection.create_session() as session, session.create_browser(queue, options.selector) as browser:
        for seq, message in enumerate(islice(browser, options.limit or None), start=1):
            yield row_of(message._fields, message._count, seq, origin, columns)


class BrowsePartition(InputPartition):
    """One queue of one broker.

    Args:
        url: of the broker.
        destination: in text.
    """

    def __init__(self, url: str, destination: str) -> None:
        super().__init__((url, destination))
        self.url = url
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
        """A partition per queue; the broker verifies them, the credentials and the selector here, before any task.

        Raises:
            NoDestinationError: a queue is not there.
        """
        options = self._options
        for url in options.urls:
            with self._connect(url) as connection:
                require_queues(connection, url, options)
        return [BrowsePartition(url, str(queue)) for url in options.urls for queue in options.queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a queue."""
        assert isinstance(partition, BrowsePartition)
        options = self._options
        queue = next(queue for queue in options.queues if str(queue) == partition.destination)
        with self._connect(partition.url) as connection:
            rows = browse(connection, partition.url, queue, options)
            yield from batches(rows, to_arrow_schema(self._schema), options.batch_size)

    def _connect(self, url: str) -> Connection:
        options = self._options
        return connect(url, options.user, options.password, options.dialect)
