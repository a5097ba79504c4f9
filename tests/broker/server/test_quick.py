"""`sievemq broker` without the command-line library: plain command lines mean the same, others are left alone."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from sievemq_broker import cli, quick
from sievemq_broker.config import Settings
from sievemq_broker.users.account import User


def test_values_and_flags_are_read() -> None:
    assert quick.read(["--port", "1", "--http-port=2", "--no-http", "--user", "a:b=c", "--user=d:e", "--insecure"]) == {
        "port": "1",
        "http_port": "2",
        "http": False,
        "users": "a:b=c,d:e",
        "insecure": True,
    }
    assert quick.read([]) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--port"],
        ["--prot", "1"],
        ["1"],
        ["--insecure=1"],
        ["--no-http", "x"],
        ["--destinations", "{}"],
    ],
)
def test_anything_else_is_left_to_the_full_command_line(arguments: list[str]) -> None:
    assert quick.read(arguments) is None
    assert quick.broker(arguments) is None


@pytest.mark.parametrize("arguments", [["--port", "x"], ["--host", "0.0.0.0"], ["--config", "/no/such/file"]])
def test_wrong_settings_are_left_to_the_full_command_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SIEVEMQ_INSECURE", "SIEVEMQ_USERS"):
        monkeypatch.delenv(name, raising=False)
    assert quick.broker(arguments) is None


def test_both_ways_know_every_setting() -> None:
    settings = {f.name for f in fields(Settings)} - {"destinations", "namespaces"}  # tables: file or environment
    full = {"users" if name == "user" else name for name in inspect.signature(cli.broker).parameters} - {"config_file"}
    assert full == settings
    names = {name.removeprefix("--").replace("-", "_") for name in quick._NAMES}
    assert names | {"users"} == settings


def test_settings_reach_the_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Settings] = []
    monkeypatch.setattr("sievemq_broker.server.process.run", lambda settings: seen.append(settings) or 0)
    file = tmp_path / "broker.toml"
    file.write_text("drain_seconds = 7\n")
    arguments = [
        "--config",
        str(file),
        "--port",
        "0",
        "--user",
        "anna:rosebud",
        "--json-logs",
        "--max-body-bytes",
        "1KiB",
    ]
    assert quick.broker(arguments) == 0
    (settings,) = seen
    assert (settings.port, settings.users, settings.json_logs) == (0, {"anna": User("anna", "rosebud")}, True)
    assert (settings.drain_seconds, settings.max_body_bytes) == (7, 1024)


def test_running_broker_has_not_imported_the_command_line_library() -> None:
    program = (
        "import sys; import sievemq_broker.server.process as run;"
        "run.run = lambda settings: print(sorted({'typer', 'pydantic', 'rich', 'starlette'} & set(sys.modules))) or 0;"
        "from sievemq.cli import main; sys.argv = ['sievemq', 'broker', '--port', '0']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
