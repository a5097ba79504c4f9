"""Selectors that differ in the values of their constants only share everything else, and nobody can tell."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.core.selector.test_properties import conditions, messages

from sievemq_core.selector import SelectorError, cache, compile_selector
from sievemq_core.selector.compiled import CompiledSelector, _compile, _pipeline, verify_selector
from sievemq_core.selector.dialect import DIALECTS, JAKARTA
from sievemq_core.selector.printer import print_selector
from sievemq_core.selector.shape import MAX_CHARS, MAX_SHAPES, Shapes, outline, parameters

HEADERS = ("ID:1", 5, 4, 2, 0, 0, "x1", None, "T")


def fresh(text: str) -> CompiledSelector:
    """Compiled as if nothing like it had been seen."""
    return _pipeline(text, JAKARTA, None)


def shared(*texts: str) -> CompiledSelector:
    """The last one, compiled after the others."""
    cache.clear()
    for text in texts:
        selector = _compile(text, JAKARTA)
    assert selector is not None
    return selector


def same(one: CompiledSelector, other: CompiledSelector) -> None:
    """Whatever can be seen of two selectors is the same."""
    assert one.text == other.text
    assert one.canonical == other.canonical
    assert one.facts == other.facts
    assert one.is_lookup == other.is_lookup
    assert one.alternatives == other.alternatives
    assert one.ast == other.ast
    assert one.plan == other.plan
    assert one.warnings == other.warnings
    assert one.source == other.source
    assert one.portability() == other.portability()
    assert str(one.explain({}, HEADERS)) == str(other.explain({}, HEADERS))


SHARED = [
    ("JMSCorrelationID = 'x1'", "JMSCorrelationID = 'x2'"),
    ("symbol = 'S1' AND price > 10", "symbol = 'it''s' AND price > 9999"),
    ("'a' = s OR 10 < n", "'' = s OR 16777215 < n"),
    ("a IN ('x', 'y') AND NOT b IN ('z')", "a IN ('y', 'b''c') AND NOT b IN ('q')"),
    ("n BETWEEN 2 AND 5 AND m NOT BETWEEN 2.5 AND 7.5", "n BETWEEN 30 AND 40 AND m NOT BETWEEN 2.25 AND 999.0"),
    ("NOT n BETWEEN 2 AND 5", "NOT n BETWEEN 3 AND 4"),
    ("s LIKE 'a%' AND n = 5", "s LIKE 'a%' AND n = 6"),
    ("n = 123456789 AND m > 99999999999", "n = 123456791 AND m > 99999999997"),
    ("n <> 2.5 AND NOT m = 3", "n <> 16000000.5 AND NOT m = 30"),
    ("JMSTimestamp >= 1763700000001", "JMSTimestamp >= 1763700000003"),
    ("TRUE OR a = 5", "TRUE OR a = 6"),
    ("(a = 'x' AND b = 2) OR c = 'y'", "(a = 'z' AND b = 7) OR c = 'u'"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SHARED)
def test_selectors_that_differ_in_constants_share_code(one: str, other: str) -> None:
    first = shared(one, one)
    second = compile_selector(other)
    assert second is not None
    assert second.function.__code__ is first.function.__code__
    same(first, fresh(one))
    same(second, fresh(other))


#: Where the values decide more than the comparison.
APART = [
    ("a = 5", "a = 1"), ("a = 5", "a = 0"), ("a = 5", "a = 5.0"), ("a = 5", "a = 16777217"), ("a = 5", "a = 5L"),
    ("a = 5", "a = '5'"), ("a = 5 AND a = 6", "a = 5 AND a = 7"), ("a = 'x' OR a = 'y'", "a = 'x' OR a = 'x'"),
    ("a IN ('x', 'y')", "a IN ('x', 'x')"), ("a BETWEEN 2 AND 3", "a BETWEEN 3 AND 2"), ("a = -5", "a = -6"),
    ("a BETWEEN 2 AND 3", "a BETWEEN 3 AND 3"), ("JMSPriority > 8", "JMSPriority > 9"), ("a + 2 = 5", "a + 3 = 5"),
    ("JMSDeliveryMode = 'PERSISTENT'", "JMSDeliveryMode = 'x'"), ("a LIKE 'x%'", "a LIKE 'x'"), ("2 = 2", "2 = 3"),
    ("a LIKE 'x!%y' ESCAPE '!'", "a LIKE 'x!%y' ESCAPE '%'"), ("a = 1E+5", "a = 1E+7"), ("a = 0x10", "a = 0x11"),
    ("a = 9007199254740993.0", "a = 9007199254740995.0"), ("JMSType > 5 OR b = 2", "JMSType > 6 OR b = 2"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), APART)
def test_selectors_that_depend_on_a_value_do_not_share_code(one: str, other: str) -> None:
    cache.clear()
    for text in (one, one, other, one, other, other):
        selector = _compile(text, JAKARTA)
        assert selector is not None
        same(selector, fresh(text))
    first, second = compile_selector(one), compile_selector(other)
    assert first is not None
    assert second is not None
    assert first.function.__code__ is not second.function.__code__


def tried(text: str) -> tuple[CompiledSelector | None, object]:
    """Compiled on its own, or the mistake in it."""
    try:
        return fresh(text), None
    except SelectorError as error:
        return None, (str(error), error.details)


@settings(max_examples=150)
@given(conditions, st.data(), st.lists(messages, min_size=1, max_size=4))
def test_a_shared_selector_is_the_same_as_one_compiled_alone(tree: Any, data: st.DataObject, batch: list[Any]) -> None:
    """Random selectors; then the same with other constants of the same kind of text."""
    text = print_selector(tree)
    strings = st.sampled_from(["", "a", "b", "x''y", "PERSISTENT", "%", "a_"]).map(lambda s: f"'{s}'")
    whole = st.sampled_from(["0", "1", "2", "3", "7", "16777215", "16777216", "16777217", "2147483648", "9" * 18])
    fraction = st.sampled_from(["0.0", "1.0", "2.0", "2.50", "0.1", "16777216.0", "9007199254740993.0"])

    def another(match: re.Match[str]) -> str:
        kind = strings if match[0][0] == "'" else fraction if "." in match[0] else whole
        return data.draw(kind) if data.draw(st.booleans()) else match[0]

    texts = [text] + [re.sub(r"'(?:[^']|'')*'|(?<![\w.+])\d+(?:\.\d+)?(?![\w.])", another, text) for _ in range(3)]
    cache.clear()
    compiled = 0
    for each in [texts[0], texts[0], *texts[1:]]:
        alone, mistake = tried(each)
        if alone is None:
            with pytest.raises(SelectorError) as caught:
                _compile(each, JAKARTA)
            assert mistake == (str(caught.value), caught.value.details)
            continue
        selector = _compile(each, JAKARTA)
        assert selector is not None
        assert verify_selector(each, JAKARTA) == alone.warnings
        same(selector, alone)
        for properties, headers in batch:
            assert selector.function(properties, headers) is alone.function(properties, headers)
        compiled += 1
    assume(compiled)


TOKENS = """
a b 'x' 'it''s' '' ' 2 7 1 0 2.5 10. .5 1E5 1E+5 0x10 5L - + = <> < ( ) , AND OR NOT IN LIKE BETWEEN é2 2é $3 a.5
""".split()  # noqa: SIM905  # a list would take twenty lines


@settings(max_examples=400)
@given(st.lists(st.sampled_from(TOKENS), max_size=14), st.sampled_from(["", " "]))
@example(["a", "=", "2", "'x'"], "")
def test_an_outline_puts_a_text_together_again(tokens: list[str], glue: str) -> None:
    text = glue.join(tokens)
    known = outline(text)
    if known is None:
        return
    parts, raws, values = known
    again = "".join(raws[number // 2] if number % 2 else part for number, part in enumerate(parts))
    assert again == text
    assert len(values) == len(raws) == len(parts) // 2


def test_only_constants_that_the_parser_sees_are_parameters() -> None:
    """``5`` in ``1E+5`` looks like one."""
    for text, names in {
        "a = 1E+5": [], "a = -5": [], "a = 5 AND b = 'x'": ["a", "b"], "a = 5 OR a = 6": [], "a = b2": [],
        "a LIKE 'x'": [], "JMSPriority = 5": [], "JMSTimestamp = 5": ["JMSTimestamp"], "JMSTimestamp = 'x'": [],
        "a BETWEEN 2 AND 3": ["a", "a"], "a BETWEEN 2 AND b": [], "a IN ('x', 'y')": ["a"],
    }.items():  # fmt: skip
        known = outline(text)
        found = [] if known is None else [place.name for place in parameters(fresh(text).ast, text, known)]
        assert found == names, text


# -- errors, limits ---------------------------------------------------------------------------------------------------


def test_errors_in_a_known_outline_are_reported() -> None:
    shared("a LIKE 'x' ESCAPE '!' AND b = 5", "a LIKE 'x' ESCAPE '!' AND b = 6")
    for text in ("a LIKE 'x!' ESCAPE '!' AND b = 7", "a LIKE 'x' ESCAPE '!!' AND b = 7"):
        with pytest.raises(SelectorError) as caught:
            compile_selector(text)
        with pytest.raises(SelectorError) as alone:
            fresh(text)
        assert str(caught.value) == str(alone.value)


def test_verification_learns_too() -> None:
    cache.clear()
    for number in range(4):
        assert verify_selector(f"a = 'x{number}' AND n > {number + 2}", JAKARTA) == ()
    for number in range(4):
        (warning,) = verify_selector(f"region = EU{number} AND a = 'x{number}'", JAKARTA) or ()
        assert f"EU{number}" in warning.message
    for bad in ("a = 'x AND n > 2", "a = 'x' AND n > '2'", "a = 'x' AND n >> 2"):
        with pytest.raises(SelectorError):
            verify_selector(bad, JAKARTA)
    assert verify_selector(" ", JAKARTA) is None
    assert verify_selector("a = 5", DIALECTS["ibm-mq"]) == ()


def test_shapes_are_bounded() -> None:
    """Hostile clients can make as many outlines as they like."""
    known: Shapes[str] = Shapes(maximum=4)
    for number in range(20):
        text = f"a{number} = 5 AND c LIKE '{number}'"
        given = outline(text)
        assert given is not None
        assert not known.is_known(given)
        known.learn(given, parameters(fresh(text).ast, text, given), "it")
    assert len(known) == 4
    assert known.find(given) == "it"
    assert MAX_SHAPES <= 1_000
    assert outline("a = 'x'".ljust(MAX_CHARS)) is not None
    assert outline("a = 'x'".ljust(MAX_CHARS + 1)) is None


@pytest.mark.parametrize("text", ["a", "a = b", "a = '", "a = '\0'", "a = 0x10", "'" * 2_001])
def test_selectors_without_an_outline(text: str) -> None:
    assert outline(text) is None


def test_other_dialects_are_compiled_as_ever() -> None:
    """D-15: there an id of zeros matches anything."""
    cache.clear()
    for number in ("1", "2", "0"):
        selector = compile_selector(f"JMSMessageID = 'ID:{number}'", "ibm-mq")
        assert selector is not None
        assert selector.function({}, ("ID:2",)) is (number in "20")
