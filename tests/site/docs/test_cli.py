"""docs/cli.md: it names every command there is, and its examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer

from sievemq_broker import EmbeddedBroker

TEXT = (Path(__file__).parents[3] / "docs/cli.md").read_text(encoding="utf-8")


def test_every_command_is_named() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| `sievemq ")]
    for point in entry_points(group="sievemq.commands"):
        named = [row for row in rows if re.match(rf"\| `sievemq {point.name}[` ]", row)]
        if not named:  # one of several in a row: `sievemq send`, `receive`, …; GROUP.COMMAND
            assert any(f"`{point.name.rpartition('.')[2]}`" in row.split("|")[1] for row in rows), point.name
            continue
        row = "".join(named)
        command: Any = point.load()
        if isinstance(command, typer.Typer) and "…" not in row:
            for each in command.registered_commands:
                assert each.callback is not None
                assert f"{each.name or each.callback.__name__}`" in row, (point.name, each.name)


def test_the_examples_run() -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    folder = str(Path(sys.executable).parent)
    with EmbeddedBroker(http=True) as broker:
        environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SIEVEMQ_URL": broker.url}
        environment["SIEVEMQ_HTTP_URL"] = str(broker.http_url)
        done = subprocess.run(
            ["bash", "-e", "-c", block], env=environment, capture_output=True, text=True, timeout=180, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "1 message would be moved\n1 message moved\n" in done.stdout
    assert '"address": "queue:checked"' in done.stdout
