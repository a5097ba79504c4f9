"""A query as its source sees it, without a JVM: Spark's calls in Spark's order."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from sievemq import ConnectionFactory, Destination, Message, Queue, TextMessage
from sievemq_broker import EmbeddedBroker
from sievemq_broker.embedded import EmbeddedNamespace
from sievemq_spark import links
from sievemq_spark.options import ReadOptions
from sievemq_spark.stream_reader import TapStreamReader

JSON = dict[str, Any]


def forget_connections() -> None:
    for connection in list(links._open.values()):
        connection.close()
    links._open.clear()


def schema_of(columns: dict[str, str]) -> StructType:
    """A Spark schema without a Spark session."""
    from pyspark.sql.types import (
        BinaryType,
        BooleanType,
        DoubleType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        TimestampType,
    )

    plain = {"string": StringType(), "bigint": LongType(), "int": IntegerType(), "boolean": BooleanType(),
             "binary": BinaryType(), "double": DoubleType(), "timestamp": TimestampType()}  # fmt: skip
    item = StructType([StructField(name, plain[kind]) for name, kind in zip(
        "tblds", ("string", "boolean", "bigint", "double", "string"), strict=True)])  # fmt: skip
    return StructType(
        [StructField(name, plain.get(kind) or MapType(StringType(), item)) for name, kind in columns.items()]
    )


class Stream:
    """A query, as far as its source can tell: batch after batch, offsets as Spark keeps them."""

    def __init__(
        self, broker: EmbeddedBroker | str, destination: str = "queue:q", *, begin: JSON | None = None, **options: Any
    ) -> None:
        url = broker if isinstance(broker, str) else broker.url
        given = {"url": url, "destination": destination, "tap": "t", "failonmissing": "false", **options}
        self.options = ReadOptions.read({name: str(value) for name, value in given.items()})
        self.schema = schema_of(self.options.schema)
        self.begin = begin
        self.start()

    def start(self) -> None:
        """The driver starts, for the first time or again: its process before has gone."""
        forget_connections()
        self.reader = pickle.loads(pickle.dumps(TapStreamReader(self.options, self.schema)))
        if self.begin is None:
            self.begin = self.reader.initialOffset()

    def plan(self, limit: Any = None) -> JSON:
        """The offset of the next batch."""
        assert self.begin is not None
        end: JSON = self.reader.latestOffset(self.begin, limit or self.reader.getDefaultReadLimit())
        return end

    def read(self, begin: JSON, end: JSON) -> list[dict[str, Any]]:
        """What the tasks of a batch read."""
        rows: list[dict[str, Any]] = []
        for part in self.reader.partitions(begin, end):
            reader, part = pickle.loads(pickle.dumps((self.reader, part)))
            for batch in reader.read(part):
                rows += batch_rows(batch)
        return rows

    def batch(self, limit: Any = None) -> list[str]:
        """A whole batch: planned, read, written, done. The texts of its messages."""
        assert self.begin is not None
        end = self.plan(limit)
        rows = self.read(self.begin, end) if end != self.begin else []
        self.begin = end
        return [row["body_text"] for row in rows]


def send(broker: EmbeddedBroker | EmbeddedNamespace, *messages: Message | str, to: Destination | None = None) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        producer = context.create_producer()
        for message in messages:
            producer.send(to or Queue("q"), TextMessage(message) if isinstance(message, str) else message)


def waiting(broker: EmbeddedBroker, queue: str = "q") -> list[str | None]:
    with ConnectionFactory(broker.url).create_context() as context:
        return [message.get_body(str) for message in context.create_browser(Queue(queue))]


def batch_rows(batch: Any) -> list[dict[str, Any]]:
    assert isinstance(batch, pa.RecordBatch)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found
