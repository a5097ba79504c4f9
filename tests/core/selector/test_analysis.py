"""Contradictions and tautologies: found where they are certain, and only there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sievemq_core.message.values import Byte, Float, Long
from sievemq_core.selector import CompiledSelector, compile_selector
from sievemq_core.selector.analysis import STEPS, can_be

HEADERS = ("ID:1", 5, 4, 2, 0, 0, None, None, "T")


def valid(text: str, dialect: str = "jakarta") -> CompiledSelector:
    selector = compile_selector(text, dialect)
    assert selector is not None
    return selector


NEVER = [
    "a = 1 AND a = 2", "x > 5 AND x < 3", "x > 5 AND x < 5", "x > 5 AND x <= 5", "x >= 5 AND x < 5",
    "a = 1 AND a <> 1", "a = 'x' AND a <> 'x'", "a = 'x' AND a = 5", "a = TRUE AND a = 1", "a AND NOT a",
    "a AND a = 'x'",
    "a IS NULL AND a = 1", "a IS NULL AND a IS NOT NULL", "a IS NULL AND NOT a = 1", "a IS NULL AND a LIKE '%'",
    "a IS NULL AND b + a > 1", "a IS NULL AND a <> b", "a IS NULL AND (a = 1 OR a = 2)", "a IS NULL AND NOT a IN ('x')",
    "a IN ('x', 'y') AND a NOT IN ('x', 'y', 'z')", "a IN ('x') AND a = 'y'", "a LIKE 'x%' AND a LIKE 'y%'",
    "a LIKE 'x%' AND a = 'y'", "a LIKE 'x%' AND a NOT LIKE 'x%'", "a LIKE 'x%' AND a > 5", "a LIKE 'x%' AND a",
    "a LIKE 'x' AND a NOT LIKE 'x'", "a NOT LIKE '%'", "a BETWEEN 1 AND 2 AND a > 3",
    "a NOT BETWEEN 1 AND 2 AND a = 1.5",
    "a > 1 AND NOT a > 0", "NOT (a = 1 OR NOT a = 1)", "NOT (a <> 1 OR a = 1 OR a IS NULL) AND a > 0",
    "a < b AND a > b", "a = b AND b <> a", "a < b AND b < a", "a <= b AND NOT b >= a", "a < a",
    "a + 1 > 5 AND a + 1 < 3",
    "a + 1 = 2 AND a + 1 <> 2", "(a = 1 OR a = 2) AND (a = 3 OR a = 4) AND a < 3",
    "a = 1 AND (a = 2 OR a = 3)", "JMSPriority > 9", "JMSPriority = -1", "JMSPriority < 5 AND JMSPriority > 6",
    "JMSDeliveryMode = 'PERSISTENT' AND JMSDeliveryMode = 'NON_PERSISTENT'", "JMSType = 5", "a = 1 / 0", "FALSE",
    "a = 0.1 AND a = 0.2f", "a = 'x' AND b > 1 AND NOT a = 'x'",
]  # fmt: skip
ALWAYS = [
    "TRUE", "a IS NULL OR a IS NOT NULL", "JMSPriority >= 0", "JMSPriority BETWEEN 0 AND 9",
    "JMSPriority < 5 OR JMSPriority >= 5", "a = 1 OR NOT a = 1 OR a IS NULL", "JMSDeliveryMode IS NOT NULL",
    "a IS NULL OR a > 1 OR NOT a > 1", "JMSDeliveryMode = 'PERSISTENT' OR JMSDeliveryMode <> 'PERSISTENT'",
    "a IS NULL OR a LIKE 'x%' OR NOT a LIKE 'x%'",
]  # fmt: skip
NEITHER = [
    "a = 1", "a = 1 OR a <> 1", "a >= 5 AND a <= 5", "a = a", "a <> a", "a <= b AND b <= a", "a > 1 OR a <= 1",
    "a = 0.1 AND a = 0.1f OR b = 1", "a > 9007199254740992 AND a < 9007199254740993", "a LIKE 'x%' AND a LIKE 'xy%'",
    "a LIKE '%x' AND a LIKE 'y%'", "NOT a < 5 AND NOT a > 4", "NOT a < 5 AND NOT a >= 5", "a IS NULL OR b = 1",
    "(a = 1 OR b = 2) AND (a = 2 OR b = 3)", "a <> 1 AND a <> 2", "NOT a = 1 AND a <> 2", "a NOT IN ('x') AND a <> 'y'",
    "a = 16777217 AND a = 16777216.0f OR b", "JMSPriority = 9", "JMSCorrelationID IS NULL", "NOT a AND NOT b",
]  # fmt: skip


@pytest.mark.parametrize("text", NEVER)
def test_never(text: str) -> None:
    selector = valid(text)
    assert selector.warnings[-1].code == "never-matches"
    assert not any(selector.function({"a": a, "b": b}, HEADERS) for a in VALUES for b in VALUES)


@pytest.mark.parametrize("text", ALWAYS)
def test_always(text: str) -> None:
    selector = valid(text)
    assert selector.warnings[-1].code == "always-matches"
    assert all(selector.function({"a": a, "b": b}, HEADERS) for a in VALUES for b in VALUES)


@pytest.mark.parametrize("text", NEITHER)
def test_neither(text: str) -> None:
    assert not {"never-matches", "always-matches"} & {warning.code for warning in valid(text).warnings}


PARTS = {
    "b = 1 OR (a > 5 AND a < 3)": [("never-true", "a > 5 AND a < 3")],
    "b = 1 AND (a IS NULL OR a IS NOT NULL)": [("always-true", "a IS NULL OR a IS NOT NULL")],
    "c AND (a = 1 AND a = 2 OR b = 1 AND JMSPriority >= 0)": [
        ("never-true", "a = 1 AND a = 2"),
        ("always-true", "JMSPriority >= 0"),
    ],
    "a = 1 OR b = 2": [],
}


@pytest.mark.parametrize("text", PARTS)
def test_parts_that_can_be_left_out(text: str) -> None:
    assert [(warning.code, text[slice(*warning.span)]) for warning in valid(text).warnings] == PARTS[text]


def test_dialects_have_their_own_contradictions() -> None:
    """With NULL `a BETWEEN 1 AND 2` is FALSE for IBM MQ, so its negation can be TRUE."""
    text = "a IS NULL AND NOT a BETWEEN 1 AND 2"
    assert [warning.code for warning in valid(text).warnings] == ["never-matches"]
    assert valid(text, "ibm-mq").warnings == ()
    assert [warning.code for warning in valid("a = 5 AND a IS NULL", "mqe").warnings] == ["never-matches"]


def test_warnings_are_never_refusals_and_the_search_ends() -> None:
    text = " AND ".join(f"(a = {n} OR b = {n} OR c = {n})" for n in range(30))
    assert valid(text).warnings == ()  # no message can match, but to see that takes more than a look at each name
    deep = " AND ".join(f"(a{n} = {n} OR b{n} = {n})" for n in range(40))
    assert valid(deep).warnings == ()
    assert STEPS <= 1_000


VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, 5, 1.5, -0.0, float("nan"), float("inf"), "x", "xy", "y", "", Byte(1), Long(5),
    Float(0.1), 0.1, 2**24 + 1, 2**53 + 1,
]  # fmt: skip
ATOMS = [
    "a = 1", "a = 2", "a <> 1", "a > 1", "a <= 1", "a < 1.5", "a >= 2", "a = 'x'", "a <> 'x'", "a", "a = TRUE",
    "a IS NULL",
    "a IS NOT NULL", "a IN ('x', 'y')", "a NOT IN ('x')", "a LIKE 'x%'", "a NOT LIKE 'x%'", "a LIKE 'y%'", "a LIKE '%'",
    "a BETWEEN 1 AND 2", "a NOT BETWEEN 1 AND 2", "a < b", "a > b", "a = b", "b <> a", "b = 1", "b > 1", "a + b > 2",
    "a + b = 2", "a + 0 <= 1", "a = 0.1", "a = 0.1f", "a = 16777217", "a > 9007199254740992", "JMSPriority > 4",
    "JMSType = 'T'", "JMSDeliveryMode <> 'PERSISTENT'", "a = 9007199254740993", "a <> FALSE", "a < a", "a = a",
]  # fmt: skip
SELECTORS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=400)
@given(SELECTORS, st.sampled_from(["jakarta", "ibm-mq"]))
@example("NOT (a = b OR b <> a)", "jakarta")  # neither is TRUE of unlike types
@example("a = b AND NOT a <= b", "jakarta")  # strings have no order
def test_conclusions_are_true(text: str, dialect: str) -> None:
    selector = valid(text, dialect)
    for truth in (True, False):
        if not can_be(selector.plan, truth):
            for a in VALUES:
                for b in (None, 1, 2.5, "x", False):
                    assert selector.function({"a": a, "b": b}, HEADERS) is not truth
