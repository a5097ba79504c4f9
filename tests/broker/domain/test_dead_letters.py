"""Dead letters (D-22) and what an administrator does with waiting messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.broker.at_once import abandon, anywhere, done, recover

from sievemq_broker.domain import Consumer, DestinationPolicy, management
from sievemq_broker.domain.dead_letters import REFUSED_DELAY_MS, dead_letter_address
from sievemq_broker.domain.management import Choice
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Budget
from sievemq_core.errors import RequestError
from sievemq_core.limits import MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from sievemq_core.message.dead_letters import (
    ATTEMPTS,
    CLIENT_ID,
    FIRST_FAILURE,
    LAST_FAILURE,
    ORIGIN,
    REASON,
    SUBSCRIPTION,
)
from sievemq_core.message.envelope import PROPERTIES, Envelope

from .support import NOW, World, message, selector


def letters_at(world: World, address: str) -> Queue:
    return world.namespace.queue(address)


def fail(world: World, consumer: Consumer, times: int) -> None:
    """Recover `times` times, letting some time pass between."""
    for _ in range(times):
        recover(consumer, consumer.tag, world.now)
        world.advance(10)
        consumer.grant(100, world.now)


def letters(world: World, address: str) -> list[Envelope]:
    return [envelope for _, envelope in world.namespace.browse(address, None, None, 100, world.now)[1]]


def test_d22_after_six_attempts_a_message_is_a_dead_letter_that_says_why(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", message("a", properties={"n": 1}, expires=NOW + 1_000))
    fail(world, consumer, 5)
    assert world.counts(consumer)[-1] == ("a", 6)
    assert world.browse("queue:DLQ.q") == []
    fail(world, consumer, 1)
    assert world.browse("queue:q") == []
    world.advance(10_000)  # it does not expire any more
    (letter,) = letters(world, "queue:DLQ.q")
    assert letter.properties == {
        "n": 1,
        REASON: "attempts",
        ORIGIN: "queue:q",
        ATTEMPTS: 6,
        FIRST_FAILURE: NOW,
        LAST_FAILURE: NOW + 50,
    }
    assert letter.fields[0] == "a"
    queue = world.namespace.queue("queue:q")
    assert (queue.counts.dead_lettered, queue.depth, queue.in_flight) == (1, 0, 0)


def test_d22_limits_per_pattern_and_none() -> None:
    world = World(
        ("queue:never.*", DestinationPolicy(max_attempts=0)), ("queue:once", DestinationPolicy(max_attempts=1))
    )
    for address in ("queue:never.x", "queue:once"):
        consumer = world.consumer(address)
        world.send(address, "a")
        fail(world, consumer, 10)
        assert len(world.got(consumer)) == (11 if "never" in address else 1)


def test_the_dead_letters_of_a_subscription_name_it() -> None:
    world = World(("topic:t", DestinationPolicy(max_attempts=1)))
    consumer = world.consumer("topic:t", subscription="s", durable=True, client_id="id")
    other = world.consumer("topic:t")
    world.send("topic:t", "a")
    fail(world, consumer, 1)
    (letter,) = letters(world, "queue:DLQ.t")
    assert [letter.properties[name] for name in (ORIGIN, SUBSCRIPTION, CLIENT_ID)] == ["topic:t", "s", "id"]
    assert world.got(other) == ["a"]
    assert (
        done(
            world.now, management.retry, world.namespace, anywhere, world.namespace.queue("queue:DLQ.t"), Choice()
        ).touched
        == 1
    )
    assert world.counts(consumer) == [("a", 1), ("a", 1)]
    assert world.got(other) == ["a"]  # the others have had it


def test_the_dead_letter_of_a_consumer_without_a_subscription_of_its_own_is_not_published_again() -> None:
    world = World(("topic:t", DestinationPolicy(max_attempts=1)))
    consumer, other = world.consumer("topic:t"), world.consumer("topic:t")
    world.send("topic:t", "a")
    fail(world, consumer, 1)
    outcome = done(
        world.now, management.retry, world.namespace, anywhere, world.namespace.queue("queue:DLQ.t"), Choice()
    )
    assert (outcome.touched, outcome.skipped) == (0, 1)
    assert world.browse("queue:DLQ.t") == ["a"]
    assert world.got(other) == ["a"]


def test_the_time_to_live_of_a_rule_begins_when_a_message_becomes_a_dead_letter() -> None:
    world = World(
        ("queue:q", DestinationPolicy(max_attempts=1)), ("queue:DLQ.*", DestinationPolicy(time_to_live=1_000))
    )
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a")
    world.advance(5_000)
    fail(world, consumer, 1)
    world.advance(900)
    assert world.browse("queue:DLQ.q") == ["a"]
    world.advance(1_000)
    assert world.browse("queue:DLQ.q") == []


def test_repeated_failures_keep_messages_in_the_dead_letter_queue(world: World) -> None:
    world.send("queue:DLQ.q", "a")
    consumer = world.consumer("queue:DLQ.q")
    fail(world, consumer, 20)
    assert len(world.got(consumer)) == 21
    assert dead_letter_address("queue:DLQ.q") is None


def test_temporary_destinations_share_a_dead_letter_queue() -> None:
    assert dead_letter_address("temporary-queue:c1.5") == "queue:DLQ.temporary-queue"
    assert dead_letter_address("queue:" + "x" * 512) == "queue:DLQ." + "x" * 508


def test_a_message_stays_while_its_dead_letter_queue_is_full() -> None:
    world = World(("queue:DLQ.*", DestinationPolicy(max_messages=1)), ("queue:q", DestinationPolicy(max_attempts=1)))
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    fail(world, consumer, 1)
    assert world.browse("queue:DLQ.q") == ["a"]
    queue = world.namespace.queue("queue:q")
    assert (queue.counts.dead_lettered, queue.counts.dead_refused) == (1, 1)
    world.send("queue:q", "c")
    assert world.counts(consumer)[-1] == ("c", 1), "those behind it go on"
    world.advance(REFUSED_DELAY_MS - 10 - 1)  # ten have passed in `fail`
    assert world.counts(consumer)[-1] == ("c", 1)
    world.advance(1)
    assert world.counts(consumer)[-1] == ("b", 2)


def test_a_message_stays_until_its_dead_letter_queue_is_created() -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=1)), auto_create=False)
    queue = world.namespace.create("queue:q")
    assert isinstance(queue, Queue)
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a")
    fail(world, consumer, 1)
    assert (queue.counts.dead_lettered, queue.counts.dead_refused) == (0, 1)
    world.namespace.create("queue:DLQ.q")
    world.advance(REFUSED_DELAY_MS)
    fail(world, consumer, 1)
    assert world.browse("queue:DLQ.q") == ["a"]


def test_a_full_dead_letter_queue_does_not_shorten_the_delay_of_the_rule() -> None:
    rule = DestinationPolicy(max_attempts=1, redelivery_delay=REFUSED_DELAY_MS + 5)
    world = World(("queue:DLQ.*", DestinationPolicy(max_messages=1)), ("queue:q", rule))
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    fail(world, consumer, 1)
    world.advance(REFUSED_DELAY_MS + 5 - 10 - 1)
    assert world.counts(consumer)[-1] == ("b", 1)
    world.advance(1)
    assert world.counts(consumer)[-1] == ("b", 2)


def test_a_failed_dead_letter_is_redelivered_at_once() -> None:
    world = World(("queue:DLQ.q", DestinationPolicy(max_attempts=1)))
    consumer = world.consumer("queue:DLQ.q")
    world.send("queue:DLQ.q", "a")
    fail(world, consumer, 1)
    assert world.counts(consumer)[-1] == ("a", 2)
    assert world.namespace.queue("queue:DLQ.q").counts.dead_refused == 0


def test_undecodable_properties_are_kept_as_they_are() -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=1)))
    consumer = world.consumer("queue:q")
    bad = message("bad", properties=(b"\xc1", None))
    world.send("queue:q", bad)
    fail(world, consumer, 1)
    (letter,) = letters(world, "queue:DLQ.q")
    assert letter.fields[9] == b"\xc1"
    outcome = done(
        world.now, management.retry, world.namespace, anywhere, world.namespace.queue("queue:DLQ.q"), Choice()
    )
    assert (outcome.matched, outcome.touched, outcome.skipped) == (1, 0, 1)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({f"p{number}": number for number in range(MAX_PROPERTIES)}, id="many"),
        pytest.param({f"p{number}": "x" * 10_400 for number in range(25)}, id="large"),
    ],
)
def test_a_full_message_loses_its_own_last_properties_to_the_notes(own: dict[str, Any]) -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=1)))
    consumer = world.consumer("queue:q")
    filler = MAX_PROPERTIES_BYTES - len(message(properties=own).fields[PROPERTIES])
    full = own if len(own) == MAX_PROPERTIES else {**own, "last": "y" * (filler - 20)}
    world.send("queue:q", message("a", properties=full))
    fail(world, consumer, 1)
    (letter,) = letters(world, "queue:DLQ.q")
    notes = {REASON: "attempts", ORIGIN: "queue:q", ATTEMPTS: 1, FIRST_FAILURE: NOW, LAST_FAILURE: NOW}
    kept = {name: value for name, value in letter.properties.items() if name in full}
    assert letter.properties == {**kept, **notes}
    assert list(kept.items()) == list(full.items())[: len(kept)]
    assert len(full) > len(kept) >= len(full) - len(notes)
    assert len(letter.properties) <= MAX_PROPERTIES
    assert len(letter.fields[PROPERTIES]) <= MAX_PROPERTIES_BYTES


def test_expired_messages_may_be_dead_lettered() -> None:
    world = World(("queue:q", DestinationPolicy(dead_letter_expired=True)))
    world.send("queue:q", message("a", expires=NOW + 5))
    world.advance(5)
    (letter,) = letters(world, "queue:DLQ.q")
    assert (letter.properties[REASON], letter.properties[ATTEMPTS], letter.expiration) == ("expired", 0, 0)
    assert FIRST_FAILURE not in letter.properties


def test_a_crashing_client_does_not_dead_letter_buffered_messages() -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=3)))
    world.send("queue:q", *"abc")
    for _ in range(4):
        abandon(world.consumer("queue:q"), world.now)
    assert world.browse("queue:DLQ.q") == ["a"]
    (a,) = world.namespace.queue("queue:DLQ.q").main.waits(-1, 9)
    assert a.envelope.properties["JMS_SieveMQ_DeadLetterAttempts"] == 3
    assert world.counts(world.consumer("queue:q")) == [("b", 5), ("c", 5)]


def test_retry_removes_the_dead_letter_properties() -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=1)))
    consumer = world.consumer("queue:q")
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(4)))
    fail(world, consumer, 1)
    world.clear(consumer)
    dlq = world.namespace.queue("queue:DLQ.q")
    outcome = done(world.now, management.retry, world.namespace, anywhere, dlq, Choice(selector("n > 0"), limit=2))
    assert (outcome.touched, outcome.more) == (2, True)
    assert world.counts(consumer) == [("m1", 1), ("m2", 1)]
    assert [entry.envelope.properties for entry in consumer.window if entry is not None] == [{"n": 1}, {"n": 2}]
    assert world.browse("queue:DLQ.q") == ["m0", "m3"]
    world.send("queue:DLQ.q", "stranger")
    assert done(world.now, management.retry, world.namespace, anywhere, dlq, Choice()).skipped == 1
    assert world.browse("queue:DLQ.q") == ["stranger"]


class TestManagement:
    @staticmethod
    def world(count: int = 10, **policy: int) -> World:
        world = World(("queue:small", DestinationPolicy(**policy)))
        world.send("queue:q", *(message(f"m{n}", properties={"n": n}, priority=4 + n % 2) for n in range(count)))
        return world

    def test_remove_by_selector_up_to_a_limit(self) -> None:
        world = self.world()
        queue = world.namespace.queue("queue:q")
        counted = done(NOW, management.remove, queue, Choice(selector("n < 5"), limit=3, dry_run=True))
        assert (counted.matched, counted.touched, counted.more, queue.depth) == (3, 0, True, 10)
        outcome = done(NOW, management.remove, queue, Choice(selector("n < 5"), limit=3))
        assert (outcome.touched, outcome.more, queue.counts.removed) == (3, True, 3)
        assert world.browse("queue:q") == ["m5", "m7", "m9", "m2", "m4", "m6", "m8"]
        outcome = done(NOW, management.remove, queue, Choice(selector("n < 5"), limit=9))
        assert (outcome.touched, outcome.more) == (2, False)
        assert world.browse("queue:q", "n < 5") == []
        assert world.got(world.consumer("queue:q")) == ["m5", "m7", "m9", "m6", "m8"]

    def test_purge(self) -> None:
        world = self.world()
        world.send("queue:q", message("later", at=NOW + 5))
        held = world.consumer("queue:q", credit=1)
        assert world.namespace.queue("queue:q").clear() == 10
        assert world.browse("queue:q") == []
        world.advance(5)
        assert world.browse("queue:q") == []
        recover(held, 1, world.now)
        assert world.browse("queue:q") == ["m1"]

    def test_move_leaves_nothing_behind_and_copy_everything(self) -> None:
        world = self.world()
        queue = world.namespace.queue("queue:q")
        assert done(NOW, management.copy, world.namespace, "queue:r", queue, Choice(selector("n = 3"))).touched == 1
        assert done(NOW, management.move, world.namespace, "queue:r", queue, Choice(selector("n > 7"))).touched == 2
        assert world.browse("queue:r") == ["m3", "m9", "m8"]
        assert world.browse("queue:q", "n = 3 OR n > 7") == ["m3"]
        with pytest.raises(RequestError, match="is the source of the messages"):
            management.move(world.namespace, "q", queue, Choice(), NOW, Budget())
        with pytest.raises(RequestError, match="would be lost"):
            management.move(world.namespace, "topic:t", queue, Choice(), NOW, Budget())

    def test_a_target_that_is_full_stops_it_and_nothing_is_lost(self) -> None:
        world = self.world(max_messages=2)
        queue = world.namespace.queue("queue:q")
        outcome = done(NOW, management.move, world.namespace, "queue:small", queue, Choice())
        assert (outcome.matched, outcome.touched, outcome.more) == (2, 2, True)
        assert outcome.stopped is not None
        assert "max_messages" in outcome.stopped.text
        assert (len(world.browse("queue:small")), len(world.browse("queue:q"))) == (2, 8)
        with pytest.raises(RequestError, match="max_messages"):
            done(NOW, management.move, world.namespace, "queue:small", queue, Choice())
        assert len(world.browse("queue:q")) == 8

    def test_scheduled_messages_are_listed_and_cancelled(self) -> None:
        world = self.world(0)
        world.send("queue:q", *(message(f"m{n}", at=NOW + 5, properties={"n": n}) for n in range(4)))
        queue = world.namespace.queue("queue:q")
        found, more = done(NOW, management.scheduled, queue, selector("n > 1"), (-1, -1), 10)
        assert [entry.envelope.fields[0] for entry in found] == ["m2", "m3"]
        assert more is None
        first, more = done(NOW, management.scheduled, queue, None, (-1, -1), 3)
        assert more is not None
        rest, end = done(NOW, management.scheduled, queue, None, more, 3)
        assert [entry.sequence for entry in first + rest] == [1, 2, 3, 4]
        assert end is None
        assert done(NOW, management.cancel, queue, Choice(ids=frozenset({found[0].sequence, 99}))).touched == 1
        world.advance(5)
        assert world.browse("queue:q") == ["m0", "m1", "m3"]
        assert queue.bytes == sum(len(message(f"m{n}", at=NOW + 5, properties={"n": n})) for n in (0, 1, 3))

    def test_a_slice_is_bounded(self) -> None:
        world = self.world(12_000)
        queue = world.namespace.queue("queue:q")
        scheduler = world.broker.scheduler
        job = scheduler.start("remove", partial(management.remove, queue, Choice(selector("n = 11999"))), NOW)
        slices = 1
        while scheduler.run(NOW):
            slices += 1
        assert job.result.touched == 1
        assert slices >= 24
