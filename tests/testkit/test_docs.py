"""docs/testing.md: every program runs, the failing one fails as shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.projects import PYTEST

TEXT = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
TESTS = {
    text.partition("\n")[0].removeprefix("# "): text
    for language, text in BLOCKS
    if language == "python" and text.startswith("# test_")
}
OTHERS = [
    (text, BLOCKS[n + 1][1])
    for n, (language, text) in enumerate(BLOCKS)
    if language == "python" and not text.startswith("# test_") and BLOCKS[n + 1][0] == "text"
]
STRICT = (*PYTEST, "-q", "-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # As a reader would: not as a part of the parallel run that this test may be in, whose name namespaces would show.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=180, check=False, env=environment
    )


def test_all_programs_pass(tmp_path: Path) -> None:
    for name, text in TESTS.items():
        if name != "test_failing.py":
            (tmp_path / name).write_text(text, encoding="utf-8")
    result = run(tmp_path, *STRICT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(TESTS) >= 9


@pytest.mark.parametrize(("program", "printed"), OTHERS)
def test_programs_without_pytest_print_the_shown_output(tmp_path: Path, program: str, printed: str) -> None:
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    result = run(tmp_path, sys.executable, "-W", "error", "program.py")
    assert (result.returncode, result.stdout) == (0, printed), result.stderr


def test_the_failing_test_shows_this_journal(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(TESTS["test_failing.py"], encoding="utf-8")
    result = run(tmp_path, *STRICT)
    assert result.returncode == 1, result.stdout
    shown = re.search(r"^-+ SieveMQ journal -+\n.*?(?=^=)", result.stdout, re.MULTILINE | re.DOTALL)
    assert shown is not None, result.stdout
    (documented,) = [text for language, text in BLOCKS if language == "text" and "SieveMQ journal" in text]
    assert _without_chance(shown.group()) == _without_chance(documented)


def _without_chance(text: str) -> str:
    """Times and ids differ from run to run."""
    text = re.sub(r"^\d\d:\d\d:\d\d\.\d{3}", "TIME", text, flags=re.MULTILINE)
    return re.sub(r"\b[a-z2-9]{10}-(\d+)", r"connection-\1", text)


def test_every_fixture_and_method_it_names_exists() -> None:
    from sievemq_testing import Faults, QueueView, TestBroker, TestNamespace, plugin

    for name in re.findall(r"^\| `(sievemq\w*)`", TEXT, re.MULTILINE):
        assert hasattr(plugin, name), name
    faults = TEXT[TEXT.index("## Faults") : TEXT.index("## Record and replay")]
    for name in re.findall(r"^\| `(\w+)\(", faults, re.MULTILINE):
        assert hasattr(Faults, name), name
    looks = TEXT[TEXT.index("## Views and assertions") : TEXT.index("## When a test fails")]
    for name in re.findall(r"`\.(\w+)", looks):
        assert hasattr(QueueView, name) or name == "subscriptions", name
    for owner, name in re.findall(r"`(namespace|broker)\.(\w+)", TEXT):
        assert hasattr(TestNamespace if owner == "namespace" else TestBroker, name), name
