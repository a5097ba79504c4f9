"""`make test` runs in parts and ends with one line that sums them, right also where a part fails or is killed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CI = Path(__file__).parents[3] / ".ci"

#: Stands for make: each part is a file beside it, which does what that part shall do.
MAKE = '#!/bin/sh\nexec sh "./$2" "${3#COUNTS=}"\n'
PARTS = {
    "fast": "echo 20 0 1 >$1",
    "slow": "echo 5 0 2 >$1",
    "docker": "echo 0 0 17 >$1",
    "to-spark": "true",
    "lint": "true",
    "to-compile": "true",
    "spark": "true",  # without Java there are no tests
    "compiled": "echo 7 0 0 >$1",
}


def run(clone: Path, **parts: str) -> tuple[int, list[str]]:
    """The exit status and the lines of `make test`, where some parts do something else than pass."""
    (clone / ".ci").mkdir()
    for name in ("test", "total"):
        shutil.copy(CI / name, clone / ".ci")
    (clone / "make").write_text(MAKE)
    (clone / "make").chmod(0o755)
    for name, commands in {**PARTS, **parts}.items():
        (clone / name).write_text(commands)
    done = subprocess.run(
        [clone / ".ci" / "test"], env={"MAKE": "./make", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def test_the_last_line_sums_all_parts(tmp_path: Path) -> None:
    status, lines = run(tmp_path)
    assert (status, lines[-1]) == (0, "32 passed, 0 failed, 20 skipped")
    assert "fast: 20 passed, 0 failed, 1 skipped" in lines


@pytest.mark.parametrize(
    ("part", "commands", "last", "reason"),
    [
        ("slow", "echo 3 2 2 >$1; exit 2", "30 passed, 2 failed, 20 skipped", "slow: 3 passed, 2 failed, 2 skipped"),
        ("lint", "exit 2", "32 passed, 1 failed, 20 skipped", "lint: failed (exit status: 2)"),
        ("fast", "echo 20 0 1 >$1; exit 2", "32 passed, 1 failed, 20 skipped", "fast: 20 passed, 1 failed (exit"),
        ("spark", "kill -KILL $$", "32 passed, 1 failed, 20 skipped", "spark: failed (exit status: "),
    ],
    ids=["tests fail", "a linter fails", "coverage is too low", "a part is killed"],
)
def test_a_part_that_fails_is_counted(tmp_path: Path, part: str, commands: str, last: str, reason: str) -> None:
    status, lines = run(tmp_path, **{part: commands})
    assert (status, lines[-1]) == (1, last)
    assert any(line.startswith(reason) for line in lines), lines


def test_a_part_whose_shell_is_killed_is_counted(tmp_path: Path) -> None:
    """The other parts run all the same: there is another shell."""
    status, lines = run(tmp_path, fast="kill -KILL $PPID")
    assert (status, lines[-1]) == (1, "12 passed, 1 failed, 19 skipped")
    assert "fast: failed (exit status: none)" in lines
