"""docs/running.md: a backup of a running broker, a restore, and the way back after an upgrade, as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sievemq import ConnectionFactory
from sievemq.cli import run
from sievemq_broker import EmbeddedBroker

TEXT = (Path(__file__).parents[3] / "docs/running.md").read_text(encoding="utf-8")


def test_the_commands_for_a_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = re.findall(r"^(sievemq store [^#\n]*)", TEXT, re.MULTILINE)
    commands = [line for line in lines if "$DATABASE" not in line]
    assert [shlex.split(line)[2] for line in commands] == ["backup", "restore"]
    (tmp_path / "backup").mkdir()
    with EmbeddedBroker(data_dir=tmp_path / "sievemq") as broker:
        monkeypatch.setenv("SIEVEMQ_URL", broker.url)
        assert run(["send", "orders", "before"]) == 0
        for line in commands:
            text = line.replace("$(date +%F)", "2026-11-28").replace("/var/lib", str(tmp_path))
            assert run(shlex.split(re.sub(" /backup", f" {tmp_path}/backup", text))[1:]) == 0
        assert run(["send", "orders", "after"]) == 0
    with EmbeddedBroker(data_dir=tmp_path / "sievemq-new") as broker:
        monkeypatch.setenv("SIEVEMQ_URL", broker.url)
        assert run(["store", "export", str(tmp_path / "sievemq"), "--out", str(tmp_path / "lines")]) == 0
        assert run(["import", str(tmp_path / "lines"), "--to", "orders"]) == 0
        with ConnectionFactory(broker.url).create_context() as context:
            found = [
                (message.get_text(), message.get_jms_redelivered())
                for message in context.create_browser(context.create_queue("orders"))
            ]
    assert found == [("before", True), ("before", False), ("after", False)]
