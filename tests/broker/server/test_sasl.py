"""Signing in over AMQP without sending a password: SCRAM-SHA-256, and EXTERNAL with a client certificate."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramClient

from sievemq import ConnectionFactory, JMSSecurityRuntimeException, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, SASL, SASL_HEADER
from sievemq_broker.protocols.amqp.performatives import (
    Begin,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from sievemq_broker.server.server import Server
from sievemq_broker.users.account import User, Users
from sievemq_broker.users.file import write_users
from sievemq_broker.users.passwords import check_hash, hash_password, verify

from ..protocols.amqp import AmqpSocket

KEYS = hash_password("rosebud", scram=True)
HASH = hash_password("rosebud")


def scram(port: int, user: str, password: str, change: Callable[[str], str] = str) -> tuple[AmqpSocket, Any]:
    """A client that has heard the outcome, and what it knows of the exchange; `change` spoils its last message."""
    client = AmqpSocket(port, connect=False)
    client.feed(SASL_HEADER)
    exchange = ScramClient(["SCRAM-SHA-256"], user, password)
    first = exchange.get_client_first().encode()
    client.say(SaslInit(mechanism="SCRAM-SHA-256", initial_response=first), kind=SASL)
    exchange.set_server_first(client.one(SaslChallenge).challenge.decode())
    client.say(SaslResponse(response=change(exchange.get_client_final()).encode()), kind=SASL)
    return client, exchange


def signed_in(broker: EmbeddedBroker) -> list[tuple[str | None, str]]:
    peers = broker.server.shard.services.connections.values()
    return [(peer.member.identity.user, peer.namespace.name) for peer in peers]


@pytest.mark.parametrize("secret", [KEYS, "rosebud"], ids=["keys", "clear"])
@pytest.mark.parametrize("name", ["ann", "ann@team"])
def test_both_ends_prove_that_they_know_the_password(secret: str, name: str) -> None:
    with EmbeddedBroker(users={"ann": secret}) as broker:
        client, exchange = scram(broker.port, name, "rosebud")
        with client:
            outcome = client.one(SaslOutcome)
            assert outcome.code == 0
            exchange.set_server_final(outcome.additional_data.decode())  # raises if the broker did not know it
            assert "SCRAM-SHA-256" in client.one(SaslMechanisms).sasl_server_mechanisms
            client.feed(AMQP_HEADER)
            client.say(Open(container_id="c"))
            client.begin()
            client.one(Begin)
            assert signed_in(broker) == [("ann", "team" if "@" in name else "default")]


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "rosebud")])
def test_a_wrong_name_and_a_wrong_password_end_alike(user: str, password: str) -> None:
    with EmbeddedBroker(users={"ann": KEYS}) as broker:
        client, _ = scram(broker.port, user, password)
        with client:
            outcome = client.one(SaslOutcome)
            assert (outcome.code, outcome.additional_data) == (1, None)
            client.ended()


def salt_and_rounds(broker: EmbeddedBroker, user: str) -> tuple[bytes, int]:
    """The answer to a client that claims to be this user."""
    with AmqpSocket(broker.port, connect=False) as client:
        client.feed(SASL_HEADER)
        client.say(SaslInit(mechanism="SCRAM-SHA-256", initial_response=f"n,,n={user},r=abc".encode()), kind=SASL)
        _, salt, rounds = client.one(SaslChallenge).challenge.split(b",")
        return base64.b64decode(salt.removeprefix(b"s=")), int(rounds.removeprefix(b"i="))


@pytest.mark.parametrize("where", ["users file", "data directory"])
def test_an_unknown_user_looks_like_a_known_one_also_after_a_restart_and_when_users_change(
    where: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {}
    file = tmp_path / "users.toml"
    if where == "users file":
        write_users(file, {"ann": User("ann", KEYS)})
        settings["users_file"] = str(file)
    else:
        settings |= {"users": {"ann": KEYS}, "data_dir": str(tmp_path / "data")}
    found = []
    for life in range(2):
        with EmbeddedBroker(settings=settings) as broker:
            found += [[salt_and_rounds(broker, name) for name in ("ann", "eve", "eva")] for _ in range(2)]
        if where == "users file" and not life:
            write_users(file, {"ann": User("ann", KEYS), "ben": User("ben", KEYS)})
    assert found[1:] == found[:1] * 3
    assert {(len(salt), rounds) for salt, rounds in found[0]} == {(32, 100_000)}
    assert len({salt for salt, _ in found[0]}) == 3


def test_clear_passwords_beside_keys_have_salts_and_rounds_like_them() -> None:
    with EmbeddedBroker(users={"ann": KEYS, "ben": "rosebud"}) as broker:
        found = [salt_and_rounds(broker, name) for name in ("ann", "ben", "eve")]
        assert {(len(salt), rounds) for salt, rounds in found} == {(32, 100_000)}
        with scram(broker.port, "ben", "rosebud")[0] as client:
            assert client.one(SaslOutcome).code == 0


def test_salts_of_other_makers_are_imitated_too() -> None:
    """PostgreSQL's have 16 bytes. Nothing tells which of the kinds that are there an unknown name gets."""
    other = f"SCRAM-SHA-256$4096:{base64.b64encode(bytes(16)).decode()}${KEYS.rpartition('$')[2]}"
    users = Users({"ann": User("ann", KEYS), "ben": User("ben", other)})
    forms = {(len(keys.salt), keys.rounds) for keys in (users.scram_keys(f"eve{number}") for number in range(100))}
    assert forms == {(32, 100_000), (16, 4_096)}


@pytest.mark.parametrize(
    "first",
    [b"", b"n,,", b"\xff\xfe", b"n,,n=ann,r=" + b"x" * 100_000, b"p=tls-unique,,n=ann,r=abc", b"y,,n=,r=", b"n" * 9],
)
def test_a_malformed_first_message_ends_the_sign_in(first: bytes) -> None:
    with EmbeddedBroker(users={"ann": KEYS}) as broker:
        with AmqpSocket(broker.port, connect=False) as client:
            client.feed(SASL_HEADER)
            client.say(SaslInit(mechanism="SCRAM-SHA-256", initial_response=first), kind=SASL)
            client.ended()
            assert not [frame for frame in client.frames if isinstance(frame.body, SaslOutcome) and not frame.body.code]
        assert signed_in(broker) == []


@pytest.mark.parametrize(
    "change", [lambda text: "", lambda text: text[:-8], lambda text: text.replace("r=", "r=x"), lambda text: "\0" * 9]
)
def test_a_spoilt_last_message_is_a_wrong_password(change: Callable[[str], str]) -> None:
    with EmbeddedBroker(users={"ann": KEYS}) as broker:
        client, _ = scram(broker.port, "ann", "rosebud", change)
        with client:
            assert client.one(SaslOutcome).code == 1
            client.ended()


def test_a_response_before_the_init_is_refused() -> None:
    with EmbeddedBroker(users={"ann": KEYS}) as broker, AmqpSocket(broker.port, connect=False) as client:
        client.feed(SASL_HEADER)
        client.say(SaslResponse(response=b"c=biws"), kind=SASL)
        client.ended()
        assert signed_in(broker) == []


def test_wrong_proofs_are_throttled() -> None:
    with EmbeddedBroker(users={"ann": KEYS}) as broker:
        for _ in range(6):
            client, _ = scram(broker.port, "ann", "wrong")
            with client:
                assert client.one(SaslOutcome).code == 1
        client, _ = scram(broker.port, "ann", "rosebud")
        with client:
            assert client.one(SaslOutcome).code == 1  # too early
        counts = broker.server.authenticator.sign_ins.counts
        assert counts == {("amqp", broker.port, "wrong"): 6, ("amqp", broker.port, "throttled"): 1}


@pytest.mark.parametrize(
    "users", [{"ann": HASH}, {"ann": KEYS, "bob": HASH}, {}], ids=["argon2id", "one of two", "none"]
)
def test_it_is_offered_only_where_all_users_can_use_it(users: dict[str, str]) -> None:
    with EmbeddedBroker(users=users) as broker, AmqpSocket(broker.port, connect=False) as client:
        client.feed(SASL_HEADER)
        assert client.one(SaslMechanisms).sasl_server_mechanisms == ["PLAIN", "ANONYMOUS"]


def test_keys_of_scram_also_check_a_password() -> None:
    assert verify(KEYS, "rosebud")
    assert not verify(KEYS, "rosebuds")
    assert not verify(KEYS, "\udcff")
    with EmbeddedBroker(users={"ann": KEYS}) as broker:
        with ConnectionFactory(broker.url).create_context("ann", "rosebud") as context:
            context.create_producer().send(Queue("q"), "x")
        with pytest.raises(JMSSecurityRuntimeException):
            ConnectionFactory(broker.url).create_context("ann", "wrong")


@pytest.mark.parametrize(
    "secret",
    ["SCRAM-SHA-256$", KEYS.replace("100000", "4095"), KEYS.replace("100000", "1000001"), KEYS[:-1], KEYS + "x"],
)
def test_keys_that_cannot_be_used_are_named(secret: str) -> None:
    with pytest.raises(ValueError, match=r"'ann' begins like keys of SCRAM, but is not valid.*hash --scram"):
        check_hash("ann", secret)


# -- EXTERNAL ---------------------------------------------------------------------------------------------------------


def tls(certificates: Path, name: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if name is not None:
        context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return context


def settings(certificates: Path, **more: object) -> dict[str, object]:
    files = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "ca.pem"}
    return {**{name: str(certificates / file) for name, file in files.items()}, "tls_client_users": True, **more}


def external(client: AmqpSocket, response: bytes | None = None) -> int:
    client.feed(SASL_HEADER)
    client.say(SaslInit(mechanism="EXTERNAL", initial_response=response), kind=SASL)
    code: int = client.one(SaslOutcome).code
    return code


@pytest.mark.parametrize("response", [None, b"", b"client", b"client@team"])
def test_a_certificate_signs_in_the_user_of_its_name(certificates: Path, response: bytes | None) -> None:
    with (
        EmbeddedBroker(users={"client": HASH}, settings=settings(certificates)) as broker,
        AmqpSocket(broker.port, connect=False, tls=tls(certificates, "client")) as client,
    ):
        assert external(client, response) == 0
        assert client.one(SaslMechanisms).sasl_server_mechanisms == ["EXTERNAL", "PLAIN", "ANONYMOUS"]
        client.feed(AMQP_HEADER)
        client.say(Open(container_id="c"))
        client.begin()
        client.one(Begin)
        assert signed_in(broker) == [("client", "team" if response == b"client@team" else "default")]


def test_a_certificate_does_not_sign_in_another_user(certificates: Path) -> None:
    with EmbeddedBroker(users={"client": HASH, "admin": HASH}, settings=settings(certificates)) as broker:
        with AmqpSocket(broker.port, connect=False, tls=tls(certificates, "client")) as client:
            assert external(client, b"admin") == 1
            client.ended()
        assert signed_in(broker) == []


@pytest.mark.parametrize(
    ("users", "more"),
    [({"other": HASH}, {}), ({"client": HASH}, {"tls_client_users": False})],
    ids=["no such user", "off"],
)
def test_a_certificate_of_no_user_or_without_the_setting_signs_in_no_user(
    certificates: Path, users: dict[str, str], more: dict[str, object]
) -> None:
    with (
        EmbeddedBroker(users=users, settings=settings(certificates, **more)) as broker,
        AmqpSocket(broker.port, connect=False, tls=tls(certificates, "client")) as client,
    ):
        assert external(client) == 1
        assert "EXTERNAL" not in client.one(SaslMechanisms).sasl_server_mechanisms
        client.ended()


def test_the_sdk_needs_no_password_then(certificates: Path) -> None:
    files = {"tls_ca": "ca.pem", "tls_cert": "client.pem", "tls_key": "client.key"}
    options = "&".join(f"{name}={certificates / file}" for name, file in files.items())
    with EmbeddedBroker(users={"client": HASH}, settings=settings(certificates)) as broker:
        url = f"sievemqs://localhost:{broker.port}?{options}"
        with ConnectionFactory(url).create_context() as context:
            context.create_producer().send(Queue("q"), "x")
            assert signed_in(broker) == [("client", "default")]
        with pytest.raises(JMSSecurityRuntimeException):  # a password that is given is checked
            ConnectionFactory(url).create_context("client", "wrong")


def test_a_client_without_a_user_must_sign_in_again_before_its_open_once_there_is_one() -> None:
    with EmbeddedBroker() as broker, AmqpSocket(broker.port, connect=False) as client:
        client.feed(SASL_HEADER)
        client.say(SaslInit(mechanism="ANONYMOUS", initial_response=b""), kind=SASL)
        assert client.one(SaslOutcome).code == 0
        broker._submit(partial(put_ann, KEYS)).result()
        client.ended()


def test_a_password_that_changes_before_the_open_is_refused_there() -> None:
    with EmbeddedBroker(users={"ann": HASH}) as broker, AmqpSocket(broker.port, connect=False) as client:
        client.feed(SASL_HEADER)
        client.say(SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0rosebud"), kind=SASL)
        assert client.one(SaslOutcome).code == 0
        broker._submit(partial(put_ann, hash_password("another"))).result()
        client.feed(AMQP_HEADER)
        client.say(Open(container_id="c"))
        assert client.error().condition == "amqp:unauthorized-access"
        assert signed_in(broker) == []


def put_ann(secret: str, server: Server) -> None:
    server.live.users.put("ann", User("ann", secret), None, 0)
    server.user_store.renew()
