"""Selectors that explain themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_core.message.values import Long
from sievemq_core.selector import compile_selector
from sievemq_core.selector.ast import And, Node, Not, Or
from sievemq_core.selector.compiled import CompiledSelector

HEADERS = ("ID:1", 5, 4, 2, 0, 0, None, None, "T")


ATOMS = [
    "a = 1", "a <> 'x'", "a > b", "b BETWEEN 1 AND a", "a NOT IN ('x')", "b LIKE 'x%'", "a IS NULL", "b", "a / b = 1",
    "TRUE"
]  # fmt: skip
SELECTORS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)
MESSAGES = st.dictionaries(st.sampled_from("ab"), st.sampled_from([None, 1, 2.5, True, "x", "y", Long(3)]))


def valid(text: str, dialect: str = "jakarta") -> CompiledSelector:
    selector = compile_selector(text, dialect)
    assert selector is not None
    return selector


def test_an_explanation_as_text() -> None:
    selector = valid("region = 'EU' AND (price > 12 OR NOT urgent) AND size <> 5")
    explanation = selector.explain({"region": "EU", "price": Long(9), "size": "5"}, HEADERS)
    assert str(explanation) == (
        "FALSE   region = 'EU' AND (price > 12 OR NOT urgent) AND size <> 5  a part is FALSE\n"
        "TRUE      region = 'EU'                                             region is 'EU'\n"
        "UNKNOWN   price > 12 OR NOT urgent                                  a part is UNKNOWN and none is TRUE\n"
        "FALSE       price > 12                                              price is 9L (long)\n"
        "UNKNOWN     NOT urgent                                              NOT UNKNOWN\n"
        "UNKNOWN       urgent                                                urgent is absent\n"
        "FALSE     size <> 5                                                 "
        "size is '5', a string, unlike types, so the operation is FALSE  <- decides"
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
    "a BETWEEN 1 AND b": (
        {"a": "x", "b": 2},
        "a is 'x', a string, b is 2 (int), unlike types, so the operation is FALSE",
    ),
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
    assert explanation.steps[0].reason == "unlike types, or arithmetic on NULL, within"
    assert explanation.steps[1].reason == "a is 'x', a string, unlike types, so the whole selector is FALSE"


INNER: dict[str, tuple[dict[str, Any], str]] = {
    "a = 1 AND b = 1 AND c = 1": ({"a": 2, "b": 2, "c": 1}, "2 parts are FALSE"),
    "a = 1 AND b = 1": ({"a": 1, "b": 2}, "a part is FALSE"),
    "a = 1 AND (b = 1)": ({"a": 1}, "a part is UNKNOWN and none is FALSE"),
    "a = 1 AND c = 1": ({"a": 1, "c": 1}, "every part is TRUE"),
    "a = 1 OR b = 1": ({"a": 1, "b": 2}, "a part is TRUE"),
    "a = 1 OR c = 1": ({"a": 1, "c": 1}, "2 parts are TRUE"),
    "b = 1 OR a = 1": ({"a": 2}, "a part is UNKNOWN and none is TRUE"),
    "a = 3 OR b = 3": ({"a": 2, "b": 2}, "every part is FALSE"),
    "NOT a = 1": ({}, "NOT UNKNOWN"),
    "NOT b = 1": ({"b": 1}, "NOT TRUE"),
}


@pytest.mark.parametrize("text", INNER)
def test_reasons_of_and_or_not(text: str) -> None:
    properties, reason = INNER[text]
    explanation = valid(text).explain(properties, HEADERS)
    assert explanation.steps[0].reason == reason
    assert explanation.truth is valid(text).evaluate(properties, HEADERS)


def test_an_explanation_as_data() -> None:
    text = "a = 1 AND NOT (b OR c > 2)"
    tree = valid(text).explain({"a": 1, "c": 1}, HEADERS).as_dict()
    assert json.loads(json.dumps(tree)) == tree
    assert (tree["truth"], tree["reason"]) == ("UNKNOWN", "a part is UNKNOWN and none is FALSE")
    first, second = tree["parts"]
    assert first == {
        "condition": "a = 1", "truth": "TRUE", "reason": "a is 1 (int)", "decides": False, "position": 0, "length": 5,
        "parts": [],
    }  # fmt: skip
    assert text[second["position"] :][: second["length"]].startswith("NOT (b OR c > 2")
    ((inner,),) = [part["parts"] for part in (second,)]
    assert [part["condition"] for part in inner["parts"]] == ["b", "c > 2"]
    assert [part["truth"] for part in inner["parts"]] == ["UNKNOWN", "FALSE"]
    assert [part["decides"] for part in inner["parts"]] == [True, False]


@given(SELECTORS, MESSAGES)
def test_an_explanation_agrees_with_the_interpreter(text: str, message: dict[str, Any]) -> None:
    selector = valid(text)
    explanation = selector.explain(message, HEADERS)
    assert explanation.truth is selector.evaluate(message, HEADERS)
    assert all(step.reason for step in explanation.steps if step.text not in ("TRUE", "FALSE"))
    assert len(str(explanation).splitlines()) == len(explanation.steps)


# -- what decided -----------------------------------------------------------------------------------------------------

DECIDED = {
    "a = 1 AND b = 1": ({"a": 1, "b": 2}, ["b = 1"]),
    "a = 1 AND b = 1 AND c = 1": ({"b": 2, "c": 1}, ["a = 1"]),
    "a = 1 AND c = 1": ({"a": 1, "c": 1}, ["a = 1", "c = 1"]),
    "a = 1 OR b = 1": ({"a": 2, "b": 1}, ["b = 1"]),
    "a = 1 OR b = 1 OR c = 3": ({"a": 2, "b": 2}, ["a = 1", "b = 1", "c = 3"]),
    "(a = 1 OR b = 1) AND (c = 3 OR d) AND e IS NULL": ({"a": 2, "b": 1, "e": 5}, ["e IS NULL"]),
    "(a = 1 AND b = 1) OR c = 3": ({"a": 1, "b": 1, "c": 3}, ["c = 3"]),
    "NOT (a = 1 AND b = 1)": ({"a": 2}, ["a = 1"]),
    "NOT (a = 1 OR b = 1)": ({"a": 2, "b": 1}, ["b = 1"]),
    "NOT a = 1": ({}, ["a = 1"]),
    "TRUE": ({}, ["TRUE"]),
}


def decided(selector: CompiledSelector, properties: dict[str, Any]) -> list[str]:
    return [step.text for step in selector.explain(properties, HEADERS).steps if step.decides]


@pytest.mark.parametrize("text", DECIDED)
def test_deciding_parts_are_marked(text: str) -> None:
    properties, expected = DECIDED[text]
    assert decided(valid(text), properties) == expected


def test_a_condition_that_gives_up_for_all_decides() -> None:
    """D-15."""
    assert decided(valid("b = 2 OR a = 1 OR a = 3", "ibm-mq"), {"a": "x", "b": 2}) == ["a = 1"]
    assert decided(valid("b = 2 OR a + 1 = 1", "ibm-mq"), {"b": 2}) == ["a + 1 = 1"]
    assert decided(valid("a = 5 AND b = 5.0", "mqe"), {"a": 5, "b": 5.0}) == ["a = 5"]


def truth_of(node: Node, values: Iterator[bool | None]) -> bool | None:
    """Kleene's logic over the given values of the comparisons, from left to right."""
    order = {False: 0, None: 1, True: 2}
    match node:
        case And() | Or():
            pick = min if isinstance(node, And) else max
            return pick([truth_of(operand, values) for operand in node.operands], key=order.__getitem__)
        case Not():
            inner = truth_of(node.operand, values)
            return None if inner is None else not inner
    return next(values)


@settings(max_examples=80)
@given(SELECTORS.filter(lambda text: text.count("AND") + text.count("OR") < 5), MESSAGES)
def test_only_the_smallest_deciding_parts_are_marked(text: str, message: dict[str, Any]) -> None:
    """Whatever the others were, the verdict would be the same; and no smaller set of conditions can say that."""
    selector = valid(text)
    steps = selector.explain(message, HEADERS).steps
    ends = [after is None or after.depth <= step.depth for step, after in zip(steps, (*steps[1:], None), strict=True)]
    leaves = [step for step, is_leaf in zip(steps, ends, strict=True) if is_leaf]
    matches = steps[0].truth is True

    def forces(kept: tuple[int, ...]) -> bool:
        choices = [[step.truth] if number in kept else [True, False, None] for number, step in enumerate(leaves)]
        return all((truth_of(selector.ast, iter(values)) is True) is matches for values in product(*choices))

    marked = tuple(number for number, step in enumerate(leaves) if step.decides)
    assert all(step.decides is False for step, is_leaf in zip(steps, ends, strict=True) if not is_leaf)
    assert forces(marked)
    assert not any(forces(smaller) for smaller in combinations(range(len(leaves)), max(0, len(marked) - 1)))
