"""Day and hour of a time in milliseconds, in UTC whatever the session's time zone is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["day_of", "hour_of"]

DAY = 86_400_000
HOUR = 3_600_000


def day_of(milliseconds: Column) -> Column:
    """``2026-11-21``, of milliseconds since 1970-01-01 UTC: no timestamp, which the session would show in its zone."""
    from pyspark.sql import functions as f

    return f.date_format(f.date_from_unix_date(f.floor(milliseconds / DAY).cast("int")), "yyyy-MM-dd")


def hour_of(milliseconds: Column) -> Column:
    """``2026-11-21T05``, of milliseconds since 1970-01-01 UTC."""
    from pyspark.sql import functions as f

    hour = f.pmod(f.floor(milliseconds / HOUR), f.lit(24))
    return f.concat(day_of(milliseconds), f.lit("T"), f.lpad(hour.cast("string"), 2, "0"))
