"""Programs that documents show, run as a reader would run them."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

#: Names that the fragments of a document use and do not bind.
_GIVEN = {
    "docs/pipeline.md": """\
from pyspark.sql import DataFrame, SparkSession

spark: SparkSession
frame: DataFrame
orders: DataFrame
url: str
path: str
place: str

"""
}


def programs_of(text: str) -> list[tuple[str, str]]:
    """The programs of a document that stand before what they print, each with that."""
    return re.findall(r"^```python\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```", text, re.MULTILINE)


def modules_of(document: Path) -> dict[str, str]:
    """All Python of a document, for a type checker: module name -> source. Its interactive examples are one module."""
    name = re.sub(r"\W", "_", document.relative_to(ROOT).with_suffix("").as_posix())
    blocks = re.findall(r"^```python\b[^\n]*\n(.*?)^```$", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    modules, typed = {}, ""
    for number, block in enumerate(blocks, 1):
        if block.startswith(">>>"):
            typed += doctest.script_from_examples(block)
        else:
            modules[f"{name}_{number}"] = _GIVEN.get(document.relative_to(ROOT).as_posix(), "") + block
    if typed:
        modules[name] = typed
    return modules


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
