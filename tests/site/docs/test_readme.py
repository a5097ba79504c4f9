"""The README's commands and programs do what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.projects import PYTEST

from sievemq_broker import EmbeddedBroker

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    text: str


BLOCKS = [Block(*match.groups()) for match in FENCE.finditer(README)]
# A program and, where a text block follows it, what it prints.
PROGRAMS = [
    pytest.param(
        block.text,
        following.text if following.language == "text" else None,
        id=f"block-{number}",
    )
    for number, (block, following) in enumerate(zip(BLOCKS, [*BLOCKS[1:], Block("", "")], strict=True))
    if block.language == "python"
]


def test_it_opens_with_the_two_commands() -> None:
    assert BLOCKS[0].language == "sh"
    commands = [line.partition("#")[0].strip() for line in BLOCKS[0].text.splitlines()]
    assert commands == ["make run", "make test"]
    assert README.index("SieveMQ is an in-memory") < README.index("```sh") < README.index("```python")


def test_it_names_every_extra_of_users() -> None:
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    section = README.partition("\n## Install\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"sievemq\[(\w+)\]|`(\w+)`", section))
    assert offered.keys() - {"".join(name) for name in named} == {"dev", "fuzz", "site"}  # these are for contributors


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z][a-z-]*)", README))))
def test_every_make_target_it_names_exists(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_programs_print_the_shown_output(program: str, printed: str | None, tmp_path: Path) -> None:
    name = program.partition("\n")[0].removeprefix("# ") if program.startswith("# test_") else "program.py"
    (tmp_path / name).write_text(program, encoding="utf-8")
    runner = (*PYTEST, "-q", "-p", "no:asyncio") if name.startswith("test_") else (sys.executable, "-W", "error")
    result = subprocess.run([*runner, name], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    if printed is not None:
        assert result.stdout == printed


def test_the_shell_commands_work_one_after_another() -> None:
    (commands,) = [block.text for block in BLOCKS if block.language == "sh" and block.text.startswith("sievemq send")]
    program = Path(sys.executable).with_name("sievemq")
    printed = []
    with EmbeddedBroker() as broker:
        for line in commands.splitlines():
            words = shlex.split(line)
            result = subprocess.run(
                [str(program), *words[1:]],
                env={**os.environ, "SIEVEMQ_URL": broker.url},
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            assert result.returncode == 0, result.stderr
            printed.append(result.stdout)
    assert printed[-1] == "an order\n"


def test_a_quick_start_program_is_short() -> None:
    assert all(len(block.text.splitlines()) <= 24 for block in BLOCKS if block.language == "python")
