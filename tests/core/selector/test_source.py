"""What an error looks like, and that it survives the wire."""

from __future__ import annotations

import pickle

import pytest

from sievemq_core.errors import ErrorCode, SieveError
from sievemq_core.selector import SelectorError, compile_selector
from sievemq_core.selector.source import WINDOW, render


def error_of(text: str, dialect: str = "jakarta") -> SelectorError:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text, dialect)
    return caught.value


def test_the_whole_text_of_an_error() -> None:
    """What is wrong, what to write instead, and a caret right under it."""
    error = error_of("region = 'EU' AND price != 5")
    assert str(error) == (
        "'!=' is not an operator (write '<>')\n"
        "  region = 'EU' AND price != 5\n"
        "                          ^^"
    )  # fmt: skip
    assert isinstance(error, SieveError)
    assert error.code is ErrorCode.INVALID_SELECTOR
    assert (error.position, error.length, error.expected, error.hint) == (24, 2, None, "write '<>'")
    assert error.selector == "region = 'EU' AND price != 5"


WHOLE = {
    "a = NULL": (
        "the reserved word NULL cannot stand here; expected a value "
        "(a missing value is found with IS NULL or IS NOT NULL)"
    ),
    "a = 1 AND": (
        "the end of the selector cannot stand here; expected a condition "
        "(the selector ends too early: something is missing behind 'AND')"
    ),
    "a BETWEEN 'x' AND 'z'": (
        "BETWEEN works on numbers, not on a string; expected a number "
        "(strings have no order; they can be compared with = and <>, IN and LIKE)"
    ),
    "TRUE = 0": "a boolean is never comparable with a number (only values of one kind can be compared)",
    "trace-id = 'x'": (
        "a number is never comparable with a string (a name has no '-' in it, so this is trace minus something; only "
        'the dialect amqp has such names, in double quotes: "trace-id")'
    ),
    "JMSRedelivered = TRUE": (
        "the header field JMSRedelivered cannot be used in a selector (usable are "
        "JMSCorrelationID, JMSDeliveryMode, JMSMessageID, JMSPriority, JMSTimestamp, JMSType)"
    ),
    "(a = 1": "this parenthesis is never closed; expected ')'",
}


@pytest.mark.parametrize("selector", WHOLE)
def test_first_lines_in_full(selector: str) -> None:
    assert str(error_of(selector)).split("\n")[0] == WHOLE[selector]


@pytest.mark.parametrize(
    "selector",
    [
        "x-trace-id = 'a'", "'a' <> trace-id", "trace-id = TRUE", "order-2 = 'a'", "trace-id > 'a'",
        "trace-id IN ('a')",
        "trace-id LIKE 'a%'", "trace-id IS NULL", "a = 1 AND NOT trace-id = 'a'",
    ],
)  # fmt: skip
def test_a_name_with_a_hyphen_is_known_by_what_it_is_compared_with(selector: str) -> None:
    assert "a name has no '-' in it" in (error_of(selector).hint or "")
    assert "a name has no '-' in it" in (error_of(selector, "amqp").hint or "")


@pytest.mark.parametrize("selector", ["1 - a = 'x'", "a + b = 'x'", "a - (b * 2) = 'x'", "a * b IS NULL"])
def test_other_arithmetic_is_no_name_with_a_hyphen(selector: str) -> None:
    assert "'-'" not in (error_of(selector).hint or "")


def test_a_long_selector_is_shown_in_part() -> None:
    text = "a = 1 AND " * 50 + "b != 2" + " AND c = 3" * 50
    message, line, carets = str(error_of(text)).split("\n")
    assert line.startswith("  …")
    assert line.endswith("…")
    assert len(line) <= WINDOW + 4
    at = carets.index("^")
    assert line[at : at + 2] == "!="
    assert message == "'!=' is not an operator (write '<>')"


def test_of_several_lines_the_wrong_one_is_shown() -> None:
    assert str(error_of("a = 1\n  AND b == 2\nOR c")).split("\n")[1:] == ["    AND b == 2", "          ^^"]
    assert str(error_of("a = 1 AND\r\n")).split("\n")[1:] == ["  ", "  ^"]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in str(error_of("a = \x1b[31m"))
    assert render("a\tb \x07= 1", 4, 1) == "  a b  = 1\n      ^"


@pytest.mark.parametrize("position", [-5, 0, 3, 99])
def test_rendering_survives_any_position(position: int) -> None:
    assert "^" in render("abc", position, 10)
    assert "^" in render("", position, 0)


def test_details_carry_everything_over_the_wire() -> None:
    error = error_of("a IN (1)")
    assert error.details == {
        "position": 6,
        "length": 1,
        "selector": "a IN (1)",
        "expected": "a string",
        "hint": "IN lists strings; for numbers write a = 1 OR a = 2",
        "message": "the number 1 cannot be in a list",
    }
    again = SelectorError.from_details(error.text, error.details)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize(
    "details",
    [{}, {"position": -1, "length": "x", "selector": None}, {"position": True, "message": 7}, {"position": 10**9}],
)
def test_details_from_a_stranger_do_no_harm(details: dict[str, object]) -> None:
    error = SelectorError.from_details("something is wrong\n  a\n  ^", details)
    assert error.message == "something is wrong"
    assert "^" in str(error)


def test_errors_can_be_pickled() -> None:
    """They cross process boundaries in pytest-xdist and Spark."""
    error = error_of("a ==")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.position == error.position


def test_an_oversized_selector_is_not_sent_back_whole() -> None:
    for text in ("a" * 1_000_000, "a = 1" + " AND a == 1" * 40_000, "a IN (" + "'x', " * 60_000):
        error = error_of(text)
        assert len(str(error)) < 400
        assert len(str(error.details["selector"])) < 70_000
    assert "1,000,000 characters" in str(error_of("a" * 1_000_000))
