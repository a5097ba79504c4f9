"""The messages that wait in queues as rows, through the blocking client: each queue is a partition, or several if it is
deep."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sievemq import Connection, Queue
from sievemq._engine.outbox import Completion
from sievemq.destinations import parse_destination
from sievemq.taps import TapPage
from sievemq_spark.links import connect, require_queues
from sievemq_spark.options import WORTH, ReadOptions
from sievemq_spark.shards import Shards, shard_of
from sievemq_spark.tap_rows import record_batches

_count: Final = itemgetter(0)
_message: Final = itemgetter(1)

#: Messages of a page; the broker gives a thousand at once, or about 1 MiB.
PAGE: Final = 1_000


def depth_of(connection: Connection, queue: Queue) -> int:
    """The number of messages that wait in a queue; 0 if the broker's version cannot browse in parts.

    Raises:
        JMSException: the connection is lost; no right.
    """
    with connection.create_session() as session, session.create_browser(queue) as browser:
        transport = session._transport
        with transport.lock:
            answer = browser._engine.page(None, 0, 0, 1)
        transport.flush()
        _, *depth = transport.ask(lambda: answer)
        return depth[0] if depth and type(depth[0]) is int else 0


def pages(
    connection: Connection, queue: Queue, selector: str | None, limit: int = 0, part: tuple[int, int] | None = None
) -> Iterator[tuple[TapPage, list[int] | None]]:
    """The messages of a queue, in the order in which they would be received, as pages with sequences from 1; of a part
    with the places in that order, which ascend over all parts together.

    While a page is used the broker makes the next one.

    Args:
        selector: only messages for which it is true.
        limit: messages at most; 0 for all.
        part: only the messages of this part, from 0, of so many; None for all.

    Raises:
        JMSException: the connection is lost.
    """
    with connection.create_session() as session, session.create_browser(queue, selector) as browser:
        transport, seen = session._transport, 0

        def ask(cursor: Any) -> Completion[Any]:
            with transport.lock:
                answer = browser._engine.page(cursor, min(PAGE, limit - seen) if limit else PAGE, *(part or ()))
            transport.flush()
            return answer

        def answered(answer: Completion[Any]) -> Any:
            return transport.ask(lambda: answer)

        answer = ask(None)
        while True:
            cursor, *found = answered(answer)
            seen += len(found)
            more = cursor is not None and (not limit or seen < limit)
            if more:
                answer = ask(cursor)
            if found:
                counts, messages = list(map(_count, found)), map(_message, found)
                page = TapPage(seen - len(found) + 1, counts, counts, tuple(zip(*messages, strict=False)))
                yield page, [each[2] for each in found] if part else None
            if not more:
                return


def queue_of(text: str) -> Queue:
    """The queue with an address that is one's."""
    queue = parse_destination(text)
    assert isinstance(queue, Queue)
    return queue


class BrowsePartition(InputPartition):
    """One queue of one shard, or a part of it.

    Args:
        part: number of the part, from 0, and how many there are; None for the whole queue.
    """

    def __init__(self, url: str, destination: str, part: tuple[int, int] | None = None) -> None:
        super().__init__((url, destination, part))
        self.url = url
        self.destination = destination
        self.part = part


class BrowseReader(DataSourceReader):
    """Reads without changing anything, so that a task which runs twice does no harm.

    Filters are not pushed down: Spark 4.3 would let them leak into other queries over the same DataFrame. The selector
    is an option instead.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """A partition per queue, or several if it is deep. The broker verifies queues, credentials and the selector
        here, before any task.

        Raises:
            NoDestinationError: a queue is not there.
        """
        options = self._options
        found: list[InputPartition] = []
        shards = Shards(options)
        for shard in shards.reached():
            url = shard.url
            with self._connect(url) as connection:
                require_queues(connection, str(shard), options)
                for queue in map(queue_of, shards.destinations(shard)):
                    count = 1 if options.limit else min(options.partitions, -(-depth_of(connection, queue) // WORTH))
                    parts = [(number, count) for number in range(count)] if count > 1 else [None]
                    found += [BrowsePartition(url, str(queue), part) for part in parts]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a queue, or of its part."""
        assert isinstance(partition, BrowsePartition)
        options = self._options
        queue = queue_of(partition.destination)
        with self._connect(partition.url) as connection:
            shard, schema = shard_of(connection, partition.url), to_arrow_schema(self._schema, timezone="UTC")
            origin = (shard.name, shard.namespace, str(queue))
            for page, places in pages(connection, queue, options.selector, options.limit, partition.part):
                yield from record_batches(page, origin, options.promoted, schema, options.batch_size, places)

    def _connect(self, url: str) -> Connection:
        options = self._options
        return connect(url, options.user, options.password, options.dialect)
