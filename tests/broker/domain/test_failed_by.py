"""A dead letter tells which client had the message at its last failure, and why it failed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.broker.at_once import abandon, anywhere, done, recover, settle

from sievemq_broker.domain import Consumer, DestinationPolicy, management
from sievemq_broker.domain.failure import Failure, Party
from sievemq_broker.domain.management import Choice
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.work import Budget, Task, finish
from sievemq_core.message import dead_letters as notes

from .support import NOW, Port, World, message

BILLING = Party("c1", "billing", "ann", "10.0.0.7:4711")
BY_BILLING = {
    notes.FAILED_BY_CLIENT_ID: "billing",
    notes.FAILED_BY_USER: "ann",
    notes.FAILED_BY_ADDRESS: "10.0.0.7:4711",
    notes.FAILED_BY_CONSUMER: "c1.1",
}
LOST = "the connection of its client was lost"


@pytest.fixture
def world() -> World:
    return World(("queue:q", DestinationPolicy(max_attempts=1, dead_letter_expired=True)))


def failed_by(world: World) -> dict[str, Any]:
    [(_, letter)] = world.namespace.browse("queue:DLQ.q", None, None, 10, world.now)[1]
    wanted = (notes.FAILED_BY, notes.ERROR)
    return {name: value for name, value in letter.properties.items() if name.startswith(wanted)}


def consumer_of(world: World, party: Party = BILLING) -> Consumer:
    consumer = world.consumer("queue:q")
    cast("Port", consumer.port).party = party
    world.send("queue:q", "a")
    return consumer


def test_a_stated_failure_names_the_client_and_what_it_stated(world: World) -> None:
    consumer = consumer_of(world)
    stated = Failure(text="ValueError: no chair")

    def fail(now: int, budget: Budget) -> Task[int]:
        return consumer.recover(consumer.tag, now, budget, failure=stated)

    finish(fail, world.now)
    assert failed_by(world) == {**BY_BILLING, notes.ERROR: "ValueError: no chair"}


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (Outcome.FAILED, {}),
        (Outcome.REJECTED, {}),
        (Outcome.LEFT, {notes.ERROR: "its client left without settling it"}),
    ],
)
def test_a_settled_failure_names_the_client(world: World, outcome: Outcome, why: dict[str, str]) -> None:
    consumer = consumer_of(world)
    settle(consumer, [1], outcome, world.now)
    assert failed_by(world) == {**BY_BILLING, **why}


def test_a_lost_connection_is_the_reason(world: World) -> None:
    abandon(consumer_of(world), world.now)
    assert failed_by(world) == {**BY_BILLING, notes.ERROR: LOST}


def test_a_client_without_names_is_told_by_its_address_and_consumer(world: World) -> None:
    consumer = consumer_of(world, Party("c1", None, None, "10.0.0.7:4711"))
    recover(consumer, consumer.tag, world.now)
    assert failed_by(world) == {notes.FAILED_BY_ADDRESS: "10.0.0.7:4711", notes.FAILED_BY_CONSUMER: "c1.1"}


def test_nobody_failed_a_message_that_expired(world: World) -> None:
    world.send("queue:q", message("a", expires=NOW + 10))
    world.advance(20)
    assert failed_by(world) == {}


def test_a_retried_message_forgets_who_failed_it(world: World) -> None:
    consumer = consumer_of(world)
    recover(consumer, consumer.tag, world.now)
    assert failed_by(world) == BY_BILLING
    done(world.now, management.retry, world.namespace, anywhere, world.namespace.queue("queue:DLQ.q"), Choice())
    [(_, again)] = world.namespace.browse("queue:q", None, None, 10, world.now)[1]
    assert not again.properties


def test_the_reader_of_a_tap_is_named_by_its_connection(world: World) -> None:
    world.send("queue:q", "a")
    tap = world.namespace.taps.open("t", "archive", "queue:q", "drain", None, {}, world.now, "spark")
    tap.read_by(("c9", 1))
    tap.look(0, 0, 0, world.now)
    world.advance(tap.terms.lease + 1)
    assert failed_by(world) == {
        notes.ERROR: LOST,
        notes.FAILED_BY_USER: "spark",
        notes.FAILED_BY_CONSUMER: "c9",
    }
