"""The harness of `make interop` without a network: reading results, and the page that shows them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.interop import catalogue, fetch
from tests.interop.catalogue import SUITES, Run, Stage, Suite
from tests.interop.results import Result, from_go, from_junit, from_tap, merged, row
from tests.interop.run import PAGE, main

EMPTY = (
    "# x\n\n<!-- results -->\n<!-- end of results -->\n\nwhy\n\n<!-- exclusions -->\n<!-- end of exclusions -->\nend\n"
)


def test_lines_of_the_test_anything_protocol() -> None:
    output = "TAP version 13\nok - a\nnot ok 2 - b c # 1 instead of 2\n  ok 3 d\n# note\nokay\n1..3\n"
    assert from_tap(output) == [Result("a", True), Result("b c", False, "1 instead of 2"), Result("d", True)]


def test_results_of_go() -> None:
    output = (
        "=== RUN   TestA\n    --- PASS: TestA/x_y (0.01s)\n--- FAIL: TestA (0.02s)\n--- SKIP: TestB (0.00s)\nFAIL\n"
    )
    assert from_go(output) == [Result("TestA/x_y", True), Result("TestA", False)]


def test_results_of_junit(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(
        "<testsuites><testsuite><testcase classname='m.C' name='a'/><testcase classname='m' name='b'>"
        "<failure message='no'/></testcase><testcase classname='m' name='c'><error message='worse'/></testcase>"
        "<testcase classname='m' name='d'><skipped/></testcase></testsuite></testsuites>"
    )
    assert from_junit(path) == [Result("m.C.a", True), Result("m.b", False, "no"), Result("m.c", False, "worse")]


def test_a_suite_that_did_not_run_keeps_its_line() -> None:
    reasons = {"a": {}, "b": {"test_x": "needs a network"}}
    results = [Result("1", True), Result("2", False)]
    page = merged(EMPTY, {name: row(name, "npm", "1", results, reasons[name]) for name in "ab"}, "ab", reasons)
    assert "| a | npm | 1 | 1 | 1 | 0 |\n| b | npm | 1 | 1 | 1 | 1 |\n<!-- end" in page
    assert "| b | `test_x` | needs a network |\n<!-- end" in page
    page = merged(page, {"b": row("b", "npm", "2", results[:1], reasons["b"])}, "ab", reasons)
    assert "| a | npm | 1 | 1 | 1 | 0 |\n| b | npm | 2 | 1 | 0 | 1 |\n<!-- end" in page
    assert merged(page, {}, "b", {"b": {}}).count("\n| ") == 5
    assert page.startswith("# x\n\n<!-- results -->\n| suite")
    assert "\n\nwhy\n\n" in page
    assert page.endswith("-->\nend\n")


def test_the_page_shows_every_suite_without_a_failure() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert merged(page, {}, [suite.name for suite in SUITES], {suite.name: suite.excluded for suite in SUITES}) == page
    lines = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| ")]
    failed = {cells[1]: cells[5] for cells in lines if len(cells) == 8}
    assert {suite.name: failed.get(suite.name) for suite in SUITES} == {suite.name: "0" for suite in SUITES}


def test_a_program_without_a_result_has_failed_and_a_missing_one_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(code: str) -> Suite:
        def run(stage: Stage) -> Run:
            with stage.broker() as broker:
                return Run("1", stage.program(sys.executable, "-c", code, PORT=broker.port))

        return Suite(code, "STOMP", "here", run)

    def missing(stage: Stage) -> Run:
        fetch.installed("no-such-program")
        raise AssertionError(stage)

    good = "import os; print('ok - listens' if int(os.environ['PORT']) else 'not ok - listens')"
    suites = [program("pass"), program(good), Suite("absent", "STOMP", "nowhere", missing)]
    monkeypatch.setattr("tests.interop.run.SUITES", suites)
    monkeypatch.setattr(fetch, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["interop", "--keep-page"])
    assert main() == 1
    said = capsys.readouterr().out
    assert "pass 1: 0 passed, 1 failed" in said
    assert f"{good} 1: 1 passed, 0 failed" in said
    assert "absent: left out: no-such-program is not installed" in said


def test_every_program_belongs_to_a_suite() -> None:
    origins = " ".join(suite.origin for suite in SUITES)
    assert all(f"`{path.name}`" in origins for path in catalogue.PROGRAMS.iterdir())
