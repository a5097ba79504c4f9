"""Text as a selector: refused with a place, or the same answer by every way of evaluating it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sievemq_core.message.values import Byte, Float, Long
from sievemq_core.selector import SelectorError, compile_selector, verify_selector
from sievemq_core.selector.describe import describe_facts, describe_plan
from sievemq_core.selector.dialect import DIALECTS

SUITES = Path(__file__).parents[3] / "behaviour" / "conformance" / "selectors"
NAMES = list(DIALECTS)

HEADERS = ("ID:1", 5, 4, 2, 0, 0, "c", None, "T", None, None, 1, None)
MESSAGES: list[dict[str, Any]] = [
    {},
    {"a": 1, "b": 2, "c": "x"},
    {"a": "x", "b": Long(5), "c": None, "d": Float(0.1)},
    {"a": True, "b": 2**62, "c": Byte(-3), "i": 7, "s": "text", "t": True, "n": None},
    {"a": 0.5, "b": -0.0, "c": 1e308, "s": ""},
]


def seeds() -> Iterator[bytes]:
    for path in sorted(SUITES.glob("*.json")):
        suite = json.loads(path.read_text(encoding="utf-8"))
        first = bytes([NAMES.index(suite["dialect"])])
        for group in suite["groups"]:
            for case in group["cases"]:
                if len(case["selector"]) < 500:
                    yield first + case["selector"].encode("utf-8", "surrogatepass")


def run(data: bytes) -> None:
    """The first byte is the dialect."""
    if not data:
        return
    name = NAMES[data[0] % len(NAMES)]
    dialect = DIALECTS[name]
    text = data[1:].decode("utf-8", "surrogateescape")
    try:
        selector = compile_selector(text, name)
    except SelectorError as error:
        _refused(text, error)
        try:
            verify_selector(text, dialect)
        except SelectorError as again:
            assert str(again) == str(error)
            return
        raise AssertionError("verified, but not compiled") from None
    assert (verify_selector(text, dialect) is None) is (selector is None)
    if selector is None:
        return
    for properties in MESSAGES:
        truth = selector.evaluate(properties, HEADERS)
        assert selector.function(properties, HEADERS) is (truth is True)
        tree = selector.explain(properties, HEADERS)
        assert tree.as_dict()["truth"] == {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[truth]
        assert str(tree)
    assert describe_plan(selector.plan)
    describe_facts(selector.facts, selector.alternatives)
    compile(selector.source, "selector", "exec")
    for warning in selector.warnings:
        assert text[slice(*warning.span)]
    for note in selector.portability():
        json.dumps(note.as_dict())
        start, end = note.span
        if note.rewrite is not None and name == "jakarta" and len(text) < 2_000:
            _compiles(f"{text[:start]} {note.rewrite} {text[end:]}")
    if name == "jakarta":
        again = compile_selector(selector.canonical)
        assert again is not None
        assert again.canonical == selector.canonical


def _compiles(text: str) -> None:
    """A rewrite in its place: it may only be too much for a limit that the selector itself just kept."""
    try:
        compile_selector(text)
    except SelectorError as error:
        assert "nested deeper" in error.message or "too large" in error.message, str(error)


def _refused(text: str, error: SelectorError) -> None:
    assert 0 <= error.position <= len(text)
    assert error.position + error.length <= max(len(text), error.position)
    first = str(error).partition("\n")[0]
    assert len(first) < 700, first
    assert "^" in str(error)
    assert str(SelectorError.from_details(str(error), error.details)) == str(error)
