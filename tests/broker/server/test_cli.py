"""`sievemq broker`: each setting has an option, and options, variables and the file reach the broker."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from sievemq.cli import run
from sievemq_broker import cli
from sievemq_broker.config import Settings
from sievemq_broker.users.account import User


def test_every_setting_has_an_option() -> None:
    settings = {f.name for f in fields(Settings)} - {
        "attention",
        "destinations",
        "namespaces",
    }  # tables: file or environment
    options = {"users" if name == "user" else name for name in inspect.signature(cli.broker).parameters}
    assert options - {"config_file", "handover"} == settings


def test_settings_reach_the_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Settings] = []
    monkeypatch.setattr("sievemq_broker.server.process.run", lambda settings, **_: seen.append(settings) or 0)
    monkeypatch.setenv("SIEVEMQ_HEARTBEAT_SECONDS", "9")
    file = tmp_path / "broker.toml"
    file.write_text("drain_seconds = 7\n")
    arguments = ["--config", str(file), "--port=0", "--no-http", "--user", "anna:a:b", "--user=otto:c", "--json-logs"]
    assert run(["broker", *arguments, "--max-body-bytes", "1KiB"]) == 0
    (settings,) = seen
    assert (settings.port, settings.http, settings.json_logs) == (0, False, True)
    assert settings.users == {"anna": User("anna", "a:b"), "otto": User("otto", "c")}
    assert (settings.drain_seconds, settings.heartbeat_seconds, settings.max_body_bytes) == (7, 9, 1024)


@pytest.mark.parametrize(
    "arguments",
    [["--port"], ["--prot", "1"], ["1"], ["--insecure=1"], ["--port", "x"], ["--config", "/no/such/file"]],
)
def test_wrong_arguments_are_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", *arguments]) == 2
    assert capsys.readouterr().err
