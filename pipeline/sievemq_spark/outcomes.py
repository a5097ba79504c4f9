"""Outcomes of messages: which, when, and after how long."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

from sievemq_spark.archive import KEY, require_messages
from sievemq_spark.times import span_of, time_of, unit_for
from sievemq_spark.traffic import copies, without

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Percent of the messages.
SHARES: Final = (50, 90, 99, 100)


@dataclass(frozen=True, slots=True)
class Fate:
    """One outcome.

    Attributes:
        outcome, reason: the outcome of them; the reason is None where there is only one.
        messages: how many; one of a topic counts once for each subscription.
        share: of all outcomes.
        attempts: of each on average.
        took: ms from the send to the outcome, at 50, 90, 99 and 100 percent; empty if no producer set a timestamp.
    """

    outcome: str
    reason: str | None
    messages: int
    share: float
    attempts: float
    took: dict[int, int]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Messages of an archive by the outcome of them.

    Attributes:
        messages: how many there are.
        open: messages without a known outcome: they wait, or no tap recorded it; messages without an id are left out.
        fates: by outcome and reason, the most frequent first.
        destinations: (destination, outcome) -> messages.
        selectors: of the consumers that acknowledged, None for those without -> messages.
        times: outcome -> by minute, hour or day (UTC), ``2026-11-21T05``, as suits their span.
    """

    messages: int
    open: int
    fates: list[Fate]
    destinations: dict[tuple[str, str], int]
    selectors: dict[str | None, int]
    times: dict[str, dict[str, int]]


def outcomes(messages: DataFrame, fates: DataFrame) -> Outcomes:
    """Find the outcomes of messages, each message once (:func:`sievemq_spark.traffic.traffic`).

    Args:
        fates: their outcomes, see :func:`sievemq_spark.archive.read_outcomes`; those of other messages count as well,
            those of dead letters that are left out do not.

    Raises:
        PipelineError: rows that are no messages.
    """
    from pyspark.sql import functions as f

    require_messages(messages)
    left_out = copies(messages).cache()
    messages, fates = without(messages, left_out), without(fates, left_out)
    # Clocks of senders may be ahead of the broker's.
    took = f.when(f.col("timestamp") > 0, f.greatest(f.col("time") - f.col("timestamp"), f.lit(0)))
    rows = fates.withColumn("took", took).cache()
    try:
        grouped = (
            rows.groupBy("outcome", "reason")
            .agg(
                f.count(f.lit(1)).alias("rows"),
                f.avg("attempts").alias("attempts"),
                f.percentile_approx("took", [share / 100 for share in SHARES]).alias("took"),
                span_of(f.col("time")).alias("span"),
            )
            .collect()
        )
        total = sum(row["rows"] for row in grouped)
        ended = rows.select(*KEY).distinct().withColumn("ended", f.lit(True)).alias("ended")
        unknown = f.col("message_id").isNotNull() & f.col("ended").isNull()
        same = reduce(and_, (f.col(f"sent.{name}").eqNullSafe(f.col(f"ended.{name}")) for name in KEY))
        known = messages.select(*KEY).alias("sent").join(ended, same, "left").select("sent.message_id", "ended.ended")
        every, lost = known.agg(f.count(f.lit(1)), f.count_if(unknown)).collect()[0]
        at = time_of(f.col("time"), unit_for(*(row["span"] for row in grouped)))
        destinations, selectors, times = _counted(rows.withColumn("at", at), "destination", "selector", "at")
        by_time: dict[str, dict[str, int]] = {}
        for (time, outcome), count in sorted(times.items(), key=lambda item: item[0][::-1]):
            by_time.setdefault(outcome, {})[time] = count
        acknowledged = {
            selector: count for (selector, outcome), count in selectors.items() if outcome == "acknowledged"
        }
        return Outcomes(
            every,
            lost,
            sorted((_fate(row, total) for row in grouped), key=lambda fate: (-fate.messages, fate.outcome)),
            dict(sorted(destinations.items())),
            dict(sorted(acknowledged.items(), key=lambda item: -item[1])),
            by_time,
        )
    finally:
        rows.unpersist()
        left_out.unpersist()


def _fate(row: Any, total: int) -> Fate:
    took = dict(zip(SHARES, row["took"], strict=True)) if row["took"] else {}
    return Fate(row["outcome"], row["reason"], row["rows"], row["rows"] / total, float(row["attempts"]), took)


def _counted(rows: DataFrame, *names: str) -> list[dict[tuple[Any, str], int]]:
    """For each of some columns: how many rows have a value of it and an outcome. One pass."""
    from pyspark.sql import functions as f

    sets = [(name, "outcome") for name in names]
    counts = f.count(f.lit(1)).alias("rows")
    found: list[dict[tuple[Any, str], int]] = [{} for _ in names]
    # A grouping set leaves the columns of the others NULL, and a selector may be NULL by itself.
    which = [f.grouping(name).alias(f"_without_{name}") for name in names]
    for row in rows.groupingSets(sets, *names, "outcome").agg(counts, *which).collect():
        (place,) = (place for place, name in enumerate(names) if not row[f"_without_{name}"])
        found[place][row[names[place]], row["outcome"]] = row["rows"]
    return found
