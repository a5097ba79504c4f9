"""Guessing passwords, on the wire and over HTTP: throttled, without hints, and without harm to anybody else."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from sievemq import ConnectionFactory
from sievemq.exceptions import JMSSecurityRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.credentials.authenticator import MAX_WAITING, Authenticator, TooManyAttemptsError
from sievemq_broker.server.credentials.sign_ins import ACCEPTED, THROTTLED, WRONG, Door
from sievemq_broker.server.credentials.throttle import FREE_PER_ADDRESS, FREE_PER_USER
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.settings import AuthenticationError
from sievemq_broker.users.account import User, Users
from sievemq_broker.users.passwords import hash_password

from .support import DEADLINE, PASSWORD, ask, basic, hello, secured, sign_in, until_closed

HASH = hash_password(PASSWORD)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """One per test: what was guessed is remembered."""
    with secured() as broker:
        yield broker


def door(address: str) -> Door:
    return Door("sieve", 7650, address)


def connect(broker: EmbeddedBroker, user: str, password: str) -> None:
    ConnectionFactory(broker.url).create_context(user, password).close()


def test_guessing_over_http_meets_429(broker: EmbeddedBroker) -> None:
    answers = [ask(broker, "/api/v1/broker", **basic("admin", f"guess{n}")) for n in range(FREE_PER_USER + 3)]
    assert [answer.status for answer in answers] == [401] * (FREE_PER_USER + 1) + [429] * 2
    assert answers[-1].json["error"] == "TOO_MANY_ATTEMPTS"
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert answers[-1].json["details"] == {"retry_after": int(answers[-1].headers["retry-after"])}
    assert ask(broker, "/api/v1/broker", **basic("admin")).status == 429  # even if that guess was right


def test_guessing_in_the_form_meets_429(broker: EmbeddedBroker) -> None:
    for number in range(FREE_PER_USER + 1):
        assert sign_in(broker, "admin", f"guess{number}").status == 401
    answer = sign_in(broker, "admin")
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert "Too many wrong passwords; try again in" in answer.text
    assert answer.headers["set-cookie"] is None


def test_guessing_on_the_wire_meets_a_security_exception(broker: EmbeddedBroker) -> None:
    for number in range(FREE_PER_USER + 1):
        with pytest.raises(JMSSecurityRuntimeException, match="user name or password is wrong"):
            connect(broker, "admin", f"guess{number}")
    with pytest.raises(JMSSecurityRuntimeException, match="too many wrong passwords; try again in"):
        connect(broker, "admin", PASSWORD)


def test_refusals_are_counted(broker: EmbeddedBroker) -> None:
    for number in range(FREE_PER_USER + 2):
        ask(broker, "/", **basic("ben", f"wrong{number}"))
    text = ask(broker, "/metrics", **basic("admin")).text
    labels = f'port="{urlsplit(broker.http_url).port}",protocol="http"'
    assert f'sievemq_sign_ins_total{{outcome="wrong",{labels}}} {FREE_PER_USER + 1}.0' in text
    assert f'sievemq_sign_ins_total{{outcome="throttled",{labels}}} 1.0' in text


def test_all_entrances_share_one_throttle(broker: EmbeddedBroker) -> None:
    for number in range(0, FREE_PER_USER + 1, 3):
        ask(broker, "/api/v1/broker", **basic("admin", f"a{number}"))
        sign_in(broker, "admin", f"b{number}")
        with pytest.raises(JMSSecurityRuntimeException):
            connect(broker, "admin", f"c{number}")
    assert ask(broker, "/api/v1/broker", **basic("admin")).status == 429


def test_trying_many_names_is_throttled_by_address(broker: EmbeddedBroker) -> None:
    statuses = [ask(broker, "/session", **basic(f"user{n}", "x")).status for n in range(FREE_PER_ADDRESS + 2)]
    assert statuses == [401] * (FREE_PER_ADDRESS + 1) + [429]


def test_forged_addresses_are_not_believed(broker: EmbeddedBroker) -> None:
    statuses = [
        ask(broker, "/api/v1/broker", X_Forwarded_For=f"203.0.113.{n}", Forwarded=f"for=203.0.113.{n}",
            X_Real_IP=f"203.0.113.{n}", **basic(f"user{n}", "x")).status
        for n in range(FREE_PER_ADDRESS + 2)
    ]  # fmt: skip
    assert statuses[-1] == 429


def test_signed_in_users_stay_signed_in(broker: EmbeddedBroker) -> None:
    """A user who signed in from this address before is not locked out by guesses at the same name from elsewhere."""
    with ConnectionFactory(broker.url).create_context("admin", PASSWORD) as context:
        throttle = broker.server.authenticator.throttle
        broker.call(lambda _: [throttle.charge(f"203.0.113.{n}", "admin", 0.0) for n in range(50)])
        context.create_producer().send(context.create_queue("q"), "x")
        connect(broker, "admin", PASSWORD)


def test_known_and_unknown_names_get_the_same_answer(broker: EmbeddedBroker) -> None:
    for user in ("admin", "nobody-of-this-name"):
        with pytest.raises(JMSSecurityRuntimeException) as wire:
            connect(broker, user, "wrong")
        assert str(wire.value) == "user name or password is wrong"
    first, second = (ask(broker, "/api/v1/broker", **basic(user, "wrong")) for user in ("admin", "nobody-of-this-name"))
    assert first.body == second.body
    known, unknown = (sign_in(broker, user, "wrong").text for user in ("anna", "xxxx"))
    assert known.replace("anna", "") == unknown.replace("xxxx", "")


def test_sign_ins_are_counted_by_protocol_and_port(broker: EmbeddedBroker) -> None:
    http = urlsplit(broker.http_url).port
    connect(broker, "admin", PASSWORD)
    for user, password in (("admin", "wrong"), ("a-password", "x")):
        with pytest.raises(JMSSecurityRuntimeException):
            connect(broker, user, password)
    assert ask(broker, "/api/v1/broker", **basic("admin", "wrong")).status == 401
    assert sign_in(broker, "admin", "wrong").status == 401
    assert sign_in(broker, "admin").status == 303
    found = ask(broker, "/api/v1/sign-ins", **basic("admin")).json
    assert {(row["protocol"], row["port"], row["outcome"]): row["count"] for row in found["counts"]} == {
        ("sieve", broker.port, "accepted"): 1,
        ("sieve", broker.port, "wrong"): 2,
        ("http", http, "wrong"): 1,
        ("http", http, "accepted"): 1,
        ("console", http, "wrong"): 1,
        ("console", http, "accepted"): 1,
    }
    assert [(row["protocol"], row["user"], row["address"], row["count"]) for row in found["failures"]] == [
        ("console", "admin", "127.0.0.1", 1),
        ("http", "admin", "127.0.0.1", 1),
        ("sieve", None, "127.0.0.1", 1),
        ("sieve", "admin", "127.0.0.1", 1),
    ]
    assert ask(broker, "/api/v1/sign-ins", **basic("anna")).status == 403


def test_a_sign_in_to_a_namespace_without_a_right_is_counted(broker: EmbeddedBroker) -> None:
    with pytest.raises(JMSSecurityRuntimeException, match="has no right in namespace"):
        connect(broker, "nobody", PASSWORD)
    counts = ask(broker, "/api/v1/sign-ins", **basic("admin")).json["counts"]
    assert [row["count"] for row in counts if row["protocol"] == "sieve" and row["outcome"] == "no_right"] == [1]


def test_failures_are_logged_without_the_input(caplog: pytest.LogCaptureFixture, broker: EmbeddedBroker) -> None:
    with caplog.at_level(logging.WARNING, "sievemq_broker.security"):
        ask(broker, "/api/v1/broker", **basic("admin", "a-password-of-somebody"))
        ask(broker, "/api/v1/broker", **basic("a-password-in-the-wrong-field", "x"))
    port = urlsplit(broker.http_url).port
    assert f"sign_in.failed user='admin' address='127.0.0.1' protocol='http' port={port}" in caplog.text
    assert "sign_in.failed user=None" in caplog.text
    assert "a-password" not in caplog.text


# -- hashes: never on the loop ----------------------------------------------------------------------------------------


class Slow:
    """Stands for argon2: takes as long as the test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.checked: list[str] = []
        self.threads: set[str] = set()
        monkeypatch.setattr("sievemq_broker.users.account.verify", self)

    def __call__(self, secret: str, password: str) -> bool:
        self.checked.append(password)
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        assert self.go.wait(60)
        return password == PASSWORD


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow(monkeypatch)
    yield slow
    slow.go.set()


def test_hashing_delays_no_other_client(slow: Slow) -> None:
    """While one password is hashed for as long as it likes, those who are in work on, and others come in."""
    with (
        EmbeddedBroker(http=True, users={"anna": HASH, "test": "clear"}) as broker,
        ConnectionFactory(broker.url).create_context("test", "clear") as context,
        ThreadPoolExecutor(2) as pool,
    ):
        wire = pool.submit(connect, broker, "anna", PASSWORD)
        page = pool.submit(ask, broker, "/api/v1/broker", **basic("anna", PASSWORD + "!"))
        queue = context.create_queue("q")
        context.create_producer().send(queue, "x")
        assert context.create_consumer(queue).receive_body(str, 60_000) == "x"
        connect(broker, "test", "clear")
        assert ask(broker, "/livez").status == 200
        assert not wire.done()
        slow.go.set()
        wire.result(60)
        assert page.result(60).status == 401
        assert slow.threads == {"sievemq-passwords_0"}


def test_a_connection_that_ends_while_its_password_is_hashed(slow: Slow) -> None:
    with EmbeddedBroker(users={"anna": HASH}) as broker:
        with socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as sock:
            sock.sendall(hello("anna", PASSWORD))
            assert slow.begun.wait(DEADLINE)
        slow.go.set()
        connect(broker, "anna", PASSWORD)  # goes by the same check, so that one is over
        assert broker.call(lambda _: broker.server.shard.services.connections) == {}


def test_handshake_has_its_deadline_while_a_password_is_hashed(slow: Slow) -> None:
    settings = {"users": {"anna": HASH}, "handshake_seconds": 2}
    with (
        EmbeddedBroker(settings=settings) as broker,
        socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as sock,
    ):
        sock.sendall(hello("anna", PASSWORD))
        assert b"no handshake within 2000 ms" in until_closed(sock)
        assert slow.begun.is_set()
        slow.go.set()


def test_a_reconnecting_fleet_costs_one_hash(slow: Slow) -> None:
    with EmbeddedBroker(users={"anna": HASH}) as broker, ThreadPoolExecutor(30) as pool:
        fleet = [pool.submit(connect, broker, "anna", PASSWORD) for _ in range(30)]
        slow.go.set()
        for one in fleet:
            one.result(60)
        assert slow.checked == [PASSWORD]


@pytest.mark.parametrize(("password", "outcome"), [(PASSWORD, ACCEPTED), ("wrong", WRONG)])
async def test_sign_ins_that_share_a_check_are_counted_each(password: str, outcome: str) -> None:
    authenticator = Authenticator(Users({"anna": User("anna", HASH)}), lambda: 0.0)
    same = [authenticator.check("anna", password, door(f"192.0.2.{number}")) for number in range(3)]
    await asyncio.gather(*same, return_exceptions=True)
    assert authenticator.sign_ins.total(outcome) == sum(authenticator.sign_ins.counts.values()) == 3
    authenticator.close()


async def test_flood_is_cut_short() -> None:
    """Different names from different addresses: so many wait, the rest must retry."""
    authenticator = Authenticator(Users({"anna": User("anna", HASH)}), lambda: 0.0)
    waiting = [authenticator.begin(f"user{n}", "x", door(f"10.0.{n // 250}.{n % 250}")) for n in range(MAX_WAITING)]
    with pytest.raises(TooManyAttemptsError, match="too many passwords are being checked"):
        authenticator.begin("anna", PASSWORD, door("192.0.2.1"))
    assert authenticator.sign_ins.total(THROTTLED) == 1
    authenticator.close()
    results = await asyncio.gather(*(w for w in waiting if not isinstance(w, Identity)), return_exceptions=True)
    assert len(results) == MAX_WAITING


async def test_user_removed_while_its_password_is_hashed() -> None:
    authenticator = Authenticator(Users({"anna": User("anna", HASH)}), lambda: 0.0)
    checking = authenticator.begin("anna", PASSWORD, door("192.0.2.1"))
    authenticator.users = Users({}, required=True)
    assert not isinstance(checking, Identity)
    with pytest.raises(AuthenticationError):
        await checking
    authenticator.close()


async def test_wrong_name_costs_as_much_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr("sievemq_broker.users.account.verify", lambda secret, password: checked.append(secret) or False)
    authenticator = Authenticator(Users({"anna": User("anna", HASH), "ben": User("ben", "clear")}), lambda: 0.0)
    for user in ("anna", "ben", "nobody-of-this-name"):
        with pytest.raises(AuthenticationError, match="user name or password is wrong"):
            await authenticator.check(user, "wrong", door("192.0.2.1"))
    assert checked == [HASH] * 3
    authenticator.close()
