"""What traffic looks like: properties with their types and cardinality, sizes, rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sievemq_core.message.values import TYPE_NAMES
from sievemq_spark.archive import require_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Profile", "PropertyProfile", "profile"]


@dataclass(frozen=True, slots=True)
class PropertyProfile:
    """One property.

    Attributes:
        name: its name.
        types: JMS type -> messages that have it so; more than one type is what breaks selectors.
        missing: messages that do not have it.
        distinct: about how many values it has (HyperLogLog, within some percent).
    """

    name: str
    types: dict[str, int]
    missing: int
    distinct: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Messages by what they are made of.

    Attributes:
        messages: how many.
        kinds: body kind -> messages.
        size_mean, size_max: bytes of body and properties.
        hours: messages by hour, ``2013-01-01T05`` (UTC).
        properties: the most frequent ones first.
    """

    messages: int
    kinds: dict[str, int]
    size_mean: float
    size_max: int
    hours: dict[str, int]
    properties: list[PropertyProfile]


def profile(messages: DataFrame) -> Profile:
    """Look at messages.

    Args:
        messages: rows as in schema.py.

    Raises:
        PipelineError: rows that are no messages.
    """
    from pyspark.sql import functions as f

    require_messages(messages)
    hour = f.date_format(f.timestamp_millis(f.col("timestamp")), "yyyy-MM-dd'T'HH").alias("hour")
    groups = (
        messages.groupBy(hour, "body_kind")
        .agg(f.count(f.lit(1)).alias("rows"), f.sum("size").alias("bytes"), f.max("size").alias("largest"))
        .orderBy("hour")
        .collect()
    )
    total = sum(row["rows"] for row in groups)
    kinds: dict[str, int] = {}
    hours: dict[str, int] = {}
    for row in groups:
        kinds[row["body_kind"]] = kinds.get(row["body_kind"], 0) + row["rows"]
        hours[row["hour"]] = hours.get(row["hour"], 0) + row["rows"]
    value = f.expr("coalesce(value.s, CAST(value.l AS STRING), CAST(value.d AS STRING), CAST(value.b AS STRING))")
    found = (
        messages.select(f.explode("properties"))
        .groupBy("key")
        .agg(
            f.approx_count_distinct(value).alias("distinct"),
            f.count(f.lit(1)).alias("rows"),
            *(f.count_if(f.col("value.t") == letter).alias(letter) for letter in _LETTERS),
        )
        .collect()
    )
    properties = [
        PropertyProfile(
            row["key"],
            {TYPE_NAMES[letter]: row[letter] for letter in _LETTERS if row[letter]},
            total - row["rows"],
            row["distinct"],
        )
        for row in sorted(found, key=lambda row: (-row["rows"], row["key"]))
    ]
    return Profile(
        total,
        kinds,
        sum(row["bytes"] for row in groups) / total if total else 0.0,
        max((row["largest"] for row in groups), default=0),
        hours,
        properties,
    )


_LETTERS = "zbhilfds"
