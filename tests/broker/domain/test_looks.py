"""How long a message is in flight, found by looking at consumers now and then; how much of a limit is in use."""

from __future__ import annotations

import random

import pytest

from sievemq_broker.domain import DestinationPolicy, Queue
from sievemq_broker.domain.looks import Looks
from sievemq_broker.domain.settlement import Outcome

from ..at_once import recover, settle
from .support import World

Q = "queue:q"


def queue_of(world: World) -> Queue:
    queue = world.namespace.declare(Q)
    assert isinstance(queue, Queue)
    return queue


def test_the_oldest_in_flight_has_the_time_of_the_first_look_that_has_seen_it() -> None:
    world = World()
    consumer, queue = world.consumer(Q), queue_of(world)
    world.send(Q, "a")
    assert (consumer.held_since, queue.held_since) == (0, 0)
    consumer.look(1_000)
    assert (consumer.held_since, queue.held_since) == (1_000, 1_000)
    world.send(Q, "b")
    consumer.look(2_000)
    consumer.look(3_000)
    assert (consumer.held_since, consumer.idle_since) == (1_000, 1_000)
    consumer.acknowledge(1, world.now)
    assert consumer.held_since == 2_000
    consumer.look(4_000)
    assert (consumer.held_since, consumer.idle_since) == (2_000, 4_000)
    consumer.acknowledge(2, world.now)
    assert (consumer.held_since, consumer.idle_since, queue.held_since) == (0, 0, 0)
    world.send(Q, "c")
    assert consumer.held_since == 0  # no look has seen it
    consumer.look(5_000)
    assert consumer.held_since == 5_000
    recover(consumer, 0, world.now)
    consumer.look(6_000)
    assert consumer.held_since == 0


def test_the_queue_has_the_time_of_its_oldest() -> None:
    world = World()
    first, second = world.consumer(Q, credit=1), world.consumer(Q, credit=1)
    world.send(Q, "a")
    first.look(1_000)
    world.send(Q, "b")
    second.look(2_000)
    assert queue_of(world).held_since == 1_000
    world.namespace.declare(Q)
    first.acknowledge(1, world.now)
    assert queue_of(world).held_since == 2_000


def test_one_that_settles_out_of_order_is_not_idle() -> None:
    world = World()
    consumer = world.consumer(Q)
    world.send(Q, "a", "b")
    consumer.look(1_000)
    settle(consumer, [2], Outcome.ACKNOWLEDGED, world.now)
    consumer.look(2_000)
    assert (consumer.held_since, consumer.idle_since) == (1_000, 2_000)


def test_a_clock_that_is_set_keeps_the_ages() -> None:
    world = World()
    consumer = world.consumer(Q)
    consumer.clock_jumped(500)
    world.send(Q, "a")
    consumer.look(1_000)
    consumer.clock_jumped(500)
    assert (consumer.held_since, consumer.idle_since) == (1_500, 1_500)


@pytest.mark.parametrize("seed", range(20))
def test_an_age_is_never_too_high_and_few_looks_are_kept(seed: int) -> None:
    choose = random.Random(seed)
    looks, delivered, base = Looks(), [0], 0
    for now in range(1, 400):
        delivered += [now] * choose.randrange(3)
        base = min(len(delivered) - 1, base + choose.randrange(choose.choice([1, 4])))
        if base < len(delivered) - 1:
            looks.note(base, len(delivered) - 1, base, now)
            assert delivered[base + 1] <= looks.held_since(base) <= now
            assert len(looks._seen) <= 16


@pytest.mark.parametrize(
    ("rules", "fill"), [({}, 0.0), ({"max_messages": 4}, 0.5), ({"max_messages": 4, "max_bytes": 100}, 0.5)]
)
def test_how_much_of_the_limit_is_in_use(rules: dict[str, int], fill: float) -> None:
    world = World(("*", DestinationPolicy(**rules)))
    world.send(Q, "a", "b")
    queue = queue_of(world)
    assert queue.fill == max(fill, queue.bytes / 100 if "max_bytes" in rules else 0)
