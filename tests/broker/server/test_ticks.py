"""Ticks of connections. The loop's time is the test's."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from sievemq_broker.clock import Clock
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.server.net.link import Links
from sievemq_broker.server.net.ticks import LAG_BOUNDS, TICK_SECONDS, TICKED_AT_ONCE, Ticks

from .conftest import FakeConnection, FakeLoop

#: Seconds that a turn takes, so that a round over LINKS takes one.
TURN = 0.05
LINKS = 2_000


class LoopClock(Clock):
    """Shows a second when the test begins, and goes on with the loop."""

    __slots__ = ("loop",)

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop

    def now(self) -> int:
        return 1_000 + round((self.loop.now - 100) * 1_000)


class Rig:
    """Ticks on a loop.

    Attributes:
        turns: how many have begun, each of which takes `turn` seconds.
        marked: links with output.
        rounds: how many were over.
    """

    def __init__(self, links: int = 0, turn: float = 0.0) -> None:
        self.loop, self.turn = FakeLoop(), turn
        self.turns = self.rounds = self.ends = 0
        self.marked: list[Any] = []
        self.links = [_link() for _ in range(links)]
        self.open = Links(10)
        self.open.open.update(self.links)
        self.ticks = Ticks(self.loop, LoopClock(self.loop), self.open, self.round_over)  # type: ignore[arg-type]
        self.ticks.start(self.marked.append, self.end)

    def round_over(self) -> None:
        self.rounds += 1

    def end(self) -> None:
        self.ends += 1

    def fire(self) -> None:
        before = self.ticked
        self.loop.fire()
        assert self.ticked - before <= TICKED_AT_ONCE
        self.turns += 1
        self.loop.now += self.turn

    @property
    def ticked(self) -> int:
        return sum(link.connection.ticks for link in self.links)


class Beating(FakeConnection):
    """Sends a heartbeat whenever half an interval has passed.

    Args:
        interval: ms within which one must be sent.
    """

    def __init__(self, interval: int, now: int) -> None:
        super().__init__("")
        self.interval, self.beat_at = interval, now + interval // 2
        self.beats: list[int] = []

    def tick(self, now: int) -> int:
        self.ticks += 1
        if now >= self.beat_at:
            self.beats.append(now)
            self.beat_at = now + self.interval // 2
        return self.beat_at


def test_a_round_visits_every_connection_and_marks_those_with_output() -> None:
    rig = Rig(links=2)
    quiet, loud = rig.links
    loud.connection.output = b"heartbeat"
    assert rig.loop.armed() == [TICK_SECONDS]
    rig.fire()
    assert (quiet.connection.ticks, loud.connection.ticks) == (1, 1)
    assert rig.marked == [loud]
    assert (rig.rounds, rig.ends) == (1, 1)
    assert rig.loop.armed() == [TICK_SECONDS]


def test_many_connections_are_ticked_in_several_turns() -> None:
    rig = Rig(links=2 * TICKED_AT_ONCE + 1)
    rig.fire()
    for turn in (1, 2):
        assert rig.ticked == turn * TICKED_AT_ONCE
        assert (rig.rounds, rig.loop.armed()) == (0, [0.0])
        rig.fire()
    assert {link.connection.ticks for link in rig.links} == {1}
    assert (rig.rounds, rig.loop.armed()) == (1, [TICK_SECONDS])
    rig.fire()
    left = next(link for link in rig.links if link.connection.ticks == 1)
    rig.open.open.discard(left)
    rig.fire()
    rig.fire()
    assert left.connection.ticks == 1, "it was closed meanwhile"
    assert rig.ticked == 2 * len(rig.links) - 1
    rig.ticks.stop()
    assert rig.loop.armed() == []


@pytest.mark.parametrize(("wish", "wait"), [(1_350, 0.1), (1_251, 0.02), (900, 0.0), (9_999, TICK_SECONDS)])
def test_a_connection_can_request_the_next_tick(wish: int, wait: float) -> None:
    rig = Rig(links=2)
    rig.links[0].connection.deadline = wish
    rig.fire()
    assert rig.loop.armed() == [wait]


def test_a_deadline_ticks_its_own_connection_alone() -> None:
    rig = Rig(links=3)
    rig.links[0].connection = Beating(300, 1_000)
    for _ in range(2):
        rig.fire()
    assert [link.connection.ticks for link in rig.links] == [2, 1, 1]
    assert (rig.rounds, rig.links[0].connection.beats) == (1, [1_250, 1_400])


def test_a_connection_that_is_closed_misses_its_deadline() -> None:
    rig = Rig(links=1)
    rig.links[0].connection.deadline = 1_300
    rig.fire()
    rig.open.open.clear()
    rig.fire()
    rig.fire()
    assert rig.ticked == 1


@pytest.mark.parametrize("interval", [500, 2_000])
def test_heartbeats_are_in_time_while_a_round_takes_a_second(interval: int) -> None:
    rig = Rig(links=LINKS, turn=TURN)
    beating = [Beating(interval, 1_000) for _ in range(30)]
    for at, connection in enumerate(beating):
        rig.links[at * 66].connection = connection
    while rig.rounds < 4:
        unknown = not rig.rounds  # how long one takes: in the turn that ends the first one, too
        rig.fire()
        if unknown:
            for connection in beating:
                connection.beats.clear()
    for connection in beating:
        waits = [after - before for before, after in itertools.pairwise(connection.beats)]
        assert waits
        assert max(waits) <= interval // 2 + 70, "a turn, and the shortest wait for a deadline"
    others = {link.connection.ticks for link in rig.links if not isinstance(link.connection, Beating)}
    assert others == {4}, "deadlines hold up no round"


def test_deadlines_of_all_connections_hold_up_no_round() -> None:
    rig = Rig(links=3 * TICKED_AT_ONCE, turn=TURN)
    for link in rig.links:
        link.connection.deadline = 0  # always due
    while rig.rounds < 1:
        rig.fire()
    assert rig.turns <= 6
    assert min(link.connection.ticks for link in rig.links) == 1


def test_fault_in_one_connections_tick_ends_only_that_one() -> None:
    rig = Rig(links=2)
    bad, good = rig.links
    failed: list[Exception] = []
    bad.fail = failed.append
    bad.connection.tick = lambda now: 1 // 0
    rig.fire()
    assert [type(error) for error in failed] == [ZeroDivisionError]
    assert good.connection.ticks == 1
    assert rig.loop.armed() == [TICK_SECONDS]


def test_late_round_is_counted_as_lag() -> None:
    rig = Rig()
    rig.loop.handles[0].when += 0.03  # something kept the loop for 30 ms
    rig.fire()
    assert rig.ticks.lag.last == pytest.approx(0.03)
    assert rig.ticks.lag.buckets[LAG_BOUNDS.index(0.05)] == 1


def test_lag_beyond_the_last_bound_has_its_own_bucket() -> None:
    lag = Histogram(LAG_BOUNDS)
    lag.observe(7.0)
    assert (lag.buckets[-1], lag.count, lag.sum) == (1, 1, 7.0)


def _link() -> Any:
    link = asyncio.Protocol.__new__(type("L", (asyncio.Protocol,), {}))
    link.connection = FakeConnection("")  # type: ignore[attr-defined]
    return link
