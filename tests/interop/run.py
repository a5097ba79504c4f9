"""Run clients and suites that others wrote against SieveMQ, and write docs/interop.md.

    python -m tests.interop.run                     every suite
    python -m tests.interop.run --only stompit      those whose name contains it
    python -m tests.interop.run --keep-page         leave docs/interop.md as it is

Ends with 0 if no test failed. A suite that cannot be had here is left out with one line, and keeps its row.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tests.interop import fetch
from tests.interop.catalogue import SUITES, Stage, Suite
from tests.interop.results import merged, row

PAGE = Path(__file__).resolve().parents[2] / "docs" / "interop.md"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", action="append", metavar="PART", help="suites whose name contains it; repeatable")
    parser.add_argument("--keep-page", action="store_true", help="do not write docs/interop.md")
    given = parser.parse_args()
    rows: dict[str, str] = {}
    failed = 0
    for number, suite in enumerate(SUITES):
        if given.only is None or any(part in suite.name for part in given.only):
            try:
                line, wrong = _carry_out(suite, number)
            except fetch.MissingError as reason:
                print(f"{suite.name}: left out: {reason}", flush=True)
                continue
            rows[suite.name] = line
            failed += wrong
    if not given.keep_page:
        reasons = {suite.name: suite.excluded for suite in SUITES}
        names = [suite.name for suite in SUITES]
        PAGE.write_text(merged(PAGE.read_text(encoding="utf-8"), rows, names, reasons), encoding="utf-8")
    return 1 if failed else 0


def _carry_out(suite: Suite, number: int) -> tuple[str, int]:
    folder = fetch.FOLDER / "runs" / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run = suite.run(Stage(folder, suite.excluded))
    failures = [each for each in run.results if not each.passed]
    print(f"{suite.name} {run.version}: {len(run.results) - len(failures)} passed, {len(failures)} failed", flush=True)
    for each in failures:
        print(f"    {each.name}: {each.detail[:200]}")
    if failures:
        print(f"    its output: {folder}")
    return row(suite.name, suite.origin, run.version, run.results, suite.excluded), len(failures)


if __name__ == "__main__":
    sys.exit(main())
