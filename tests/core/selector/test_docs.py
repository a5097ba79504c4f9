"""Every example of docs/selectors.md is run."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import pytest

from sievemq_core.limits import MAX_SELECTOR_CHARS, MAX_SELECTOR_CONSTANTS, MAX_SELECTOR_DEPTH, MAX_SELECTOR_NODES
from sievemq_core.selector import SelectorError, compile_selector
from sievemq_core.selector.dialect import JAKARTA
from sievemq_core.selector.portability import PROVIDERS

PAGE = Path(__file__).parents[3] / "docs" / "selectors.md"
TEXT = PAGE.read_text(encoding="utf-8")

HEADERS = ("ID:1", 1_700_000_000_000, 4, 2, 0, 0, None, None, None)
TRUTH = {"TRUE": True, "FALSE": False, "UNKNOWN": None}


def rows(title: str) -> list[list[str]]:
    """The rows of every table with that first column."""
    found: list[list[str]] = []
    inside = False
    for line in TEXT.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(f"| {title} |"):
            inside = True
        elif inside and not line.startswith("| ---"):
            found.append([cell.strip().strip("`") for cell in line.strip("|").split(" | ")])
    return found


TABLES = {"selector": "jakarta", "ibm-mq": "ibm-mq", "mqe": "mqe", "amqp": "amqp"}
EXAMPLES = [(dialect, *row) for title, dialect in TABLES.items() for row in rows(title)]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 45
    assert len(rows("refused")) > 20


@pytest.mark.parametrize(("dialect", "text", "properties", "result"), EXAMPLES)
def test_example(dialect: str, text: str, properties: str, result: str) -> None:
    selector = compile_selector(text, dialect)
    assert selector is not None
    values = json.loads(properties)
    assert selector.evaluate(values, HEADERS) is TRUTH[result]
    assert selector.function(values, HEADERS) is (result == "TRUE")


@pytest.mark.parametrize(("text", "because"), rows("refused"))
def test_refusal(text: str, because: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    assert because in str(caught.value).split("\n")[0]


def portability_rows() -> list[tuple[str, str, str]]:
    """The rows about selectors: one of them, who differs, what is safe."""
    found = []
    lines = TEXT.split("| what | who differs | safe |\n| --- | --- | --- |\n")[1].splitlines()
    for line in lines[: lines.index("")]:
        what, who, safe = (cell.strip() for cell in line.strip("|").split("|"))
        found += [(text, who, safe.strip("`")) for text in re.findall("`([^`]+)`", what) if text != "ESCAPE"]
    return found


@pytest.mark.parametrize(("text", "who", "safe"), portability_rows())
def test_portability(text: str, who: str, safe: str) -> None:
    """Notes name the providers of the table, and their rewrite is safe."""
    for whole in (text, f"{text} = 3", f"a = {text}"):
        try:
            selector = compile_selector(whole)
        except SelectorError:
            continue
        break
    assert selector is not None
    named = {provider for provider in PROVIDERS if provider in who} or set(PROVIDERS)
    notes = selector.portability()
    assert named <= {provider for note in notes for provider in note.providers}
    if safe and not safe.startswith("the "):
        assert safe in {note.rewrite for note in notes}


def test_portability_has_its_rows() -> None:
    assert len(portability_rows()) > 14


def test_sessions() -> None:
    """The Python sessions, over the client's own Selector."""
    parsed = doctest.DocTestParser().get_doctest(
        re.sub(r"^```.*$", "", TEXT, flags=re.MULTILINE), {}, PAGE.name, str(PAGE), 0
    )
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(parsed)
    assert runner.summarize().failed == 0


def test_numbers_and_words_match_the_code() -> None:
    for limit in (MAX_SELECTOR_CHARS, MAX_SELECTOR_NODES, MAX_SELECTOR_CONSTANTS):
        assert f"{limit:,}" in TEXT
    assert f"{MAX_SELECTOR_DEPTH} levels" in TEXT
    assert " ".join(sorted(JAKARTA.reserved)) in TEXT
