"""The scalar types: what a wrapper takes, what is held, which letter it has."""

from __future__ import annotations

import math
import pickle

import pytest

from sievemq_core.errors import FormatError, NullValueError, NumberFormatError
from sievemq_core.message.values import (
    Byte,
    Char,
    Double,
    Float,
    Int,
    Long,
    Short,
    hold,
    letter_of,
    normalise,
    normalise_field,
    to_long,
    to_single,
)

WIDTHS = {Byte: 8, Short: 16, Int: 32, Long: 64}


@pytest.mark.parametrize("kind", WIDTHS)
def test_an_integer_wrapper_checks_its_range(kind):
    top = 2 ** (WIDTHS[kind] - 1)
    assert (kind(top - 1), kind(-top), kind()) == (top - 1, -top, 0)
    for value in (top, -top - 1, 10**5000):
        with pytest.raises(NumberFormatError, match=f"outside {kind.__name__}'s range"):
            kind(value)
    for value in (True, 1.0, "1", None):
        with pytest.raises(NumberFormatError, match="takes an int"):
            kind(value)


@pytest.mark.parametrize("kind", [Float, Double])
def test_a_floating_wrapper_takes_numbers(kind):
    assert kind(1) == 1.0
    assert math.isnan(kind(math.nan))
    for value in (True, "1", None, 10**400):
        with pytest.raises(NumberFormatError):
            kind(value)


def test_a_float_is_single():
    assert Float(0.1) == 0.10000000149011612
    assert (to_single(1e39), to_single(-1e39)) == (math.inf, -math.inf)
    assert Double(0.1) == 0.1


@pytest.mark.parametrize("value", ["", "ab", "😀", 7, None, b"a"])
def test_a_char_is_one_code_unit(value):
    with pytest.raises(NumberFormatError, match="one UTF-16 code unit"):
        Char(value)


@pytest.mark.parametrize("value", [Byte(1), Short(1), Int(1), Long(1), Float(0.5), Double(0.5), Char("c")])
def test_a_wrapper_computes_like_the_plain_value_and_says_its_type(value):
    plain = type(value).__mro__[-2](value)
    assert value == plain
    assert hash(value) == hash(plain)
    assert str(value) == str(plain)
    assert repr(value) == f"{type(value).__name__}({plain!r})"
    assert eval(repr(value)) == value
    again = pickle.loads(pickle.dumps(value))
    assert (type(again), again) == (type(value), value)


@pytest.mark.parametrize(
    ("value", "letter"),
    [
        (True, "z"), (Byte(1), "b"), (Short(1), "h"), (1, "i"), (2**31 - 1, "i"), (-(2**31), "i"), (2**31, "l"),
        (Long(1), "l"), (Float(1.0), "f"), (1.0, "d"), ("x", "s"), (None, "s"), (Char("c"), "c"), (b"x", "x"),
    ],
)  # fmt: skip
def test_letters(value, letter):
    assert letter_of(value) == letter
    if letter not in "cx":
        assert normalise(value) is value
    assert normalise_field(value) is value


@pytest.mark.parametrize("value", [b"x", Char("c"), [1], object(), 2**63, (1,)])
def test_values_that_properties_refuse(value):
    with pytest.raises(FormatError):
        normalise(value)


@pytest.mark.parametrize("value", [[1], {}, object(), 2**63, 1j])
def test_values_that_fields_refuse(value):
    with pytest.raises(FormatError):
        normalise_field(value)


def test_the_wrappers_of_plain_types_become_plain():
    assert type(normalise(Int(5))) is int
    assert type(normalise(Double(0.5))) is float
    assert type(normalise_field(bytearray(b"x"))) is bytes


@pytest.mark.parametrize(
    ("letter", "value", "held"),
    [
        ("z", True, True), ("b", 5, Byte(5)), ("h", Byte(5), Short(5)), ("i", Short(5), 5), ("l", 5, Long(5)),
        ("l", 2**40, 2**40), ("l", Long(2**40), 2**40), ("f", 1, Float(1.0)), ("d", Float(0.5), 0.5), ("d", 1, 1.0),
        ("s", "x", "x"), ("s", None, None), ("c", "x", Char("x")), ("x", bytearray(b"x"), b"x"), ("x", None, None),
    ],
)  # fmt: skip
def test_hold(letter, value, held):
    read = hold(letter, value)
    assert (type(read), read) == (type(held), held)
    if held is not None:
        assert letter_of(read) == letter


@pytest.mark.parametrize(
    ("letter", "value"),
    [("z", 1), ("z", "true"), ("b", 128), ("b", True), ("i", 1.0), ("i", "1"), ("f", True), ("f", "1"), ("d", 10**400),
     ("s", 1), ("s", Char("x")), ("s", b"x"), ("c", "ab"), ("c", 7), ("x", "x"), ("x", 7), ("l", 2**63)],
)  # fmt: skip
def test_hold_refuses(letter, value):
    with pytest.raises(FormatError):
        hold(letter, value)


@pytest.mark.parametrize("letter", "zbhilfdc")
def test_hold_knows_no_null_but_for_text_and_bytes(letter):
    with pytest.raises(NullValueError):
        hold(letter, None)


def test_a_long_is_plain_where_its_size_says_so():
    assert (type(to_long(5)), type(to_long(2**31)), type(to_long(Long(2**31)))) == (Long, int, int)
    for value in (2**63, "1", True, 1.5):
        with pytest.raises(NumberFormatError):
            to_long(value)
