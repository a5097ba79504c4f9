"""The facts of a selector for an index."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from sievemq_core.message.values import Byte, Float, Long
from sievemq_core.selector import Facts, bucket_key, compile_selector, message_key

TRUE, FALSE = bucket_key(True), bucket_key(False)


def facts(text: str, dialect: str = "jakarta") -> Facts:
    selector = compile_selector(text, dialect)
    assert selector is not None
    return selector.facts


EQUALITIES: dict[str, dict[str, set[Any]]] = {
    "a = 'x'": {"a": {"x"}},
    "'x' = a": {"a": {"x"}},
    "a = 5": {"a": {5}},
    "a = 5.0": {"a": {5}},
    "a = TRUE": {"a": {TRUE}},
    "a": {"a": {TRUE}},
    "NOT a": {"a": {FALSE}},
    "a IN ('x', 'y')": {"a": {"x", "y"}},
    "a LIKE 'x'": {"a": {"x"}},
    "a = 'x' AND b = 2": {"a": {"x"}, "b": {2}},
    "a = 'x' OR a = 'y'": {"a": {"x", "y"}},
    "a = 'x' OR a = 5 OR a = TRUE": {"a": {"x", 5, TRUE}},
    "a = 'x' OR b = 'y'": {},
    "(a = 'x' AND b = 1) OR (a = 'y' AND c = 2)": {"a": {"x", "y"}},
    "(a = 'x' AND b = 1) OR (b = 2 AND a = 'y')": {"a": {"x", "y"}, "b": {1, 2}},
    "a IN ('x', 'y') AND a IN ('y', 'z')": {"a": {"y"}},
    "a = 'x' AND (b = 1 OR c = 2)": {"a": {"x"}},
    "a = 'x' OR FALSE": {"a": {"x"}},
    "a = 'x' OR (a = 'y' AND 1 = 2)": {"a": {"x"}},
    "NOT (a <> 'x')": {},
    "NOT (NOT a = 'x')": {"a": {"x"}},
    "NOT (a IN ('x'))": {},
    "a <> 'x'": {},
    "a > 5": {},
    "a + 1 = 5": {},
    "a = b": {},
    "a = 1 AND a = 2": {"a": set()},
    "a = 1 AND a = 2 AND b = 3": {"a": set(), "b": {3}},
    "a = 2 + 3": {"a": {5}},
    "a = -5": {"a": {-5}},
    "JMSCorrelationID = 'c-1'": {"JMSCorrelationID": {"c-1"}},
    "JMSMessageID IN ('ID:1', 'ID:2')": {"JMSMessageID": {"ID:1", "ID:2"}},
    "JMSType = 'x' AND region = 'EU'": {"JMSType": {"x"}, "region": {"EU"}},
    "JMSDeliveryMode = 'PERSISTENT'": {"JMSDeliveryMode": {"PERSISTENT"}},
    "JMSDeliveryMode <> 'PERSISTENT'": {"JMSDeliveryMode": {"NON_PERSISTENT"}},
    "JMSPriority = 9": {"JMSPriority": {9}},
    # every key that an equal value of any type can have
    "a = 16777217": {"a": {16777217, 16777216.0}},
    "a = 9007199254740993": {"a": {9007199254740993, 9007199254740992.0}},
    # no finite set of keys would do
    "a = 9007199254740992.0": {},
    "a = 2.5f": {"a": {2.5}},
    "a = 16777216f": {},
}


@pytest.mark.parametrize("text", EQUALITIES)
def test_equalities(text: str) -> None:
    assert {name: set(keys) for name, keys in facts(text).equalities} == EQUALITIES[text]


def test_keys_of_unlike_types_never_collide() -> None:
    """TRUE is not 1; numbers of all types meet in one bucket; NULL is in none."""
    assert bucket_key(True) != bucket_key(1)
    assert bucket_key(False) != bucket_key(0)
    assert len({bucket_key(value) for value in (5, 5.0, Byte(5), Long(5), Float(5.0))}) == 1
    assert len({bucket_key(value) for value in ("5", 5, True, False, 0, 1, "TRUE", None)}) == 8
    assert bucket_key(None) is None


def test_the_key_of_a_message() -> None:
    headers = ("ID:1", 99, 7, 1, 0, 0, b"bytes", None, "T")
    names = ["JMSMessageID", "JMSTimestamp", "JMSPriority", "JMSDeliveryMode", "JMSCorrelationID", "JMSType", "a", "b"]
    keys = [message_key(name, {"a": True}, headers) for name in names]
    assert keys == ["ID:1", 99, 7, "NON_PERSISTENT", None, "T", TRUE, None]


def test_names() -> None:
    assert facts("a = 1 AND (b > 2 OR JMSType = c)").names == {"a", "b", "c", "JMSType"}
    assert facts("a = 1 OR TRUE").names == {"a"}
    assert facts("JMSXGroupID = 'x'").uses_properties
    assert not facts("JMSPriority = 1 OR JMSType = 'x'").uses_properties


RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "a > 5": {"a": (5, inf)},
    "a <= 5": {"a": (-inf, 5)},
    "a BETWEEN 1 AND 9": {"a": (1, 9)},
    "a >= 1 AND a < 9 AND a > 3": {"a": (3, 9)},
    "a > 5 OR a < 3": {"a": (-inf, inf)},
    "a BETWEEN 1 AND 2 OR a BETWEEN 5 AND 6": {"a": (1, 6)},
    "a > 5 OR b > 5": {},
    "a <> 5": {},
    "NOT a > 5": {},
    "JMSPriority >= 7": {"JMSPriority": (7, inf)},
}


@pytest.mark.parametrize("constant", [2**24 + 1, 2**31 + 1, 2**53 + 1, 2**62 + 1])
def test_bounds_of_large_numbers_cover_what_rounds_to_them_and_little_more(constant: int) -> None:
    for sign in (1, -1):
        number = sign * constant
        ((_, least),) = facts(f"a >= {number}").ranges
        ((_, most),) = facts(f"a <= {number}").ranges
        for rounded in (float(number), float(Float(number)), number * (1 - 2**-24), number * (1 + 2**-24)):
            assert least.low <= rounded <= most.high
        assert most.high - least.low < constant * 2**-20


@pytest.mark.parametrize("text", RANGES)
def test_ranges(text: str) -> None:
    assert {name: (bounds.low, bounds.high) for name, bounds in facts(text).ranges} == RANGES[text]


def test_prefixes_presence_and_absence() -> None:
    assert facts("a LIKE 'ab%c' AND b > 1").prefixes == (("a", frozenset({"ab"})),)
    assert facts("a LIKE 'ab%' OR a LIKE 'x_%'").prefixes == (("a", frozenset({"ab", "x"})),)
    assert facts("a LIKE '%ab'").prefixes == ()
    assert facts("a <> 'x' AND b IS NULL AND NOT (c > 1)").present == {"a", "c"}
    assert facts("a <> 'x' AND b IS NULL").absent == {"b"}
    assert facts("a = 1 OR b = 2").present == frozenset()
    assert facts("a IS NULL OR (a IS NULL AND b = 1)").absent == {"a"}
    assert facts("a < b").present == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "never", "always"),
    [("a = 1 AND a = 2", True, False), ("TRUE", False, True), ("FALSE", True, False), ("a", False, False),
     ("a IS NULL AND a = 1", True, False), ("a = 1 OR TRUE", False, True), ("a > 5 AND a < 4", True, False)],
)  # fmt: skip
def test_never_and_always(text: str, never: bool, always: bool) -> None:
    assert (facts(text).never, facts(text).always) == (never, always)


def test_dialects() -> None:
    """A comparison that makes the whole selector false is a condition on every message that matches."""
    assert facts("a > 1 OR b > 1", "ibm-mq").equalities == ()
    assert dict(facts("a = 'x' AND b IS NULL", "mqe").equalities) == {"a": {"x"}}
    assert facts("JMSMessageID = 'ID:000'", "ibm-mq").always
