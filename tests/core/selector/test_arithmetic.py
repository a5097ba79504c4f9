"""Java's numbers against referees that know nothing of ours: ctypes for wrapping, exact fractions for rounding."""

from __future__ import annotations

import ctypes
import math
import struct
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq_core.message.values import Byte, Float, Long, Short, letter_of
from sievemq_core.selector.arithmetic import (
    COMPARE,
    add,
    comparable,
    compare_numbers,
    divide,
    is_false,
    is_true,
    multiply,
    negate,
    promote,
    subtract,
    to_float,
)

ints = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-5, 5), st.sampled_from([-(2**31), 2**31 - 1]))
longs = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1]), st.integers(-5, 5))
doubles = st.floats(allow_nan=True, allow_infinity=True)


def held(value: int) -> int:
    """A long as a message holds it."""
    return Long(value) if -(2**31) <= value < 2**31 else value


@given(ints, ints)
def test_int_operations_wrap_at_32_bits(a: int, b: int) -> None:
    assert add(a, b) == ctypes.c_int32(a + b).value
    assert subtract(a, b) == ctypes.c_int32(a - b).value
    assert multiply(a, b) == ctypes.c_int32(a * b).value
    assert negate(a) == ctypes.c_int32(-a).value
    assert {letter_of(x) for x in (add(a, b), subtract(a, b), multiply(a, b), negate(a))} == {"i"}


@given(longs, longs)
def test_long_operations_wrap_at_64_bits_and_stay_long(a: int, b: int) -> None:
    a, b = held(a), held(b)
    assert add(a, b) == ctypes.c_int64(int(a) + int(b)).value
    assert subtract(a, b) == ctypes.c_int64(int(a) - int(b)).value
    assert multiply(a, b) == ctypes.c_int64(int(a) * int(b)).value
    assert negate(a) == ctypes.c_int64(-int(a)).value
    assert {letter_of(x) for x in (add(a, b), subtract(a, b), multiply(a, b), negate(a))} == {"l"}


@given(longs, longs.filter(bool))
def test_integer_division_truncates(a: int, b: int) -> None:
    exact = Fraction(a, b)
    assert divide(held(a), held(b)) == ctypes.c_int64(math.trunc(exact)).value


@given(doubles, doubles)
def test_double_operations_are_ieee(a: float, b: float) -> None:
    assert same(add(a, b), a + b)
    assert same(subtract(a, b), a - b)
    assert same(multiply(a, b), a * b)
    if b != 0:
        assert same(divide(a, b), a / b)


def same(one: Any, other: Any) -> bool:
    return (one != one and other != other) or (one == other and math.copysign(1, one) == math.copysign(1, other))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1.0, 0, math.inf), (-1.0, 0, -math.inf), (1.0, -0.0, -math.inf), (-1.0, -0.0, math.inf), (1, 0.0, math.inf),
        (0.0, 0, math.nan), (0, 0.0, math.nan), (math.nan, 0, math.nan), (math.inf, 0, math.inf),
        (math.inf, math.inf, math.nan), (1, 0, None), (Long(1), 0, None), (Byte(1), Short(0), None),
        (Float(1.0), 0, math.inf), (0, Byte(0), None),
    ],
)  # fmt: skip
def test_division_by_zero(a: Any, b: Any, expected: Any) -> None:
    """D-02: integers give NULL, floating operands infinity or NaN."""
    result = divide(a, b)
    assert (result is None) if expected is None else same(result, expected)


@given(longs)
def test_an_integer_becomes_the_nearest_float(value: int) -> None:
    """Against the definition: no other float is nearer, and a tie goes to the even one."""
    result = to_float(value)
    assert struct.unpack(">f", struct.pack(">f", result))[0] == result
    bits = struct.unpack(">i", struct.pack(">f", abs(result)))[0]
    distance = abs(Fraction(result) - value)
    for neighbour in (bits - 1, bits + 1):
        if 0 <= neighbour < 0x7F800000:
            other = math.copysign(struct.unpack(">f", struct.pack(">i", neighbour))[0], result)
            further = abs(Fraction(other) - value)
            assert distance < further or (distance == further and bits % 2 == 0)


@given(longs, doubles.filter(lambda x: x == x))
def test_a_long_is_compared_with_a_double_as_a_double(a: int, b: float) -> None:
    for op, function in COMPARE.items():
        assert compare_numbers(op, held(a), b) is function(float(a), b)
        assert compare_numbers(op, b, held(a)) is function(b, float(a))


@given(ints, st.floats(width=32, allow_nan=False))
def test_an_int_is_compared_with_a_float_as_a_float(a: int, b: float) -> None:
    single = ctypes.c_float(a).value
    for op, function in COMPARE.items():
        assert compare_numbers(op, a, Float(b)) is function(single, b)


@given(st.floats(width=32), st.floats(width=32))
def test_float_operations_are_rounded_to_float(a: float, b: float) -> None:
    assert same(add(Float(a), Float(b)), ctypes.c_float(a + b).value)
    assert same(multiply(Float(a), Float(b)), ctypes.c_float(a * b).value)
    assert type(add(Float(a), Float(b))) is Float


@pytest.mark.parametrize(
    ("value", "letter"),
    [(Byte(1), "i"), (Short(1), "i"), (1, "i"), (Long(1), "l"), (2**40, "l"), (Float(1.0), "f"), (1.0, "d")],
)
def test_signs_promote(value: Any, letter: str) -> None:
    assert letter_of(promote(value)) == letter_of(negate(value)) == letter
    assert negate(value) == -value


NOT_NUMBERS: list[Any] = [None, True, False, "1", ""]


@pytest.mark.parametrize("other", NOT_NUMBERS)
@pytest.mark.parametrize("operation", [add, subtract, multiply, divide])
def test_arithmetic_with_no_number_is_null(operation: Any, other: Any) -> None:
    for number in (1, 1.5, Long(1), Float(1.0), Byte(1)):
        assert operation(number, other) is None
        assert operation(other, number) is None
    assert negate(other) is None
    assert promote(other) is None


def test_true_false_and_comparable_over_all_kinds() -> None:
    """A comparison is TRUE, FALSE or (with NULL) neither; unlike types are FALSE."""
    kinds: list[Any] = [None, True, 1, "1"]
    for op in COMPARE:
        for a in kinds:
            for b in kinds:
                assert not (is_true(op, a, b) and is_false(op, a, b))
                assert (is_true(op, a, b) or is_false(op, a, b)) is (a is not None and b is not None)
                assert comparable(op, a, b) or is_false(op, a, b)
    assert not comparable("<", "a", "b")
    assert comparable("=", "a", "b")
    assert not comparable("=", True, 1)
