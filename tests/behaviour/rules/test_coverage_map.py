"""The map of rules stays complete: every id has a test that names it, or a reason why there is nothing to test."""

from __future__ import annotations

import pytest

from . import coverage_map


def test_every_rule_has_a_test_or_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    result = coverage_map.main()
    assert result == 0, capsys.readouterr().out.splitlines()[-1]


def test_a_rule_without_either_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = coverage_map.rules()
    monkeypatch.setattr(coverage_map, "rules", lambda: {**known, "ZZZ-01": "a rule that nobody tests"})
    assert coverage_map.main() == 1
    assert "missing: ZZZ-01" in capsys.readouterr().out


def test_reasons_are_for_rules_that_exist_and_have_no_test() -> None:
    known, tests = coverage_map.rules(), coverage_map.covered()
    for rule in (*coverage_map.NOT_APPLICABLE, *coverage_map.NOT_FOLLOWED):
        assert rule in known
        assert rule not in tests, f"{rule} has a test now: {tests[rule][0]}"
