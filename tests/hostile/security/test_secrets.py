"""Passwords, hashes, tokens and private text: in no log, no error, no repr, no listing."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sievemq import ConnectionFactory
from sievemq.exceptions import JMSSecurityRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.cli import config as config_command
from sievemq_broker.config import ConfigError, load
from sievemq_broker.server.http.access import caller
from sievemq_broker.users.passwords import hash_password

from .support import ask, basic, sign_in

SECRET = "s3cr3t-of-anna"
BODY = "what a message says"


def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with EmbeddedBroker(http=True, users={"anna": SECRET}) as broker:
        cookie = sign_in(broker, "anna", SECRET).cookie
        csrf = ask(broker, "/session", Cookie=cookie).json["csrf"]
        for headers in (basic("anna", SECRET), basic("anna", SECRET + "!"), {"Cookie": cookie}):
            ask(broker, "/api/v1/broker", **headers)
        for password in (SECRET, SECRET + "!"):
            try:
                with ConnectionFactory(broker.url).create_context("anna", password) as context:
                    queue = context.create_queue("q")
                    context.create_producer().send(queue, BODY)
                    context.create_consumer(queue, f"name = '{BODY}'").close()
            except JMSSecurityRuntimeException:
                pass
        sign_in(broker, "anna", SECRET + "!")
    text = caplog.text + repr([vars(record) for record in caplog.records])
    assert caplog.records
    for secret in (SECRET, basic("anna", SECRET)["Authorization"].split()[1], cookie.partition("=")[2], csrf, BODY):
        assert secret not in text


def test_fault_while_a_password_is_checked_does_not_show_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("argon2 fell over")

    monkeypatch.setattr("sievemq_broker.users.account.verify", fail)
    with (
        EmbeddedBroker(users={"anna": hash_password(SECRET)}) as broker,
        pytest.raises(JMSSecurityRuntimeException, match="could not be checked") as refused,
    ):
        ConnectionFactory(broker.url).create_context("anna", SECRET)
    assert "argon2 fell over" in caplog.text
    assert SECRET not in caplog.text + "".join(traceback.format_exception(refused.value))


def test_no_repr_shows_it() -> None:
    hashed = hash_password(SECRET)
    with EmbeddedBroker(users={"anna": SECRET, "ben": hashed}) as broker:
        server = broker.server
        factory = ConnectionFactory(broker.url.replace("://", f"://anna:{SECRET}@"))
        with factory.create_context() as context:
            things = [
                server.settings, server.settings.users, server.authenticator.users, server.authenticator,
                server.user_store, server.authenticator.users.find("anna"), factory, context,
                *broker.call(lambda _: list(server.shard.services.connections.values())),
            ]  # fmt: skip
            shown = repr(things) + "".join(map(str, things))
    assert SECRET not in shown
    assert hashed not in shown


def test_connection_keeps_no_password() -> None:
    with EmbeddedBroker(users={"anna": hash_password(SECRET)}) as broker:
        with ConnectionFactory(broker.url).create_context("anna", SECRET):
            (connection,) = broker.call(lambda _: list(broker.server.shard.services.connections.values()))
            held = [
                getattr(each, name, None)
                for each in (connection, connection.member)
                for name in dir(each)
                if not name.startswith("__")
            ]
            assert connection.member.identity in held
            assert SECRET not in repr(held)
        assert SECRET not in repr([vars(broker.server.authenticator), vars(broker.server.authenticator.users)])


@pytest.mark.parametrize(
    "users",
    [
        f"anna:{SECRET},:{SECRET}",
        {"anna": {"password": SECRET, "rihgts": []}},
        {"anna": {"password": SECRET, "rights": [{"may": ["fly"]}]}},
        {"anna": {"password": SECRET, "rights": "all"}},
        {"an:na": SECRET},
        {"anna": "$argon2id$" + SECRET},
        {"anna": "scrypt$" + SECRET},
    ],
)
def test_no_error_of_the_settings_shows_it(users: object) -> None:
    with pytest.raises(ConfigError) as wrong:
        load({"users": users})
    assert SECRET not in "".join(traceback.format_exception(wrong.value))


def test_configuration_is_shown_without_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SIEVEMQ_USERS_FILE", "SIEVEMQ_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    hashed = hash_password(SECRET)
    file = tmp_path / "broker.toml"
    file.write_text(f'[users]\nanna = "{SECRET}"\n[users.ben]\npassword = "{hashed}"\nrights = []\n')
    for arguments in (["show"], ["show", "--origin"], ["show", "--json"], ["show", "--json", "--origin"], ["check"]):
        outcome = CliRunner().invoke(config_command, [*arguments, "--config", str(file)])
        assert outcome.exit_code == 0, outcome.output
        assert SECRET not in outcome.output
        assert "argon2id" not in outcome.output
        assert arguments == ["check"] or "anna" in outcome.output


def test_management_api_shows_no_credentials() -> None:
    hashed = hash_password("other")
    paths = ("/api/v1/broker", "/api/v1/connections", "/api/v1/namespaces", "/metrics", "/session", "/readyz")
    with (
        EmbeddedBroker(http=True, users={"anna": SECRET, "ben": hashed}) as broker,
        ConnectionFactory(broker.url).create_context("anna", SECRET),
    ):
        for path in paths:
            answer = ask(broker, path, **basic("anna", SECRET))
            assert answer.status == 200
            assert SECRET not in answer.text
            assert "argon2" not in answer.text


def test_handler_outside_of_the_middleware_fails_instead_of_allowing() -> None:
    from starlette.requests import Request

    with pytest.raises(KeyError):
        caller(Request({"type": "http", "state": {}, "headers": []}))


def test_json_of_a_missing_right_names_user_right_and_destination() -> None:
    users = {"anna": {"password": "x", "rights": []}}
    with EmbeddedBroker(http=True, settings={"users": users}) as broker:
        answer = ask(broker, "/metrics", **basic("anna", "x"))
    assert json.loads(answer.text) == {
        "error": "SECURITY",
        "text": "user 'anna' must not view all destinations in any namespace; an administrator can grant it",
        "details": {"user": "anna", "verb": "view", "destination": "*", "namespace": "*"},
    }
