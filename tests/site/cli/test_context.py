"""`sievemq context`: what it saves, which command uses it, and what goes before it."""

from __future__ import annotations

import io
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from sievemq import ConnectionFactory, Queue
from sievemq.cli import contexts
from sievemq_broker import EmbeddedBroker

from .conftest import Sievemq


@pytest.fixture
def file(sievemq: Sievemq) -> Path:
    """Where contexts are saved."""
    return contexts.path_of_contexts()


@pytest.fixture
def guarded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, users={"anna": "rosebud"}) as broker:
        yield broker


def test_contexts_are_saved_used_listed_and_removed(sievemq: Sievemq, file: Path) -> None:
    assert sievemq("context", "ls").out == "\tcontext\turl\thttp\tnamespace\tuser\tpassword\n"
    added = sievemq("context", "add", "local", "--url", "sievemq://me@localhost:7700,other/shop?tls_verify=true")
    assert added.out == f"local is saved in {file} and used\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    secure = "sievemqs://[::1]?tls_ca=ca.pem&tls_verify=false"
    assert sievemq("context", "add", "safe", "-u", secure, "-N", "team").out == f"safe is saved in {file}\n"
    assert sievemq("context", "add", "http", "--http", "http://h:1", "--user", "max").code == 0
    rows = {row["name"]: row for row in map(json.loads, sievemq("context", "ls", "--json").lines)}
    assert rows["local"] == {
        "name": "local", "in_use": True, "url": "sievemq://me@localhost:7700,other/shop?tls_verify=true",
        "http": "http://localhost:7680", "namespace": "shop", "user": "me", "password_stored": False,
    }  # fmt: skip
    assert rows["safe"]["http"] == "https://[::1]:7680?tls_ca=ca.pem&tls_verify=false"
    assert (rows["safe"]["namespace"], rows["http"]["url"], rows["http"]["user"]) == ("team", None, "max")
    assert sievemq("context", "use", "safe").out == "safe is used\n"
    assert [line.split("\t")[:2] for line in sievemq("context", "ls").lines[1:]] == [
        ["", "http"],
        ["", "local"],
        ["*", "safe"],
    ]
    assert sievemq("context", "rm", "safe").out == "safe is removed\n"
    assert "current" not in tomllib.loads(file.read_text())
    assert sievemq("context", "use", "local").code == 0
    assert sievemq("context", "use", "--none").out == "no context is used\n"
    assert sievemq("context", "add", "more", "--http", "http://more").out == f"more is saved in {file}\n"
    assert sievemq("context", "rm", "more").code == 0
    assert sievemq("context", "rm", "http").code == sievemq("context", "rm", "local").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("add", "x"), 2, "name the broker with --url, --http or both"),
        (("add", "", "--http", "http://h"), 2, "'' cannot name a context"),
        (("add", "x", "--url", "http://h"), 2, "--url: the URL of a broker begins with sievemq://"),
        (("add", "x", "--http", "h:1"), 2, "'h:1' is no URL of a management port"),
        (("add", "x", "--url", "sievemq://a:rosebud@h"), 2, "the URL holds a password; name --user, and --store-"),
        (("add", "x", "--http", "http://h", "--store-password"), 2, "--store-password needs --user"),
        (("add", "x", "--http", "http://h", "--user", "a", "--store-password"), 2, "no password was given"),
        (("add", "there", "--http", "http://h"), 1, "there is a context 'there' already; --replace replaces it"),
        (("use",), 2, "name a context, or --none"),
        (("use", "ther"), 3, "there is no context 'ther'; did you mean 'there'?"),
        (("rm", "x"), 3, "there is no context 'x'; `sievemq context ls` lists them"),
    ],
)  # fmt: skip
def test_mistakes(sievemq: Sievemq, arguments: tuple[str, ...], code: int, error: str) -> None:
    sievemq("context", "add", "there", "--http", "http://there:1")
    done = sievemq("context", *arguments)
    assert (done.code, done.out) == (code, "")
    assert error in done.err
    assert "rosebud" not in done.err


def test_a_file_of_another_form_is_named(sievemq: Sievemq, file: Path) -> None:
    file.parent.mkdir(parents=True)
    for content in (
        b"\xff",
        b"a =",
        b"contexts = 1",
        b"[contexts.a]\nurl = 1",
        b"[contexts.a]\nx = 'y'",
        b"current = []",
    ):
        file.write_bytes(content)
        done = sievemq("send", "orders", "x")
        assert done.code == 2
        assert f"sievemq: {file} " in done.err
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("no folder")
    assert sievemq("context", "add", "x", "--http", "http://h").code in (1, 2)


def test_commands_use_the_context(sievemq: Sievemq, guarded: EmbeddedBroker) -> None:
    arguments = ("--url", f"{guarded.url}/shop", "--http", guarded.http_url, "--user", "anna")
    assert sievemq("context", "add", "guarded", *arguments, "--store-password", stdin=b"rosebud\n").code == 0
    assert sievemq("send", "orders", "hello").code == 0
    assert sievemq("queue", "ls").lines[1].startswith("orders\t1\t")
    assert sievemq("receive", "orders", "--wait", "0").out == "hello\n"
    assert "rosebud" not in sievemq("context", "ls", "--json").out
    assert json.loads(sievemq("context", "ls", "--json").out)["password_stored"] is True


def test_another_broker_gets_nothing_of_the_context(
    sievemq: Sievemq, guarded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = ("--url", "sievemq://elsewhere", "--http", "http://elsewhere:7680", "--user", "anna")
    assert sievemq("context", "add", "elsewhere", *elsewhere, "--store-password", stdin=b"rosebud\n").code == 0
    refused = sievemq("send", "orders", "x", "--url", guarded.url)
    assert refused.code == 4
    assert sievemq("send", "orders", "x", "--url", guarded.url, "--user", "anna").code == 4
    monkeypatch.setenv("SIEVEMQ_HTTP_URL", guarded.http_url)
    assert sievemq("queue", "ls").code == 4


def test_the_environment_goes_before_the_context_and_the_command_line_before_both(
    sievemq: Sievemq, guarded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker() as other:
        sievemq("context", "add", "other", "--url", other.url)
        place = ("--url", guarded.url, "--user", "anna")
        sievemq("context", "add", "guarded", *place, "--store-password", stdin=b"rosebud\n")
        monkeypatch.setenv("SIEVEMQ_CONTEXT", "guarded")
        assert sievemq("send", "here", "x").code == 0
        monkeypatch.setenv("SIEVEMQ_URL", other.url)
        assert sievemq("browse", "here").code == 3
        monkeypatch.setenv("SIEVEMQ_USER", "nobody")
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "of nobody")
        assert sievemq("--context", "guarded", "browse", "here").out == "x\n"
        assert sievemq("--context=other", "browse", "here").code == 3
        monkeypatch.delenv("SIEVEMQ_URL")
        monkeypatch.setenv("SIEVEMQ_CONTEXT", "")
        assert contexts.context_in_effect() is not None  # the one that the last command line named
        assert sievemq("--context", "nowhere", "browse", "here").err.startswith(
            "sievemq: there is no context 'nowhere'"
        )
        assert sievemq("context", "ls").code == 0


def test_a_broker_starts_with_a_context_in_the_environment(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIEVEMQ_CONTEXT", "mine")
    assert sievemq("config", "check").code == 0


def test_a_user_without_a_password_is_told_what_is_missing(
    sievemq: Sievemq, guarded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIEVEMQ_USER", "anna")
    missing = "sievemq: user name or password is wrong; there is no password of anna: set SIEVEMQ_PASSWORD\n"
    for command in (("send", "q", "x", "--url", guarded.url), ("queue", "ls", "--http", guarded.http_url)):
        found = sievemq(*command)
        assert (found.code, found.err) == (4, missing)
    monkeypatch.setenv("SIEVEMQ_PASSWORD", "wrong")
    assert "there is no password" not in sievemq("queue", "ls", "--http", guarded.http_url).err


def test_a_password_is_asked_for_at_a_terminal(
    sievemq: Sievemq, guarded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    asked: list[str] = []

    def prompt(text: str, **options: object) -> str:
        asked.append(text)
        assert options == {"hide_input": True, "err": True}
        return "rosebud"

    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(io, "TextIOWrapper", Terminal)  # as the fixture makes standard input
    sievemq("context", "add", "guarded", "--url", guarded.url, "--user", "anna")
    assert sievemq("send", "orders", "x").code == 0
    sievemq("context", "add", "stored", "--url", guarded.url, "--user", "anna", "--store-password")
    monkeypatch.setenv("SIEVEMQ_PASSWORD", "rosebud")
    assert sievemq("send", "orders", "x").code == 0
    assert asked == ["Password of anna"] * 2
    with ConnectionFactory(guarded.url).create_context("anna", "rosebud") as context:
        assert len(list(context.create_browser(Queue("orders")))) == 2


def test_names_are_completed(sievemq: Sievemq) -> None:
    from sievemq.cli.context import _names

    for name in ("stage", "stable", "live"):
        sievemq("context", "add", name, "--http", "http://h")
    assert _names("sta") == ["stage", "stable"]
