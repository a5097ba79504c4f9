"""website/pages/index.md, the first page of the site: its tests do what it shows, its program prints what it shows."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

from tests.projects import PYTEST

from .programs import ROOT, programs_of

TEXT = (ROOT / "website/pages/index.md").read_text("utf-8")
TESTS = dict(re.findall(r"^```python\n# (test_\w+\.py)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))


def test_the_tests_pass_and_fail_as_shown(tmp_path: Path) -> None:
    assert sorted(TESTS) == ["test_big_orders.py", "test_retries.py"]
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text, "utf-8")
    done = subprocess.run(
        [*PYTEST, "-q", "-p", "no:asyncio"], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    (shown,) = (text for text in re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL) if "never" in text)
    parts = [re.escape(" ".join(part.split())) for part in shown.split("…")]
    assert re.search(".{0,99}?".join(parts), " ".join(done.stdout.split())), done.stdout


def test_the_program_prints_the_shown_output() -> None:
    (_, (program, shown)) = programs_of(TEXT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "index.md", "exec"), {})
    assert printed.getvalue() == shown
