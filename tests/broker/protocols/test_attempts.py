"""Dead letters of AMQP and STOMP clients: exactly the messages that were in work `max_attempts` times (D-40).

A client handles some messages, has the next one in work, and ends: in order, or not. A model counts attempts.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from sievemq_core.errors import ErrorCode
from sievemq_core.message.dead_letters import ATTEMPTS, ERROR, FAILED_BY_CONSUMER
from sievemq_core.message.envelope import MESSAGE_ID

from ..session.harness import World, envelope
from .amqp import Amqp, message
from .stomp import Stomp

MOST = 3


def made(**policy: Any) -> World:
    return World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_attempts=MOST, **policy))))


def names(world: World, address: str = "queue:q") -> list[str]:
    return [str(entry.envelope.fields[MESSAGE_ID]) for entry in world.queue(address).main.waits(-1, 999)]


def fill(world: World, count: int) -> list[str]:
    client = world.client()
    session = client.session()
    for number in range(count):
        client.queue_send(session, envelope("x", mid=f"m{number}"), "queue:q")
    client.exchange()
    return [f"m{number}" for number in range(count)]


class StompWorker:
    """A STOMP client that settles each message."""

    ends = ("UNSUBSCRIBE", "DISCONNECT", "cut")

    def __init__(self, world: World, prefetch: int) -> None:
        self.client = Stomp(world)
        self.client.say(
            "SUBSCRIBE", id="1", destination="/queue/q", ack="client-individual", **{"prefetch-count": str(prefetch)}
        )

    def next(self) -> tuple[str, str] | None:
        """Name and handle of the next message."""
        for at, each in enumerate(self.client.frames):
            if each.command == "MESSAGE":
                del self.client.frames[at]
                return each.headers["message-id"], each.headers["ack"]
        return None

    def handled(self, handle: str) -> None:
        self.client.say("ACK", id=handle)

    def failed(self, handle: str) -> None:
        self.client.say("NACK", id=handle)

    def end(self, how: str) -> None:
        if how == "cut":
            self.client.lose()
        else:
            self.client.say(how, id="1")
            if how == "UNSUBSCRIBE":
                self.client.say("DISCONNECT")


class AmqpWorker:
    """An AMQP client that settles each delivery."""

    ends = ("detach", "end", "close", "cut")

    def __init__(self, world: World, prefetch: int) -> None:
        self.client = Amqp(world)
        self.credit = prefetch
        self.client.receiver("queue:q", credit=prefetch)

    def next(self) -> tuple[str, int] | None:
        if not any(isinstance(frame.body, Transfer) for frame in self.client.frames):
            return None
        delivery = self.client.receive()
        return str(delivery.standard.message_id), delivery.id

    def handled(self, handle: int) -> None:
        self.client.settle(Accepted(), handle)
        self._grant(handle)

    def failed(self, handle: int) -> None:
        self.client.settle(Modified(delivery_failed=True), handle)
        self._grant(handle)

    def _grant(self, handle: int) -> None:
        self.client.grant(self.credit, count=handle + 1)

    def end(self, how: str) -> None:
        match how:
            case "detach":
                self.client.say(Detach(handle=1, closed=True))
            case "end":
                self.client.say(End())
            case "close":
                self.client.say(Close())
        self.client.broker.lost(self.client.world.now)


@pytest.mark.parametrize("prefetch", [1, 10, 100])
@pytest.mark.parametrize("kind", [StompWorker, AmqpWorker])
@pytest.mark.parametrize("seed", range(4))
def test_dead_letters_were_in_work_as_often_as_the_limit_says(kind: Any, prefetch: int, seed: int) -> None:
    chance, world = random.Random(seed), made()
    sent = fill(world, 12)
    attempts = dict.fromkeys(sent, 0)
    handled: list[str] = []
    for _ in range(100):
        worker = kind(world, prefetch)
        for _ in range(chance.randint(0, 2)):
            if (taken := worker.next()) is not None:
                handled.append(taken[0])
                worker.handled(taken[1])
        if (working := worker.next()) is not None:
            attempts[working[0]] += 1
            if chance.random() < 0.2:
                worker.failed(working[1])
                if chance.random() < 0.5:  # it leaves with that
                    worker.end(chance.choice([how for how in worker.ends if how != "cut"]))
                    continue
                if (other := worker.next()) is not None:
                    attempts[other[0]] += 1
                    worker.end("cut")
                    continue
        elif not worker.client.frames:
            worker.end("cut")
            if not names(world):
                break
            continue
        worker.end(chance.choice(worker.ends))
    assert names(world) == []
    dead = names(world, "queue:DLQ.q")
    assert sorted(dead) == sorted(name for name, count in attempts.items() if count == MOST)
    assert sorted(handled + dead) == sorted(sent)
    letters = world.queue("queue:DLQ.q").main.waits(-1, 99)
    assert {entry.envelope.properties[ATTEMPTS] for entry in letters} <= {MOST}


@pytest.mark.parametrize("kind", [StompWorker, AmqpWorker])
@pytest.mark.parametrize("how", ["failed", "cut"])
def test_a_dead_letter_names_the_client_that_failed_it(kind: Any, how: str) -> None:
    world = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_attempts=1))))
    fill(world, 1)
    worker = kind(world, 1)
    peer = worker.client.broker.peer
    [number] = peer.deliveries.consumers
    taken = worker.next()
    assert taken is not None
    if how == "failed":
        worker.failed(taken[1])
    worker.end("cut")
    [letter] = world.queue("queue:DLQ.q").main.waits(-1, 9)
    assert letter.envelope.properties[FAILED_BY_CONSUMER] == f"{peer.member.id}.{number}"
    reason = "the connection of its client was lost" if how == "cut" else None
    assert letter.envelope.properties.get(ERROR) == reason


@pytest.mark.parametrize("kind", [StompWorker, AmqpWorker])
@pytest.mark.parametrize("prefetch", [1, 10, 100])
def test_handling_one_message_a_session_buries_none(kind: Any, prefetch: int) -> None:
    world = made()
    sent = fill(world, 30)
    handled = []
    for turn in range(30):
        worker = kind(world, prefetch)
        taken = worker.next()
        assert taken is not None
        handled.append(taken[0])
        worker.handled(taken[1])
        worker.end(worker.ends[turn % len(worker.ends)])
    assert (handled, names(world, "queue:DLQ.q")) == (sent, [])


@pytest.mark.parametrize("how", StompWorker.ends)
def test_an_end_of_stomp_marks_what_was_sent(how: str) -> None:
    world = made()
    fill(world, 3)
    worker = StompWorker(world, 2)
    worker.end(how)
    counts = [(entry.count, entry.attempts) for entry in world.queue().main.waits(-1, 9)]
    assert counts == [(1, 1), (1, 0), (0, 0)]
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
    marks = [(each.headers["redelivered"], each.headers.get("JMSXDeliveryCount")) for each in client.take("MESSAGE")]
    assert marks == [("true", "2"), ("true", "2"), ("false", None)]


@pytest.mark.parametrize("how", AmqpWorker.ends)
def test_an_end_of_amqp_marks_what_was_sent(how: str) -> None:
    world = made()
    fill(world, 3)
    worker = AmqpWorker(world, 2)
    worker.end(how)
    counts = [(entry.count, entry.attempts) for entry in world.queue().main.waits(-1, 9)]
    assert counts == [(1, 1), (1, 0), (0, 0)]
    again = Amqp(world)
    again.receiver("queue:q")
    assert [again.receive().header.delivery_count for _ in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("how", AmqpWorker.ends)
def test_what_a_closed_window_holds_back_is_not_counted(how: str) -> None:
    world = made()
    fill(world, 3)
    client = Amqp(world, connect=False)
    client.connect()
    worker = AmqpWorker.__new__(AmqpWorker)
    worker.client = client
    attach = Attach(name="r", handle=1, role=True, source=Source(address="queue:q"), target=Target())
    client.say(attach)
    client.say(
        Flow(
            next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=1, delivery_count=0,
            link_credit=3,
        )
    )  # fmt: skip
    assert world.queue().in_flight == 3
    worker.end(how)
    counts = [(entry.count, entry.attempts) for entry in world.queue().main.waits(-1, 9)]
    assert counts == [(1, 1), (0, 0), (0, 0)]


def test_a_message_larger_than_the_window_is_never_counted() -> None:
    world = made()
    sender = Amqp(world)
    sender.sender("queue:q")
    sender.send(message("x" * 5_000))
    for how in (*AmqpWorker.ends, *AmqpWorker.ends):
        client = Amqp(world, max_frame_size=512)
        client.begin(1, window=2)
        client.say(Attach(name="r", handle=1, role=True, source=Source(address="queue:q"), target=Target()), channel=1)
        client.say(
            Flow(
                next_incoming_id=0, incoming_window=2, next_outgoing_id=0, outgoing_window=1, handle=1,
                delivery_count=0, link_credit=1,
            ),
            channel=1,
        )  # fmt: skip
        assert world.queue().in_flight == 1
        match how:
            case "detach":
                client.say(Detach(handle=1, closed=True), channel=1)
            case "end":
                client.say(End(), channel=1)
            case "close":
                client.say(Close())
        client.broker.lost(world.now)
    [entry] = world.queue().main.waits(-1, 9)
    assert (entry.count, entry.attempts) == (0, 0)


@pytest.mark.parametrize(("kind", "how"), [(StompWorker, "UNSUBSCRIBE"), (AmqpWorker, "end"), (AmqpWorker, "detach")])
def test_a_client_that_leaves_with_a_failure_has_said_what_was_in_work(kind: Any, how: str) -> None:
    world = made()
    sent = fill(world, 3)
    for _ in range(MOST):
        worker = kind(world, 3)
        taken = worker.next()
        assert taken is not None
        worker.failed(taken[1])
        worker.end(how)
    assert (names(world, "queue:DLQ.q"), names(world)) == (sent[:1], sent[1:])
    assert [(entry.count, entry.attempts) for entry in world.queue().main.waits(-1, 9)] == [(3, 0), (3, 0)]


def test_released_and_bare_modified_are_not_counted() -> None:
    world = made()
    fill(world, 1)
    for state in (Released(), Modified()) * MOST:
        worker = AmqpWorker(world, 1)
        taken = worker.next()
        assert taken is not None
        worker.client.settle(state, taken[1])
        worker.end("close")
    [entry] = world.queue().main.waits(-1, 9)
    assert (entry.count, entry.attempts) == (0, 0)


def test_a_rejected_message_counts_the_attempt_that_rejected_it() -> None:
    world = made()
    fill(world, 1)
    worker = AmqpWorker(world, 1)
    taken = worker.next()
    assert taken is not None
    worker.client.settle(Rejected(), taken[1])
    [entry] = world.queue("queue:DLQ.q").main.waits(-1, 9)
    assert entry.envelope.properties[ATTEMPTS] == 1


def test_the_broker_detaches_a_link_and_marks_what_the_client_has() -> None:
    world = made()
    fill(world, 3)
    worker = AmqpWorker(world, 2)
    [consumer] = world.queue().consumers

    consumer.expel(ErrorCode.CLOSED_BY_ADMINISTRATOR, "closed", world.now)
    worker.client.rest()
    assert worker.client.one(Detach).closed
    counts = [(entry.count, entry.attempts) for entry in world.queue().main.waits(-1, 9)]
    assert counts == [(1, 1), (1, 0), (0, 0)]


@pytest.mark.parametrize("ending", [Detach(handle=1, closed=True), End(), Close()])
def test_what_a_transaction_has_settled_stays_or_returns_marked(ending: Any) -> None:
    world = made()
    fill(world, 3)
    client = Amqp(world)
    client.coordinator()
    name = client.declare(0)
    client.receiver("queue:q", credit=3)
    client.say(Disposition(role=True, first=0, last=0, settled=True, state=client.within(name, Accepted())))
    client.say(ending)
    if isinstance(ending, Detach):
        assert isinstance(client.discharge(name, 1), Accepted)
        assert world.queue().acknowledged == 1
    counts = [(entry.count, entry.attempts) for entry in world.queue().main.waits(-1, 9)]
    assert counts == [(1, 1), (1, 0), (1, 0)][: len(counts)]
    assert len(counts) == (2 if isinstance(ending, Detach) else 3)


def test_stomp_unsubscribe_keeps_what_a_transaction_has_acknowledged() -> None:
    world = made()
    fill(world, 3)
    worker = StompWorker(world, 3)
    client = worker.client
    first = worker.next()
    assert first is not None
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=first[1], transaction="t")
    client.say("UNSUBSCRIBE", id="1")
    assert [(entry.count, entry.attempts) for entry in world.queue().main.waits(-1, 9)] == [(1, 1), (1, 0)]
    client.say("COMMIT", transaction="t")
    assert (world.queue().acknowledged, world.queue().in_flight) == (1, 0)
