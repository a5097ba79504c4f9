"""Rounds: in the turns of the scheduler, and not more often than their cost allows."""

from __future__ import annotations

import pytest

from sievemq_broker.domain.work import TURN, Budget, Scheduler, Task
from sievemq_broker.server.watch.rounds import COST, Round


class World:
    """Rounds over a number of things, of which each takes a unit."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.scheduler = Scheduler()
        self.seconds = 100.0
        self.seen: list[int] = []
        self.round = Round(self.scheduler, self.go_round, lambda: self.seconds)

    def go_round(self, now: int, budget: Budget) -> Task[int]:
        self.seen.append(0)
        for _ in range(self.count):
            if budget.spent:
                yield
            budget.spend(1)
            self.seen[-1] += 1
        return self.count

    def fail(self, now: int, budget: Budget) -> Task[int]:
        yield from self.go_round(now, budget)
        return 1 // 0


def test_a_short_round_is_over_at_once() -> None:
    world = World(10)
    world.round.look()
    assert world.seen == [10]
    assert not world.round.under_way


def test_a_long_round_takes_several_turns_and_is_not_begun_again_meanwhile() -> None:
    world = World(3 * TURN)
    world.round.look()
    world.seconds += 1_000
    world.round.look()
    world.round.soon()
    assert world.seen == [TURN]
    while world.scheduler.run(0):
        assert world.round.under_way
    assert world.seen == [3 * TURN]


@pytest.mark.parametrize("count", [100, 100_000])
def test_rounds_take_a_small_share_of_the_time(count: int) -> None:
    world = World(count)
    took = count * 4e-6
    for _ in range(3):
        world.round.look()
        while world.scheduler.run(0):
            pass
        world.seconds += took / COST - 0.001
        world.round.look()
        assert not world.round.under_way
        world.seconds += 0.002
    assert world.seen == [count] * 3


@pytest.mark.parametrize("count", [0, 2 * TURN])
def test_a_fault_is_reported_and_the_next_round_begins(count: int) -> None:
    world, faults = World(count), list[Exception]()
    world.scheduler.report_to(faults.append)
    world.round = Round(world.scheduler, world.fail, lambda: world.seconds)
    for number in (1, 2):
        try:
            world.round.look()
        except ZeroDivisionError as error:
            faults.append(error)
        while world.scheduler.run(0):
            pass
        assert len(faults) == number
        assert world.seen == [count] * number


def test_a_round_that_is_wanted_soon_begins_in_the_next_turn() -> None:
    world = World(10)
    world.round.look()
    world.round.soon()
    assert world.seen == [10]
    world.scheduler.run(0)
    assert world.seen == [10, 10]
