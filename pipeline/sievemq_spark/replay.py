"""From an archive back to a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_spark.archive import require_messages
from sievemq_spark.errors import PipelineError
from sievemq_spark.mapping import Changes
from sievemq_spark.selector_column import where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["replay"]


def replay(
    messages: DataFrame,
    url: str,
    *,
    destination: str = "",
    selector: str | None = None,
    dialect: str = "jakarta",
    user: str | None = None,
    password: str | None = None,
    rate: float = 0.0,
    dry_run: bool = False,
    partitions: int = 1,
    changes: Changes | None = None,
) -> int:
    """Send messages again: type, correlation id, reply destination, priority, mode, properties and body as they were.

    Ids and times are new. Messages go in the order of their timestamps; with several partitions, in which they are
    sent side by side, the order holds within a group (JMSXGroupID). Each partition is one transaction: a run that fails
    with one partition has sent nothing.

    Args:
        messages: rows as in schema.py.
        url: the broker.
        destination: where all go; without it each goes to where it came from.
        selector, dialect: only those for which it is true.
        user, password: credentials.
        rate: messages per second over all partitions; 0 for as fast as it goes.
        dry_run: count and check, send nothing.
        partitions: how many are sent side by side.
        changes: to destinations and properties, made after the selector has chosen.

    Returns:
        How many were selected; they are sent, or checked in a dry run.

    Raises:
        PipelineError, InvalidSelectorException: an argument is wrong.
    """
    from sievemq_spark.options import WriteOptions

    require_messages(messages)
    changes = changes or Changes()
    changes.check()
    if partitions < 1 or rate < 0:
        raise PipelineError("partitions are 1 or more, and a rate is not negative")
    options = {"url": url, "destination": destination, "rate": str(rate / partitions), "dryRun": str(dry_run).lower()}
    options |= {name: value for name, value in (("user", user), ("password", password)) if value}
    WriteOptions.read(options)  # the plain exception, before Spark wraps it
    from pyspark.sql import functions as f

    chosen = changes.apply(messages.drop("date").filter(where(selector, dialect))).cache()
    try:
        count = chosen.count()
        groups = f.coalesce("group_id", "message_id", f.lit(""))
        spread = chosen.repartition(partitions, groups) if partitions > 1 else chosen.repartition(1)
        ordered = spread.sortWithinPartitions("timestamp", "seq")
        if count:
            ordered.write.format("sievemq").options(**options).mode("append").save()
    finally:
        chosen.unpersist()
    return count
