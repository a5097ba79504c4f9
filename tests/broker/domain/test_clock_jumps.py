"""The machine's clock is set: times of the calendar go by the new one, lengths of time last as long as they should."""

from __future__ import annotations

import pytest
from tests.broker.at_once import recover

from sievemq_broker.domain import DestinationPolicy
from sievemq_broker.domain.recall import IDLE_MS

from .support import NOW, World, message
from .test_recall import shared_out
from .test_stages import Staging
from .test_tap import Tapped

HOUR = 3_600_000
JUMPS = pytest.mark.parametrize("by", [-HOUR, 24 * HOUR], ids=["an hour back", "a day forward"])


def jump(world: World, by: int) -> None:
    """What the server does when the clock finds that it was set."""
    world.broker.clock_jumped(by)
    world.now += by
    world.advance(0)


@JUMPS
def test_a_redelivery_delay_lasts_as_long_as_it_should(by: int) -> None:
    world = World(("queue:q", DestinationPolicy(redelivery_delay=100)))
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a")
    recover(consumer, 1, world.now)
    consumer.grant(10, world.now)
    world.clear(consumer)
    world.advance(40)
    jump(world, by)
    (entry,) = world.namespace.queue("queue:q").scheduled.values()
    assert entry.due == world.now + 60
    world.advance(59)
    assert world.got(consumer) == []
    world.advance(1)
    assert world.counts(consumer) == [("a", 2)]


def test_a_message_with_a_delayed_redelivery_expires_by_the_calendar() -> None:
    world = World(("queue:q", DestinationPolicy(redelivery_delay=100)))
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", expires=NOW + 1_000), message("b"))
    recover(consumer, 2, world.now)
    jump(world, HOUR)
    queue = world.namespace.queue("queue:q")
    assert (queue.counts.expired, len(queue.scheduled)) == (1, 1)
    jump(world, -HOUR)
    world.advance(100)
    assert world.browse("queue:q") == ["b"]
    world.advance(2 * HOUR)  # its second deadline, by now of nothing
    assert queue.counts.expired == 1


def test_expiry_and_delivery_time_go_by_the_new_time() -> None:
    world = World()
    world.send("queue:q", message("short", expires=NOW + 1_000), message("later", at=NOW + HOUR))
    jump(world, -HOUR)
    world.advance(1_000)
    assert world.browse("queue:q") == ["short"]
    jump(world, 24 * HOUR)
    assert world.browse("queue:q") == ["later"]


@JUMPS
def test_a_lease_of_staged_sends_lasts_as_long_as_it_should(by: int) -> None:
    world = Staging()
    world.stage("s", "a", lease=60_000)
    world.advance(20_000)
    jump(world, by)
    world.advance(39_999)
    assert len(world.namespace.stages) == 1
    world.advance(1)
    assert len(world.namespace.stages) == 0


@JUMPS
@pytest.mark.parametrize("mode", ["copy", "drain"])
def test_a_lease_of_a_tap_lasts_as_long_as_it_should(mode: str, by: int) -> None:
    world = Tapped()
    world.send("queue:q", "a")
    tap = world.tap("queue:q", mode=mode, lease=10_000)
    world.reach(tap)
    world.advance(4_000)
    jump(world, by)
    world.advance(5_999)
    if mode == "drain":
        assert world.depth("queue:q") == 0
        world.advance(1)
        assert world.depth("queue:q") == 1
    else:
        assert tap.open
        world.advance(1)
        assert not tap.open


@JUMPS
def test_a_waiting_consumer_receives_messages_of_an_idle_one(by: int) -> None:
    """It is watched for a moment whether the other one works on it; no jump makes that an hour."""
    world = World()
    busy, waiter = shared_out(world)
    assert waiter.want(world.now, patient=True)
    jump(world, by)
    world.advance(2 * IDLE_MS)
    world.advance(2 * IDLE_MS)
    assert world.port(busy).recalls == [(busy.id, [1, 2])]


def test_many_deadlines_of_both_kinds_fall_due_in_order() -> None:
    world = World(("queue:q", DestinationPolicy(redelivery_delay=500)))
    consumer = world.consumer("queue:q", credit=2)
    world.send("queue:q", "a", "b")
    world.send("queue:q", message("c", at=NOW + 400), message("d", at=NOW + 600))
    recover(consumer, 2, world.now)
    assert world.broker.due(world.now) == NOW + 400
    world.advance(450)
    assert world.broker.due(world.now) == NOW + 500
    world.advance(100)
    assert world.broker.due(world.now) == NOW + 600
    assert world.browse("queue:q") == ["a", "b", "c"]
