"""A stream over taps: offsets that Spark keeps, ranges that can be read again, acknowledgement by offset.

Spark tells a source twice that a batch is done, and either may be missing: ``commit(end)`` comes with the next batch
only, never for the last one of a run; ``latestOffset(start)`` comes right after the batch that ended at `start` was
committed, also while nothing arrives. Both acknowledge, so nothing stays unacknowledged for long; what Spark may read
again, the batch that is not committed, never is acknowledged.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sievemq import JMSException
from sievemq.taps import TapState
from sievemq_spark.errors import DataLossError, NoDestinationError
from sievemq_spark.links import Link
from sievemq_spark.offsets import JSON, Place, moved, place_in, places, shown
from sievemq_spark.options import ReadOptions
from sievemq_spark.shards import Shard, Shards
from sievemq_spark.tap_reader import (
    Source,
    TapRange,
    holder,
    lost_text,
    other_text,
    pieces,
    read_range,
    sources,
    unless_it_fails,
)

_PAUSE: Final = 0.005  # seconds

T = TypeVar("T")

log = logging.getLogger("sievemq.spark")


class TapStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of its own beside the driver; :meth:`read` runs in the executors, on a copy."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._shards = Shards(options)
        self._name = str(uuid.uuid4())  # of this run, as the only reader of its taps
        #: Where a run that ends by itself ends (availableNow).
        self._targets: dict[str, tuple[str, int]] | None = None
        #: Keys of places that no source has, as far as that was logged.
        self._unread: set[str] = set()

    # -- how far --------------------------------------------------------------------------------------------------

    def initialOffset(self) -> JSON:  # noqa: N802
        """The place where a query without a checkpoint begins. Creates the taps, so that no later message is missed.

        Raises:
            NoDestinationError: there is no such destination.
            PipelineError: another query reads the tap.
            JMSException: a broker cannot be reached, or refuses credentials, destination or selector.
        """
        options, shards = self._options, self._shards
        read = sources(options, shards, require_one=True)

        def begin(source: Source) -> Place:
            tap, state = source.claim(self._link(source), options, self._name)
            return Place(tap.id, source.begin(options, self._link(source), state))

        with unless_it_fails(shards, read):
            return shown(self._each(read, begin))

    def _each(self, read: Sequence[Source], work: Callable[[Source], T]) -> dict[str, T]:
        """The result of some work for each source, by key, as far as its shard is not away by then."""
        found, away = {}, set[Shard]()
        for source in read:
            if source.shard not in away:
                try:
                    found[source.key] = work(source)
                except JMSException as error:
                    self._shards.lose(source.shard, error)
                    away.add(source.shard)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit in the options; limits in bytes are applied here."""
        most = self._options.max_messages_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of a run: what there is now. A drain takes all of it from its queue."""

        def end(source: Source) -> tuple[str, int] | None:
            try:
                tap, state = source.claim(self._link(source), self._options, self._name)
            except NoDestinationError:
                return None  # initialOffset fails; a query that continues decides in latestOffset what it has lost
            return tap.id, source.end(self._link(source), tap.id, max(state.acknowledged, state.first - 1))

        found = self._each(sources(self._options, self._shards), end)
        self._targets = {key: target for key, target in found.items() if target is not None}

    def latestOffset(self, start: JSON, limit: ReadLimit) -> JSON:  # noqa: N802
        """The end of the next batch; everything up to `start` is processed and acknowledged.

        Raises:
            DataLossError: messages were removed before they were read, or a tap is another one.
            JMSException: a broker cannot be reached.
        """
        begin = places(start)
        read = sources(self._options, self._shards)
        found = self._each(read, lambda source: self._resume(source, begin))
        now = {}
        upto = self._divided(read, found, limit.max_rows if isinstance(limit, ReadMaxRows) else 0)
        for key, seq in upto.items():
            place = found[key][0]
            now[key] = place.upto(seq, place_in(begin, key, place.tap))
        end = moved(begin, now)  # what this run does not read stays as it is: a later one may
        self._log_unread(end.keys() - now.keys())
        return shown(end)

    def _log_unread(self, keys: Set[str]) -> None:
        """Log the sources of the checkpoint that nothing was read of, once: a shard may have another name, and have
        lost its data."""
        new = keys - self._unread
        if new and self._shards.are_all_there:
            self._unread |= new
            log.warning("the checkpoint has places of %s, which this run does not read", ", ".join(sorted(new)))

    def _divided(self, read: Sequence[Source], found: dict[str, tuple[Place, int]], most: int) -> dict[str, int]:
        """The sequence up to which each source is read: together `most` messages, or all if that is 0.

        Each gets a share in proportion to what waits there, so that the times of their messages advance together; what
        others leave goes to the largest."""
        read = [source for source in read if source.key in found]
        waiting = {}
        for source in read:
            place, last = found[source.key]
            target = self._target(source, place.tap)
            waiting[source.key] = max(0, (last if target is None else min(last, target)) - place.seq)
        if self._options.mode == "drain":  # a drain reads from the queue itself
            waiting = dict.fromkeys(waiting, 1)
        ordered = sorted(read, key=lambda source: -waiting[source.key])
        upto: dict[str, int] = {}
        left, total, some = most, sum(waiting.values()), sum(map(bool, waiting.values()))
        for source in ordered:
            place, wait = found[source.key][0], waiting[source.key]
            some -= bool(wait)
            share = max(1, min(left * wait // (total or 1), left - some))
            upto[source.key] = place.seq if most and not left else self._reach(source, place, share if most else 0)
            left -= upto[source.key] - place.seq if most else 0
            total -= wait
        for source in ordered if left else ():
            place = replace(found[source.key][0], seq=upto[source.key])
            upto[source.key] = self._reach(source, place, left)
            left -= upto[source.key] - place.seq
            if not left:
                break
        return upto

    def reportLatestOffset(self) -> JSON | None:  # noqa: N802
        """The latest message of the taps, for the lag in the query's progress."""

        def latest(source: Source) -> Place:
            tap, state = self._link(source).ask(source.find())
            return Place(tap.id, state.last)

        try:
            return shown(self._each(sources(self._options, self._shards), latest))
        except JMSException:
            return None  # the first real use raises

    def _resume(self, source: Source, offset: dict[str, Place]) -> tuple[Place, int]:
        """The place behind which one source is read on, and its last message; what lies before the place is
        acknowledged."""
        begin = offset.get(source.key)
        known = begin is not None and bool(begin.tap)
        if known and self._options.fail_on_data_loss and source.is_missing(self._link(source)):
            assert begin is not None
            self._lost(other_text(source, None, begin.tap))  # before another one is made without a reader
        tap, state = source.claim(self._link(source), self._options, self._name, known=known)
        place = self._resumed(source, place_in(offset, source.key, tap.id), state)
        state = self._acknowledge(source, Place(tap.id, place.seq), state)
        if state.lost > place.seq:
            missing = 0
            if self._options.mode != "drain":  # messages that a drain lost are on their queues, and will be read again
                self._lost(lost_text(source, place.seq, state.lost))
                missing = state.lost - place.seq
            return Place(tap.id, state.lost, place.lost + missing, place.after), state.last
        return place, state.last

    def _reach(self, source: Source, place: Place, messages: int) -> int:
        """The sequence up to which one source may be read behind a place: `messages` at most, or all if that is 0."""
        if self._shards.is_away(source.shard):
            return place.seq
        try:
            return self._seek(source, place, messages)
        except JMSException as error:
            self._shards.lose(source.shard, error)
            return place.seq

    def _seek(self, source: Source, place: Place, messages: int) -> int:
        target = self._target(source, place.tap)
        if target is not None and target <= place.seq:
            return place.seq
        link = self._link(source)
        size, upto = self._options.max_bytes_per_trigger, place.seq
        while True:
            before = upto
            state = link.ask(
                lambda connection: source.tap(connection, place.tap).look(place.seq, messages=messages, size=size)
            )
            upto = max(place.seq, state.upto)
            if not state.more or (messages and upto - place.seq >= messages) or (size and upto < state.last):
                return upto if target is None else min(upto, target)
            if upto == before:
                time.sleep(_PAUSE)  # the queue is being searched for the selector

    def _resumed(self, source: Source, begin: Place | None, state: TapState) -> Place:
        """The place to continue in a tap, whether or not it is the one that the query knows."""
        if begin is None or not begin.tap:
            first = source.begin(self._options, self._link(source), state)
            return Place(state.id, first, after=first)
        if begin.tap == state.id:
            return begin
        self._lost(other_text(source, state.id, begin.tap))
        return Place(state.id, 0, begin.lost)

    def _target(self, source: Source, tap: str) -> int | None:
        if self._targets is None:
            return None
        known, upto = self._targets.get(source.key, ("", 0))
        return upto if known == tap else 0

    # -- done -----------------------------------------------------------------------------------------------------

    def commit(self, end: JSON) -> None:
        """Everything up to `end` is done.

        Raises:
            DataLossError: a drain has given messages back that were being read.
        """
        known = places(end)

        def acknowledge(source: Source) -> None:
            try:
                tap, state = self._link(source).ask(source.find())
            except JMSException as error:
                if error.get_error_code() != "NOT_FOUND":
                    raise
                return  # latestOffset meets it as well, and decides
            place = place_in(known, source.key, tap.id)
            if place is not None and tap.id == place.tap:
                self._acknowledge(source, place, state)

        self._each(sources(self._options, self._shards), acknowledge)

    def _acknowledge(self, source: Source, place: Place, state: TapState) -> TapState:
        if place.seq <= state.acknowledged:
            return state
        after = self._link(source).ask(lambda connection: source.tap(connection, place.tap).acknowledge(place.seq))
        if self._options.mode == "drain" and after.lost > state.acknowledged:
            self._lost(
                f"{source} was silent for longer than its lease and gave its messages {state.acknowledged + 1} to "
                f"{after.lost} back to the queue. They were read, and will be read again. Raise the option lease above "
                "the time that a batch takes"
            )
        return after

    def _lost(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}. The option failOnDataLoss=false continues")
        log.warning("%s", text)

    def _link(self, source: Source) -> Link:
        return self._shards.link(source.shard)

    # -- the messages ---------------------------------------------------------------------------------------------

    def partitions(self, start: JSON, end: JSON) -> Sequence[InputPartition]:
        """The ranges between two offsets; the same ones after a restart.

        Raises:
            DataLossError: a tap is not the one of the offsets.
        """
        begin, found = places(start), []
        for key, place in places(end).items():
            before = begin.get(key)
            same = place_in(begin, "", place.tap)
            after = same.seq if same else place.after if before is None else 0
            # what was lost on the way to this offset is known to be
            lost = (same or before or Place()).lost
            after = min(place.seq, max(after, after + place.lost - lost))
            if after == place.seq:
                continue
            source = holder(self._options, self._shards, key, place.tap)
            if source is not None or not self._shards.are_all_there:  # what is away is for the tasks, which wait for it
                found += pieces(source, key, place.tap, after, place.seq, self._options.partitions)
            else:
                self._lost(
                    f"{key} has not the tap {place.tap}, as the checkpoint says: its broker was restarted without its "
                    "data or from a backup, the tap was deleted, or the options url and destination do not name it any "
                    "more. The messages of this batch cannot be read again"
                )
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TapRange)
        return read_range(self._options, to_arrow_schema(self._schema, timezone="UTC"), partition)
