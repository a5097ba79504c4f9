"""The clock with a hand on it."""

from __future__ import annotations

import pytest

from sievemq_broker import clock as clock_module
from sievemq_broker.clock import JUMP_MS, AdjustableClock, Clock


class Machine:
    """The machine's clock, in the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000
        #: By how much it was set forward, in all.
        self.set = 0
        monkeypatch.setattr(clock_module, "time_ns", lambda: self.now * 1_000_000 + 999_999)
        monkeypatch.setattr(clock_module, "monotonic_ns", lambda: (self.now - self.set) * 1_000_000)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_clock_is_the_machines(machine: Machine) -> None:
    clock = Clock()
    assert clock.now() == 1_000_000
    machine.now += 5
    assert (clock.now(), clock.offset, clock.frozen_at) == (1_000_005, 0, None)


def test_advance_adds_to_running_time(machine: Machine) -> None:
    clock = AdjustableClock()
    clock.advance(60_000)
    machine.now += 1
    assert (clock.now(), clock.offset) == (1_060_001, 60_000)


def test_advance_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="set"):
        AdjustableClock().advance(-1)


def test_frozen_clock_stands_until_moved(machine: Machine) -> None:
    clock = AdjustableClock()
    clock.freeze()
    machine.now += 700
    assert clock.now() == clock.frozen_at == 1_000_000
    clock.advance(5)
    machine.now += 700
    assert clock.now() == 1_000_005


def test_resume_runs_on_from_the_time_shown(machine: Machine) -> None:
    clock = AdjustableClock()
    clock.freeze()
    machine.now += 700
    clock.resume()
    assert clock.now() == 1_000_000
    machine.now += 3
    assert (clock.now(), clock.offset, clock.frozen_at) == (1_000_003, -700, None)
    clock.resume()
    assert clock.now() == 1_000_003


@pytest.mark.parametrize("frozen", [False, True])
def test_set_shows_that_time(machine: Machine, frozen: bool) -> None:
    clock = AdjustableClock()
    if frozen:
        clock.freeze()
    clock.set(42)
    assert clock.now() == 42
    machine.now += 8
    assert clock.now() == (42 if frozen else 50)


def test_frozen_clock_reports_its_distance_to_the_machine(machine: Machine) -> None:
    clock = AdjustableClock()
    drifts: list[int] = []
    clock.drifted = drifts.append
    clock.freeze()
    clock.now()
    machine.now += 30
    clock.now()
    clock.now()
    machine.now += 12
    clock.advance(1_000)  # the move itself is no drift
    clock.now()
    assert drifts == [-30, -12]
    assert clock.offset == 1_000 - 42


class TestJumps:
    """The machine's clock is set."""

    @pytest.fixture(params=[Clock, AdjustableClock])
    def clock(self, request: pytest.FixtureRequest, machine: Machine) -> Clock:
        made: Clock = request.param()
        return made

    @pytest.mark.parametrize("by", [3_600_000, -3_600_000, JUMP_MS, -JUMP_MS])
    def test_the_jump_is_reported_once_before_the_new_time(self, machine: Machine, clock: Clock, by: int) -> None:
        told: list[int] = []
        clock.on_jump = told.append
        machine.now += 86_400_000  # a day that nobody asked for the time
        assert clock.now() == machine.now
        assert told == []
        machine.now += by
        machine.set += by
        assert clock.now() == machine.now
        assert clock.now() == machine.now
        assert told == [by]
        machine.now -= by
        machine.set -= by
        clock.now()
        assert told == [by, -by]

    def test_small_corrections_are_reported_when_they_add_up_to_a_second(self, machine: Machine, clock: Clock) -> None:
        told: list[int] = []
        clock.on_jump = told.append
        for _ in range(25):
            machine.now += 100
            machine.set += 100
            clock.now()
        assert told == [JUMP_MS, JUMP_MS]

    def test_no_listener_is_required(self, machine: Machine, clock: Clock) -> None:
        machine.now += 3_600_000
        machine.set += 3_600_000
        assert clock.now() == machine.now

    def test_a_test_that_moves_the_clock_makes_it_no_jump(self, machine: Machine) -> None:
        clock = AdjustableClock()
        told: list[int] = []
        clock.on_jump = told.append
        clock.advance(3_600_000)
        clock.now()
        clock.set(5)
        clock.now()
        assert told == []
