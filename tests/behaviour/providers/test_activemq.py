"""What ``portability()`` says of ActiveMQ Classic, tried on ActiveMQ Classic.

A difference that no note speaks of is a mistake in the notes; so is a note that no message shows, and a rewrite that
ActiveMQ reads otherwise. Skipped without ActiveMQ's libraries and a Java compiler (Debian: libactivemq-java and
openjdk-17-jdk-headless; or ACTIVEMQ_HOME and any JDK from 17).

Values that ActiveMQ orders as Java orders objects are left out, because a note about them would stand at every number:
NaN is above all numbers and equals itself there, and -0.0 is below 0.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.behaviour.providers.activemq import ActiveMQ, find_jars
from tests.core.selector.test_conformance import headers_of
from tests.core.selector.test_conformance import value_of as value_of_data
from tests.core.selector.test_portability import NOTES
from tests.core.selector.test_properties import conditions, messages

from sievemq_core.message.values import Byte, Float, Long, Short
from sievemq_core.selector import CompiledSelector, SelectorError, compile_selector
from sievemq_core.selector.ast import Arithmetic, Between, Compare, Identifier, In, Like, Literal, Node, Unary, walk
from sievemq_core.selector.evaluate import value_of
from sievemq_core.selector.names import HEADERS
from sievemq_core.selector.printer import print_selector

CLASSIC = "ActiveMQ Classic"
SUITES = Path(__file__).parents[2] / "behaviour" / "conformance" / "selectors"
JARS = find_jars()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not JARS, reason="needs ActiveMQ Classic's libraries and a Java compiler"),
    pytest.mark.timeout(1_200),
]


@pytest.fixture(scope="module")
def activemq() -> Iterator[ActiveMQ]:
    with ActiveMQ(JARS) as running:
        yield running


def valid(text: str) -> CompiledSelector:
    selector = compile_selector(text)
    assert selector is not None
    return selector


def notes(selector: CompiledSelector) -> list[str]:
    return [str(note) for note in selector.portability() if CLASSIC in note.providers]


def is_plain(selector: CompiledSelector, properties: dict[str, Any], headers: tuple[Any, ...]) -> bool:
    """Neither NaN nor infinity nor -0.0 comes up."""
    for part in walk(selector.ast):
        if isinstance(part, Identifier | Literal | Unary | Arithmetic):
            value = value_of(part, selector.dialect, properties, headers)
            if isinstance(value, float) and (value - value != 0 or str(float(value)) == "-0.0"):
                return False
    return True


def differs(activemq: ActiveMQ, selector: CompiledSelector, batch: list[Any]) -> str | None:
    """Where ActiveMQ's answer differs from ours; None if nowhere."""
    answer = activemq.ask(selector.text, batch)
    if answer.refused is not None:
        return f"refused: {answer.refused}"
    assert len(answer.selected) == len(batch)
    for message, letter in zip(batch, answer.selected, strict=True):
        if (letter == "T") is not selector.function(*message):
            return f"{letter} for {message}"
    return None


def suite_cases() -> list[Any]:
    """The valid selectors of the language's own tests, with their messages."""
    found = []
    for path in sorted(SUITES.glob("*.json")):
        suite = json.loads(path.read_text(encoding="utf-8"))
        if suite["dialect"] == "jakarta":
            for group in suite["groups"]:
                for case in group["cases"]:
                    if "expect" in case:
                        merged = {**group, **case}
                        data = merged.get("properties", {})
                        properties = {name: value_of_data(value) for name, value in data.items()}
                        found.append((case["selector"], properties, headers_of(merged.get("headers"))))
    return found


def test_the_data_of_the_language(activemq: ActiveMQ) -> None:
    """Every difference has a note."""
    untold = []
    tried = 0
    for text, properties, headers in suite_cases():
        selector = valid(text)
        # what was set as bytes is text there, which is the message's business
        if is_plain(selector, properties, headers) and not any(isinstance(field, bytes) for field in headers):
            tried += 1
            where = differs(activemq, selector, [(properties, headers)])
            if where is not None and not notes(selector):
                untold.append((text, where))
    assert untold == []
    assert tried > 1_000


@settings(max_examples=1_000)
@given(tree=conditions, batch=st.lists(messages, min_size=1, max_size=4))
def test_random_selectors(activemq: ActiveMQ, tree: Node, batch: list[Any]) -> None:
    """Without a note there is no difference."""
    compare(activemq, tree, batch)


names = st.sampled_from(["a", "b", "JMSType", "JMSPriority", "JMSTimestamp"]).map(Identifier)
constants = st.sampled_from([Literal(value) for value in (0, 1, 5, 5.0, 2.5, "x", "", True, False, 2**31, 2**40)])
operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
short_conditions = st.one_of(
    st.builds(Compare, operators, names, constants),
    st.builds(Compare, operators, constants, names),
    st.builds(Compare, operators, names, names),
    st.builds(Between, names, constants | names, constants | names, st.booleans()),
    st.builds(In, names, st.just((Literal("x"), Literal("y"))), st.booleans()),
    st.builds(Like, names, st.sampled_from([Literal("x%"), Literal("%")]), st.none(), st.booleans()),
)
few_values = st.sampled_from(
    [None, True, False, 0, 1, 5, "x", "y", "", 5.0, 2.5, Float(2.5), Byte(5), Short(1), Long(5), 2**40]
)
few_messages = st.tuples(
    st.dictionaries(st.sampled_from(["a", "b"]), few_values),
    st.tuples(
        *(st.just(field) for field in ("ID:1", 5, 4, 2, 0, 0, None, None)), st.sampled_from([None, "x"]), st.none()
    ),
)


@settings(max_examples=1_000)
@given(tree=short_conditions, batch=st.lists(few_messages, min_size=1, max_size=8))
def test_single_conditions(activemq: ActiveMQ, tree: Node, batch: list[Any]) -> None:
    """Most of these have no note, so a missing one shows."""
    compare(activemq, tree, batch)


def compare(activemq: ActiveMQ, tree: Node, batch: list[Any]) -> None:
    try:
        selector = valid(print_selector(tree))
    except SelectorError:
        return  # mistyped
    if notes(selector):
        return
    kept = [
        message for message in batch if is_plain(selector, *message) and not any(type(f) is bytes for f in message[1])
    ]
    assert differs(activemq, selector, kept) is None


VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 5, -5, 15, 31, 7, 2**31 - 1, 2**31, 2**40, 5.0, 1.5, 0.5,
    "x", "xy", "", "x_y", "x!y", "x!y_", "xy_", "x1", "€uro",
    Byte(5), Short(3), Long(5), Long(7), Float(1.5), Float(0.1), Float(16_777_216.0),
]  # fmt: skip
HEADER = ("ID:1", 5, 4, 2, 0, 0, None, None, "T")


def every_message(selector: CompiledSelector) -> list[Any]:
    """Every value of one property, of two every pair."""
    one, other = (*sorted(selector.facts.names - HEADERS.keys()), "one", "other")[:2]
    return [
        ({name: value for name, value in ((one, a), (other, b)) if value is not None}, HEADER)
        for a in VALUES
        for b in VALUES
    ]


def shown(activemq: ActiveMQ, text: str) -> str | None:
    selector = valid(text)
    return differs(activemq, selector, every_message(selector))


@pytest.mark.parametrize("text", [text for text, said in NOTES.items() if any("C" in who for who, _, _ in said)])
def test_a_note_is_about_something(activemq: ActiveMQ, text: str) -> None:
    """There is a message that shows it, or the selector is refused."""
    assert shown(activemq, text) is not None


@pytest.mark.parametrize("text", [text for text, said in NOTES.items() if all("C" not in who for who, _, _ in said)])
def test_without_a_note_nothing_differs(activemq: ActiveMQ, text: str) -> None:
    assert shown(activemq, text) is None


@pytest.mark.parametrize("text", [text for text, said in NOTES.items() if sum("C" in who for who, _, _ in said) == 1])
def test_a_rewrite_does_not_differ(activemq: ActiveMQ, text: str) -> None:
    """What the only note proposes means the same on both, whatever the types are."""
    (note,) = [note for note in valid(text).portability() if CLASSIC in note.providers]
    if note.rewrite is not None:
        start, end = note.span
        assert shown(activemq, text[:start] + note.rewrite + text[end:]) is None
