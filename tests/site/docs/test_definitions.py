"""docs/definitions.md: its file is applied twice over a real broker, its commands and its test run."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sievemq.cli import run
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import load
from sievemq_broker.definitions import parse_definitions
from sievemq_testing import BrokerFactory

TEXT = (Path(__file__).parents[3] / "docs/definitions.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_commands_apply_the_file_and_find_no_difference_then(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("definitions.toml").write_text(block("toml"), encoding="utf-8")
    monkeypatch.delenv("SIEVEMQ_USER", raising=False)
    said = []
    with EmbeddedBroker(http=True) as broker:
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        for command in block("sh").splitlines():
            _, *arguments = shlex.split(command)
            assert run(arguments) == 0
            said.append(capfd.readouterr().out)
        assert run(["definitions", "apply", "definitions.toml"]) == 0
        assert "nothing to change" in capfd.readouterr().out
    different, applied, same, exported = said
    assert "+ default/subscription:audit\n" in different
    assert applied.endswith("6 changes made\n")
    assert same == "+ user/orders (when the broker starts with the file)\n"
    wanted = tomllib.loads(block("toml"))["namespaces"]["default"]
    found = tomllib.loads(exported)["namespaces"]["default"]
    assert found == {**wanted, "queues": sorted(wanted["queues"])}


def test_a_broker_starts_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "definitions.toml"
    file.write_text(block("toml"), encoding="utf-8")
    settings = load({"definitions": str(file)}).settings
    assert settings.destinations["queue:orders"].max_attempts == 3
    assert settings.namespaces["team-*"].max_messages == 100_000
    assert list(settings.users) == ["orders"]


def test_tables_and_keys_are_named() -> None:
    keys = {word for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)}
    wrong: Any
    for wrong in ({"x": 1}, {"namespaces": {"a": {"subscriptions": [{"x": 1}]}}}):
        with pytest.raises(ValueError) as raised:
            parse_definitions(wrong)
        known = str(raised.value).rpartition("; there are ")[2].split(", ")
        assert all(name in keys or f"`[{name}." in TEXT for name in known)


def test_the_test_passes(sievemq_broker_factory: BrokerFactory) -> None:
    names: dict[str, Any] = {}
    exec(compile(block("python"), "definitions.md", "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    test(sievemq_broker_factory)
