"""One timer for all deadlines, and the ticks. The loop's time is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sievemq_broker.clock import AdjustableClock
from sievemq_broker.config import Settings
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.server.net.link import Links
from sievemq_broker.server.net.turn import LAG_BOUNDS, TICK_SECONDS, TICKED_AT_ONCE, Timers
from sievemq_broker.server.shard import Shard

from .conftest import FakeConnection, StandingClock


class Handle:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback, self.cancelled = when, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """Only as much of a loop as timers use; nothing happens by itself."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        self.handles.append(handle := Handle(when, callback))
        return handle

    def call_later(self, delay: float, callback: Callable[[], None]) -> Handle:
        return self.call_at(self.now + delay, callback)

    def call_soon(self, callback: Callable[..., None], *arguments: object) -> Handle:
        return self.call_at(self.now, lambda: callback(*arguments))

    def armed(self) -> list[float]:
        return [round(handle.when - self.now, 6) for handle in self.handles if not handle.cancelled]

    def fire(self) -> None:
        """The next timer's time comes."""
        handle = min((h for h in self.handles if not h.cancelled), key=lambda h: h.when)
        self.handles.remove(handle)
        self.now = handle.when
        handle.callback()


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


def make(domain: Domain, clock: Any, loop: FakeLoop | None = None) -> tuple[Timers, FakeLoop, Links, list[Any]]:
    loop = loop or FakeLoop()
    links = Links(10)
    marked: list[Any] = []
    return Timers(loop, clock, [domain], links), loop, links, marked  # type: ignore[arg-type]


def test_without_a_deadline_nothing_is_armed(clock: StandingClock) -> None:
    timers, loop, _, _ = make(Domain(None), clock)
    timers.rearm()
    assert loop.armed() == []


def test_timer_is_armed_for_the_next_deadline_and_rearmed(clock: StandingClock) -> None:
    domain = Domain(1_250, None)
    timers, loop, _, _ = make(domain, clock)
    timers.rearm()
    assert loop.armed() == [0.25]
    clock.time = 1_250
    loop.fire()
    assert domain.asked == [1_000, 1_250]
    assert loop.armed() == []


def test_the_earliest_deadline_of_several_shards_arms_the_timer(clock: StandingClock) -> None:
    first, second, idle = Domain(1_500, None), Domain(1_250, None), Domain(None)
    loop = FakeLoop()
    timers = Timers(loop, clock, [first, second, idle], Links(10))  # type: ignore[arg-type]
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
    timers, loop, _, _ = make(Domain(1_250, 1_400, 1_100), clock)
    timers.rearm()
    timers.rearm()
    assert loop.armed() == [0.25]
    timers.rearm()
    assert loop.armed() == [0.1]


def test_further_due_work_is_done_in_the_next_turn(clock: StandingClock) -> None:
    domain = Domain(1_000, None)
    timers, loop, _, _ = make(domain, clock)
    timers.rearm()
    assert len(domain.asked) == 1
    assert loop.armed() == [0.0]
    loop.fire()
    assert len(domain.asked) == 2


def test_pending_work_is_done_in_slices_one_per_turn(clock: StandingClock) -> None:
    domain = Domain(None, 5_000, None)
    domain.pending = 3
    timers, loop, _, _ = make(domain, clock)
    timers.rearm()
    assert (domain.pending, loop.armed()) == (2, [0.0])
    loop.fire()
    assert (domain.pending, loop.armed()) == (1, [0.0])
    loop.fire()
    assert (domain.pending, loop.armed()) == (0, [])


def test_far_deadline_is_checked_again_within_a_minute(clock: StandingClock) -> None:
    timers, loop, _, _ = make(Domain(10**12), clock)
    timers.rearm()
    assert loop.armed() == [60.0]


def test_frozen_clock_arms_only_slices_of_due_work() -> None:
    clock = AdjustableClock()
    clock.freeze()
    now = clock.now()
    timers, loop, _, _ = make(Domain(now + 5, now), clock)
    timers.rearm()
    assert loop.armed() == []
    timers.rearm()
    assert loop.armed() == [0.0]


def test_moved_clock_does_everything_that_is_due_before_it_returns() -> None:
    clock = AdjustableClock()
    clock.freeze()
    now = clock.now()
    domain = Domain(now, now, now + 5, now + 5)
    timers, loop, _, _ = make(domain, clock)
    domain.pending = 3
    timers.moved()
    assert len(domain.asked) == 4
    assert domain.pending == 0
    assert loop.armed() == []


def test_a_turn_ends_when_a_deadline_has_come_and_when_work_goes_on(clock: StandingClock) -> None:
    """The end of a turn also writes to disk, so it must come although no link has output."""
    domain, ends = Domain(1_100), 0
    timers, loop, _, marked = make(domain, clock)

    def end() -> None:
        nonlocal ends
        ends += 1
        timers.rearm()

    timers.start(marked.append, end)
    timers.rearm()
    clock.time = 1_100
    domain.pending = 2
    loop.fire()
    loop.fire()
    assert (ends, marked, len(loop.armed())) == (2, [], 1)


def test_tick_visits_every_connection_and_marks_those_with_output(clock: StandingClock) -> None:
    timers, loop, links, marked = make(Domain(), clock)
    quiet, loud = _link(), _link()
    loud.connection.output = b"heartbeat"
    links.open.update((quiet, loud))
    timers.start(marked.append)
    assert loop.armed() == [TICK_SECONDS]
    loop.fire()
    assert (quiet.connection.ticks, loud.connection.ticks) == (1, 1)
    assert marked == [loud]
    assert loop.armed() == [TICK_SECONDS]


def test_a_tick_leaves_work_to_the_turn_that_it_begins(clock: StandingClock) -> None:
    domain, ends = Domain(), 0
    timers, loop, _, marked = make(domain, clock)

    def end() -> None:
        nonlocal ends
        ends += 1

    timers.start(marked.append, end)
    loop.fire()
    assert (ends, domain.asked) == (1, [])


def test_many_connections_are_ticked_in_several_turns(clock: StandingClock) -> None:
    timers, loop, links, _ = make(Domain(), clock)
    many = [_link() for _ in range(2 * TICKED_AT_ONCE + 1)]
    links.open.update(many)
    many[0].connection.deadline = 1_100
    timers.start(lambda link: None)
    loop.fire()
    for turn in (1, 2):
        assert sum(link.connection.ticks for link in many) == turn * TICKED_AT_ONCE
        assert loop.armed() == [0.0]
        loop.fire()
    assert {link.connection.ticks for link in many} == {1}
    assert loop.armed() == [0.1], "as the first of them has requested"
    loop.fire()
    left = next(link for link in many if link.connection.ticks == 1)
    links.open.discard(left)
    loop.fire()
    loop.fire()
    assert left.connection.ticks == 1, "it was closed meanwhile"
    loop.fire()
    timers.stop()
    assert loop.armed() == []


@pytest.mark.parametrize(("wish", "wait"), [(1_100, 0.1), (1_001, 0.02), (900, 0.02), (9_999, TICK_SECONDS)])
def test_a_connection_can_request_the_next_tick(clock: StandingClock, wish: int, wait: float) -> None:
    timers, loop, links, marked = make(Domain(), clock)
    link = _link()
    link.connection.deadline = wish
    links.open.add(link)
    timers.start(marked.append)
    loop.fire()
    assert loop.armed() == [wait]


def test_fault_in_the_domain_is_logged_and_tried_again(clock: StandingClock, caplog: pytest.LogCaptureFixture) -> None:
    domain = Domain(1_250)
    timers, loop, _, marked = make(domain, clock)
    sound, domain.due = domain.due, lambda now: 1 // 0  # type: ignore[method-assign]
    timers.start(marked.append)
    loop.fire()
    assert "timers.failed" in caplog.text
    domain.due = sound  # type: ignore[method-assign]
    loop.fire()
    assert loop.armed() == [TICK_SECONDS, 0.25]


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


def test_fault_in_one_connections_tick_ends_only_that_one(clock: StandingClock) -> None:
    timers, loop, links, marked = make(Domain(), clock)
    bad, good = _link(), _link()
    failed: list[Exception] = []
    bad.fail = failed.append
    bad.connection.tick = lambda now: 1 // 0
    links.open.update((bad, good))
    timers.start(marked.append)
    loop.fire()
    assert [type(error) for error in failed] == [ZeroDivisionError]
    assert good.connection.ticks == 1
    assert loop.armed() == [TICK_SECONDS]


def test_late_tick_is_counted_as_lag(clock: StandingClock) -> None:
    timers, loop, _, marked = make(Domain(), clock)
    timers.start(marked.append)
    loop.handles[0].when += 0.03  # something kept the loop for 30 ms
    loop.fire()
    assert timers.lag.last == pytest.approx(0.03)
    assert timers.lag.buckets[LAG_BOUNDS.index(0.05)] == 1


def test_lag_beyond_the_last_bound_has_its_own_bucket() -> None:
    lag = Histogram(LAG_BOUNDS)
    lag.observe(7.0)
    assert (lag.buckets[-1], lag.count, lag.sum) == (1, 1, 7.0)


def test_stop_cancels_everything(clock: StandingClock) -> None:
    timers, loop, _, marked = make(Domain(1_250), clock)
    timers.start(marked.append)
    timers.rearm()
    timers.stop()
    assert loop.armed() == []


def _link() -> Any:
    link = asyncio.Protocol.__new__(type("L", (asyncio.Protocol,), {}))
    link.connection = FakeConnection("")  # type: ignore[attr-defined]
    return link
