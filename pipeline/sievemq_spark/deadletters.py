"""Why messages end in dead-letter queues: reasons, origins, times, and the property values they have more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sievemq_core.message.dead_letters import ATTEMPTS, FIRST_FAILURE, LAST_FAILURE, ORIGIN, REASON
from sievemq_core.message.values import TYPE_NAMES
from sievemq_spark.archive import require_messages
from sievemq_spark.times import span_of, time_of, unit_for
from sievemq_spark.traffic import is_dead_letter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Percent of the messages.
SHARES: Final = (50, 90, 99, 100)


@dataclass(frozen=True, slots=True)
class Lift:
    """A property value among dead letters beside normal traffic.

    Attributes:
        property: its name.
        type: JMS type; None where `value` is.
        value: as text; None for messages that lack the property.
        dead, normal: messages that have it so.
        dead_share, normal_share: of all dead letters, of all normal messages.
        lift: how many times as frequent it is among dead letters; None if no normal message has it so, or there is no
            normal traffic to compare with.
    """

    property: str
    type: str | None
    value: str | None
    dead: int
    normal: int
    dead_share: float
    normal_share: float
    lift: float | None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letters, grouped by reason, origin and properties.

    Attributes:
        messages: how many.
        normal: messages they are compared with.
        reasons: (reason, origin) -> messages.
        attempts: failed attempts -> messages.
        times: by minute, hour or day of the last failure, ``2026-11-21T05`` (UTC), as suits their span; of the send for
            messages that expired.
        time_to_fail: ms from the send to the first failure, at 50, 90, 99 and 100 percent; empty if none failed.
        values: property values, those first that are most over-represented.
    """

    messages: int
    normal: int
    reasons: dict[tuple[str, str], int]
    attempts: dict[int, int]
    times: dict[str, int]
    time_to_fail: dict[int, int]
    values: list[Lift]


def deadletters(
    messages: DataFrame, normal: DataFrame | None = None, *, values: int = 20, least: int = 2
) -> DeadLetters:
    """Find out why messages became dead letters.

    Args:
        messages: rows as in schema.py; those that carry the broker's dead-letter properties count, others do not.
        normal: normal traffic, such as the archive of the origins; rows that are dead letters do not count,
            nor do the messages that became one of them, which a tap on their queue has archived under the same id.
        values: property values to report at most.
        least: dead letters that must share a value for it to be reported.

    Raises:
        PipelineError: rows that are no messages.
    """
    from pyspark.sql import functions as f

    require_messages(messages)
    dead = messages.filter(is_dead_letter()).cache()
    try:
        reason, origin = (f.expr(f"coalesce(properties['{name}'].s, '')") for name in (REASON, ORIGIN))
        failed = f.expr(f"properties['{LAST_FAILURE}'].l")
        when = f.coalesce(failed, f.col("timestamp"))
        span, took = dead.agg(span_of(when), _time_to_fail()).collect()[0]
        time = time_of(when, unit_for(span))
        attempts = f.expr(f"coalesce(properties['{ATTEMPTS}'].l, 0)")
        groups = (
            dead.groupBy(reason.alias("reason"), origin.alias("origin"), attempts.alias("attempts"), time.alias("time"))
            .agg(f.count(f.lit(1)).alias("rows"))
            .collect()
        )
        total = sum(row["rows"] for row in groups)
        ordinary = None if normal is None else _ordinary(normal, dead)
        others = 0 if ordinary is None else ordinary.count()
        return DeadLetters(
            total,
            others,
            _summed(((row["reason"], row["origin"]), row["rows"]) for row in groups),
            dict(sorted(_summed((int(row["attempts"]), row["rows"]) for row in groups).items())),
            dict(sorted(_summed((row["time"], row["rows"]) for row in groups).items())),
            dict(zip(SHARES, took, strict=True)) if took else {},
            _lifts(dead, total, ordinary, others, values, least) if total else [],
        )
    finally:
        dead.unpersist()


def _ordinary(normal: DataFrame, dead: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    ids = dead.select("message_id").union(normal.filter(is_dead_letter()).select("message_id")).distinct()
    return normal.filter(~is_dead_letter()).join(f.broadcast(ids), "message_id", "left_anti")


def _summed(pairs: Any) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for key, rows in pairs:
        found[key] = found.get(key, 0) + rows
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _time_to_fail() -> Column:
    """An aggregate: ms from the send to the first failure, an array by :data:`SHARES`."""
    from pyspark.sql import functions as f

    took = f.expr(f"CASE WHEN timestamp > 0 THEN properties['{FIRST_FAILURE}'].l - timestamp END")
    return f.percentile_approx(took, [share / 100 for share in SHARES])


def _lifts(dead: DataFrame, total: int, ordinary: DataFrame | None, others: int, values: int, least: int) -> list[Lift]:
    from pyspark.sql import functions as f

    counted = _values(dead).groupBy("key", "t", "text").agg(f.count(f.lit(1)).alias("dead"))
    counted = counted.filter(f.col("dead") >= least)
    if ordinary is None:
        joined = counted.withColumn("normal", f.lit(0))
    else:
        there = _values(ordinary).groupBy("key", "t", "text").agg(f.count(f.lit(1)).alias("normal"))
        # No value is NULL: a null String counts as absent.
        joined = counted.join(there, ["key", "t", "text"], "left").fillna(0, ["normal"])
    share, usual = f.col("dead") / total, f.col("normal") / max(others, 1)
    # Values that no normal message has come first, frequent ones before rare ones.
    ranked = joined.orderBy(f.when(f.col("normal") > 0, share / usual).desc_nulls_first(), f.col("dead").desc(), "key")
    found = [_lift(row["key"], TYPE_NAMES[row["t"]], row["text"], row, total, others) for row in ranked.take(values)]
    found += _absences(dead, total, ordinary, others, least)
    found.sort(key=lambda each: (others > 0 and each.normal > 0, -(each.lift or 0.0), -each.dead))
    return found[:values]


def _values(frame: DataFrame) -> DataFrame:
    """One row per property and message: key, t, text. What the broker or the provider sets is left out."""
    from pyspark.sql import functions as f

    text = f.expr("coalesce(value.s, CAST(value.l AS STRING), CAST(value.d AS STRING), CAST(value.b AS STRING))")
    return (
        frame.select(f.explode("properties"))
        .filter(~f.col("key").startswith("JMS"))
        .select("key", f.col("value.t").alias("t"), text.alias("text"))
        .filter("text IS NOT NULL")
    )


def _absences(dead: DataFrame, total: int, ordinary: DataFrame | None, others: int, least: int) -> list[Lift]:
    """Properties that dead letters lack and normal messages have, and the other way round."""
    from pyspark.sql import functions as f

    if ordinary is None or not others:
        return []

    def present(frame: DataFrame, name: str) -> DataFrame:
        return _values(frame).groupBy("key").agg(f.count(f.lit(1)).alias(name))

    rows = present(dead, "dead").join(present(ordinary, "normal"), "key", "full").fillna(0).collect()
    found = []
    for row in rows:
        lacking, usual = total - row["dead"], others - row["normal"]
        if lacking >= least:
            found.append(_lift(row["key"], None, None, {"dead": lacking, "normal": usual}, total, others))
    return found


def _lift(name: str, kind: str | None, value: str | None, counts: Any, total: int, others: int) -> Lift:
    share, usual = counts["dead"] / total, counts["normal"] / others if others else 0.0
    return Lift(name, kind, value, counts["dead"], counts["normal"], share, usual, share / usual if usual else None)
