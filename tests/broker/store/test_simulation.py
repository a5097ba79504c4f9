"""Takeovers in simulated worlds keep every promise, and each planted fault is found. The program plays thousands."""

from __future__ import annotations

import logging

import pytest

from .simulation import FAULTS, first_found, run

#: Found in one of some hundred worlds: they are left to the program, and to the tests of the lease and of the follower.
RARE = {
    "lease counted from the answer",
    "observed over any connection",
    "followed batches that are gone restored",
    "assign carried out late",
}

#: Of faults that are found late: the world with which the search begins.
FIRST = {"take without comparing": 85, "lease by the wall clock": 13, "assign not fenced": 8}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What fails here is logged as it should be, thousands of times."""
    caplog.set_level(logging.CRITICAL + 1, "sievemq_broker")


@pytest.mark.parametrize("loses", [False, True])
def test_takeovers_keep_every_promise(loses: bool) -> None:
    counts: dict[str, int] = {}
    for seed in range(8):
        world = run(seed, loses=loses)
        assert world.wrong == [], f"seed {seed}"
        for name, number in world.counts.items():
            counts[name] = counts.get(name, 0) + number
    for name in (
        "takeovers",
        "pauses",
        "kills",
        "releases",
        "partitions",
        "outages",
        "late copies",
        "repeated writes",
        "handovers asked for",
    ):
        assert counts[name], name
    assert counts.get("promotions", 0) > 0 or not loses


def test_a_cluster_keeps_every_promise_and_each_namespace_in_one_shard() -> None:
    counts: dict[str, int] = {}
    for seed in range(2):
        world = run(seed, cluster=True)
        assert world.wrong == [], f"seed {seed}"
        for name, number in world.counts.items():
            counts[name] = counts.get(name, 0) + number
    for name in ("takeovers", "errors REDIRECT", "new namespaces", "namespaces entered", "assigned"):
        assert counts[name], name


def test_a_world_is_determined_by_its_seed() -> None:
    assert run(3).counts == run(3).counts


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in RARE])
def test_a_planted_fault_is_found(fault: str) -> None:
    assert first_found(fault, 100, FIRST.get(fault, 0)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"loses": True}, {"cluster": True}])
def test_takeovers_keep_every_promise_in_twenty_worlds(options: dict[str, bool]) -> None:
    for seed in range(1_000, 1_020):
        assert run(seed, **options).wrong == [], f"seed {seed}"
