"""Where others differ, and that what is proposed instead means the same here."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_core.message.values import Byte, Float, Long
from sievemq_core.selector import PROVIDERS, CompiledSelector, PortabilityNote, compile_selector

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
    "flag AND NOT other": [],
    "a / 2 = 3": [("CARQ", "D-01", "a / 2.0")],
    "a / 2.0 = 3": [],
    "a / b = 3": [("CARQ", "D-01", None)],
    "NOT a = 1": [("CA", "D-03", "NOT (a = 1)"), ("I", "D-15", None)],
    "NOT (a = 1)": [("I", "D-15", None)],
    "NOT (a + 1) * 2 = 4": [("CA", "D-03", "NOT ((a + 1) * 2 = 4)"), ("I", "D-15", None)],
    "NOT ((a + 1) * 2 = 4)": [("I", "D-15", None)],
    "NOT a IS NULL": [("CA", "D-03", "NOT (a IS NULL)")],
    "NOT a": [],
    "a <> 5": [("CARQ", "D-04", "(a < 5 OR a > 5)")],
    "-5 <> a": [("CAQ", "D-01", "a <> -5"), ("CARQ", "D-04", "(a < -5 OR a > -5)")],
    "a <> 'x'": [("CARQ", "D-04", "(a LIKE '%' AND a <> 'x')")],
    "a <> TRUE": [("CARQ", "D-04", "a = FALSE")],
    "JMSPriority <> 5": [("R", "D-08", None)],
    "NOT (a NOT BETWEEN 1 AND 2)": [
        ("I", "D-05", "(a < 1 OR a > 2)"),
        ("R", "limits", "(a < 1 OR a > 2)"),
    ],
    "a NOT BETWEEN 1 AND 2": [("I", "D-05", "(a < 1 OR a > 2)"), ("R", "limits", "(a < 1 OR a > 2)")],
    "a BETWEEN 1 AND 2": [("R", "limits", "(a >= 1 AND a <= 2)")],
    "a = b": [("CA", "D-05", "(a IS NOT NULL AND a = b)"), ("CAQ", "D-01", "(a = b OR b = a)")],
    "a < b": [("CAQ", "D-01", "a < b + 0"), ("CARQ", "D-04", "(a >= -1E308 AND a < b)")],
    "5 > b": [("CAQ", "D-01", "b < 5")],
    "'x' = b": [],
    "grö\u00dfe = 1": [("CARQ", "D-09", None)],
    "a = 0x1F": [("R", "D-10", "31")],
    "a = 017": [("R", "D-10", "15")],
    "a = 5L": [("R", "D-10", "5")],
    "a = 1_000": [("CARIQ", "D-10", "1000")],
    "a = 0b101": [("CARIQ", "D-10", "5")],
    "a = 1.5d": [("CARIQ", "D-10", "1.5")],
    "a = -1.5f": [("CARIQ", "D-10", "1.5")],
    "a = 7. AND b > .5 AND c < 7E3 AND d = -9223372036854775808 AND e = 0": [],
    "a LIKE 'x!_%' ESCAPE '!'": [],
    "a LIKE 'x!y!_%' ESCAPE '!'": [("C", "ESCAPE", "a LIKE 'xy!_%' ESCAPE '!'")],
    "a LIKE 'x!y' ESCAPE '!'": [("C", "ESCAPE", "a LIKE 'xy'")],
    "a NOT LIKE 'x%'": [("CAQ", "D-04", "(a LIKE '%' AND a NOT LIKE 'x%')")],
    "JMSType NOT LIKE 'x%'": [("R", "D-08", None)],
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
