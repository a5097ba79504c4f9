"""`sievemq rule`, `limit`, `account`, `config set`, `reset`, `diff` and `reload`, against a running broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.site.cli.conftest import Sievemq

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import load
from sievemq_broker.users.passwords import hash_password

NOT_KEPT = " (until the broker ends: it has no data directory or store)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "sievemq.toml"
    file.write_text('[destinations."orders.*"]\nmax_attempts = 3\n')
    return file


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, sievemq: Sievemq, file: Path) -> Iterator[EmbeddedBroker]:
    """A broker with a file of settings, which the commands find."""
    reread = partial(load, {"port": 0, "http_port": 0}, {}, file)
    with EmbeddedBroker(settings=reread().settings) as broker:
        broker._submit(lambda server: server.live.reread_with(reread)).result()
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", broker.http_url)
        yield broker


def cells(sievemq: Sievemq, *arguments: str) -> list[list[str]]:
    return [line.split("\t")[:2] for line in sievemq(*arguments).lines[1:]]


def test_patterns_are_moved(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    for pattern in ("*", "topic:t"):
        assert sievemq("rule", "set", pattern, "max_attempts=1").code == 0
    assert sievemq("rule", "move", "orders.*").out == "topic:t, *, queue:orders.*\n"
    assert sievemq("rule", "move", "*", "--before", "topic:t").out == "*, topic:t, queue:orders.*\n"
    assert "order rule: *, topic:t, queue:orders.*" in sievemq("config", "diff").out
    missing = sievemq("rule", "move", "*", "--before", "other")
    assert (missing.code, missing.err) == (4, "sievemq: there is no rule 'other'\n")


def test_rules(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    done = sievemq("rule", "set", "orders.eu", "max_messages=10", "at_limit=block")
    assert done.out == f"queue:orders.eu: max_attempts=3 max_messages=10 at_limit=block{NOT_KEPT}\n"
    assert sievemq("rule", "set", "*", "dead_letter_expired=true").code == 0
    assert cells(sievemq, "rule", "ls") == [
        ["queue:orders.eu", "max_attempts=3 max_messages=10 at_limit=block"],
        ["queue:orders.*", "max_attempts=3"],
        ["*", "dead_letter_expired=true"],
    ]
    assert sievemq("rule", "unset", "orders.eu", "max_attempts").code == 0
    assert json.loads(sievemq("rule", "show", "orders.eu", "--json").out)["rules"] == {
        "max_messages": 10,
        "at_limit": "block",
    }
    assert sievemq("rule", "delete", "orders.*").out == "orders.* deleted\n"
    assert cells(sievemq, "rule", "ls")[-1] == ["queue:orders.*", "(removed)"]
    assert sievemq("rule", "set", "orders.*", "max_attempts=4").code == 0
    assert sievemq("rule", "reset", "orders.*").out == "orders.*: max_attempts=3, as in the settings\n"
    assert sievemq("rule", "reset", "orders.eu").out == "orders.eu is gone\n"
    assert sievemq("rule", "unset", "orders.*", "at_limit").err == "sievemq: queue:orders.* does not set at_limit\n"


def test_limits(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    assert sievemq("limit", "set", "team-*", "max_messages=10").out == f"team-*: max_messages=10{NOT_KEPT}\n"
    assert cells(sievemq, "limit", "ls") == [["team-*", "max_messages=10"]]
    assert "max_messages=10" in sievemq("limit", "show", "team-*").out
    assert sievemq("limit", "delete", "team-*").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("rule", "set", "q", "max_messages"), 2, "'max_messages' is not RULE=VALUE"),
        (("rule", "set", "q", "max_messges=1"), 4, "did you mean max_messages?"),
        (("rule", "set", "q", "max_attempts=[1]"), 4, "max_attempts must be a whole number"),
        (("rule", "show", "q"), 3, "there is no rule 'queue:q'"),
        (("config", "set", "max_connections"), 2, "'max_connections' is not NAME=VALUE"),
        (("config", "set", "max_connections=none"), 4, "must be a whole number from 1 to 1000000, not 'none'"),
        (("config", "set", "port=1"), 3, "there is no setting 'port' that changes at run time"),
        (("limit", "reset", "x"), 3, "there is no limit 'x'"),
        (("account", "add", "x"), 2, "name the rights"),
        (("account", "grant", "x"), 2, "name the rights"),
        (("account", "add", "x", "--all"), 2, "no password was given"),
    ],
)
def test_errors(sievemq: Sievemq, broker: EmbeddedBroker, arguments: tuple[str, ...], code: int, error: str) -> None:
    refused = sievemq(*arguments)
    assert refused.code == code
    assert error in refused.err


def test_accounts(monkeypatch: pytest.MonkeyPatch, sievemq: Sievemq, tmp_path: Path) -> None:
    users = {"root": hash_password("secret")}
    monkeypatch.setenv("SIEVEMQ_USER", "root")
    monkeypatch.setenv("SIEVEMQ_PASSWORD", "secret")
    with EmbeddedBroker(http=True, users=users, data_dir=tmp_path / "data") as broker:
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", broker.http_url)
        added = sievemq("account", "add", "max", "--may", "send, consume", "--on", "orders.*", stdin=b"one\n")
        assert added.out == "max: consume, send on queue:orders.* in default\n"
        with ConnectionFactory(broker.url).create_connection("max", "one"):
            pass
        more = sievemq("account", "grant", "max", "--may", "browse", "--on", "orders.*")
        assert more.out == "max: browse, consume, send on queue:orders.* in default\n"
        less = sievemq("account", "revoke", "max", "--may", "send", "--on", "orders.*")
        assert less.out == "max: browse, consume on queue:orders.* in default\n"
        assert sievemq("account", "revoke", "max", "--may", "send", "--on", "orders.*").code == 4
        assert sievemq("account", "password", "max", stdin=b"two\n").code == 0
        with ConnectionFactory(broker.url).create_connection("max", "two"):
            pass
        assert cells(sievemq, "account", "ls")[0] == ["max", "browse, consume on queue:orders.* in default"]
        assert sievemq("account", "grant", "root", "--may", "send").code == 4
        assert sievemq("account", "revoke", "max", "--all").out == "max: nothing\n"
        assert sievemq("account", "delete", "max").out == "max deleted\n"
        assert sievemq("account", "add", "second", "--all", stdin=b"x\n").out == "second: everything\n"
        assert sievemq("account", "delete", "root").code == 0
        monkeypatch.setenv("SIEVEMQ_USER", "second")
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "x")
        assert cells(sievemq, "account", "ls")[-1] == ["root", "(removed)"]
        assert sievemq("account", "reset", "root").out == "root: everything\n"
        assert sievemq("account", "reset", "second").code == 0


def test_limits_of_the_broker(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    changed = sievemq("config", "set", "max_connections=50", "max_memory_bytes=64MiB")
    assert changed.lines == [f"max_connections: 50{NOT_KEPT}", f"max_memory_bytes: 67108864{NOT_KEPT}"]
    shown = sievemq("config", "diff").lines
    assert shown[0].startswith("setting max_connections: 10000 becomes 50 (changed at run time 20")
    assert shown[1].startswith("setting max_memory_bytes: auto becomes 67108864 (")
    assert sievemq("config", "reset", "max_connections").out == "max_connections: 10000, as in the settings\n"


def test_settings_that_differ(sievemq: Sievemq, broker: EmbeddedBroker, file: Path) -> None:
    assert sievemq("config", "diff", "--check").out == "no difference: the broker has what its settings say\n"
    sievemq("rule", "set", "q", "max_attempts=5")
    file.write_text('drain_seconds = 1\n[destinations."orders.*"]\nmax_attempts = 4\n')
    shown = sievemq("config", "diff", "--check")
    origin = f"file {file}"
    assert shown.code == 4
    assert shown.lines[:2] == [
        f"destinations: queue:orders.*: max_attempts 3 becomes 4 ({origin}; `sievemq config reload` applies it)",
        f"drain_seconds: 5.0 becomes 1.0 ({origin}; needs a restart)",
    ]
    assert shown.lines[2].startswith("rule queue:q: added, max_attempts 5 (changed at run time 20")
    assert "(file" in sievemq("config", "reload").lines[0]
    assert json.loads(sievemq("config", "diff", "--json").out)["differences"][0]["applies"] == "restart"
    file.write_text("nonsense = 1")
    wrong = sievemq("config", "diff", "--check")
    assert wrong.code == 4
    assert "the settings cannot be read again: nonsense" in wrong.err
