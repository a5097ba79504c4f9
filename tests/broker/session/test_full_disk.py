"""on_full_disk = "block": a PERSISTENT send that cannot be kept waits, not taken, and its session's sends behind it."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.domain import admission
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.publishing import Sends
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.commands import Command

from .harness import TRANSACTED, Client, World, envelope
from .test_resume import KEEP, back, reopen
from .test_stall import confirmed, turn

NON_PERSISTENT = 1


def world_that(on_full_disk: str = "block", **more: Any) -> World:
    broker = Broker(DomainSettings(on_full_disk=on_full_disk, **more))
    broker.journal = Journal()
    return World(broker=broker)


def fills(world: World) -> None:
    world.broker.refuse_persistent("the disk is full")


def has_room(world: World) -> None:
    world.broker.refuse_persistent(None)
    turn(world)


def send_fleeting(client: Client, session: int, text: str, to: str = "queue:q") -> None:
    """A NON_PERSISTENT message."""
    fields = envelope(text)
    client.queue_send(session, (*fields[:3], NON_PERSISTENT, *fields[4:]), to)
    client.world.settle()


def kept(world: World) -> int:
    """Messages that the journal was told of."""
    assert world.broker.journal is not None
    return len(world.broker.journal.batch.accepted)


@pytest.fixture
def world() -> World:
    return world_that()


def test_sends_wait_in_order_until_the_disk_has_room(world: World) -> None:
    client = world.client()
    session = client.session()
    client.send(session, "a")
    assert confirmed(client) == [1]
    fills(world)
    client.send(session, "b", "c", to="queue:q")
    send_fleeting(client, session, "d")
    turn(world)
    assert confirmed(client) == []
    assert client.take(Command.FLOW) == [(Command.FLOW, True, "the disk is full", session, 2, "queue:q")]
    assert client.browse() == [(1, "a")]
    assert kept(world) == 1
    has_room(world)
    assert client.browse() == [(1, "a"), (1, "b"), (1, "c"), (1, "d")]
    assert confirmed(client) == [2, 4]
    assert [command[1] for command in client.take(Command.FLOW)] == [False]
    client.send(session, "e")
    assert confirmed(client) == [5]
    assert kept(world) == 4  # all but d
    assert not world.broker.rooms.waiting


def test_earlier_sends_of_the_turn_are_confirmed(world: World) -> None:
    client = world.client()
    session = client.session()
    fills(world)
    send_fleeting(client, session, "a")
    client.send(session, "b")
    assert confirmed(client) == [1]


def test_consumers_and_non_persistent_senders_continue(world: World) -> None:
    client = world.client()
    producer, other = client.session(), client.session()
    client.send(producer, "a")
    fills(world)
    client.send(producer, "b")
    send_fleeting(client, other, "fleeting", to="queue:other")
    assert client.browse("queue:other") == [(1, "fleeting")]
    reader = client.consumer(other, "queue:q", credit=10)
    assert reader.all() == ["a"]
    has_room(world)
    assert reader.all() == ["b"]


@pytest.mark.parametrize("count", [2, 2_000])
def test_a_commit_waits_and_is_carried_out_whole(world: World, count: int) -> None:
    client = world.client()
    session = client.session(TRANSACTED)
    fills(world)
    texts = [str(number) for number in range(count)]
    client.send(session, *texts)
    request = client.request(Command.COMMIT, session, ())
    turn(world)
    assert client.answer_to(request) is None
    assert client.browse() == []
    has_room(world)
    while world.broker.work(world.now):  # many are added in slices
        world.settle()
    world.settle()
    assert client.answer_to(request) == (Command.OK, request, None)
    assert client.browse() == [(1, text) for text in texts]


@pytest.mark.parametrize("count", [2, 2_000])
def test_a_commit_that_may_not_wait_is_rolled_back_whole(count: int) -> None:
    world = world_that("fail")
    client = world.client()
    session = client.session(TRANSACTED)
    fills(world)
    client.send(session, *(str(number) for number in range(count)))
    request = client.request(Command.COMMIT, session, ())
    turn(world)
    answer = client.answer_to(request)
    assert answer is not None
    assert answer[0] == Command.ERROR
    assert answer[2] == ErrorCode.TRANSACTION_ROLLED_BACK
    assert client.browse() == []
    has_room(world)
    client.send(session, "later")
    client.commit(session)
    assert client.browse() == [(1, "later")]


def test_by_default_senders_are_refused() -> None:
    world = world_that("fail")
    client = world.client()
    session = client.session()
    fills(world)
    client.send(session, "a")
    (failed,) = client.take(Command.SEND_FAILED)
    assert failed[3] == ErrorCode.RESOURCE_ALLOCATION
    assert "the disk is full" in failed[4]
    send_fleeting(client, session, "b")
    assert client.browse() == [(1, "b")]


def test_a_sender_that_cannot_wait_is_refused(world: World) -> None:
    """A move, a management command: there is no session to wait."""
    space = world.broker.namespace("")
    fills(world)
    with pytest.raises(RequestError, match="the disk is full") as caught:
        space.transfer("queue:q", Envelope(envelope("a")), world.now)
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    with pytest.raises(RequestError, match="the disk is full"):
        space.commit(Sends([("queue:q", Envelope(envelope("a")))]), world.now)


def test_a_disk_that_is_full_again_stops_them_where_they_are(world: World) -> None:
    client = world.client()
    session = client.session()
    fills(world)
    client.send(session, *"abcdef")
    world.broker.refuse_persistent(None)
    world.broker.rooms.look(world.now)  # the first of them
    world.broker.refuse_persistent("full once more")
    world.settle()
    turn(world)
    assert client.browse() == [(1, "a")]
    assert confirmed(client) == [1]
    client.send(session, "g")
    has_room(world)
    assert [text for _, text in client.browse()] == list("abcdefg")
    assert confirmed(client)[-1] == 7


def test_many_sessions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are considered in one pass, so that a turn stays short."""
    monkeypatch.setattr(admission, "GO_ON", 3)
    world = world_that()
    clients = [world.client() for _ in range(4)]
    fills(world)
    sessions = [client.session() for client in clients]
    for client, session in zip(clients, sessions, strict=True):
        client.send(session, "1", "2", to="queue:q")
    world.broker.refuse_persistent(None)
    queue = world.broker.namespace("").queue("queue:q")
    depths = []
    while world.broker.rooms.waiting:
        world.broker.rooms.look(world.now)
        depths.append(queue.depth)
    assert depths == [3, 4]
    world.settle()
    assert [confirmed(client) for client in clients] == [[1, 2]] * 4


def test_room_at_a_limit_that_blocks_is_waited_for_as_well() -> None:
    limited = (("queue:small", DestinationPolicy(max_messages=1, at_limit="block")),)
    world = world_that(policies=limited)
    client = world.client()
    session = client.session()
    fills(world)
    client.send(session, "a", "b", to="queue:small")
    has_room(world)
    assert confirmed(client) == [1]  # for b there is no room
    reader = world.client()
    consumer = reader.consumer(reader.session(), "queue:small", credit=2)
    turn(world)
    assert consumer.all() == ["a", "b"]
    assert confirmed(client) == [2]
    assert client.take(Command.FLOW)[-1][1] is False


def test_they_wait_at_the_brokers_own_limit_too(world: World) -> None:
    client = world.client()
    session = client.session()
    fills(world)
    client.send(session, "a", "b")
    world.services.flow("memory")
    has_room(world)
    assert confirmed(client) == []
    world.services.flow(None)
    turn(world)
    assert confirmed(client) == [1, 2]


def test_blocked_sends_of_a_closed_session_are_dropped(world: World) -> None:
    client = world.client()
    session = client.session()
    fills(world)
    client.send(session, "a", "b")
    client.ask(Command.CLOSE_SESSION, session, ())
    assert confirmed(client) == []
    has_room(world)
    assert client.browse() == []


@pytest.mark.parametrize("room_first", [True, False])
def test_a_resumed_connection_repeats_blocked_sends_and_each_arrives_once(world: World, room_first: bool) -> None:
    client = world.client(keep=KEEP)
    session = client.session()
    client.send(session, "a")
    fills(world)
    client.send(session, "b", "c")
    client.drop()
    if room_first:
        has_room(world)
    new, resumed = back(world, client)
    assert resumed["sessions"] == ((session, 1, 0),)
    reopen(new, session, sent=1)
    new.sends[session] = client.sends[session][:1]
    new.send(session, "b", "c")
    if not room_first:
        assert confirmed(new) == [1]
        has_room(world)
    assert new.browse() == [(1, "a"), (1, "b"), (1, "c")]
    assert confirmed(new)[-1] == 3
    assert not world.services.reports


def test_a_closed_connection_leaves_nothing(world: World) -> None:
    for leave in (Client.drop, lambda client: client.ask(Command.GOODBYE, ())):
        client = world.client()
        session = client.session()
        fills(world)
        client.send(session, "a", "b")
        assert world.broker.rooms.waiting
        leave(client)
        assert not world.broker.rooms.waiting
        has_room(world)
    assert kept(world) == 0
    assert not world.services.reports


# -- the room that a store has -------------------------------------------------------------------------------------


class Room:
    """What a store says."""

    def __init__(self, world: World, room: int) -> None:
        self.room = room
        world.broker.measure_room(lambda: self.room)
        world.broker.guard_persistent(True)


LARGE = "x" * 10_000


@pytest.mark.parametrize("on_full_disk", ["fail", "block"])
def test_a_message_is_not_accepted_if_the_disk_has_no_room_for_it(on_full_disk: str) -> None:
    world = world_that(on_full_disk)
    room = Room(world, 10_000)
    client = world.client()
    large, small, fleeting = client.session(), client.session(), client.session()
    client.send(large, LARGE)
    client.send(small, "small")
    send_fleeting(client, fleeting, LARGE, to="queue:other")
    turn(world)
    assert client.browse() == [(1, "small")]
    assert client.browse("queue:other") == [(1, LARGE)]
    failed = client.take(Command.SEND_FAILED)
    room.room = 20_000
    turn(world)
    if on_full_disk == "fail":
        assert "no room for" in failed[0][4]
        client.send(large, LARGE)
    else:
        assert not failed
    assert client.browse() == [(1, "small"), (1, LARGE)]


@pytest.mark.parametrize("count", [20, 2_000])
@pytest.mark.parametrize("on_full_disk", ["fail", "block"])
def test_a_transaction_is_not_accepted_if_the_disk_has_no_room_for_all_of_it(on_full_disk: str, count: int) -> None:
    """Also while there is so much room that single messages are not checked."""
    world = world_that(on_full_disk)
    room = Room(world, count * 1_000)
    world.broker.guard_persistent(False)
    client = world.client()
    session = client.session(TRANSACTED)
    client.send(session, *["x" * 1_000] * count)
    request = client.request(Command.COMMIT, session, ())
    turn(world)
    answer = client.answer_to(request)
    assert client.browse() == []
    if on_full_disk == "fail":
        assert answer is not None
        assert answer[2] == ErrorCode.TRANSACTION_ROLLED_BACK
        assert "it has no room for" in answer[3]
    else:
        assert answer is None
        room.room = count * 2_000
        turn(world)
        while world.broker.work(world.now):
            world.settle()
        world.settle()
        assert client.answer_to(request) == (Command.OK, request, None)
        assert kept(world) == count


def test_what_is_accepted_and_not_written_takes_room_too() -> None:
    world = world_that("fail")
    Room(world, 25_000)
    client = world.client()
    session = client.session()
    client.send(session, LARGE, LARGE, LARGE)
    assert client.browse() == [(1, LARGE), (1, LARGE)]
    journal = world.broker.journal
    assert journal is not None
    journal.cut()
    client.send(session, LARGE)  # the others are being written
    assert kept(world) == 0
    journal.written()
    client.send(session, LARGE)
    assert kept(world) == 1


def test_a_message_of_a_topic_takes_room_once() -> None:
    world = world_that("fail")
    Room(world, 12_000)
    client = world.client()
    session = client.session()
    for name in "abc":
        client.consumer(session, "topic:t", subscription=name, durable=True, shared=True)
    client.send(session, LARGE, to="topic:t")
    assert not client.take(Command.SEND_FAILED)
    client.send(session, LARGE, to="topic:t")
    assert client.take(Command.SEND_FAILED)


def test_a_message_that_a_tap_keeps_needs_room_in_any_mode() -> None:
    world = world_that("fail")
    space = world.broker.namespace("")
    space.taps.open("c", "t", "queue:tapped", "copy", None, {}, world.now, None)
    client = world.client()
    session = client.session()
    fills(world)
    send_fleeting(client, session, "a", to="queue:tapped")
    (failed,) = client.take(Command.SEND_FAILED)
    assert "which its tap keeps" in failed[4]
    has_room(world)
    send_fleeting(client, session, "a", to="queue:tapped")
    assert client.browse("queue:tapped") == [(1, "a")]
