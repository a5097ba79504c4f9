"""Which test covers which rule of the API map: ``make coverage-map``.

A test covers a rule by carrying its id in its name, ``test_con_07_…``; several ids may follow each other,
``test_clo_01_con_21_…``, and a parametrised test may carry them in its case ids (``id="CNV-03"``). A rule that has
nothing to test is listed in NOT_APPLICABLE with the reason; one that the specification only recommends and that is not
followed, in NOT_FOLLOWED with what happens instead. An id with none of these fails the run.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[2]
RULES = TESTS.parent / "docs" / "rules.md"

NOT_APPLICABLE = {
    "CON-22": "ConnectionConsumer is an application-server facility; not provided",
    "CON-23": "ConnectionConsumer is an application-server facility; not provided",
    "CON-24": "ConnectionConsumer is an application-server facility; not provided",
    "SES-16": "the session's distinguished listener serves application servers; not provided",
    "SES-17": "Session.run serves application servers; not provided",
    "JSX-13": "grants freedom, obliges nothing: the delivery count may be inexact after failures",
    "TMP-11": "grants freedom, obliges nothing: temporary destinations may lose messages at shutdown",
    "THR-02": "a duty of applications: what sessions do about misuse is THR-06",
    "CTX-16": "container-managed contexts exist only in Jakarta EE",
    "TXN-17": "distributed transactions (XA) are not provided",
}

#: Recommendations of the specification ("should") that are not followed, and what happens instead.
NOT_FOLLOWED: dict[str, str] = {}

_ROW = re.compile(r"^\| [A-Z]{1,3}-\d\d \|.*$", re.MULTILINE)
_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
_IDS = re.compile(r"(?:^|_)([a-z]{1,3})_(\d\d)(?=_|$)")
_CASE = re.compile(r"""id=f?["']([A-Z]{2,3}-\d\d)\b""")


def rules() -> dict[str, str]:
    """Each rule of the API by its id, in the order of docs/rules.md; of the decisions D-32 alone."""
    rows = [row.strip("| ").split(" | ") for row in _ROW.findall(RULES.read_text(encoding="utf-8"))]
    return {row[0]: ": ".join(row[1:-1] or row[1:]) for row in rows if row[0][:2] != "D-" or row[0] == "D-32"}


def covered() -> dict[str, list[str]]:
    """Rule id -> the tests that name it."""
    known = rules()
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        where = path.relative_to(TESTS.parent).as_posix()
        for name in _TEST.findall(source):
            for family, number in _IDS.findall(name):
                rule = f"{family.upper()}-{number}"
                if rule in known:
                    found[rule].append(f"{where}::{name}")
        for rule in _CASE.findall(source):
            found[rule].append(f"{where} (case {rule})")
    return found


def main() -> int:
    """Print the map; return 1 if a rule has neither a test nor a reason."""
    tests = covered()
    missing: list[str] = []
    left: list[str] = []
    for rule, title in rules().items():
        if rule in tests:
            more = f" (+{len(tests[rule]) - 1})" if len(tests[rule]) > 1 else ""
            print(f"{rule}  {title}\n        {tests[rule][0]}{more}")
        elif rule in NOT_APPLICABLE:
            print(f"{rule}  {title}\n        n/a: {NOT_APPLICABLE[rule]}")
        elif rule in NOT_FOLLOWED:
            print(f"{rule}  {title}\n        not followed: {NOT_FOLLOWED[rule]}")
            left.append(rule)
        else:
            print(f"{rule}  {title}\n        MISSING")
            missing.append(rule)
    total = len(rules())
    settled = total - len(missing) - len(left)
    print(
        f"\n{total} rules: {settled} covered or n/a, {len(left)} recommended and not followed, {len(missing)} missing"
    )
    if missing:
        print("missing:", " ".join(missing))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
