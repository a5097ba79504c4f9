"""docs/operating.md on security: its commands run, one after the other, and do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import load
from sievemq_broker.session.rights import Verb
from sievemq_broker.users.passwords import hash_password

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "docs/operating.md").read_text(encoding="utf-8").split("\n## Security\n")[1].split("\n## ")[0]
MODEL = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="needs curl and openssl")
def test_the_commands_run(tmp_path: Path) -> None:
    command = tmp_path / "sievemq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from sievemq.cli import main; main()" "$@"\n')
    command.chmod(0o700)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
    environment |= {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "ADMIN_PASSWORD": "one",
        "ORDERS_PASSWORD": "two",
        "WATCH_PASSWORD": "three",
    }

    def run(block: str, **more: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=tmp_path, env=environment | more, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    users, requests, tls = blocks("sh")
    said = run(users)
    assert (
        "orders      send, consume on queue:orders.* in default; browse, manage on queue:DLQ.orders.* in default"
        in said
    )
    assert "The settings are fine." in said
    settings = {"users_file": str(tmp_path / "users.toml")}
    with EmbeddedBroker(http=True, settings=settings) as broker:
        said = run(requests, HTTP=broker.http_url)
        assert '"status":"ok"' in said
        assert "sievemq_connections 0" in said
        assert broker.call(lambda b: "team-a" in b.namespaces)
    making, asking = tls.rsplit("\n", 2)[:2]
    assert "The settings are fine." in run(making)
    files = {"tls_cert": str(tmp_path / "server.pem"), "tls_key": str(tmp_path / "server.key")}
    with EmbeddedBroker(http=True, settings=settings | files) as broker:
        assert '"status":"ready"' in run(asking, TLS_HTTP_PORT=str(urlsplit(broker.http_url).port))


def test_the_table_of_a_configuration_is_one(tmp_path: Path) -> None:
    (table,) = blocks("toml")
    file = tmp_path / "broker.toml"
    file.write_text(table.replace("$argon2id$v=19$…", hash_password("rosebud")))
    users = load(config=file).settings.users
    assert users["admin"].rights.unlimited
    assert users["orders"].rights.may(Verb.SEND, "default", "queue:orders.eu")


def test_every_right_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE)
    assert rows == [verb.value for verb in Verb]


def test_the_threat_model_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", MODEL))
    assert named == {path.stem for path in (ROOT / "tests/hostile/security").glob("test_*.py")}
    for path in re.findall(r"`(tests/[\w/.]+)`", MODEL):
        assert (ROOT / path).exists(), path
