"""Taps and staged sends as a client says them."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.domain.work import TURN
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.session import SessionSettings, checks
from sievemq_broker.session.rights import Grant, Identity, Rights, Verb
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import BODY, ENVELOPE_FIELDS
from sievemq_core.wire.commands import Command

from .harness import AUTO, START, TRANSACTED, Client, World


def open_tap(client: Client, name: str = "t", destination: str = "queue:q", mode: str = "copy", **options: Any) -> Any:
    return client.ask(Command.OPEN_TAP, name, destination, mode, None, None, options)


def bodies(answer: Any) -> list[str]:
    return [envelope[BODY].decode() for envelope in answer[3]]


def test_a_tap_from_the_beginning_to_the_end(world: World, client: Client) -> None:
    session = client.session(AUTO)
    state = open_tap(client)
    assert state["made"] is True
    assert (state["first"], state["last"]) == (1, 0)
    assert state["id"].endswith(".1")
    assert open_tap(client) == {**state, "made": False}
    client.send(session, "a", "b", "c")
    look = client.ask(Command.LOOK_TAP, "t", "queue:q", 0, 2, 0)
    assert (look["upto"], look["more"], look["last"]) == (2, False, 3)
    reader = world.client()  # any connection
    answer = reader.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 0, 3, 100)
    assert (answer[0], bodies(answer)) == (1, ["a", "b", "c"])
    assert answer[1:3] == ((START,) * 3, (1, 1, 1))
    assert [len(envelope) for envelope in answer[3]] == [ENVELOPE_FIELDS] * 3
    assert bodies(reader.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 1, 3, 1)) == ["b"]
    assert client.ask(Command.ACKNOWLEDGE_TAP, "t", "queue:q", state["id"], 2)["acknowledged"] == 2
    answer = reader.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 0, 3, 100)
    assert (answer[0], bodies(answer)) == (3, ["c"])  # the reader sees that 1 and 2 are not there
    assert reader.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 3, 3, 100) == (4, (), (), ())
    assert client.ask(Command.DELETE_TAP, "t", "queue:q") is True
    assert client.ask(Command.DELETE_TAP, "t", "queue:q") is False


def test_fetching_waits_for_a_client_that_does_not_read(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_tap(client)
    client.send(client.session(AUTO), "a")
    client.heard.clear()
    client.reading = False

    def fetch(request: int) -> None:
        client.say(Command.FETCH_TAP, request, "t", "queue:q", state["id"], 0, 1, 100)

    fetch(901)
    monkeypatch.setattr(checks, "UNREAD_BYTES", client.broker.wire.pending_bytes)
    fetch(902)  # as much waits as may
    fetch(903)
    client.reading = True
    world.settle()
    assert [command[:2] for command in client.heard] == [(Command.OK, 901), (Command.OK, 902), (Command.ERROR, 903)]
    assert client.heard[-1][2] == ErrorCode.RESOURCE_ALLOCATION
    assert "before fetching on" in client.heard[-1][3]
    assert bodies(client.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 0, 1, 100)) == ["a"]


def test_a_drain_acknowledges_for_its_reader(world: World, client: Client) -> None:
    session = client.session(AUTO)
    client.send(session, "a", "b")
    state = open_tap(client, mode="drain")
    look = client.ask(Command.LOOK_TAP, "t", "queue:q", 0, 0, 0)
    assert look["upto"] == 2
    client.ask(Command.ACKNOWLEDGE_TAP, "t", "queue:q", state["id"], 2)
    queue = world.broker.namespace("").queue("queue:q")
    assert (queue.acknowledged, queue.depth, queue.in_flight) == (2, 0, 0)


@pytest.mark.parametrize("mode", ["drain", "copy"])
def test_a_tap_that_holds_much_is_deleted_in_slices(world: World, mode: str) -> None:
    count = 2 * TURN + 5
    client, other = world.client(), world.client()
    session = client.session(AUTO)
    open_tap(client, mode=mode)
    client.send(session, *map(str, range(count)))
    while client.ask(Command.LOOK_TAP, "t", "queue:q", 0, 0, 0)["upto"] < count:
        pass
    queue = world.broker.namespace("").queue("queue:q")
    first, second = (
        client.request(Command.DELETE_TAP, "t", "queue:q"),
        other.request(Command.DELETE_TAP, "t", "queue:q"),
    )
    assert client.answer_to(first) is None
    depths = [queue.depth]
    while world.broker.work(world.now):
        depths.append(queue.depth)
    assert len(set(depths)) > 2 or mode == "copy"
    world.settle()
    assert client.answer_to(first) == (Command.OK, first, True)
    assert other.answer_to(second) == (Command.OK, second, True)
    assert not world.services.reports
    assert (queue.depth, queue.in_flight) == (count, 0)
    assert client.ask(Command.DELETE_TAP, "t", "queue:q") is False


def test_a_fetch_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.session.handlers.taps.FETCH_MESSAGES", 3)
    client = world.client()
    session = client.session(AUTO)
    state = open_tap(client)
    client.send(session, *"abcde")
    assert bodies(client.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 0, 5, 10_000)) == ["a", "b", "c"]
    assert bodies(client.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 0, 5, 0)) == ["a"]
    monkeypatch.setattr("sievemq_broker.session.handlers.taps.FETCH_BYTES", 300)
    assert bodies(client.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 2, 5, 3)) == ["c"]


@pytest.mark.parametrize(
    ("command", "fields", "code"),
    [
        (Command.OPEN_TAP, ("t", "queue:q", "copy", "a =", None, {}), ErrorCode.INVALID_SELECTOR),
        (Command.OPEN_TAP, ("t", "queue:q", "copy", "a = 1", "xpath", {}), ErrorCode.INVALID_SELECTOR),
        (Command.OPEN_TAP, ("t", "topic:q", "drain", None, None, {}), ErrorCode.INVALID_DESTINATION),
        (Command.OPEN_TAP, ("t", "queue:", "copy", None, None, {}), ErrorCode.INVALID_DESTINATION),
        (Command.LOOK_TAP, ("t", "queue:q", 0, 0, 0), ErrorCode.NOT_FOUND),
        (Command.FETCH_TAP, ("t", "queue:q", "x", 0, 0, 0), ErrorCode.NOT_FOUND),
        (Command.ACKNOWLEDGE_TAP, ("t", "queue:q", "x", 0), ErrorCode.NOT_FOUND),
        (Command.STAGE, (9, "k", 0, 5_000), ErrorCode.NOT_FOUND),
        (Command.PUBLISH, ("k", 0, ("x",)), ErrorCode.NOT_FOUND),
    ],
)
def test_refused(world: World, client: Client, command: int, fields: tuple[Any, ...], code: ErrorCode) -> None:
    refusal = client.refused(command, *fields)
    assert refusal[0] == code
    assert len(world.broker.namespace("").taps) == 0


def test_staged_sends_become_visible_together_and_once(world: World) -> None:
    first, second, driver = world.client(), world.client(), world.client()
    names = []
    for client, text in ((first, "a"), (second, "b")):
        session = client.session(TRANSACTED)
        client.send(session, text)
        names.append(client.ask(Command.STAGE, session, "k", 0, 60_000))
        client.drop()  # the connection may go
    namespace = world.broker.namespace("")
    assert namespace.queue("queue:q").depth == 0
    assert driver.ask(Command.PUBLISH, "k", 0, tuple(names)) == 2
    assert namespace.queue("queue:q").depth == 2
    assert driver.ask(Command.PUBLISH, "k", 0, tuple(names)) is None
    assert namespace.queue("queue:q").depth == 2


def test_after_stage_the_session_starts_empty(world: World, client: Client) -> None:
    session = client.session(TRANSACTED)
    client.send(session, "a")
    client.ask(Command.STAGE, session, "k", 0, 60_000)
    client.send(session, "b")
    client.ask(Command.COMMIT, session, ())
    queue = world.broker.namespace("").queue("queue:q")
    assert queue.depth == 1
    assert client.broker.peer.staged.used == 0
    assert client.ask(Command.DISCARD, "k", 0) == 1
    assert client.ask(Command.PUBLISH, "k", 0, ()) == 0


def test_a_send_that_failed_dooms_the_stage() -> None:
    world = World(SessionSettings(staged_bytes=300))
    client = world.client()
    session = client.session(TRANSACTED)
    client.send(session, "a", "x" * 400)
    refusal = client.refused(Command.STAGE, session, "k", 0, 60_000)
    assert refusal[0] == ErrorCode.TRANSACTION_ROLLED_BACK
    assert client.ask(Command.PUBLISH, "k", 0, ()) == 0
    assert world.broker.namespace("").queue("queue:q").depth == 0


def test_only_a_transacted_session_stages(client: Client) -> None:
    session = client.session(AUTO)
    assert client.refused(Command.STAGE, session, "k", 0, 60_000)[0] == ErrorCode.ILLEGAL_STATE


def test_names_are_names(world: World, client: Client) -> None:
    client.say(Command.PUBLISH, 7, "k", 0, (1, 2))
    world.settle()
    assert client.fatal is not None
    assert "array of names" in client.fatal[3]


def limited(client: Client, *verbs: Verb) -> SieveConnection:
    """From now on the client's user may do no more than this on queue:q."""
    rights = Rights([Grant(frozenset(verbs), "queue:q")])
    client.broker.peer.member.identity = Identity("ann", rights)
    return client.broker


def test_a_read_only_user_creates_no_destination(world: World) -> None:
    admin, ann = world.client(), world.client()
    limited(ann, Verb.BROWSE, Verb.VIEW)
    code, text = ann.refused(Command.OPEN_TAP, "t", "queue:q", "copy", None, None, {})[:2]
    assert code == ErrorCode.SECURITY
    assert "must not send to queue:q" in text
    assert world.broker.namespace("").find("queue:q") is None
    assert admin.ask(Command.DECLARE, "queue:q") is None
    assert open_tap(ann)["made"] is True
    for verb in (Verb.SEND, Verb.CONSUME, Verb.MANAGE):
        world.broker.namespace("").delete("queue:q")
        limited(ann, Verb.BROWSE, verb)
        assert open_tap(ann)["made"] is True


def test_a_copy_needs_the_right_to_browse_and_a_drain_that_to_consume(world: World) -> None:
    admin, ann = world.client(), world.client()
    admin.ask(Command.DECLARE, "queue:q")
    limited(ann, Verb.BROWSE)
    assert ann.refused(Command.OPEN_TAP, "d", "queue:q", "drain", None, None, {})[0] == ErrorCode.SECURITY
    assert ann.refused(Command.OPEN_TAP, "t", "queue:other", "copy", None, None, {})[0] == ErrorCode.SECURITY
    state = open_tap(ann)
    open_tap(admin, "d", mode="drain")
    for command, fields in (
        (Command.LOOK_TAP, ("d", "queue:q", 0, 0, 0)),
        (Command.DELETE_TAP, ("d", "queue:q")),
    ):
        assert ann.refused(command, *fields)[0] == ErrorCode.SECURITY
    assert ann.ask(Command.FETCH_TAP, "t", "queue:q", state["id"], 0, 0, 1) == (1, (), (), ())
    limited(ann, Verb.CONSUME)
    open_tap(ann, "mine", mode="drain")
    assert ann.ask(Command.LOOK_TAP, "mine", "queue:q", 0, 0, 0)["upto"] == 0
    assert ann.refused(Command.LOOK_TAP, "t", "queue:q", 0, 0, 0)[0] == ErrorCode.SECURITY


def test_a_tap_is_its_makers(world: World) -> None:
    """Another user could acknowledge what the maker has not read."""
    admin, ann = world.client(user="admin"), world.client()
    state = open_tap(admin)
    limited(ann, Verb.BROWSE)
    for command, fields in (
        (Command.OPEN_TAP, ("t", "queue:q", "copy", None, None, {})),
        (Command.LOOK_TAP, ("t", "queue:q", 0, 0, 0)),
        (Command.ACKNOWLEDGE_TAP, ("t", "queue:q", state["id"], 0)),
        (Command.DELETE_TAP, ("t", "queue:q")),
    ):
        code, text = ann.refused(command, *fields)[:2]
        assert code == ErrorCode.SECURITY
        assert "the tap 't' is another user's, and user" in text
        assert "must not manage queue:q" in text
    limited(ann, Verb.BROWSE, Verb.MANAGE)
    assert ann.ask(Command.DELETE_TAP, "t", "queue:q") is True


def test_only_the_staging_user_publishes(world: World) -> None:
    ann, bob = world.client(user="ann"), world.client(user="bob")
    session = ann.session(TRANSACTED)
    ann.send(session, "a")
    name = ann.ask(Command.STAGE, session, "k", 0, 60_000)
    assert bob.refused(Command.PUBLISH, "k", 0, (name,))[0] == ErrorCode.NOT_FOUND
    assert bob.ask(Command.DISCARD, "k", 0) == 0
    assert ann.ask(Command.PUBLISH, "k", 0, (name,)) == 1


def test_staged_messages_are_published_only_with_the_right_to_send(world: World) -> None:
    ann = world.client(user="ann")
    session = ann.session(TRANSACTED)
    ann.send(session, "a")
    name = ann.ask(Command.STAGE, session, "k", 0, 60_000)
    limited(ann, Verb.BROWSE)
    assert ann.refused(Command.PUBLISH, "k", 0, (name,))[0] == ErrorCode.SECURITY
    limited(ann, Verb.SEND)
    assert ann.ask(Command.PUBLISH, "k", 0, (name,)) == 1
