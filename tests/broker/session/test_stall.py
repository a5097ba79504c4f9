"""at_limit = "block": who sends past a limit hears of it when there is room; nobody else waits."""

from __future__ import annotations

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import TRANSACTED, Client, World


def world_with(**policies: DestinationPolicy) -> World:
    pairs = tuple((f"queue:{name}", policy) for name, policy in policies.items())
    return World(broker=Broker(DomainSettings(policies=pairs)))


def full() -> World:
    return world_with(full=DestinationPolicy(max_messages=2, at_limit="block"))


def turn(world: World) -> None:
    """The end of a turn: who has room goes on."""
    world.broker.work(world.now)
    world.settle()


def confirmed(client: Client) -> list[int]:
    return [sequence for _, _, sequence in client.take(Command.CONFIRM)]


def test_the_confirm_waits_and_the_client_is_told_which_limit_it_is() -> None:
    world = full()
    client = world.client()
    session = client.session()
    client.send(session, "a", "b", "c", "d", to="queue:full")
    assert confirmed(client) == [2]
    assert [
        (blocked, "queue:full" in text and "2 messages" in text) for _, blocked, text in client.take(Command.FLOW)
    ] == [(True, True)]
    turn(world)
    assert confirmed(client) == []
    other = world.client()
    reader = other.consumer(other.session(), "queue:full", credit=2)
    turn(world)
    assert reader.all() == ["a", "b"]
    assert confirmed(client) == [4]
    assert [command[1] for command in client.take(Command.FLOW)] == [False]
    assert not world.broker.rooms.waiting


def test_only_the_session_that_passed_the_limit_waits() -> None:
    """Its sister on the same connection consumes, and answers: the room comes from there."""
    world = full()
    client = world.client()
    producer, worker = client.session(), client.session()
    client.send(producer, "a", "b", "c", to="queue:full")
    client.take(Command.CONFIRM)
    client.send(worker, "reply", to="queue:elsewhere")
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, worker, 1)]
    client.consumer(worker, "queue:full", credit=1)
    turn(world)
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, producer, 3)]


def test_a_session_that_waits_at_two_limits_goes_on_when_both_have_room() -> None:
    rule = DestinationPolicy(max_messages=1, at_limit="block")
    world = world_with(one=rule, two=rule)
    client = world.client()
    session = client.session()
    for to in ("queue:one", "queue:two"):
        client.send(session, "a", "b", to=to)
    assert confirmed(client) == [1]
    reader = world.client()
    reading = reader.session()
    reader.consumer(reading, "queue:one")
    turn(world)
    assert confirmed(client) == []
    reader.consumer(reading, "queue:two")
    turn(world)
    assert confirmed(client) == [4]
    assert len(client.take(Command.FLOW)) == 2  # once each: blocked, unblocked


def test_a_commit_waits_for_room_and_is_carried_out_whole() -> None:
    world = full()
    client = world.client()
    filler, session = client.session(), client.session(TRANSACTED)
    client.send(filler, "a", "b", "c", to="queue:full")
    client.send(session, "x", to="queue:elsewhere")
    client.send(session, "y", to="queue:full")
    request = client.request(Command.COMMIT, session, ())
    turn(world)
    assert client.answer_to(request) is None
    assert client.browse("queue:elsewhere") == []
    other = world.client()
    reader = other.consumer(other.session(), "queue:full", credit=3)
    turn(world)
    assert reader.all() == ["a", "b", "c"]
    assert client.answer_to(request) == (Command.OK, request, None)
    assert client.browse("queue:elsewhere") == [(1, "x")]
    assert client.browse("queue:full") == [(1, "y")]


def test_a_commit_that_waits_is_not_carried_out_when_its_session_ends() -> None:
    world = full()
    client = world.client()
    filler, session = client.session(), client.session(TRANSACTED)
    client.send(filler, "a", "b", "c", to="queue:full")
    client.send(session, "y", to="queue:full")
    request = client.request(Command.COMMIT, session, ())
    client.ask(Command.CLOSE_SESSION, session, ())
    answer = client.answer_to(request)
    assert answer is not None
    assert (answer[0], answer[2]) == (Command.ERROR, ErrorCode.TRANSACTION_ROLLED_BACK)
    assert [text for _, text in client.browse("queue:full")] == ["a", "b", "c"]


def test_rollback_ends_the_waiting_of_a_commit() -> None:
    world = full()
    client = world.client()
    filler, session = client.session(), client.session(TRANSACTED)
    client.send(filler, "a", "b", "c", to="queue:full")
    client.send(session, "y", to="queue:full")
    request = client.request(Command.COMMIT, session, ())
    client.rollback(session)
    answer = client.answer_to(request)
    assert answer is not None
    assert answer[0] == Command.ERROR
    client.send(session, "z", to="queue:elsewhere")
    client.commit(session)
    assert client.browse("queue:elsewhere") == [(1, "z")]


def test_who_goes_away_while_waiting_is_forgotten() -> None:
    world = full()
    for leave in (Client.drop, lambda client: client.ask(Command.GOODBYE, ())):
        client = world.client()
        session = client.session()
        client.send(session, "a", "b", "c", to="queue:full")
        assert world.broker.rooms.waiting
        leave(client)
        assert not world.broker.rooms.waiting
    assert not world.services.reports


def test_the_brokers_own_limit_goes_before_that_of_a_queue() -> None:
    world = full()
    client = world.client()
    session = client.session()
    client.send(session, "a", "b", "c", to="queue:full")
    world.services.flow("memory")
    client.take(Command.CONFIRM)
    other = world.client()
    other.consumer(other.session(), "queue:full")
    turn(world)
    assert confirmed(client) == []
    world.services.flow(None)
    world.settle()
    assert confirmed(client) == [3]
    assert client.take(Command.FLOW)[-1][1] is False


def test_what_is_dropped_is_confirmed() -> None:
    world = world_with(full=DestinationPolicy(max_messages=1, at_limit="drop-newest"))
    client = world.client()
    session = client.session()
    client.send(session, "a", "b", "c", to="queue:full")
    assert confirmed(client) == [3]
    assert client.browse("queue:full") == [(1, "a")]
