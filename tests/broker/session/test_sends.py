"""SEND, CONFIRM, SEND_FAILED: order, limits, back-pressure on producers, clocks."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.server.net.codec import hasten
from sievemq_broker.session import SessionSettings
from sievemq_broker.session.peer import LAZY_CONFIRMS
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import MAX_HEADER_CHARS, MAX_PROPERTIES_BYTES, MAX_PROPERTY_CHARS
from sievemq_core.message.envelope import Envelope, pack_properties, unpack_properties, use_decoder
from sievemq_core.message.values import Byte
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

from .harness import AUTO, START, Client, World, envelope


def test_one_confirm_per_session_and_turn(world: World, client: Client) -> None:
    one, two = client.session(), client.session()
    for _ in range(50):
        client.queue_send(one, envelope())
        client.queue_send(two, envelope())
    world.settle()
    assert sorted(client.take(Command.CONFIRM)) == [(Command.CONFIRM, one, 50), (Command.CONFIRM, two, 50)]
    client.send(one, "a")
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, one, 51)]


def test_one_confirm_per_turn_for_messages_to_costly_selectors(world: World, client: Client) -> None:
    """Selectors that may be costly, and are not for these messages, do not cost a frame for each."""
    client.consumer(client.session(), "topic:t", selector="p LIKE '%x%'", credit=0)
    assert world.broker.namespace("").declare("topic:t").index.costly  # type: ignore[union-attr]
    session = client.session()
    for _ in range(50):
        client.queue_send(session, envelope(), "topic:t")
    world.settle()
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, session, 50)]


def non_persistent(**more: Any) -> tuple[Any, ...]:
    fields = envelope(**more)
    return (*fields[:3], 1, *fields[4:])


def test_d_24_confirms_of_non_persistent_messages_wait_for_company(world: World, client: Client) -> None:
    """No caller waits for them: a write at one end and a wake-up at the other would cost more than the message."""
    session = client.session()

    def confirmed_after(*sends: tuple[Any, ...]) -> list[int]:
        for fields in sends:
            client.queue_send(session, fields)
        world.settle()
        return [sequence for _, _, sequence in client.take(Command.CONFIRM)]

    assert confirmed_after(non_persistent()) == []
    client.ask(Command.PING)  # a caller that waits sends PING
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, session, 1)]
    assert confirmed_after(non_persistent()) == []
    client.ask(Command.DECLARE, "queue:other")  # with other output it would still be work for both
    assert client.take(Command.CONFIRM) == []
    assert confirmed_after(non_persistent(), envelope()) == [4]
    assert confirmed_after(non_persistent(body=b"x" * MAX_HEADER_CHARS)) == [5]
    assert confirmed_after(*[non_persistent()] * LAZY_CONFIRMS) == [5 + LAZY_CONFIRMS]
    assert confirmed_after(non_persistent()) == []
    client.broker.tick(world.now)
    world.settle()
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, session, 6 + LAZY_CONFIRMS)]


def test_a_failed_send_stands_between_the_confirms_of_the_others(world: World, client: Client) -> None:
    session = client.session()
    for to in ("queue:a", "queue:b", "temporary-queue:x.1", "queue:c", " bad ", "queue:d"):
        client.queue_send(session, envelope(), to)
    world.settle()
    settled = [(c[0], c[2], *c[3:4]) for c in client.heard if c[0] in (Command.CONFIRM, Command.SEND_FAILED)]
    assert settled == [
        (Command.CONFIRM, 2),
        (Command.SEND_FAILED, 3, ErrorCode.INVALID_DESTINATION),
        (Command.CONFIRM, 4),
        (Command.SEND_FAILED, 5, ErrorCode.INVALID_DESTINATION),
        (Command.CONFIRM, 6),
    ]
    assert not client.broker.closing


def test_a_failed_send_alone_is_settled_without_a_confirm(client: Client) -> None:
    session = client.session()
    client.send(session, "a", to="temporary-queue:x.1")
    assert client.take(Command.CONFIRM) == []
    client.send(session, "b")
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, session, 2)]


def test_confirms_precede_the_answer_to_ping_and_close(world: World, client: Client) -> None:
    session = client.session()
    client.queue_send(session, envelope())
    client.queue(Command.PING, 7)
    client.queue_send(session, envelope())
    client.queue(Command.CLOSE_SESSION, 8, session, ())
    world.settle()
    assert client.heard[-4:] == [
        (Command.CONFIRM, session, 1), (Command.OK, 7, START), (Command.CONFIRM, session, 2), (Command.OK, 8, None),
    ]  # fmt: skip


@pytest.mark.parametrize("sequence", [0, 2, 3, 2**40])
def test_a_gap_in_the_sequence_ends_the_connection(client: Client, sequence: int) -> None:
    session = client.session()
    client.say(Command.SEND, session, sequence, "queue:q", envelope())
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND
    assert f"SEND {sequence} in session {session} where 1 is due" in client.fatal[3]


def test_sends_accepted_before_a_fatal_error_are_confirmed_and_kept(world: World, client: Client) -> None:
    session = client.session()
    client.queue_send(session, envelope("kept"))
    client.queue(Command.SEND, session, 7, "queue:q", envelope("gap"))
    world.settle()
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, session, 1)]
    assert client.fatal is not None
    assert world.client().browse() == [(1, "kept")]


def test_a_send_to_a_closed_session_fails_and_to_an_unknown_one_is_fatal(client: Client) -> None:
    session = client.session()
    client.ask(Command.CLOSE_SESSION, session, ())
    client.say(Command.SEND, session, 1, "queue:q", envelope())
    assert client.take(Command.SEND_FAILED)[0][1:4] == (session, 1, ErrorCode.ILLEGAL_STATE)
    client.say(Command.SEND, session + 1, 1, "queue:q", envelope())
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({12: b"x" * 1001}, None),
        ({12: b"x" * 40_001}, ErrorCode.MESSAGE_TOO_LARGE),
        ({9: b"\x80" + b"x" * MAX_PROPERTIES_BYTES}, ErrorCode.MESSAGE_TOO_LARGE),
        ({9: b"\x80x"}, ErrorCode.MESSAGE_FORMAT),
        ({9: b"\x81\xa1a\x91\x01"}, ErrorCode.MESSAGE_FORMAT),
        ({9: b"\x81\xa1a" + b"\x91" * 5_000}, ErrorCode.MESSAGE_FORMAT),
        ({9: b"\x81\x01\x01"}, ErrorCode.MESSAGE_FORMAT),
        ({9: b"\x81\xa1a\xcf" + b"\xff" * 8}, ErrorCode.MESSAGE_FORMAT),
        ({9: b"\x81\xa1a\xcd\xff\xff", 10: "b"}, None),
        ({0: "I" * (MAX_HEADER_CHARS + 1)}, ErrorCode.MESSAGE_FORMAT),
        ({6: b"I" * (MAX_HEADER_CHARS + 1)}, ErrorCode.MESSAGE_FORMAT),
        ({7: "I" * (MAX_HEADER_CHARS + 1)}, ErrorCode.MESSAGE_FORMAT),
        ({8: "I" * (MAX_HEADER_CHARS + 1)}, ErrorCode.MESSAGE_FORMAT),
        ({9: pack_properties({"p": "I" * MAX_PROPERTY_CHARS, "q": "I" * MAX_PROPERTY_CHARS})[0]}, None),
        ({9: pack({"p": "I" * (MAX_PROPERTY_CHARS + 1)})}, ErrorCode.MESSAGE_FORMAT),
        ({9: b"not a map" * MAX_PROPERTY_CHARS}, ErrorCode.MESSAGE_TOO_LARGE),
        ({9: b"not a map" * 10_000}, ErrorCode.MESSAGE_FORMAT),
        ({11: 6}, ErrorCode.MESSAGE_FORMAT),
        ({0: "I" * 30_000, 12: b"x" * 40_000}, None),
    ],
)
def test_messages_that_are_refused(change: dict[int, Any], code: ErrorCode | None) -> None:
    world = World(SessionSettings(body_bytes=40_000))
    client = world.client()
    session = client.session()
    fields = list(envelope())
    for position, value in change.items():
        fields[position] = value
    client.queue_send(session, tuple(fields))
    world.settle()
    failed = client.take(Command.SEND_FAILED)
    assert [command[3] for command in failed] == ([] if code is None else [code])
    assert not client.broker.closing


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("limit", [1, 100, 8_192, 40_000])
def test_a_limit_of_bodies_is_enforced_however_low_it_is(limit: int, mode: int) -> None:
    world = World(SessionSettings(body_bytes=limit))
    client = world.client()
    session = client.session(mode)
    for size in (limit, limit + 1):
        client.queue_send(session, (*envelope()[:12], b"x" * size))
    world.settle()
    [failed] = client.take(Command.SEND_FAILED)
    assert failed[2:4] == (2, ErrorCode.MESSAGE_TOO_LARGE)
    assert f"at most {limit} are accepted" in failed[4]


@pytest.mark.parametrize("fast", [False, True])
def test_lone_surrogates_are_replaced(fast: bool) -> None:
    """In headers and properties, whose text every reader gets; the body is its receiver's (D-46)."""
    use_decoder(None)
    if fast:
        hasten()
    try:
        client = World().client()
        session = client.session()
        fields = list(envelope("a"))
        fields[6], fields[7], fields[8] = "c\ud800d", "queue:\ud800", "\udfff"
        forged = {"JMS_SieveMQ_DeadLetterReason": "\ud800"}
        fields[9], fields[10] = pack_properties({"a\ud800": "b\udfff", "c": Byte(1), **forged})
        client.queue_send(session, tuple(fields))
        client.queue_send(session, envelope("behind"))
        assert not client.take(Command.SEND_FAILED)
        _, (_, first), (_, behind) = client.ask(Command.BROWSE, "queue:q", None, None, None, 3)
    finally:
        use_decoder(None)
    assert first[6:9] == ("c\ufffdd", "queue:\ufffd", "\ufffd")
    assert unpack_properties(first) == {"a\ufffd": "b\ufffd", "c": 1}
    assert behind[12] == b"behind"


def test_a_full_queue_refuses_the_send() -> None:
    world = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_messages=2))))
    client = world.client()
    session = client.session()
    client.send(session, "a", "b", "c")
    assert [c[2:4] for c in client.take(Command.SEND_FAILED)] == [(3, ErrorCode.RESOURCE_ALLOCATION)]
    assert client.browse() == [(1, "a"), (1, "b")]


def test_a_bare_name_is_a_queue(client: Client) -> None:
    client.send(client.session(), "a", to="q")
    assert client.browse("queue:q") == [(1, "a")]


def test_a_message_that_waits_keeps_its_packed_bytes_alone(world: World, client: Client) -> None:
    """Decoded fields beside them would double the memory of a backlog."""
    session = client.session()
    for fields in (envelope("persistent"), non_persistent()):
        client.queue_send(session, fields)
        world.settle()
    queue = world.broker.namespace("").queue("q")
    assert [entry.envelope._fields for entry in queue.main.waits(-1, 10)] == [None, None]


# -- FLOW -------------------------------------------------------------------------------------------------------------


def test_at_the_brokers_limit_sends_wait_and_are_taken_in_their_order_when_there_is_room(
    world: World, client: Client
) -> None:
    session = client.session()
    client.send(session, "a")
    client.take(Command.CONFIRM)
    world.services.flow("memory: the limit")
    client.send(session, "b", "c")
    assert client.take(Command.FLOW) == [
        (Command.FLOW, True, "memory: the limit", 0, 0, None),
        (Command.FLOW, True, "memory: the limit", session, 2, "queue:q"),
    ]
    assert client.take(Command.CONFIRM) == []
    assert client.browse() == [(1, "a")]
    assert world.broker.rooms.bytes == len(Envelope(client.sends[session][1][4]).packed)
    world.services.flow("memory: the limit")
    world.services.flow(None)
    world.broker.work(world.now)
    world.settle()
    assert client.take(Command.FLOW) == [
        (Command.FLOW, False, "", 0, 0, None),
        (Command.FLOW, False, "", session, 3, None),
    ]
    assert [command[2] for command in client.take(Command.CONFIRM)] == [2, 3]
    assert client.browse() == [(1, "a"), (1, "b"), (1, "c")]
    assert world.broker.rooms.bytes == 0


def test_flow_does_not_hold_back_answers(world: World, client: Client) -> None:
    transacted, auto = client.session(0), client.session(AUTO)
    client.send(auto, "a")
    client.take(Command.CONFIRM)
    world.services.flow("full")
    client.send(auto, "b")
    client.send(transacted, "c")
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, transacted, 1)]
    client.ask(Command.CLOSE_SESSION, auto, ())
    assert not world.broker.rooms.waiting
    assert client.browse() == [(1, "a")]


def test_at_the_brokers_limit_a_commit_waits_unless_it_consumes_something_too(world: World, client: Client) -> None:
    auto, producer, relay = client.session(AUTO), client.session(0), client.session(0)
    client.send(auto, "in")
    consumer = client.consumer(relay, "queue:q")
    assert consumer.receive() == ["in"]
    world.services.flow("full")
    client.send(producer, "a", to="queue:other")
    client.send(relay, "out", to="queue:out")
    client.commit(relay)
    assert client.browse("queue:out") == [(1, "out")]
    request = client.request(Command.COMMIT, producer, ())
    assert client.answer_to(request) is None
    world.services.flow(None)
    world.broker.work(world.now)
    world.settle()
    assert client.answer_to(request) == (Command.OK, request, None)
    assert client.browse("queue:other") == [(1, "a")]


def test_a_client_that_connects_while_senders_are_blocked_is_notified(world: World) -> None:
    world.services.flow("full")
    client = world.client()
    assert client.take(Command.FLOW) == [(Command.FLOW, True, "full", 0, 0, None)]


# -- CLOCK ------------------------------------------------------------------------------------------------------------


def test_times_of_a_client_that_has_not_seen_the_clock_move_are_shifted(world: World) -> None:
    client, consumer_client = world.client(), world.client()
    session = client.session()
    consumer = consumer_client.consumer(consumer_client.session())
    world.services.move_clock(60_000, world.services.real + 60_000)
    # Sent a millisecond after the clock moved, by a client that does not know it yet; expires a second later.
    client.queue_send(session, envelope("a", timestamp=START + 1, expiration=START + 1001))
    client.queue_send(session, envelope("b", timestamp=0, delivery_time=START + 500))
    world.settle()
    assert client.take(Command.CLOCK) == [(Command.CLOCK, 60_000, None)]
    assert consumer.deliveries[0].fields[1:6] == (START + 60_001, 4, 2, START + 61_001, 0)
    world.later(500)
    assert consumer.deliveries[1].fields[1:6] == (0, 4, 2, 0, START + 60_500)
    client.queue(Command.CLOCK_SEEN, 60_000)
    client.queue_send(session, envelope("c", timestamp=START + 60_000))
    world.settle()
    assert consumer.deliveries[2].fields[1] == START + 60_000


def test_sends_from_before_a_clock_change_keep_their_times(world: World) -> None:
    client, consumer_client = world.client(), world.client()
    session = client.session()
    consumer = consumer_client.consumer(consumer_client.session())
    client.queue_send(session, envelope("a", timestamp=START, delivery_time=START + 60_000))
    world.services.move_clock(60_000, world.services.real + 60_000)  # while it is on its way
    world.later(60_000)
    assert [delivery.fields[1:6] for delivery in consumer.deliveries] == [(START, 4, 2, 0, START + 60_000)]


def test_a_clock_that_moves_twice_and_back(world: World, client: Client) -> None:
    session = client.session()
    consumer = client.consumer(session)
    world.services.move_clock(1000, world.services.real + 1000)
    world.services.move_clock(5000, world.services.real + 5000)
    client.queue(Command.CLOCK_SEEN, 1000)
    client.queue_send(session, envelope("a", timestamp=START + 1001))
    client.queue(Command.CLOCK_SEEN, 5000)
    world.settle()
    assert consumer.deliveries[0].fields[1] == START + 5001
    world.services.move_clock(0, world.services.real + 0)
    client.queue_send(session, envelope("b", timestamp=START + 5001))
    world.settle()
    assert consumer.deliveries[1].fields[1] == START + 1


def test_a_client_after_a_clock_jump_gets_no_clock_message(world: World) -> None:
    world.services.move_clock(7000, world.services.real + 7000)
    client = world.client()
    assert client.take(Command.CLOCK) == []
    assert client.broker.peer.clock_lag == 0


def test_clock_seen_of_something_else_ends_the_connection(client: Client) -> None:
    client.say(Command.CLOCK_SEEN, "soon")
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.MALFORMED_FRAME
