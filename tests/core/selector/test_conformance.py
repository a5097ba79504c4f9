"""The language tests that are data (tests/behaviour/conformance), over the interpreter and the generated function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case

from sievemq_core.message.envelope import (
    CORRELATION_ID,
    DELIVERY_MODE,
    ENVELOPE_FIELDS,
    MESSAGE_ID,
    PRIORITY,
    TIMESTAMP,
    TYPE,
)
from sievemq_core.message.values import Byte, Float, Long, Short
from sievemq_core.selector import SelectorError, compile_selector, message_key
from sievemq_core.selector.compiled import CompiledSelector

SUITES = Path(__file__).parents[2] / "behaviour" / "conformance" / "selectors"

TRUTH = {"TRUE": True, "FALSE": False, "UNKNOWN": None}
WRAPPERS = {"b": Byte, "h": Short, "i": int, "l": Long, "f": Float, "d": float}
POSITIONS = {
    "JMSMessageID": MESSAGE_ID,
    "JMSTimestamp": TIMESTAMP,
    "JMSPriority": PRIORITY,
    "JMSDeliveryMode": DELIVERY_MODE,
    "JMSCorrelationID": CORRELATION_ID,
    "JMSType": TYPE,
}
MODES = {"NON_PERSISTENT": 1, "PERSISTENT": 2}


def value_of(data: Any) -> Any:
    """A typed value of the suite's JSON."""
    if not isinstance(data, dict):
        return data
    if "bytes" in data:
        return bytes.fromhex(data["bytes"])
    return WRAPPERS[data["t"]](float(data["v"]) if data["t"] in "fd" else data["v"])


def headers_of(data: dict[str, Any] | None) -> tuple[Any, ...]:
    fields: list[Any] = [None] * ENVELOPE_FIELDS
    fields[MESSAGE_ID], fields[TIMESTAMP], fields[PRIORITY], fields[DELIVERY_MODE] = "ID:1", 1_700_000_000_000, 4, 2
    for name, value in (data or {}).items():
        fields[POSITIONS[name]] = MODES[value] if name == "JMSDeliveryMode" else value_of(value)
    return tuple(fields)


def groups() -> dict[str, list[dict[str, Any]]]:
    """The cases of each group, by its name."""
    found = {}
    for path in sorted(SUITES.glob("*.json")):
        suite = json.loads(path.read_text(encoding="utf-8"))
        for group in suite["groups"]:
            found[f"{path.stem}: {group['name']}"] = [
                {**group, **one, "dialect": suite["dialect"]} for one in group["cases"]
            ]
    return found


def compiled(one: dict[str, Any]) -> CompiledSelector:
    selector = compile_selector(one["selector"], one["dialect"])
    assert selector is not None
    return selector


GROUPS = groups()
ALL = [one for group in GROUPS.values() for one in group]
VALID = {name: group for name, group in GROUPS.items() if "expect" in group[0]}
INVALID = {name: group for name, group in GROUPS.items() if "position" in group[0]}


def test_every_case_is_of_one_kind() -> None:
    valid, invalid = sum(map(len, VALID.values())), sum(map(len, INVALID.values()))
    assert all("expect" in one for group in VALID.values() for one in group)
    assert all("position" in one for group in INVALID.values() for one in group)
    assert valid + invalid == len(ALL) > 1_500


def test_every_decision_has_cases() -> None:
    """D-12 (blank), D-14 (no errors) and D-17 (index) are not about a truth value: test_compiled, test_properties."""
    rules = {rule for one in ALL for rule in one["rules"]}
    assert {f"D-{n:02}" for n in (*range(1, 12), 13, 15, 16)} <= rules


@pytest.mark.parametrize("group", VALID)
def test_truth_value(group: str) -> None:
    for number, one in enumerate(VALID[group]):
        with case(number, one["selector"]):
            check_truth_value(one)


def check_truth_value(one: dict[str, Any]) -> None:
    """The interpreter gives the truth value; the generated function is True for TRUE alone."""
    selector = compiled(one)
    properties = {name: value_of(value) for name, value in one.get("properties", {}).items()}
    headers = headers_of(one.get("headers"))
    assert selector.evaluate(properties, headers) is TRUTH[one["expect"]]
    assert selector.function(properties, headers) is (one["expect"] == "TRUE")


@pytest.mark.parametrize("group", VALID)
def test_facts_are_necessary(group: str) -> None:
    for number, one in enumerate(VALID[group]):
        with case(number, one["selector"]):
            check_facts(one)


def check_facts(one: dict[str, Any]) -> None:
    """A message that matches satisfies every fact."""
    if one["expect"] != "TRUE":
        assert not compiled(one).facts.always
        return
    selector = compiled(one)
    facts, numeric = selector.facts, {"numeric_mode": selector.dialect.numeric_mode}
    properties = {name: value_of(value) for name, value in one.get("properties", {}).items()}
    headers = headers_of(one.get("headers"))
    assert not facts.never
    for name, keys in facts.equalities:
        assert message_key(name, properties, headers, **numeric) in keys
    for name, bounds in facts.ranges:
        assert bounds.low <= message_key(name, properties, headers, **numeric) <= bounds.high  # type: ignore[operator]
    for name, prefixes in facts.prefixes:
        assert str(message_key(name, properties, headers, **numeric)).startswith(tuple(prefixes))
    assert all(message_key(name, properties, headers, **numeric) is not None for name in facts.present)
    assert all(message_key(name, properties, headers, **numeric) is None for name in facts.absent)


@pytest.mark.parametrize("group", VALID)
def test_canonical_text_means_the_same(group: str) -> None:
    for number, one in enumerate(VALID[group]):
        with case(number, one["selector"]):
            check_canonical_text(one)


def check_canonical_text(one: dict[str, Any]) -> None:
    """The canonical text is a selector again, with itself as canonical text and the same result."""
    selector = compiled(one)
    text = selector.canonical.removeprefix(f"{selector.dialect}: ")
    again = compile_selector(text, one["dialect"])
    assert again is not None
    assert again.canonical == selector.canonical
    properties = {name: value_of(value) for name, value in one.get("properties", {}).items()}
    assert again.evaluate(properties, headers_of(one.get("headers"))) is TRUTH[one["expect"]]


@pytest.mark.parametrize("group", INVALID)
def test_error(group: str) -> None:
    for number, one in enumerate(INVALID[group]):
        with case(number, one["selector"]):
            check_error(one)


def check_error(one: dict[str, Any]) -> None:
    """Refused at the right place, with the right advice, and a caret right under the mistake."""
    with pytest.raises(SelectorError) as caught:
        compile_selector(one["selector"], one["dialect"])
    error = caught.value
    assert (error.position, error.length) == (one["position"], one["length"]), str(error)
    assert one["fragment"] in str(error).splitlines()[0]
    *_, line, carets = str(error).split("\n")
    start, count = carets.index("^"), carets.count("^")
    wrong = one["selector"][error.position : error.position + max(1, error.length)]
    assert line[start : start + count].strip() == wrong.split("\n")[0].strip().replace("\u200b", "")
