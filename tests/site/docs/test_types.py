"""Every Python program of the documents, and every example, passes ``mypy --strict``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .programs import ROOT, modules_of

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
MODULES = {name: source for document in DOCUMENTS for name, source in modules_of(document).items()}


def check(*paths: Path) -> str:
    """What mypy finds, with the settings of this project: strict."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-error-summary", *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_no_program_of_the_documents_is_missed() -> None:
    shown = sum(document.read_text("utf-8").count("\n```python") for document in DOCUMENTS)
    interactive = sum(document.read_text("utf-8").count("\n```python\n>>>") for document in DOCUMENTS)
    assert len([name for name in MODULES if name[-1].isdigit()]) == shown - interactive > 20
    assert {name for name in MODULES if not name[-1].isdigit()} == {"docs_selectors"}


def test_programs_and_examples_pass_the_type_checker(tmp_path: Path) -> None:
    for name, source in MODULES.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    assert check(*tmp_path.iterdir(), ROOT / "examples") == ""


def test_a_mistake_in_a_program_is_found(tmp_path: Path) -> None:
    source = MODULES["docs_testing_2"]
    assert "TextMessage" in source
    wrong = tmp_path / "wrong.py"
    wrong.write_text(source.replace(", TextMessage)", ")"), encoding="utf-8")
    assert '"Message" has no attribute "get_text"' in check(wrong)
