"""The archive: messages as Parquet, partitioned by namespace, destination and day.

namespace=…/destination=…/date=…/part-….parquet              messages
_outcomes/namespace=…/destination=…/date=…/part-….parquet    the outcome of them; by the day of the message
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from sievemq_spark.errors import NoArchiveError, NoDestinationError, PipelineError
from sievemq_spark.file_systems import on_files
from sievemq_spark.files import Files, literal
from sievemq_spark.misfits import require_columns, require_files
from sievemq_spark.replacement import finish
from sievemq_spark.schema import COLUMNS, OUTCOME_COLUMNS, PARTITIONS, ddl
from sievemq_spark.spark import is_connect
from sievemq_spark.times import day_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark writes '' as a NULL partition; a name that no namespace can have represents the broker's default one.
DEFAULT_NAMESPACE: Final = "(default)"
KEY: Final = ("shard", "namespace", "destination", "message_id")
OUTCOMES: Final = "_outcomes"
"""Folder of the outcomes in that of the messages; Spark reads nothing in folders that begin with _."""
#: A message has one outcome in each subscription; or several, if an administrator brings it back.
OUTCOME_KEY: Final = (*KEY, "subscription", "outcome", "time")


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of :func:`archive`.

    Attributes:
        seen: messages in the queues.
        added: messages that the archive did not have.
        outcomes: that were added.
    """

    seen: int
    added: int
    outcomes: int = 0


def read_queues(
    spark: SparkSession,
    url: str,
    destinations: str | Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    selector: str | None = None,
    dialect: str = "jakarta",
    columns: str = "",
    limit: int = 0,
    batch_size: int = 1_000,
    fail_on_missing: bool = True,
) -> DataFrame:
    """The messages that wait in queues, as a DataFrame. Every action on it reads again; ``.cache()`` it to keep one
    reading.

    Args: as the options in options.py.

    Raises:
        PipelineError, InvalidSelectorException, InvalidURLException: an argument is wrong.
    """
    from sievemq_spark.options import ReadOptions

    names = destinations if isinstance(destinations, str) else ",".join(destinations)
    options = {"url": url, "destination": names, "dialect": dialect, "columns": columns, "limit": str(limit)}
    options |= {"batchSize": str(batch_size), "failOnMissing": str(fail_on_missing).lower()}
    options |= {
        name: value for name, value in (("user", user), ("password", password), ("selector", selector)) if value
    }
    # Spark hands option names over in lower case
    ReadOptions.read(
        {name.lower(): value for name, value in options.items()}
    )  # the plain exception, before Spark wraps it
    return spark.read.format("sievemq").options(**options).load()


def archive(spark: SparkSession, messages: DataFrame, path: str) -> Archived:
    """Add messages to an archive; messages that it has already are left out, so the call can be repeated at any time.

    A message is known by shard, namespace, destination and message id; the id begins with the broker's incarnation, so
    a broker that starts again never repeats one. Messages without an id (producers may disable them) are always
    added. When the job fails nothing is added. Two jobs must not add to one archive at the same time.

    Args:
        spark: the session.
        messages: rows as of :func:`read_queues`.
        path: the archive's folder, made if it is not there; anything that Spark can write to.

    Raises:
        PipelineError: these are no messages, the folder cannot be written, or the archive has a file that is damaged
            or holds something else.
    """
    require_messages(messages)
    on_files(spark, path, lambda place: place.require_writable())
    return _add(spark, messages, path, COLUMNS, KEY)


def _add(
    spark: SparkSession, messages: DataFrame, path: str, columns: Mapping[str, str], keys: Sequence[str]
) -> Archived:
    from pyspark.sql import functions as f

    exact = (f.col(name).cast(kind) if "map<" not in kind else f.col(name) for name, kind in columns.items())
    rows = messages.select(*(each.alias(name) for each, name in zip(exact, columns, strict=True)))
    rows = rows.withColumn("namespace", f.coalesce(f.nullif("namespace", f.lit("")), f.lit(DEFAULT_NAMESPACE)))
    rows = rows.withColumn("date", day_of(f.col("timestamp"))).cache()
    cached = [rows]
    try:
        times = rows.groupBy(*keys).agg(f.count(f.lit(1)).alias("times"))
        doubled = f.count_if((f.col("times") > 1) & f.col("message_id").isNotNull())
        seen, doubles = times.agg(f.coalesce(f.sum("times"), f.lit(0)), doubled).collect()[0]
        new = rows
        # only messages with an id can be told apart; taking doubles out moves every row, so it is done if there are any
        if doubles:
            new = rows.filter("message_id IS NOT NULL").dropDuplicates(list(keys))
            new = new.unionByName(rows.filter("message_id IS NULL"))
        finish(spark, path)
        if _require_files(spark, path, columns):
            known = _raw(spark, path, columns).select(*keys).filter("message_id IS NOT NULL").alias("known")
            same = reduce(and_, (f.col(f"new.{name}").eqNullSafe(f.col(f"known.{name}")) for name in keys))
            new = new.alias("new").join(known, same, "left_anti").select(*rows.columns)
        added = seen
        if new is not rows:
            new = new.cache()  # the archive is read once, for the count and the new files
            cached.append(new)
            added = new.count()
        if added:
            ordered = new.repartition(*(f.col(name) for name in PARTITIONS)).sortWithinPartitions(*PARTITIONS, "seq")
            ordered.write.mode("append").partitionBy(*PARTITIONS).option("compression", "zstd").parquet(path)
    finally:
        for frame in reversed(cached):
            frame.unpersist()
    return Archived(seen, added)


def archive_stream(
    spark: SparkSession,
    url: str,
    destinations: str | Sequence[str],
    path: str,
    *,
    tap: str,
    checkpoint: str | None = None,
    user: str | None = None,
    password: str | None = None,
    selector: str | None = None,
    dialect: str = "jakarta",
    outcomes: bool = False,
    fail_on_missing: bool = True,
    unavailable: str = "fail",
    pattern: str = "",
) -> Archived:
    """Add the messages that were sent to destinations since the last call, consumed or not; for use in a scheduler.

    The first call makes a tap on each destination: from then on nothing is missed, within the limits of a tap
    (docs/pipeline.md). A call that was killed is completed by the next one; nothing is added twice, except messages
    without an id (producers may disable them) of the batch in which it was killed.

    Args:
        spark: the session.
        url: the broker, or one URL for each of several shards, with commas between.
        destinations: queues, topics, dead-letter queues; none are needed with a pattern.
        path: the archive's folder.
        tap: name of the taps; of this archive alone.
        checkpoint: where Spark notes how far it is; in the archive's folder if not given.
        user, password: credentials.
        selector, dialect: only messages for which it is true.
        outcomes: add the outcome of the messages, too, with taps of their own, named as `tap` with ``.outcomes``
            behind.
        fail_on_missing: raise if a tap has to be made and its destination is not there; False makes that as well.
        unavailable: ``wait`` archives the other shards if one cannot be reached; a later call goes on with that.
        pattern: also all destinations that fit, such as ``queue:orders.*``, those included that are made later.

    Raises:
        PipelineError, InvalidSelectorException, InvalidURLException: an argument is wrong, or the folder cannot be
            written.
    """
    from sievemq_spark.options import ReadOptions

    if is_connect(spark):
        raise PipelineError(
            "a tap is not archived over Spark Connect: run this on the cluster's master, such as --master "
            "spark://host:7077. Without a tap, archive() adds the messages that wait in queues"
        )
    names = destinations if isinstance(destinations, str) else ",".join(destinations)
    options = {"url": url, "destination": names, "tap": tap, "dialect": dialect, "unavailable": unavailable}
    options["destinationPattern"] = pattern
    options["failOnMissing"] = str(fail_on_missing).lower()
    options |= {
        name: value for name, value in (("user", user), ("password", password), ("selector", selector)) if value
    }
    ReadOptions.read({name.lower(): value for name, value in options.items()})
    on_files(spark, path, lambda place: place.require_writable())
    place = checkpoint or f"{path.rstrip('/')}/_checkpoint"  # what begins with _ is no part of the archive
    fates = Archived(0, 0)
    if outcomes:  # first: what becomes of a message is known from the moment its tap is made, and that is made now
        more = {**options, "tap": f"{tap}.outcomes", "mode": "outcomes"}
        fates = _add_stream(
            spark, more, f"{place}_outcomes", lambda session, rows: archive_outcomes(session, rows, path)
        )
    done = _add_stream(spark, options, place, lambda session, rows: archive(session, rows, path))
    return Archived(done.seen, done.added, fates.added)


def _add_stream(
    spark: SparkSession, options: dict[str, str], checkpoint: str, add: Callable[[SparkSession, DataFrame], Archived]
) -> Archived:
    counts = [0, 0]

    def add_batch(batch: DataFrame, _: int) -> None:
        done = add(batch.sparkSession, batch)
        counts[0] += done.seen
        counts[1] += done.added

    stream = spark.readStream.format("sievemq").options(**options).load()
    writer = stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.foreachBatch(add_batch).start().awaitTermination()
    return Archived(*counts)


def archive_outcomes(spark: SparkSession, outcomes: DataFrame, path: str) -> Archived:
    """Add the outcome of messages to an archive, each outcome once, under the day of its message.

    Args:
        spark: the session.
        outcomes: rows of a source with mode ``outcomes``.
        path: the archive's folder.

    Raises:
        PipelineError: these are no outcomes; names the columns that are missing.
    """
    _require(outcomes, OUTCOME_COLUMNS, "outcomes")
    return _add(spark, outcomes, outcomes_of(path), OUTCOME_COLUMNS, OUTCOME_KEY)


def outcomes_of(path: str) -> str:
    return f"{path.rstrip('/')}/{OUTCOMES}"


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """The messages of an archive, columns as in schema.py and ``date`` behind them.

    Raises:
        NoArchiveError: there is none.
        PipelineError: one of its files is damaged, or holds something else.
    """
    return _read(spark, path, COLUMNS)


def read_outcomes(spark: SparkSession, path: str) -> DataFrame:
    """The outcomes of the messages of an archive: columns as in schema.py, then ``date``, the message's.

    Raises:
        NoArchiveError: there are none; archive with ``outcomes=True``.
        PipelineError: one of the files is damaged, or holds something else.
    """
    return _read(spark, outcomes_of(path), OUTCOME_COLUMNS)


def _read(spark: SparkSession, path: str, columns: Mapping[str, str]) -> DataFrame:
    from pyspark.sql import functions as f

    finish(spark, path)
    if not _require_files(spark, path, columns):
        raise _none_at(path)
    default = f.when(f.col("namespace") == DEFAULT_NAMESPACE, "").otherwise(f.col("namespace"))
    return _raw(spark, path, columns).withColumn("namespace", default).select(*columns, "date")


def _raw(spark: SparkSession, path: str, columns: Mapping[str, str]) -> DataFrame:
    # With a schema Spark takes no folder's name for a number or a date.
    return spark.read.schema(f"{ddl(columns=columns)}, `date` string").parquet(literal(path))


def _require_files(spark: SparkSession, path: str, columns: Mapping[str, str]) -> bool:
    """False if there are none; raise if one is damaged or holds something else."""

    def require(place: Files) -> bool:
        found = list(place.parquet())
        require_files(place, found, columns)
        return bool(found)

    return on_files(spark, path, require)


def _none_at(path: str) -> NoArchiveError:
    return NoArchiveError(f"there is no archive at {path}")


def require_archive(spark: SparkSession, path: str) -> None:
    """Raise unless there is an archive.

    Raises:
        NoArchiveError: there is none.
    """
    if not on_files(spark, path, lambda place: place.has_parquet()):
        raise _none_at(path)


def require_destination(spark: SparkSession, path: str, destination: str, *, emptied: bool = False) -> None:
    """Raise unless an archive has messages of a destination.

    Args:
        spark: the session.
        path: the archive.
        destination: ``queue:orders``.
        emptied: the folder of a destination is enough, as it remains when all its days are removed.

    Raises:
        NoDestinationError: it has no such destination; the text names those that it has.
    """

    def names(place: Files) -> list[str]:
        folders = [part for name, _ in place.parquet() for part in name.split("/")]
        if emptied:
            spaces = [name for name in place.names("") if name.startswith("namespace=")]
            folders += [name for space in spaces for name in place.names(space)]
        return sorted(set(folders))

    folders = on_files(spark, path, names)
    found = {unquote(part.removeprefix("destination=")) for part in folders if part.startswith("destination=")}
    if destination not in found:
        raise NoDestinationError(
            f"the archive at {path} has no messages of {destination}; it has those of {', '.join(sorted(found))}"
        )


def require_messages(frame: DataFrame) -> None:
    """Raise unless a DataFrame has the columns of messages, of their types.

    Raises:
        PipelineError: some are missing or of another type; names them.
    """
    _require(frame, COLUMNS, "messages")


def _require(frame: DataFrame, columns: Mapping[str, str], what: str) -> None:
    require_columns(frame.schema, columns, f"these are no {what}", ordered=True)
