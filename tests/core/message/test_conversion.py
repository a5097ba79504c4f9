"""The conversion table as data: it is complete, and what applies it says what went wrong."""

from __future__ import annotations

import re

import pytest

from sievemq_core.errors import FormatError, NullValueError, NumberFormatError
from sievemq_core.message.conversion import CONVERSIONS, TABLE, convert
from sievemq_core.message.headers import HEADERS, JMSX, ON_RECEIVE, SetBy
from sievemq_core.message.values import TYPE_NAMES, Byte, Char, Float, Long, Short, letter_of

SAMPLES = [True, Byte(1), Short(1), Char("1"), 1, Long(1), Float(1.0), 1.0, "1", b"1"]


def test_the_table_has_every_type_in_row_and_column():
    header, *rows = (line.split() for line in TABLE.strip().splitlines())
    assert sorted(header) == sorted(TYPE_NAMES.values())
    assert [row[0] for row in rows] == header
    assert {cell for row in rows for cell in row[1:]} == {"x", "p", "."}
    assert len(CONVERSIONS) == sum(cell != "." for row in rows for cell in row[1:]) == 32


@pytest.mark.parametrize("value", SAMPLES, ids=repr)
@pytest.mark.parametrize("letter", TYPE_NAMES)
def test_a_conversion_gives_a_plain_value_or_an_error_that_names_both_types(value, letter):
    if letter_of(value) + letter in CONVERSIONS:
        plain = {"z": bool, "f": float, "d": float, "s": str, "c": str, "x": bytes}.get(letter, int)
        assert type(convert(value, letter)) is plain
    else:
        with pytest.raises(FormatError, match=f"{re.escape(TYPE_NAMES[letter_of(value)])} cannot be read as") as raised:
            convert(value, letter)
        assert TYPE_NAMES[letter] in str(raised.value)


def test_errors_of_null_and_text_are_of_their_own_kind():
    for letter in "bhil":
        for value in (None, "x"):
            with pytest.raises(NumberFormatError):
                convert(value, letter)
    for letter in "fdc":
        with pytest.raises(NullValueError):
            convert(None, letter)


def test_an_error_never_repeats_a_huge_text():
    with pytest.raises(NumberFormatError) as raised:
        convert("x" * 100_000, "i")
    assert len(str(raised.value)) < 200


def test_headers_and_jmsx_properties_name_their_setter():
    assert len(HEADERS) == 11
    assert len(JMSX) == 9
    assert {name for name, header in JMSX.items() if header.set_by is SetBy.CLIENT} == {"JMSXGroupID", "JMSXGroupSeq"}
    assert {"JMSXDeliveryCount", "JMSXRcvTimestamp", "JMSXConsumerTXID", "JMSXState"} == ON_RECEIVE
