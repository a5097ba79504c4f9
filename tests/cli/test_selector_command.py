"""`sievemq selector check` and `explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Sievemq


def test_valid_selectors(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "check", "a = 1", "b LIKE 'x%'")
    assert (outcome.code, outcome.out) == (0, "2 of 2 valid\n")


def test_mistakes_are_shown_with_a_caret_and_the_code_is_4(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "check", "a = 1", "region == 'EU'")
    assert (outcome.code, outcome.out) == (4, "1 of 2 valid\n")
    assert "argument 2: " in outcome.err
    line, carets = outcome.err.splitlines()[1:3]
    assert line[carets.index("^") : carets.rindex("^") + 1] == "=="


def test_files_are_checked_line_by_line(sievemq: Sievemq, tmp_path: Path) -> None:
    file = tmp_path / "selectors"
    file.write_text("# ours\na = 1\n\nb > \nc IS NULL\n")
    outcome = sievemq("selector", "check", "-f", str(file))
    assert (outcome.code, outcome.out) == (4, "2 of 3 valid\n")
    assert f"{file}:4: " in outcome.err
    assert sievemq("selector", "check", "-f", "-", stdin=b"a = 1\n").code == 0
    assert sievemq("selector", "check", "-f", str(tmp_path / "none")).code == 2


def test_nothing_to_check_is_a_usage_error(sievemq: Sievemq) -> None:
    assert sievemq("selector", "check").code == 2


def test_check_as_json(sievemq: Sievemq) -> None:
    good, bad = map(json.loads, sievemq("selector", "check", "a = 1", "a = ", "--json").lines)
    assert (good["valid"], good["warnings"]) == (True, [])
    assert (bad["valid"], bad["position"]) == (False, 4)
    assert bad["error"]


def test_warning_does_not_make_it_invalid(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "check", "a = 1 AND a = 2")
    assert outcome.code == 0
    assert "warning" in outcome.err


def test_dialect_is_chosen(sievemq: Sievemq) -> None:
    assert sievemq("selector", "check", "a = 1 OR b = 2").code == 0
    assert sievemq("selector", "check", "a = 1 OR b = 2", "--dialect", "mqe").code == 4
    assert sievemq("selector", "check", "a = 1", "--dialect", "nonsense").code == 2


@pytest.mark.parametrize(
    ("properties", "verdict"), [(["region=EU"], "TRUE"), (["region=US"], "FALSE"), (["other=1"], "UNKNOWN")]
)
def test_explain_says_what_it_says_of_a_message(sievemq: Sievemq, properties: list[str], verdict: str) -> None:
    options = [part for entry in properties for part in ("-p", entry)]
    facts = json.loads(sievemq("selector", "explain", "region = 'EU'", *options, "--json").out)
    assert (facts["verdict"], facts["matches"]) == (verdict, verdict == "TRUE")


def test_explain_looks_at_headers(sievemq: Sievemq) -> None:
    text = "JMSType = 'order' AND JMSPriority > 6 AND JMSCorrelationID LIKE 'c%'"
    options = ("--type", "order", "--priority", "7", "--correlation-id", "c-1")
    assert json.loads(sievemq("selector", "explain", text, *options, "--json").out)["verdict"] == "TRUE"


def test_explain_for_people(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "explain", "(region='EU')  AND total>10", "-p", "region=EU")
    assert outcome.code == 0
    assert "region = 'EU'" in outcome.out
    assert "found by index region is one of EU" in outcome.out
    assert "UNKNOWN: does not match" in outcome.out
    assert "asked for every message" in sievemq("selector", "explain", "total > 10").out
    assert "every message" in sievemq("selector", "explain", " ").out


def test_explain_of_a_mistake_is_4(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "explain", "region == 'EU'")
    assert outcome.code == 4
    assert "^^" in outcome.err
