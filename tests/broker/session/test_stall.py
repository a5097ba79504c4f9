"""at_limit = "block": what passes a limit is taken when there is room; nobody else waits."""

from __future__ import annotations

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.session.rights import Grant, Identity, Rights, Verb
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import TRANSACTED, Client, World, envelope, failing


def world_with(**policies: DestinationPolicy) -> World:
    pairs = tuple((f"queue:{name}", policy) for name, policy in policies.items())
    return World(broker=Broker(DomainSettings(policies=pairs)))


def full() -> World:
    return world_with(full=DestinationPolicy(max_messages=2, at_limit="block"))


def waiting() -> tuple[World, Client, int]:
    """A client's session has sent "a", "b" and "c" to the full queue: the third one waits."""
    world = full()
    client = world.client()
    session = client.session()
    client.send(session, "a", "b", "c", to="queue:full")
    return world, client, session


def turn(world: World) -> None:
    """The end of a turn: senders with room go on."""
    world.broker.work(world.now)
    world.settle()


def confirmed(client: Client) -> list[int]:
    return [sequence for _, _, sequence in client.take(Command.CONFIRM)]


@pytest.fixture
def world() -> World:
    return full()


def test_sends_above_the_limit_block_and_the_client_learns_which_limit(world: World) -> None:
    client = world.client()
    session = client.session()
    client.send(session, "a", "b", "c", "d", to="queue:full")
    assert confirmed(client) == [2]
    ((_, blocked, text, whose, sequence, destination),) = client.take(Command.FLOW)
    assert (blocked, whose, sequence, destination) == (True, session, 3, "queue:full")
    assert "queue:full" in text
    assert "2 messages" in text
    turn(world)
    assert confirmed(client) == []
    assert client.browse("queue:full") == [(1, "a"), (1, "b")]
    other = world.client()
    reader = other.consumer(other.session(), "queue:full", credit=3)
    turn(world)
    assert reader.all() == ["a", "b", "c"]
    assert confirmed(client) == [3, 4]
    assert client.take(Command.FLOW) == [(Command.FLOW, False, "", session, 4, None)]
    assert client.browse("queue:full") == [(1, "d")]
    assert not world.broker.rooms.waiting
    assert not world.broker.rooms.bytes


def test_a_sender_has_waited_as_long_after_a_clock_jump(world: World) -> None:
    client = world.client()
    client.send(client.session(), "a", "b", "c", to="queue:full")
    (sender,) = client.broker.peer.blocked_senders
    since = sender.since
    client.broker.clock_jumped(3_600_000)
    assert sender.since == since + 3_600_000


def test_skipped_messages_take_no_memory_and_are_delivered_later_in_order(world: World) -> None:
    client = world.client()
    session = client.session()
    client.send(session, *map(str, range(100)), to="queue:full")
    assert world.broker.rooms.bytes < 200  # one message
    other = world.client()
    reader = other.consumer(other.session(), "queue:full", credit=100)
    while len(world.broker.rooms.waiting):
        turn(world)
    assert reader.all() == list(map(str, range(100)))
    assert confirmed(client)[-1] == 100


def test_a_blocked_send_may_be_repeated() -> None:
    world, client, session = waiting()
    client.say(Command.SEND, session, 3, "queue:full", client.sends[session][2][4])  # it was on its way twice
    world.broker.namespace("").queue("queue:full").clear()
    client.say(Command.SEND, session, 3, "queue:full", client.sends[session][2][4])  # there is room, and it is not said
    turn(world)
    assert client.browse("queue:full") == [(1, "c")]
    assert confirmed(client)[-1] == 3
    assert not world.services.reports


def test_repeated_or_unordered_sends_of_a_blocked_session_are_skipped() -> None:
    world, client, session = waiting()
    other = world.client()
    reader = other.consumer(other.session(), "queue:full", credit=10)
    turn(world)
    client.say(Command.SEND, session, 3, "queue:full", client.sends[session][2][4])
    client.say(Command.SEND, session, 6, "queue:full", client.sends[session][2][4])
    client.send(session, "d", to="queue:full")
    assert client.fatal is None
    assert reader.all() == ["a", "b", "c", "d"]


def test_waiting_links_are_served_in_turn_whatever_they_sent(world: World) -> None:
    filler, clients = world.client(), [world.client() for _ in range(3)]
    filler.send(filler.session(), "a", "b", to="queue:full")
    for client in clients:
        session = client.session()
        for number in range(4):
            client.queue_send(session, envelope(f"{clients.index(client)}.{number}"), "queue:full")
        world.settle()
    other = world.client()
    reader = other.consumer(other.session(), "queue:full", credit=1)
    got: list[str] = []
    while len(got) < 14:
        turn(world)
        got += reader.all()
        reader.credit(1)
    assert got == ["a", "b", *(f"{who}.{number}" for number in range(4) for who in range(3))]


def test_a_withdrawn_send_is_refused_and_the_next_one_waits(world: World) -> None:
    client = world.client()
    session = client.session()
    client.send(session, "a", "b", "c", "d", "e", to="queue:full")
    client.take(Command.FLOW)
    client.ask(Command.WITHDRAW, session, 3)
    ((_, _, sequence, code, text),) = client.take(Command.SEND_FAILED)
    assert (sequence, code) == (3, ErrorCode.RESOURCE_ALLOCATION)
    assert "withdrawn" in text
    assert [command[1:5:2] for command in client.take(Command.FLOW)] == [(False, session), (True, session)]
    client.ask(Command.WITHDRAW, session, 5)  # behind one that waits: it is not taken, and its place is taken by this
    assert client.take(Command.SEND_FAILED) == []
    client.sends[session][4] = (Command.WITHDRAW, 0, session, 5)
    other = world.client()
    reader = other.consumer(other.session(), "queue:full", credit=10)
    turn(world)
    assert reader.all() == ["a", "b", "d"]
    assert [command[2] for command in client.take(Command.SEND_FAILED)] == [5]
    client.send(session, "f", to="queue:full")
    assert reader.all() == ["f"]
    assert confirmed(client)[-1] == 6


def test_an_accepted_send_is_confirmed_instead_of_withdrawn(world: World) -> None:
    client = world.client()
    session = client.session()
    client.queue_send(session, envelope("a"), "queue:full")
    client.queue(Command.WITHDRAW, 7, session, 1)
    client.raw(client.wire.data_to_send())
    assert client.heard == [(Command.CONFIRM, session, 1), (Command.OK, 7, None)]
    assert client.browse("queue:full") == [(1, "a")]
    client.say(Command.WITHDRAW, 8, session, 3)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_a_commit_that_is_withdrawn_ends_as_a_rollback(world: World) -> None:
    client = world.client()
    filler, session = client.session(), client.session(TRANSACTED)
    client.send(filler, "a", "b", to="queue:full")
    client.send(session, "y", to="queue:full")
    request = client.request(Command.COMMIT, session, ())
    assert client.take(Command.FLOW)[-1][3:] == (session, 0, "queue:full")
    client.ask(Command.WITHDRAW, session, 0)
    answer = client.answer_to(request)
    assert answer is not None
    assert (answer[0], answer[2]) == (Command.ERROR, ErrorCode.TRANSACTION_ROLLED_BACK)
    assert answer[4]["code"] == ErrorCode.RESOURCE_ALLOCATION
    assert client.take(Command.FLOW) == [(Command.FLOW, False, "", session, 0, None)]
    assert client.browse("queue:full") == [(1, "a"), (1, "b")]
    client.ask(Command.WITHDRAW, session, 0)  # there is none any more
    client.send(session, "z", to="queue:elsewhere")
    client.commit(session)
    assert client.browse("queue:elsewhere") == [(1, "z")]


@pytest.mark.parametrize("allowed", [False, True])
def test_rights_are_checked_while_a_commit_waits_for_room(world: World, allowed: bool) -> None:
    client, other = world.client(), world.client()
    other.send(other.session(), "a", "b", to="queue:full")
    session = client.session(TRANSACTED)
    grants = [Grant(frozenset({Verb.SEND}), "queue:full")]
    if allowed:
        grants.append(Grant(frozenset({Verb.SEND}), "queue:secret"))
    client.broker.peer.entitle(Identity("ann", Rights(grants)))
    client.send(session, "x", to="queue:full")
    request = client.request(Command.COMMIT, session, ())
    assert client.take(Command.FLOW)[-1][1] is True
    client.send(session, "y", to="queue:secret")
    failed = client.take(Command.SEND_FAILED)
    assert [(each[1], each[2], each[3]) for each in failed] == ([] if allowed else [(session, 2, ErrorCode.SECURITY)])
    reader = other.consumer(other.session(), "queue:full", credit=10)
    turn(world)
    turn(world)
    answer = client.answer_to(request)
    assert answer is not None
    if allowed:
        assert answer == (Command.OK, request, None)
        assert reader.all() == ["a", "b", "x"]
        assert other.browse("queue:secret") == [(1, "y")]
    else:
        assert (answer[0], answer[2]) == (Command.ERROR, ErrorCode.TRANSACTION_ROLLED_BACK)
        assert answer[4]["code"] == ErrorCode.SECURITY
        assert reader.all() == ["a", "b"]
        assert world.broker.namespace("").find("queue:secret") is None


def test_a_deleted_temporary_queue_refuses_its_blocked_senders() -> None:
    world = World(broker=Broker(DomainSettings(policies=(("*", DestinationPolicy(max_messages=1, at_limit="block")),))))
    owner, client = world.client(), world.client()
    queue = owner.ask(Command.CREATE_TEMPORARY, False, None)
    session = client.session()
    client.send(session, "a", "b", "c", to=queue)
    owner.ask(Command.DELETE_TEMPORARY, queue)
    turn(world)
    assert [command[2:4] for command in client.take(Command.SEND_FAILED)] == [
        (2, ErrorCode.INVALID_DESTINATION),
        (3, ErrorCode.INVALID_DESTINATION),
    ]
    assert not world.broker.rooms.waiting


def test_a_fault_while_a_send_is_tried_again_ends_its_connection_alone(world: World) -> None:
    client, other = world.client(), world.client()
    client.send(client.session(), "a", "b", "c", to="queue:full")
    reader = other.consumer(other.session(), "queue:full", credit=1)
    with failing(world.broker.namespace("").queue("queue:full")):
        turn(world)
    assert [type(error) for _, error in world.services.reports] == [ZeroDivisionError]
    assert client.fatal is not None
    assert reader.all() == ["a"]
    assert not world.broker.rooms.waiting


def test_only_the_session_that_passed_the_limit_waits(world: World) -> None:
    """Its sister on the same connection consumes, and answers: the room comes from there."""
    client = world.client()
    producer, worker = client.session(), client.session()
    client.send(producer, "a", "b", "c", to="queue:full")
    client.take(Command.CONFIRM)
    client.send(worker, "reply", to="queue:elsewhere")
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, worker, 1)]
    client.consumer(worker, "queue:full", credit=1)
    turn(world)
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, producer, 3)]


def test_a_session_blocks_again_at_its_next_send() -> None:
    rule = DestinationPolicy(max_messages=1, at_limit="block")
    world = world_with(one=rule, two=rule)
    client = world.client()
    session = client.session()
    for to in ("queue:one", "queue:two"):
        client.send(session, f"a {to}", f"b {to}", to=to)
    assert confirmed(client) == [1]
    reader = world.client()
    reading = reader.session()
    reader.consumer(reading, "queue:one")
    turn(world)
    assert confirmed(client) == [2, 3]
    reader.consumer(reading, "queue:two")
    turn(world)
    assert confirmed(client) == [4]
    assert [command[1] for command in client.take(Command.FLOW)] == [True, False, True, False]


def test_a_topic_with_two_full_subscriptions_is_sent_to_when_both_have_room() -> None:
    rule = DestinationPolicy(max_messages=1, at_limit="block")
    world = World(broker=Broker(DomainSettings(policies=(("topic:t", rule),))))
    reader, client = world.client(), world.client()
    slow, slower, fast = (reader.consumer(reader.session(), "topic:t", credit=0) for _ in range(3))
    fast.credit(10)
    session = client.session()
    client.send(session, "a", "b", to="topic:t")
    assert confirmed(client) == [1]
    slow.credit(1)
    turn(world)
    assert confirmed(client) == []
    slower.credit(1)
    turn(world)
    assert confirmed(client) == [2]
    assert fast.all() == ["a", "b"]
    assert not world.broker.rooms.waiting


def test_a_commit_waits_for_room_and_is_carried_out_whole(world: World) -> None:
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
    turn(world)
    assert reader.all() == ["a", "b", "c"]
    assert client.answer_to(request) == (Command.OK, request, None)
    assert client.browse("queue:elsewhere") == [(1, "x")]
    assert client.browse("queue:full") == [(1, "y")]


@pytest.mark.parametrize("transacted", [False, True])
def test_a_deferred_command_requests_a_flush_even_if_output_was_queued(world: World, transacted: bool) -> None:
    """A store notes with each batch how far the connections have come that had a part in it. One that was noted with
    the last batch, and whose output waits for that, has a part in the next one too: or a crash makes its client say
    again what is there, or take a commit that was carried out for rolled back."""
    client = world.client()
    filler = client.session()
    client.send(filler, "a", "b", to="queue:full")
    session = client.session(TRANSACTED) if transacted else filler
    client.send(session, "c", to="queue:full")
    if transacted:
        client.request(Command.COMMIT, session, ())
    turn(world)
    client.broker.outbox.begin_input()  # something is on its way to it
    world.services.woken.clear()
    other = world.client()
    reader = other.consumer(other.session(), "queue:full", credit=3)
    world.broker.work(world.now)
    assert client.broker in world.services.woken
    turn(world)
    assert reader.all() == ["a", "b", "c"]


def test_a_commit_that_waits_is_not_carried_out_when_its_session_ends(world: World) -> None:
    client = world.client()
    filler, session = client.session(), client.session(TRANSACTED)
    client.send(filler, "a", "b", "c", to="queue:full")
    client.send(session, "y", to="queue:full")
    request = client.request(Command.COMMIT, session, ())
    client.ask(Command.CLOSE_SESSION, session, ())
    answer = client.answer_to(request)
    assert answer is not None
    assert (answer[0], answer[2]) == (Command.ERROR, ErrorCode.TRANSACTION_ROLLED_BACK)
    assert [text for _, text in client.browse("queue:full")] == ["a", "b"]


def test_rollback_ends_the_waiting_of_a_commit(world: World) -> None:
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


def test_a_waiting_client_that_disconnects_is_forgotten(world: World) -> None:
    for leave in (Client.drop, lambda client: client.ask(Command.GOODBYE, ())):
        client = world.client()
        session = client.session()
        client.send(session, "a", "b", "c", to="queue:full")
        assert world.broker.rooms.waiting
        leave(client)
        assert not world.broker.rooms.waiting
    assert not world.services.reports


def test_a_sender_blocked_at_a_queue_then_blocks_at_the_brokers_limit() -> None:
    world, client, _ = waiting()
    world.services.flow("memory")
    client.take(Command.CONFIRM)
    other = world.client()
    other.consumer(other.session(), "queue:full")
    turn(world)
    assert confirmed(client) == []
    world.services.flow(None)
    turn(world)
    assert confirmed(client) == [3]
    assert client.take(Command.FLOW)[-1][1] is False


def test_dropped_messages_are_confirmed() -> None:
    world = world_with(full=DestinationPolicy(max_messages=1, at_limit="drop-newest"))
    client = world.client()
    session = client.session()
    client.send(session, "a", "b", "c", to="queue:full")
    assert confirmed(client) == [3]
    assert client.browse("queue:full") == [(1, "a")]


@pytest.mark.parametrize("verb", [Command.WITHDRAW, Command.ROLLBACK])
def test_a_commit_that_waits_at_two_limits_is_withdrawn_at_once(verb: Command) -> None:
    policy = DestinationPolicy(max_messages=2, at_limit="block")
    world = world_with(full=policy, packed=policy)
    client = world.client()
    filler, session = client.session(), client.session(TRANSACTED)
    for to in ("queue:full", "queue:packed"):
        client.send(filler, "a", "b", to=to)
        client.send(session, "y", to=to)
    request = client.request(Command.COMMIT, session, ())
    assert client.take(Command.FLOW)[-1][1]
    client.ask(verb, session, 0 if verb is Command.WITHDRAW else ())
    answer = client.answer_to(request)
    assert answer is not None
    assert (answer[0], answer[2]) == (Command.ERROR, ErrorCode.TRANSACTION_ROLLED_BACK)
    assert client.take(Command.FLOW) == [(Command.FLOW, False, "", session, 0, None)]
    assert not world.broker.rooms.waiting
