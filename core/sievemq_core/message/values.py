"""The scalar types of JMS as Python values.

Python has one ``int`` and one ``float``; JMS has byte, short, int, long, float, double. A value is held in the plain
Python type whenever that type says which JMS type is meant, and in a wrapper (a subclass, so it computes and compares
like the plain value) only where it does not:

    letter  JMS type   held as
    z       boolean    bool
    b       byte       Byte
    h       short      Short
    i       int        int, in the 32-bit range
    l       long       Long in the 32-bit range, int outside it
    f       float      Float, rounded to IEEE single
    d       double     float
    s       String     str, or None for a null String
    c       char       Char        (bodies only)
    x       byte[]     bytes       (bodies only)

``Int`` and ``Double`` exist so that a caller can name a type; :func:`normalise` turns them into plain values.
So ``type(value)`` plus, for a plain int, its range is the JMS type; :func:`letter_of` tells it.

What is held is made in one of three ways: :func:`normalise` and :func:`normalise_field` for a value that names its own
type, and :func:`hold` for a value whose type the caller names (``set_byte_property``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Self, SupportsFloat, SupportsInt, TypeAlias, cast

from sievemq_core.errors import FormatError, NullValueError, NumberFormatError

#: The ranges of int and long.
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
    """An int with a JMS width. Construction checks the range (PY-08).

    Raises:
        NumberFormatError: (a ValueError) not an int, or outside the range.
    """

    __slots__ = ()
    minimum: int
    maximum: int

    def __new__(cls, value: int = 0) -> Self:
        if isinstance(value, bool) or not isinstance(value, int):
            raise NumberFormatError(f"{cls.__name__} takes an int, not {type(value).__name__}")
        if not cls.minimum <= value <= cls.maximum:
            raise NumberFormatError(f"{_shown(value)} is outside {cls.__name__}'s range {cls.minimum} to {cls.maximum}")
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


def to_long(value: int) -> int:
    """A long as held: a plain int outside the 32-bit range, which can only be a long, else a Long.

    Raises:
        NumberFormatError: not an int, or beyond 64 bits.
    """
    if type(value) is int and not INT_MIN <= value <= INT_MAX and LONG_MIN <= value <= LONG_MAX:
        return value
    checked = Long(value)
    return checked if INT_MIN <= value <= INT_MAX else int(checked)


def to_time(milliseconds: int) -> int:
    """A header's time in ms since 1970 as a JMS long: any 64 bits are a time, and unsigned ones beyond a long count as
    the last that there is (D-46)."""
    return min(milliseconds, LONG_MAX)


class Float(_Floating):
    """A JMS float: rounded to IEEE single when made (PY-09)."""

    __slots__ = ()

    def __new__(cls, value: float = 0.0) -> Self:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise NumberFormatError(f"Float takes a number, not {type(value).__name__}")
        return super().__new__(cls, to_single(_to_double(value)))


class Double(_Floating):
    """A JMS double. Held as a plain float once set."""

    __slots__ = ()

    def __new__(cls, value: float = 0.0) -> Self:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise NumberFormatError(f"Double takes a number, not {type(value).__name__}")
        return super().__new__(cls, _to_double(value))


class Char(str):
    """A JMS char: one UTF-16 code unit (PY-11). Never a property; only a Map or Stream field."""

    __slots__ = ()

    def __new__(cls, value: str = "\0") -> Self:
        if not isinstance(value, str) or len(value) != 1 or ord(value) > 0xFFFF:
            raise NumberFormatError(f"Char takes text of exactly one UTF-16 code unit, not {_shown(value)}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str.__repr__(self)})"


PropertyValue: TypeAlias = bool | int | float | str | None
"""A property's value: plain, or one of the wrappers above (they are ints and floats)."""

BodyValue: TypeAlias = bool | int | float | str | bytes | None
"""A Map or Stream field: a property value, a Char or bytes."""

FieldValue: TypeAlias = BodyValue | bytearray | memoryview
"""What such a field can be set to."""

_WRAPPER_LETTERS: dict[type, str] = {
    bool: "z", Byte: "b", Short: "h", Int: "i", Long: "l", Float: "f", Double: "d", float: "d", str: "s",
    type(None): "s", Char: "c", bytes: "x",
}  # fmt: skip


def letter_of(value: BodyValue) -> str:
    if type(value) is int:
        return "i" if INT_MIN <= value <= INT_MAX else "l"
    return _WRAPPER_LETTERS[type(value)]


def normalise(value: object) -> PropertyValue:
    """The value stored for `value` when it is set as a property.

    Raises:
        FormatError: `value` is of a type that a property cannot have (PRP-02), or an int beyond 64 bits.
    """
    kind = type(value)
    if kind is int:
        if LONG_MIN <= value <= LONG_MAX:  # type: ignore[operator]
            return value  # type: ignore[return-value]
        raise FormatError(f"{_shown(value)} does not fit a long (64 bits, signed)")
    if kind in _AS_THEY_ARE:
        return value  # type: ignore[return-value]
    if kind is Int:
        return int(cast("Int", value))
    if kind is Double:
        return float(cast("Double", value))
    if isinstance(value, str) and kind is not Char:  # StrEnum and the like: the text is what is meant
        return str.__str__(value)
    raise FormatError(
        f"a property holds a bool, int, float, str, None or one of the wrappers Byte … Double, not {kind.__name__}"
    )


def normalise_field(value: object) -> BodyValue:
    """The value stored for `value` when it is set as a field of a Map- or StreamMessage (MAP-03, STR-03).

    Raises:
        FormatError: `value` is of a type that a field cannot have, or an int beyond 64 bits.
    """
    kind = type(value)
    if kind is bytes or kind is Char:
        return value  # type: ignore[return-value]
    if kind is bytearray or kind is memoryview:
        return bytes(cast("bytearray", value))  # copied in (NUL-13)
    try:
        return normalise(value)
    except FormatError as error:
        if kind is int:
            raise
        raise FormatError(
            "a field holds a bool, int, float, str, bytes, None or one of the wrappers Byte … Double, Char, "
            f"not {kind.__name__}"
        ) from error


#: Types of property that msgpack does not distinguish from plain ones: a message with one of them needs the letters.
AMBIGUOUS = frozenset({Byte, Short, Long, Float})
_AS_THEY_ARE = frozenset({str, bool, float, type(None), Byte, Short, Long, Float})


# -- a value of a type that the caller names --------------------------------------------------------------------------


def hold(letter: str, value: object) -> BodyValue:
    """The value to store for `value` when the called method determines the type.

    An int is accepted for a floating type, as Java widens it; a bool never counts as a number (PY-07).

    Args:
        letter: the type, see the module's table.
        value: bool, int, float, str or a bytes-like object, as the type wants.

    Raises:
        NullValueError: `value` is None where the type has no null: all but String and byte[].
        FormatError: it is of another type or out of range (PY-08, PY-11).
    """
    if value is None:
        if letter in "sx":
            return None
        raise NullValueError(f"None where {_A[letter]} is needed")
    return _HOLD[letter](value)


def _hold_boolean(value: object) -> BodyValue:
    if isinstance(value, bool):
        return value
    raise _refused("z", value)


def _integer_holder(letter: str, minimum: int, maximum: int, wrap: Callable[[int], int]) -> Callable[[object], int]:
    def hold_integer(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _refused(letter, value)
        if not minimum <= value <= maximum:
            raise FormatError(f"{_shown(value)} is outside the range of {_A[letter]}, {minimum} to {maximum}")
        return wrap(value)

    return hold_integer


def _hold_float(value: object) -> BodyValue:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Float(value)
    raise _refused("f", value)


def _hold_double(value: object) -> BodyValue:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _to_double(value)
    raise _refused("d", value)


def _hold_string(value: object) -> BodyValue:
    if isinstance(value, str) and not isinstance(value, Char):
        return str.__str__(value)
    raise _refused("s", value)


def _hold_char(value: object) -> BodyValue:
    if isinstance(value, str) and len(value) == 1 and ord(value) <= 0xFFFF:
        return Char(value)
    raise FormatError(f"a char is text of exactly one UTF-16 code unit, not {_shown(value)}")


def _hold_bytes(value: object) -> BodyValue:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _refused("x", value)


_HOLD: Final[dict[str, Callable[[object], BodyValue]]] = {
    "z": _hold_boolean,
    "b": _integer_holder("b", -128, 127, Byte),
    "h": _integer_holder("h", -32768, 32767, Short),
    "i": _integer_holder("i", INT_MIN, INT_MAX, int),
    "l": _integer_holder("l", LONG_MIN, LONG_MAX, to_long),
    "f": _hold_float,
    "d": _hold_double,
    "s": _hold_string,
    "c": _hold_char,
    "x": _hold_bytes,
}

#: The types as errors name them.
TYPE_NAMES: Final[dict[str, str]] = {
    "z": "boolean", "b": "byte", "h": "short", "i": "int", "l": "long", "f": "float", "d": "double", "s": "String",
    "c": "char", "x": "byte[]",
}  # fmt: skip
#: The same as selectors' explanations, the command line and the management API name them.
PLAIN_NAMES: Final = {**TYPE_NAMES, "s": "string", "x": "bytes"}
_A: Final = {letter: f"an {name}" if name == "int" else f"a {name}" for letter, name in TYPE_NAMES.items()}
_TAKES: Final = {
    "z": "a bool", "b": "an int", "h": "an int", "i": "an int", "l": "an int", "f": "a float", "d": "a float",
    "s": "a str", "x": "bytes, bytearray or memoryview",
}  # fmt: skip


def _refused(letter: str, value: object) -> FormatError:
    return FormatError(f"{_A[letter]} is set from {_TAKES[letter]}, not from {type(value).__name__}")


def _to_double(value: SupportsFloat | SupportsInt) -> float:
    try:
        return float(cast("float", value))
    except OverflowError:
        raise NumberFormatError(f"{_shown(value)} does not fit a double") from None


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 200:  # Python refuses to print an int of thousands of digits
        return f"an int of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
