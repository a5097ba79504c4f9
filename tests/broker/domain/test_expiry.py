"""Expiry and delivery delay (section 27), and the heap of deadlines."""

from __future__ import annotations

import random

import pytest
from tests.broker.at_once import abandon, close, recover, release

from sievemq_broker.domain import Consumer, DestinationPolicy, Queue
from sievemq_broker.domain.consumer import Held
from sievemq_broker.domain.deadlines import BATCH, SWEPT, Deadlines
from sievemq_broker.domain.entry import GONE, READY, Entry
from sievemq_broker.domain.queue import HELD_BACK_MS
from sievemq_core.limits import MAX_CREDIT
from sievemq_core.message.envelope import TIMESTAMP, Envelope

from .support import NOW, World, message


def queue_of(world: World) -> Queue:
    return world.namespace.queue("queue:q")


def test_exp_03_an_expired_message_is_neither_delivered_nor_browsed(world: World) -> None:
    world.send("queue:q", message("a", expires=NOW + 10), message("b"))
    world.now += 10  # and the timer has not run yet
    assert world.browse("queue:q") == ["b"]
    assert world.got(world.consumer("queue:q")) == ["b"]
    assert (queue_of(world).counts.expired, queue_of(world).depth) == (1, 0)


def test_expired_on_arrival(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", expires=NOW))
    assert world.got(consumer) == []
    assert (queue_of(world).counts.expired, queue_of(world).enqueued) == (1, 1)


def test_exp_05_waiting_messages_are_dropped_in_time(world: World) -> None:
    close(world.consumer("topic:t", subscription="s", durable=True, shared=True), 0, world.now)
    for address in ("queue:q", "topic:t"):
        world.send(address, message("a", expires=NOW + 10), message("b", expires=NOW + 20))
    assert world.broker.due(world.now) == NOW + 10
    world.advance(10)
    subscription = world.namespace.subscriptions.durable[None, "s"].queue
    assert (queue_of(world).depth, subscription.depth) == (1, 1)
    assert (queue_of(world).counts.expired, subscription.counts.expired) == (1, 1)
    assert world.broker.due(world.now) == NOW + 20


def test_exp_05_redelivery_candidates_expire_too(world: World) -> None:
    world.send("queue:q", message("a", expires=NOW + 10), message("b", expires=NOW + 20))
    consumer = world.consumer("queue:q")
    world.advance(10)
    recover(consumer, 2, world.now)
    consumer.grant(5, world.now)
    assert world.counts(consumer)[2:] == [("b", 2)]
    recover(consumer, 3, world.now)
    world.advance(10)
    consumer.grant(5, world.now)
    assert queue_of(world).counts.expired == 2
    assert consumer.unacknowledged == 0


def test_exp_06_delivered_messages_do_not_expire(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", expires=NOW + 10))
    world.advance(50)
    assert consumer.acknowledge(1, world.now) == 1
    assert queue_of(world).counts.expired == 0


def test_exp_07_not_before_its_time(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", at=NOW + 10))
    assert world.browse("queue:q") == []  # BRW-06
    assert len(queue_of(world).scheduled) == 1
    assert world.broker.due(NOW + 9) == NOW + 10
    assert world.got(consumer) == []
    world.advance(10)
    assert world.got(consumer) == ["a"]
    assert world.broker.due(world.now) is None


def test_after_a_restart_a_delayed_message_waits_and_a_delivered_one_does_not(world: World) -> None:
    queue = queue_of(world)
    delayed, delivered = (Entry(0, message(name, at=NOW + 10)) for name in ("delayed", "delivered"))
    delivered.resume(0, 1, 1, NOW)
    queue.restore_all([delayed, delivered], NOW)
    consumer = world.consumer("queue:q")
    assert world.counts(consumer) == [("delivered", 2)]
    world.advance(10)
    assert world.got(consumer) == ["delivered", "delayed"]


def test_removed_delays_have_no_effect_at_their_former_deadline() -> None:
    world = World(("queue:q", DestinationPolicy(redelivery_delay=10)))
    world.send("queue:q", message("a"))
    holder = world.consumer("queue:q")
    abandon(holder, world.now)
    queue = queue_of(world)
    (entry,) = queue.scheduled.values()
    queue.unmark([Held(1, entry, 1, True)], world.now)  # no application had seen it after all (D-32)
    assert world.browse("queue:q") == ["a"]
    world.advance(50)
    assert world.browse("queue:q") == ["a"]
    assert (queue.depth, queue.bytes, queue.counts.expired) == (1, len(entry.envelope.packed), 0)
    assert world.counts(world.consumer("queue:q")) == [("a", 1)]


def test_exp_09_a_later_consumer_may_receive_it(world: World) -> None:
    world.send("queue:q", message("a", at=NOW + 10, properties={"n": 1}))
    consumer = world.consumer("queue:q", "n = 1")
    world.advance(10)
    assert world.got(consumer) == ["a"]


def test_exp_10_a_life_shorter_than_the_delay_means_never(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", at=NOW + 20, expires=NOW + 10))
    world.advance(10)
    assert queue_of(world).counts.expired == 1
    world.advance(10)
    assert world.got(consumer) == []


def test_ord_05_a_delayed_message_arrives_at_its_delivery_time(world: World) -> None:
    world.send("queue:q", message("late", at=NOW + 10), message("early", at=NOW + 5), message("now"))
    world.advance(20)
    assert world.browse("queue:q") == ["now", "early", "late"]


def test_hdr_04_without_a_delay_a_clock_that_is_ahead_is_no_reason_to_wait(world: World) -> None:
    """The sender's clock is an hour ahead."""
    fields = list(message("m").fields)
    fields[TIMESTAMP] = NOW + 3_600_000
    world.send("queue:q", Envelope(tuple(fields)))
    assert world.browse("queue:q") == ["m"]
    consumer = world.consumer("queue:q")
    assert world.got(consumer) == ["m"]


def test_delayed_at_the_same_moment_keep_their_order(world: World) -> None:
    world.send("queue:q", *(message(f"m{n}", at=NOW + 5) for n in range(20)))
    world.advance(5)
    assert world.browse("queue:q") == [f"m{n}" for n in range(20)]


def test_a_crowd_of_deadlines_is_handled_in_portions(world: World) -> None:
    world.send("queue:q", *(message("m", expires=NOW + 5) for _ in range(BATCH + 10)))
    assert world.broker.due(NOW + 5) == NOW + 5
    assert queue_of(world).depth == 10
    assert world.broker.due(NOW + 5) is None
    assert queue_of(world).depth == 0


def test_deadlines_of_consumed_messages_do_not_pile_up(world: World) -> None:
    consumer = world.consumer("queue:q", credit=0)
    for _ in range(100):
        world.send("queue:q", *(message("m", expires=NOW + 100_000) for _ in range(100)))
        consumer.grant(100, world.now)
        consumer.acknowledge(consumer.tag, world.now)
    assert len(world.broker.deadlines) < 3_000


class Moment:
    """A message of which nothing but the deadline matters.

    Attributes:
        looked: how often the state of any of them was read.
    """

    looked = 0

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.now_in = READY

    @property
    def state(self) -> int:
        Moment.looked += 1
        return self.now_in


class Called:
    """Notes which deadlines have passed, in order."""

    def __init__(self) -> None:
        self.passed: list[tuple[int, int]] = []

    def on_deadline(self, entry: Moment, when: int, now: int) -> None:
        self.passed.append((when, entry.sequence))

    def on_jump(self, entry: Moment, by: int) -> None: ...

    def __lt__(self, other: object) -> bool:
        return False


def test_void_deadlines_are_dropped_a_few_at_a_time() -> None:
    deadlines, target, moments = Deadlines(), Called(), [Moment(n) for n in range(20_000)]
    for moment in moments:
        deadlines.push(NOW, target, moment)
    most = 0
    for moment in moments[: 19 * len(moments) // 20]:
        moment.now_in = GONE
        before = Moment.looked
        deadlines.void()
        most = max(most, Moment.looked - before)
    assert most <= SWEPT
    assert len(deadlines) < len(moments) // 5


@pytest.mark.parametrize("seed", range(20))
def test_deadlines_pass_in_order_while_void_ones_are_dropped(seed: int) -> None:
    chance, deadlines, target = random.Random(seed), Deadlines(), Called()
    left: dict[Moment, int] = {}
    expected: list[tuple[int, int]] = []
    now, jumped = 0, 0
    for sequence in range(12_000):
        moment, when = Moment(sequence), now + chance.choice([1, 5, 50])
        left[moment] = when
        deadlines.push(when, target, moment)
        if sequence > 3_000 and chance.random() < 0.9:
            gone = next(iter(left))
            gone.now_in = GONE
            del left[gone]
            deadlines.void()
        if chance.random() < 0.002:
            deadlines.jumped(0)
            jumped += 1
        if chance.random() < 0.001:
            now += 1
            while (due := deadlines.due(now)) is not None and due <= now:
                pass
            passed = sorted((when, moment.sequence) for moment, when in left.items() if when <= now)
            expected += passed
            left = {moment: when for moment, when in left.items() if when > now}
    assert target.passed == expected
    assert jumped


def test_messages_that_expire_together_are_examined_once(world: World) -> None:
    """Each was counted as void, too: half of them in one turn."""
    world.send("queue:q", *(message("m", expires=NOW + 5) for _ in range(10 * BATCH)))
    left = len(world.broker.deadlines)
    while world.broker.due(NOW + 5) is not None:
        assert len(world.broker.deadlines) == left - BATCH
        left -= BATCH
    assert queue_of(world).counts.expired == 10 * BATCH
    assert not world.broker.deadlines._void


def test_a_message_delivered_at_once_has_no_deadline(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", expires=NOW + 10))
    assert len(world.broker.deadlines) == 0
    close(consumer, 0, world.now)
    assert world.broker.due(world.now) == NOW + 10


def test_d33_redelivery_may_be_delayed() -> None:
    policy = DestinationPolicy(redelivery_delay=100, redelivery_factor=2, redelivery_delay_max=300, max_attempts=0)
    world = World(("queue:q", policy))
    consumer: Consumer = world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    for attempt, delay in enumerate((100, 200, 300, 300), 1):
        consumer.acknowledge(consumer.tag - 2, world.now)
        recover(consumer, consumer.tag, world.now)
        consumer.grant(10, world.now)
        world.clear(consumer)
        world.advance(delay - 1)
        assert world.got(consumer) == []
        world.advance(1)
        assert world.counts(consumer) == [("a", attempt + 1), ("b", attempt + 1)]


def test_a_delayed_redelivery_is_delivered_first() -> None:
    world = World(("queue:q", DestinationPolicy(redelivery_delay=100)))
    consumer = world.consumer("queue:q", credit=1)
    world.send("queue:q", "a", "b")
    recover(consumer, 1, world.now)
    world.advance(100)
    assert world.browse("queue:q") == ["a", "b"]


def test_only_handed_messages_are_delayed() -> None:
    world = World(("queue:q", DestinationPolicy(redelivery_delay=100)))
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    recover(consumer, 1, world.now)
    assert world.browse("queue:q") == ["b"]


# -- messages that a client gives back unasked ------------------------------------------------------------------------


def test_exp_05_what_comes_back_as_expired_is_expired_by_the_brokers_clock(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", expires=NOW + 10))
    world.advance(10)
    release(consumer, [1], world.now, unasked=True)
    assert (queue_of(world).counts.expired, queue_of(world).depth, world.got(consumer)) == (1, 0, ["a"])


def test_a_message_that_a_consumer_gives_back_twice_waits_a_moment(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", expires=NOW + 5_000), "b")
    release(consumer, [1], world.now, unasked=True)
    assert world.got(consumer) == ["a", "b", "a"]
    release(consumer, [3], world.now, unasked=True)
    assert len(queue_of(world).scheduled) == 1
    for round_ in range(3):
        other = world.consumer("queue:q")
        world.advance(HELD_BACK_MS - 1)
        assert world.got(other) == []
        close(other, 0, world.now)
        world.advance(1)
        assert world.counts(consumer)[-1] == ("a", 1)  # unmarked: it was only buffered
        release(consumer, [4 + round_], world.now, unasked=True)
    world.advance(5_000)
    assert (queue_of(world).counts.expired, queue_of(world).depth, len(queue_of(world).scheduled)) == (1, 0, 0)


def test_a_message_that_was_held_back_returns_to_its_old_place(world: World) -> None:
    consumer = world.consumer("queue:q", credit=2)
    world.send("queue:q", *"ab")
    release(consumer, [1], world.now, unasked=True)
    consumer.grant(1, world.now)
    release(consumer, [3], world.now, unasked=True)
    world.send("queue:q", *"cd")
    world.advance(HELD_BACK_MS)
    assert world.browse("queue:q") == ["a", "c", "d"]


def test_other_consumers_get_what_one_has_given_back_at_once(world: World) -> None:
    one, other = world.consumer("queue:q", credit=1), world.consumer("queue:q", credit=0)
    world.send("queue:q", "a")
    other.grant(1, world.now)
    release(one, [1], world.now, unasked=True)
    assert world.got(other) == ["a"]


def test_recalled_messages_are_not_held_back(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a")
    for tag in range(1, 5):
        release(consumer, [tag], world.now)
        assert world.got(consumer) == ["a"] * (tag + 1)


def test_a_queue_that_was_deleted_takes_nothing_back(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a")
    queue = queue_of(world)
    release(consumer, [1], world.now, unasked=True)
    world.namespace.delete("queue:q")
    release(consumer, [2], world.now, unasked=True)
    assert (queue.depth, len(queue.scheduled)) == (0, 0)


def test_a_consumer_remembers_a_bounded_number_of_such_messages(world: World) -> None:
    consumer = world.consumer("queue:q")
    consumer._given_back.update(range(1_000_000, 1_000_001 + MAX_CREDIT))
    world.send("queue:q", "a")
    release(consumer, [1], world.now, unasked=True)
    assert len(consumer._given_back) == 1
