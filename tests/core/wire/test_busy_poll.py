"""Whether a wait is worth looking for: by how long the last one took, and by which way was faster."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from sievemq_core.wire.busy_poll import BUSY_POLL_US, ROUND, ROUNDS, BusyPoll


def wait(busy_poll: BusyPoll, times: int, seconds: Callable[[bool], float]) -> int:
    """Wait some times, each as long as `seconds` says for looking or sleeping; how often it was looked for."""
    looked = 0
    for _ in range(times):
        looked += busy_poll.worth
        busy_poll.waited(seconds(busy_poll.worth))
    return looked


def test_nothing_is_looked_for_before_a_wait_was_short() -> None:
    busy_poll = BusyPoll(BUSY_POLL_US)
    assert not busy_poll.worth
    busy_poll.waited(100e-6)
    assert busy_poll.worth


def test_after_a_long_wait_the_next_is_slept_and_after_a_short_one_it_is_looked_for_again() -> None:
    busy_poll = BusyPoll(200)
    assert busy_poll.seconds == 200e-6
    for seconds, worth in ((0.0, True), (399e-6, True), (401e-6, False), (10.0, False), (399e-6, True)):
        busy_poll.waited(seconds)
        assert busy_poll.worth is worth


def test_where_one_looks_for_longer_waking_takes_no_longer() -> None:
    busy_poll = BusyPoll(BUSY_POLL_US)
    for seconds, worth in ((799e-6, True), (801e-6, False), (10.0, False), (799e-6, True)):
        busy_poll.waited(seconds)
        assert busy_poll.worth is worth


def test_another_peer_is_learned_anew() -> None:
    busy_poll = BusyPoll(200)
    wait(busy_poll, 4 * ROUND, lambda looked: 95e-6)  # nothing is gained by looking
    assert wait(busy_poll, ROUND, lambda looked: 95e-6) == 0
    busy_poll.begin(600)
    assert busy_poll.seconds == 600e-6
    assert not busy_poll.worth
    assert wait(busy_poll, ROUND, lambda looked: 300e-6 if looked else 450e-6) == ROUND - 1
    assert wait(busy_poll, ROUND, lambda looked: 300e-6 if looked else 450e-6) == 0  # an experiment
    assert wait(busy_poll, 2 * ROUND, lambda looked: 300e-6 if looked else 450e-6) == 2 * ROUND
    busy_poll.begin(0)
    assert not wait(busy_poll, 10_000, lambda looked: 0.0)


def test_a_disk_that_takes_as_long_as_one_looks_is_slept_for() -> None:
    """Looking until just before the answer costs a processor and gains nothing."""
    busy_poll = BusyPoll(BUSY_POLL_US)
    rounds = 10 * (ROUNDS + 1)
    looked = wait(busy_poll, rounds * ROUND, lambda looked: 700e-6)
    assert 12 <= looked / ROUND <= 18


def test_of_a_wait_with_a_sync_in_it_looking_need_not_gain_a_tenth() -> None:
    busy_poll = BusyPoll(BUSY_POLL_US)
    rounds = 10 * (ROUNDS + 1)
    looked = wait(busy_poll, rounds * ROUND, lambda looked: 375e-6 if looked else 400e-6)
    assert rounds - 15 <= looked / ROUND <= rounds - 11
    busy_poll = BusyPoll(BUSY_POLL_US)
    looked = wait(busy_poll, rounds * ROUND, lambda looked: 385e-6 if looked else 400e-6)
    assert 12 <= looked / ROUND <= 18


def test_a_round_that_went_badly_does_not_decide() -> None:
    """A disk that stalls, whichever way is being tried."""
    for unlucky in range(1, 2 * ROUNDS):
        busy_poll = BusyPoll(BUSY_POLL_US)
        for number in range(2 * ROUNDS):
            stalled = 0.01 if number == unlucky else 0.0
            wait(busy_poll, ROUND, lambda looked, stalled=stalled: stalled or (300e-6 if looked else 400e-6))
        looked = wait(busy_poll, 2 * ROUNDS * ROUND, lambda looked: 300e-6 if looked else 400e-6)
        assert looked >= (2 * ROUNDS - 5) * ROUND


def test_what_the_first_waits_said_is_tried_again_soon() -> None:
    """To open a session, to make a queue, to write on a thread that has just been started."""
    busy_poll = BusyPoll(BUSY_POLL_US)
    for seconds in (750e-6, 350e-6) * 2:
        wait(busy_poll, ROUND, lambda looked, seconds=seconds: seconds)
    assert not busy_poll.worth
    wait(busy_poll, 4 * ROUND, lambda looked: 300e-6 if looked else 400e-6)
    assert wait(busy_poll, ROUND, lambda looked: 300e-6 if looked else 400e-6) >= ROUND - 1


def test_zero_is_never() -> None:
    assert not wait(BusyPoll(0), 10_000, lambda looked: 0.0)


def test_it_looks_where_that_is_faster_but_for_an_experiment_now_and_then() -> None:
    rounds = 10 * (ROUNDS + 1)
    looked = wait(BusyPoll(200), rounds * ROUND, lambda looked: 80e-6 if looked else 160e-6)
    assert rounds - 15 <= looked / ROUND <= rounds - 11


def test_it_sleeps_where_looking_gains_less_than_a_tenth() -> None:
    rounds = 10 * (ROUNDS + 1)
    looked = wait(BusyPoll(200), rounds * ROUND, lambda looked: 95e-6 if looked else 100e-6)
    assert 12 <= looked / ROUND <= 18


def test_it_notices_that_the_machine_has_become_crowded_and_that_it_is_free_again() -> None:
    busy_poll = BusyPoll(200)
    for crowded in (False, True, False, True, True, False):
        took = (300e-6, 150e-6) if crowded else (80e-6, 160e-6)
        wait(busy_poll, 4 * ROUNDS * ROUND, lambda looked, took=took: took[not looked])
        looked = wait(busy_poll, (ROUNDS + 1) * ROUND, lambda looked, took=took: took[not looked])
        assert (looked < 3 * ROUND) is crowded


def test_who_is_kept_from_the_processor_now_and_then_sleeps() -> None:
    busy_poll = BusyPoll(200)
    numbers = count()

    def seconds(looked: bool) -> float:
        return 0.01 if looked and not next(numbers) % 4 else 80e-6 if looked else 160e-6

    wait(busy_poll, 4 * ROUND, seconds)
    assert wait(busy_poll, 4 * ROUNDS * ROUND, seconds) <= 10 * ROUND


def test_a_pause_now_and_then_does_not_hide_that_looking_is_faster() -> None:
    busy_poll = BusyPoll(200)
    numbers = count(1)

    def seconds(looked: bool) -> float:
        return 1.0 if not next(numbers) % ROUND else 80e-6 if looked else 160e-6

    wait(busy_poll, 4 * ROUND, seconds)
    assert wait(busy_poll, 4 * ROUNDS * ROUND, seconds) > (4 * ROUNDS - 10) * ROUND
