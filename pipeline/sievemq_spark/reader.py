"""What waits in queues as rows, through the blocking client; each destination is a partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sievemq import Connection, Queue
from sievemq._engine.completion import Completion
from sievemq.taps import TapPage
from sievemq.url import parse_url
from sievemq_spark.connect import connect
from sievemq_spark.missing import require_queues
from sievemq_spark.options import ReadOptions, broker_name
from sievemq_spark.tap_rows import record_batches

__all__ = ["BrowsePartition", "BrowseReader", "pages"]

#: Messages of a page; the broker gives a thousand at once, or about 1 MiB.
PAGE: Final = 1_000


def pages(connection: Connection, queue: Queue, selector: str | None, limit: int = 0) -> Iterator[TapPage]:
    """The messages of a queue, in the order in which they would be received, as pages with sequences from 1.

    While a page is used the broker makes the next one.

    Args:
        connection: to the broker.
        queue: to browse.
        selector: only messages for which it is true.
        limit: messages at most; 0 for all.

    Raises:
        JMSException: the connection is lost.
    """
    with connection.create_session() as session, session.create_browser(queue, selector) as browser:
        transport, seen = session._transport, 0

        def ask(cursor: Any) -> Completion[Any]:
            with transport.lock:
                answer = browser._engine.page(cursor, min(PAGE, limit - seen) if limit else PAGE)
            transport.flush()
            return answer

        answer = ask(None)
        while True:
            cursor, *found = transport.wait(answer)
            seen += len(found)
            more = cursor is not None and (not limit or seen < limit)
            if more:
                answer = ask(cursor)
            if found:
                counts, messages = zip(*(each[:2] for each in found), strict=True)
                yield TapPage(seen - len(found) + 1, counts, counts, tuple(zip(*messages, strict=False)))
            if not more:
                return


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
            broker, schema = parse_url(partition.url), to_arrow_schema(self._schema)
            origin = (broker_name(broker), broker.namespace, str(queue))
            for page in pages(connection, queue, options.selector, options.limit):
                yield from record_batches(page, origin, options.promoted, schema, options.batch_size)

    def _connect(self, url: str) -> Connection:
        options = self._options
        return connect(url, options.user, options.password, options.dialect)
