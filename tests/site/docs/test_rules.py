"""docs/rules.md: it has every rule id that the tree cites, once, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "rules.md"
FOLDERS = ("core", "client", "broker", "testkit", "pipeline", "tests", "benchmarks", "examples", "docs")
LISTED = re.findall(r"^\| ([A-Z]{1,3}-\d\d) \|", PAGE.read_text("utf-8"), re.MULTILINE)
FAMILIES = "|".join(sorted({rule.partition("-")[0] for rule in LISTED}))
#: `JCO-09`, or the end of a range: `CNV-01..06`.
CITED = re.compile(rf"\b({FAMILIES})-(\d\d)\b(?:(?:\.\.| to (?:\1-))(\d\d)\b)?")
NAMED = re.compile(rf"(?<![a-z])({FAMILIES.lower()})_(\d\d)(?!\d)")


def cited() -> dict[str, Path]:
    """Rule id -> a file that cites it, in its text or in the name of a test."""
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".py", ".md", ".json") or path == PAGE or "node_modules" in path.parts:
                continue
            text = path.read_text("utf-8")
            for family, first, last in CITED.findall(text):
                for number in range(int(first), int(last or first) + 1):
                    found.setdefault(f"{family}-{number:02}", path)
            if path.name.startswith("test_"):
                for family, number in NAMED.findall(text):
                    found.setdefault(f"{family.upper()}-{number}", path)
    return found


def test_each_rule_is_listed_once() -> None:
    assert len(set(LISTED)) == len(LISTED) > 600


def test_each_rule_has_a_sentence_and_a_source() -> None:
    for row in re.findall(r"^\| [A-Z]{3}-\d\d \|.*$", PAGE.read_text("utf-8"), re.MULTILINE):
        *_, rule, source = row.strip("| ").split(" | ")
        assert rule.endswith("."), row
        assert source == "-" or source.startswith("§"), row


def test_every_cited_rule_is_listed() -> None:
    unknown = {rule: path.relative_to(ROOT) for rule, path in cited().items() if rule not in LISTED}
    assert unknown == {}


def test_every_listed_rule_is_cited() -> None:
    assert sorted(set(LISTED) - cited().keys()) == []
