"""Turns that follow each other closely: the loop looks for input before it sleeps (decision 0022)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sievemq_broker.server import turn as module
from sievemq_broker.server.turn import Turn


class Loop:
    """A loop whose clock and callbacks are the test's."""

    def __init__(self) -> None:
        self.now = 1.0
        self.ready: deque[Callable[[], Any]] = deque()

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], Any]) -> None:
        self.ready.append(callback)

    def run(self) -> bool:
        """What is ready now; False if nothing is, and the loop would sleep."""
        for _ in range(count := len(self.ready)):
            self.ready.popleft()()
        return count > 0


class Writer:
    dirty = False

    def flush(self) -> None:
        self.dirty = False


class Stage:
    """A turn object on a loop, and a processor that others may want."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop()
        self.gave_way = 0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self.loop.time))
        monkeypatch.setattr(module, "_give_way", self.give_way)

    def make(self, busy_poll: int) -> Turn:
        return Turn(self.loop, busy_poll)  # type: ignore[arg-type]

    def give_way(self) -> None:
        self.gave_way += 1
        self.loop.now += 10e-6

    def feed(self, turn: Turn, after: float) -> None:
        """Something comes so many seconds after now, and is carried out."""
        self.loop.now += after
        turn.mark(Writer())
        assert self.loop.run()

    def looks(self) -> int:
        """How often the loop looks until it sleeps."""
        before = self.gave_way
        for _ in range(1_000):
            if not self.loop.run():
                return self.gave_way - before
        raise AssertionError("it never sleeps")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_it_looks_for_as_long_as_it_was_told_where_turns_follow_each_other_closely(stage: Stage) -> None:
    turn = stage.make(200)
    stage.feed(turn, 1.0)
    assert stage.looks() == 0  # the first, after a long time
    stage.feed(turn, 100e-6)
    assert stage.looks() == 20
    stage.feed(turn, 300e-6)
    assert stage.looks() == 0  # it came too late to be looked for


def test_what_comes_while_it_looks_is_a_turn_and_it_goes_on_looking_from_there(stage: Stage) -> None:
    turn = stage.make(200)
    stage.feed(turn, 1.0)
    stage.feed(turn, 100e-6)
    for _ in range(50):
        assert stage.loop.run()
        assert stage.loop.run()
        turn.mark(Writer())
        assert stage.loop.run()
        assert len(stage.loop.ready) == 1, "one look is under way, not one for each turn"
    assert stage.looks() > 0


def test_it_sleeps_where_looking_makes_nothing_faster(stage: Stage) -> None:
    turn = stage.make(200)
    stage.feed(turn, 1.0)
    slept = 0
    for _ in range(4_000):
        stage.feed(turn, 100e-6)
        slept += not stage.looks()  # then what comes next comes later than if it had slept
    assert slept > 3_600


def test_zero_is_never(stage: Stage) -> None:
    turn = stage.make(0)
    for _ in range(3):
        stage.feed(turn, 10e-6)
        assert stage.looks() == 0
