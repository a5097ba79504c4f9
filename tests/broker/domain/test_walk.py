"""Walks through a queue, finding by id, and verbs under concurrent change: order, completeness, conservation."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.at_once import close, done, recover

from sievemq_broker.domain import Consumer, DestinationPolicy, management
from sievemq_broker.domain.entry import key_of
from sievemq_broker.domain.management import Choice
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.view import GATHERED, GATHERED_PER_UNIT, PIECE, Walk
from sievemq_broker.domain.work import TURN, Budget

from .support import NOW, World, message, selector

Q = "queue:q"


def build(world: World, plan: list[tuple[str, int]]) -> Queue:
    """A queue with fresh messages of all priorities, some that came back marked, some unmarked, and holes."""
    queue = world.namespace.queue(Q)
    for number, (what, priority) in enumerate(plan):
        if what == "send":
            world.send(Q, message(f"m{number}", priority=priority, properties={"n": number}))
        elif what == "back":  # some go to a consumer and come back, one of them seen
            consumer = world.consumer(Q, credit=1 + priority % 3)
            recover(consumer, 1 if priority % 2 else 0, world.now)
            close(consumer, consumer.tag, world.now)
        elif queue.depth:
            consumer = world.consumer(Q, credit=1)
            consumer.acknowledge(1, world.now)
            close(consumer, 1, world.now)
    return queue


PLANS = st.lists(
    st.tuples(st.sampled_from(["send", "send", "send", "back", "gone"]), st.integers(0, 9)), min_size=1, max_size=40
)


@settings(max_examples=150, deadline=None)
@given(plan=PLANS, limits=st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_a_walk_is_the_order_of_delivery(plan: list[tuple[str, int]], limits: list[int]) -> None:
    queue = build(World(), plan)
    expected = queue.main.waits(-1, 10_000)
    assert len(expected) == queue.depth
    for start in (0, len(expected) // 2):
        walk = Walk(queue.main, key_of(expected[start - 1]) if start else -1)
        for _ in walk.gather(Budget(1)):
            pass
        found: list[Any] = []
        rounds = 0
        while not walk.done:
            taken = walk.take(limits[rounds % len(limits)])
            assert len(taken) <= limits[rounds % len(limits)]
            found += taken
            rounds += 1
            assert rounds <= 2 * len(expected) + 3
        assert found == expected[start:]


@settings(max_examples=60, deadline=None)
@given(plan=PLANS, limit=st.integers(1, 5))
def test_pages_hold_everything_once(plan: list[tuple[str, int]], limit: int) -> None:
    queue = build(World(), plan)
    expected = queue.main.waits(-1, 10_000)
    found: list[Any] = []
    after: int | None = -1
    while after is not None:
        page, after = done(NOW, management.waiting, queue, None, after, limit)
        assert len(page) == limit or after is None
        found += page
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(plan=PLANS, moved=st.integers(0, 40), limit=st.integers(1, 10))
def test_moves_keep_order_and_lose_nothing(plan: list[tuple[str, int]], moved: int, limit: int) -> None:
    world = World()
    queue = build(world, plan)
    chosen = [name for name in world.browse(Q) if int(name[1:]) < moved]
    rest = [name for name in world.browse(Q) if int(name[1:]) >= moved]
    more = True
    touched = 0
    while more:
        outcome = done(
            NOW, management.move, world.namespace, "queue:r", queue, Choice(selector(f"n < {moved}"), limit=limit)
        )
        more = outcome.more
        touched += outcome.touched
    assert touched == len(chosen)
    assert world.browse(Q) == rest
    # There they are fresh: by priority, then in the order in which they came, which was the order of delivery.
    by_priority = sorted(chosen, key=lambda name: -plan[int(name[1:])][1])
    assert world.browse("queue:r") == by_priority


def test_changes_between_two_slices_are_neither_lost_nor_doubled(world: World) -> None:
    """Deliveries, returns, arrivals and removals while a move is at work."""
    world.send(Q, *(message(f"m{n}", priority=n % 3, properties={"n": n}) for n in range(3_000)))
    queue = world.namespace.queue(Q)
    scheduler, choice = world.broker.scheduler, Choice(selector("n >= 0"))
    job = scheduler.start("move", partial(management.move, world.namespace, "queue:r", queue, choice), NOW, later=True)
    consumers: list[Consumer] = []
    turn = 0
    while scheduler.run(NOW) and not job.over:
        turn += 1
        consumer = world.consumer(Q, credit=5)
        consumers.append(consumer)
        world.send(Q, message(f"late{turn}", priority=turn % 10, properties={"n": 9_000}))
        if turn % 3 == 0:
            recover(consumers.pop(0), 2, world.now)
        if turn % 5 == 0:
            victim = consumers.pop()
            victim.acknowledge(victim.tag, world.now)
            close(victim, victim.tag, world.now)
    outcome = job.result
    for consumer in list(queue.consumers):
        recover(consumer, 0, world.now)
        close(consumer, consumer.tag, world.now)
    waits = Counter(world.browse(Q, limit=100_000))
    arrived = Counter(world.browse("queue:r", limit=100_000))
    assert outcome.touched == arrived.total()
    assert max((waits + arrived).values()) == 1
    gone = queue.acknowledged
    assert waits.total() + arrived.total() + gone == queue.enqueued
    assert not any(name.startswith("late") for name in arrived)


def test_found_wherever_it_is(world: World) -> None:
    queue = world.namespace.queue(Q)
    names = [f"ID:x-1:{n}" for n in range(6)]
    world.send(Q, *(message(name) for name in names))
    world.send(Q, message("ID:x-1:later", at=NOW + 5))
    back = world.consumer(Q, credit=2)
    recover(back, 2, world.now)
    close(back, back.tag, world.now)
    world.consumer(Q, credit=1)
    states = {entry.sequence: entry.state for entry in done(NOW, queue.locate, range(1, 9), True)}
    assert len(states) == 7
    by_name = done(NOW, queue.locate, [*names, "ID:x-1:later"], True)
    assert {entry.sequence for entry in by_name} == set(states)
    assert len(done(NOW, queue.locate, range(1, 9), False)) == 6
    assert len(done(NOW, queue.locate, [*names, "ID:x-1:later", 1], False)) == 6
    assert done(NOW, queue.locate, [99, "ID:x-1:nobody"], True) == []


def test_scheduled_ones_are_shown_by_their_time_and_held_ones_by_arrival() -> None:
    world = World(("queue:q", DestinationPolicy()))
    queue = world.namespace.queue(Q)
    world.send(Q, *(message(f"m{n}", at=NOW + 1_000 - n) for n in range(700)))
    found, after = done(NOW, management.scheduled, queue, None, (-1, -1), 600)
    assert after is not None
    rest, end = done(NOW, management.scheduled, queue, None, after, 600)
    times = [entry.envelope.delivery_time for entry in found + rest]
    assert times == [NOW + 301 + n for n in range(700)]
    assert end is None
    world.send(Q, *(message(f"h{n}") for n in range(5)))
    world.consumer(Q, credit=5)
    held, _ = done(NOW, management.held, queue, None, (-1, -1), 10)
    assert [entry.sequence for entry in held] == sorted(entry.sequence for entry in held)


@pytest.mark.parametrize("amid", range(10))
def test_a_page_has_no_message_that_left_while_it_was_gathered(amid: int) -> None:
    world = World((Q, DestinationPolicy()))
    queue = world.namespace.queue(Q)
    world.send(Q, *(message(f"m{n}", at=NOW + 1_000 + n) for n in range(5)))
    gathering = management.scheduled(queue, None, (-1, -1), 10, NOW, Budget(0))
    for _ in range(amid):
        next(gathering)
    queue.remove(next(iter(queue.scheduled.values())))
    with pytest.raises(StopIteration) as end:
        while True:
            gathering.send(NOW if amid else None)  # type: ignore[arg-type]
            amid = amid or 1
    page, _ = end.value.value
    assert [entry.envelope.delivery_time for entry in page] == [NOW + 1_001 + n for n in range(4)]


def test_a_walk_gathers_many_that_came_back_in_pieces(world: World) -> None:
    count = 2 * PIECE + 10
    world.send(Q, *(message(f"m{n}", properties={"n": n % 3}) for n in range(count)))
    consumer = world.consumer(Q, credit=count)
    world.work()
    recover(consumer, count, world.now)
    close(consumer, 0, world.now)
    queue = world.namespace.queue(Q)
    walk = Walk(queue.main, -1)
    assert any(True for _ in walk.gather(Budget(10))), "it rests between two pieces"
    walk, budget = Walk(queue.main, -1), Budget(count)
    assert not list(walk.gather(budget))
    assert budget.left < count - PIECE // GATHERED_PER_UNIT
    found: list[Any] = []
    while not walk.done:
        found += walk.take(1_000)
    assert [entry.sequence for entry in found] == list(range(1, count + 1))
    assert done(NOW, management.purge, queue, Choice(condition=selector("n = 1"))).touched == len(range(1, count, 3))
    assert queue.depth == count - len(range(1, count, 3))


@pytest.mark.parametrize("verb", ["waiting", "purge", "remove"])
def test_many_walks_through_what_came_back_share_a_turn(world: World, verb: str) -> None:
    count, walks = 20_000, 10
    world.send(Q, *(message("m") for _ in range(count)))
    consumer = world.consumer(Q, credit=count)
    world.work()
    recover(consumer, count, world.now)
    close(consumer, 0, world.now)
    queue = world.namespace.queue(Q)
    make: Any = {
        "waiting": partial(management.waiting, queue, None, -1, 5),
        "purge": partial(management.purge, queue, Choice(dry_run=True)),
        "remove": partial(management.remove, queue, Choice(ids=frozenset(["other"]))),
    }[verb]
    jobs = [world.broker.scheduler.start(number, make, NOW, later=True) for number in range(walks)]
    turns = 0
    while not all(job.over for job in jobs):
        world.broker.work(NOW, TURN)
        turns += 1
    assert turns >= walks * count // GATHERED_PER_UNIT // (TURN + GATHERED // GATHERED_PER_UNIT)


def test_entries_removed_between_slices_are_not_removed_twice(world: World) -> None:
    world.send(Q, *(message(f"m{n}") for n in range(3_000)))
    queue = world.namespace.queue(Q)
    scheduler = world.broker.scheduler
    job = scheduler.start("purge", partial(management.purge, queue, Choice()), NOW, later=True)
    consumer = world.consumer(Q, credit=0)
    taken = 0
    while scheduler.run(NOW):
        consumer.grant(1, NOW)
        taken += 1
        consumer.acknowledge(consumer.tag, NOW)
    outcome = job.result
    acknowledged = queue.acknowledged
    assert taken >= 5
    assert outcome.touched + acknowledged == 3_000
    assert (queue.depth, queue.in_flight) == (0, 0)


def test_many_held_messages_of_several_consumers_come_in_pages(world: World) -> None:
    for _ in range(3):
        world.consumer(Q, credit=700)
    world.send(Q, *(message(f"m{n}") for n in range(2_100)))
    queue = world.namespace.queue(Q)
    after: tuple[int, int] | None = (-1, -1)
    found: list[int] = []
    while after is not None:
        page, after = done(NOW, management.held, queue, None, after, 900)
        found += [entry.sequence for entry in page]
    assert found == list(range(1, 2_101))
