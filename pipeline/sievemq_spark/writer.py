"""Rows as messages, exactly once: tasks stage what they send, the driver publishes all of it in one call.

    task ── send, send, … STAGE ─┐
    task ── send, send, … STAGE ─┼─► names ─► driver ── PUBLISH (key, batch, names)
    task ── raises ──────────────┘           or DISCARD

Only the names of tasks that Spark counts are published, and the broker publishes a batch of a key once: a task that
runs twice, a batch that is written again because its outcome is unknown, change nothing. A rate, or transactions
of a size, make messages visible piece by piece; each piece has a key and a number of its own then, so that a task that
runs again sends only what it had not.

Of several shards each is published by itself: a row goes to one of them, and a batch that is written again goes to
those that had not published it.
"""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sievemq import Connection, Destination, JMSException, MessageProducer, Session
from sievemq.messages import received
from sievemq.staging import LEASE, discard, publish, stage
from sievemq_core.message.envelope import BODY, DELIVERY_MODE, DELIVERY_TIME, PRIORITY, PROPERTIES, EnvelopeFields
from sievemq_spark.columns import TYPES
from sievemq_spark.errors import PipelineError
from sievemq_spark.links import PATIENCE, Link, connect, is_lost
from sievemq_spark.misfits import misspelled
from sievemq_spark.options import WriteOptions, destination_of, place_name
from sievemq_spark.outgoing import check_name, outgoing
from sievemq_spark.routes import Routes
from sievemq_spark.schema import COLUMNS
from sievemq_spark.shards import shard_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("sievemq.spark")

_PAUSE: Final = 0.1  # seconds between two attempts to connect

#: Messages, and bytes of bodies, after which a task stages what it has sent: a connection holds 256 MiB unstaged.
STAGE_MESSAGES: Final = 5_000
STAGE_BYTES: Final = 16 * 1024 * 1024

#: Pieces of one task and batch, where messages become visible piece by piece.
_PIECES: Final = 1_000_000

#: Columns that may also come in another type than the message row's.
_ALSO: Final = {
    "priority": {"tinyint", "smallint", "bigint"},
    "delivery_mode": {"tinyint", "smallint", "bigint"},
    "timestamp": {"int"},
    "expiration": {"int"},
    "delivery_time": {"int"},
    "group_seq": {"tinyint", "smallint", "int"},
}


def check_schema(columns: Mapping[str, str], options: WriteOptions) -> dict[str, str]:
    """The columns that become properties, name -> Spark type.

    Args:
        columns: of the rows, name -> Spark type.

    Raises:
        PipelineError: a column of a message has a wrong type, one of a property a type or name that no property has,
            or no row can name its destination.
    """
    properties = {}
    for name, kind in columns.items():
        if name in COLUMNS:
            if kind not in ("void", COLUMNS[name], *_ALSO.get(name, ())):
                raise PipelineError(
                    f"the column {name!r} is {kind}; of a message it is {COLUMNS[name]}: convert it, "
                    "or rename it if it is to be a property"
                )
        elif name in _ARCHIVE_ONLY:
            continue
        elif meant := misspelled(name, COLUMNS):
            raise PipelineError(
                f"the column {name!r} differs from {meant!r} of a message in letter case alone, which Spark "
                f"ignores: name it {meant!r}; a property of that name can be put into the map 'properties'"
            )
        elif kind not in TYPES:
            fix = "cast it, drop it, or name it body_bytes" if kind == "binary" else "cast it or drop it"
            raise PipelineError(f"the column {name!r} is {kind}, which no property can be ({', '.join(TYPES)}): {fix}")
        else:
            check_name(name)
            properties[name] = kind
    if len(options.urls) > 1 and not {"namespace", "shard"} & columns.keys():
        raise PipelineError(
            "the option 'url' names several shards: give rows a column 'shard' or 'namespace' that names one of them"
        )
    if not options.destination and "destination" not in columns:
        raise PipelineError("give the option 'destination', or rows with a column 'destination'")
    return properties


#: The partition column of an archive adds nothing to the timestamp.
_ARCHIVE_ONLY: Final = frozenset({"date"})


@dataclass
class Written(WriterCommitMessage):
    """The result of a task.

    Attributes:
        messages: rows it was given, all of which are messages.
        key: under which it is published.
        stages: names of its stages, in order, each behind the number of its URL; none if the task has published them
            itself.
        sent: messages it has published by itself.
    """

    messages: int
    key: str = ""
    stages: list[tuple[int, str]] = field(default_factory=list)
    sent: int = 0


def write_rows(
    iterator: Iterator[pa.RecordBatch], options: WriteOptions, columns: Mapping[str, str], key: str, batch: int
) -> Written:
    """Send the rows of a partition. Runs in a task.

    Args:
        columns: that become properties, name -> Spark type.
        key, batch: under which they are published, all of them or piece by piece.

    Raises:
        PipelineError: a row that is no message; the broker refused something.
    """
    with ExitStack() as stack:
        task = _Task(options, key, batch, stack)
        try:
            task.send(iterator, columns)
        except JMSException as error:
            raise PipelineError(f"after {task.count} messages of this partition: {error}") from error
        return Written(task.count, key, task.stages, task.sent)


class _Out:
    """One of the shards that a partition is written to.

    A transaction ends with its connection: messages sent on a lost one must not be missing without an error.
    """

    def __init__(self, url: str, options: WriteOptions, stack: ExitStack) -> None:
        self.connection = stack.enter_context(_connect(url, options))
        self.session = stack.enter_context(self.connection.create_session(Session.SESSION_TRANSACTED))
        self._sender = _Sender(stack.enter_context(self.session.create_producer(None)))
        self._bytes = self._count = self._pieces = 0

    @property
    def shard(self) -> str:
        return self.connection.get_meta_data().shard

    def send(self, fields: EnvelopeFields, destination: Destination) -> tuple[int, int]:
        """Send a message; the messages and bytes since the last :meth:`end_piece`."""
        self._bytes += self._sender.send(fields, destination)
        self._count += 1
        return self._count, self._bytes

    def end_piece(self) -> int | None:
        """Begin another piece; the number of the last one, None if nothing was sent."""
        if not self._count:
            return None
        self._bytes = self._count = 0
        self._pieces += 1
        return self._pieces - 1


def _connect(url: str, options: WriteOptions) -> Connection:
    """A connection that is not reopened, for which a broker that is starting is given time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return connect(url, options.user, options.password, reconnect=0)
        except JMSException as error:
            if not is_lost(error) or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE)


class _Task:
    """One partition on its way."""

    def __init__(self, options: WriteOptions, key: str, batch: int, stack: ExitStack) -> None:
        self._options = options
        self._lease = LEASE if options.stage_lease is None else options.stage_lease
        self._key = key
        self._batch = batch
        self._stack = stack
        self._outs: dict[int, _Out] = {}
        self.count = 0
        self.sent = 0
        self.stages: list[tuple[int, str]] = []

    def _out(self, number: int) -> _Out:
        if number not in self._outs:
            self._outs[number] = _Out(self._options.urls[number], self._options, self._stack)
        return self._outs[number]

    def send(self, batches: Iterator[pa.RecordBatch], columns: Mapping[str, str]) -> None:
        options = self._options
        routes = Routes(options.urls, lambda number: self._out(number).shard)
        piecewise = bool(options.rate or options.transaction_size)
        most = STAGE_MESSAGES
        if piecewise:  # about once a second, unless the size is given
            most = options.transaction_size or min(most, max(1, int(options.rate)))
        start = time.monotonic()
        for batch in batches:
            first = self.count + 1
            rows = outgoing([batch], options, columns, first)
            for number, (fields, destination) in zip(routes.of(batch, first), rows, strict=True):
                if options.rate and not options.dry_run:
                    ahead = start + self.count / options.rate - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
                if not options.dry_run:
                    count, size = self._out(number).send(fields, destination)
                    if count >= most or (size >= STAGE_BYTES and not piecewise):
                        self._end_piece(number, piecewise)
                self.count += 1
        for number in self._outs:
            self._end_piece(number, piecewise)

    def _end_piece(self, number: int, piecewise: bool) -> None:
        out = self._outs[number]
        piece = out.end_piece()
        if piece is None:
            return
        if not piecewise:
            self.stages.append((number, stage(out.session, self._key, self._batch, self._lease)))
            return
        # The same rows in the same order come with each attempt, so piece n is piece n.
        context = TaskContext.get()
        key = f"{self._key}/{context.partitionId() if context is not None else 0}"
        batch = self._batch * _PIECES + piece
        name = stage(out.session, key, batch, self._lease)
        self.sent += publish(out.connection, key, batch, [name]) or 0


def publish_all(messages: list[WriterCommitMessage | None], options: WriteOptions, key: str, batch: int) -> int | None:
    """Publish everything that the tasks have staged. Runs in the driver; repeating it does no harm.

    Returns:
        Messages that were sent now; None if this was published before.

    Raises:
        PipelineError: a broker does not have the stage (any more), or refuses it. Of several shards some may have
            published their part: the same write once more sends the rest.
    """
    done = [each for each in messages if isinstance(each, Written)]
    if options.dry_run or options.rate or options.transaction_size:
        return sum(each.sent for each in done)
    links, sent = _links(options), dict[str, int | None]()
    try:
        # Nothing is published while one is away. Of a batch a shard publishes once, also if several URLs lead to it.
        parts = [link.ask(partial(_part, url)) for url, link in links.items()] if len(links) > 1 else [""]
        for part, url in dict(zip(parts, links, strict=True)).items():
            names = [name for each in done for number, name in each.stages if parts[number] == part]
            sent[url] = links[url].ask(partial(publish, key=key, batch=batch, names=names))
    except JMSException as error:
        hint = ""
        if error.get_error_code() == "RESOURCE_ALLOCATION":
            count = sum(each.messages for each in done)
            hint = f". All {count} become visible together; the option transactionSize sends them in parts"
        there = ", ".join(place_name(url) for url in sent)
        which = f"only those for {there} were" if there else "none of them was"
        raise PipelineError(f"the messages of this batch could not be published, {which}: {error}{hint}") from error
    new = [count for count in sent.values() if count is not None]
    return sum(new) if new else None


def discard_all(options: WriteOptions, key: str, batch: int) -> None:
    """A batch has failed: what its tasks have staged is forgotten now and not only when its lease ends."""
    for link in _links(options).values():
        with suppress(JMSException):  # the lease sees to it
            link.ask(lambda connection: discard(connection, key, batch))


def _links(options: WriteOptions) -> dict[str, Link]:
    return {url: Link(url, options.user, options.password, "jakarta") for url in options.urls}


def _part(url: str, connection: Connection) -> str:
    return shard_of(connection, url).key


class MessageWriter(DataSourceArrowWriter):
    """A batch write: all rows become visible together, or none."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema({field.name: field.dataType.simpleString() for field in schema.fields}, options)
        self._key = _key_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options, self._columns, self._key, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has staged its rows."""
        if publish_all(messages, self._options, self._key, 0) is None and self._options.write_id:
            log.warning(
                "nothing was sent: writeId %r was written to %s before, whatever its rows were",
                self._options.write_id,
                self._options.destination or "the destinations of its rows",
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard_all(self._options, self._key, 0)

    def send(self, frame: DataFrame) -> int:
        """Write a frame as ``frame.write`` does, which returns nothing.

        Returns:
            The number of messages sent now, without those sent before under the same writeId.

        Raises:
            PipelineError: the messages could not be published, none of them was.
            PySparkException: a task failed.
        """

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            done = self.write(batches)
            assert isinstance(done, Written)
            shards, stages = [number for number, _ in done.stages], [name for _, name in done.stages]
            row = {"messages": done.messages, "shards": shards, "stages": stages, "sent": done.sent}
            yield pa.RecordBatch.from_pylist([row])

        try:
            rows = frame.mapInArrow(
                task, "messages BIGINT, shards ARRAY<BIGINT>, stages ARRAY<STRING>, sent BIGINT"
            ).collect()
            done = [
                Written(row["messages"], self._key, list(zip(row["shards"], row["stages"], strict=True)), row["sent"])
                for row in rows
            ]
            sent = publish_all([*done], self._options, self._key, 0)
        except BaseException:
            self.abort([])
            raise
        if self._options.dry_run or self._options.write_id:
            return sent or 0
        return sum(each.messages for each in done)  # its key is new: nothing was sent before


def _key_of(options: WriteOptions) -> str:
    """The key under which a batch is published: one writeId to two destinations are two writes."""
    if not options.write_id:
        return f"write {uuid.uuid4()}"
    if not options.destination:
        return f"write {options.write_id}"
    where = hashlib.sha256(str(destination_of(options.destination)).encode()).hexdigest()[:16]  # keys are short
    return f"write {options.write_id} to {where}"


class _Sender:
    """A producer that takes envelopes. What many of them have in common is set when it changes: the producer then
    checks and packs it once."""

    def __init__(self, producer: MessageProducer) -> None:
        self._producer = producer
        self._set: tuple[int, int, int] | None = None

    def send(self, fields: EnvelopeFields, destination: Destination) -> int:
        """Send a message; about how many bytes it has."""
        due = fields[DELIVERY_TIME]
        delay = max(0, due - time.time_ns() // 1_000_000) if due else 0
        wanted = (fields[DELIVERY_MODE], fields[PRIORITY], delay)
        if wanted != self._set:
            producer, self._set = self._producer, wanted
            producer.set_delivery_mode(wanted[0])
            producer.set_priority(wanted[1])
            producer.set_delivery_delay(delay)
        self._producer.send(destination, received(fields, destination, 0, None))
        return len(fields[BODY] or b"") + len(fields[PROPERTIES] or b"")
