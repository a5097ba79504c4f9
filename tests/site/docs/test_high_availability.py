"""docs/high-availability.md: the commands of a first pair run one after the other, and do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.postgres import Server

TEXT = (Path(__file__).parents[3] / "docs/high-availability.md").read_text(encoding="utf-8")
PORTS = ("7672", "7673", "7680", "7681")

#: Between the commands: a reader is not as fast.
WAIT = 'until [ "$(curl -s http://127.0.0.1:{}/readyz | grep -c ready)" = 1 ]; do sleep 0.1; done\n'


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_a_first_pair_run(postgres: Server, tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", TEXT.split("\n## A first pair\n")[1], re.MULTILINE | re.DOTALL)[:3]
    text = "\n".join([*blocks, "kill $(jobs -p) 2> /dev/null", "wait"])
    for port in PORTS[2:]:
        text = re.sub(rf"(--http-port {port} .*\n)", rf"\1{WAIT.format(port)}", text, count=1)
    done = run_commands(text, PORTS, postgres, tmp_path, seconds=60)
    assert "The tables are made" in done.stdout, done.stderr
    assert '{"role":"owner","shard":"main"}{"role":"follower","follows":["main"]}' in done.stdout
    assert "two chairs" in done.stdout, done.stderr


def run_commands(
    text: str, ports: tuple[str, ...], postgres: Server, folder: Path, *, seconds: int
) -> subprocess.CompletedProcess[str]:
    """Run commands of a page in a shell, with a new database at `$DATABASE` and free ports in the place of its own."""
    command = folder / "sievemq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from sievemq.cli import main; main()" "$@"\n')
    command.chmod(0o700)
    for port in ports:
        text = text.replace(port, str(free_port()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
    environment |= {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "DATABASE": postgres.new_database(),
        "SIEVEMQ_BEAT_SECONDS": "0.1",
    }
    return subprocess.run(
        ["timeout", str(seconds), "bash", "-uo", "pipefail", "-c", text],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds + 20, check=False,
    )  # fmt: skip
