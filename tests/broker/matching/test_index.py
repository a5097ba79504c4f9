"""The index finds what asking everybody would find, and asks few."""

from __future__ import annotations

from typing import Any

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
]  # fmt: skip
NAMES = ["a", "b"]


def atoms() -> st.SearchStrategy[str]:
    equal = st.builds("{} = {}".format, st.sampled_from(NAMES), st.sampled_from(LITERALS))
    fixed = st.sampled_from([
        "a IN ('x', '1')", "b NOT IN ('x')", "a LIKE 'x'", "a IS NULL", "b IS NOT NULL", "a > 1", "a BETWEEN 1 AND 2",
        "a <> 1", "JMSPriority = 4", "JMSDeliveryMode = 'PERSISTENT'", "JMSDeliveryMode = 'NON_PERSISTENT'",
        "JMSType = 'x'", "JMSCorrelationID = 'c'", "JMSMessageID = 'ID:m'", "JMSTimestamp = 7", "a", "NOT b",
    ])  # fmt: skip
    return st.one_of(equal, fixed)


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


@given(st.lists(SELECTORS, max_size=12), st.lists(MESSAGES, min_size=1, max_size=5), st.data())
def test_the_index_finds_what_asking_everybody_finds(texts: list[str], messages: list[Envelope], data: Any) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    selectors = dict(enumerate(map(compiled, texts)))
    for number, selector in selectors.items():
        index.add(selector, number)
    for envelope in messages:
        found = index.match(envelope)
        assert sorted(found) == [number for number, selector in selectors.items() if is_true(selector, envelope)]
        assert len(set(found)) == len(found)
        if selectors:
            gone = data.draw(st.sampled_from(sorted(selectors)))
            index.remove(gone)
            del selectors[gone]
    assert index.error is None
    assert len(index) == len(selectors)
    for number in selectors:
        index.remove(number)
    assert (index._names, index._rest, index._needing) == ({}, {}, 0)


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


def test_a_selector_that_can_never_match_is_never_asked() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(compiled("a = 1 AND a = 2"), "never")
    assert index.match(message({"a": 1})) == []
    assert index.evaluations == 0
    index.remove("never")


def test_d14_one_that_cannot_be_asked_does_not_stop_the_others() -> None:
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
