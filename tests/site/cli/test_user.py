"""`sievemq user`: the users file from the command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_broker.users.file import read_users

from .conftest import Sievemq


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "users.toml"
    monkeypatch.setenv("SIEVEMQ_USERS_FILE", str(file))
    return file


def test_creating_a_users_file_protects_the_broker(sievemq: Sievemq, file: Path) -> None:
    added = sievemq("user", "add", "admin", "--all", stdin=b"rosebud\n")
    assert (added.code, added.out) == (0, "admin: everything\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "rosebud" not in file.read_text()
    sievemq("user", "add", "orders", "--may", "send,consume", "--on", "orders.*", stdin=b"other\n")
    with EmbeddedBroker(settings={"users_file": str(file)}) as broker:
        ConnectionFactory(broker.url).create_context("admin", "rosebud").close()
        with ConnectionFactory(broker.url).create_context("orders", "other") as context:
            context.create_producer().send(context.create_queue("orders.eu"), "x")


def test_user_add_requires_rights(sievemq: Sievemq, file: Path) -> None:
    for arguments in ([], ["--all", "--may", "send"]):
        refused = sievemq("user", "add", "anna", *arguments, stdin=b"rosebud\n")
        assert refused.code == 2
        assert "name the rights: --all, or --may" in refused.err
    assert not file.exists()


def test_list(sievemq: Sievemq, file: Path) -> None:
    file.write_text("anna:rosebud\n")
    sievemq("user", "add", "ben", "--may", "browse,view", "--on", "*", "--in", "team-*", stdin=b"x\n")
    lines = sievemq("user", "list").lines
    assert lines == [
        "anna  everything  (password in clear; `sievemq user password` hashes it)",
        "ben   browse, view on * in team-*",
    ]
    listed = sievemq("user", "list", "--json").out
    assert json.loads(listed) == [
        {
            "name": "anna",
            "hashed": False,
            "everything": True,
            "rights": [{"may": ["send", "consume", "browse", "manage", "view"], "destination": "*", "namespace": "*"}],
        },
        {
            "name": "ben",
            "hashed": True,
            "everything": False,
            "rights": [{"may": ["browse", "view"], "destination": "*", "namespace": "team-*"}],
        },
    ]
    assert "rosebud" not in listed + "".join(lines)


def test_grant_and_revoke(sievemq: Sievemq, file: Path) -> None:
    sievemq("user", "add", "anna", "--may", "send", "--on", "orders.*", stdin=b"x\n")
    assert sievemq("user", "grant", "anna", "--may", "consume", "--on", "orders.*").out == (
        "anna: send, consume on queue:orders.* in default\n"
    )
    assert sievemq("user", "grant", "anna", "--may", "browse", "--on", "topic:*", "--in", "*").code == 0
    assert sievemq("user", "revoke", "anna", "--may", "send", "--on", "orders.*").out == (
        "anna: consume on queue:orders.* in default; browse on topic:* in *\n"
    )
    assert sievemq("user", "revoke", "anna", "--on", "orders.*").out == "anna: browse on topic:* in *\n"
    assert sievemq("user", "revoke", "anna", "--on", "orders.*").code == 3
    assert sievemq("user", "revoke", "anna", "--all").out == "anna: nothing\n"
    assert sievemq("user", "grant", "anna").code == 2
    assert sievemq("user", "grant", "anna", "--may", "fly").code == 2
    sievemq("user", "add", "admin", "--all", stdin=b"x\n")
    assert "may do everything already" in sievemq("user", "grant", "admin", "--may", "send").err


def test_password_and_check(sievemq: Sievemq, file: Path) -> None:
    file.write_text('[users.anna]\npassword = "one"\nrights = []\n')
    assert sievemq("user", "check", "anna", stdin=b"one\n").code == 0
    assert sievemq("user", "password", "anna", stdin=b"two\n").code == 0
    assert read_users(file)["anna"].rights.grants == ()
    assert sievemq("user", "check", "anna", stdin=b"one\n").code == 4
    assert sievemq("user", "check", "anna", stdin=b"two\n").code == 0


def test_remove(sievemq: Sievemq, file: Path) -> None:
    file.write_text("anna:rosebud\nben:two\n")
    assert sievemq("user", "remove", "anna").code == 0
    assert set(read_users(file)) == {"ben"}


@pytest.mark.parametrize("verb", ["remove", "password", "check", "grant", "revoke"])
def test_invalid_user_names_are_refused(sievemq: Sievemq, file: Path, verb: str) -> None:
    file.write_text("anna:rosebud\n")
    missing = sievemq("user", verb, "ben", stdin=b"x\n")
    assert missing.code == 3
    assert "there is no user 'ben'" in missing.err


def test_mistakes(sievemq: Sievemq, file: Path) -> None:
    assert sievemq("user", "list").code == 2  # no file yet
    file.write_text("anna:rosebud\n")
    assert sievemq("user", "add", "anna", "--all", stdin=b"x\n").code == 1
    assert sievemq("user", "add", "an:na", "--all", stdin=b"x\n").code == 2
    assert sievemq("user", "add", "ben", "--all", stdin=b"").code == 2
    assert sievemq("user", "add", "ben", "--all", stdin=b"x" * 2_000).code == 2
    assert set(read_users(file)) == {"anna"}


def test_which_file(sievemq: Sievemq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIEVEMQ_USERS_FILE", raising=False)
    monkeypatch.delenv("SIEVEMQ_CONFIG", raising=False)
    unknown = sievemq("user", "list")
    assert unknown.code == 2
    assert "which users file?" in unknown.err
    file, config = tmp_path / "users", tmp_path / "broker.toml"
    assert sievemq("user", "add", "anna", "--all", "--users-file", str(file), stdin=b"x\n").code == 0
    config.write_text(f'users_file = "{file}"\n')
    monkeypatch.setenv("SIEVEMQ_CONFIG", str(config))
    assert sievemq("user", "list").lines == ["anna  everything"]


def test_a_printed_hash_is_valid_in_a_configuration(sievemq: Sievemq) -> None:
    hashed = sievemq("user", "hash", stdin=b"rosebud\n").out.strip()
    with EmbeddedBroker(users={"anna": hashed}) as broker:
        ConnectionFactory(broker.url).create_context("anna", "rosebud").close()
    assert sievemq("user", "hash", stdin=b"").code == 2
