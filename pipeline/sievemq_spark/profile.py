"""A profile of traffic: properties with their types and cardinality, sizes, rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sievemq_core.message.values import TYPE_NAMES
from sievemq_spark.archive import require_messages
from sievemq_spark.times import span_of, time_of, unit_for
from sievemq_spark.traffic import traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class PropertyProfile:
    """One property.

    Attributes:
        name: its name.
        types: JMS type -> messages that have it so; more than one type is what breaks selectors.
        missing: messages that do not have it.
        distinct: about how many values it has (HyperLogLog, within some percent).
        selects: the share of all messages that ``name = value`` selects on average, for the values of the traffic
            itself; what an index over the property leaves to be looked at. 1.0 for one value that all have.
    """

    name: str
    types: dict[str, int]
    missing: int
    distinct: int
    selects: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Statistics of messages: headers, properties, bodies.

    Attributes:
        messages: how many.
        kinds: body kind -> messages.
        size_mean, size_max: bytes of body and properties.
        times: messages by minute, hour or day (UTC), ``2013-01-01T05``, as suits their span.
        properties: the most frequent ones first.
        hints: names of properties by which an equality leaves the fewest messages, the best first: what to select by,
            and what an index over a queue's backlog serves best (selectors.md).
    """

    messages: int
    kinds: dict[str, int]
    size_mean: float
    size_max: int
    times: dict[str, int]
    properties: list[PropertyProfile]
    hints: list[str]


def profile(messages: DataFrame) -> Profile:
    """Gather the statistics of messages, each once (:func:`sievemq_spark.traffic.traffic`).

    Args:
        messages: rows as in schema.py.

    Raises:
        PipelineError: rows that are no messages.
    """
    from pyspark.sql import functions as f

    require_messages(messages)
    when = f.col("timestamp")
    (row,) = messages.agg(span_of(when).alias("span")).collect()
    time = time_of(when, unit_for(row["span"])).alias("time")
    messages = traffic(messages)
    groups = (
        messages.groupBy(time, "body_kind")
        .agg(f.count(f.lit(1)).alias("rows"), f.sum("size").alias("bytes"), f.max("size").alias("largest"))
        .orderBy("time")
        .collect()
    )
    total = sum(row["rows"] for row in groups)
    kinds: dict[str, int] = {}
    times: dict[str, int] = {}
    for row in groups:
        kinds[row["body_kind"]] = kinds.get(row["body_kind"], 0) + row["rows"]
        times[row["time"]] = times.get(row["time"], 0) + row["rows"]
    value = f.expr("coalesce(value.s, CAST(value.l AS STRING), CAST(value.d AS STRING), CAST(value.b AS STRING))")
    each = messages.select(f.explode("properties"))
    # A message whose value occurs n times is one of n: that is what an equality with its value finds.
    squares = (
        each.groupBy("key", f.col("value.t"), value.alias("text"))
        .agg(f.count(f.lit(1)).alias("rows"))
        .filter("text IS NOT NULL")
        .groupBy("key")
        .agg((f.sum(f.col("rows") * f.col("rows").cast("double")) / f.sum("rows")).alias("alike"))
    )
    found = (
        each.groupBy("key")
        .agg(
            f.approx_count_distinct(value).alias("distinct"),
            f.count(f.lit(1)).alias("rows"),
            *(f.count_if(f.col("value.t") == letter).alias(letter) for letter in _LETTERS),
        )
        .join(squares, "key", "left")
        .collect()
    )
    properties = [
        PropertyProfile(
            row["key"],
            {TYPE_NAMES[letter]: row[letter] for letter in _LETTERS if row[letter]},
            total - row["rows"],
            row["distinct"],
            (row["alike"] or 0.0) / total,
        )
        for row in sorted(found, key=lambda row: (-row["rows"], row["key"]))
    ]
    return Profile(
        total,
        kinds,
        sum(row["bytes"] for row in groups) / total if total else 0.0,
        max((row["largest"] for row in groups), default=0),
        times,
        properties,
        _hints(properties, total),
    )


def _hints(properties: list[PropertyProfile], total: int) -> list[str]:
    """Properties of one type that most messages have, and whose equality leaves a tenth of the messages at most."""
    good = [each for each in properties if len(each.types) == 1 and each.missing <= total / 2 and each.selects <= 0.1]
    return [each.name for each in sorted(good, key=lambda each: each.selects)[:10]]


_LETTERS = "zbhilfds"
