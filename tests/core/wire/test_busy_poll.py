"""A wait polls before it blocks if that is chosen and the last wait was short."""

from __future__ import annotations

import pytest

from sievemq_core.wire.connection import BusyPoll


def test_the_first_wait_blocks() -> None:
    busy_poll = BusyPoll(600)
    assert not busy_poll.worth
    busy_poll.waited(100e-6)
    assert busy_poll.worth


@pytest.mark.parametrize("microseconds", [200, 600])
def test_a_wait_polls_if_the_last_one_was_short(microseconds: int) -> None:
    busy_poll = BusyPoll(microseconds)
    assert busy_poll.seconds == microseconds / 1e6
    limit = busy_poll.seconds + 200e-6
    for seconds, worth in ((0.0, True), (limit - 1e-6, True), (limit + 1e-6, False), (10.0, False), (0.0, True)):
        busy_poll.waited(seconds)
        assert busy_poll.worth is worth


def test_another_peer_starts_from_scratch() -> None:
    busy_poll = BusyPoll(200)
    busy_poll.waited(0.0)
    busy_poll.begin(600)
    assert (busy_poll.seconds, busy_poll.worth) == (600e-6, False)


def test_zero_never_polls() -> None:
    busy_poll = BusyPoll(0)
    for seconds in (0.0, 100e-6, 1.0):
        busy_poll.waited(seconds)
        assert not busy_poll.worth
