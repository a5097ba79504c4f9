"""A connection that ends and holds very much returns it in slices: others go on meanwhile, and nothing is missed."""

from __future__ import annotations

from itertools import pairwise
from sys import getrefcount
from typing import Any

import pytest

from sievemq_broker.domain.consumer import Consumer as DomainConsumer
from sievemq_broker.domain.work import TURN
from sievemq_broker.session.life import GONE, LEAVING
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import AUTO, Client, World

MANY = 2 * TURN


def with_many_consumers(world: World, **hello: object) -> tuple[Client, list[str]]:
    """A client whose consumers hold a message each, and those messages."""
    client = world.client(**hello)
    session = client.session()
    consumers = [client.consumer(session, credit=1) for _ in range(MANY)]
    texts = [str(number) for number in range(MANY)]
    other = world.client()
    other.send(other.session(), *texts)
    assert sum(len(consumer.deliveries) for consumer in consumers) == MANY
    return client, texts


def depths(world: World) -> list[int]:
    """How many messages wait after each slice."""
    queue = world.broker.namespace("").queue("queue:q")
    found = [queue.depth]
    while world.broker.work(world.now):
        found.append(queue.depth)
    found.append(queue.depth)
    assert world.broker.scheduler.overrun <= 1_000
    return found


def test_a_lost_connection_gives_back_in_slices(world: World) -> None:
    client, texts = with_many_consumers(world)
    client.drop()
    assert list(world.services.connections) == [world.clients[1].broker.peer.member.id]
    found = depths(world)
    assert max(later - earlier for earlier, later in pairwise(found)) <= TURN // 5 + 1
    assert len(found) > 6
    browsed = world.clients[1].browse()
    assert sorted(browsed, key=lambda found: int(found[1])) == [(2, text) for text in texts]
    assert not world.broker.namespace("").queue("queue:q").consumers
    assert not world.services.reports


def test_consumers_of_a_lost_connection_are_freed_in_slices(world: World) -> None:
    client, _ = with_many_consumers(world)
    queue = world.broker.namespace("").queue("queue:q")
    counts = [getrefcount(queue)]  # a consumer refers to its queue for as long as it is there
    assert counts[0] >= MANY
    client.drop()
    while world.broker.work(world.now):
        counts.append(getrefcount(queue))
    assert max(before - after for before, after in pairwise(counts)) < MANY // 4
    assert counts[-1] < MANY // 4


def test_goodbye_is_answered_when_all_is_given_back(world: World) -> None:
    client, _ = with_many_consumers(world)
    request = client.request(Command.GOODBYE, ())
    assert client.answer_to(request) is None
    assert client.broker.peer.life.state == LEAVING
    assert client.transport_open
    depths(world)
    world.settle()
    assert client.answer_to(request) == (Command.OK, request, None)
    assert client.broker.peer.life.state == GONE
    assert not client.transport_open
    assert len(world.clients[1].browse()) == MANY
    assert not world.services.reports


def test_a_transport_that_ends_meanwhile_changes_nothing(world: World) -> None:
    client, _ = with_many_consumers(world)
    client.request(Command.GOODBYE, ())
    client.drop()
    depths(world)
    assert len(world.clients[1].browse()) == MANY
    assert not world.services.reports


def test_a_client_gets_its_client_id_at_once(world: World) -> None:
    client, _ = with_many_consumers(world, client_id="me")
    client.drop()
    again = world.client(client_id="me")
    assert again.broker.peer.member.client_id == "me"
    assert world.broker.namespace("").queue("queue:q").depth == MANY


def test_a_resumed_client_finds_its_messages_returned(world: World) -> None:
    client, texts = with_many_consumers(world, keep=5_000)
    client.drop()
    new = Client(world)
    new.hello(resume=client.broker.peer.member.id, keep=5_000, handed=())
    assert new.take(Command.WELCOME)[0][7]["resumed"]
    new.ask(Command.OPEN_SESSION, 1, AUTO, 0)
    assert len(new.browse()) == len(texts)


def come_back(world: World, **hello: Any) -> Client:
    """A client whose HELLO has arrived; the broker's loop has not turned since."""
    client = Client(world)
    resume, client_id = hello.get("resume"), hello.get("client_id")
    options = {"keep": 5_000, "handed": ()}
    client.queue(Command.HELLO, 1, "", None, None, client_id, 0, "harness", resume, options)
    client.broker.receive_data(client.wire.data_to_send(), world.now)
    return client


@pytest.mark.parametrize("how", ["resume", "half dead", "client id"])
def test_a_reconnecting_client_waits_until_all_messages_are_returned(world: World, how: str) -> None:
    """It once had all of it given back in one turn."""
    client, _ = with_many_consumers(world, keep=5_000, client_id="me" if how == "client id" else None)
    if how != "half dead":
        client.broker.lost(world.now)
    client.transport_open = False
    hello = {"client_id": "me"} if how == "client id" else {"resume": client.broker.peer.member.id}
    new = come_back(world, **hello)
    queue = world.broker.namespace("").queue("queue:q")
    assert new.broker.peer.agenda.behind
    assert queue.depth <= TURN // 5 + 1
    found = depths(world)
    assert max(later - earlier for earlier, later in pairwise(found)) <= TURN // 5 + 1
    assert not new.take(Command.WELCOME)
    world.settle()
    (welcome,) = new.take(Command.WELCOME)
    assert bool(welcome[7]["resumed"]) is (how != "client id")
    assert new.broker.peer.member.client_id == hello.get("client_id")
    assert queue.depth == MANY
    assert not world.services.reports


def test_a_client_that_is_lost_while_it_waits_to_reconnect(world: World) -> None:
    client, texts = with_many_consumers(world, keep=5_000)
    client.broker.lost(world.now)
    first, second = (come_back(world, resume=client.broker.peer.member.id) for _ in range(2))
    first.broker.lost(world.now)
    first.transport_open = False
    world.settle()
    assert not first.take(Command.WELCOME)
    assert second.take(Command.WELCOME)[0][7]["resumed"]
    assert second.broker.peer.member.id == client.broker.peer.member.id
    second.ask(Command.OPEN_SESSION, 1, AUTO, 0)
    assert len(second.browse()) == len(texts)


def test_of_two_clients_that_resume_one_connection_the_later_one_continues(world: World) -> None:
    client, _ = with_many_consumers(world, keep=5_000)
    client.broker.lost(world.now)
    first, second = (come_back(world, resume=client.broker.peer.member.id) for _ in range(2))
    world.settle()
    assert second.take(Command.WELCOME)[0][7]["resumed"]
    assert second.broker.peer.member.id == client.broker.peer.member.id
    assert first.broker.closing
    assert not world.services.reports


def test_of_two_clients_that_wait_for_one_client_id_the_first_gets_it(world: World) -> None:
    client, _ = with_many_consumers(world, client_id="me")
    client.broker.lost(world.now)
    client.transport_open = False
    first, second = (come_back(world, client_id="me") for _ in range(2))
    world.settle()
    assert first.take(Command.WELCOME)
    assert not second.take(Command.WELCOME)
    assert second.fatal is not None
    assert second.fatal[2] == ErrorCode.INVALID_CLIENT_ID


@pytest.mark.parametrize("waits", [True, False])
def test_a_client_id_that_is_claimed_later_is_free_when_all_messages_are_returned(world: World, waits: bool) -> None:
    client, _ = with_many_consumers(world, client_id="me")
    other = world.client()
    client.broker.lost(world.now)
    client.transport_open = False
    queue = world.broker.namespace("").queue("queue:q")
    other.queue(Command.SET_CLIENT_ID, 7, "me")
    other.queue(Command.OPEN_SESSION, 8, 1, AUTO, 0)
    other.broker.receive_data(other.wire.data_to_send(), world.now)
    assert other.broker.peer.agenda.behind
    assert queue.depth <= TURN // 5 + 1
    if waits:
        world.settle()
        assert other.heard == [(Command.OK, 7, None), (Command.OK, 8, None)]
    else:
        other.drop()
        depths(world)
    assert world.broker.namespace("").client_ids.holder("me") == (other.broker.peer.member.id if waits else None)
    assert queue.depth == MANY
    assert not world.services.reports


def test_a_queue_that_is_deleted_meanwhile(world: World) -> None:
    client, _ = with_many_consumers(world)
    client.drop()
    world.broker.namespace("").delete("queue:q")
    while world.broker.work(world.now):
        pass
    assert world.clients[1].browse("queue:q") == []
    assert not world.services.reports


@pytest.mark.parametrize("keep", [0, 5_000])
def test_temporary_destinations_end_in_slices(world: World, keep: int) -> None:
    client = world.client(keep=keep)
    for _ in range(1_000):
        client.request(Command.CREATE_TEMPORARY, False)
    space = world.broker.namespace("")
    client.drop()
    if keep:
        assert len(space.destinations) == 1_000
        world.services.lost.expire(world.broker, world.services.real + keep)
    left = [len(space.destinations)]
    while world.broker.work(world.now):
        left.append(len(space.destinations))
    assert max(before - after for before, after in pairwise([1_000, *left])) <= TURN // 5
    assert len(space.destinations) == 0


def test_a_broker_that_stops_has_all_given_back(world: World) -> None:
    client, _ = with_many_consumers(world)
    client.broker.close(ErrorCode.SHUTTING_DOWN, "bye", world.now)
    world.broker.scheduler.finish(world.now)
    assert world.broker.namespace("").queue("queue:q").depth == MANY
    assert not world.broker.work(world.now)


# -- a session that is closed ---------------------------------------------------------------------------------------


def closing_session(world: World, **hello: object) -> tuple[Client, int, list[str]]:
    """A client that has just said CLOSE_SESSION: its consumers hold a message each, the first was seen. The request."""
    client, texts = with_many_consumers(world, **hello)
    session = next(iter(client.broker.peer.sessions))
    first = next(iter(client.consumers.values()))
    assert first.receive() == ["0"]
    request = client.request(Command.CLOSE_SESSION, session, client.handed(session))
    assert client.answer_to(request) is None
    return client, request, texts


def test_a_session_gives_back_in_slices_and_is_closed_when_it_has(world: World) -> None:
    client, request, texts = closing_session(world)
    assert not client.broker.peer.deliveries.consumers
    assert not client.broker.peer.sessions
    found = depths(world)
    assert max(later - earlier for earlier, later in pairwise(found)) <= TURN // 5 + 1
    assert len(found) > 6
    world.settle()
    assert client.answer_to(request) == (Command.OK, request, None)
    browsed = world.clients[1].browse()
    assert sorted(browsed, key=lambda found: int(found[1])) == [(2 if text == "0" else 1, text) for text in texts]
    assert not world.broker.namespace("").queue("queue:q").consumers
    assert client.session()
    assert not world.services.reports


def test_commands_for_its_consumers_are_skipped(world: World) -> None:
    client, request, _ = closing_session(world)
    last = max(client.consumers)
    client.say(Command.CREDIT, last, 10)
    client.say(Command.ACKNOWLEDGE, last, 1, 10)
    client.say(Command.RELEASE, last, (1,))
    assert client.ask(Command.WANT, last) is None
    assert client.ask(Command.CLOSE_CONSUMER, last, 0) is None
    assert client.refused(Command.CLOSE_SESSION, 1, ())[0] == ErrorCode.NOT_FOUND
    world.broker.namespace("").delete("queue:q")
    depths(world)
    world.settle()
    assert client.answer_to(request) == (Command.OK, request, None)
    assert not client.take(Command.CONSUMER_CLOSED)
    assert not world.services.reports


def test_other_consumers_receive_returned_messages_at_once(world: World) -> None:
    _, _, texts = closing_session(world)
    reader = world.clients[1]
    consumer = reader.consumer(reader.session(), credit=MANY)
    assert 0 < len(consumer.deliveries) < MANY
    depths(world)
    assert sorted(consumer.all(), key=lambda text: int(text.split("#")[0])) == ["0#2", *texts[1:]]


@pytest.mark.parametrize("how", ["drop", "goodbye"])
def test_its_connection_may_end_meanwhile(world: World, how: str) -> None:
    client, request, texts = closing_session(world, client_id="me")
    if how == "drop":
        client.drop()
    else:
        bye = client.request(Command.GOODBYE, ())
        assert client.transport_open
    depths(world)
    world.settle()
    if how == "goodbye":  # in the order in which they were asked
        assert [command[1] for command in client.heard if command[0] == Command.OK] == [request, bye]
    assert not client.transport_open
    browsed = world.clients[1].browse()
    assert sorted(browsed, key=lambda found: int(found[1])) == [(2 if text == "0" else 1, text) for text in texts]
    assert world.client(client_id="me").broker.peer.member.client_id == "me"
    assert not world.services.reports


@pytest.mark.parametrize("how", ["drop", "goodbye"])
def test_losing_the_connection_returns_messages_of_its_other_sessions(world: World, how: str) -> None:
    client, _, _ = closing_session(world)
    consumer = client.consumer(client.session(), "queue:other")
    client.send(consumer.session, "kept", to="queue:other")
    assert consumer.all() == ["kept"]
    if how == "drop":
        client.drop()
    else:
        client.request(Command.GOODBYE, (consumer.id, consumer.seen))
    depths(world)
    world.settle()
    assert not client.transport_open
    assert world.clients[1].browse("queue:other") == [(2, "kept")]


def test_a_client_that_returns_meanwhile_may_subscribe_again(world: World) -> None:
    client = world.client(client_id="me", keep=60_000)
    session = client.session()
    for number in range(MANY):
        client.consumer(session, "topic:t", durable=True, subscription=f"s{number}")
    client.request(Command.CLOSE_SESSION, session, ())
    client.drop()
    back = world.client(client_id="me", resume=client.broker.peer.member.id)
    again = back.consumer(back.session(), "topic:t", durable=True, subscription=f"s{MANY - 1}")
    back.send(back.session(), "hello", to="topic:t")
    assert again.all() == ["hello"]
    assert not world.services.reports


def test_two_sessions_one_behind_the_other(world: World) -> None:
    client = world.client()
    sessions = [client.session(), client.session()]
    for session in sessions:
        for _ in range(MANY):
            client.consumer(session)
    asked = [client.request(Command.CLOSE_SESSION, session, ()) for session in sessions]
    depths(world)
    world.settle()
    assert [command[1] for command in client.heard if command[0] == Command.OK] == asked
    assert not world.broker.namespace("").queue("queue:q").consumers


@pytest.mark.needs_python("replaces a method")
def test_a_fault_while_a_session_is_closed_ends_its_connection_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, request, _ = closing_session(world)
    with monkeypatch.context() as broken:
        broken.setattr(DomainConsumer, "recover", lambda *_: 1 / 0)
        world.broker.work(world.now)
    depths(world)
    world.settle()
    assert client.answer_to(request) is None
    assert client.fatal is not None
    assert "while carrying out CLOSE_SESSION" in client.fatal[3]
    assert world.services.reports.pop()[0] == "carrying out CLOSE_SESSION"
    other = world.clients[1]
    other.send(other.session(), "goes on", to="queue:other")
    assert other.browse("queue:other") == [(1, "goes on")]
