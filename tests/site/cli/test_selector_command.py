"""`sievemq selector check` and `explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Sievemq


def test_valid_selectors(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "check", "-e", "a = 1", "-e", "b LIKE 'x%'")
    assert (outcome.code, outcome.out) == (0, "2 of 2 valid\n")


def test_mistakes_are_shown_with_a_caret_and_the_code_is_4(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "check", "-e", "a = 1", "-e", "region == 'EU'")
    assert (outcome.code, outcome.out) == (4, "1 of 2 valid\n")
    assert "expression 2: " in outcome.err
    line, carets = outcome.err.splitlines()[1:3]
    assert line[carets.index("^") : carets.rindex("^") + 1] == "=="


def test_files_are_checked_line_by_line(sievemq: Sievemq, tmp_path: Path) -> None:
    file = tmp_path / "selectors"
    file.write_text("# ours\na = 1\n\nb > \nc IS NULL\n")
    outcome = sievemq("selector", "check", str(file))
    assert (outcome.code, outcome.out) == (4, "2 of 3 valid\n")
    assert f"{file}:4: " in outcome.err
    assert sievemq("selector", "check", "-", stdin=b"a = 1\n").code == 0
    assert sievemq("selector", "check", str(tmp_path / "none")).code == 2


def test_nothing_to_check_is_a_usage_error(sievemq: Sievemq) -> None:
    assert sievemq("selector", "check").code == 2


def test_check_as_json(sievemq: Sievemq) -> None:
    good, bad = map(json.loads, sievemq("selector", "check", "-e", "a = 1", "-e", "a = ", "--json").lines)
    assert (good["valid"], good["warnings"]) == (True, [])
    assert (bad["valid"], bad["position"]) == (False, 4)
    assert bad["error"]


def test_warning_does_not_make_it_invalid(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "check", "-e", "a = 1 AND a = 2")
    assert outcome.code == 0
    assert "warning" in outcome.err


def test_dialect_is_chosen(sievemq: Sievemq) -> None:
    assert sievemq("selector", "check", "-e", "a = 1 OR b = 2").code == 0
    assert sievemq("selector", "check", "-e", "a = 1 OR b = 2", "--dialect", "mqe").code == 4
    assert sievemq("selector", "check", "-e", "a = 1", "--dialect", "nonsense").code == 2


@pytest.mark.parametrize(
    ("properties", "verdict"), [(["region=EU"], "TRUE"), (["region=US"], "FALSE"), (["other=1"], "UNKNOWN")]
)
def test_explain_describes_the_result_for_a_message(sievemq: Sievemq, properties: list[str], verdict: str) -> None:
    options = [part for entry in properties for part in ("-p", entry)]
    facts = json.loads(sievemq("selector", "explain", "region = 'EU'", *options, "--json").out)
    assert (facts["verdict"], facts["matches"]) == (verdict, verdict == "TRUE")


def test_explain_covers_headers(sievemq: Sievemq) -> None:
    text = "JMSType = 'order' AND JMSPriority > 6 AND JMSCorrelationID LIKE 'c%'"
    options = ("--type", "order", "--priority", "7", "--correlation-id", "c-1")
    assert json.loads(sievemq("selector", "explain", text, *options, "--json").out)["verdict"] == "TRUE"


def test_explain_covers_names_in_double_quotes(sievemq: Sievemq) -> None:
    options = ("--dialect", "amqp", "--json", "-p", "trace-id=x")
    told = json.loads(sievemq("selector", "explain", "\"trace-id\" = 'x'", *options).out)
    assert (told["verdict"], told["index"]) == ("TRUE", ["trace-id = 'x'"])


def test_explain_for_people(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "explain", "(region='EU')  AND total>10", "-p", "region=EU")
    assert outcome.code == 0
    assert "region = 'EU'" in outcome.out
    assert "found by index region = 'EU'" in outcome.out
    assert "a part is UNKNOWN and none is FALSE" in outcome.out
    assert "total is absent  <- decides" in outcome.out
    assert "plan           all of" in outcome.out
    assert "def selector" not in outcome.out
    assert "UNKNOWN: does not match" in outcome.out
    assert "evaluated for every message" in sievemq("selector", "explain", "a <> b OR 1 = 1").out
    assert "every message" in sievemq("selector", "explain", " ").out


def test_explain_of_a_mistake_is_4(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "explain", "region == 'EU'")
    assert outcome.code == 4
    assert "^^" in outcome.err


def test_portability_notes_do_not_make_it_invalid(sievemq: Sievemq) -> None:
    outcome = sievemq("selector", "check", "--portability", "-e", "a = 1 AND b <> 5")
    assert outcome.code == 0
    assert "write (b < 5 OR b > 5)" in outcome.out
    (record,) = map(json.loads, sievemq("selector", "check", "--portability", "--json", "-e", "b <> 5").lines)
    note, missing = record["portability"]
    assert "RabbitMQ" in note["providers"]
    assert missing["providers"] == ["Qpid Broker-J"]
    assert (note["rewrite"], note["position"], note["length"]) == ("(b < 5 OR b > 5)", 0, 6)


def test_explain_shows_plan_index_and_python(sievemq: Sievemq) -> None:
    text = "(a = 1 OR b LIKE 'x%') AND NOT c BETWEEN 1 AND 2 AND n > 5 AND flag"
    facts = json.loads(sievemq("selector", "explain", text, "--python", "--json").out)
    assert facts["plan"] == [
        "all of",
        "  any of",
        "    a = 1",
        "    b LIKE 'x%'",
        "  any of",
        "    c >= 1 is FALSE",
        "    c <= 2 is FALSE",
        "  n > 5",
        "  flag is TRUE",
    ]
    assert facts["index"] == ["flag = TRUE", "5 <= n", "c is not NULL", "a = 1 or b begins with 'x'"]
    assert facts["python"].startswith("def selector(properties, headers):")
    assert (facts["verdict"], facts["explanation"]) == (None, None)
    assert "python         def selector" in sievemq("selector", "explain", text, "--python").out
    assert "no message can match" in sievemq("selector", "explain", "a = 1 AND a = 2").out
    assert "portability" in sievemq("selector", "explain", text, "--portability").out


def test_explain_of_a_message_in_a_file(sievemq: Sievemq, tmp_path: Path) -> None:
    file = tmp_path / "message.json"
    record = {
        "properties": {"n": 5, "f": 0.5, "x": "NaN", "none": None},
        "property_types": {"n": "byte", "f": "float", "x": "double"},
        "type": "order", "priority": 7, "correlation_id": "c", "message_id": "ID:1", "timestamp": 3,
        "delivery_mode": "NON_PERSISTENT", "body": "ignored",
    }  # fmt: skip
    file.write_text(json.dumps(record))
    text = (
        "n = 5 AND f = 0.5f AND NOT x = x AND none IS NULL AND JMSType = 'order' AND JMSPriority = 7 AND "
        "JMSCorrelationID = 'c' AND JMSMessageID = 'ID:1' AND JMSTimestamp = 3 AND JMSDeliveryMode = 'NON_PERSISTENT'"
    )
    facts = json.loads(sievemq("selector", "explain", text, "--message", str(file), "--json").out)
    assert facts["verdict"] == "TRUE", facts
    assert facts["explanation"]["parts"][0]["reason"] == "n is 5 (byte)"


@pytest.mark.parametrize("content", ["[]", "{", '{"properties": 5}', '{"delivery_mode": "SOMETIMES"}',
                                     '{"properties": {"a": 1}, "property_types": {"a": "number"}}'])  # fmt: skip
def test_a_file_that_is_no_message_is_a_usage_error(sievemq: Sievemq, tmp_path: Path, content: str) -> None:
    file = tmp_path / "message.json"
    file.write_text(content)
    outcome = sievemq("selector", "explain", "a = 1", "-m", str(file))
    assert outcome.code == 2
    assert "is not a message" in outcome.err
