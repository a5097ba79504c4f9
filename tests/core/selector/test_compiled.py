"""compile_selector and what it gives: the cache, the generated code, warnings, dialects."""

from __future__ import annotations

import gc
import linecache
import traceback
import weakref
from typing import Any

import pytest

from sievemq_core.message.values import Float, Long
from sievemq_core.selector import SelectorError, cache, compile_selector
from sievemq_core.selector.cache import SelectorCache
from sievemq_core.selector.compiled import CompiledSelector
from sievemq_core.selector.dialect import DIALECTS, IBM_MQ, JAKARTA, dialect_named
from sievemq_core.selector.lexer import is_property_name
from sievemq_core.selector.parser import parse
from sievemq_core.selector.printer import print_literal, print_selector

HEADERS = ("ID:1", 5, 4, 2, 0, 0, None, None, "T")


def valid(text: str, dialect: str = "jakarta") -> CompiledSelector:
    selector = compile_selector(text, dialect)
    assert selector is not None
    return selector


@pytest.mark.parametrize("text", [None, "", " ", "\t\r\n\f "])
def test_no_selector(text: str | None) -> None:
    """D-12."""
    assert compile_selector(text) is None


def test_operands_that_are_no_texts() -> None:
    with pytest.raises(TypeError):
        compile_selector(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no selector dialect 'sql'; there are jakarta, ibm-mq, mqe"):
        compile_selector("a", "sql")


# -- cache ---------------------------------------------------------------------------------------------------


def test_the_same_text_is_compiled_once() -> None:
    before = cache.info()
    first = compile_selector("cached = 'once'")
    assert compile_selector("cached = 'once'") is first
    assert compile_selector("cached = 'once'", JAKARTA) is first
    assert compile_selector("cached = 'once'", "ibm-mq") is not first
    assert cache.info().hits - before.hits == 2
    assert cache.info().misses - before.misses == 2


def test_errors_are_not_remembered() -> None:
    before = cache.info().size
    for _ in range(2):
        with pytest.raises(SelectorError):
            compile_selector("never != remembered")
    assert cache.info().size == before


def test_the_cache_is_bounded_and_evicts_the_least_recently_used() -> None:
    made: list[str] = []
    small: SelectorCache[str, str] = SelectorCache(lambda text, dialect: made.append(text) or text, maximum=2)  # type: ignore[func-returns-value]
    for text in ("a", "b", "a", "c", "a", "b"):
        assert small.get(text, "x") == text
    assert made == ["a", "b", "c", "b"]
    assert small.info() == (2, 4, 2, 2)
    small.clear()
    assert small.info() == (0, 0, 2, 0)


# -- canonical text ---------------------------------------------------------------------------------------------------

SAME = [
    ("a=1", " a  =  1 "), ("a = 1 and b = 2", "b = 2 AND (a = 1)"), ("a = 1 OR a = 1", "a = 1"), ("5 < a", "a > 5"),
    ("a IN ('x', 'y')", "a in ('y','x','y')"), ("a = 0x10", "a = 16"), ("a = 1E1", "a = 10.0"), ("not (a)", "NOT a"),
    ("(a AND b) AND c", "a AND (b AND c)"), ("'x' = a", "a = 'x'"), ("a = b", "b = a"), ("a = 1d", "a = 1.0"),
]  # fmt: skip

DIFFERENT = [
    ("a = 1", "a = 1.0"), ("a = 1", "a = 1L"), ("a = 1.0", "a = 1f"), ("a = 1", "A = 1"), ("a = 'x'", "a = 'X'"),
    ("a = TRUE", "a"), ("NOT a = 1", "a <> 1"), ("a - b = 1", "b - a = 1"), ("(a + b) + c = 1", "a + (b + c) = 1"),
    ("a LIKE 'x!%' ESCAPE '!'", "a LIKE 'x!%'"), ("NOT a IN ('x')", "a NOT IN ('x')"), ("a = -0.0", "a = 0.0"),
    ("-2147483648 = a", "-(2147483648) = a"), ("a AND b OR c", "a AND (b OR c)"), ("a = 'it''s'", "a = 'its'"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_selector_have_one_canonical_text(one: str, other: str) -> None:
    assert valid(one).canonical == valid(other).canonical


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_selectors_have_different_canonical_texts(one: str, other: str) -> None:
    assert valid(one).canonical != valid(other).canonical


def test_the_canonical_text_names_another_dialect() -> None:
    """A key for grouping must keep apart what means something else."""
    assert valid("a = 1", "ibm-mq").canonical == "ibm-mq: a = 1"
    assert valid("a = 1").canonical == "a = 1"


def test_printing_keeps_the_spelling() -> None:
    text = "NOT (b = 2 OR a > - 3) AND c * (d - 1) >= .5 AND e NOT LIKE 'x!%' ESCAPE '!'"
    assert print_selector(parse(text, JAKARTA)) == (
        "NOT (b = 2 OR a > -3) AND c * (d - 1) >= 0.5 AND e NOT LIKE 'x!%' ESCAPE '!'"
    )


def test_constants_that_only_folding_makes_are_readable() -> None:
    assert [print_literal(float(x)) for x in ("nan", "inf", "-inf")] == ["NaN", "Infinity", "-Infinity"]
    assert print_literal(Long(5)) == "5L"
    assert print_literal(Float(0.5)) == "0.5f"


# -- the generated function -------------------------------------------------------------------------------------------


def test_the_source_can_be_read() -> None:
    selector = valid("region = 'EU' AND price > 5")
    assert selector.source == (
        "def selector(properties, headers):\n"
        "    return True if (v0 := properties.get('region')) == 'EU' and "
        "(type((v1 := properties.get('price'))) in numbers and v1 > 5) else False\n"
    )
    assert shown(selector) == selector.source


def shown(selector: CompiledSelector) -> str:
    """What a debugger shows of its function."""
    function = selector.function
    return "".join(linecache.getlines(function.__code__.co_filename, function.__globals__))


def test_tracebacks_show_the_source() -> None:
    """D-14: nothing in the code raises; should a message be no message, the error is no riddle."""
    with pytest.raises(AttributeError) as caught:
        valid("a = 1").function(None, HEADERS)  # type: ignore[arg-type]
    assert "properties.get('a')" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("text", ["forgotten = 1", "forgotten LIKE 'a%' AND b = {}"])
def test_a_forgotten_selector_leaves_nothing_behind(text: str) -> None:
    """At once: a broker that opens many consumers must not wait for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        selectors = [valid(text.format(number)) for number in (5, 6, 7)]
        filename = selectors[-1].function.__code__.co_filename
        seen = [weakref.ref(selector.function) for selector in selectors]
        cache.clear()
        selectors.clear()
        assert [reference() for reference in seen] == [None, None, None]
        assert filename not in linecache.cache
    finally:
        gc.enable()


class CountingProperties(dict[str, Any]):
    """Counts look-ups."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.append(key)
        return super().get(key, default)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND a < 5 AND a <> 3",
        "(a = 2 AND b = 2) OR (c = 3 AND b = 4) OR b = 5 OR a = 7",
        "NOT (a BETWEEN b AND c) AND a + b > c",
        "a LIKE 'x%' OR a LIKE '%y' OR a IN ('p', 'q') OR a NOT LIKE '%' OR a IS NULL",
    ],
)
def test_a_property_is_fetched_once(text: str) -> None:
    for values in ({"a": 1, "b": 2, "c": 3}, {"a": 2, "b": 9, "c": 3}, {"a": "x"}, {}):
        properties = CountingProperties(values)
        valid(text).function(properties, HEADERS)
        assert len(properties.asked) == len(set(properties.asked))


def test_a_property_behind_a_false_term_is_not_fetched() -> None:
    properties = CountingProperties({"a": 1})
    assert not valid("a = 2 AND b = 3").function(properties, HEADERS)
    assert properties.asked == ["a"]


@pytest.mark.parametrize(
    "text", ["__import__('os')", "a = '\"); raise SystemExit #'", "a = '{properties}'", "self = 1", "numbers > 1",
             "type = 'x' AND is_true < 5", "v0 = 1 AND properties = 2 AND headers = 3",
             "c = 1 AND JMSCorrelationID = c"]
)  # fmt: skip
def test_user_text_is_never_code(text: str) -> None:
    """Names of the generated code may be names of properties; text stays text."""
    try:
        selector = valid(text)
    except SelectorError:
        return
    assert selector.function({}, HEADERS) is False
    names = {"self": 1, "numbers": 2, "type": "x", "is_true": 1, "v0": 1, "properties": 2, "headers": 3, "c": 1}
    assert selector.function(names, HEADERS) is (selector.evaluate(names, HEADERS) is True)


def test_wide_headers_and_none_for_properties_that_are_not_needed() -> None:
    """Properties stay undecoded if only headers are named."""
    selector = valid("JMSPriority > 3 AND JMSType = 'T'")
    assert not selector.facts.uses_properties
    assert selector.function(None, (*HEADERS, b"", None, 0, b"body"))  # type: ignore[arg-type]


# -- warnings ------------------------------------------------------------------------------------------------

WARNINGS = {
    "a = 1 AND a = 2": ["never-matches"],
    "a > 5 AND a < 3": ["never-matches"],
    "a = 'x' AND a IN ('y', 'z')": ["never-matches"],
    "a = 'x' AND a IS NULL": ["never-matches"],
    "a AND NOT a": ["never-matches"],
    "FALSE": ["never-matches"],
    "1 = 2 OR 'a' = 'b'": ["never-matches"],
    "a = 1 / 0": ["never-matches"],
    "TRUE OR a = 1": ["always-matches"],
    "1 = 1": ["always-matches"],
    "JMSPriority IS NOT NULL": ["never-null", "always-matches"],
    "JMSDeliveryMode = 2": ["delivery-mode", "never-matches"],
    "JMSDeliveryMode = 'persistent'": ["delivery-mode", "never-matches"],
    "JMSPriority = 'high'": ["unlike-types", "never-matches"],
    "JMSType = 5 OR a = 1": ["unlike-types"],
    "JMSType BETWEEN 1 AND 2 OR a": ["unlike-types"],
    "JMSPriority LIKE '5' OR a": ["unlike-types"],
    "jmspriority > 4": ["header-case"],
    "region = EU": ["unquoted-text"],
    "EU <> region": ["unquoted-text"],
    "JMSDeliveryMode = PERSISTENT": ["unquoted-text"],
    "LOW = HIGH OR low = high OR X = y OR a + b > EU": [],
    "my-prop = 1": ["hyphen"],
    "my - prop = 1 OR my -prop = 1 OR a-1 = 2": [],
    "a LIKE '*x*'": ["plain-star"],
    "a LIKE '*x%' OR a LIKE '*_'": [],
    "JmsType = 'x' AND JmsType <> 'y'": ["header-case"],
    "a BETWEEN 9 AND 1": ["empty-range", "never-matches"],
    "a NOT BETWEEN 9 AND 1": ["empty-range"],
    "a IN ('x', 'y', 'x')": ["repeated-item"],
    "a = 1 OR a = 2": [],
    "a >= 5 AND a <= 5": [],
    "a > 9007199254740992 AND a < 9007199254740993": [],
    "a = 1 AND a = 1.0": [],
    "a = TRUE AND b = 1": [],
    "a BETWEEN 1 AND b": [],
    "JMSDeliveryMode = 'PERSISTENT'": [],
}


@pytest.mark.parametrize("text", WARNINGS)
def test_warnings(text: str) -> None:
    """They never refuse, and say nothing where nothing is certain."""
    selector = valid(text)
    assert [warning.code for warning in selector.warnings] == WARNINGS[text]
    for warning in selector.warnings:
        start, end = warning.span
        assert 0 <= start < end <= len(text)
        assert warning.message


# -- dialects ------------------------------------------------------------------------------------------------


def test_dialects_by_name() -> None:
    assert list(DIALECTS) == ["jakarta", "ibm-mq", "mqe", "amqp"]
    assert dialect_named("ibm-mq") is IBM_MQ is dialect_named(IBM_MQ)
    assert str(IBM_MQ) == "ibm-mq"
    assert valid("a = 1", "mqe").dialect.name == "mqe"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a", True), ("$x", True), ("größe", True), ("", False), ("1a", False), ("a b", False), ("a-b", False),
     ("and", False), ("Escape", True), ("a\x00", False), ("a\u200d", True), ("\u200da", False), ("²", False)],
)  # fmt: skip
def test_identifiers(name: str, expected: bool) -> None:
    """D-09, for checks of a property's name (PRP-08)."""
    assert is_property_name(name) is expected


def test_escape_is_an_identifier_where_it_is_not_reserved() -> None:
    assert valid("ESCAPE = 1", "ibm-mq")
    with pytest.raises(SelectorError):
        compile_selector("ESCAPE = 1")
    assert is_property_name("ıs")  # upper() makes IS of it


@pytest.mark.parametrize("text", ["a = 'x' OR a = 'y'", "a = 'x' OR a IN ('y', 'z')", "a IN ('x') OR a IN ('y')"])
def test_equalities_of_one_name_become_a_lookup(text: str) -> None:
    selector = valid(text)
    assert selector.is_lookup
    assert {"x", "y"} <= dict(selector.facts.equalities)["a"]


@pytest.mark.parametrize("text", ["a NOT IN ('x', 'y') OR a = 'x'", "a <> 'y' OR a = 'x'", "NOT a = 'y' OR a IN ('x')"])
def test_inequalities_do_not_join_equalities(text: str) -> None:
    selector = valid(text)
    assert not selector.is_lookup
    matched = [value for value in ("x", "y", "z") if selector.function({"a": value}, HEADERS)]
    assert matched == ["x", "z"]
    assert [value for value in ("x", "y", "z") if selector.evaluate({"a": value}, HEADERS)] == matched


@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, 2**62 + 1])
@pytest.mark.parametrize("small", [-1000, 1000, -(2**24) - 1, 2**40 + 1])
def test_one_of_many_numbers_is_compared_in_the_type_of_the_property(small: int, large: int) -> None:
    selector = valid(" OR ".join(f"a = {number}" for number in (small, large, *range(5, 205))))
    for number in (small, large):
        for value in (number, float(number), Float(number)):
            assert selector.function({"a": value}, HEADERS), value
    assert not selector.function({"a": small - 1}, HEADERS)
    assert not selector.function({"a": float(small) - 0.5}, HEADERS)
