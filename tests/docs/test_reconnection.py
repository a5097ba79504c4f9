"""docs/reconnection.md: its options are those of the code, its program runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from sievemq.url import options_as_rows
from sievemq_broker import EmbeddedBroker

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reconnection.md").read_text(encoding="utf-8")


def test_the_options_are_those_of_the_code() -> None:
    known = {row["name"]: row for row in options_as_rows()}
    rows = re.findall(r"^\| (\w+) \| (\w*) \| ([^|]+) \| ([^|]+) \|$", DOCUMENT, re.M)
    assert {name for name, *_ in rows} >= {name for name in known if name.startswith("reconnect")}
    for name, *cells in rows:
        assert cells == [known[name][part] for part in ("default", "wanted", "reason")], name


def test_the_program_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)
    with EmbeddedBroker() as broker:
        program = program.replace("sievemq://localhost", broker.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=180, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
