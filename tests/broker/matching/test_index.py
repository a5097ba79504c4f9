"""The index finds what asking everybody would find, and asks few."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq_broker.matching.condition import indexable, is_true
from sievemq_broker.matching.index import SelectorIndex
from sievemq_broker.matching.lookup import ValueIndex
from sievemq_core.message.envelope import Envelope, pack_properties
from sievemq_core.message.values import Byte, Float, Long, Short
from sievemq_core.selector import CompiledSelector, compile_selector


def compiled(text: str, dialect: str = "jakarta") -> CompiledSelector:
    selector = compile_selector(text, dialect)
    assert selector is not None
    return selector


def message(properties: dict[str, Any], **headers: Any) -> Envelope:
    packed, letters = pack_properties(properties)
    return Envelope((
        headers.get("message_id"), headers.get("timestamp", 0), headers.get("priority", 4), headers.get("mode", 1),
        0, 0, headers.get("correlation_id"), None, headers.get("type"), packed, letters, 0, None,
    ))  # fmt: skip


LITERALS = [
    "1",
    "2",
    "2.0",
    "1e0",
    "TRUE",
    "FALSE",
    "'1'",
    "'x'",
    "9007199254740993",
    "9007199254740992.0",
    "0.1",
    "-0.0",
]
VALUES = [
    None, True, False, 1, 2, 0, 1.0, 2.0, 0.1, -0.0, float("nan"), "1", "x", "", 2**53 + 1, 2**53, float(2**53),
    Byte(1), Short(2), Long(1), Float(0.1), Float(1.0),
    "xy", "xyz", "yx", 3, 2.5, -1, float("inf"), -1e300, 2**63 - 1,
]  # fmt: skip
NAMES = ["a", "b"]
NUMBERS = st.sampled_from(["0", "1", "2.5", "-1", "1e300", "9007199254740993", "0.1f"])


def atoms() -> st.SearchStrategy[str]:
    equal = st.builds("{} = {}".format, st.sampled_from(NAMES), st.sampled_from(LITERALS))
    fixed = st.sampled_from([
        "a IN ('x', '1')", "b NOT IN ('x')", "a LIKE 'x'", "a IS NULL", "b IS NOT NULL", "a > 1", "a BETWEEN 1 AND 2",
        "a <> 1", "JMSPriority = 4", "JMSDeliveryMode = 'PERSISTENT'", "JMSDeliveryMode = 'NON_PERSISTENT'",
        "JMSType = 'x'", "JMSCorrelationID = 'c'", "JMSMessageID = 'ID:m'", "JMSTimestamp = 7", "a", "NOT b",
        "a LIKE 'x%'", "b LIKE 'xy%'", "a LIKE '%x'", "b LIKE 'x_'", "JMSType LIKE 'x%'", "JMSCorrelationID IS NULL",
        "a BETWEEN 0.5 AND 0.75", "b < 1", "a >= 9007199254740992", "JMSPriority > 6", "a = b", "a + 1 > 2", "a < b",
    ])  # fmt: skip
    ranged = st.builds(
        "{} BETWEEN {} AND {}".format, st.sampled_from(NAMES), st.integers(-4, 4), st.sampled_from(["1", "3.5", "1e17"])
    )
    bound = st.builds("{} {} {}".format, st.sampled_from(NAMES), st.sampled_from(["<", "<=", ">", ">="]), NUMBERS)
    near = st.sampled_from(
        ["a = 'x'", "a IN ('x', 'y')", "a LIKE 'x%'", "a BETWEEN 1 AND 2", "a < 3", "b = 1", "b IS NULL"]
    )
    branches = st.builds("({} AND {} OR {} AND {} OR {})".format, near, near, near, near, near)
    return st.one_of(equal, fixed, ranged, bound, branches)


SELECTORS = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)
MESSAGES = st.builds(
    message,
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)),
    priority=st.sampled_from([4, 9]),
    mode=st.sampled_from([1, 2]),
    type=st.sampled_from([None, "x"]),
    correlation_id=st.sampled_from([None, "c", b"c"]),
    message_id=st.sampled_from([None, "ID:m"]),
    timestamp=st.sampled_from([0, 7]),
)


@given(
    st.lists(st.one_of(SELECTORS, MESSAGES, st.integers(0, 30)), max_size=40),
    st.lists(MESSAGES, min_size=1, max_size=4),
)
def test_the_index_finds_what_asking_everybody_finds(events: list[Any], messages: list[Envelope]) -> None:
    """Whatever comes and goes: a text is a new target, a number one that leaves, the rest are messages."""
    index: SelectorIndex[int] = SelectorIndex()
    selectors: dict[int, CompiledSelector] = {}
    for number, event in enumerate([*events, *messages]):
        if isinstance(event, str):
            selectors[number] = compiled(event)
            index.add(selectors[number], number)
        elif isinstance(event, int):
            if selectors:
                gone = sorted(selectors)[event % len(selectors)]
                index.remove(gone)
                del selectors[gone]
        else:
            before = index.evaluations
            found = index.match(event)
            assert index.evaluations - before <= index.most
            assert sorted(found) == [number for number, selector in selectors.items() if is_true(selector, event)]
            assert len(set(found)) == len(found)
    assert index.error is None
    assert len(index) == len(selectors)
    assert index.matches <= index.evaluations
    for number in selectors:
        index.remove(number)
    assert (index._names, index._rest, index._needing, index._several) == ({}, {}, 0, 0)
    assert index._places == ()
    assert index.most == 0


SHARED = {1: "a = 'x'", 2: "a = 'x'", 3: "a = 'x' AND b = 1", 4: "a IN ('x', 'y')", 5: "a = 'y'"}


@pytest.mark.parametrize("order", [*permutations((1, 2, 3)), (4, 1, 3, 5), (3, 5, 4), (2, 4, 1), (5, 3, 4, 1, 2)])
def test_consumers_with_equal_lookups_open_and_close(order: tuple[int, ...]) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    messages = [message({"a": "x", "b": 1}), message({"a": "x"}), message({"a": "y", "b": 1}), message({"b": 1})]
    there: list[int] = []

    def check() -> None:
        for each in messages:
            wanted = [number for number in there if is_true(compiled(SHARED[number]), each)]
            before = index.evaluations
            assert sorted(index.match(each)) == sorted(wanted)
            assert index.evaluations - before >= len(wanted)

    for number in order:
        index.add(compiled(SHARED[number]), number)
        there.append(number)
        check()
    for number in order:
        index.remove(number)
        there.remove(number)
        check()
    assert (index._names, index._places) == ({}, ())


#: A selector whose branches are filed in the same places; another one that is there; and what that one wants.
TWICE = [
    ("a = 'x' AND c > 3 OR a IN ('x', 'y') AND c < 1 OR b = 1", "a = 'x'", {"a": "x"}),
    ("JMSType = 'x' AND b IS NULL OR JMSType IN ('x', 'y') OR b = 1", "JMSType = 'x'", {}),
    ("a LIKE 'x%' AND c > 3 OR (a LIKE 'x%' OR a LIKE 'y%') AND c <> 1 OR b = 1", "a LIKE 'x%'", {"a": "xy"}),
    ("a BETWEEN 1 AND 5 AND c <> 1 OR a BETWEEN 2 AND 6 OR b = 1", "a BETWEEN 1 AND 5", {"a": 3}),
    ("a > 1 AND c <> 1 OR a > 1 AND a < 1e300 OR b = 1", "a > 1", {"a": 3}),
]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize(("text", "other", "properties"), TWICE)
def test_a_subscriber_indexed_twice_is_removed_alone(
    text: str, other: str, properties: dict[str, Any], order: tuple[int, ...]
) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    there = {0: text, 1: other, 2: text}
    for number in order:
        index.add(compiled(there[number]), number)
    wanted = message(properties, type="x")
    for number in order:
        index.remove(number)
        del there[number]
        assert sorted(index.match(wanted)) == [
            n for n, each in sorted(there.items()) if is_true(compiled(each), wanted)
        ]
        assert (1 in there) == (1 in index.match(wanted))
    assert (index._names, index._places, index.error) == ({}, (), None)


MANY = 300
#: kind -> (the selector of target n; what a message looks like that target 500 wants)
KINDS: dict[str, tuple[Callable[[int], str], dict[str, Any], dict[str, Any]]] = {
    "equality": (lambda n: f"a = {n}", {"a": 200}, {}),
    "IN": (lambda n: f"a IN ('{n}', 'x{n}')", {"a": "x200"}, {}),
    "a header field": (lambda n: f"JMSType = 't{n}'", {}, {"type": "t200"}),
    "a range": (lambda n: f"a BETWEEN {n} AND {n}.5", {"a": 200.25}, {}),
    "a range of two bounds": (lambda n: f"a > {n} AND a <= {n + 1}", {"a": 201}, {}),
    "a range of a header": (lambda n: f"JMSTimestamp BETWEEN {n * 10} AND {n * 10 + 9}", {}, {"timestamp": 2_003}),
    "one bound, never reached by most": (lambda n: f"a > {n}" if n % 100 else f"a > -{n}", {"a": -50}, {}),
    "an upper bound": (lambda n: f"a < {n}", {"a": 290}, {}),
    "a LIKE prefix": (lambda n: f"a LIKE 'order-{n:04}-%'", {"a": "order-0200-x"}, {}),
    "a long LIKE prefix": (lambda n: f"a LIKE '{n:04}{'x' * 60}%'", {"a": "0200" + "x" * 61}, {}),
    "NULL": (lambda n: f"p{n} IS NULL", {f"p{n}": 1 for n in range(MANY) if n != 200}, {}),
    "not NULL": (lambda n: f"p{n} IS NOT NULL", {"p200": False}, {}),
    "a boolean": (lambda n: f"flag{n} AND a > 1", {"flag200": True, "flag100": False, "flag50": 1, "a": 2}, {}),
    "NOT of a boolean": (lambda n: f"NOT flag{n}", {"flag200": False, "flag100": True, "flag50": 0}, {}),
    "an OR on one name": (lambda n: f"(a = {n} OR a = -{n}) AND b > 0", {"a": -200, "b": 1}, {}),
    "an OR on two names": (lambda n: f"a = {n} OR b = {n}", {"a": 200, "b": 200}, {}),
    "an OR below an AND": (lambda n: f"c <> 1 AND (a = {n} OR b LIKE 'b{n:04}%')", {"b": "b0200", "c": 2}, {}),
    "an OR of ANDs": (lambda n: f"(a = {n} AND c > 0) OR (b BETWEEN {n} AND {n} AND c < 0)", {"b": 200, "c": -1}, {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_few_selectors_are_evaluated(kind: str) -> None:
    text, properties, headers = KINDS[kind]
    index: SelectorIndex[int] = SelectorIndex()
    selectors = [compiled(text(number)) for number in range(MANY)]
    for number, selector in enumerate(selectors):
        index.add(selector, number)
    envelope = message(properties, **headers)
    wanted = [number for number, selector in enumerate(selectors) if is_true(selector, envelope)]
    assert sorted(index.match(envelope)) == wanted
    assert wanted
    assert index.matches == len(wanted)
    assert index.evaluations <= len(wanted) + 20, "brute force asks 300"
    index.match(message({"unheard of": 1}, type="none", timestamp=7_000_000))
    assert index.evaluations <= len(wanted) + 20 + (MANY if kind == "NULL" else 0)


def test_many_selectors_on_different_values_are_not_costly() -> None:
    """A message finds one of them; five hundred on one value are costly."""
    index: SelectorIndex[int] = SelectorIndex()
    for number in range(2_000):
        index.add(compiled(f"symbol = 'S{number}'"), number)
    assert (index.most, index.costly) == (1, False)
    for number in range(2_000, 2_600):
        index.add(compiled(f"symbol = 'S7' AND price + {number} > 1"), number)
    assert index.costly


#: The first ones search a long text twenty times each, so asking some of them is done in pieces.
SEARCHES = (
    *(" OR ".join(f"text LIKE '%{'a' * n}{letter}%'" for n in range(1, 21)) for letter in "bcde"),
    "text LIKE '%aa%'", "TRUE", "n = 1", "n > 0 AND 1 = 2",
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "begin", "ask", "ask all"]), st.integers(0, 40)), max_size=40),
    st.sampled_from([{"text": "a" * 20_000, "n": 1}, {"text": "ab" * 9_000, "n": 2}, {"n": 1}, {}]),
)
def test_asking_in_pieces_finds_what_asking_at_once_finds(
    steps: list[tuple[str, int]], properties: dict[str, Any]
) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    there: dict[int, CompiledSelector] = {}
    envelope = message(properties)
    answers = None
    for number, (verb, which) in enumerate([*(("add", n) for n in range(12)), *steps]):
        if verb == "add":
            there[number] = compiled(SEARCHES[which % len(SEARCHES)])
            index.add(there[number], number)
        elif verb == "remove" and there:
            target = list(there)[which % len(there)]
            index.remove(target)
            del there[target]
        elif verb == "begin" or answers is None:
            answers = index.asking(envelope)
            assert answers is None or not index.has_asked(envelope)
        else:
            while answers.left:
                answers.ask(which)
                if verb == "ask":
                    break
    wanted = sorted(number for number, selector in there.items() if is_true(selector, message(properties)))
    assert sorted(index.match(envelope)) == wanted
    assert sorted(index.match(message(properties))) == wanted


def test_d14_unreadable_properties_are_not_evaluated_in_slices() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    for text in (*SEARCHES, "JMSPriority = 4"):
        index.add(compiled(text), text)
    broken = Envelope((None, 0, 4, 1, 0, 0, None, None, None, b"\xc1", None, 0, None))
    assert index.asking(broken) is None
    assert index.match(broken) == ["TRUE", "JMSPriority = 4"]
    assert index.error is not None


def test_selectors_without_a_lookup_are_always_evaluated() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    for text in ("TRUE", "a IS NULL OR b IS NOT NULL OR 1 = 1", "a IS NOT NULL OR a IS NULL"):
        index.add(compiled(text), text)
    assert [len(index.clues(text)) for text in ("TRUE", "a IS NOT NULL OR a IS NULL")] == [0, 2]
    assert len(index.match(message({}))) == 3
    assert index.evaluations == 3


def test_a_value_hits_one_prefix_of_a_selector_at_most() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(compiled("a LIKE 'x%' OR a LIKE 'xy%' OR a LIKE 'z%'"), "all")
    assert index.clues("all")[0].data == ("x", "z")
    assert index.match(message({"a": "xyz"})) == ["all"]
    assert index.evaluations == 1


def test_a_selector_that_never_matches_may_outlive_the_others_on_its_name() -> None:
    """It is filed nowhere, so there is nothing to be missing when it leaves."""
    index: SelectorIndex[str] = SelectorIndex()
    index.add(compiled("a = 1"), "real")
    index.add(compiled("a = 1 AND a = 2"), "never")
    index.remove("real")
    index.remove("never")
    assert len(index) == 0
    assert index.match(message({"a": 1})) == []


def test_d02_d05_facts_hold_where_java_and_python_differ() -> None:
    for text, value, hit in [
        ("a = 9007199254740993", float(2**53), True),  # a long equals the double it rounds to
        ("a = 1", True, False),
        ("a = TRUE", 1, False),
        ("a = TRUE", True, True),
        ("a = 1", 1.0, True),
        ("a = 0.1", Float(0.1), False),
        ("a = 0", -0.0, True),
    ]:
        index: SelectorIndex[str] = SelectorIndex()
        index.add(compiled(text), text)
        assert index.match(message({"a": value})) == ([text] if hit else []), (text, value)


def test_a_selector_is_filed_where_few_are() -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for number in range(1_000):
        index.add(compiled(f"region = 'EU' AND customer = {number}"), number)
    assert index.match(message({"region": "EU", "customer": 500})) == [500]
    assert index.evaluations <= 2


def test_without_a_selector_that_names_one_properties_are_not_decoded() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(compiled("JMSType = 'x'"), "header")
    envelope = message({"a": 1}, type="x")
    assert index.match(envelope) == ["header"]
    assert envelope._properties is None
    index.add(compiled("a = 1"), "property")
    assert sorted(index.match(envelope)) == ["header", "property"]


def test_a_selector_that_can_never_match_is_never_evaluated() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(compiled("a = 1 AND a = 2"), "never")
    assert index.match(message({"a": 1})) == []
    assert index.evaluations == 0
    index.remove("never")


def test_d14_a_failing_selector_does_not_stop_the_others() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(compiled("a = 1"), "property")
    index.add(compiled("JMSType = 'x'"), "header")
    envelope = Envelope((None, 0, 4, 1, 0, 0, None, None, "x", b"\xc1", None, 0, None))
    assert index.match(envelope) == ["header"]
    assert index.error is not None


def test_the_mode_is_filed_as_the_number_in_the_envelope() -> None:
    assert indexable(compiled("JMSDeliveryMode = 'PERSISTENT'")) == [("JMSDeliveryMode", frozenset({2}))]


def test_dialects_do_not_share_targets_they_must_not() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(compiled("a NOT BETWEEN 1 AND 2"), "jakarta")
    index.add(compiled("a NOT BETWEEN 1 AND 2", "ibm-mq"), "ibm-mq")
    assert index.match(message({})) == ["ibm-mq"]
    index.add(compiled("JMSMessageID = 'ID:" + "0" * 48 + "'", "ibm-mq"), "zero")
    assert sorted(index.match(message({}, message_id="ID:m"))) == ["ibm-mq", "zero"]


def test_values_are_found_until_they_are_compacted_away() -> None:
    index: ValueIndex[str] = ValueIndex(
        lambda entry: entry[0] if entry[0] != "-" else None, lambda entry: entry.endswith("1")
    )
    assert [index.add(entry) for entry in ("a1", "a2", "b1", "-1", "a1")] == [True, True, True, False, True]
    assert index.find("a") == ["a1", "a2"]
    assert index.find("ab") == ["a1", "a2", "b1"]
    assert index.find("-c") == []
    assert len(index) == 4
    assert list(index.compaction()) == [4]
    assert (index.find("ab"), len(index)) == (["a1", "b1"], 2)


@pytest.mark.parametrize("constant", ["{}", "'{}'"])
def test_a_long_chain_of_equalities_is_one_lookup(constant: str) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for number in range(20):
        values = [constant.format(1_000 * number + each) for each in range(300)]
        index.add(compiled(" OR ".join(f"a = {value}" for value in values)), number)
    value: Any = {"{}": 7_123, "'{}'": "7123"}[constant]
    assert index.match(message({"a": value})) == [7]
    assert index.evaluations == 1
    assert index.match(message({"a": 7_999 if constant == "{}" else "7999"})) == []
    assert index.evaluations == 1


def test_the_lookup_answers_comparisons_with_texts() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    for text in ("a = 'x'", "a IN ('x', 'y')", "JMSCorrelationID = 'x'"):
        assert compiled(text).is_lookup
        index.add(compiled(text), text)
    assert sorted(index.match(message({"a": "x"}))) == ["a = 'x'", "a IN ('x', 'y')"]
    assert index.match(message({"a": "y"}, correlation_id="x")) == ["a IN ('x', 'y')", "JMSCorrelationID = 'x'"]
    assert index.match(message({"a": "X"}, correlation_id=b"x")) == []


@pytest.mark.parametrize(
    "text", ["JMSDeliveryMode = 'PERSISTENT'", "a <> 'x'", "a NOT IN ('x', 'y')", "a = 1", "a = 'x' AND b = 1"]
)
def test_other_selectors_are_evaluated(text: str) -> None:
    assert not compiled(text).is_lookup
