"""The lease on a shard: its table of states, when a follower may take it, and when an owner may speak."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

import pytest

from sievemq_broker.store.lease import (
    AT_TAKE,
    CLOCK_APART,
    EVENTS,
    FOLLOWING,
    GONE,
    OWNING,
    SILENT,
    STATES,
    TAKING,
    Lease,
    Owner,
    Sight,
    Terms,
    now,
)

TERMS = Terms(beat=0.5, lease=5.0, margin=1.0, patience=60.0)
OTHER = Owner("a", "sievemq://a", "a:8161", "")


def sight(beat: int = 1, **more: object) -> Sight:
    """A look at a row that another process owns."""
    seen = Sight("other", beat, False, 1, OTHER, 0, 1, 0.0)
    return seen._replace(**more)  # type: ignore[arg-type]


def follower() -> Lease:
    return Lease(TERMS, "mine")


def watches(lease: Lease, seconds: float, first: float = 0.0, seen: Sight | None = None) -> None:
    """The lease sees the same for so long, in looks of 0.1 s."""
    at = first
    while at < first + seconds + 0.15:
        lease.saw(seen or sight(), at, at + 0.1)
        at += 0.5


def owner(at: float = 0.0) -> Lease:
    """One that has taken the row, and serves."""
    lease = follower()
    lease.saw(sight(released=True), at, at)
    lease.taken(at)
    lease.restored(at)
    assert lease.state == OWNING
    return lease


# -- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", EVENTS)
def test_nothing_leads_back_to_following_and_nothing_follows_gone(event: str) -> None:
    table = EVENTS[event]
    assert len(table) == len(STATES)
    assert FOLLOWING not in table[1:]
    assert table[GONE] == GONE


def test_a_takeover_passes_through_restoring() -> None:
    lease = follower()
    lease.saw(sight(released=True), 0, 0)
    lease.taken(0)
    assert lease.state == TAKING
    assert not lease.speaks(0)
    lease.restored(1)
    assert lease.state == OWNING
    assert lease.speaks(1)
    assert AT_TAKE[FOLLOWING] == TAKING


def test_an_owner_whose_restoring_outlasts_its_beats_begins_silent() -> None:
    lease = follower()
    lease.saw(sight(released=True), 0, 0)
    lease.taken(0)
    lease.restored(4)
    assert lease.state == SILENT


# -- a follower -------------------------------------------------------------------------------------------------------


def test_the_first_process_takes_at_once() -> None:
    lease = follower()
    assert not lease.may_take
    lease.saw(Sight("", 0, False, 0, None, 0, 1, 0.0), 0, 0)
    assert lease.may_take


def test_a_released_shard_is_taken_at_once() -> None:
    lease = follower()
    lease.saw(sight(), 0, 0)
    assert not lease.may_take
    lease.saw(sight(released=True), 0.5, 0.5)
    assert lease.may_take


def test_the_follower_that_has_asked_for_a_released_shard_takes_it_first() -> None:
    heir, other = follower(), follower()
    heir.saw(sight(released=True, heir="mine"), 0, 0)
    assert heir.may_take
    watches(other, 0.5, seen=sight(released=True, heir="third"))
    assert not other.may_take
    watches(other, 0.5, first=1.0, seen=sight(released=True, heir="third"))
    assert other.may_take, "the one that has asked is gone"


def test_a_silent_owner_is_replaced_after_the_whole_lease() -> None:
    lease = follower()
    watches(lease, 4.9)
    assert not lease.may_take
    watches(lease, 0.5, first=5.1)
    assert lease.may_take


@pytest.mark.parametrize("change", [{"beat": 2}, {"token": "third"}, {"view": 2}])
def test_what_changes_begins_the_observation_again(change: dict[str, object]) -> None:
    lease = follower()
    watches(lease, 4.5)
    seen = sight(**change)
    lease.saw(seen, 5.0, 5.1)
    assert lease.still == 0
    watches(lease, 4.5, first=5.5, seen=seen)
    assert not lease.may_take
    watches(lease, 0.5, first=10.5, seen=seen)
    assert lease.may_take


def test_time_without_answers_does_not_count() -> None:
    """The database may have answered the owner as little."""
    lease = follower()
    watches(lease, 1.0)
    lease.saw(sight(), 9.0, 9.1)
    assert not lease.may_take


def test_a_slow_look_counts_from_its_answer() -> None:
    lease = follower()
    lease.saw(sight(), 0, 2)
    for at in (2.0, 4.0, 6.0):
        lease.saw(sight(), at, at)
    assert not lease.may_take
    lease.saw(sight(), 7.0, 7.0)
    assert lease.may_take


def test_the_process_recognizes_its_own_attempt() -> None:
    """The answer to it was lost, and nobody else has this token."""
    lease = follower()
    lease.saw(sight(token="mine"), 0, 0)
    assert lease.may_take


def test_a_process_whose_clock_differs_takes_nothing() -> None:
    lease = follower()
    lease.saw(sight(released=True, offset=-CLOCK_APART - 0.1), 0, 0)
    assert lease.clock_is_apart
    assert not lease.may_take
    lease.saw(sight(released=True, offset=CLOCK_APART - 0.1), 0.5, 0.5)
    assert not lease.clock_is_apart
    assert lease.may_take


def test_lost_writes_are_counted_and_a_release_is_not_trusted_then() -> None:
    lease = follower()
    assert lease.saw(sight(writes=9, epoch=2), 0, 0) == 0
    assert lease.saw(sight(writes=7, epoch=1, view=2, released=True), 0.5, 0.5) == 2
    assert lease.saw(sight(writes=7, epoch=1, view=2, released=True), 1.0, 1.0) == 0
    assert not lease.may_take, "it may be the release of the owner before the last one"
    watches(lease, 5.5, first=1.5, seen=sight(writes=7, epoch=1, view=2, released=True))
    assert lease.may_take


def test_an_owner_only_suspected_is_replaced_once_its_address_refuses() -> None:
    lease = follower()
    watches(lease, 0.5)
    assert not lease.suspects
    lease.died()
    assert not lease.may_take
    watches(lease, 0.5, first=1.0)
    assert lease.suspects
    assert not lease.may_take
    lease.died()
    assert lease.may_take
    lease.saw(sight(2), 2.0, 2.0)
    assert not lease.may_take, "it lives"


@pytest.mark.parametrize("unknown", [None, Owner("a", "", "", "")])
def test_an_owner_without_an_address_is_never_suspected(unknown: Owner | None) -> None:
    lease = follower()
    watches(lease, 3.0, seen=sight(owner=unknown))
    assert not lease.suspects


def test_an_owner_takes_nothing_and_suspects_nobody() -> None:
    lease = owner()
    watches(lease, 10.0)
    assert not lease.may_take
    assert not lease.suspects


# -- an owner ---------------------------------------------------------------------------------------------------------


def test_an_owner_speaks_until_the_margin_before_the_end_of_its_last_beat() -> None:
    lease = owner()
    assert lease.speaks(3.9)
    assert not lease.speaks(4.0)
    lease.answered(2.0)
    assert lease.speaks(5.9)
    assert not lease.speaks(6.0)


def test_an_answer_to_an_earlier_beat_shortens_nothing() -> None:
    lease = owner()
    lease.answered(3.0)
    lease.answered(1.0)
    assert lease.until == 7.0


def test_an_answered_beat_ends_the_silence() -> None:
    lease = owner()
    assert lease.look(4.5) == SILENT
    lease.answered(4.4)
    assert not lease.speaks(4.6), "only look() ends the silence: held output leaves before new output"
    assert lease.look(4.6) == OWNING
    assert lease.speaks(4.6)


def test_a_silent_owner_gives_up_after_its_patience() -> None:
    lease = owner()
    assert lease.look(100.0) == SILENT, "it was suspended: its patience begins when it wakes up"
    assert lease.look(159.9) == SILENT
    assert lease.look(160.0) == GONE
    lease.answered(161.0)
    assert lease.look(161.0) == GONE
    assert not lease.speaks(161.0)


def test_patience_begins_anew_with_each_silence() -> None:
    lease = owner()
    lease.look(10.0)
    lease.answered(50.0)
    lease.look(50.0)
    assert lease.look(60.0) == SILENT
    assert lease.look(119.0) == SILENT


@pytest.mark.parametrize("end", [Lease.refused, Lease.end])
def test_an_owner_that_is_superseded_or_gives_up_is_silent_at_once(end: object) -> None:
    lease = owner()
    end(lease)  # type: ignore[operator]
    assert lease.state == GONE
    assert not lease.speaks(0.1)
    lease.restored(0.2)
    assert lease.state == GONE


def test_the_clock_never_goes_back() -> None:
    first = now()
    assert now() >= first


# -- two of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_an_owner_is_silent_before_a_follower_may_take(seed: int) -> None:
    """Whatever the delays and losses, and whatever times their clocks show."""
    chance = random.Random(seed)
    lease, other = owner(), follower()
    ahead = chance.uniform(-1e6, 1e6)  # the follower's clock
    number, beats = itertools.count(), 1
    events: list[tuple[float, int, Callable[[float], None]]] = []

    def at(time: float, act: Callable[[float], None]) -> None:
        heapq.heappush(events, (time, next(number), act))

    def beat(asked: float) -> None:
        def arrive(time: float) -> None:
            nonlocal beats
            beats += 1
            if chance.random() < 0.8:
                at(time + chance.expovariate(2), lambda _: lease.answered(asked))

        if chance.random() < 0.7:
            at(asked + chance.expovariate(2), arrive)
        at(asked + chance.expovariate(0.7), beat)

    def look(asked: float) -> None:
        def show(time: float) -> None:
            seen = sight(beats)

            def answer(now: float) -> None:
                other.saw(seen, asked + ahead, now + ahead)
                at(now + 0.5, look)

            at(time + chance.random() * 0.3, answer)

        at(asked + chance.random() * 0.3, show)

    beat(0.0)
    look(0.0)
    time = 0.0
    while not (other.may_take and other.seen is not None and other.seen.beat == beats):
        time, _, act = heapq.heappop(events)
        act(time)
    assert not lease.speaks(time)
