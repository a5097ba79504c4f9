"""What the end of a delivery counts for: the table of `settlement`, row by row (D-40)."""

from __future__ import annotations

from functools import partial

import pytest
from tests.broker.at_once import abandon, close, recover, release, settle

from sievemq_broker.domain import Consumer, DestinationPolicy
from sievemq_broker.domain.settlement import COUNTED, Outcome
from sievemq_core.message.dead_letters import ATTEMPTS, FIRST_FAILURE, LAST_FAILURE, REASON
from sievemq_core.message.envelope import MESSAGE_ID

from .support import World

NAMES = ("a", "b", "c")


def end(consumer: Consumer, outcome: Outcome, now: int) -> None:
    """End the deliveries of a consumer that has three messages."""
    match outcome:
        case Outcome.LOST:
            abandon(consumer, now)
        case Outcome.UNSEEN:
            release(consumer, (1, 2, 3), now)
            close(consumer, 0, now)
        case _:
            close(consumer, 3, now)
            settle(consumer, (3, 1, 2), outcome, now)


def counts(world: World) -> dict[str, tuple[int, int]]:
    """Deliveries and attempts of what waits on the queue."""
    entries = world.namespace.queue("queue:q").main.waits(-1, 99)
    return {str(entry.envelope.fields[MESSAGE_ID]): (entry.count, entry.attempts) for entry in entries}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.FAILED, [(1, 1), (1, 1), (1, 1)]),
        (Outcome.LEFT, [(1, 1), (1, 0), (1, 0)]),
        (Outcome.LOST, [(1, 1), (1, 0), (1, 0)]),
        (Outcome.UNSEEN, [(0, 0), (0, 0), (0, 0)]),
    ],
)
def test_each_outcome_counts_as_the_table_states(outcome: Outcome, expected: list[tuple[int, int]]) -> None:
    world = World()
    world.send("queue:q", *NAMES)
    end(world.consumer("queue:q"), outcome, world.now)
    assert counts(world) == dict(zip(NAMES, expected, strict=True))
    deliveries, attempts = COUNTED[outcome]
    assert [(min(1, deliveries), int(at < attempts)) for at in range(3)] == expected


@pytest.mark.parametrize("outcome", [Outcome.LEFT, Outcome.LOST])
def test_only_the_oldest_reaches_the_limit(outcome: Outcome) -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=3)))
    world.send("queue:q", *NAMES)
    for _ in range(3):
        end(world.consumer("queue:q"), outcome, world.now)
    assert world.browse("queue:DLQ.q") == ["a"]
    assert counts(world) == {"b": (3, 0), "c": (3, 0)}


def test_a_message_that_only_waited_in_a_buffer_has_all_its_attempts_left() -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=3)))
    world.send("queue:q", *NAMES)
    for _ in range(3):
        abandon(world.consumer("queue:q"), world.now)
    for attempt in (1, 2):
        consumer = world.consumer("queue:q", credit=1)
        recover(consumer, 1, world.now)
        close(consumer, 0, world.now)
        assert counts(world)["b"] == (3 + attempt, attempt)
    consumer = world.consumer("queue:q", credit=1)
    assert world.counts(consumer) == [("b", 6)]
    recover(consumer, 1, world.now)
    [_, dead] = world.namespace.queue("queue:DLQ.q").main.waits(-1, 9)
    assert (dead.envelope.properties[REASON], dead.envelope.properties[ATTEMPTS]) == ("attempts", 3)


def test_the_first_failure_is_the_first_attempt() -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=2)))
    world.send("queue:q", "a", "b")
    for _ in range(2):
        abandon(world.consumer("queue:q"), world.now)
        world.advance(1_000)
    first = world.now
    for _ in range(2):
        consumer = world.consumer("queue:q")
        recover(consumer, 1, world.now)
        close(consumer, 0, world.now)
        world.advance(1_000)
    [_, dead] = world.namespace.queue("queue:DLQ.q").main.waits(-1, 9)
    assert (dead.envelope.properties[FIRST_FAILURE], dead.envelope.properties[LAST_FAILURE]) == (first, first + 1_000)


def test_a_rejected_message_has_had_the_attempt_that_rejected_it() -> None:
    world = World()
    world.send("queue:q", "a")
    settle(world.consumer("queue:q"), (1,), Outcome.REJECTED, world.now)
    [dead] = world.namespace.queue("queue:DLQ.q").main.waits(-1, 9)
    assert (dead.envelope.properties[REASON], dead.envelope.properties[ATTEMPTS]) == ("rejected", 1)


def test_only_an_attempt_delays_the_redelivery() -> None:
    world = World(("queue:q", DestinationPolicy(redelivery_delay=1_000)))
    world.send("queue:q", *NAMES)
    abandon(world.consumer("queue:q"), world.now)
    assert world.browse("queue:q") == ["b", "c"]
    world.advance(1_000)
    assert world.browse("queue:q") == ["a", "b", "c"]


def test_back_off_follows_attempts_and_not_deliveries() -> None:
    world = World(("queue:q", DestinationPolicy(redelivery_delay=1_000, redelivery_factor=10.0)))
    world.send("queue:q", "a", "b")
    for _ in range(3):  # "b" has three deliveries
        abandon(world.consumer("queue:q"), world.now)
        world.advance(1_000_000)
    consumer = world.consumer("queue:q")
    consumer.acknowledge(1, world.now)
    recover(consumer, 2, world.now)
    consumer.grant(1, world.now)
    world.clear(consumer)
    world.advance(999)
    assert world.counts(consumer) == []
    world.advance(1)
    assert world.counts(consumer) == [("b", 5)]


@pytest.mark.parametrize("outcome", [Outcome.LEFT, Outcome.LOST])
def test_slices_share_one_attempt(outcome: Outcome) -> None:
    world = World()
    names = [f"{number:02}" for number in range(20)]
    world.send("queue:q", *names)
    consumer = world.consumer("queue:q", credit=20)
    tags = tuple(range(20, 0, -1))
    verb = partial(consumer.abandon, None) if outcome is Outcome.LOST else partial(consumer.settle, tags, outcome)
    scheduler = world.broker.scheduler
    scheduler.start("c", verb, world.now, later=True)
    while scheduler.run(world.now, 3):
        pass
    if outcome is not Outcome.LOST:
        close(consumer, 0, world.now)
    assert counts(world) == {name: (1, int(name == "00")) for name in names}
