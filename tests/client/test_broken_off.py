"""Programs whose calls are cancelled, interrupted, timed out or cut, by broken_off.py (D-41, D-42)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq_broker import EmbeddedBroker

from .broken_off import APIS, play

pytestmark = pytest.mark.needs_python("counts the functions that it interrupts")

MODES = range(4)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("api", APIS)
def test_broken_off_calls_lose_and_double_nothing(broker: EmbeddedBroker, api: str, mode: int) -> None:
    for seed in range(3):
        play(broker, seed, api, mode)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("api", APIS)
def test_broken_off_calls_of_many_programs_lose_and_double_nothing(broker: EmbeddedBroker, api: str, mode: int) -> None:
    for seed in range(100, 130):
        play(broker, seed, api, mode)
