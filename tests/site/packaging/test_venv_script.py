"""`make run` and its sisters install into .venv: with pip's progress where a person watches, quietly elsewhere."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "venv"

#: Stands for .venv/bin/python: says that it is new enough, notes the calls of pip, and cannot fetch a newer one.
PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit
echo "$@" >> "$(dirname "$0")/calls"
case "$*" in *--upgrade*) exit 1 ;; esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose .venv has a Python that installs nothing."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci" / "venv")
    (tmp_path / "pyproject.toml").touch()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    return tmp_path


def installs(clone: Path, stderr: int) -> list[str]:
    """The calls of pip in one run of the script."""
    calls = clone / ".venv" / "bin" / "calls"
    calls.unlink(missing_ok=True)
    subprocess.run([clone / ".ci" / "venv", "broker"], check=True, stderr=stderr, timeout=60)
    return calls.read_text().splitlines() if calls.exists() else []


def test_a_person_sees_the_progress(clone: Path) -> None:
    mine, terminal = pty.openpty()
    try:
        _, install = installs(clone, terminal)
        shown = os.read(mine, 1_000).decode()
    finally:
        os.close(mine)
        os.close(terminal)
    assert "--progress-bar=on" in install
    assert "--quiet" not in install
    assert "venv: installing sievemq[broker]; this may take a minute or two" in shown


def test_a_log_gets_no_progress(clone: Path) -> None:
    _, install = installs(clone, subprocess.DEVNULL)
    assert "--quiet" in install
    assert "--progress-bar=on" not in install


def test_the_pip_of_this_python_installs_where_no_newer_one_can_be_had(clone: Path) -> None:
    upgrade, install = installs(clone, subprocess.DEVNULL)
    assert "--upgrade pip>=25" in upgrade
    assert install.endswith("--editable .[broker]")


def test_a_complete_environment_is_kept(clone: Path) -> None:
    assert installs(clone, subprocess.DEVNULL)
    assert installs(clone, subprocess.DEVNULL) == []
    (clone / "pyproject.toml").touch()
    os.utime(clone / "pyproject.toml", (2**31, 2**31))
    assert installs(clone, subprocess.DEVNULL)
