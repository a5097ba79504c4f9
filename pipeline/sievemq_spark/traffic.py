"""Each message once: taps on a queue and on its dead-letter queue archive a dead letter twice, under one message id."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from sievemq_core.message.dead_letters import REASON
from sievemq_spark.archive import KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def is_dead_letter() -> Column:
    """True for a row that is the message in a dead-letter queue; never NULL."""
    from pyspark.sql import functions as f

    return f.expr(f"coalesce(properties['{REASON}'].s, '') <> ''")


def traffic(messages: DataFrame) -> DataFrame:
    """The messages, each once: a dead letter is left out if its original message is present as well.

    Of an archive of a dead-letter queue alone nothing is left out.

    Args:
        messages: rows as in schema.py.
    """
    return without(messages, copies(messages))


def copies(messages: DataFrame) -> DataFrame:
    """The keys of the dead letters that are left out of :func:`traffic`."""
    from pyspark.sql import functions as f

    dead = messages.filter(is_dead_letter()).select(*KEY).filter("message_id IS NOT NULL")
    originals = messages.filter(~is_dead_letter()).select("message_id")
    originals = originals.join(f.broadcast(dead.select("message_id").distinct()), "message_id", "left_semi").distinct()
    return dead.join(originals, "message_id", "left_semi").select(*KEY)


def without(rows: DataFrame, keys: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    same = reduce(and_, (f.col(f"kept.{name}").eqNullSafe(f.col(f"gone.{name}")) for name in KEY))
    return rows.alias("kept").join(f.broadcast(keys.alias("gone")), same, "left_anti")
