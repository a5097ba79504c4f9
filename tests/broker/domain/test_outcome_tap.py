"""A tap of outcomes: what became of each message, when, why, and who took it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.broker.at_once import anywhere, close, done, recover
from tests.broker.domain.support import World, message, selector

from sievemq_broker.domain import DestinationPolicy, management
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.outcome_tap import OutcomeTap
from sievemq_broker.domain.work import TURN, Budget, Task
from sievemq_core.message import outcomes
from sievemq_core.message.envelope import MESSAGE_ID, TIMESTAMP, Envelope
from sievemq_core.wire.codec import unpack_value


def nothing(now: int, budget: Budget) -> Task[None]:
    return
    yield


NAMES = (outcomes.OUTCOME, outcomes.OUTCOME_REASON, outcomes.SELECTOR, outcomes.OUTCOME_SUBSCRIPTION)


class Watched(World):
    """A world with a tap of outcomes."""

    def __init__(self, address: str = "queue:q", text: str | None = None, **policy: Any) -> None:
        super().__init__((address, DestinationPolicy(**policy)))
        tap = self.namespace.taps.open("maker", "t", address, "outcomes", selector(text), {}, self.now)
        assert isinstance(tap, OutcomeTap)
        self.tap = tap

    def records(self) -> list[Envelope]:
        """What it holds, as if fetched."""
        found = self.tap.fetch(self.tap.id, 0, self.tap.look(0, 0, 0, self.now)[0], 1_000, 1 << 20, self.now)
        return [Envelope(tuple(unpack_value(item.packed))) for item in found]

    def said(self) -> list[tuple[str, ...]]:
        """Name of each message, and what became of it; without what is not there."""
        return [
            (str(each.fields[MESSAGE_ID]), *(str(each.properties[name]) for name in NAMES if name in each.properties))
            for each in self.records()
        ]

    def times(self) -> list[int]:
        self.tap.hear(self.now)
        return [item.time for item in self.tap.log.slice(0, self.tap.log.last, 0, 0)]


@pytest.fixture
def world() -> Watched:
    return Watched()


def test_the_acknowledging_consumer_and_time_are_shown(world: Watched) -> None:
    chosen = world.consumer("queue:q", "n = 1")
    world.send("queue:q", message("a", properties={"n": 1}), message("b", properties={"n": 2}))
    plain = world.consumer("queue:q")
    assert world.said() == []
    world.advance(1_000)
    plain.acknowledge(1, world.now)
    world.work()  # the turn ends
    world.advance(500)
    chosen.acknowledge(1, world.now)
    assert world.said() == [("b", "acknowledged"), ("a", "acknowledged", "n = 1")]
    assert world.times() == [world.now - 500, world.now]
    first = world.records()[0]
    assert first.fields[TIMESTAMP] == message("b").fields[TIMESTAMP]
    assert first.properties[outcomes.OUTCOME_ATTEMPTS] == 1
    assert first.fields[-1] is None  # no body


def test_the_time_is_that_of_the_turn(world: Watched) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    consumer.acknowledge(1, world.now)
    world.work()  # as a turn ends
    before = world.now
    world.now += 5_000
    consumer.acknowledge(2, world.now)
    world.broker.work(world.now)
    world.now += 5_000
    assert world.times() == [before, before + 5_000]


def test_expired_and_dead_lettered() -> None:
    world = Watched(max_attempts=2)
    world.send("queue:q", message("old", expires=world.now + 10))
    world.send("queue:q", message("late", expires=world.now - 1))
    world.advance(10)
    assert world.said() == [("late", "expired"), ("old", "expired")]
    consumer = world.consumer("queue:q", credit=1)
    world.send("queue:q", "bad")
    for tag in (1, 2):
        recover(consumer, tag, world.now)
        consumer.grant(1, world.now)
    assert world.said()[2:] == [("bad", "dead-lettered", "attempts")]
    assert world.records()[-1].properties[outcomes.OUTCOME_ATTEMPTS] == 2


def test_an_expired_dead_letter_has_one_outcome() -> None:
    world = Watched(dead_letter_expired=True)
    world.send("queue:q", message("old", expires=world.now + 10))
    world.advance(10)
    assert world.said() == [("old", "dead-lettered", "expired")]


@pytest.mark.parametrize(("rule", "name", "reason"), [("drop-oldest", "a", "oldest"), ("drop-newest", "c", "newest")])
def test_dropped_at_a_limit(rule: str, name: str, reason: str) -> None:
    world = Watched(max_messages=2, at_limit=rule)
    world.send("queue:q", "a", "b", "c")
    assert world.said() == [(name, "dropped", reason)]


def test_removed_by_an_administrator_or_with_its_queue(world: Watched) -> None:
    queue = world.namespace.queue("queue:q")
    world.send("queue:q", "moved", "purged", "left")
    done(world.now, management.move, world.namespace, "queue:other", queue, management.Choice(limit=1))
    done(world.now, management.purge, queue, management.Choice(limit=1))
    assert world.said() == [("moved", "removed", "moved"), ("purged", "removed", "purged")]
    queue.clear()
    assert world.said()[2:] == [("left", "removed", "purged")]


def test_a_dead_letter_that_is_sent_back() -> None:
    world = Watched("queue:DLQ.q")
    consumer = world.consumer("queue:q", credit=1)
    world.send("queue:q", "bad")
    for tag in range(1, 7):
        recover(consumer, tag, world.now)
        consumer.grant(1, world.now)
    done(
        world.now,
        management.retry,
        world.namespace,
        anywhere,
        world.namespace.queue("queue:DLQ.q"),
        management.Choice(),
    )
    assert world.said() == [("bad", "removed", "retried")]


def test_each_subscription_of_a_topic_has_its_own() -> None:
    world = Watched("topic:t")
    before = world.consumer("topic:t", subscription="s", durable=True, client_id="me")
    after = world.consumer("topic:t", "n = 1")
    world.send("topic:t", message("a", properties={"n": 1}))
    before.acknowledge(1, world.now)
    after.acknowledge(1, world.now)
    assert world.said() == [("a", "acknowledged", "s"), ("a", "acknowledged")]
    world.namespace.taps.drop(world.tap, world.now)
    world.send("topic:t", message("b", properties={"n": 1}))
    before.acknowledge(2, world.now)
    assert len(world.tap.log) == 2


def test_only_matching_messages_have_outcomes() -> None:
    world = Watched(text="n > 1")
    consumer = world.consumer("queue:q")
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(4)))
    world.send("queue:q", message("broken", properties=(b"\x01", None)))
    consumer.acknowledge(5, world.now)
    assert [said[0] for said in world.said()] == ["m2", "m3"]


def test_dropping_taps_ends_their_observation(world: Watched) -> None:
    """Ended, it costs nothing: the queue is on its direct path again, and who else observes goes on."""
    copy = world.namespace.taps.open("maker", "c", "queue:q", "copy", None, {}, world.now)
    second = world.namespace.taps.open("maker", "o", "queue:q", "outcomes", None, {}, world.now)
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    world.namespace.taps.drop(copy, world.now)
    consumer.acknowledge(1, world.now)
    assert [said[0] for said in world.said()] == ["a"]
    world.namespace.taps.drop(world.tap, world.now)
    consumer.acknowledge(2, world.now)
    second.hear(world.now)
    assert len(second.log) == 2
    world.namespace.taps.drop(second, world.now)
    queue = world.namespace.queue("queue:q")
    assert queue.observers == ()


def test_a_full_outcome_tap_drops_its_oldest_records(world: Watched) -> None:
    world.namespace.taps.open("maker", "t", "queue:q", "outcomes", None, {"retain_messages": 2}, world.now)
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a", "b", "c")
    consumer.acknowledge(3, world.now)
    assert [said[0] for said in world.said()] == ["b", "c"]
    assert (world.tap.lost, world.tap.missed) == (1, 1)


def test_many_different_selectors(world: Watched) -> None:
    """Packed properties are kept, not without end."""
    for number in range(300):
        consumer = world.consumer("queue:q", f"n = {number}")
        world.send("queue:q", message(f"m{number}", properties={"n": number}))
        consumer.acknowledge(1, world.now)
        close(consumer, 1, world.now)
    world.work()
    assert world.said()[-1] == ("m299", "acknowledged", "n = 299")


def test_outcomes_are_recorded_in_slices_before_other_tasks_go_on(world: Watched) -> None:
    """A journal waits for them, so it waits no longer than it must."""
    journal = Journal()
    world.broker.keep_in(journal)
    consumer = world.consumer("queue:q", credit=TURN)
    world.send("queue:q", *(f"m{number}" for number in range(TURN)))
    other = world.broker.scheduler.start("other", nothing, world.now, later=True)
    consumer.acknowledge(TURN, world.now)
    assert journal.holds == 1
    world.broker.due(world.now)
    assert not len(world.tap.log), "due() records no outcome: a task does"
    lengths = [0]
    world.broker.work(world.now)
    assert other.over
    again = world.broker.scheduler.start("other", nothing, world.now, later=True)
    while journal.holds:
        assert not again.over
        lengths.append(len(world.tap.log))
        assert world.broker.work(world.now)
    world.broker.work(world.now)
    assert again.over
    lengths.append(len(world.tap.log))
    assert lengths[-1] == TURN
    assert max(after - before for before, after in pairwise(lengths)) <= TURN // 2
