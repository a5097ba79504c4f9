"""Rows as messages: a transaction per partition, through the blocking client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sievemq import Destination, JMSException, MessageProducer, Session
from sievemq.destinations import parse_destination
from sievemq.messages import received
from sievemq.messages.properties import check_property_name
from sievemq_core.message.headers import ON_RECEIVE
from sievemq_core.message.values import PropertyValue
from sievemq_spark.columns import TYPES
from sievemq_spark.connect import connect
from sievemq_spark.errors import PipelineError
from sievemq_spark.options import WriteOptions
from sievemq_spark.schema import COLUMNS, envelope_of, typed, untyped

__all__ = ["MessageWriter", "Written", "check_schema", "message_row"]

#: Columns that may also come in another type than the message row's.
_ALSO: Final = {
    "priority": {"tinyint", "smallint", "bigint"},
    "delivery_mode": {"tinyint", "smallint", "bigint"},
    "timestamp": {"int"},
    "expiration": {"int"},
}
_FIELDS: Final = {"z": 1, "b": 2, "h": 2, "i": 2, "l": 2, "f": 3, "d": 3, "s": 4}


def check_schema(columns: Mapping[str, str], options: WriteOptions) -> dict[str, str]:
    """The columns that become properties, name -> Spark type.

    Args:
        columns: of the rows, name -> Spark type.
        options: where they go.

    Raises:
        PipelineError: a column of a message has a wrong type, one of a property a type or name that no property has,
            or no row can say where it goes.
    """
    properties = {}
    for name, kind in columns.items():
        if name in COLUMNS:
            if kind not in ("void", COLUMNS[name], *_ALSO.get(name, ())):
                raise PipelineError(f"the column {name!r} is {kind}; of a message it is {COLUMNS[name]}")
        elif name in _ARCHIVE_ONLY:
            continue
        elif kind not in TYPES:
            raise PipelineError(
                f"the column {name!r} is {kind}, which no property can be ({', '.join(TYPES)}): cast it or drop it"
            )
        else:
            _check_name(name)
            properties[name] = kind
    if not options.destination and "destination" not in columns:
        raise PipelineError("give the option 'destination', or rows with a column 'destination'")
    return properties


#: The partition column of an archive says nothing that the timestamp does not.
_ARCHIVE_ONLY: Final = frozenset({"date"})


def _check_name(name: str) -> None:
    try:
        check_property_name(name)
    except ValueError as error:
        raise PipelineError(f"the column {name!r} cannot be a property: {error}") from error


def message_row(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row with the properties of its own columns put into the map; a NULL there is no property."""
    properties: dict[str, Any] = {
        name: value for name, value in (row.get("properties") or ()) if name not in ON_RECEIVE
    }
    for name, kind in columns.items():
        value = row.get(name)
        if value is not None:
            letter = TYPES[kind]
            item: list[PropertyValue] = [letter, None, None, None, None]
            item[_FIELDS[letter]] = value
            properties[name] = typed(untyped(item))
    for name in properties:
        if name not in row:
            _check_name(name)
    return {**row, "properties": properties}


@dataclass
class Written(WriterCommitMessage):
    """What a task did.

    Attributes:
        messages: sent and committed; in a dry run, looked at.
    """

    messages: int


class MessageWriter(DataSourceArrowWriter):
    """Sends rows in the order of their partition.

    A task sends its rows in one transaction, which it commits as its last act: a task that fails leaves nothing. A
    task whose success Spark does not learn of is run again and then its messages are there twice; and when a job
    fails, partitions that were done stay sent. So: at least once, in order within a partition.

    Args:
        options: checked.
        schema: of the rows.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema({field.name: field.dataType.simpleString() for field in schema.fields}, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a partition."""
        options = self._options
        rows = (message_row(row, self._columns) for batch in iterator for row in batch.to_pylist())
        if options.dry_run:
            count = 0
            for row in rows:
                envelope_of(row)
                self._destination(row)
                count += 1
            return Written(count)
        with (
            connect(options.url, options.user, options.password) as connection,
            connection.create_session(Session.SESSION_TRANSACTED) as session,
            session.create_producer(None) as producer,
        ):
            return Written(self._send(rows, session, producer))

    def _send(self, rows: Iterator[dict[str, Any]], session: Session, producer: MessageProducer) -> int:
        options = self._options
        count = 0
        start = time.monotonic()
        try:
            for row in rows:
                if options.rate:
                    ahead = start + count / options.rate - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
                _send_row(row, self._destination(row), producer)
                count += 1
                if options.transaction_size and count % options.transaction_size == 0:
                    session.commit()
            session.commit()
        except JMSException as error:
            raise PipelineError(
                f"after {count} messages of this partition, {_kept(options, count)}: {error}"
            ) from error
        return count

    def _destination(self, row: Mapping[str, Any]) -> Destination:
        text = self._options.destination or row.get("destination")
        if not text:
            raise PipelineError("a row has no destination, and there is no option 'destination'")
        return parse_destination(text)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has committed its own."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task that failed has left nothing; those that were done stay sent."""


def _kept(options: WriteOptions, count: int) -> str:
    kept = count - count % options.transaction_size if options.transaction_size else 0
    return f"of which {kept} are committed"


def _send_row(row: Mapping[str, Any], destination: Destination, producer: MessageProducer) -> None:
    fields = envelope_of(row)
    producer.send(
        destination,
        received(fields, destination, 0, None),
        delivery_mode=fields[3],
        priority=fields[2],
    )
