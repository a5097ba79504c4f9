"""The life of a connection: its table of states, and the state in which each protocol's events leave it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeAlias

import pytest

from sievemq_broker.session.life import CLOSING, CONNECTING, GONE, LEAVING, OPEN, SIGNING_IN, STATES, Life
from sievemq_core.errors import ErrorCode

from .harness import World

Ending: TypeAlias = Callable[[Life], bool]

EVENTS = (Life.sign_in, Life.welcome, Life.goodbye, Life.end, Life.lose)


def lives() -> list[Life]:
    """A life in each state."""
    found = [Life() for _ in STATES]
    for at, event in enumerate(EVENTS, 1):
        event(found[at])
    return found


def test_a_life_starts_before_the_handshake_and_each_event_has_its_state() -> None:
    assert [life.state for life in lives()] == [CONNECTING, SIGNING_IN, OPEN, LEAVING, CLOSING, GONE]


@pytest.mark.parametrize(("at", "event"), [*product(range(len(STATES)), EVENTS)])
def test_no_event_leads_back_to_an_earlier_state(at: int, event: Callable[[Life], object]) -> None:
    life = lives()[at]
    event(life)
    assert life.state >= at


@pytest.mark.parametrize("first", [Life.goodbye, Life.end, Life.lose])
@pytest.mark.parametrize("second", [Life.goodbye, Life.end, Life.lose])
def test_the_sessions_of_a_client_are_closed_once(first: Ending, second: Ending) -> None:
    life = Life()
    assert first(life)
    assert not second(life)


def test_an_error_is_written_before_the_connection_is_gone(world: World) -> None:
    client = world.client()
    life = client.broker.peer.life
    client.broker.close(ErrorCode.HEARTBEAT_MISSED, "test", world.now)
    assert life.state == CLOSING
    assert client.broker.has_data
    client.drop()
    assert life.state == GONE
