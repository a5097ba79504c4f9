"""The clock with a hand on it."""

from __future__ import annotations

import pytest

from sievemq_broker import clock as clock_module
from sievemq_broker.clock import AdjustableClock, Clock


class Machine:
    """The machine's clock, in the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000
        monkeypatch.setattr(clock_module, "time_ns", lambda: self.now * 1_000_000 + 999_999)


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


def test_frozen_clock_tells_how_far_the_machine_ran_away(machine: Machine) -> None:
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
