"""Ranges of taps as rows: what batch and stream readers share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sievemq import Connection, JMSException
from sievemq.destinations import parse_destination
from sievemq.taps import Tap, TapPage, TapState, delete_tap, find_tap, open_tap
from sievemq_core.message.envelope import TIMESTAMP
from sievemq_spark.errors import DataLossError, NoDestinationError, PipelineError
from sievemq_spark.links import HINT, PATIENCE, Link, is_missing
from sievemq_spark.offsets import Place
from sievemq_spark.options import WORTH, ReadOptions
from sievemq_spark.shards import Shard, Shards
from sievemq_spark.tap_rows import outcome_batches, record_batches

#: Mode of a read -> mode of its taps.
_MODES: Final[dict[str, Literal["copy", "outcomes", "drain"]]] = {
    "tap": "copy",
    "outcomes": "outcomes",
    "drain": "drain",
}

_PAUSE: Final = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Source:
    """One destination in one shard.

    Attributes:
        shard: that it is in.
        destination: in text.
        name: of the tap.
    """

    shard: Shard
    destination: str
    name: str

    @property
    def key(self) -> str:
        """Its key in offsets, see offsets.py."""
        return f"{self.shard.key}/{self.destination}"

    def tap(self, connection: Connection, tap: str) -> Tap:
        """The tap of this id, which may be there or not."""
        return Tap(connection, self.name, self.destination, tap)

    def delete(self) -> Callable[[Connection], bool]:
        """Returns a function that deletes the tap."""
        return lambda connection: delete_tap(connection, self.name, parse_destination(self.destination))

    def __str__(self) -> str:
        return f"the tap {self.name!r} on {self.destination} of {self.shard}"

    def link(self, options: ReadOptions) -> Link:
        """The broker, for a task: it waits for the shard if the options do."""
        patience = inf if options.unavailable == "wait" else PATIENCE
        return Link(self.shard.url, options.user, options.password, options.dialect, patience=patience)

    def open(
        self, options: ReadOptions, reader: str | None = None, *, known: bool = False
    ) -> Callable[[Connection], tuple[Tap, TapState]]:
        """Returns a function that creates or opens the tap.

        Args:
            options: of the read.
            reader: name of the only query that may read it from now on; None for a look.
            known: it has been there before, so that its destination may have to be recreated with it.
        """
        return lambda connection: open_tap(
            connection,
            self.name,
            parse_destination(self.destination),
            _MODES[options.mode],
            selector=options.selector,
            start="latest" if options.start_of(self.destination) == "latest" else "earliest",
            retain_messages=options.retain_messages,
            retain_bytes=options.retain_bytes,
            retain_age=options.retain_age,
            lease=options.lease,
            existing=options.fail_on_missing and not known,
            reader=reader,
        )

    def claim(
        self, link: Link, options: ReadOptions, reader: str | None, *, known: bool = False
    ) -> tuple[Tap, TapState]:
        """Make the tap or find it, as its only reader.

        Raises:
            NoDestinationError: there is no such destination.
            PipelineError: another query reads it.
            JMSException: as :meth:`Link.ask`.
        """
        deadline = time.monotonic() + PATIENCE  # a query that has just ended takes a moment to close its connection
        while True:
            try:
                return link.ask(self.open(options, reader, known=known))
            except JMSException as error:
                if is_missing(error):
                    raise NoDestinationError(f"{error}. {HINT}") from error
                if not error.details.get("claimed"):
                    raise
                if time.monotonic() >= deadline:
                    raise PipelineError(str(error)) from error
            time.sleep(_PAUSE)

    def begin(self, options: ReadOptions, link: Link, state: TapState) -> int:
        """The sequence behind which a read without an offset begins.

        Args:
            options: of the read.
            link: to the shard.
            state: of the tap.

        Raises:
            DataLossError: the option startingOffsets names a message that was removed.
            PipelineError: it names one that was never there.
        """
        first = max(state.acknowledged, state.first - 1)
        if options.starting_timestamp is not None:
            return self._before(options, link, state.id, first)
        start = options.start_of(self.destination)
        if not isinstance(start, int):
            return first
        if start > state.last + 1:
            raise PipelineError(f"{self} has come to {state.last}; startingOffsets cannot begin at {start}")
        if start <= first:
            _missing(options, f"{self} begins at {first + 1}; what startingOffsets names, {start}, is gone")
        return max(first, start - 1)

    def _before(self, options: ReadOptions, link: Link, tap: str, after: int) -> int:
        """The sequence before the first message of startingTimestamp or later; the last one if there is none."""
        assert options.starting_timestamp is not None
        while True:
            state = link.ask(lambda connection, after=after: self.tap(connection, tap).look(after))  # type: ignore[misc]
            page = link.ask(partial(self._page, tap, after, state.upto))
            if len(page):
                times = page.times if options.mode == "outcomes" else page.columns[TIMESTAMP]
                for number, moment in enumerate(times):
                    if moment >= options.starting_timestamp:
                        return page.first + number - 1
                after = page.first + len(page) - 1
            elif not state.more:
                return after
            else:
                time.sleep(_PAUSE)

    def _page(self, tap: str, after: int, upto: int, connection: Connection) -> TapPage:
        return self.tap(connection, tap).fetch(after, upto)

    def end(self, link: Link, tap: str, upto: int) -> int:
        """The last message that can be read now behind a sequence; a drain takes all from its queue for that."""
        while True:
            state = link.ask(lambda connection, upto=upto: self.tap(connection, tap).look(upto))  # type: ignore[misc]
            upto = max(upto, state.upto)
            if not state.more:
                return upto

    def is_missing(self, link: Link) -> bool:
        """True if there is no such tap, or not even its destination."""
        try:
            link.ask(self.find())
        except JMSException as error:
            if error.get_error_code() != "NOT_FOUND":
                raise
            return True
        return False

    def find(self) -> Callable[[Connection], tuple[Tap, TapState]]:
        """Returns a function that opens the tap."""
        return lambda connection: find_tap(connection, self.name, parse_destination(self.destination))


def sources(options: ReadOptions, shards: Shards, *, require_one: bool = False) -> list[Source]:
    """Everything that is read: each destination of each shard that is not away.

    Raises:
        JMSException: a shard is away that is not waited for; or all are, and one is required.
        PipelineError: two brokers have shards of the same name.
    """
    found: list[Source] = []
    for shard in shards.require_one() if require_one else shards.reached():
        try:
            found += [Source(shard, each, options.tap_name) for each in shards.destinations(shard)]
        except JMSException as error:
            shards.lose(shard, error)
    return found


def holder(options: ReadOptions, shards: Shards, key: str, tap: str) -> Source | None:
    """The source that has a tap: that of the key, or another one if its shard was renamed; None if none has it."""
    near = [each for each in sources(options, shards) if key.endswith(f"/{each.destination}")]
    for source in sorted(near, key=lambda each: each.key != key):
        try:
            if shards.link(source.shard).ask(source.find())[0].id == tap:
                return source
        except JMSException as error:
            if error.get_error_code() != "NOT_FOUND":
                shards.lose(source.shard, error)
    return None


def _awaited(options: ReadOptions, part: TapRange) -> Source:
    """The source of a range, once its shard is back.

    Raises:
        DataLossError: all shards are there, and none has the tap.
    """
    shards = Shards(options)
    while True:
        source = holder(options, shards, part.key, part.tap)
        if source is not None:
            return source
        if shards.are_all_there:
            raise DataLossError(f"{part.key} has not the tap {part.tap} any more: its messages cannot be read again")
        time.sleep(_PAUSE)


@contextmanager
def unless_it_fails(links: Shards, read: Sequence[Source]) -> Iterator[None]:
    """Delete the taps that a block makes if it fails: they would collect messages without a reader.

    Args:
        links: to the shards.
        read: what the block makes taps for.
    """
    new: list[Source] = []
    for source in read:
        with suppress(JMSException):  # the block raises it
            if source.is_missing(links.link(source.shard)):
                new.append(source)
    try:
        yield
    except Exception:
        for source in new:
            with suppress(JMSException):
                links.link(source.shard).ask(source.delete())
        raise


class TapRange(InputPartition):
    """Some messages of a tap, for one task.

    Args:
        source: None where its shard was away: the task waits for it.
        key: of the source.
        after, upto: those behind the first sequence, up to the second.
    """

    def __init__(self, source: Source | None, key: str, tap: str, after: int, upto: int) -> None:
        super().__init__((key, tap, after, upto))
        self.source = source
        self.key = key
        self.tap = tap
        self.after = after
        self.upto = upto


def pieces(source: Source | None, key: str, tap: str, after: int, upto: int, most: int) -> list[InputPartition]:
    """A range in up to `most` parts of about the same size, none of them hardly worth a task."""
    total = upto - after
    count = max(1, min(most, -(-total // WORTH))) if total > 0 else 0
    ends = [after + total * number // count for number in range(count + 1)] if count else []
    return [TapRange(source, key, tap, begin, end) for begin, end in pairwise(ends)]


def read_range(options: ReadOptions, schema: pa.Schema, part: TapRange) -> Iterator[pa.RecordBatch]:
    """The messages of a range. Each call reads it again.

    Raises:
        DataLossError: some of them were removed, and the options do not allow to continue without them.
    """
    source, after = part.source or _awaited(options, part), part.after
    link, shard = source.link(options), source.shard
    origin, promoted = (shard.name, shard.namespace, source.destination), options.promoted
    while after < part.upto:
        begin = after

        def fetch(connection: Connection, begin: int = begin) -> Any:
            return source.tap(connection, part.tap).fetch(begin, part.upto)

        try:
            page = link.ask(fetch)
        except JMSException as error:
            if error.get_error_code() != "NOT_FOUND":
                raise
            _missing(options, f"{source} is gone: {error}", error)
            return
        if min(page.first, part.upto + 1) > after + 1 and options.mode != "drain":  # what a drain lost is on its queue
            _missing(options, lost_text(source, after, min(page.first - 1, part.upto)))
        if not len(page):
            return
        if options.mode == "outcomes":
            yield from outcome_batches(page, origin, schema, options.batch_size)
        else:
            yield from record_batches(page, origin, promoted, schema, options.batch_size)
        after = page.first + len(page) - 1


def lost_text(source: Source, after: int, upto: int) -> str:
    """Messages went before they were read."""
    return (
        f"{source} has lost its messages {after + 1} to {upto} before they were read: it held more, or for longer, "
        "than it may. Read more often, or raise retainMessages, retainBytes or retainAge"
    )


def other_text(source: Source, found: str | None, wanted: str) -> str:
    """The tap of an offset is not there: there is none, or another one."""
    there = "gone" if found is None else f"{found} and not {wanted}, with which this query began"
    return (
        f"{source} is {there}: its broker was restarted without its data or from a backup, the tap was deleted, its "
        "lease ended, or another broker has the shard's name now. What arrived in between may be missing"
    )


def _missing(options: ReadOptions, text: str, cause: BaseException | None = None) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(f"{text}. The option failOnDataLoss=false continues without them") from cause


def taken(options: ReadOptions, source: Source, link: Link, reader: str | None = None) -> tuple[Place, int]:
    """Open a tap, and what can be read of it now.

    Args:
        options: of the read.
        source: where.
        link: to its shard.
        reader: name of the only query that may read it from now on; None for a look.

    Returns:
        The place up to which it is acknowledged, and the end.

    Raises:
        NoDestinationError: there is no such destination.
        PipelineError: another query reads the tap.
        JMSException: the broker cannot be reached, refuses the credentials, the selector, the destination.
    """
    _, state = source.claim(link, options, reader)
    begin = source.begin(options, link, state)
    return Place(state.id, begin), source.end(link, state.id, begin)


class TapReader(DataSourceReader):
    """A batch read of what taps hold. Acknowledges nothing: that is for :func:`sievemq_spark.drain`.

    Filters are not pushed down, see reader.py.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.mode == "drain" and options.tap_ranges is None:
            raise PipelineError(
                "a batch reader is not informed when Spark has written its rows, so it cannot remove the messages: use "
                "'with sievemq_spark.drain(…) as frame', or a stream with mode 'drain'"
            )
        options.no_waiting()
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The ranges that the options name, or all that the taps hold."""
        options, shards = self._options, Shards(self._options)
        read = sources(options, shards)
        ranges = options.tap_ranges
        if ranges is None:
            with unless_it_fails(shards, read):
                held = {source.key: taken(options, source, shards.link(source.shard)) for source in read}
            ranges = {key: [place.tap, place.seq, upto] for key, (place, upto) in held.items()}
        known: Mapping[str, Source] = {source.key: source for source in read}
        return [
            piece
            for key, (tap, after, upto) in ranges.items()
            for piece in pieces(known[key], key, tap, after, upto, options.partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range."""
        assert isinstance(partition, TapRange)
        return read_range(self._options, to_arrow_schema(self._schema, timezone="UTC"), partition)
