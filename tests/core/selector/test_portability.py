"""Where others differ, and that what is proposed instead means the same here."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_core.message.values import Byte, Float, Long
from sievemq_core.selector import CompiledSelector, compile_selector
from sievemq_core.selector.portability import PROVIDERS, PortabilityNote

HEADERS = ("ID:1", 5, 4, 2, 0, 0, None, None, "T")
#: A letter per provider, in the order of PROVIDERS.
LETTERS = dict(zip(PROVIDERS, "CARIQ", strict=True))


def valid(text: str, dialect: str = "jakarta") -> CompiledSelector:
    selector = compile_selector(text, dialect)
    assert selector is not None
    return selector


def brief(note: PortabilityNote) -> tuple[str, str, str | None]:
    return "".join(LETTERS[provider] for provider in note.providers), note.code, note.rewrite


#: selector -> (providers, decision, rewrite) of each note
NOTES: dict[str, list[tuple[str, str, str | None]]] = {
    "region = 'EU' AND price > 12.5 AND coupon IS NULL": [],
    "flag AND NOT other": [("CAQ", "D-07", "other = FALSE")],
    "NOT (flag OR other)": [("CAQ", "D-07", None), ("CAQ", "D-07", None), ("Q", "D-05", None)],
    "NOT JMSType": [("CAQ", "D-07", "JMSType = FALSE"), ("R", "D-08", None)],
    "a / 2 = 3": [("CARQ", "D-01", "a / 2.0")],
    "a / 2.0 = 3": [],
    "a / b = 3": [("CARQ", "D-01", None)],
    "a * 10 = 1": [("CAQ", "D-01", None)],
    "a * 10.0 = 1": [],
    "a + 7L > 0": [("CAQ", "D-01", None), ("CAQ", "D-01", None), ("R", "D-10", "7")],
    "a > -2147483648": [],
    "-2147483648 - a < 0": [("CAQ", "D-01", None), ("CAQ", "D-01", None)],
    "2 * -0x80000000 = 0": [("CAQ", "D-01", None), ("R", "D-10", "-2147483648")],
    "- -2147483648 < a": [("CAQ", "D-01", None), ("CAQ", "D-01", "a > - -2147483648")],
    "-a = -5": [("CAQ", "D-01", None)],
    "a = -0.0": [("CAQ", "D-01", "0.0")],
    "a = -0x8000000000000000": [
        ("CAQ", "D-10", "-9223372036854775808"),
        ("R", "D-10", "-9223372036854775808"),
    ],
    "a - 1 > 2 OR b = 5": [("CAQ", "D-01", None), ("CAQ", "D-14", None), ("I", "D-15", None)],
    "a - 1.0 > 2": [],
    "a NOT BETWEEN b - 1.0 AND 5": [
        ("CAQ", "D-14", None),
        ("I", "D-05", "(a < b - 1.0 OR a > 5)"),
        ("R", "limits", "(a < b - 1.0 OR a > 5)"),
    ],
    "a + 1.0 = b": [
        ("CAQ", "D-01", None),
        ("CAQ", "D-05", "(a IS NOT NULL AND a + 1.0 = b)"),
        ("CAQ", "D-14", None),
    ],
    "a + 1.0 < 2 + b * 2.0": [],
    "NOT a = 1": [
        ("CA", "D-03", "NOT (a = 1)"),
        ("I", "D-15", None),
        ("Q", "D-05", "(a >= 1 AND a <= 1)"),
    ],
    "NOT (a = 1)": [("I", "D-15", None), ("Q", "D-05", "(a >= 1 AND a <= 1)")],
    "NOT (1 = a)": [
        ("CAQ", "D-01", "a = 1"),
        ("CAQ", "D-05", "(a >= 1 AND a <= 1)"),
        ("I", "D-15", None),
    ],
    "NOT ('x' = a)": [("CAQ", "D-05", "(a LIKE '%' AND a = 'x')"), ("I", "D-15", None)],
    "NOT (TRUE = a)": [("CAQ", "D-05", None), ("I", "D-15", None)],
    "NOT (a = b)": [
        ("CAQ", "D-01", None),
        ("CAQ", "D-05", None),
        ("I", "D-15", None),
    ],
    "NOT (a * 2.0 = 4 AND b)": [
        ("CAQ", "D-07", None),
        ("CAQ", "D-14", None),
        ("I", "D-15", None),
        ("Q", "D-05", None),
        ("Q", "D-05", None),
    ],
    "NOT a < 1": [("CA", "D-03", "NOT (a < 1)"), ("I", "D-15", None)],
    "NOT (a + 1) * 2 = 4": [
        ("CA", "D-03", "NOT ((a + 1) * 2 = 4)"),
        ("CAQ", "D-01", None),
        ("I", "D-15", None),
        ("Q", "D-05", None),
    ],
    "NOT ((a + 1) * 2 = 33554432)": [
        ("CAQ", "D-01", None),
        ("I", "D-15", None),
        ("Q", "D-05", None),
    ],
    "NOT a IS NULL": [("CA", "D-03", "NOT (a IS NULL)")],
    "NOT a": [("CAQ", "D-07", "a = FALSE")],
    "NOT NOT a": [],
    "NOT (NOT (a <> b))": [
        ("CAQ", "D-01", None),
        ("CAQ", "D-05", "(a IS NOT NULL AND b IS NOT NULL AND a <> b)"),
        ("CARQ", "D-04", None),
        ("I", "D-15", None),
    ],
    "NOT (a <> b)": [
        ("CAQ", "D-01", None),
        ("CAQ", "D-05", None),
        ("CARQ", "D-04", None),
        ("I", "D-15", None),
    ],
    "NOT (a NOT IN ('x'))": [
        ("CAQ", "D-04", "(a LIKE '%' AND a NOT IN ('x'))"),
        ("R", "D-04", "(a LIKE '%' AND a NOT IN ('x'))"),
    ],
    "NOT (a NOT LIKE 'x')": [("CAQ", "D-04", "(a LIKE '%' AND a NOT LIKE 'x')")],
    "NOT (a BETWEEN 1 AND 2)": [
        ("I", "D-05", "(a >= 1 AND a <= 2)"),
        ("Q", "D-05", None),
        ("R", "limits", "(a >= 1 AND a <= 2)"),
    ],
    "JMSType - 1.0 > 5 OR a": [
        ("CAQ", "D-14", None),
        ("R", "D-08", None),
    ],
    "a <> 5": [("CARQ", "D-04", "(a < 5 OR a > 5)"), ("Q", "D-05", "(a < 5 OR a > 5)")],
    "-5 <> a": [
        ("CAQ", "D-01", "a <> -5"),
        ("CAQ", "D-05", "(a < -5 OR a > -5)"),
        ("CARQ", "D-04", "(a < -5 OR a > -5)"),
    ],
    "'x' <> a": [
        ("CAQ", "D-05", "(a LIKE '%' AND a <> 'x')"),
        ("CARQ", "D-04", "(a LIKE '%' AND a <> 'x')"),
    ],
    "a <> b": [
        ("CAQ", "D-01", None),
        ("CAQ", "D-05", "(a IS NOT NULL AND b IS NOT NULL AND a <> b)"),
        ("CARQ", "D-04", None),
    ],
    "a <> 'x'": [
        ("CARQ", "D-04", "(a LIKE '%' AND a <> 'x')"),
        ("Q", "D-05", "(a LIKE '%' AND a <> 'x')"),
    ],
    "a <> TRUE": [("CARQ", "D-04", "a = FALSE"), ("Q", "D-05", "a = FALSE")],
    "JMSPriority <> '5'": [("CARQ", "D-04", "(JMSPriority LIKE '%' AND JMSPriority <> '5')"), ("R", "D-08", None)],
    "JMSDeliveryMode <> 2": [
        ("CARQ", "D-04", "(JMSDeliveryMode < 2 OR JMSDeliveryMode > 2)"),
        ("R", "D-08", None),
    ],
    "NOT (a NOT BETWEEN 1 AND 2)": [
        ("Q", "D-05", None),
        ("R", "limits", "(a < 1 OR a > 2)"),
    ],
    "JMSPriority <> 5": [("R", "D-08", None)],
    "a NOT BETWEEN 1 AND 2": [("I", "D-05", "(a < 1 OR a > 2)"), ("R", "limits", "(a < 1 OR a > 2)")],
    "a BETWEEN 1 AND 2": [("R", "limits", "(a >= 1 AND a <= 2)")],
    "a BETWEEN b AND 2": [
        ("CAQ", "D-01", None),
        ("CAQ", "D-04", "(a >= -1E308 AND a BETWEEN b AND 2)"),
        ("R", "limits", "(a >= b AND a <= 2)"),
    ],
    "a = b": [("CAQ", "D-01", None), ("CAQ", "D-05", "(a IS NOT NULL AND a = b)")],
    "a < b": [("CAQ", "D-01", "a < b * 1"), ("CARQ", "D-04", "(a >= -1E308 AND a < b)")],
    "JMSType < a": [
        ("CARQ", "D-04", "(JMSType >= -1E308 AND JMSType < a)"),
        ("R", "D-08", None),
    ],
    "5 > b": [("CAQ", "D-01", "b < 5")],
    "'x' = b": [],
    "5.0 > +b": [("CAQ", "D-01", "+b < 5.0")],
    "grö\u00dfe = 1": [("CARQ", "D-09", None)],
    "xpath = 1": [("CA", "D-09", None)],
    "a = 0x1F": [("R", "D-10", "31")],
    "a = 017": [("R", "D-10", "15")],
    "a = 5L": [("R", "D-10", "5")],
    "a = 1_000": [("CARIQ", "D-10", "1000")],
    "a = 0b101": [("CARIQ", "D-10", "5")],
    "a = 1.5d": [("CARIQ", "D-10", "1.5")],
    "a = -1.5f": [("CARIQ", "D-10", "1.5")],
    "a = 7. AND b > .5 AND c < 7E3 AND d = -9223372036854775808 AND e = 0": [],
    "a LIKE 'x!_%' ESCAPE '!'": [],
    "a LIKE 'x!y!_%' ESCAPE '!'": [("CA", "ESCAPE", "a LIKE 'xy!_%' ESCAPE '!'")],
    "a LIKE 'x!y' ESCAPE '!'": [("CA", "ESCAPE", "a LIKE 'xy'")],
    "a LIKE 'x!!y' ESCAPE '!'": [],
    "a LIKE '€€%' ESCAPE '€'": [("CAQ", "ESCAPE", None)],
    "a LIKE '😀_' ESCAPE '😀'": [("CAQ", "ESCAPE", None)],
    "a = 01.5 OR TRUE": [("I", "D-15", None), ("R", "D-10", "1.5")],
    "a NOT LIKE 'x%'": [("CAQ", "D-04", "(a LIKE '%' AND a NOT LIKE 'x%')")],
    "JMSType NOT LIKE 'x%'": [("R", "D-08", None)],
    "JMSPriority NOT LIKE '5'": [
        ("CAQ", "D-04", "(JMSPriority LIKE '%' AND JMSPriority NOT LIKE '5')"),
        ("R", "D-08", None),
    ],
    "NOT (a IN ('x'))": [("CAQ", "D-04", "(a LIKE '%' AND a IN ('x'))")],
    "a NOT IN ('x', 'y')": [("R", "D-04", "(a LIKE '%' AND a NOT IN ('x', 'y'))")],
    "JMSDeliveryMode = 'PERSISTENT' OR JMSPriority > 4 OR JMSPriority < 2": [("R", "D-08", None), ("R", "D-08", None)],
    "a > 1 OR b = 2": [("I", "D-15", None)],
    "(a > 1 OR b = 2) AND (c OR d)": [("I", "D-15", None)],
}  # fmt: skip


@pytest.mark.parametrize("text", NOTES)
def test_notes(text: str) -> None:
    notes = valid(text).portability()
    assert sorted(map(brief, notes), key=str) == sorted(NOTES[text], key=str)
    assert [note.span for note in notes] == sorted(note.span for note in notes)
    for note in notes:
        assert text[slice(*note.span)]
        assert note.message in str(note)
        assert note.as_dict()["rewrite"] == note.rewrite


def test_a_long_chain_of_equalities_has_the_notes_of_its_terms() -> None:
    """Each once, about the chain."""
    chain = " OR ".join(f"a = {n}" for n in range(20))
    short, long = valid("a = 1 OR a = 2").portability(), valid(chain).portability()
    assert {note.code for note in long} == {note.code for note in short}
    assert {note.span for note in long} == {(0, len(chain))}
    assert len(valid(f"NOT ({chain}) AND b").portability()) < 10


def test_limits_of_rabbitmq() -> None:
    (note,) = valid("a = 'x' OR " * 51 + "a = 'x'").portability()[:1]
    assert note.code == "D-15"
    long = [note.message for note in valid("a = 'x' AND " * 51 + "a = 'x'").portability()]
    assert long == ["a filter has at most 200 tokens, this 207"]
    large = [note.message for note in valid(f"a = '{'x' * 5_000}'").portability()]
    assert large == ["a filter has at most 4,096 characters"]


def test_a_dialect_is_no_different_from_its_own_provider() -> None:
    assert all("IBM MQ" not in note.providers for note in valid("a > 1 OR b BETWEEN 1 AND 2", "ibm-mq").portability())


VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    5,
    4,
    -5,
    15,
    31,
    5.0,
    1.5,
    "x",
    "xy",
    "",
    "x_y",
    Byte(5),
    Long(5),
    Float(1.5),
]


@pytest.mark.parametrize("text", [text for text in NOTES if "/" not in text])
def test_a_rewrite_selects_the_same(text: str) -> None:
    """For one property and two: whatever the types are, the part replaced, the selector is TRUE as often as before."""
    for note in valid(text).portability():
        start, end = note.span
        if note.rewrite is None or text.startswith("NOT (a NOT"):  # there it is FALSE instead of UNKNOWN that differs
            continue
        same = valid(text[:start] + note.rewrite + text[end:])
        for a in VALUES:
            for b in VALUES if "b" in text else [None]:
                properties = {name: value for name, value in (("a", a), ("b", b)) if value is not None}
                assert same.function(properties, HEADERS) == valid(text).function(properties, HEADERS), properties


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("NOT ((a)) AND b", "NOT ((a))"),
        ("b AND (a) <> (5)", "(a) <> (5)"),
        ("(((a)) <> ')' OR b)", "((a)) <> ')'"),
        ("NOT ( a / 2 = 3)", "a / 2"),
        ("( (a) + 1) / ( b - (c)) > 5", "( (a) + 1) / ( b - (c))"),
    ],
)
def test_a_span_has_its_parentheses(text: str, part: str) -> None:
    """So that the rewrite can be put in its place."""
    assert part in [text[slice(*note.span)] for note in valid(text).portability()]
    for note in valid(text).portability():
        if note.rewrite is not None:
            valid(text[: note.span[0]] + note.rewrite + text[note.span[1] :])
