"""What a suite has found: reading it, and the page docs/interop.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

_GO = re.compile(r"^ *--- (PASS|FAIL): (\S+)", re.MULTILINE)
_TAP = re.compile(r"(not )?ok\b[ \d]*-? *(.*)")


@dataclass(frozen=True)
class Result:
    """One test of a suite.

    Attributes:
        name: of the test.
        passed: it did.
        detail: why not.
    """

    name: str
    passed: bool
    detail: str = ""


def from_junit(path: Path) -> list[Result]:
    """The results in a JUnit file. Tests that the suite itself skips are not among them."""
    found = []
    for case in ET.parse(path).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        wrong = next((part for part in case if part.tag in ("failure", "error")), None)
        name = f"{case.get('classname', '')}.{case.get('name', '')}".strip(".")
        found.append(Result(name, wrong is None, "" if wrong is None else str(wrong.get("message"))))
    return found


def from_tap(output: str) -> list[Result]:
    """The results in lines of the Test Anything Protocol: ``ok - name`` and ``not ok - name # why``."""
    found = []
    for line in output.splitlines():
        match = _TAP.fullmatch(line.strip())
        if match:
            name, _, detail = match[2].partition(" # ")
            found.append(Result(name, match[1] is None, detail))
    return found


def from_go(output: str) -> list[Result]:
    """The results in what ``go test -v`` writes. Tests that the suite itself skips are not among them."""
    return [Result(match[2], match[1] == "PASS") for match in _GO.finditer(output)]


def row(name: str, origin: str, version: str, results: Iterable[Result], excluded: Mapping[str, str]) -> str:
    """The line of a suite in the table of results."""
    passed = [each.passed for each in results]
    return f"| {name} | {origin} | {version} | {sum(passed)} | {len(passed) - sum(passed)} | {len(excluded)} |"


def merged(page: str, rows: Mapping[str, str], order: Iterable[str], reasons: Mapping[str, Mapping[str, str]]) -> str:
    """The page with new lines of results, and all reasons for exclusions.

    Args:
        page: as it is.
        rows: new lines, by the suite's name. A suite that is not among them keeps its line.
        order: names of all suites; a line of another one is dropped.
        reasons: by the suite's name: which tests are excluded, and why.
    """
    known = {line.split("|")[1].strip(): line for line in _between(page, "results").splitlines() if line[:2] == "| "}
    known |= rows
    lines = ["| suite | from | version | passed | failed | excluded |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [known[name] for name in order if name in known]
    page = _replaced(page, "results", "\n".join(lines) + "\n")
    lines = ["| suite | test | why |", "| --- | --- | --- |"]
    lines += [f"| {name} | `{test}` | {why} |" for name in order for test, why in reasons[name].items()]
    return _replaced(page, "exclusions", "\n".join(lines) + "\n")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->"


def _between(page: str, name: str) -> str:
    begin, end = _marks(name)
    return page.partition(begin)[2].partition(end)[0]


def _replaced(page: str, name: str, text: str) -> str:
    begin, end = _marks(name)
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]
