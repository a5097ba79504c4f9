"""Programs that documents show, run as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys

__all__ = ["output_of", "programs_of"]


def programs_of(text: str) -> list[tuple[str, str]]:
    """The programs of a document that stand before what they print, each with that."""
    return re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def output_of(program: str, url: str) -> str:
    """Run a program in a process of its own, where warnings are errors.

    Args:
        program: connects to ``sievemq://localhost``.
        url: of the broker that it is to find there.

    Returns:
        What it prints. It must end well and say nothing on standard error.
    """
    assert "sievemq://localhost" in program
    source = program.replace("sievemq://localhost", url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
