"""docs/testing-any-language.md: its commands run, its table is whole, its programs are those that are tested."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_testing.control.routes import routes

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/testing-any-language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FOLDERS = {"js": "node", "go": "go", "java": "java"}


def test_the_table_names_every_endpoint() -> None:
    section = TEXT.split("\n## The API\n")[1].split("\n### ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {f"/test{path}" for row in rows for path in re.findall(r"`([^`]+)`", row)}
    assert named == {endpoint.path for endpoint in routes.endpoints}


@pytest.mark.parametrize(
    ("language", "program"), [block for block in BLOCKS if block[0] in FOLDERS and "GenericContainer" not in block[1]]
)
def test_a_program_is_one_that_is_tested(language: str, program: str) -> None:
    folder = ROOT / "testkit" / FOLDERS[language]
    files = [path for path in folder.rglob(f"*.{language.replace('js', 'mjs')}") if "node_modules" not in path.parts]
    assert any(program in path.read_text(encoding="utf-8") for path in files)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_answer() -> None:
    (block,) = [text for language, text in BLOCKS if language == "sh" and "curl" in text]
    commands = [line for line in block.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    with EmbeddedBroker(http=True, settings={"test_control": True}) as broker:
        said = subprocess.run(
            [
                "bash",
                "-c",
                "; echo; ".join(command.replace('"within_ms": 5000', '"within_ms": 0') for command in commands),
            ],
            env={**os.environ, "TEST": f"{broker.http_url}/api/v1/test"},
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        ).stdout.splitlines()
    opened, policy, fault, advanced, outcome = map(json.loads, said[:5])
    assert opened["name"] == "mine"
    assert policy["rules"]["max_attempts"] == 2
    assert fault["left"] == 1
    assert advanced["offset_ms"] >= 60_000
    assert not outcome["passed"]
    assert said[5].startswith("namespace 'mine'")
    restored, dropped = json.loads(said[-2]), json.loads(said[-1])
    assert restored["offset_ms"] == 0
    assert dropped == {"name": "mine", "connections": []}
