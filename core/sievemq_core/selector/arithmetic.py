"""Arithmetic and comparison of property values with Java's numeric promotion (§3.8.1.1, D-01, D-02).

A value's Java type is its Python type as message/values.py holds it: int is an int, or a long when outside 32 bits;
Byte and Short promote to int; Long is a long; Float is a float; float is a double. A result is held the same way, so
that the next operation promotes rightly: a long sum that happens to be small is returned as a Long.

None is NULL: so is the result for an operand that is no number, and for an integer divided by zero (D-02). No
function here raises for any property value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import copysign, inf, nan

from sievemq_core.message.values import INT_MAX, INT_MIN, Byte, Float, Long, PropertyValue, Short, to_single

Number = int | float

#: The Python types that hold numbers; bool is not among them, although it is a subclass of int.
NUMBERS: frozenset[type] = frozenset({int, float, Byte, Short, Long, Float})

_EXACT: frozenset[type] = frozenset({int, Byte, Short, Long})

COMPARE: dict[str, Callable[[Number, Number], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_long(value: int) -> bool:
    return type(value) is Long or not INT_MIN <= value <= INT_MAX


def to_float(value: Number) -> float:
    """The value as a Java float (held widened), rounded once.

    Going through a double would round twice, which for a long beyond 53 bits can give another float.
    """
    if isinstance(value, int) and not -(2**53) <= value <= 2**53:
        # keep 30 bits and whether any dropped bit was set: enough to round to 24 bits as if from the whole number
        size = abs(value)
        shift = size.bit_length() - 30
        kept = size >> shift
        if kept << shift != size:
            kept |= 1
        return copysign(to_single(float(kept << shift)), value)
    return to_single(float(value))


def _unify(left: Number, right: Number) -> tuple[Number, Number, type]:
    """Both operands in their common type, and that type: int, Long, Float or float (Java's binary promotion)."""
    kinds = {type(left), type(right)}
    if float in kinds:
        return float(left), float(right), float
    if Float in kinds:
        return to_float(left), to_float(right), Float
    return int(left), int(right), Long if is_long(int(left)) or is_long(int(right)) or Long in kinds else int


def compare_numbers(op: str, left: Number, right: Number) -> bool:
    """``left op right`` after promotion: a long against a double is compared as a double, so 2^53 + 1 = 2^53 as one.

    NaN is unequal to everything, -0.0 equals 0.0, as in Java.
    """
    left, right, _ = _unify(left, right)
    return COMPARE[op](left, right)


def comparable(op: str, left: PropertyValue, right: PropertyValue) -> bool:
    """True unless `op` has operands of unlike types (D-04); NULL is allowed with every type."""
    if left is None or right is None:
        return True
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return True
    return op in ("=", "<>") and type(left) is type(right)  # strings and booleans have no order (§3.8.1.3)


def is_true(op: str, left: PropertyValue, right: PropertyValue) -> bool:
    """True if ``left op right`` is TRUE: neither FALSE nor UNKNOWN."""
    if left is None or right is None or not comparable(op, left, right):
        return False
    if isinstance(left, str | bool) or isinstance(right, str | bool):
        return (left == right) == (op == "=")
    return compare_numbers(op, left, right)


def is_false(op: str, left: PropertyValue, right: PropertyValue) -> bool:
    """True if ``left op right`` is FALSE: NULL is not involved, and it is not TRUE (D-04, D-05)."""
    return left is not None and right is not None and not is_true(op, left, right)


def _hold(value: int, kind: type) -> int:
    """An integer result wrapped to its type's width and held so that it keeps the type."""
    if kind is Long:
        value = (value + 2**63) % 2**64 - 2**63
        return Long(value) if INT_MIN <= value <= INT_MAX else value
    return (value + 2**31) % 2**32 - 2**31


#: Below this in size a plain int certainly is a JMS int.
_SAFE = 2**31


def _computed(left: Number, right: Number, compute: Callable[[Number, Number], Number]) -> Number:
    if type(left) is int and type(right) is int:
        result = compute(left, right)
        if -_SAFE < left < _SAFE and -_SAFE < right < _SAFE and -_SAFE < result < _SAFE:
            return result  # ints that do not wrap: nearly all there are
    left, right, kind = _unify(left, right)
    result = compute(left, right)
    if kind is float:
        return result
    if kind is Float:
        return Float(result)  # one rounding more is harmless: a double has more than twice a float's bits
    return _hold(int(result), kind)


#: Operands of an operation that Python's own operators compute as Java does: in double precision.
_DOUBLE = frozenset(
    (left, right) for left in NUMBERS for right in NUMBERS if float in (left, right) and Float not in (left, right)
)


def add(left: PropertyValue, right: PropertyValue) -> Number | None:
    if (type(left), type(right)) in _DOUBLE:
        return left + right  # type: ignore[operator,return-value]  # a double and a number, as just tested
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return _computed(left, right, operator.add)  # type: ignore[arg-type]  # numbers, as just tested
    return None


def subtract(left: PropertyValue, right: PropertyValue) -> Number | None:
    if (type(left), type(right)) in _DOUBLE:
        return left - right  # type: ignore[operator]  # a double and a number, as just tested
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return _computed(left, right, operator.sub)  # type: ignore[arg-type]  # numbers, as just tested
    return None


def multiply(left: PropertyValue, right: PropertyValue) -> Number | None:
    if (type(left), type(right)) in _DOUBLE:
        return left * right  # type: ignore[operator,return-value]  # a double and a number, as just tested
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return _computed(left, right, operator.mul)  # type: ignore[arg-type]  # numbers, as just tested
    return None


def divide(left: PropertyValue, right: PropertyValue) -> Number | None:
    """``left / right``: integers truncate toward zero and give NULL for a zero divisor (D-02); floats as in Java."""
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        return None
    if type(left) in _EXACT and type(right) in _EXACT and right == 0:
        return None
    return _computed(left, right, _quotient)  # type: ignore[arg-type]  # numbers, as just tested


def _quotient(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        size = abs(left) // abs(right)  # Python's // rounds down, Java's / toward zero
        return size if (left < 0) == (right < 0) else -size  # MIN / -1 is wrapped by the caller
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return nan
    return inf if (copysign(1.0, left) < 0) == (copysign(1.0, right) < 0) else -inf


def negate(value: PropertyValue) -> Number | None:
    """``- value``; the lowest int and the lowest long stay as they are, as in Java."""
    kind = type(value)
    if kind is float:
        return -value  # type: ignore[operator]  # a float, as just tested
    if kind is Float:
        return Float(-value)  # type: ignore[operator]
    if kind in _EXACT:
        whole = int(value)  # type: ignore[arg-type]
        return _hold(-whole, Long if kind is Long or is_long(whole) else int)
    return None


def promote(value: PropertyValue) -> Number | None:
    """``+ value``: the number itself, a Byte or Short as an int."""
    kind = type(value)
    if kind is Byte or kind is Short:
        return int(value)  # type: ignore[arg-type]
    return value if kind in NUMBERS else None  # type: ignore[return-value]


OPERATIONS: dict[str, Callable[[PropertyValue, PropertyValue], Number | None]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
}
