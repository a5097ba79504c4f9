"""Days and other spans of milliseconds, in UTC, independent of the session's time zone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column

DAY = 86_400_000
HOUR = 3_600_000
MINUTE = 60_000

Unit: TypeAlias = Literal["minute", "hour", "day"]

#: The longest span in ms that is shown by this unit.
_LONGEST: Final[dict[Unit, int]] = {"minute": 4 * HOUR, "hour": 10 * DAY}
#: Length and form of a time that :func:`time_of` writes.
_FORMS: Final[dict[Unit, tuple[int, str]]] = {
    "minute": (16, "%Y-%m-%dT%H:%M"),
    "hour": (13, "%Y-%m-%dT%H"),
    "day": (10, "%Y-%m-%d"),
}
#: The years 1000 to 9999, which a date of four digits can name, in ms since 1970-01-01 UTC.
FIRST: Final = -30_610_224_000_000
LAST: Final = 253_402_300_799_999

UNDATED: Final = date(1970, 1, 1)
"""The day of messages without a time, or with one that is a mistake: their age is unknown."""

#: Times that are shown at most, those without messages included.
_MOST: Final = 5_000


def day_of(milliseconds: Column) -> Column:
    """``2026-11-21``, of milliseconds since 1970-01-01 UTC: no timestamp, which the session would show in its zone.

    A time outside of the years 1000 to 9999 is a mistake, such as one in microseconds; it counts as 0 here, the time of
    messages without a timestamp, whose day is UNDATED."""
    from pyspark.sql import functions as f

    return f.date_format(f.date_from_unix_date(f.floor(_dated(milliseconds) / DAY).cast("int")), "yyyy-MM-dd")


def _dated(milliseconds: Column) -> Column:
    from pyspark.sql import functions as f

    return f.when(milliseconds.between(FIRST, LAST), milliseconds).when(milliseconds.isNotNull(), f.lit(0))


def time_of(milliseconds: Column, unit: Unit) -> Column:
    """``2026-11-21``, ``2026-11-21T05`` or ``2026-11-21T05:07``, of milliseconds since 1970-01-01 UTC."""
    from pyspark.sql import functions as f

    def part(size: int, count: int) -> Column:
        return f.lpad(f.pmod(f.floor(_dated(milliseconds) / size), f.lit(count)).cast("string"), 2, "0")

    day = day_of(milliseconds)
    if unit == "day":
        return day
    hour = f.concat(day, f.lit("T"), part(HOUR, 24))
    return hour if unit == "hour" else f.concat(hour, f.lit(":"), part(MINUTE, 60))


def span_of(milliseconds: Column) -> Column:
    """An aggregate: the first and the last of some times, an array for :func:`unit_for`; neither a 0 nor a time after
    the year 9999 is one."""
    from pyspark.sql import functions as f

    time = f.when(milliseconds.between(1, LAST), milliseconds)
    return f.array(f.min(time), f.max(time))


def unit_for(*spans: Sequence[int | None]) -> Unit:
    """The unit that suits all of some spans: minutes up to four hours, hours up to ten days."""
    times = [time for span in spans for time in span if time is not None]
    length = max(times) - min(times) if times else 0
    return next((unit for unit, longest in _LONGEST.items() if length <= longest), "day")


def unit_shown(time: str) -> Unit:
    return next(unit for unit, (length, _) in _FORMS.items() if len(time) == length)


def every(times: Iterable[str]) -> list[str]:
    """The times in order, with those between them that have no messages; without them if these are thousands."""
    found = sorted(set(times))
    if not found:
        return []
    unit = unit_shown(found[0])
    _, form = _FORMS[unit]
    first, last = (datetime.strptime(text, form).replace(tzinfo=UTC) for text in (found[0], found[-1]))
    step = timedelta(**{f"{unit}s": 1})
    count = (last - first) // step + 1
    return found if count > _MOST else [(first + number * step).strftime(form) for number in range(count)]


def duration(milliseconds: int) -> str:
    """A length of time for people: ``206 ms``, ``7.5 s``, ``3 min 26 s``, ``5 h 12 min``, ``3 d 4 h``."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < MINUTE:
        return f"{milliseconds // 100 / 10} s"
    units = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1_000, "s"))
    place = next(place for place, (size, _) in enumerate(units) if milliseconds >= size)
    (size, unit), (rest, smaller) = units[place : place + 2]
    count, left = divmod(milliseconds, size)
    return f"{count:,} {unit} {left // rest} {smaller}"
