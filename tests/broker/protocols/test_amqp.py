"""AMQP clients on a real domain: handshake, sessions, links, settlement, transactions, limits, and what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import HELD_BACK_MS, Queue
from sievemq_broker.protocols.amqp.connection import CREDIT
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, SASL, SASL_HEADER, frame_of
from sievemq_broker.protocols.amqp.links import ahead
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Header,
    Modified,
    Open,
    Properties,
    Received,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from sievemq_broker.protocols.amqp.types import Array, Described, Symbol, UInt, ULong
from sievemq_broker.session import SessionSettings
from sievemq_broker.session.rights import Grant, Identity, Rights, Verb
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_CREDIT

from ..session.harness import World
from .amqp import Amqp, described, message, selector


@pytest.fixture
def world() -> World:
    return World()


def queue(world: World, name: str = "q", namespace: str = "default") -> Queue:
    found = world.broker.namespaces[namespace].destinations[f"queue:{name}"]
    assert isinstance(found, Queue)
    return found


def filled(world: World, *bodies: str) -> Amqp:
    """A client that has sent these to the queue q."""
    client = Amqp(world)
    client.sender()
    for number, body in enumerate(bodies):
        client.send(message(body, {"n": number}), number)
        assert isinstance(client.outcome(number), Accepted)
    return client


# -- the handshake ----------------------------------------------------------------------------------------------------


def test_open_names_the_broker_and_what_it_offers(world: World) -> None:
    client = Amqp(world)
    opened = client.one(Open)
    assert opened.offered_capabilities == [
        "ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", "sole-connection-for-container"
    ]  # fmt: skip
    assert opened.properties is not None
    assert opened.properties["topic-prefix"] == "topic:"
    assert client.broker.peer.member.agent == "AMQP 1.0"
    assert client.one(Begin).remote_channel == 0


def test_open_lists_the_brokers_that_may_take_over() -> None:
    opened = Amqp(World(SessionSettings(peers=("mq-1:7672", "[::1]:7673")))).one(Open)
    assert opened.properties is not None
    assert opened.properties["failover-server-list"] == [
        {"network-host": "mq-1", "port": 7672}, {"network-host": "::1", "port": 7673},
    ]  # fmt: skip


def test_a_client_signs_in_with_a_password(world: World) -> None:
    world.services.users = {"ann": "right"}
    client = Amqp(world, user="ann", password="right")
    assert client.one(SaslMechanisms).sasl_server_mechanisms == ["PLAIN", "ANONYMOUS"]
    assert client.one(SaslOutcome).code == 0
    client.one(Begin)
    assert client.broker.peer.member.identity.user == "ann"


@pytest.mark.parametrize(
    "init",
    [
        SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0wrong"),
        SaslInit(mechanism="PLAIN", initial_response=b"ann"),
        SaslInit(mechanism="PLAIN"),
        SaslInit(mechanism="SCRAM-SHA-1", initial_response=b""),
        SaslInit(mechanism="ANONYMOUS"),
    ],
)
def test_a_failed_sign_in_is_answered_and_ends_the_connection(world: World, init: SaslInit) -> None:
    world.services.users = {"ann": "right"}
    client = Amqp(world, connect=False)
    client.feed(SASL_HEADER)
    client.say(init, kind=SASL)
    assert client.one(SaslOutcome).code == 1
    assert client.closed


def test_without_sasl_a_broker_with_users_closes_the_connection(world: World) -> None:
    world.services.users = {"ann": "right"}
    client = Amqp(world, connect=False)
    client.feed(AMQP_HEADER + frame_of(Open(container_id="c")))
    opened = client.one(Open)
    assert opened.properties == {"amqp:connection-establishment-failed": True}
    assert client.error().condition == "amqp:unauthorized-access"


@pytest.mark.parametrize(
    ("user", "host", "namespace"),
    [
        (None, None, "default"), (None, "127.0.0.1", "default"), (None, "/shop", "shop"), (None, "there", "there"),
        ("ann@shop", None, "shop"), ("@shop", "/other", "shop"),
    ],
)  # fmt: skip
def test_the_namespace_comes_from_host_or_user(
    world: World, user: str | None, host: str | None, namespace: str
) -> None:
    world.broker.namespace("there")
    client = Amqp(world, user=user, host=host)
    client.one(Begin)
    assert client.broker.peer.namespace.name == namespace


@pytest.mark.parametrize(
    ("url", "host", "redirect"),
    [
        ("amqp://mq-2:5672", "/shop", {"hostname": "/shop", "network-host": "mq-2", "port": 5672}),
        ("amqps://[::1]:1", "shop", {"hostname": "shop", "network-host": "::1", "port": 1}),
        ("amqp://mq-2:5672", "mq-1", {"hostname": "mq-2", "network-host": "mq-2", "port": 5672}),
        ("amqp://mq-2:5672", None, {"hostname": "mq-2", "network-host": "mq-2", "port": 5672}),
    ],
)
def test_a_namespace_of_another_broker_closes_the_connection_with_a_redirect(
    world: World, url: str, host: str | None, redirect: dict[str, object]
) -> None:
    details = {"url": url, "shard": "b", "namespace": "shop"}
    world.services.elsewhere["shop"] = RequestError("it is elsewhere", ErrorCode.REDIRECT, details)
    world.services.elsewhere["default"] = world.services.elsewhere["shop"]
    client = Amqp(world, user="ann@shop" if host == "mq-1" else None, host=host)
    assert client.one(Open).properties == {"amqp:connection-establishment-failed": True}
    error = client.error()
    assert error.condition == "amqp:connection:redirect"
    assert error.info == redirect
    assert client.closed


def test_a_namespace_that_no_broker_has_now_closes_the_connection_for_a_while(world: World) -> None:
    world.services.elsewhere["shop"] = RequestError("no broker owns it; try again", ErrorCode.UNAVAILABLE)
    assert Amqp(world, host="/shop").error().condition == "amqp:connection:forced"


def test_the_host_does_not_tell_which_namespaces_there_are(world: World) -> None:
    """Without a right there, a namespace is treated as one that does not exist."""
    world.broker.namespace("team-a")
    world.services.users = {"mallory": "m"}
    world.services.rights = {"mallory": Rights([Grant(frozenset({Verb.SEND}), "*", "default")])}
    for host in ("team-a", "team-b"):
        client = Amqp(world, user="mallory", password="m", host=host)
        client.one(Begin)
        assert client.broker.peer.namespace.name == "default"
    errors = [Amqp(world, user="mallory", password="m", host=host).error() for host in ("/team-a", "/team-b")]
    assert errors[0].condition == errors[1].condition
    assert str(errors[0].description).replace("team-a", "team-b") == errors[1].description
    assert "team-b" not in world.broker.namespaces


def test_a_container_that_is_to_be_alone_is_a_client_id(world: World) -> None:
    sole = ["sole-connection-for-container"]
    Amqp(world, container="me", desired_capabilities=sole).one(Begin)
    other = Amqp(world, container="me", desired_capabilities=sole)
    error = other.error()
    assert (error.condition, error.info) == ("amqp:invalid-field", {"invalid-field": "container-id"})
    Amqp(world, container="me").one(Begin)  # asks for nothing
    for _ in range(2):
        Amqp(world, container="ID:made-up:1", desired_capabilities=sole).one(Begin)


def test_heartbeats_are_sent_at_half_of_the_requested_interval(world: World) -> None:
    client = Amqp(world, idle_time_out=4_000)
    assert client.one(Open).idle_time_out == SessionSettings().heartbeat_ms
    assert client.broker.heartbeats == (SessionSettings().heartbeat_ms, 2_000)
    client.frames.clear()
    for _ in range(3):
        world.later(1_000)
        client.broker.tick(world.now)
        client.rest()
    assert any(frame.body is None for frame in client.frames)


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (AMQP_HEADER + frame_of(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)), "amqp:not-allowed"),
        (AMQP_HEADER + AMQP_HEADER, "amqp:not-implemented"),
        (AMQP_HEADER + b"\0\0\0\x07\x02\0\0\0", "amqp:decode-error"),
        (AMQP_HEADER + b"\x7f\0\0\0\x02\0\0\0", "amqp:connection:framing-error"),
    ],
)
def test_a_wrong_beginning_closes_with_a_condition(world: World, data: bytes, condition: str) -> None:
    client = Amqp(world, connect=False)
    client.feed(data)
    assert client.error().condition == condition
    assert client.closed


def test_another_version_of_the_protocol_is_answered_with_ours(world: World) -> None:
    client = Amqp(world, connect=False)
    client.feed(b"AMQP\0\0\x09\x01")
    assert [(frame.kind, frame.body) for frame in client.frames] == [(-1, AMQP_HEADER)]
    assert client.closed


def test_close_is_answered_and_gives_everything_back(world: World) -> None:
    client = filled(world, "a")
    client.receiver()
    assert client.receive().body == "a"
    client.say(Close())
    assert client.one(Close).error is None
    assert client.closed
    other = Amqp(world)
    other.receiver()
    assert other.receive().body == "a"


# -- producers --------------------------------------------------------------------------------------------------------


def test_a_producer_gets_credit_and_gets_more_in_time(world: World) -> None:
    client = Amqp(world)
    client.sender()
    assert client.one(Flow).link_credit == CREDIT
    for number in range(CREDIT // 2):
        client.send(message(), number, settled=True)
    flow = client.one(Flow)
    assert (flow.link_credit, flow.delivery_count) == (CREDIT, CREDIT // 2)
    assert queue(world).depth == CREDIT // 2


def test_deliveries_that_came_together_are_settled_together(world: World) -> None:
    client = Amqp(world)
    client.sender()
    transfers = b"".join(
        frame_of(Transfer(handle=0, delivery_id=n, delivery_tag=b"%d" % n), 0, message(str(n))) for n in range(5)
    )
    client.feed(transfers)
    settled = client.one(Disposition)
    assert (settled.first, settled.last, settled.settled) == (0, 4, True)
    assert queue(world).depth == 5


@pytest.mark.parametrize(("properties", "outcome"), [(Properties(to="q"), Accepted), (None, Rejected)])
def test_with_settle_mode_second_the_outcome_arrives_unsettled(
    world: World, properties: Properties | None, outcome: type[Accepted | Rejected]
) -> None:
    client = Amqp(world)
    assert client.sender(None, rcv_settle_mode=1).rcv_settle_mode == 1
    client.send(message("x", standard=properties))
    heard = client.one(Disposition)
    assert (heard.first, heard.role, heard.settled, type(heard.state)) == (0, True, False, outcome)
    client.say(Disposition(role=False, first=0, settled=True))
    assert not client.closed


def test_a_message_in_several_transfers(world: World) -> None:
    client = Amqp(world)
    client.sender()
    whole = message("x" * 1_000)
    for at in range(0, len(whole), 100):
        more = at + 100 < len(whole)
        client.say(
            Transfer(handle=0, delivery_id=0 if at == 0 else None, delivery_tag=b"t", more=more), whole[at : at + 100]
        )
        assert (client.broker.unpublished > 0) is more
    assert isinstance(client.outcome(0), Accepted)
    client.receiver()
    assert client.receive().body == "x" * 1_000


def test_deliveries_that_are_not_complete_have_a_limit_together() -> None:
    client = Amqp(World(settings=SessionSettings(incomplete_bytes=10_000)))
    for handle in range(3):
        client.sender(handle=handle)
    for number, size in enumerate((50_000, 100)):  # one alone may have any size
        client.say(Transfer(handle=number, delivery_id=number, delivery_tag=b"t", more=True), b"x" * size)
    error = client.detached()
    assert error.condition == "amqp:resource-limit-exceeded"
    assert "50100 bytes; at most 10000" in error.description
    client.say(Transfer(handle=0, aborted=True))
    assert client.broker.unpublished == client.broker.frame_bytes == 0
    client.say(Transfer(handle=2, delivery_id=4, delivery_tag=b"t", more=True), b"x" * 9_000)
    client.say(Transfer(handle=0, delivery_id=5, delivery_tag=b"t", more=True), b"x" * 900)
    assert client.broker.frame_bytes == 9_900
    client.say(Detach(handle=2, closed=True))
    client.say(Transfer(handle=0, more=True), b"x" * 9_000)
    assert client.broker.frame_bytes == 9_900
    client.say(End())
    assert client.one(End).error is None
    assert client.broker.frame_bytes == 0


def test_an_aborted_message_is_none(world: World) -> None:
    client = Amqp(world)
    client.sender()
    client.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True), b"half")
    client.say(Transfer(handle=0, aborted=True))
    client.send(message("next"), 1)
    assert isinstance(client.outcome(1), Accepted)
    assert queue(world).depth == 1


def test_a_message_that_is_none_ends_the_connection(world: World) -> None:
    client = Amqp(world)
    client.sender()
    client.send(b"\0\x53\x99\x40")
    assert client.error().condition == "amqp:decode-error"


@pytest.mark.parametrize("settled", [False, True])
def test_a_refused_message_is_rejected_or_detaches_its_link(settled: bool) -> None:
    world = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_messages=1, at_limit="fail"))))
    client = Amqp(world)
    client.sender()
    client.send(message("a"), 0)
    client.send(message("b"), 1, settled=settled)
    if settled:
        assert client.detached().condition == "amqp:resource-limit-exceeded"
    else:
        client.outcome(0)
        state = client.outcome(1)
        assert isinstance(state, Rejected)
        assert state.error.condition == "amqp:resource-limit-exceeded"
        assert state.error.info == {"delivery-tag": b"t1"}
    client.send(message("c"), 2, settled=settled)
    assert not client.closed
    assert queue(world).depth == 1


def test_a_message_larger_than_is_accepted_detaches_its_link() -> None:
    world = World(settings=SessionSettings(body_bytes=1_000_000))
    client = Amqp(world)
    assert client.sender().max_message_size == 1_000_000
    client.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True), b"x" * 900_000)
    client.say(Transfer(handle=0, more=True), b"x" * 100_001)
    assert client.detached().condition == "amqp:link:message-size-exceeded"
    assert client.broker.unpublished == 0


@pytest.mark.parametrize("limit", [100, 8_192, 32_768, 100_000])
def test_the_message_size_that_is_announced_is_what_is_accepted(limit: int) -> None:
    world = World(settings=SessionSettings(body_bytes=limit))
    client = Amqp(world)
    assert client.sender().max_message_size == limit
    whole = message(b"x" * (limit - 8), section=0x75)
    whole = message(b"x" * (2 * limit - 8 - len(whole)), section=0x75)
    assert len(whole) == limit
    client.send(whole, 0)
    assert isinstance(client.outcome(0), Accepted)
    client.send(message(b"x" * limit, section=0x75), 1)
    error = client.outcome(1).error
    assert error.condition == "amqp:link:message-size-exceeded"
    assert f"at most {limit} are accepted" in error.description
    client.coordinator()
    assert isinstance(client.discharge(client.declare(2), 3), Accepted)  # they are no messages
    client.send(message(b"x" * limit, section=0x75), 4, settled=True)
    assert client.detached().condition == "amqp:link:message-size-exceeded"


@pytest.mark.parametrize("settle", [0, 1])
def test_a_message_larger_than_a_receiver_accepts_becomes_a_dead_letter(world: World, settle: int) -> None:
    client = filled(world, "x" * 5_000, "small", "y" * 6_000, "z")
    client.receiver(credit=0, settle=settle, most=1_000)
    client.grant(3)
    assert client.messages() == ["small", "z"]
    if not settle:
        client.settle(Accepted(), 0, 1)
    assert (queue(world).depth, queue(world).in_flight, queue(world).counts.dead_lettered) == (0, 0, 2)
    client.send(message("more"), 10)
    client.send(message("none"), 11)
    assert client.messages() == ["more"]  # the link has its credit still
    other = Amqp(world)
    other.receiver("DLQ.q")
    dead = [other.receive() for _ in range(2)]
    assert [len(each.body) for each in dead] == [5_000, 6_000]
    assert dead[0].properties["JMS_SieveMQ_DeadLetterReason"] == "rejected"


def test_a_drain_goes_on_behind_a_message_that_is_too_large(world: World) -> None:
    client = filled(world, *["x" * 5_000] * 3, "small")
    client.receiver(credit=0, most=1_000)
    client.grant(2, drain=True)
    assert client.messages() == ["small"]
    assert client.one(Flow, lambda each: each.drain).delivery_count == 2
    assert queue(world).counts.dead_lettered == 3


@pytest.mark.parametrize("end", [Detach(handle=3, closed=True), Detach(handle=3), End(), Close()])
def test_a_dead_letter_that_is_too_large_stays_with_its_link(world: World, end: Detach | End | Close) -> None:
    """Its client never had it, so it goes back unmarked."""
    sender = Amqp(world)
    sender.sender("DLQ.q")
    for number, body in enumerate(["x" * 5_000, "small", "y" * 5_000]):
        sender.send(message(body), number)
    client = Amqp(world)
    client.receiver("DLQ.q", handle=3, credit=5, most=1_000)
    assert client.messages() == ["small"]
    assert queue(world, "DLQ.q").in_flight == 3
    client.settle(Accepted(), 0)
    client.say(end)
    client.one(type(end))
    assert (queue(world, "DLQ.q").depth, queue(world, "DLQ.q").in_flight) == (2, 0)
    other = Amqp(world)
    other.receiver("DLQ.q")
    letters = [other.receive() for _ in range(2)]
    assert [letter.header.delivery_count for letter in letters] == [0, 0]
    assert [letter.body[0] for letter in letters] == ["x", "y"]


def test_a_browser_passes_over_what_is_too_large(world: World) -> None:
    client = filled(world, "x" * 5_000, "small", "y" * 5_000)
    client.receiver(credit=3, most=1_000, distribution_mode="copy")
    assert client.messages() == ["small"]
    assert queue(world).depth == 3


def test_a_sender_waits_while_its_destination_is_full() -> None:
    world = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_messages=1, at_limit="block"))))
    client = Amqp(world)
    client.sender()
    client.send(message("a"), 0)
    client.outcome(0)
    client.send(message("b"), 1)
    client.send(message("c"), 2)
    assert not client.broker.full  # its other links go on
    taker = Amqp(world)
    taker.receiver(credit=3)
    got = []
    for _ in range(3):
        delivery = taker.receive()
        got.append(delivery.body)
        taker.settle(Accepted(), delivery.id)
        client.rest()
        taker.rest()
    assert got == ["a", "b", "c"]
    assert isinstance(client.outcome(2), Accepted)


@pytest.mark.parametrize("settled", [False, True])
def test_sends_that_came_together_wait_for_room_in_order(settled: bool) -> None:
    world = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_messages=2, at_limit="block"))))
    client = Amqp(world)
    client.sender()
    transfers = [
        frame_of(Transfer(handle=0, delivery_id=n, delivery_tag=b"%d" % n, settled=settled), 0, message(f"m{n}"))
        for n in range(250)
    ]
    client.feed(b"".join(transfers) + frame_of(Detach(handle=0, closed=True)))
    assert not client.all(Detach)
    taker = Amqp(world)
    taker.receiver(credit=1_000)
    got = []
    while len(got) < 250:
        delivery = taker.receive()
        got.append(delivery.body)
        taker.settle(Accepted(), delivery.id)
        client.rest()
        taker.rest()
    assert got == [f"m{n}" for n in range(250)]
    assert client.all(Detach) == [Detach(handle=0, closed=True)]
    accepted = [n for each in client.all(Disposition) for n in range(each.first, (each.last or each.first) + 1)]
    assert accepted == ([] if settled else list(range(250)))


def test_sends_behind_one_that_waits_count_as_memory() -> None:
    world = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_messages=1, at_limit="block"))))
    client = Amqp(world)
    client.sender()
    client.feed(
        b"".join(
            frame_of(Transfer(handle=0, delivery_id=n, delivery_tag=b"t", settled=True), 0, message("x" * 1_000))
            for n in range(4)
        )
    )
    assert client.broker.unpublished >= 2_000
    taker = Amqp(world)
    taker.receiver(credit=4)
    for _ in range(4):
        taker.settle(Accepted(), taker.receive().id)
        client.rest()
        taker.rest()
    assert client.broker.unpublished == 0
    assert not client.broker.full


def test_sends_that_came_together_go_on_when_there_is_time(world: World) -> None:
    client = Amqp(world)
    client.sender()
    client.sender("other", handle=2)
    world.services.spent = lambda: True
    transfers = [
        frame_of(Transfer(handle=n % 2 * 2, delivery_id=n, delivery_tag=b"t", settled=True), 0, message(f"m{n}"))
        for n in range(10)
    ]
    client.broker.receive_data(b"".join(transfers) + b"\0\0\0\1\0\0\0\0", world.now)
    turns = 0
    while client.broker.behind:
        turns += 1
        client.broker.catch_up(world.now)
    assert turns >= 9
    assert (queue(world).depth, queue(world, "other").depth) == (5, 5)
    client.rest()
    assert client.error().condition == "amqp:decode-error"


def test_what_came_before_a_wrong_frame_is_carried_out(world: World) -> None:
    client = filled(world, "a")
    client.receiver(credit=1)
    delivery = client.receive()
    client.feed(
        frame_of(Disposition(role=True, first=delivery.id, settled=True, state=Accepted()))
        + frame_of(Transfer(handle=0, delivery_id=1, delivery_tag=b"t"), 0, message("b"))
        + b"\0\0\0\1\0\0\0\0"
    )
    assert isinstance(client.outcome(1), Accepted)
    assert client.error().condition == "amqp:decode-error"
    assert (queue(world).depth, queue(world).in_flight) == (1, 0)


def test_a_late_reply_is_rejected(world: World) -> None:
    client = Amqp(world)
    client.sender(None)
    client.send(message("a", standard=Properties(to="temporary-queue:gone.1")), 0)
    assert client.outcome(0).error.condition == "amqp:not-found"
    client.send(message("b", standard=Properties(to="q")), 1)
    assert isinstance(client.outcome(1), Accepted)
    assert world.services.replies_dropped == 0


def test_an_anonymous_relay_sends_where_each_message_says(world: World) -> None:
    client = Amqp(world)
    client.sender(None)
    client.send(message("a", standard=Properties(to="q")), 0)
    assert isinstance(client.outcome(0), Accepted)
    client.send(message("b", standard=Properties(to="prices"), annotations={"x-opt-jms-dest": 1}), 1)
    assert isinstance(client.outcome(1), Accepted)
    client.send(message("c"), 2)
    error = client.outcome(2).error
    assert (error.condition, error.info) == ("amqp:not-found", {"delivery-tag": b"t2"})
    assert queue(world).depth == 1
    assert "topic:prices" in world.broker.namespaces["default"].destinations


@pytest.mark.parametrize(
    ("address", "capabilities", "there"),
    [
        ("q", None, "queue:q"), ("q", ["queue"], "queue:q"), ("q", ["topic"], "topic:q"), ("topic:q", None, "topic:q"),
        ("topic://q", None, "topic:q"), ("queue://q", ["topic"], "queue:q"), ("queue:q", ["topic"], "queue:q"),
        ("urn:x", ["topic"], "topic:urn:x"),
    ],
)  # fmt: skip
def test_each_address_names_its_destination(
    world: World, address: str, capabilities: list[str] | None, there: str
) -> None:
    Amqp(world).sender(address, capabilities=capabilities)
    assert list(world.broker.namespaces["default"].destinations) == [there]


@pytest.mark.parametrize(
    "address", ["a,b", "prices.>", "orders?consumer.prefetchSize=1", "/queue/orders", "topic://p.*"]
)
def test_an_address_as_other_brokers_write_it_is_refused_unless_it_is_there(world: World, address: str) -> None:
    client = Amqp(world)
    assert client.sender(address).target is None
    refused = client.detached()
    assert (refused.condition, "create it first" in refused.description) == ("amqp:not-found", True)
    assert client.receiver(address, 2).source is None
    assert client.detached().condition == "amqp:not-found"
    client.sender(None, 3)
    client.send(message("a", standard=Properties(to=address)), 0, handle=3)
    assert client.outcome(0).error.condition == "amqp:not-found"
    assert not world.broker.namespaces["default"].destinations
    world.broker.namespaces["default"].create(address.replace("//", ""))
    client.receiver(address, 4)
    client.send(message("b", standard=Properties(to=address)), 1, handle=3)
    assert isinstance(client.outcome(1), Accepted)
    assert client.messages() == ["b"]


@pytest.mark.parametrize("address", ["", " q", b"q", "x" * 10_000])
def test_a_target_that_names_nothing_is_refused(world: World, address: Any) -> None:
    client = Amqp(world)
    answer = client.sender(address)
    assert answer.target is None
    assert client.detached().condition in ("amqp:not-found", "amqp:invalid-field")
    assert not client.closed


# -- consumers --------------------------------------------------------------------------------------------------------


def test_no_more_than_there_is_credit_for(world: World) -> None:
    client = filled(world, "a", "b", "c", "d")
    client.receiver(credit=2)
    assert client.messages() == ["a", "b"]
    client.grant(1, count=2)
    assert client.messages() == ["c"]
    client.grant(1, count=2)  # what the client counts is behind: that one is on its way
    assert client.messages() == []
    client.grant(0, count=3)
    client.grant(2, count=3)
    assert client.messages() == ["d"]


def test_withdrawn_credit_cannot_be_used(world: World) -> None:
    client = Amqp(world)
    client.receiver(credit=10)
    client.grant(0)
    sender = filled(world, "a")
    client.rest()
    assert client.messages() == []
    client.grant(1)
    assert client.messages() == ["a"]
    assert not sender.closed


def test_drain_uses_up_what_is_left_of_the_credit(world: World) -> None:
    client = filled(world, "a", "b")
    client.receiver(credit=0)
    client.grant(10, drain=True)
    assert client.messages() == ["a", "b"]
    flow = client.one(Flow, lambda each: each.handle == 1)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (10, 0, True)
    filled(world, "c")
    client.rest()
    assert client.messages() == []
    client.grant(1, count=10)
    assert client.messages() == ["c"]


def test_drain_ends_where_another_holds_what_there_is(world: World) -> None:
    """The other cannot give it back: AMQP has no word for that."""
    holder, client = filled(world, "a"), Amqp(world)
    holder.receiver()
    assert holder.messages() == ["a"]
    client.receiver(credit=0)
    client.grant(10, drain=True)
    holder.rest()
    client.rest()
    flow = client.one(Flow, lambda each: each.handle == 1)
    assert (flow.delivery_count, flow.link_credit) == (10, 0)
    assert client.messages() == []


def test_a_window_that_is_shut_holds_transfers_back(world: World) -> None:
    client = filled(world, "a", "b", "c")
    client.begin(1, window=2)
    client.say(Attach(name="w", handle=5, role=True, source=_source(), target=Target()), channel=1)
    flow = Flow(incoming_window=2, next_outgoing_id=0, outgoing_window=1, handle=5, delivery_count=0, link_credit=9)
    client.say(flow, channel=1)
    assert client.messages() == ["a", "b"]
    client.say(Flow(next_incoming_id=2, incoming_window=1, next_outgoing_id=0, outgoing_window=1), channel=1)
    assert client.messages() == ["c"]


def _source(address: str = "q") -> Any:
    return Source(address=address)


@pytest.mark.parametrize(
    ("state", "left", "again"),
    [
        (Accepted(), 0, None),
        (None, 0, None),
        (Released(), 1, 0),
        (Modified(), 1, 0),
        (Modified(delivery_failed=True), 1, 1),
        (Rejected(), 0, None),
        (Modified(delivery_failed=True, undeliverable_here=True), 0, None),
    ],
)
def test_each_outcome_settles_the_delivery(world: World, state: Any, left: int, again: int | None) -> None:
    client = filled(world, "a")
    client.receiver(credit=1)
    delivery = client.receive()
    assert delivery.header.delivery_count == 0
    client.settle(state, delivery.id)
    assert queue(world).depth == left
    if again is not None:
        client.grant(1, count=1)
        assert client.receive().header.delivery_count == again
    dead = world.broker.namespaces["default"].destinations.get("queue:DLQ.q")
    assert (dead is not None) is (state is not None and left == 0 and not isinstance(state, Accepted))


def test_a_message_that_a_link_releases_again_and_again_is_not_delivered_in_a_loop(world: World) -> None:
    client = filled(world, "a")
    client.receiver(credit=10)
    for number in range(2):
        client.settle(Released(), client.receive().id)
        assert len(queue(world).scheduled) == number
    for _ in range(3):
        world.later(HELD_BACK_MS - 1)
        assert queue(world).depth == 0
        world.later(1)
        delivery = client.receive()
        assert delivery.header.delivery_count == 0
        client.settle(Released(), delivery.id)
        assert len(queue(world).scheduled) == 1
    other = Amqp(world)
    other.receiver(credit=10)
    world.later(HELD_BACK_MS)
    client.rest()
    other.rest()
    assert [*client.messages(), *other.messages()][-1:] == ["a"]  # to any consumer


@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize("state", [Rejected(), Modified(delivery_failed=True, undeliverable_here=True)])
def test_a_message_that_comes_back_expired_has_expired(state: Any, dead_letters: bool) -> None:
    """Qpid JMS settles what has expired in its buffer as modified with undeliverable-here."""
    policy = DestinationPolicy(dead_letter_expired=dead_letters, redelivery_delay=1_000)
    world = World(broker=Broker(DomainSettings(default_policy=policy)))
    client = Amqp(world)
    client.sender()
    client.send(message("short", header=Header(ttl=800)), 0)
    client.send(message("long", header=Header(ttl=80_000)), 1)
    client.receiver()
    deliveries = [client.receive() for _ in range(2)]
    world.later(1_000)
    for each in deliveries:
        client.settle(state, each.id)
    assert (queue(world).depth, queue(world).counts.expired, queue(world).counts.dead_lettered) == (
        0,
        1,
        1 + dead_letters,
    )
    client.receiver("DLQ.q", handle=5)
    reasons = [(each.body, each.properties["JMS_SieveMQ_DeadLetterReason"]) for each in (client.receive(),)]
    if dead_letters:
        assert reasons == [("short", "expired")]
        assert client.receive().properties["JMS_SieveMQ_DeadLetterReason"] == "rejected"
    else:
        assert reasons == [("long", "rejected")]


@pytest.mark.parametrize("handle", [1, 255, 256, 2**32 - 1])
def test_deliveries_on_a_link_with_any_handle(world: World, handle: int) -> None:
    client = Amqp(world, max_frame_size=512)
    client.sender()
    client.send(message("a"), 0)
    client.send(message("b" * 3_000), 1)
    client.receiver(handle=handle)
    deliveries = [client.receive() for _ in range(2)]
    assert [(each.handle, each.id, each.body) for each in deliveries] == [(handle, 0, "a"), (handle, 1, "b" * 3_000)]
    client.settle(Accepted(), 0, 1)
    assert (queue(world).depth, queue(world).in_flight) == (0, 0)


def test_several_deliveries_are_settled_at_once_and_answered(world: World) -> None:
    client = filled(world, "a", "b", "c")
    client.receiver()
    first, _, last = (client.receive() for _ in range(3))
    client.settle(Accepted(), first.id, last.id, settled=False)
    answer = client.one(Disposition, lambda each: not each.role)
    assert (answer.first, answer.last, answer.settled) == (first.id, last.id, True)
    assert (queue(world).depth, queue(world).in_flight) == (0, 0)
    client.settle(Released(), 0, 2**31 - 1)  # nothing of it is left
    assert not client.closed


def test_a_disposition_that_ends_before_its_beginning_settles_nothing(world: World) -> None:
    client = filled(world, "a", "b", "c")
    client.receiver()
    assert [client.receive().id for _ in range(3)] == [0, 1, 2]
    client.settle(Accepted(), 1, 0)
    assert client.error().condition == "amqp:not-allowed"
    assert queue(world).depth == 3


def test_credit_above_what_a_consumer_may_have_is_used_in_full(world: World) -> None:
    client, sender = Amqp(world), Amqp(world)
    sender.sender()
    client.begin(3, window=2**31 - 1)
    client.say(Attach(name="r", handle=5, role=True, source=Source(address="q"), target=Target()), channel=3)
    flow = Flow(
        next_incoming_id=0, incoming_window=2**31 - 1, next_outgoing_id=0, outgoing_window=9, handle=5,
        delivery_count=0, link_credit=MAX_CREDIT + 4_000,
    )  # fmt: skip
    client.say(flow, channel=3)
    came = 0
    for number in range(MAX_CREDIT + 5_000):
        sender.send(message("x"), number, settled=True)
        if number % 1_000 == 999:
            client.rest()
            deliveries = client.all(Transfer)
            came += len(deliveries)
            for each in deliveries:
                client.say(Disposition(role=True, first=each.delivery_id, settled=True, state=Accepted()), channel=3)
    assert came == MAX_CREDIT + 4_000
    assert queue(world).depth == 1_000


def test_a_drain_uses_credit_above_what_a_consumer_may_have(world: World) -> None:
    client, sender = Amqp(world), Amqp(world)
    sender.sender()
    for number in range(MAX_CREDIT + 2_000):
        sender.send(message("x"), number, settled=True)
    client.begin(3, window=2**31 - 1)
    client.say(
        Attach(name="r", handle=5, role=True, snd_settle_mode=1, source=Source(address="q"), target=Target()),
        channel=3,
    )
    flow = Flow(
        next_incoming_id=0, incoming_window=2**31 - 1, next_outgoing_id=0, outgoing_window=9, handle=5,
        delivery_count=0, link_credit=100_000, drain=True,
    )  # fmt: skip
    client.say(flow, channel=3)
    client.rest()
    assert len(client.all(Transfer)) == MAX_CREDIT + 2_000
    assert client.one(Flow, lambda each: each.drain).delivery_count == 100_000


@pytest.mark.parametrize("credit", [0, 1, 1_000])
def test_a_drain_takes_all_there_is_credit_for_however_little_is_written_at_once(credit: int) -> None:
    world = World(SessionSettings(outbox_high=2_000))
    client = filled(world, *["x" * 300] * 50)
    client.receiver(credit=0)
    client.grant(credit, drain=True)
    assert len(client.all(Transfer)) == min(50, credit)
    assert client.one(Flow, lambda each: each.drain).delivery_count == credit


def test_a_coordinator_reads_the_body_behind_other_sections(world: World) -> None:
    client = Amqp(world)
    client.coordinator()
    declare = message(described(Declare()), header=Header(), standard=Properties())
    client.send(declare, 0, 9)
    name = client.outcome(0).txn_id
    client.send(message("what"), 1, 9)
    assert "a coordinator takes declare and discharge, not 'what'" in client.outcome(1).error.description
    client.send(message(described(Discharge(txn_id=name)), header=Header()), 2, 9)
    assert isinstance(client.outcome(2), Accepted)


def test_a_settled_send_that_is_refused_dooms_its_transaction(world: World) -> None:
    client = Amqp(world)
    client.coordinator()
    client.sender(target=Target())  # an anonymous relay
    name = client.declare(0)
    to = Properties(to="q")
    client.send(message("good", standard=to), 1, state=client.within(name), settled=True)
    client.send(message("without an address"), 2, state=client.within(name), settled=True)
    assert "needs a `to`" in client.discharge(name, 3).error.description
    client.send(message("good", standard=to), 4, settled=True)
    assert queue(world).depth == 1
    client.send(message("without an address"), 5, settled=True)
    assert "needs a `to`" in client.detached().description


@pytest.mark.parametrize(
    ("default", "state", "returned"),
    [
        (None, None, False), (Accepted(), None, False), (Released(), None, True), (Modified(), None, True),
        (None, Received(section_number=0, section_offset=0), True),
        (Accepted(), Received(section_number=0, section_offset=0), False),
    ],
)  # fmt: skip
def test_a_delivery_that_is_settled_without_an_outcome_has_the_default(
    world: World, default: Any, state: Any, returned: bool
) -> None:
    client = filled(world, "a")
    client.receiver(credit=1, default_outcome=default)
    client.settle(state, client.receive().id)
    assert (queue(world).depth, queue(world).in_flight) == (int(returned), 0)


def test_a_default_outcome_that_is_none_is_refused(world: World) -> None:
    client = Amqp(world)
    assert client.receiver(default_outcome="lost").source is None
    assert "the default outcome 'lost' is none of" in client.detached().description


def test_credit_follows_the_count_of_the_sender(world: World) -> None:
    client = Amqp(world)
    attach = Attach(
        name="s", handle=0, role=False, source=Source(), target=Target(address="q"), initial_delivery_count=5_000
    )
    client.say(attach)
    flow = client.one(Flow)
    assert (flow.delivery_count, flow.link_credit) == (5_000, CREDIT)
    client.send(message("a"), 0)
    for number in range(1, CREDIT // 2):
        client.send(b"", number, more=True)
        client.send(b"", number, aborted=True)
    flow = client.one(Flow)
    assert (flow.delivery_count, flow.link_credit) == (5_000 + CREDIT // 2, CREDIT)
    used = Flow(
        next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0,
        delivery_count=5_000 + CREDIT, link_credit=CREDIT // 2,
    )  # fmt: skip
    client.say(used)
    flow = client.one(Flow)
    assert (flow.delivery_count, flow.link_credit) == (5_000 + CREDIT, CREDIT)
    assert queue(world).depth == 1


@pytest.mark.parametrize("most", [2**31 - 1, 2**31, 2**32 - 1])
def test_the_largest_credit_and_window(world: World, most: int) -> None:
    client = filled(world, "a", "b")
    client.begin(3, window=most)
    client.say(Attach(name="r", handle=5, role=True, source=Source(address="q"), target=Target()), channel=3)
    flow = Flow(
        next_incoming_id=0, incoming_window=most, next_outgoing_id=0, outgoing_window=9, handle=5, delivery_count=0,
        link_credit=most,
    )  # fmt: skip
    client.say(flow, channel=3)
    assert client.messages() == ["a", "b"]


def test_a_capability_of_any_length_is_repeated(world: World) -> None:
    client = Amqp(world)
    capability = Symbol("c" * 300)
    assert client.receiver(capabilities=[capability]).source.capabilities == [capability]


@pytest.mark.parametrize(
    ("number", "other", "distance"), [(5, 3, 2), (3, 5, -2), (1, 2**32 - 1, 2), (2**32 - 1, 1, -2)]
)
def test_serial_numbers_wrap(number: int, other: int, distance: int) -> None:
    assert ahead(number, other) == distance


def test_credit_is_granted_beyond_the_last_serial_number(world: World) -> None:
    client = filled(world, "a", "b")
    client.receiver(credit=0)
    (link,) = client.broker.outbox.consumers.values()
    link.delivery_count = 2**32 - 1  # deliveries later
    client.grant(1, count=2**32 - 1)
    assert client.receive().body == "a"
    client.grant(1, count=0)
    assert client.receive().body == "b"


def test_acknowledgements_that_came_together_are_carried_out_together(world: World) -> None:
    client = filled(world, "a", "b", "c", "d")
    client.receiver()
    deliveries = [client.receive() for _ in range(4)]
    settled = [
        frame_of(Disposition(role=True, first=each.id, settled=each.body != "b", state=state))
        for each, state in zip(deliveries, [Accepted(), Accepted(), Released(), Accepted()], strict=True)
    ]
    client.feed(b"".join(settled))
    answer = client.one(Disposition, lambda each: not each.role)
    assert (answer.first, answer.last, answer.settled) == (deliveries[1].id, deliveries[1].id, True)
    assert client.receive().body == "c"
    assert (queue(world).depth, queue(world).in_flight) == (0, 1)


def test_deliveries_that_are_settled_when_they_are_sent(world: World) -> None:
    client = filled(world, "a", "b")
    client.receiver(settle=1)
    assert [client.receive().settled for _ in range(2)] == [True, True]
    client.rest()
    assert (queue(world).depth, queue(world).in_flight) == (0, 0)


def test_unsettled_messages_return_with_their_link(world: World) -> None:
    client = filled(world, "a", "b")
    client.receiver()
    client.messages()
    client.say(Detach(handle=1, closed=True))
    assert client.one(Detach).closed
    client.receiver(handle=2)
    deliveries = [client.receive() for _ in range(2)]
    assert [(each.body, each.header.delivery_count) for each in deliveries] == [("a", 1), ("b", 1)]


def test_unsettled_messages_return_with_their_session(world: World) -> None:
    client = filled(world, "a")
    client.begin(1)
    client.say(Attach(name="w", handle=5, role=True, source=_source(), target=Target()), channel=1)
    flow = Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=1, handle=5, delivery_count=0, link_credit=9)
    client.say(flow, channel=1)
    assert client.messages() == ["a"]
    client.say(End(), channel=1)
    client.one(End)
    client.receiver()
    again = client.receive()
    assert (again.body, again.header.delivery_count) == ("a", 1)


def test_a_selector_decides_and_is_repeated(world: World) -> None:
    client = filled(world, "a", "b", "c")
    answer = client.receiver(filter=selector("n > 0"))
    assert answer.source.filter == selector("n > 0")
    assert client.messages() == ["b", "c"]


@pytest.mark.parametrize("descriptor", [Symbol("amqp:sql-filter"), ULong(0x120)])
def test_a_filter_in_sql_decides_and_is_repeated(world: World, descriptor: object) -> None:
    client = filled(world, "a", "b", "c")
    sql = {Symbol("sql"): Described(descriptor, "a.n >= 1 AND p.subject IS NULL AND h.priority != 9")}
    assert client.receiver(filter=sql).source.filter == sql
    assert client.messages() == ["b", "c"]


def test_a_filter_in_sql_names_a_property_with_a_hyphen(world: World) -> None:
    client = Amqp(world)
    client.sender("queue:a")
    for number, trace in enumerate(["x", "y", "x"]):
        client.send(message(str(number), {"trace-id": trace, "a.b": number}), number)
    client.receiver(
        "queue:a", filter={Symbol("sql"): Described(Symbol("amqp:sql-filter"), '"trace-id" = \'x\' AND a."a.b" > 0')}
    )
    assert client.messages() == ["2"]


def test_a_browser_with_a_filter_in_sql(world: World) -> None:
    client = filled(world, "a", "b", "c")
    sql = {Symbol("sql"): Described(Symbol("amqp:sql-filter"), "a.n != 1")}
    client.receiver(distribution_mode="copy", filter=sql)
    assert client.messages() == ["a", "c"]


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"sql": Described(Symbol("amqp:sql-filter"), "p.to = 'q'")}, "cannot read 'to' of the section 'p'"),
        ({"sql": Described(Symbol("amqp:sql-filter"), 7)}, "must be a string"),
        ({"sql": Described(Symbol("amqp:sql-filter"), "n = 1"), **selector("n = 1")}, "one selector or SQL filter"),
    ],
)
def test_a_filter_in_sql_that_cannot_be_used_is_refused(world: World, filters: dict[Any, Any], said: str) -> None:
    client = Amqp(world)
    client.receiver(filter={Symbol(name): value for name, value in filters.items()})
    refused = client.detached()
    assert refused.condition == "amqp:invalid-field"
    assert said in refused.description


def test_a_filter_that_is_not_known_is_left_out_of_the_answer(world: World) -> None:
    assert Amqp(world).receiver(filter={"what": "ever"}).source.filter is None


def test_a_bad_selector_refuses_the_link_and_shows_where(world: World) -> None:
    client = Amqp(world)
    answer = client.receiver(filter=selector("n > > 0"))
    assert answer.source is None
    error = client.detached()
    assert error.condition == "amqp:invalid-field"
    assert "\n  n > > 0\n      ^" in error.description
    assert not client.closed


def test_no_local_on_a_topic(world: World) -> None:
    client = Amqp(world)
    client.receiver("topic:t", filter={"no-local": None})
    client.sender("topic:t")
    client.send(message("mine"), 0)
    other = Amqp(world)
    other.sender("topic:t")
    other.send(message("theirs"), 0)
    client.rest()
    assert client.messages() == ["theirs"]


def test_a_deleted_destination_detaches_its_links(world: World) -> None:
    client = Amqp(world)
    client.receiver()
    world.broker.namespaces["default"].delete("queue:q")
    client.rest()
    assert client.detached().condition == "amqp:resource-deleted"


def test_unsettled_messages_return_from_a_link_that_the_broker_has_detached(world: World) -> None:
    client = filled(world, "a", "b", "c")
    client.coordinator()
    client.receiver(credit=2)
    name = client.declare(10)
    first, _ = client.receive(), client.receive()
    client.settle(client.within(name, Accepted()), first.id)
    queue(world).consumers[0].expel(ErrorCode.CLOSED_BY_ADMINISTRATOR, "closed by an administrator", world.now)
    client.rest()
    assert client.detached().description == "closed by an administrator"
    assert (queue(world).depth, queue(world).in_flight) == (2, 1)
    assert isinstance(client.discharge(name, 11), Accepted)
    assert (queue(world).depth, queue(world).in_flight) == (2, 0)
    assert not client.broker.peer.deliveries.consumers
    client.receiver(handle=2)
    assert client.messages() == ["b", "c"]


def test_a_temporary_queue_belongs_to_its_connection(world: World) -> None:
    client = Amqp(world)
    answer = client.receiver(None, dynamic=True)
    address = answer.source.address
    assert address.startswith("temporary-queue:")
    other = Amqp(world)
    other.sender(address)
    other.send(message("reply"), 0)
    client.rest()
    assert client.messages() == ["reply"]
    client.lose()
    world.broker.scheduler.finish(world.now, client.broker.peer.member.id)
    assert address not in world.broker.namespaces["default"].destinations
    made = Amqp(world).sender(target=Target(dynamic=True, capabilities=["temporary-topic"]))
    assert made.target.address.startswith("temporary-topic:")


@pytest.mark.parametrize(("name", "value"), [("lifetime-policy", UInt(7)), ("supported-dist-modes", ULong(0))])
@pytest.mark.parametrize("role", [True, False])
def test_a_dynamic_node_has_no_property_of_a_wrong_type(world: World, role: bool, name: str, value: object) -> None:
    client = Amqp(world)
    wanted = {Symbol(name): value}
    if role:
        attached = client.receiver(None, dynamic=True, dynamic_node_properties=wanted)
        assert attached.source is None
    else:
        attached = client.sender(handle=1, target=Target(dynamic=True, dynamic_node_properties=wanted))
        assert attached.target is None
    detach = client.one(Detach)
    assert (detach.error.condition, name in detach.error.description) == ("amqp:invalid-field", True)


# -- subscriptions, browsers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [True, False])
def test_a_dynamic_node_ends_with_its_link(world: World, role: bool) -> None:
    client, other = Amqp(world), Amqp(world)
    attached = client.receiver(None, dynamic=True) if role else client.sender(handle=1, target=Target(dynamic=True))
    address = (attached.source if role else attached.target).address
    other.sender(address)
    if not role:
        client.receiver(address, handle=2)
    client.say(Detach(handle=1, closed=True))
    client.one(Detach)
    other.send(message("x"), 0)
    if role:
        assert other.outcome(0).error.condition == "amqp:not-found"
    else:  # it is used
        assert isinstance(other.outcome(0), Accepted)
    client.lose()
    other.send(message("x"), 1)
    assert other.outcome(1).error.condition == "amqp:not-found"


def test_a_link_to_one_temporary_destination_too_many_is_refused() -> None:
    client = Amqp(World(settings=SessionSettings(max_temporaries=1)))
    assert client.receiver(None, handle=1, dynamic=True).source is not None
    assert client.receiver(None, handle=2, dynamic=True).source is None
    assert client.detached().condition == "amqp:resource-limit-exceeded"
    assert not client.closed


def test_a_durable_subscription_is_kept_found_and_ended(world: World) -> None:
    sole = {"container": "me", "desired_capabilities": ["sole-connection-for-container"]}
    client = Amqp(world, **sole)
    client.receiver("topic:t", name="sub", durable=2, expiry_policy="never")
    client.say(Detach(handle=1))
    assert not client.one(Detach).closed
    other = Amqp(world)
    other.sender("topic:t")
    other.send(message("kept"), 0)
    client.receiver("topic:t", handle=2, name="sub", durable=2, expiry_policy="never")
    assert client.messages() == ["kept"]
    client.say(Detach(handle=2, closed=True))
    client.one(Detach)
    client.receiver("topic:t", handle=3, name="sub", durable=2, expiry_policy="never")
    assert client.messages() == []
    client.say(Detach(handle=3))
    client.one(Detach)
    client.say(Attach(name="sub", handle=4, role=True, target=Target()))
    assert client.one(Attach, lambda each: each.handle == 4).source is not None
    client.say(Detach(handle=4, closed=True))
    assert client.one(Detach).error is None
    client.say(Attach(name="none", handle=4, role=True, target=Target()))
    client.say(Detach(handle=4, closed=True))
    assert client.one(Detach).error.condition == "amqp:not-found"


def test_a_durable_subscription_without_a_client_id_is_refused(world: World) -> None:
    client = Amqp(world)
    assert client.receiver("topic:t", name="sub", durable=2).source is None
    assert "container-id" in client.detached().description


def test_shared_subscriptions_share_by_the_name_before_the_bar(world: World) -> None:
    client, other = Amqp(world), Amqp(world)
    for each, name in ((client, "sub|global"), (other, "sub|2")):
        assert each.receiver("topic:t", name=name, capabilities=["shared", "global"]).source is not None
    sender = Amqp(world)
    sender.sender("topic:t")
    for number in range(4):
        sender.send(message(str(number)), number)
    client.rest()
    other.rest()
    both = client.messages(), other.messages()
    assert sorted(both[0] + both[1]) == ["0", "1", "2", "3"]
    assert all(both)


def test_a_browser_reads_all_and_takes_nothing(world: World) -> None:
    client = filled(world, *(str(n) for n in range(250)))
    client.receiver(credit=0, distribution_mode="copy", filter=selector("n >= 100"))
    client.grant(100)
    assert client.messages() == [str(n) for n in range(100, 200)]
    client.grant(100, count=100, drain=True)
    assert client.messages() == [str(n) for n in range(200, 250)]
    flow = client.one(Flow, lambda each: each.handle == 1)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (200, 0, True)
    client.say(Detach(handle=1, closed=True))
    client.one(Detach)
    assert (queue(world).depth, queue(world).in_flight) == (250, 0)


def test_a_browser_with_a_bad_selector_is_refused(world: World) -> None:
    client = Amqp(world)
    assert client.receiver(distribution_mode="copy", filter=selector("=")).source is None
    assert client.detached().condition == "amqp:invalid-field"


# -- transactions -----------------------------------------------------------------------------------------------------


def test_sends_of_a_transaction_become_visible_at_its_discharge(world: World) -> None:
    client = Amqp(world)
    client.coordinator()
    client.sender()
    name = client.declare(0)
    client.send(message("a"), 1, state=client.within(name))
    state = client.outcome(1)
    assert isinstance(state, TransactionalState)
    assert (state.txn_id, state.outcome) == (name, Accepted())
    assert queue(world).depth == 0
    assert isinstance(client.discharge(name, 2), Accepted)
    assert queue(world).depth == 1
    name = client.declare(3)
    client.send(message("b"), 4, state=client.within(name))
    assert isinstance(client.discharge(name, 5, fail=True), Accepted)
    assert queue(world).depth == 1


@pytest.mark.parametrize("fail", [False, True])
def test_deliveries_are_settled_with_their_transaction(world: World, fail: bool) -> None:
    client = filled(world, "a", "b")
    client.coordinator()
    client.receiver()
    name = client.declare(10)
    first, _ = client.receive(), client.receive()
    client.settle(client.within(name, Accepted()), first.id)
    assert queue(world).in_flight == 2
    client.discharge(name, 11, fail=fail)
    assert queue(world).in_flight == (2 if fail else 1)
    if fail:
        again = client.receive()
        assert (again.body, again.header.delivery_count) == ("a", 1)


def test_a_transaction_that_cannot_be_committed_is_rolled_back() -> None:
    world = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_messages=1, at_limit="fail"))))
    client = filled(world, "there")
    client.coordinator()
    name = client.declare(1)
    client.send(message("a"), 2, state=client.within(name))
    client.outcome(2)
    state = client.discharge(name, 3)
    assert isinstance(state, Rejected)
    assert state.error.condition in ("amqp:transaction:rollback", "amqp:resource-limit-exceeded")
    assert queue(world).depth == 1
    assert not client.closed


def test_a_transaction_that_there_is_not(world: World) -> None:
    client = filled(world, "a")
    client.coordinator()
    assert client.discharge(b"what", 1).error.condition == "amqp:transaction:unknown-id"
    client.send(message("b"), 2, state=client.within(b"what"))
    assert client.outcome(2).error.condition == "amqp:transaction:unknown-id"
    client.receiver(credit=1)
    client.begin(3)
    client.settle(client.within(b"what", Accepted()), client.receive().id)
    assert client.one(End).error.condition == "amqp:transaction:unknown-id"
    assert (queue(world).depth, queue(world).in_flight) == (1, 0)
    client.say(End())
    client.begin(0)
    client.say(Detach(handle=0), channel=3)
    assert client.one(End).error.condition == "amqp:session:unattached-handle"
    client.receiver(credit=1)
    assert client.receive().body == "a"


def test_a_connection_that_is_lost_drops_its_transactions(world: World) -> None:
    client = filled(world, "a")
    client.coordinator()
    client.receiver()
    name = client.declare(10)
    client.settle(client.within(name, Accepted()), client.receive().id)
    client.send(message("b"), 11, state=client.within(name))
    client.lose()
    other = Amqp(world)
    other.receiver()
    other.rest()
    assert other.messages() == ["a"]


def test_a_delivery_of_a_transaction_stays_with_it_when_its_link_is_detached(world: World) -> None:
    client = filled(world, "a", "b", "c")
    client.coordinator()
    client.receiver(credit=2)
    name = client.declare(10)
    first, _ = client.receive(), client.receive()
    client.settle(client.within(name, Accepted()), first.id)
    client.say(Detach(handle=1, closed=True))
    client.one(Detach)
    other = Amqp(world)
    other.receiver()
    other.rest()
    assert other.messages() == ["b", "c"]
    assert isinstance(client.discharge(name, 11), Accepted)
    other.rest()
    assert other.messages() == []
    assert queue(world).in_flight == 2


@pytest.mark.parametrize("outcome", [Accepted(), Rejected(), Released(), Modified(delivery_failed=True)])
@pytest.mark.parametrize("fail", [False, True])
def test_a_detached_link_is_forgotten_with_its_last_transaction(world: World, outcome: Any, fail: bool) -> None:
    client = filled(world, "a", "b")
    client.coordinator()
    client.receiver()
    names = [client.declare(10), client.declare(11)]
    for name in names:
        client.settle(client.within(name, outcome), client.receive().id)
    client.say(Detach(handle=1, closed=True))
    assert client.broker.peer.deliveries.consumers
    for number, name in enumerate(names, 12):
        client.discharge(name, number, fail=fail)
    assert not client.broker.peer.deliveries.consumers
    assert queue(world).in_flight == 0
    back = fail or isinstance(outcome, (Released, Modified))
    assert queue(world).depth == (2 if back else 0)


def test_a_transaction_ends_with_the_link_that_declared_it(world: World) -> None:
    client = filled(world, "a")
    client.coordinator()
    client.receiver(credit=1)
    name = client.declare(10)
    client.settle(client.within(name, Accepted()), client.receive().id)
    client.send(message("b"), 11, state=client.within(name))
    client.say(Detach(handle=9, closed=True))
    client.one(Detach)
    assert (queue(world).depth, queue(world).in_flight) == (1, 0)
    client.coordinator()
    assert client.discharge(name, 12).error.condition == "amqp:transaction:unknown-id"
    client.grant(1, count=1)
    again = client.receive()
    assert (again.body, again.header.delivery_count) == ("a", 1)


def test_a_transaction_ends_with_the_session_that_declared_it(world: World) -> None:
    client = filled(world, "a")
    client.receiver(credit=1)
    client.coordinator()
    name = client.declare(10)
    client.settle(client.within(name, Accepted()), client.receive().id)
    client.say(End())
    client.one(End)
    assert (queue(world).depth, queue(world).in_flight) == (1, 0)
    assert len(client.broker.peer.sessions) == 0


def test_a_transaction_that_lost_deliveries_with_their_session_is_rolled_back(world: World) -> None:
    client = filled(world, "a")
    client.coordinator()
    client.begin(1)
    client.say(Attach(name="r", handle=5, role=True, source=Source(address="q"), target=Target()), channel=1)
    flow = Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=5, delivery_count=0, link_credit=9)
    client.say(flow, channel=1)
    name = client.declare(10)
    delivery = client.receive()
    client.say(Disposition(role=True, first=delivery.id, state=client.within(name, Accepted())), channel=1)
    client.send(message("b"), 11, state=client.within(name))
    client.say(End(), channel=1)
    assert queue(world).depth == 1
    assert client.discharge(name, 12).error.condition == "amqp:transaction:rollback"
    assert queue(world).depth == 1
    assert not client.closed


@pytest.mark.parametrize("end", [Detach(handle=1, closed=True), End(), Close()])
def test_what_was_sent_settled_does_not_return_with_its_link(world: World, end: Any) -> None:
    client = Amqp(world)
    client.receiver(settle=1)
    other = filled(world, "a")
    client.broker.receive_data(frame_of(end, 0), world.now)  # before the message is written
    client.rest()
    assert client.messages() == ["a"]
    other.receiver()
    assert other.messages() == []
    assert queue(world).depth == 0


# -- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "channel"),
    [
        (Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1), 5),
        (Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), 0),
        (Open(container_id="again"), 0),
    ],
)
def test_a_performative_that_is_not_allowed_ends_the_connection(world: World, wrong: Any, channel: int) -> None:
    client = Amqp(world)
    client.receiver()
    client.say(wrong, channel=channel)
    assert client.error().condition == "amqp:not-allowed"
    assert client.closed


_FLOW = Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1, handle=7)
_TRANSFER = Transfer(handle=7, delivery_id=9, delivery_tag=b"t", message_format=0)
_ATTACH = Attach(name="x", handle=1, role=True, source=_source(), target=Target())


@pytest.mark.parametrize(
    ("wrong", "condition"),
    [
        (_FLOW, "amqp:session:unattached-handle"),
        (_TRANSFER, "amqp:session:unattached-handle"),
        (Detach(handle=7, closed=True), "amqp:session:unattached-handle"),
        (_ATTACH, "amqp:session:handle-in-use"),
        (Transfer(handle=1, delivery_id=9, delivery_tag=b"t"), "amqp:not-allowed"),
    ],
)
def test_a_wrong_handle_ends_its_session_alone(world: World, wrong: Any, condition: str) -> None:
    client = filled(world, "a", "b")
    client.receiver(credit=1)
    assert client.receive().body == "a"
    client.begin(2)
    client.say(wrong)
    assert client.one(End).error.condition == condition
    assert (queue(world).depth, queue(world).in_flight) == (2, 0)
    client.send(message("ignored"), 3)
    client.say(Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1, handle=8))
    client.say(End())
    client.begin(0)
    client.receiver(credit=2)
    assert client.messages() == ["a", "b"]
    client.say(Attach(name="s", handle=0, role=False, source=_source(), target=Target(address="q")), channel=2)
    client.say(_TRANSFER.having(handle=0, delivery_id=0), message("c"), channel=2)
    assert client.one(Disposition).state == Accepted()


def test_a_channel_is_free_again_when_the_client_has_ended_its_session(world: World) -> None:
    client = Amqp(world)
    client.say(Detach(handle=7))
    assert client.one(End).error is not None
    client.begin(0)
    assert client.error().condition == "amqp:not-allowed"


def test_frames_for_a_link_that_the_broker_has_detached_are_ignored(world: World) -> None:
    client = filled(world, "a")
    client.receiver("nothing here", credit=0, filter=selector("a >"))
    assert client.detached().condition == "amqp:invalid-field"
    client.grant(1)
    client.say(Transfer(handle=1, delivery_id=9, delivery_tag=b"t"), message())
    client.say(Detach(handle=1, closed=True))
    client.send(message("b"), 10)
    assert isinstance(client.outcome(10), Accepted)
    client.say(Detach(handle=1, closed=True))  # that was answered
    assert client.one(End).error.condition == "amqp:session:unattached-handle"


@pytest.mark.parametrize(
    ("transfers", "text"),
    [
        ([{"delivery_tag": b"t"}], "needs a delivery-id"),
        ([{"delivery_id": 1}], "needs a delivery-tag"),
        ([{"delivery_id": 1, "delivery_tag": b"t", "rcv_settle_mode": 1}], "rcv-settle-mode second"),
        ([{"delivery_id": 0, "delivery_tag": b"t"}], "the delivery-id 0 was used"),
        ([{"delivery_id": 1, "delivery_tag": b"t", "more": True}, {"delivery_id": 2}], "the delivery-id 2 amid"),
        (
            [{"delivery_id": 1, "delivery_tag": b"t", "more": True}, {"delivery_tag": b"u"}],
            "the delivery-tag b'u' amid",
        ),
        ([{"delivery_id": 1, "delivery_tag": b"t", "more": True}, {"message_format": 1}], "the message-format 1 amid"),
    ],
)
def test_a_transfer_against_the_text_detaches_its_link(
    world: World, transfers: list[dict[str, Any]], text: str
) -> None:
    client = filled(world, "a")
    for each in transfers:
        client.say(Transfer(handle=0, **each), message("b"))
    error = client.detached()
    assert error.condition == "amqp:invalid-field"
    assert text in error.description
    assert client.broker.unpublished == 0
    client.send(message("c"), 7)  # it may be on its way
    client.say(Detach(handle=0, closed=True))
    client.sender()
    client.send(message("d"), 8)
    assert isinstance(client.outcome(8), Accepted)
    assert queue(world).depth == 2


def test_a_delivery_without_a_payload_is_refused(world: World) -> None:
    client = filled(world, "a")
    client.send(b"", 1)
    assert "without a payload" in client.outcome(1).error.description
    client.send(message("b"), 2, more=True)
    client.say(Transfer(handle=0, delivery_id=2))  # its last transfer may be empty
    assert isinstance(client.outcome(2), Accepted)
    client.send(b"", 3, settled=True)
    assert "without a payload" in client.detached().description


def test_a_source_that_knows_no_rejection_has_its_link_detached(world: World) -> None:
    client = Amqp(world)
    source = Source(outcomes=["amqp:accepted:list"])
    client.say(Attach(name="s", handle=0, role=False, source=source, target=Target()))
    client.one(Attach)
    client.send(message("x"), 0)
    assert client.detached().condition == "amqp:not-found"
    client.say(Attach(name="t", handle=9, role=False, source=source, target=Coordinator()))
    client.one(Attach)
    client.send(message(described(Discharge(txn_id=b"what"))), 1, 9)
    assert client.detached().condition == "amqp:transaction:unknown-id"
    assert client.all(Disposition) == []
    full = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_messages=1, at_limit="fail"))))
    client = Amqp(full)
    client.say(Attach(name="s", handle=0, role=False, source=source, target=Target(address="q")))
    client.send(message("a"), 0)
    client.send(message("b"), 1)
    assert client.detached().condition == "amqp:resource-limit-exceeded"
    assert isinstance(client.outcome(0), Accepted)


def test_a_settled_send_without_the_right_detaches_its_link(world: World) -> None:
    client = Amqp(world)
    client.broker.peer.entitle(Identity("ann", Rights([Grant(frozenset({Verb.SEND}), "queue:mine")])))
    client.sender(None)
    client.send(message("a", standard=Properties(to="yours")), 0, settled=True)
    error = client.detached()
    assert (error.condition, error.info) == ("amqp:unauthorized-access", {"delivery-tag": b"t0"})
    client.sender(None, handle=2)
    client.send(message("a", standard=Properties(to="mine")), 1, handle=2)
    assert isinstance(client.outcome(1), Accepted)


@pytest.mark.parametrize(
    "array",
    [
        "e00002 54 01ff", "e00002 52 0102", "e00001 74 0000000a", "e00002 45", "e00002 c0 020141 03024040",
        "e00001 c1 0502a1016140", "e00002 e0 03015401 03015402", "e00002 00a3016d a3 0161 0162", "e00002 41",
        "e00000 40",
    ],
)  # fmt: skip
def test_an_array_of_any_type_in_a_terminus_comes_back_as_it_was(world: World, array: str) -> None:
    data = bytes.fromhex(array)
    data = data[:1] + bytes((len(data) - 2,)) + data[2:]
    client = Amqp(world)
    properties = {Symbol("p"): Array([], 0, data)}
    answer = client.receiver(None, dynamic=True, dynamic_node_properties=properties)
    assert answer.source.dynamic_node_properties["p"].data == data
    answer = client.sender(target=Target(dynamic=True, dynamic_node_properties=properties))
    assert answer.target.dynamic_node_properties["p"].data == data


@pytest.mark.parametrize(
    "data",
    [
        frame_of(Open(container_id="c"), 5),
        frame_of(Open(container_id="c", max_frame_size=511)),
        frame_of(Open(container_id="c"))
        + frame_of(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), 10_000),
    ],
)
def test_what_open_has_agreed_on_is_kept(world: World, data: bytes) -> None:
    client = Amqp(world, connect=False)
    client.feed(AMQP_HEADER + data)
    client.one(Open)
    assert client.error().condition == "amqp:connection:framing-error"


def test_links_are_bounded() -> None:
    client = Amqp(World(settings=SessionSettings(max_consumers=2)))
    client.sender()
    client.receiver()
    client.say(Attach(name="x", handle=2, role=False, source=_source(), target=Target(address="q")))
    assert client.error().condition == "amqp:resource-limit-exceeded"


def test_sessions_are_bounded() -> None:
    client = Amqp(World(settings=SessionSettings(max_sessions=3)))
    assert client.one(Open).channel_max == 2
    for channel in range(1, 4):
        client.begin(channel)
    assert client.error().condition == "amqp:connection:framing-error"


@pytest.mark.parametrize("rule", [1_000, 3_600_000])
def test_a_rule_for_the_time_to_live_overrides_both_of_the_sender(rule: int) -> None:
    policy = DestinationPolicy(time_to_live=rule)
    world = World(broker=Broker(DomainSettings(default_policy=policy)))
    client = Amqp(world)
    client.sender()
    given = Properties(absolute_expiry_time=world.now + 60_000, message_id="ID:1")
    client.send(message("a", header=Header(ttl=600_000), standard=given), 0)
    client.receiver()
    delivery = client.receive()
    assert delivery.header.ttl == rule
    assert delivery.standard == given.having(absolute_expiry_time=world.now + rule)


def test_an_expiring_message_says_how_long_it_lives(world: World) -> None:
    client = Amqp(world)
    client.sender()
    client.send(message("a", header=Header(durable=True, priority=7, ttl=5_000)), 0)
    world.later(2_000)
    client.receiver()
    header = client.receive().header
    assert (header.durable, header.priority, header.ttl) == (True, 7, 3_000)
