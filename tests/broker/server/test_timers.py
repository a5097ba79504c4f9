"""One timer for all deadlines. The loop's time is the test's."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.clock import AdjustableClock
from sievemq_broker.config import Settings
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.net.turn import Timers
from sievemq_broker.server.shard import Shard

from .conftest import FakeLoop, StandingClock


class Domain:
    """Answers `due` with what the test says; `pending` slices of work are left."""

    pending = 0

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def due(self, now: int) -> int | None:
        self.asked.append(now)
        return self.answers.pop(0) if self.answers else None

    def work(self, now: int) -> bool:
        self.pending -= self.pending > 0
        return self.pending > 0


def make(domain: Domain, clock: Any) -> tuple[Timers, FakeLoop]:
    loop = FakeLoop()
    return Timers(loop, clock, [domain]), loop  # type: ignore[arg-type]


def test_without_a_deadline_nothing_is_armed(clock: StandingClock) -> None:
    timers, loop = make(Domain(None), clock)
    timers.rearm()
    assert loop.armed() == []


def test_timer_is_armed_for_the_next_deadline_and_rearmed(clock: StandingClock) -> None:
    domain = Domain(1_250, None)
    timers, loop = make(domain, clock)
    timers.rearm()
    assert loop.armed() == [0.25]
    clock.time = 1_250
    loop.fire()
    assert domain.asked == [1_000, 1_250]
    assert loop.armed() == []


def test_the_earliest_deadline_of_several_shards_arms_the_timer(clock: StandingClock) -> None:
    first, second, idle = Domain(1_500, None), Domain(1_250, None), Domain(None)
    loop = FakeLoop()
    timers = Timers(loop, clock, [first, second, idle])  # type: ignore[arg-type]
    timers.rearm()
    assert loop.armed() == [0.25]
    clock.time = 1_250
    idle.pending = 2
    loop.fire()
    assert loop.armed() == [0.0], "one of them has work left"
    loop.fire()
    assert loop.armed() == []
    assert first.asked == second.asked == idle.asked == [1_000, 1_250, 1_250]


def test_later_deadline_leaves_the_timer_and_an_earlier_one_moves_it(clock: StandingClock) -> None:
    timers, loop = make(Domain(1_250, 1_400, 1_100), clock)
    timers.rearm()
    timers.rearm()
    assert loop.armed() == [0.25]
    timers.rearm()
    assert loop.armed() == [0.1]


def test_further_due_work_is_done_in_the_next_turn(clock: StandingClock) -> None:
    domain = Domain(1_000, None)
    timers, loop = make(domain, clock)
    timers.rearm()
    assert len(domain.asked) == 1
    assert loop.armed() == [0.0]
    loop.fire()
    assert len(domain.asked) == 2


def test_pending_work_is_done_in_slices_one_per_turn(clock: StandingClock) -> None:
    domain = Domain(None, 5_000, None)
    domain.pending = 3
    timers, loop = make(domain, clock)
    timers.rearm()
    assert (domain.pending, loop.armed()) == (2, [0.0])
    loop.fire()
    assert (domain.pending, loop.armed()) == (1, [0.0])
    loop.fire()
    assert (domain.pending, loop.armed()) == (0, [])


def test_far_deadline_is_checked_again_within_a_minute(clock: StandingClock) -> None:
    timers, loop = make(Domain(10**12), clock)
    timers.rearm()
    assert loop.armed() == [60.0]


def test_frozen_clock_arms_only_slices_of_due_work() -> None:
    clock = AdjustableClock()
    clock.freeze()
    now = clock.now()
    timers, loop = make(Domain(now + 5, now), clock)
    timers.rearm()
    assert loop.armed() == []
    timers.rearm()
    assert loop.armed() == [0.0]


def test_moved_clock_does_everything_that_is_due_before_it_returns() -> None:
    clock = AdjustableClock()
    clock.freeze()
    now = clock.now()
    domain = Domain(now, now, now + 5, now + 5)
    timers, loop = make(domain, clock)
    domain.pending = 3
    timers.moved()
    assert len(domain.asked) == 4
    assert domain.pending == 0
    assert loop.armed() == []


def test_a_turn_ends_when_a_deadline_has_come_and_when_work_goes_on(clock: StandingClock) -> None:
    """The end of a turn also writes to disk, so it must come although no link has output."""
    domain, ends = Domain(1_100), 0
    timers, loop = make(domain, clock)

    def end() -> None:
        nonlocal ends
        ends += 1
        timers.rearm()

    timers.start(end)
    timers.rearm()
    clock.time = 1_100
    domain.pending = 2
    loop.fire()
    loop.fire()
    assert (ends, loop.armed()) == (2, [])


def test_fault_in_the_domain_is_logged_and_tried_again(clock: StandingClock, caplog: pytest.LogCaptureFixture) -> None:
    domain = Domain(1_250)
    timers, loop = make(domain, clock)
    sound, domain.due = domain.due, lambda now: 1 // 0  # type: ignore[method-assign]
    timers.rearm()
    assert "timers.failed" in caplog.text
    domain.due = sound  # type: ignore[method-assign]
    timers.rearm()
    assert loop.armed() == [0.25]


def test_fault_in_a_task_is_logged_and_holds_no_other_up(
    clock: StandingClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker, done = Shard(Settings(), clock).broker, []

    def broken(now: int, budget: Budget) -> Task[None]:
        yield from ()
        raise ZeroDivisionError

    def sound(now: int, budget: Budget) -> Task[None]:
        yield
        done.append(now)

    broker.scheduler.start("a", broken, 0, later=True)
    broker.scheduler.start("b", sound, 0, later=True)
    broker.finish(7)
    assert "task.failed" in caplog.text
    assert done == [7]


def test_stop_cancels_the_timer(clock: StandingClock) -> None:
    timers, loop = make(Domain(1_250), clock)
    timers.rearm()
    timers.stop()
    assert loop.armed() == []
