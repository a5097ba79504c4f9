"""The scalar types of JMS as Python values.

Python has one ``int`` and one ``float``; JMS has byte, short, int, long, float, double. A value is held in the plain
Python type whenever that type says which JMS type is meant, and in a wrapper (a subclass, so it computes and compares
like the plain value) only where it does not:

    letter  JMS type   held as
    z       boolean    bool
    b       byte       Byte
    h       short      Short
    i       int        int, in the 32-bit range
    l       long       int outside the 32-bit range, else Long
    f       float      Float, rounded to IEEE single
    d       double     float
    s       String     str, or None for a null String
    c       char       Char        (bodies only)
    x       byte[]     bytes       (bodies only)

``Int`` and ``Double`` exist so that a caller can name a type; :func:`normalise` turns them into plain values.
So ``type(value)`` plus, for a plain int, its range is the JMS type; :func:`letter_of` tells it.
"""

from __future__ import annotations

import struct
from typing import Self, TypeAlias

from sievemq_core.errors import FormatError

__all__ = [
    "BodyValue",
    "Byte",
    "Char",
    "Double",
    "Float",
    "Int",
    "Long",
    "PropertyValue",
    "Short",
    "letter_of",
    "normalise",
    "to_single",
]

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_single = struct.Struct(">f")


def to_single(value: float) -> float:
    """The nearest IEEE single, widened again; infinity where Java's cast gives infinity (PY-09)."""
    try:
        return float(_single.unpack(_single.pack(value))[0])
    except OverflowError:  # struct refuses what Java rounds to infinity
        return float("inf") if value > 0 else float("-inf")


class _Integer(int):
    """An int with a JMS width. Construction checks the range (PY-08)."""

    __slots__ = ()
    minimum: int
    maximum: int

    def __new__(cls, value: int = 0) -> Self:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(f"{cls.__name__} takes an int, not {type(value).__name__}")
        if not cls.minimum <= value <= cls.maximum:
            raise FormatError(f"{int(value)} is outside {cls.__name__}'s range {cls.minimum} to {cls.maximum}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


class Byte(_Integer):
    """A JMS byte: 8 bits, signed."""

    __slots__ = ()
    minimum, maximum = -128, 127


class Short(_Integer):
    """A JMS short: 16 bits, signed."""

    __slots__ = ()
    minimum, maximum = -32768, 32767


class Int(_Integer):
    """A JMS int: 32 bits, signed. Held as a plain int once set."""

    __slots__ = ()
    minimum, maximum = INT_MIN, INT_MAX


class Long(_Integer):
    """A JMS long: 64 bits, signed."""

    __slots__ = ()
    minimum, maximum = LONG_MIN, LONG_MAX


class _Floating(float):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({float.__repr__(self)})"

    def __str__(self) -> str:
        return float.__repr__(self)


class Float(_Floating):
    """A JMS float: rounded to IEEE single when made (PY-09)."""

    __slots__ = ()

    def __new__(cls, value: float = 0.0) -> Self:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise FormatError(f"Float takes a number, not {type(value).__name__}")
        return super().__new__(cls, to_single(value))


class Double(_Floating):
    """A JMS double. Held as a plain float once set."""

    __slots__ = ()

    def __new__(cls, value: float = 0.0) -> Self:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise FormatError(f"Double takes a number, not {type(value).__name__}")
        return super().__new__(cls, value)


class Char(str):
    """A JMS char: one UTF-16 code unit (PY-11). Never a property; only a Map or Stream field."""

    __slots__ = ()

    def __new__(cls, value: str = "\0") -> Self:
        if not isinstance(value, str) or len(value) != 1 or ord(value) > 0xFFFF:
            raise FormatError(f"Char takes text of exactly one UTF-16 code unit, not {value!r}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str.__repr__(self)})"


PropertyValue: TypeAlias = bool | int | float | str | None
"""A property's value: plain, or one of the wrappers above (they are ints and floats)."""

BodyValue: TypeAlias = bool | int | float | str | bytes | None
"""A Map or Stream field: a property value, a Char or bytes."""

_WRAPPER_LETTERS: dict[type, str] = {
    bool: "z", Byte: "b", Short: "h", Int: "i", Long: "l", Float: "f", Double: "d", float: "d", str: "s",
    type(None): "s", Char: "c", bytes: "x",
}  # fmt: skip


def letter_of(value: BodyValue) -> str:
    """The type letter of a value as held (table above)."""
    if type(value) is int:
        return "i" if INT_MIN <= value <= INT_MAX else "l"
    return _WRAPPER_LETTERS[type(value)]


def normalise(value: object) -> PropertyValue:
    """What is held for `value` when it is set as a property.

    Raises:
        FormatError: `value` is of a type that a property cannot have (PRP-02), or an int beyond 64 bits.
    """
    kind = type(value)
    if kind is int:
        if LONG_MIN <= value <= LONG_MAX:  # type: ignore[operator]
            return value  # type: ignore[return-value]
        raise FormatError(f"{value} does not fit a long (64 bits, signed)")
    if kind in _AS_THEY_ARE:
        return value  # type: ignore[return-value]
    if kind is Int:
        return int(value)  # type: ignore[call-overload,no-any-return]
    if kind is Double:
        return float(value)  # type: ignore[arg-type]
    raise FormatError(
        f"a property holds a bool, int, float, str, None or one of the wrappers Byte … Double, not {kind.__name__}"
    )


_AS_THEY_ARE = frozenset({str, bool, float, type(None), Byte, Short, Long, Float})
