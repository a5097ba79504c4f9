"""What packages say of where things are: every module that they name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def map_of(package: Path) -> str:
    """The lines of its docstring that say what is where; empty if there are none."""
    told = ast.get_docstring(ast.parse((package / "__init__.py").read_bytes())) or ""
    found = re.search(r"^Where things are:\n\n((?:- .*\n?)+)", told, re.MULTILINE)
    return found[1] if found else ""


MAPS = {path.parent: told for path in sorted(ROOT.glob("*/sievemq*/**/__init__.py")) if (told := map_of(path.parent))}


def test_the_large_packages_have_one() -> None:
    assert {"domain", "_engine", "sievemq_spark"} <= {package.name for package in MAPS}


@pytest.mark.parametrize("package", MAPS, ids=lambda package: str(package.relative_to(ROOT)))
def test_every_module_is_there(package: Path) -> None:
    named = [name for line in MAPS[package].splitlines() for name in line.partition(": ")[2].split(", ")]
    assert len(set(named)) == len(named) > 10
    for name in named:
        assert (package / f"{name}.py").is_file() or (package / name / "__init__.py").is_file(), name
