"""Lengths of time as arguments: a `timedelta`, or a number in the unit of the call."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

#: What calls of the client accept: ints are milliseconds, as JMS has them.
Milliseconds = int | timedelta

#: What calls of the test kit accept: numbers are seconds.
Seconds = float | timedelta

MILLISECOND: Final = timedelta(milliseconds=1)
_NONE: Final = timedelta(0)


def milliseconds(what: str, value: object) -> int:
    """A length of time in whole milliseconds.

    Args:
        what: the argument's name, for the error.
        value: a timedelta, or an int of milliseconds.

    Raises:
        ValueError: it is negative, or something else. A float is refused: 0.5 of a millisecond is never meant.

    >>> milliseconds("a timeout", timedelta(seconds=1.5)), milliseconds("a timeout", 20)
    (1500, 20)
    >>> milliseconds("a timeout", 0.5)
    Traceback (most recent call last):
    ValueError: a timeout is a timedelta or an int of milliseconds, not 0.5; write timedelta(seconds=0.5)
    """
    if isinstance(value, timedelta):
        whole = in_units(value, MILLISECOND)
    elif isinstance(value, int) and not isinstance(value, bool):
        whole = int(value)
    else:
        hint = f"; write timedelta(seconds={value!r})" if isinstance(value, float) else ""
        raise ValueError(f"{what} is a timedelta or an int of milliseconds, not {value!r:.60}{hint}")  # noqa: TRY004 - PY-05
    if whole < 0:
        raise ValueError(f"{what} cannot be negative, as {value!r:.60} is")
    return whole


def in_units(value: timedelta, unit: timedelta) -> int:
    """Number of units, rounded up: a very short time would otherwise become 0, which often means no limit."""
    whole, rest = divmod(value, unit)
    return whole + bool(rest)


def seconds(what: str, value: object) -> float:
    """A length of time in seconds.

    Raises:
        ValueError: it is negative, or neither a timedelta nor a number.

    >>> seconds("within", timedelta(milliseconds=20)), seconds("within", 2)
    (0.02, 2.0)
    """
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError(f"{what} is a timedelta or a number of seconds, not {value!r:.60}")  # noqa: TRY004
    if not number >= 0:  # nan neither
        raise ValueError(f"{what} cannot be negative, as {value!r:.60} is")
    return number
