"""What the hook of the compiled build says where it cannot compile.

That it can, tests/core/test_compiled.py shows on the build that it made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def compiled(folder: Path, source: str, **environment: str) -> str:
    """The output of compiling a module in a folder of its own."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    for root in ("core", "client", "broker", "testkit", "pipeline"):  # the paths that mypy looks in
        (folder / root).mkdir()
    (folder / "core" / "tiny.py").write_text(source)
    program = "from pathlib import Path; from hatch_build import compile_to; compile_to(Path('made'), ['core/tiny.py'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SIEVEMQ_COMPILE_LEVEL": "0", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode != 0) is ("RuntimeError: SIEVEMQ_COMPILE: " in done.stderr), done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_without_a_compiler_the_error_names_the_packages_and_the_python_build(tmp_path: Path) -> None:
    said = compiled(tmp_path, "def one() -> int:\n    return 1\n", CC="no-such-compiler")
    assert "SIEVEMQ_COMPILE: the C compiler failed: " in said
    assert "no-such-compiler" in said
    assert "gcc and libc6-dev" in said
    assert "Without SIEVEMQ_COMPILE the wheel is plain Python" in said


@pytest.mark.slow
def test_errors_of_mypyc_are_shown_with_their_line(tmp_path: Path) -> None:
    said = compiled(tmp_path, "def one() -> int:\n    return 'one'\n")
    assert "tiny.py:2: error: " in said
    assert "SIEVEMQ_COMPILE: mypyc refuses the sources" in said
