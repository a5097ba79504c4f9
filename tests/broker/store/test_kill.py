"""Kill -9 at random moments under load; `make kills` does it two hundred times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .kill import Life


def run(kills: int, steps: int, directory: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    life = Life(seed, directory)
    wrong = life.play(kills, steps)
    assert wrong == []
    assert life.kills == kills
    assert len(life.incarnations) == 1, "the broker keeps its name with its data"
    confirmed = life.accounts.confirmed
    assert all(confirmed[place] for place in ("in", "plain", "all", "some"))
    assert any(answered for _, answered in life.accounts.transactions)


def test_a_broker_that_is_killed_three_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run(3, 600, tmp_path)


def test_a_life_that_fails_leaves_neither_its_broker_nor_its_clients(tmp_path: Path) -> None:
    class Failing(Life):
        def disturb(self) -> None:
            raise OSError("no such fault")

    life = Failing(1, tmp_path)
    with pytest.raises(OSError, match="no such fault"):
        life.play(1, 10)
    assert life.over.is_set()
    assert life.process is not None
    assert life.process.poll() is not None


@pytest.mark.slow
def test_a_broker_that_is_killed_twenty_five_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run(25, 1_500, tmp_path)
