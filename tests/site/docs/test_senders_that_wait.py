"""docs/operating.md on senders that wait: its program runs and says what it says it does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from sievemq_broker import EmbeddedBroker

OPERATING = Path(__file__).parents[3] / "docs" / "operating.md"
SECTION = OPERATING.read_text(encoding="utf-8").split("\n### Senders that wait\n")[1].split("\n## ")[0]


def test_the_program_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", SECTION, re.S)
    with EmbeddedBroker(settings={"destinations": {"orders": {"max_messages": 2, "at_limit": "block"}}}) as broker:
        program = program.replace("sievemq://localhost", broker.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=180, check=False
        )
    assert done.returncode == 0, done.stderr
    # Two threads print: a line of one may stand in the line of the other.
    full = "queue:orders is full; it may hold 2 messages (rule queue:orders)"
    assert f"waiting: {full}" in done.stdout
    assert f"not sent: {full}; this message waited 1000 ms" in done.stdout
    assert "sends wait" in done.stderr or not done.stderr
