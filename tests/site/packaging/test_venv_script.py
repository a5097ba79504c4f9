"""`make run` and its sisters install into .venv: with uv, or with pip where there is none; quietly in a log."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / ".ci"

#: Stands for .venv/bin/python: says that it is new enough, notes the calls of pip, and can fetch no uv.
PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit
echo "pip $@" >> "$(dirname "$0")/calls"
case "$*" in *uv*) exit 1 ;; esac
"""
#: Stands for .venv/bin/uv.
UV = """#!/bin/sh
echo "uv $@" >> "$(dirname "$0")/calls"
"""


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose .venv has a Python and a uv that install nothing."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    program(programs / "python", PYTHON)
    program(programs / "uv", UV)
    (tmp_path / ".ci").mkdir()
    for name in ("venv", "install"):
        shutil.copy(SCRIPTS / name, tmp_path / ".ci" / name)
    (tmp_path / "pyproject.toml").touch()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    return tmp_path


def installs(clone: Path, stderr: int = subprocess.DEVNULL) -> list[str]:
    """The calls of uv and pip in one run of the script."""
    calls = clone / ".venv" / "bin" / "calls"
    calls.unlink(missing_ok=True)
    subprocess.run([clone / ".ci" / "venv", "broker"], check=True, stderr=stderr, timeout=60)
    return calls.read_text().splitlines() if calls.exists() else []


def test_a_person_sees_what_is_installed(clone: Path) -> None:
    mine, terminal = pty.openpty()
    try:
        assert installs(clone, terminal) == ["uv pip install --python .venv/bin/python --editable .[broker]"]
        shown = os.read(mine, 1_000).decode()
    finally:
        os.close(mine)
        os.close(terminal)
    assert "venv: installing sievemq[broker]; this may take a minute or two" in shown


def test_a_log_gets_no_progress(clone: Path) -> None:
    assert installs(clone) == ["uv pip install --python .venv/bin/python --quiet --editable .[broker]"]


def test_pip_installs_where_no_uv_can_be_had(clone: Path) -> None:
    (clone / ".venv" / "bin" / "uv").unlink()
    fetch, install = installs(clone)
    assert "install --quiet uv>=" in fetch
    assert install.startswith("pip -m pip --python .venv/bin/python install --quiet --editable .[broker]")


def test_pip_installs_where_uv_cannot(clone: Path) -> None:
    """It reads no configuration of pip."""
    program(clone / ".venv" / "bin" / "uv", UV + "exit 2\n")
    uv, pip = installs(clone)
    assert (uv[:3], pip[:4]) == ("uv ", "pip ")
    assert "--editable .[broker]" in pip


def test_a_complete_environment_is_kept(clone: Path) -> None:
    assert installs(clone)
    assert installs(clone) == []
    (clone / "pyproject.toml").touch()
    os.utime(clone / "pyproject.toml", (2**31, 2**31))
    assert installs(clone)
