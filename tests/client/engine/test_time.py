"""Whose clock it is: the broker's time at the client, and the time limits of calls."""

from __future__ import annotations

from math import inf

import pytest

from sievemq._engine import EngineOptions, Terms, TimeLimit
from sievemq_core.wire.commands import Command

from .harness import NOW, Clock, FakeBroker

HEARTBEAT = 1_000


def late(broker: FakeBroker, ms: int) -> None:
    """Time goes on at the client."""
    broker.clock.now += ms


@pytest.mark.parametrize(
    ("ahead", "skew"),
    [
        (0, 0),
        (30, 0),  # the broker read its clock when the question had taken 30 of the 50 ms
        (50, 0),
        (51, 1),  # later than the answer: the broker's clock is ahead
        (-1, -51),  # earlier than the question: behind, and no less than the answer allows
        (600_000, 599_950),
        (-600_000, -600_050),
    ],
)
def test_the_own_clock_is_believed_unless_the_broker_contradicts_it(ahead: int, skew: int) -> None:
    broker = FakeBroker()
    late(broker, 50)
    broker.welcome(time=NOW + ahead)
    assert broker.engine.terms.skew == skew
    assert broker.engine.terms.now() == NOW + 50 + skew


@pytest.mark.parametrize("time", [None, "soon", 1.5, True])
def test_a_broker_that_tells_no_time_changes_nothing(time: object) -> None:
    broker = FakeBroker()
    broker.welcome(time=time)
    assert broker.engine.terms.now() == NOW


def test_a_skew_is_kept_while_answers_allow_it_and_goes_with_its_cause() -> None:
    terms = Terms(EngineOptions(), Clock())
    terms.see_time(NOW + 5_000, NOW)
    assert terms.skew == 5_000
    terms.see_time(NOW + 5_010, NOW - 20)  # between 5,010 and 5,030 ms: no less than that
    assert terms.skew == 5_010
    terms.see_time(NOW + 5_000, NOW - 20)
    assert terms.skew == 5_010
    terms.see_time(NOW - 1, NOW - 20)  # a clock was corrected
    assert terms.skew == 0


def test_the_broker_is_asked_for_its_time_every_few_intervals() -> None:
    broker = FakeBroker(EngineOptions(heartbeat=HEARTBEAT))
    broker.welcome()
    pings = []
    for interval in range(1, 14):
        broker.engine.tick(interval * HEARTBEAT)
        broker.say(Command.HEARTBEAT)
        asked = [command for command in broker.heard() if command[0] == Command.PING]
        if asked:
            pings.append(interval)
            broker.clock.now += 10  # its answer takes so long
            broker.say(Command.OK, asked[0][1], broker.clock.now + 7_000)
    assert pings == [5, 9, 13]
    assert broker.engine.terms.skew == 7_000


def test_an_answer_to_an_earlier_question_is_not_taken_for_the_time_of_a_later_one() -> None:
    broker = FakeBroker(EngineOptions(heartbeat=HEARTBEAT))
    broker.welcome()
    asked = []
    for interval in range(1, 10):
        broker.engine.tick(interval * HEARTBEAT)
        broker.say(Command.HEARTBEAT)
        broker.clock.now += HEARTBEAT
        asked += [command for command in broker.heard() if command[0] == Command.PING]
    broker.say(Command.OK, asked[0][1], NOW + 1_000_000)
    assert broker.engine.terms.skew == 0
    broker.say(Command.OK, asked[1][1], broker.clock.now + 3)
    assert broker.engine.terms.skew == 3


def test_times_of_messages_are_the_brokers() -> None:
    broker = FakeBroker()
    broker.welcome(time=NOW - 60_000)
    producer = broker.producer(broker.session())
    broker.clock.now += 5
    assert producer.session.terms.now() == NOW - 60_000 + 5


def test_exp_03_a_client_whose_clock_is_ahead_takes_nothing_for_expired_that_lives() -> None:
    broker = FakeBroker()
    broker.welcome(time=NOW - 60_000)
    consumer = broker.consumer(broker.session())
    broker.deliver(consumer, 1, expiration=NOW - 59_000)
    broker.deliver(consumer, 2, expiration=NOW - 60_000)
    assert consumer.take() is not None
    assert consumer.take() is None


def test_a_frozen_clock_stands_still_for_the_client_too() -> None:
    broker = FakeBroker()
    broker.welcome(time=NOW, clock_offset=5_000, frozen_at=NOW + 5_000, moved_at=NOW)
    terms = broker.engine.terms
    broker.clock.now += 70_000
    assert terms.now() == NOW + 5_000
    broker.say(Command.CLOCK, 1_000, NOW + 71_000)
    assert terms.now() == NOW + 71_000
    broker.clock.now += 1_000
    assert terms.now() == NOW + 71_000
    broker.say(Command.CLOCK, 2_000)
    assert terms.now() == broker.clock.now + 2_000


# -- time limits ------------------------------------------------------------------------------------------------------


def test_a_limit_without_a_timeout_never_ends() -> None:
    terms = Terms(EngineOptions(), Clock())
    assert TimeLimit(terms, 5.0, None).left(1e9) == inf
    assert TimeLimit(terms, 5.0, 0).left(1e9) == inf


def test_steps_of_the_clock_count_once_a_call_has_begun() -> None:
    terms = Terms(EngineOptions(), Clock())
    terms.move_clock(7_000, None)
    limit = TimeLimit(terms, 5.0, 30_000)
    assert limit.left(6.0) == 29.0
    terms.move_clock(17_000, None)
    assert limit.left(6.0) == 19.0
    terms.move_clock(0, None)  # back
    assert limit.left(6.0) == 19.0
    assert not limit.must_look


def test_a_step_while_the_connection_was_lost_counts_for_calls_that_had_begun_before_it() -> None:
    clock = Clock()
    terms = Terms(EngineOptions(), clock)
    welcome = (Command.WELCOME, 1, "b", "i", "c", 0, {})
    terms.welcome((*welcome, {"time": NOW, "clock_offset": 0, "moved_at": 0}), NOW)
    before = TimeLimit(terms, 0.0, 30_000)
    clock.now += 2_000
    after = TimeLimit(terms, 2.0, 30_000)
    clock.now += 1_000
    features = {"time": clock.now, "clock_offset": 10_000, "moved_at": NOW + 1_000}
    assert terms.welcome((*welcome, features), clock.now)
    assert (before.left(3.0), before.must_look) == (17.0, True)
    assert (after.left(3.0), after.must_look) == (29.0, True)
    later = TimeLimit(terms, 3.0, 30_000)
    assert (later.left(3.0), later.must_look) == (30.0, False)
