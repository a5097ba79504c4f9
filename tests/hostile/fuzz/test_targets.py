"""Every fuzz target over its seeds, what was once found, and a few mutations; `make fuzz` goes on from there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.hostile.fuzz.mutate import mutate
from tests.hostile.fuzz.targets import TARGETS, opened, pieces, together

#: Input that once was too much, by target.
FOUND = Path(__file__).parent / "found"
#: Mutations of a seed; opening a store and a request take longer than the rest.
MUTATIONS = {"store": 60, "http": 150}


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    with opened(name) as target:
        seeds = list(target.seeds())
        assert seeds
        for seed in seeds:
            target.run(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_mutations(name: str) -> None:
    chance = random.Random(7)
    with opened(name) as target:
        seeds = list(target.seeds())
        for _ in range(MUTATIONS.get(name, 400)):
            target.run(mutate(seeds, chance))


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_earlier_findings_stay_fixed(path: Path) -> None:
    with opened(path.parent.name) as target:
        target.run(path.read_bytes())


def test_pieces() -> None:
    parts = [b"", b"a", b"bc" * 300]
    assert pieces(together(parts)) == parts
    assert pieces(b"\0\5ab") == [b"ab"]
    assert pieces(b"\0") == []
