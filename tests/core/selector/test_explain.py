"""Selectors that explain themselves."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_core.message.values import Long
from sievemq_core.selector import compile_selector
from sievemq_core.selector.compiled import CompiledSelector

HEADERS = ("ID:1", 5, 4, 2, 0, 0, None, None, "T")


def valid(text: str, dialect: str = "jakarta") -> CompiledSelector:
    selector = compile_selector(text, dialect)
    assert selector is not None
    return selector


def test_an_explanation_as_text() -> None:
    selector = valid("region = 'EU' AND (price > 12 OR NOT urgent) AND size <> 5")
    explanation = selector.explain({"region": "EU", "price": Long(9), "size": "5"}, HEADERS)
    assert str(explanation) == (
        "FALSE   region = 'EU' AND (price > 12 OR NOT urgent) AND size <> 5\n"
        "TRUE      region = 'EU'                                             region is 'EU'\n"
        "UNKNOWN   price > 12 OR NOT urgent\n"
        "FALSE       price > 12                                              price is 9L (long)\n"
        "UNKNOWN     NOT urgent\n"
        "UNKNOWN       urgent                                                urgent is missing\n"
        "FALSE     size <> 5                                                 "
        "size is '5', unlike types, so the operation is FALSE"
    )
    assert explanation.truth is False


REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "a = 1": ({"a": None}, "a is null"),
    "a < b": ({"a": 1, "b": 2.5}, "a is 1 (int), b is 2.5 (double)"),
    "a + a > 1": ({"a": 1}, "a is 1 (int)"),
    "JMSType = 'x'": ({}, "JMSType is 'T'"),
    "JMSCorrelationID IS NULL": ({}, "JMSCorrelationID is null"),
    "JMSDeliveryMode = 'PERSISTENT'": ({}, "JMSDeliveryMode is 'PERSISTENT'"),
    "a IN ('x')": ({"a": True}, "a is TRUE (boolean), unlike types, so the operation is FALSE"),
    "a NOT LIKE 'x'": ({"a": 5}, "a is 5 (int), unlike types, so the operation is FALSE"),
    "a BETWEEN 1 AND b": ({"a": "x", "b": 2}, "a is 'x', b is 2 (int), unlike types, so the operation is FALSE"),
    "a": ({"a": 5}, "a is 5 (int), no boolean"),
    "TRUE": ({}, ""),
    "a = 'y'": ({"a": "x" * 100}, f"a is '{'x' * 59}…'"),
}


@pytest.mark.parametrize("text", REASONS)
def test_reasons(text: str) -> None:
    properties, reason = REASONS[text]
    (step,) = valid(text).explain(properties, HEADERS).steps
    assert step.reason == reason
    assert step.truth is valid(text).evaluate(properties, HEADERS)


def test_a_fatal_comparison_of_another_dialect() -> None:
    explanation = valid("a = 1 OR b = 2", "ibm-mq").explain({"a": "x", "b": 2}, HEADERS)
    assert [step.truth for step in explanation.steps] == [False, False, True]
    assert explanation.steps[1].reason == "a is 'x', unlike types, so the whole selector is FALSE"


PORTABILITY = {
    "region = 'EU' AND price > 12.5": [],
    "a BETWEEN 1 AND 2": ["D-05"],
    "5 BETWEEN 1 AND 9": [],
    "a <> 1": ["D-04"],
    "JMSType <> 'x'": [],
    "a NOT IN ('x')": ["D-04"],
    "NOT a = 1": ["D-04"],
    "NOT a": [],
    "a / 2 = 1": ["D-01"],
    "JMSDeliveryMode = 'PERSISTENT'": ["D-13"],
    "größe = 1": ["D-09"],
    "a = 0x10 OR a = 017 OR a = 5L OR a = 1_000 OR a = 7. OR a = 1f": ["D-10"] * 6,
    "a = -5 OR a = 7E3 OR a = 0 OR a = -9223372036854775808": [],
}


@pytest.mark.parametrize("text", PORTABILITY)
def test_portability(text: str) -> None:
    notes = valid(text).portability()
    assert [note.code for note in notes] == PORTABILITY[text]
    assert all(text[note.span[0] : note.span[1]] for note in notes)
