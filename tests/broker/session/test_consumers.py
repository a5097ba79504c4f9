"""Sessions and consumers: opening, closing, credit, WANT and RECALL, limits and ids."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.session import Identity, SessionSettings
from sievemq_broker.session.rights import Grant, Rights, Verb
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import MAX_CREDIT
from sievemq_core.wire.commands import Command

from .harness import CLIENT, Client, MemoryServices, World, envelope, open_consumer

# -- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", range(4))
def test_con_02_the_four_modes(world: World, mode: int) -> None:
    assert world.client().session(mode)


@pytest.mark.parametrize("mode", [4, 99])
def test_con_02_any_other_mode_is_refused(client: Client, mode: int) -> None:
    assert client.refused(Command.OPEN_SESSION, 1, mode)[0] == ErrorCode.ILLEGAL_STATE
    client.ask(Command.OPEN_SESSION, 1, 1)


def test_a_session_id_in_use_is_refused(client: Client) -> None:
    session = client.session()
    assert client.refused(Command.OPEN_SESSION, session, 1)[0] == ErrorCode.ILLEGAL_STATE
    client.send(session, "a")
    assert client.browse() == [(1, "a")]


def test_too_many_sessions() -> None:
    client = World(SessionSettings(max_sessions=2)).client()
    first = client.session()
    client.session()
    code, text, _ = client.refused(Command.OPEN_SESSION, 3, 1)
    assert code == ErrorCode.RESOURCE_ALLOCATION
    assert "2 sessions" in text
    client.ask(Command.CLOSE_SESSION, first, ())
    client.session()


@pytest.mark.parametrize("command", [Command.CLOSE_SESSION, Command.RECOVER, Command.COMMIT, Command.ROLLBACK])
def test_requests_for_a_session_that_is_not_open(world: World, command: int) -> None:
    assert world.client().refused(command, 9, ())[0] == ErrorCode.NOT_FOUND


# -- opening consumers ------------------------------------------------------------------------------------------------


def test_the_answer_precedes_the_first_delivery(world: World, client: Client) -> None:
    session = client.session()
    client.send(session, "a")
    consumer = client.consumer(session, credit=0)
    assert consumer.deliveries == []
    consumer.credit(1)
    assert consumer.all() == ["a"]
    client.send(session, "b")
    client.queue(*open_consumer(session, 50, credit=5, request=7))
    client.consumers[50] = consumer
    client.broker.receive_data(client.wire.data_to_send(), world.now)
    numbers = [command[0] for command in client.wire.receive_data(client.broker.data_to_send())]
    assert numbers == [Command.OK, Command.DELIVER]


@pytest.mark.parametrize(
    ("destination", "more", "code"),
    [
        ("", {}, ErrorCode.INVALID_DESTINATION),
        (" x", {}, ErrorCode.INVALID_DESTINATION),
        ("temporary-queue:nobody.1", {}, ErrorCode.INVALID_DESTINATION),
        ("queue:q", {"selector": "price >"}, ErrorCode.INVALID_SELECTOR),
        ("queue:q", {"selector": "a = 1", "dialect": "klingon"}, ErrorCode.INVALID_SELECTOR),
        ("queue:q", {"selector": "\ud800"}, ErrorCode.INVALID_SELECTOR),
        ("queue:q", {"subscription": "s", "durable": True}, ErrorCode.INVALID_DESTINATION),
        ("topic:t", {"durable": True}, ErrorCode.ILLEGAL_STATE),
        ("topic:t", {"shared": True}, ErrorCode.ILLEGAL_STATE),
        ("topic:t", {"shared": True, "subscription": ""}, ErrorCode.ILLEGAL_STATE),
        ("topic:t", {"shared": True, "subscription": "x" * 256}, ErrorCode.ILLEGAL_STATE),
        ("topic:t", {"durable": True, "subscription": "s"}, ErrorCode.ILLEGAL_STATE),  # SUB-10
    ],
)
def test_consumers_that_are_refused(client: Client, destination: str, more: dict[str, Any], code: ErrorCode) -> None:
    session = client.session()
    assert client.refused(open_consumer(session, 5, destination, **more))[0] == code
    assert client.broker.peer.deliveries.consumers == {}
    client.ask(open_consumer(session, 5))  # nothing is left of the attempt


def test_ses_20_a_wrong_selector_is_explained(client: Client) -> None:
    _, text, details = client.refused(open_consumer(client.session(), 5, selector="price > AND"))
    assert {"position", "length", "selector", "expected", "hint"} <= set(details)
    assert details["selector"] == "price > AND"
    assert text


def test_a_consumer_id_in_use_is_refused(client: Client) -> None:
    consumer = client.consumer(client.session())
    again = open_consumer(consumer.session, consumer.id, "queue:other")
    assert client.refused(again)[0] == ErrorCode.ILLEGAL_STATE
    client.send(consumer.session, "a")
    assert consumer.all() == ["a"]


def test_a_consumer_id_beyond_32_bits_is_refused(client: Client) -> None:
    assert client.refused(open_consumer(client.session(), 2**32))[0] == ErrorCode.ILLEGAL_STATE
    client.ask(open_consumer(1, 2**32 - 1))


def test_too_many_consumers() -> None:
    client = World(SessionSettings(max_consumers=2)).client()
    session = client.session()
    one = client.consumer(session)
    client.consumer(session)
    code, _, _ = client.refused(open_consumer(session, 50))
    assert code == ErrorCode.RESOURCE_ALLOCATION
    client.consumer(client.session())  # the limit is the session's
    one.close()
    client.consumer(session)


# -- closing consumers ------------------------------------------------------------------------------------------------


def test_clo_01_closing_twice_is_no_error_and_what_never_was_is_one(client: Client) -> None:
    consumer = client.consumer(client.session())
    consumer.close()
    consumer.close()
    client.request(Command.CLOSE_CONSUMER, consumer.id + 1, 0)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_a_close_with_request_0_gets_no_answer(client: Client) -> None:
    session = client.session(CLIENT)
    consumer, other = client.consumer(session, credit=1), client.consumer(session)
    client.send(session, "a", "b")
    assert consumer.all() == ["a"]
    client.take(Command.OK)
    client.say(Command.CLOSE_CONSUMER, 0, consumer.id, 1)
    client.say(Command.CLOSE_CONSUMER, 0, other.id, 0)
    client.say(Command.CLOSE_CONSUMER, 0, other.id, 0)  # CLO-01
    assert client.take(Command.OK) == []
    assert client.fatal is None
    assert client.consumer(session, credit=9).all() == ["b"]  # a is the session's (MCO-09)
    client.ask(Command.RECOVER, session, client.handed(session))
    assert client.consumer(session, credit=9).all() == ["a#2", "b#2"]
    client.say(Command.CLOSE_CONSUMER, 0, 99, 0)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


@pytest.mark.parametrize(
    "command", [(Command.CREDIT, 1), (Command.ACKNOWLEDGE, 1, 1), (Command.RELEASE, (1,)), (Command.WANT,)]
)
def test_late_commands_for_a_closed_consumer_are_passed_over(client: Client, command: tuple[Any, ...]) -> None:
    consumer = client.consumer(client.session())
    consumer.close()

    def say(consumer_id: int) -> None:
        if command[0] == Command.WANT:
            client.say(Command.WANT, 0, consumer_id)
        else:
            client.say(command[0], consumer_id, *command[1:])

    say(consumer.id)
    assert client.ask(Command.PING)
    say(consumer.id + 1)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_the_broker_forgets_consumers_that_hold_nothing(client: Client) -> None:
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    client.send(session, "a")
    assert consumer.all() == ["a"]
    consumer.close()
    assert list(client.broker.peer.deliveries.consumers) == [consumer.id]
    client.ask(Command.ACKNOWLEDGE_ALL, session, client.handed(session))
    deliveries = client.broker.peer.deliveries
    assert (deliveries.consumers, deliveries.owners, deliveries.retired) == ({}, {}, set())
    assert client.broker.peer.sessions[session].consumers == {}


def test_clo_02_goodbye_ends_in_order(world: World) -> None:
    client, other = world.client(client_id="me"), world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    address = client.ask(Command.CREATE_TEMPORARY, False)
    client.send(session, "a", "b")
    assert consumer.receive() == ["a"]
    client.queue_send(session, envelope("last"))
    request = client.request(Command.GOODBYE, client.handed(session))
    assert client.take(Command.CONFIRM)[-1] == (Command.CONFIRM, session, 3)
    assert client.answer_to(request) == (Command.OK, request, None)
    assert not client.transport_open
    assert other.browse() == [(2, "a"), (1, "b"), (1, "last")]
    assert other.refused(Command.DECLARE, address)[0] == ErrorCode.INVALID_DESTINATION
    assert world.services.connections.keys() == {other.broker.peer.member.id}


# -- credit -----------------------------------------------------------------------------------------------------------


def test_credit_past_its_limit(client: Client) -> None:
    session = client.session()
    assert client.refused(open_consumer(session, 50, credit=MAX_CREDIT + 1))[0] == ErrorCode.RESOURCE_ALLOCATION
    consumer = client.consumer(session, credit=MAX_CREDIT)
    client.say(Command.CREDIT, consumer.id, 0)
    client.say(Command.CREDIT, consumer.id, MAX_CREDIT)
    assert client.broker.peer.deliveries.consumers[consumer.id].credit == MAX_CREDIT
    client.say(Command.CREDIT, consumer.id, MAX_CREDIT + 1)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.RESOURCE_ALLOCATION


def test_acknowledge_with_too_much_credit_is_fatal_too(client: Client) -> None:
    consumer = client.consumer(client.session())
    client.say(Command.ACKNOWLEDGE, consumer.id, 0, MAX_CREDIT + 1)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.RESOURCE_ALLOCATION


# -- RELEASE, WANT, RECALL --------------------------------------------------------------------------------------------


def test_released_messages_return_to_their_place_unmarked(client: Client, other: Client) -> None:
    consumer = client.consumer(client.session(), credit=3)
    client.send(consumer.session, "a", "b", "c")
    client.say(Command.RELEASE, consumer.id, (1, 3))
    assert other.browse() == [(1, "a"), (1, "c")]
    assert client.broker.peer.deliveries.consumers[consumer.id].unacknowledged == 1


def test_releasing_undelivered_messages_is_fatal(client: Client) -> None:
    consumer = client.consumer(client.session())
    client.say(Command.RELEASE, consumer.id, (1,))
    assert client.fatal is not None


def test_want_is_answered_at_once_by_an_empty_queue(client: Client) -> None:
    consumer = client.consumer(client.session(), credit=0)
    client.ask(Command.WANT, consumer.id)
    assert consumer.all() == []


def test_want_brings_a_message_even_without_credit_before_its_answer(world: World, client: Client) -> None:
    session = client.session()
    client.send(session, "a", "b")
    consumer = client.consumer(session, credit=0)
    client.queue(Command.WANT, 7, consumer.id)
    client.broker.receive_data(client.wire.data_to_send(), world.now)
    assert [c[0] for c in client.wire.receive_data(client.broker.data_to_send())] == [Command.DELIVER, Command.OK]


def test_want_is_answered_with_what_waits_once_the_output_to_the_client_has_room() -> None:
    world = World(SessionSettings(outbox_high=2_000))
    client, sender = world.client(), world.client()
    session, sending = client.session(), sender.session()
    large, small, empty = (client.consumer(session, f"queue:{name}", credit=0) for name in ("large", "small", "empty"))
    sender.send(sending, *["x" * 300] * 50, to="queue:large")
    sender.send(sending, "a", to="queue:small")
    client.reading = False
    client.queue(Command.CREDIT, large.id, 50, False)
    client.exchange()
    client.queue(Command.WANT, 7, small.id)
    client.queue(Command.WANT, 8, empty.id)
    client.exchange()
    client.reading = True
    answered: set[int] = set()
    while answered != {7, 8}:
        assert client.exchange()
        answered |= {number for number in (7, 8) if client.answer_to(number)}
        assert 7 not in answered or small.deliveries
    assert small.all() == ["a"]
    assert len(large.all()) == 50


def test_want_of_request_0_is_not_answered(client: Client) -> None:
    consumer = client.consumer(client.session())
    client.say(Command.WANT, 0, consumer.id)
    assert client.take(Command.OK) == []


def test_want_is_answered_only_after_the_recall_was(client: Client, other: Client) -> None:
    idle = client.consumer(client.session())
    idle.answers_recall = False
    client.send(idle.session, "a")
    waiter = other.consumer(other.session(), credit=1)
    request = other.request(Command.WANT, waiter.id)
    assert other.answer_to(request) is None
    again = other.request(Command.WANT, waiter.id)
    [recall] = client.take(Command.RECALL)
    assert recall == (Command.RECALL, idle.id, (1,))
    client.say(Command.RELEASE, idle.id, ())  # "a" was handed to the application meanwhile
    assert other.answer_to(request) is not None
    assert other.answer_to(again) is not None
    assert waiter.all() == []


@pytest.mark.parametrize("end", ["consumer", "session", "drop"])
def test_want_is_answered_when_the_holder_ends(client: Client, other: Client, end: str) -> None:
    idle = client.consumer(client.session())
    idle.answers_recall = False
    client.send(idle.session, "a")
    waiter = other.consumer(other.session(), credit=1)
    request = other.request(Command.WANT, waiter.id)
    assert other.answer_to(request) is None
    if end == "consumer":
        idle.close()
    elif end == "session":
        client.ask(Command.CLOSE_SESSION, idle.session, ())
    else:
        client.drop()
    assert other.answer_to(request) is not None
    assert waiter.all() == ["a#2" if end == "drop" else "a"]


@pytest.mark.parametrize("end", ["consumer", "session"])
def test_clo_06_want_is_answered_when_the_waiter_itself_closes(client: Client, other: Client, end: str) -> None:
    idle = client.consumer(client.session(), credit=1)
    idle.answers_recall = False
    client.send(idle.session, "a")
    waiter = other.consumer(other.session(), credit=1)
    request = other.request(Command.WANT, waiter.id)
    if end == "consumer":
        waiter.close()
    else:
        other.ask(Command.CLOSE_SESSION, waiter.session, ())
    assert other.answer_to(request) == (Command.OK, request, None)
    client.say(Command.RELEASE, idle.id, (1,))
    assert other.browse() == [(1, "a")]
    assert not other.broker.peer.deliveries.wants(waiter.id)


def test_too_many_unanswered_wants_are_refused(client: Client, other: Client) -> None:
    idle = client.consumer(client.session(), credit=1)
    idle.answers_recall = False
    client.send(idle.session, "a")
    waiter = other.consumer(other.session(), credit=1)
    requests = [other.request(Command.WANT, waiter.id) for _ in range(100)]
    assert other.refused(Command.WANT, waiter.id)[0] == ErrorCode.RESOURCE_ALLOCATION
    client.say(Command.RELEASE, idle.id, ())
    assert all(other.answer_to(request) for request in requests)


def test_goodbye_answers_the_wants_that_are_open(client: Client, other: Client) -> None:
    idle = client.consumer(client.session(), credit=1)
    idle.answers_recall = False
    client.send(idle.session, "a")
    waiter = other.consumer(other.session(), credit=1)
    want = other.request(Command.WANT, waiter.id)
    assert other.ask(Command.GOODBYE, ()) is None
    assert other.answer_to(want) == (Command.OK, want, None)


@pytest.mark.parametrize("end", ["drop", "break", "goodbye"])
def test_an_ending_connection_gets_no_recall(client: Client, other: Client, end: str) -> None:
    """While it gives back what it holds, others that wait would have it asked for the rest."""
    held = [client.consumer(client.session(CLIENT), credit=1) for _ in range(4)]
    client.send(held[0].session, *"abcd")
    for consumer in held:
        consumer.answers_recall = False
    waiters = [other.consumer(other.session(), credit=1) for _ in range(3)]
    requests = [other.request(Command.WANT, waiter.id) for waiter in waiters]
    client.take(Command.RECALL)
    if end == "drop":
        client.drop()
    elif end == "break":
        client.raw(b"\x00\x00\x00\x00")
    else:
        client.ask(Command.GOODBYE, ())
    assert client.take(Command.RECALL) == []
    assert all(other.answer_to(request) for request in requests)
    assert sum(len(waiter.all()) for waiter in waiters) == 3
    assert len(other.browse()) == 1


def test_closing_with_a_tag_that_was_never_delivered_is_fatal(client: Client) -> None:
    consumer = client.consumer(client.session())
    client.request(Command.CLOSE_CONSUMER, consumer.id, 1)
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


# -- closed by the broker ---------------------------------------------------------------------------------------------


def test_deleting_a_queue_closes_its_consumers(world: World, client: Client) -> None:
    consumer = client.consumer(client.session(CLIENT), credit=1)
    client.send(consumer.session, "a", "b")
    assert consumer.all() == ["a"]
    world.broker.namespace("").delete("queue:q")
    world.settle()
    [(_, consumer_id, code, text)] = client.take(Command.CONSUMER_CLOSED)
    assert (consumer_id, code) == (consumer.id, ErrorCode.INVALID_DESTINATION)
    assert "queue:q" in text
    client.ask(Command.ACKNOWLEDGE_ALL, consumer.session, client.handed(consumer.session))
    consumer.close()
    client.recover(consumer.session)
    assert client.broker.peer.deliveries.consumers == {}
    assert client.browse() == []


def test_a_consumer_that_holds_nothing_is_forgotten_when_its_queue_is_deleted(world: World, client: Client) -> None:
    consumer = client.consumer(client.session())
    world.broker.namespace("").delete("queue:q")
    world.settle()
    assert client.take(Command.CONSUMER_CLOSED)
    assert client.broker.peer.deliveries.consumers == {}
    assert client.ask(Command.WANT, consumer.id) is None  # nothing will come
    consumer.close()


@pytest.mark.parametrize("standing", [False, True])
def test_ord_01_a_want_of_request_0_leaves_older_messages_to_the_working_consumer(
    world: World, monkeypatch: pytest.MonkeyPatch, standing: bool
) -> None:
    """But not while time stands still: then nobody could ever be seen to do nothing (MCO-14)."""
    monkeypatch.setattr(MemoryServices, "frozen_at", property(lambda self: 1 if standing else None))
    client, other = world.client(), world.client()
    busy = client.consumer(client.session(), credit=2)
    client.send(busy.session, "a", "b")
    waiter = other.consumer(other.session(), credit=1)
    client.send(busy.session, "c")
    assert len(waiter.all()) == 1
    other.say(Command.WANT, 0, waiter.id)
    assert len(client.take(Command.RECALL)) == int(standing)
    if not standing:
        other.ask(Command.WANT, waiter.id)
        assert len(client.take(Command.RECALL)) == 1


def test_a_want_is_answered_when_the_recalled_consumer_loses_its_right(world: World) -> None:
    holder, other = world.client(), world.client()
    held = holder.consumer(holder.session(CLIENT))
    held.answers_recall = False
    for text in ("a", "b"):
        holder.send(held.session, text)
    waiter = other.consumer(other.session(), credit=0)
    request = other.request(Command.WANT, waiter.id)
    assert other.answer_to(request) is None
    holder.broker.peer.entitle(Identity("ann", Rights([Grant(frozenset({Verb.SEND}), "queue:q")])))
    world.settle()
    assert other.answer_to(request) == (Command.OK, request, None)
    assert not world.broker.namespace("").queue("queue:q").recalling


def test_a_subscription_ends_when_its_consumer_loses_its_right(world: World, client: Client) -> None:
    client.consumer(client.session(), "topic:t")
    client.broker.peer.entitle(Identity("ann", Rights([Grant(frozenset({Verb.SEND}), "topic:t")])))
    world.settle()
    assert not world.broker.namespace("").declare("topic:t").subscriptions  # type: ignore[union-attr]
