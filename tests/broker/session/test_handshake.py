"""HELLO and WELCOME: versions, credentials, namespaces, client ids, resuming."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sievemq_broker.session import SessionSettings
from sievemq_broker.session.life import OPEN
from sievemq_broker.session.rights import Grant, Rights, Verb
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

from .harness import START, Client, World


def test_welcome_carries_limits_and_identity() -> None:
    world = World(
        SessionSettings(broker="SieveMQ 9", incarnation="i7", body_bytes=1000, window_messages=5, durable=True)
    )
    client = Client(world)
    client.hello(heartbeat=400)
    [welcome] = client.take(Command.WELCOME)
    _, version, broker, incarnation, connection, heartbeat, limits, features = welcome
    assert (version, broker, incarnation, connection, heartbeat) == (1, "SieveMQ 9", "i7", "c1", 15_000)
    assert set(limits) == {
        "frame_bytes", "body_bytes", "properties_bytes", "window_messages", "window_bytes", "sessions", "consumers",
        "temporaries", "staged_bytes", "subscriptions", "connections",
    }  # fmt: skip
    assert (limits["body_bytes"], limits["window_messages"]) == (1000, 5)
    assert features == {
        "durable": True, "dialect": "jakarta", "time": START, "clock_offset": 0,
        "frozen_at": None, "moved_at": 0, "resumed": False, "acknowledge_several": True, "shard": "main",
    }  # fmt: skip
    assert world.services.connections == {"c1": client.broker.peer}


def test_welcome_names_the_other_brokers_where_they_are_configured() -> None:
    world = World(SessionSettings(peers=("mq-1:7672", "mq-2:7673")))
    client = Client(world)
    client.hello()
    assert client.take(Command.WELCOME)[0][7]["peers"] == ("mq-1:7672", "mq-2:7673")


def test_a_newer_client_is_answered_in_the_newest_version_known(world: World) -> None:
    client = Client(world)
    client.hello(version=99)
    assert client.take(Command.WELCOME)[0][1] == 1


def test_an_unsupported_version_is_refused(world: World) -> None:
    client = Client(world)
    client.hello(version=0)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNSUPPORTED_VERSION
    assert client.broker.closing
    assert world.services.connections == {}


@pytest.mark.parametrize(("user", "password"), [(None, None), ("ann", None), ("ann", "wrong"), ("bob", "secret")])
def test_wrong_credentials_end_the_connection(world: World, user: str | None, password: str | None) -> None:
    world.services.users = {"ann": "secret"}
    client = Client(world)
    client.hello(user=user, password=password, client_id="me")
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.AUTHENTICATION
    assert "secret" not in client.fatal[3]
    world.client(user="ann", password="secret", client_id="me")


@pytest.mark.parametrize("command", [(Command.PING, 1), (Command.OPEN_SESSION, 1, 1, 1), (Command.HEARTBEAT,)])
def test_another_first_command_ends_the_connection(world: World, command: tuple[int, ...]) -> None:
    client = Client(world)
    payload = pack(command)
    client.broker.receive_data(len(payload).to_bytes(4, "big") + payload, world.now)
    assert client.broker.closing
    client.wire.send(Command.HELLO, 1, "", None, None, None, 0, "", None, {})
    client.wire.data_to_send()
    client.exchange()
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_a_second_hello_ends_the_connection(client: Client) -> None:
    payload = pack((Command.HELLO, 1, "", None, None, None, 0, "", None, {}))
    client.raw(len(payload).to_bytes(4, "big") + payload)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_http_on_the_wire_port_gets_an_error(world: World) -> None:
    client = Client(world)
    client.broker.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", world.now)
    assert client.broker.closing
    assert b"at most 65536 are accepted" in client.broker.data_to_send()


REDIRECT = RequestError("it is at sievemq://b:1", ErrorCode.REDIRECT, {"url": "sievemq://b:1", "shard": "b"})


def test_a_namespace_of_another_broker_ends_the_handshake_with_its_address(world: World) -> None:
    world.services.elsewhere["shop"] = REDIRECT
    client = Client(world)
    client.hello(namespace="shop", client_id="me", keep=5_000)
    assert client.fatal == (Command.ERROR, 0, ErrorCode.REDIRECT, REDIRECT.text, REDIRECT.details)
    assert client.broker.closing
    assert world.services.connections == {}
    assert "shop" not in world.broker.namespaces
    assert len(world.services.lost) == 0


def test_a_redirect_leaves_the_lost_connection_as_it_is(world: World) -> None:
    """The client resumes it where the namespace is; this broker may have it again later."""
    lost = world.client(namespace="shop", keep=60_000)
    world.services.elsewhere["shop"] = REDIRECT
    new = Client(world)
    new.hello(namespace="shop", resume=lost.broker.peer.member.id, keep=60_000)
    assert new.fatal is not None
    assert new.fatal[2] == ErrorCode.REDIRECT
    assert lost.broker.peer.life.state == OPEN
    del world.services.elsewhere["shop"]
    world.client(namespace="shop", resume=lost.broker.peer.member.id, keep=60_000)


def test_a_handshake_waits_until_it_is_known_where_the_namespace_is(world: World) -> None:
    world.services.placing = []
    client = Client(world)
    client.hello(user="ann", namespace="shop")
    assert not client.take(Command.WELCOME)
    other = Client(world)
    other.hello(namespace="gone")
    (later, _), (too_late, _) = world.services.placing
    other.broker.lost(world.now)
    too_late("gone", world.now)
    assert "gone" not in world.broker.namespaces
    assert client.broker.peer.member.identity.user == "ann", "if the user changes meanwhile, it has to sign in again"
    later("shop", world.now)
    world.settle()
    assert client.take(Command.WELCOME)
    assert client.broker.peer.namespace.name == "shop"
    assert world.services.reports == []


@pytest.mark.parametrize("answer", [REDIRECT, "no name of a namespace" * 50])
def test_what_is_found_out_late_may_end_the_handshake(world: World, answer: SieveError | str) -> None:
    world.services.placing = []
    client = Client(world)
    client.hello(namespace="shop")
    if isinstance(answer, str):
        world.broker.settings = replace(world.broker.settings, max_namespaces=0)
    world.services.placing[0][0](answer, world.now)
    world.settle()
    assert client.fatal is not None
    assert client.broker.closing
    assert world.services.connections == {}


def test_rights_are_checked_before_anybody_is_asked(world: World) -> None:
    world.services.rights = {"ann": Rights([Grant(frozenset({Verb.SEND}), "*", "mine")])}
    world.services.elsewhere["shop"] = REDIRECT
    client = Client(world)
    client.hello(user="ann", namespace="shop")
    assert client.fatal is not None
    assert (client.fatal[2], client.fatal[4]) == (ErrorCode.AUTHENTICATION, {})


def test_namespaces_are_apart(world: World) -> None:
    one, two, default, named = (
        world.client(namespace="a"),
        world.client(namespace="b"),
        world.client(),
        world.client(namespace="default"),
    )
    one.send(one.session(), "x")
    assert two.browse() == default.browse() == []
    default.send(default.session(), "y")
    assert named.browse() == [(1, "y")]
    assert one.browse() == [(1, "x")]
    world.client(namespace="a", client_id="me")
    world.client(namespace="b", client_id="me")


@pytest.mark.parametrize("namespace", ["x" * 256, "a\nb", "\ud800"])
def test_a_namespace_that_cannot_be(world: World, namespace: str) -> None:
    client = Client(world)
    client.hello(namespace=namespace)
    assert client.fatal is not None
    assert "a namespace must have" in client.fatal[3]


# -- client ids -------------------------------------------------------------------------------------------------------


def test_con_11_a_client_id_is_free_again_when_its_connection_ends(world: World) -> None:
    """SUB-30, SUB-31."""
    first = world.client(client_id="me")
    second = Client(world)
    second.hello(client_id="me")
    assert second.fatal is not None
    assert second.fatal[2] == ErrorCode.INVALID_CLIENT_ID
    assert first.ask(Command.PING)  # the first is not harmed
    first.drop()
    third = world.client(client_id="me")
    third.ask(Command.GOODBYE, ())
    world.client(client_id="me")


def test_con_10_a_refused_claim_leaves_the_connection_usable_and_without_id(world: World) -> None:
    world.client(client_id="me")
    client = world.client()
    code, _, details = client.refused(Command.SET_CLIENT_ID, "me")
    assert (code, details) == (ErrorCode.INVALID_CLIENT_ID, {"client_id": "me"})
    client.ask(Command.SET_CLIENT_ID, "you")
    assert client.refused(Command.SET_CLIENT_ID, "he")[0] == ErrorCode.ILLEGAL_STATE  # CON-07
    assert client.broker.peer.member.client_id == "you"


@pytest.mark.parametrize("client_id", ["", "x" * 256, "\x00"])
def test_con_05_a_client_id_that_cannot_be(world: World, client_id: str) -> None:
    assert world.client().refused(Command.SET_CLIENT_ID, client_id)[0] == ErrorCode.INVALID_CLIENT_ID


# -- resuming ---------------------------------------------------------------------------------------------------------


def test_a_resumed_connection_takes_the_place_of_the_half_dead_one(world: World) -> None:
    old = world.client(client_id="me")
    consumer = old.consumer(old.session())
    old.send(consumer.session, "a")
    old.reading = False  # its network is gone, the broker does not know yet
    new = Client(world)
    new.hello(client_id="me", resume=old.broker.peer.member.id)
    assert new.take(Command.WELCOME)[0][7]["resumed"] == {"sessions": ((1, 1, 0),), "refused": (), "temporaries": True}
    assert old.broker.closing
    assert new.consumer(new.session()).all() == ["a#2"]


def test_a_forgotten_connection_is_not_resumed(world: World) -> None:
    client = Client(world)
    client.hello(resume="c77")
    assert client.take(Command.WELCOME)[0][7]["resumed"] is False


def test_no_client_takes_over_a_connection_of_another_user_or_namespace(world: World) -> None:
    ann = world.client(user="ann", namespace="n")
    for more in ({"user": "bob", "namespace": "n"}, {"user": "ann"}):
        client = Client(world)
        client.hello(resume=ann.broker.peer.member.id, **more)
        assert client.take(Command.WELCOME)[0][7]["resumed"] is False
    assert ann.ask(Command.PING)
