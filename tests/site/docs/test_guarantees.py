"""docs/guarantees.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")


def test_every_promise_names_a_test_that_is_there() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and line.count("|") == 6][2:]
    assert len(rows) > 20
    for row in rows:
        shown_by = re.findall(r"`(tests/[^` ]+)[^`]*`", row.rsplit("|", 2)[1])
        assert shown_by or "make kills" in row, row
        for path in shown_by:
            assert (ROOT / path).exists(), path
