"""For how long the front looks for an answer: as chosen, or as it suits the broker (decision 0022)."""

from __future__ import annotations

import pytest

from sievemq._engine import EngineOptions
from sievemq.url import parse_url
from sievemq_core.wire.busy_poll import BUSY_POLL_US, DURABLE_BUSY_POLL_US
from sievemq_core.wire.connection import WireConnection

from .harness import FakeBroker


def engine_of(url: str) -> FakeBroker:
    return FakeBroker(EngineOptions.from_url(parse_url(url), None, None, "test"))


@pytest.mark.parametrize(
    ("query", "durable", "microseconds"),
    [
        ("", False, BUSY_POLL_US),
        ("", True, DURABLE_BUSY_POLL_US),
        ("?busy_poll=auto", True, DURABLE_BUSY_POLL_US),
        ("?busy_poll=0", True, 0),
        ("?busy_poll=0", False, 0),
        ("?busy_poll=200", True, 200),
        ("?busy_poll=5000", False, 5_000),
    ],
)
def test_it_is_as_chosen_or_as_it_suits_the_broker(query: str, durable: bool, microseconds: int) -> None:
    broker = engine_of(f"sievemq://localhost{query}")
    assert broker.engine.busy_poll.seconds == 0.0
    broker.welcome(durable=durable)
    assert broker.engine.busy_poll.seconds == microseconds / 1e6


def test_a_broker_that_says_nothing_of_it_is_not_durable() -> None:
    broker = engine_of("sievemq://localhost")
    broker.welcome()
    assert broker.engine.busy_poll.seconds == BUSY_POLL_US / 1e6


@pytest.mark.parametrize("chosen", [None, 300])
def test_another_broker_after_a_loss_may_be_of_the_other_kind(chosen: int | None) -> None:
    broker = engine_of("sievemq://localhost" + (f"?busy_poll={chosen}" if chosen else ""))
    broker.welcome(durable=False)
    engine, busy_poll = broker.engine, broker.engine.busy_poll
    busy_poll.waited(0.0)
    for durable in (True, False):
        engine.lost(None)
        assert engine.repairing
        engine.reopen()
        broker.wire = WireConnection("broker")
        broker.welcome(durable=durable)
        assert engine.busy_poll is busy_poll  # the front's
        assert busy_poll.seconds == (chosen or (DURABLE_BUSY_POLL_US if durable else BUSY_POLL_US)) / 1e6
        assert not busy_poll.worth
