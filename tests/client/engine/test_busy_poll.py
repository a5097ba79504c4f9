"""How long the front polls for an answer: as chosen, whichever broker it is (decision 0022)."""

from __future__ import annotations

import pytest

from sievemq._engine import EngineOptions
from sievemq.url import parse_url
from sievemq_core.limits import BUSY_POLL_US

from .harness import FakeBroker


def engine_of(url: str) -> FakeBroker:
    return FakeBroker(EngineOptions.from_url(parse_url(url), None, None, "test"))


@pytest.mark.parametrize(("query", "microseconds"), [("", BUSY_POLL_US), ("?busy_poll=0", 0), ("?busy_poll=200", 200)])
@pytest.mark.parametrize("durable", [False, True])
def test_busy_poll_follows_the_option_and_the_broker(query: str, durable: bool, microseconds: int) -> None:
    broker = engine_of(f"sievemq://localhost{query}")
    assert broker.engine.busy_poll.seconds == 0.0
    broker.welcome(durable=durable)
    assert broker.engine.busy_poll.seconds == microseconds / 1e6


def test_another_broker_after_a_loss_is_learned_again() -> None:
    broker = engine_of("sievemq://localhost?busy_poll=300")
    broker.welcome()
    engine, busy_poll = broker.engine, broker.engine.busy_poll
    busy_poll.waited(0.0)
    assert busy_poll.worth
    engine.lost(None)
    assert engine.repairing
    broker.reopen()
    broker.welcome()
    assert engine.busy_poll is busy_poll  # the front's
    assert busy_poll.seconds == 300e-6
    assert not busy_poll.worth
