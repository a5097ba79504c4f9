"""The archive: messages as Parquet, partitioned by namespace, destination and day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sievemq_spark.errors import NoArchiveError, PipelineError
from sievemq_spark.files import Files
from sievemq_spark.schema import COLUMNS, ddl
from sievemq_spark.times import day_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Archived",
    "archive",
    "archive_stream",
    "read_archive",
    "read_queues",
    "require_archive",
    "require_messages",
]

#: Spark writes '' as a NULL partition; a name that no namespace has stands for the broker's default one.
DEFAULT_NAMESPACE: Final = "(default)"
PARTITIONS: Final = ("namespace", "destination", "date")
KEY: Final = ("broker", "namespace", "destination", "message_id")


@dataclass(frozen=True, slots=True)
class Archived:
    """What :func:`archive` did.

    Attributes:
        seen: messages in the queues.
        added: those that the archive did not have.
    """

    seen: int
    added: int


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
) -> DataFrame:
    """What waits in queues, as a DataFrame. Every action on it reads anew; ``.cache()`` it to keep one look.

    Args: as the options in options.py.

    Raises:
        PipelineError, InvalidSelectorException, InvalidURLException: an argument is wrong.
    """
    from sievemq_spark.options import ReadOptions

    names = destinations if isinstance(destinations, str) else ",".join(destinations)
    options = {"url": url, "destination": names, "dialect": dialect, "columns": columns, "limit": str(limit)}
    options["batchSize"] = str(batch_size)
    options |= {
        name: value for name, value in (("user", user), ("password", password), ("selector", selector)) if value
    }
    # Spark hands option names over in lower case
    ReadOptions.read(
        {name.lower(): value for name, value in options.items()}
    )  # the plain exception, before Spark wraps it
    return spark.read.format("sievemq").options(**options).load()


def archive(spark: SparkSession, messages: DataFrame, path: str) -> Archived:
    """Add messages to an archive; those that it has already are left out, so that it can be repeated at any time.

    A message is known by broker, namespace, destination and message id; the id begins with the broker's incarnation, so
    a broker that starts anew never repeats one. Messages without an id (producers may disable them) are always
    added. When the job fails nothing is added. Two jobs must not add to one archive at the same time.

    Args:
        spark: the session.
        messages: rows as of :func:`read_queues`.
        path: the archive's folder, made if it is not there; anything that Spark can write to.
    """
    from pyspark.sql import functions as f

    from sievemq_spark.compaction import finish

    require_messages(messages)
    rows = messages.withColumn("namespace", f.coalesce(f.nullif("namespace", f.lit("")), f.lit(DEFAULT_NAMESPACE)))
    rows = rows.withColumn("date", day_of(f.col("timestamp"))).cache()
    try:
        seen, with_id = rows.agg(f.count(f.lit(1)), f.count("message_id")).collect()[0]
        new = rows
        # only messages with an id can be told apart; taking doubles out moves every row, so it is done if there are any
        if rows.filter("message_id IS NOT NULL").select(*KEY).distinct().count() < with_id:
            new = rows.filter("message_id IS NOT NULL").dropDuplicates(list(KEY))
            new = new.unionByName(rows.filter("message_id IS NULL"))
        finish(spark, path)
        if _exists(spark, path):
            known = _raw(spark, path).select(*KEY).filter("message_id IS NOT NULL")
            new = new.join(known, list(KEY), "left_anti").select(*rows.columns)
        added = seen if new is rows else new.count()
        if added:
            ordered = new.repartition(*(f.col(name) for name in PARTITIONS)).sortWithinPartitions(*PARTITIONS, "seq")
            ordered.write.mode("append").partitionBy(*PARTITIONS).option("compression", "zstd").parquet(path)
    finally:
        rows.unpersist()
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
) -> Archived:
    """Add what has gone through destinations since the last call, consumed or not; from a scheduler, again and again.

    The first call makes a tap on each destination: from then on nothing is missed, within the limits of a tap
    (docs/pipeline.md). A call that was killed is completed by the next one; nothing is added twice, except messages
    without an id (producers may disable them) of the batch in which it was killed.

    Args:
        spark: the session.
        url: the broker.
        destinations: queues, topics, dead-letter queues.
        path: the archive's folder.
        tap: name of the taps; of this archive alone.
        checkpoint: where Spark notes how far it is; in the archive's folder if not given.
        user, password: credentials.
        selector, dialect: only messages for which it is true.

    Raises:
        PipelineError, InvalidSelectorException, InvalidURLException: an argument is wrong.
    """
    from sievemq_spark.options import ReadOptions

    names = destinations if isinstance(destinations, str) else ",".join(destinations)
    options = {"url": url, "destination": names, "tap": tap, "dialect": dialect}
    options |= {
        name: value for name, value in (("user", user), ("password", password), ("selector", selector)) if value
    }
    ReadOptions.read({name.lower(): value for name, value in options.items()})
    counts = [0, 0]

    def add(batch: DataFrame, _: int) -> None:
        done = archive(batch.sparkSession, batch, path)
        counts[0] += done.seen
        counts[1] += done.added

    stream = spark.readStream.format("sievemq").options(**options).load()
    place = checkpoint or f"{path.rstrip('/')}/_checkpoint"  # what begins with _ is no part of the archive
    writer = stream.writeStream.option("checkpointLocation", place).trigger(availableNow=True)
    writer.foreachBatch(add).start().awaitTermination()
    return Archived(*counts)


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """The messages of an archive, columns as in schema.py and ``date`` behind them.

    Raises:
        NoArchiveError: there is none.
    """
    from pyspark.sql import functions as f

    from sievemq_spark.compaction import finish

    finish(spark, path)
    require_archive(spark, path)
    frame = _raw(spark, path)
    default = f.when(f.col("namespace") == DEFAULT_NAMESPACE, "").otherwise(f.col("namespace"))
    return frame.withColumn("namespace", default).select(*COLUMNS, "date")


def _raw(spark: SparkSession, path: str) -> DataFrame:
    # With a schema Spark takes no folder's name for a number or a date.
    return spark.read.schema(f"{ddl()}, `date` string").parquet(path)


def _exists(spark: SparkSession, path: str) -> bool:
    return next(Files(spark, path).parquet(), None) is not None


def require_archive(spark: SparkSession, path: str) -> None:
    """Raise unless there is an archive.

    Raises:
        NoArchiveError: there is none.
    """
    if not _exists(spark, path):
        raise NoArchiveError(f"there is no archive at {path}")


def require_messages(frame: DataFrame) -> None:
    """Raise unless a DataFrame has the columns of messages.

    Raises:
        PipelineError: some are missing; names them.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise PipelineError(f"these are no messages: the columns {', '.join(missing)} are missing")
