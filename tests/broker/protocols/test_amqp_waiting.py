"""Sends of AMQP clients that wait for room: they hold up their link, in its order, and nothing else."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import Queue
from sievemq_broker.protocols.amqp.connection import CREDIT
from sievemq_broker.protocols.amqp.frames import frame_of
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Properties,
    Rejected,
    Source,
    Target,
    Transfer,
)
from sievemq_broker.session import SessionSettings

from ..session.harness import World
from .amqp import Amqp, described, message

FULL = DestinationPolicy(max_messages=1, at_limit="block")


def a_world(**settings: Any) -> World:
    """Queues whose names begin with q take one message."""
    return World(SessionSettings(**settings), broker=Broker(DomainSettings(policies=(("queue:q*", FULL),))))


def queue(world: World, name: str = "q") -> Queue:
    found = world.broker.namespaces["default"].destinations[f"queue:{name}"]
    assert isinstance(found, Queue)
    return found


def stalled(world: World, *, settled: bool = False) -> Amqp:
    """A client with a link 0 to the queue q; the deliveries 1 and 2 of it wait."""
    client = Amqp(world)
    client.sender()
    client.feed(
        b"".join(
            frame_of(Transfer(handle=0, delivery_id=n, delivery_tag=b"t", settled=settled), 0, message(f"m{n}"))
            for n in range(3)
        )
    )
    assert queue(world).depth == 1
    return client


def take(client: Amqp, *bodies: str, handle: int = 7) -> None:
    """Receive these, one after the other, on a new link of the same session."""
    client.receiver(handle=handle, credit=len(bodies))
    for body in bodies:
        delivery = client.receive()
        assert delivery.body == body
        client.settle(Accepted(), delivery.id)


def empty(client: Amqp, *bodies: str, address: str = "q") -> None:
    """Receive these on another connection, which makes room for one message of the client after the other."""
    other = Amqp(client.world, container=f"of {address}")
    other.receiver(address, credit=len(bodies))
    for body in bodies:
        delivery = other.receive()
        assert delivery.body == body
        other.settle(Accepted(), delivery.id)
        client.rest()
        other.rest()


def test_other_links_and_sessions_go_on() -> None:
    world = a_world()
    client = stalled(world)
    client.sender("free", handle=2)
    client.send(message("x"), 3, 2)
    assert isinstance(client.outcome(3), Accepted)
    client.begin(4)
    client.say(Attach(name="s", handle=0, role=False, source=Source(), target=Target(address="free")), channel=4)
    client.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), message("y"), channel=4)
    assert isinstance(client.one(Disposition, lambda each: each.first == 0 and each.role).state, Accepted)
    assert queue(world, "free").depth == 2
    assert client.broker.unpublished > 0
    assert not client.broker.full


def test_a_consumer_of_the_same_session_makes_room() -> None:
    world = a_world()
    client = stalled(world)
    take(client, "m0", "m1", "m2")
    assert isinstance(client.outcome(2), Accepted)
    assert client.broker.unpublished == 0


@pytest.mark.parametrize("settled", [False, True])
def test_a_link_that_waits_has_no_credit_and_gets_it_back(settled: bool) -> None:
    world = a_world()
    client = stalled(world, settled=settled)
    flows = client.all(Flow)
    assert [flow.link_credit for flow in flows] == [CREDIT, 0]
    assert flows[1].delivery_count == 3
    client.send(message("m3"), 3, settled=settled)  # that was on its way
    take(client, "m0", "m1", "m2", "m3")
    flow = client.one(Flow)
    assert (flow.handle, flow.link_credit, flow.delivery_count) == (0, CREDIT, 4)


def test_what_follows_on_the_link_waits_in_order() -> None:
    world = a_world()
    client = stalled(world)
    client.say(Flow(incoming_window=9, next_outgoing_id=3, outgoing_window=9, handle=0, delivery_count=3, echo=True))
    client.send(message("m3"), 3, more=True)
    client.say(Transfer(handle=0, aborted=True))
    client.send(message("m4"), 4)
    client.say(Detach(handle=0, closed=True))
    client.say(Attach(name="again", handle=0, role=False, source=Source(), target=Target(address="free")))
    client.send(message("m5"), 5)
    assert client.all(Detach) == []
    client.frames.clear()
    take(client, "m0", "m1", "m2", "m4")
    bodies = [frame.body for frame in client.frames]
    kinds = [type(each) for each in bodies if isinstance(each, (Detach, Attach))]
    assert kinds == [Detach, Attach]
    assert [client.outcome(n) for n in (1, 2, 4, 5)] == [Accepted()] * 4
    assert queue(world, "free").depth == 1
    assert client.broker.unpublished == 0


def again(address: str) -> Attach:
    """A link with the handle of one that its client has just detached."""
    return Attach(name="again", handle=0, role=False, source=Source(), target=Target(address=address))


@pytest.mark.parametrize("detached", [True, False])
def test_a_link_with_the_handle_of_one_that_waited_has_a_wait_of_its_own(detached: bool) -> None:
    world = a_world()
    client = stalled(world)
    if detached:
        client.say(Detach(handle=0, closed=True))
        client.say(again("q2"))
    take(client, "m0", "m1", "m2")
    if not detached:
        client.say(Detach(handle=0, closed=True))
        client.say(again("q2"))
    for number in range(3, 6):
        client.send(message(f"m{number}"), number)
    client.sender("q3", handle=3)
    for number in range(6, 9):
        client.send(message(f"m{number}"), number, 3)
    for address, bodies in (("q2", ("m3", "m4", "m5")), ("q3", ("m6", "m7", "m8"))):
        empty(client, *bodies, address=address)
    assert [client.outcome(number) for number in range(3, 9)] == [Accepted()] * 6
    client.say(End())
    assert client.one(End).error is None
    assert client.broker.unpublished == 0


def test_what_waits_behind_an_attach_waits_for_room_of_that_link() -> None:
    world = a_world()
    client = stalled(world)
    client.say(Detach(handle=0, closed=True))
    client.say(again("q2"))
    for number in range(3, 120):  # more than one batch
        client.send(message(f"m{number}"), number)
    take(client, "m0", "m1", "m2")
    empty(client, *[f"m{number}" for number in range(3, 120)], address="q2")
    client.say(End())
    assert client.one(End).error is None
    assert client.broker.unpublished == 0


def test_the_end_of_a_session_waits_for_its_links() -> None:
    world = a_world()
    client = stalled(world)
    client.begin(1)
    client.say(End())
    client.begin(0)
    client.say(Attach(name="again", handle=5, role=False, source=Source(), target=Target(address="free")))
    assert client.all(End) == []
    client.say(Attach(name="r", handle=7, role=True, source=Source(address="q"), target=Target()), channel=1)
    flow = Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=7, delivery_count=0, link_credit=9)
    client.say(flow, channel=1)
    for n in range(3):
        delivery = client.receive()
        assert delivery.body == f"m{n}"
        client.say(Disposition(role=True, first=delivery.id, settled=True, state=Accepted()), channel=1)
    frames = [type(frame.body) for frame in client.frames if frame.channel == 0]
    assert frames[frames.index(End) - 1] is Disposition
    assert frames[frames.index(End) + 1 :] == [Begin, Attach, Flow]
    assert client.broker.unpublished == 0


def test_the_end_of_a_connection_waits_for_its_links() -> None:
    world = a_world()
    client = stalled(world, settled=True)
    client.say(None)
    client.say(Close())
    assert not client.closed
    empty(client, "m0", "m1", "m2")
    assert client.one(Close).error is None
    assert client.closed


@pytest.mark.parametrize("end", [End, Close])
def test_an_end_waits_for_frames_that_have_to_wait_once_more(end: type[End | Close]) -> None:
    world = a_world()
    client = stalled(world, settled=True)
    for number in range(3, 9):
        client.send(message(f"m{number}"), number, settled=True)
    client.say(end())
    other = Amqp(world, container="other")
    other.receiver(credit=0)
    for number in range(9):
        assert number == 8 or client.all(end) == []
        other.grant(1, count=number)
        delivery = other.receive()
        assert delivery.body == f"m{number}"
        other.settle(Accepted(), delivery.id)
        client.rest()
    assert client.one(end).error is None
    assert client.broker.unpublished == 0


def test_a_connection_that_is_lost_drops_what_waits() -> None:
    world = a_world()
    client = stalled(world)
    client.lose()
    other = Amqp(world)
    take(other, "m0")
    other.rest()
    assert queue(world).depth == 0


def test_a_session_that_ends_by_an_error_drops_what_waits() -> None:
    world = a_world()
    client = stalled(world)
    client.send(message("m3"), 3)
    client.say(Detach(handle=9))
    assert client.one(End).error.condition == "amqp:session:unattached-handle"
    assert client.broker.unpublished == 0
    client.say(End())
    client.begin(0)
    take(client, "m0")
    assert queue(world).depth == 0
    assert client.all(Disposition)[-1].first == 0


@pytest.mark.parametrize("settled", [False, True])
def test_a_send_that_is_refused_after_its_wait(settled: bool) -> None:
    world = World(broker=Broker(DomainSettings(policies=(("queue:q", FULL),), auto_create=False)))
    namespace = world.broker.namespace("default")
    for name in ("queue:q", "queue:free"):
        namespace.create(name)
    client = stalled(world, settled=settled)
    client.send(message("m3"), 3, settled=settled)
    client.say(Detach(handle=0, closed=True))
    client.say(Attach(name="again", handle=0, role=False, source=Source(), target=Target(address="free")))
    client.send(message("m4"), 4)
    namespace.delete("queue:q")
    client.rest()
    detach = client.one(Detach)
    if settled:  # what is behind it is ignored, up to the answer
        assert detach.error.condition == "amqp:not-found"
    else:
        assert detach.error is None
        assert [type(client.outcome(number)) for number in (1, 2, 3)] == [Rejected] * 3
    assert isinstance(client.outcome(4), Accepted)
    assert queue(world, "free").depth == 1
    assert client.broker.unpublished == 0
    assert not client.closed


def test_what_waits_is_bounded() -> None:
    world = a_world(window_bytes=20_000)
    client = stalled(world)
    sent = 3
    while not client.broker.full:
        client.send(message("x" * 1_000), sent)
        sent += 1
    assert 10 < sent < 25
    client.send(message("y"), sent)
    client.say(None)
    other = Amqp(world)
    other.receiver(credit=100)
    got = 0
    while got < sent + 1:
        delivery = other.receive()
        got += 1
        other.settle(Accepted(), delivery.id)
        client.rest()
        other.rest()
    assert delivery.body == "y"
    assert not client.broker.full
    assert client.broker.unpublished == 0


def test_a_commit_that_waits_holds_up_its_link_alone() -> None:
    world = a_world()
    client = Amqp(world)
    client.coordinator()
    client.sender()
    client.send(message("m0"), 0)
    name = client.declare(1)
    client.send(message("m1"), 2, state=client.within(name))
    client.send(message(described(Discharge(txn_id=name))), 3, 9)
    client.send(message(described(Declare())), 4, 9)
    assert client.all(Disposition)[-1].first < 3
    client.sender("free", handle=2)
    client.send(message("x"), 5, 2)
    assert isinstance(client.outcome(5), Accepted)
    client.say(Detach(handle=9, closed=True))
    client.say(End())
    assert client.all(Detach) == []
    assert client.all(End) == []
    empty(client, "m0", "m1")
    assert isinstance(client.outcome(3), Accepted)
    assert isinstance(client.outcome(4), Declared)
    client.one(Detach)
    assert client.one(End).error is None
    assert len(client.broker.peer.sessions) == 0


def test_deliveries_of_a_transaction_stay_while_its_commit_waits() -> None:
    """Neither a detach nor the end of their session gives them back."""
    world = a_world()
    client = Amqp(world)
    client.sender("in", handle=3)
    for n in range(2):
        client.send(message(f"job{n}"), n, 3)
    client.begin(1)
    client.coordinator()
    client.sender(None)
    client.send(message("m0", standard=Properties(to="q")), 2)
    client.say(Attach(name="r", handle=7, role=True, source=Source(address="in"), target=Target()), channel=1)
    flow = Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=7, delivery_count=0, link_credit=1)
    client.say(flow, channel=1)
    name = client.declare(4)
    job = client.receive()
    client.say(Disposition(role=True, first=job.id, settled=True, state=client.within(name, Accepted())), channel=1)
    client.send(message("m1", standard=Properties(to="q")), 5, state=client.within(name))
    client.send(message(described(Discharge(txn_id=name))), 6, 9)
    client.say(Detach(handle=7, closed=True), channel=1)
    client.say(End(), channel=1)
    assert client.all(End) == []
    assert (queue(world, "in").depth, queue(world, "in").in_flight) == (1, 1)
    other = Amqp(world)
    other.receiver(credit=2)
    for _ in range(2):
        other.settle(Accepted(), other.receive().id)
        client.rest()
        other.rest()
    assert isinstance(client.outcome(6), Accepted)
    assert client.one(End).error is None
    assert (queue(world, "in").depth, queue(world, "in").in_flight) == (1, 0)


def test_a_commit_that_waits_is_rolled_back_if_a_session_with_its_deliveries_ends_by_an_error() -> None:
    """Otherwise the deliveries came again although the transaction has settled them."""
    world = a_world()
    client = Amqp(world)
    client.sender("in", handle=3)
    client.send(message("job"), 0, 3)
    client.begin(1)
    client.coordinator()
    client.sender()
    client.send(message("m0"), 1)
    client.say(Attach(name="r", handle=7, role=True, source=Source(address="in"), target=Target()), channel=1)
    flow = Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=7, delivery_count=0, link_credit=1)
    client.say(flow, channel=1)
    name = client.declare(2)
    job = client.receive()
    client.say(Disposition(role=True, first=job.id, settled=True, state=client.within(name, Accepted())), channel=1)
    client.send(message("m1"), 3, state=client.within(name))
    client.send(message(described(Discharge(txn_id=name))), 4, 9)
    client.say(Detach(handle=99), channel=1)
    assert client.one(End).error.condition == "amqp:session:unattached-handle"
    refused = client.outcome(4)
    assert isinstance(refused, Rejected)
    assert refused.error.condition == "amqp:transaction:rollback"
    other = Amqp(world)
    take(other, "m0")
    client.rest()
    assert queue(world).depth == 0
    other.receiver("in", handle=8, credit=1)
    assert other.receive().body == "job"
    assert client.broker.unpublished == 0


def test_a_commit_that_waits_is_rolled_back_if_its_session_ends_by_an_error() -> None:
    world = a_world()
    client = stalled(world)
    client.coordinator()
    name = client.declare(3)
    client.sender(None, handle=2)
    transacted = message("m3", standard=Properties(to="q"))
    client.send(transacted, 4, 2, state=client.within(name))
    client.send(message(described(Discharge(txn_id=name))), 5, 9)
    client.say(Detach(handle=99))
    assert client.one(End).error.condition == "amqp:session:unattached-handle"
    take(Amqp(world, container="other"), "m0")
    client.rest()
    assert queue(world).depth == 0
    client.say(Close())
    assert client.closed


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("more", [True, False])
def test_a_transaction_is_rolled_back_while_a_send_of_it_waits_behind_others(settled: bool, more: bool) -> None:
    """Otherwise it would be committed without that send."""
    world = a_world()
    client = stalled(world)
    client.coordinator()
    name = client.declare(3)
    client.sender("free", handle=2)
    client.send(message("in time"), 4, 2, state=client.within(name))
    client.send(message("x" * 9)[: 5 if more else None], 5, state=client.within(name), settled=settled, more=more)
    if more:
        client.say(Transfer(handle=0), message("x" * 9)[5:])
    refused = client.discharge(name, 6)
    assert isinstance(refused, Rejected)
    assert refused.error.condition == "amqp:transaction:rollback"
    take(client, "m0", "m1", "m2")
    if settled:
        assert client.detached().condition == "amqp:transaction:unknown-id"
    else:
        late = client.outcome(5)
        assert isinstance(late, Rejected)
        assert late.error.condition == "amqp:transaction:unknown-id"
    again = client.declare(7)
    client.send(message("y"), 8, 2, state=client.within(again))
    assert client.discharge(again, 9) == Accepted()
    assert [queue(world, each).depth for each in ("free", "q")] == [1, 0]


def test_a_transaction_is_rolled_back_while_the_end_of_a_send_of_it_waits_behind_others() -> None:
    world = a_world()
    client = Amqp(world)
    client.sender()
    client.coordinator()
    name = client.declare(0)
    payload = message("in two parts")
    begun = Transfer(handle=0, delivery_id=3, delivery_tag=b"t", more=True, state=client.within(name))
    client.feed(
        b"".join(
            [
                *[frame_of(Transfer(handle=0, delivery_id=n, delivery_tag=b"t"), 0, message("x")) for n in (1, 2)],
                frame_of(begun, 0, payload[:5]),
            ]
        )
    )
    client.say(Transfer(handle=0), payload[5:])
    assert isinstance(client.discharge(name, 4), Rejected)


def test_senders_of_links_that_were_detached_are_used_again() -> None:
    world = World(SessionSettings(max_sessions=4))
    client = Amqp(world)
    for n in range(20):
        client.sender(handle=0)
        client.send(message("a"), 2 * n)
        assert isinstance(client.outcome(2 * n), Accepted)
        client.send(b"", 2 * n + 1, settled=True) if n % 2 else None
        client.say(Detach(handle=0, closed=True))
        client.one(Detach)
    for handle in range(4):
        answer = client.sender(handle=handle)
        assert (answer.target is None) == (handle == 3)
    assert client.detached().condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("seed", range(12))
def test_each_link_keeps_its_order_and_loses_nothing(seed: int) -> None:
    """Links of several sessions flood queues of various limits, in large pieces, while consumers take some."""
    random = Random(seed)
    policies = tuple(
        (f"queue:q{n}", DestinationPolicy(max_messages=random.choice((1, 2, 7)), at_limit="block")) for n in range(3)
    )
    world = World(broker=Broker(DomainSettings(policies=policies)))
    client, taker = Amqp(world), Amqp(world)
    client.begin(1)
    links = [(channel, handle) for channel in (0, 1) for handle in range(3)]
    for channel, handle in links:
        target = Target(address=f"q{random.randrange(3)}")
        client.say(Attach(name=f"{channel}.{handle}", handle=handle, role=False, source=Source(), target=target),
                   channel=channel)  # fmt: skip
    for n in range(3):
        taker.receiver(f"q{n}", handle=n, credit=0)
    came = [0, 0, 0]
    sent: dict[tuple[int, int], int] = dict.fromkeys(links, 0)
    ids = {0: 0, 1: 0}
    got: dict[str, list[int]] = {f"{channel}.{handle}": [] for channel, handle in links}

    def consume(most: int) -> None:
        for handle in range(3):
            taker.grant(random.randrange(most), handle, count=came[handle], window=100_000)
        taker.rest()
        while any(isinstance(frame.body, Transfer) for frame in taker.frames):
            delivery = taker.receive()
            came[delivery.handle] += 1
            name, _, number = delivery.body.partition(":")
            got[name].append(int(number))
            taker.settle(Accepted(), delivery.id)
        client.rest()

    for _ in range(12):
        data = b""
        for _ in range(random.randrange(120)):
            channel, handle = link = random.choice(links)
            transfer = Transfer(
                handle=handle, delivery_id=ids[channel], delivery_tag=b"t", settled=random.random() < 0.3,
                message_format=0,
            )  # fmt: skip
            data += frame_of(transfer, channel, message(f"{channel}.{handle}:{sent[link]}"))
            ids[channel] += 1
            sent[link] += 1
        if random.random() < 0.3:
            world.services.spent = lambda: random.random() < 0.5
        client.feed(data)
        for _ in range(random.randrange(4)):
            consume(random.randrange(1, 9))
    world.services.spent = lambda: False
    for channel, handle in links:
        client.say(Detach(handle=handle, closed=True), channel=channel)
    rounds = 0
    while sum(map(len, got.values())) < sum(sent.values()):
        rounds += 1
        assert rounds < 3_000, (got, sent)
        consume(20)
    assert got == {f"{channel}.{handle}": list(range(count)) for (channel, handle), count in sent.items()}
    assert [each.error for each in client.all(Detach)] == [None] * len(links)
    assert client.broker.unpublished == 0
