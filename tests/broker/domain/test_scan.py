"""A selector that is new on a deep queue: found in order, in slices, or from an index (D-17)."""

from __future__ import annotations

from functools import partial
from itertools import chain, pairwise
from typing import Any

import pytest
from tests.broker.at_once import close, recover, release

from sievemq_broker.domain import Queue, management
from sievemq_broker.domain import backlog as backlog_module
from sievemq_broker.domain.work import TURN

from .support import World, message
from .support import selector as compiled


def fill(world: World, count: int, **how: object) -> None:
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}, **how) for n in range(count)))


def compact(queue: Queue) -> None:
    for holder in (queue.main, *queue.backlog.views.values(), *queue.backlog.lookups.values()):
        for _ in holder.compaction():
            pass


def test_a_match_behind_many_others_is_found(world: World) -> None:
    fill(world, 3_000)
    consumer = world.consumer("queue:q", "n = 2999")
    assert world.got(consumer) == []
    world.work()
    assert world.got(consumer) == ["m2999"]


def test_a_small_backlog_is_scanned_in_one_turn(world: World) -> None:
    fill(world, 900)
    assert world.got(world.consumer("queue:q", "n >= 898")) == ["m898", "m899"]
    assert not world.broker.work(world.now)


def test_a_scan_runs_in_bounded_steps_and_delivers_matches_early(world: World) -> None:
    fill(world, 3_000)
    consumer = world.consumer("queue:q", "n = 1500 OR n = 2500")
    assert world.broker.work(world.now, 600)
    assert world.got(consumer) == ["m1500"]
    assert world.broker.work(world.now, 600)
    assert world.got(consumer) == ["m1500"]
    assert not world.broker.work(world.now, 900)
    assert world.got(consumer) == ["m1500", "m2500"]


def test_what_a_scan_finds_is_delivered_within_the_same_budget(world: World) -> None:
    fill(world, 3_000)
    consumers = [world.consumer("queue:q", "n * 2 >= 400", credit=3_000) for _ in range(2)]  # in turn: one by one
    shares = [sum(len(world.got(consumer)) for consumer in consumers)]
    while world.broker.work(world.now, 300):
        shares.append(sum(len(world.got(consumer)) for consumer in consumers))
    assert max(later - earlier for earlier, later in pairwise(shares)) < 300
    assert world.broker.scheduler.overrun < 20
    got = [[int(name[1:]) for name in world.got(consumer)] for consumer in consumers]
    assert got == [sorted(numbers) for numbers in got]
    assert sorted(chain(*got)) == list(range(200, 3_000))


def test_arrivals_during_a_scan_keep_the_order(world: World) -> None:
    fill(world, 2_000)
    consumer = world.consumer("queue:q", "n >= 1999")
    world.send("queue:q", message("late", properties={"n": 5_000}))
    world.send("queue:q", message("urgent", properties={"n": 5_000}, priority=9))
    assert world.got(consumer) == ["urgent"]  # all of priority 9 has been looked through
    world.work()
    assert world.got(consumer) == ["urgent", "m1999", "late"]


def test_messages_returned_during_a_scan_keep_the_order(world: World) -> None:
    fill(world, 3_000)
    plain = world.consumer("queue:q", credit=10)
    far = world.consumer("queue:q", "n * 1 = 2900")
    world.work()
    consumer = world.consumer("queue:q", "n * 1 = 1 OR n * 1 = 2800 OR n * 1 = 2900")
    release(far, [1], world.now)
    close(far, 1, world.now)
    assert world.got(consumer) == []  # 2800 has still to be found
    release(plain, [2], world.now)
    assert world.got(consumer) == ["m1"]  # nothing can come before it
    world.work()
    assert world.got(consumer) == ["m1", "m2800", "m2900"]


def test_a_second_consumer_with_the_same_selector_costs_no_scan(world: World) -> None:
    fill(world, 2_000)
    first = world.consumer("queue:q", "n > 1000")
    world.work()
    before = first.view.evaluations
    second = world.consumer("queue:q", "n > 1000")
    assert second.view is first.view
    assert first.view.evaluations == before
    assert world.got(second)[0] == "m1101"


def test_want_is_answered_when_the_scan_has_ended(world: World) -> None:
    fill(world, 2_000)
    hit, miss = world.consumer("queue:q", "n = 1999", credit=0), world.consumer("queue:q", "n = -1", credit=0)
    assert not hit.want(world.now)
    assert not miss.want(world.now)
    world.work(300)
    assert world.got(hit) == ["m1999"]
    assert world.port(hit).events == ["deliver", "settled"]
    assert world.port(miss).settlements == [miss.id]


def test_after_the_scan_a_waiting_consumer_still_gets_what_others_have_buffered(world: World) -> None:
    world.send("queue:q", message("hit", properties={"n": -7}))
    idle = world.consumer("queue:q", credit=1)
    fill(world, 2_000)
    waiter = world.consumer("queue:q", "n = -7", credit=0)
    assert not waiter.want(world.now)
    world.work()
    assert world.port(idle).recalls == [(idle.id, [1])]
    release(idle, [1], world.now)
    assert world.got(waiter) == ["hit"]


def test_a_consumer_that_leaves_ends_its_scan(world: World) -> None:
    fill(world, 2_000)
    consumer = world.consumer("queue:q", "n * 1 = 1999")
    close(consumer, 0, world.now)
    assert world.namespace.queue("queue:q").backlog.scans == []
    assert not world.broker.work(world.now)


def test_scans_of_several_selectors_and_queues_all_end(world: World) -> None:
    fill(world, 1_500)
    world.send("queue:r", *(message(f"r{n}", properties={"n": n}) for n in range(1_500)))
    consumers = [world.consumer("queue:q", f"n = {n}") for n in (1_400, 1_450)]
    other = world.consumer("queue:r", "n = 1400")
    world.work(700)
    assert [world.got(consumer) for consumer in (*consumers, other)] == [["m1400"], ["m1450"], ["r1400"]]


class TestIndexedHeaders:
    """D-17: equality on the two ids is answered from an index, built when it is first asked for, then kept."""

    @staticmethod
    def fill(world: World, start: int = 0, count: int = 3_000) -> None:
        world.send("queue:q", *(message(f"m{n}", correlation_id=f"c{n}") for n in range(start, start + count)))

    def test_the_first_builds_it_and_the_next_opens_at_once(self) -> None:
        world = World()
        self.fill(world)
        first = world.consumer("queue:q", "JMSCorrelationID = 'c2900'")
        world.work()
        assert world.got(first) == ["m2900"]
        second = world.consumer("queue:q", "JMSCorrelationID = 'c17' AND JMSPriority = 4")
        assert world.got(second) == ["m17"]
        assert second.view.evaluations == 1
        assert not world.broker.work(world.now)

    def test_a_lookup_is_updated_by_later_messages(self) -> None:
        world = World()
        self.fill(world)
        close(world.consumer("queue:q", "JMSCorrelationID = 'c0'"), 0, world.now)
        world.work()
        self.fill(world, 3_000, 10)
        taker = world.consumer("queue:q", credit=2_000)
        assert world.got(world.consumer("queue:q", "JMSCorrelationID = 'c3005'")) == ["m3005"]
        held = world.consumer("queue:q", "JMSCorrelationID = 'c5'")
        assert world.got(held) == []
        close(held, 0, world.now)
        recover(taker, 10, world.now)
        again = world.consumer("queue:q", "JMSCorrelationID = 'c5' OR JMSCorrelationID = 'c1500'")
        assert world.counts(again) == [("m5", 2), ("m1500", 1)]
        assert again.view.evaluations == 2

    def test_arrivals_while_it_is_built_are_in_it(self) -> None:
        world = World()
        self.fill(world)
        world.consumer("queue:q", "JMSMessageID = 'm2'", credit=0)
        self.fill(world, 3_000, 5)
        world.send("queue:q", message("urgent", correlation_id="x", priority=9))
        world.work(100)
        for name in ("m2999", "m3004", "urgent"):
            consumer = world.consumer("queue:q", f"JMSMessageID = '{name}'")
            assert world.got(consumer) == [name]
            assert consumer.view.evaluations == 1

    def test_correlation_ids_are_read_without_decoding_and_without_losing_any(self) -> None:
        """The quick way through a backlog: ids as text, as bytes, none; what comes and returns meanwhile."""
        world = World()
        holder = world.consumer("queue:q", credit=1)
        world.send("queue:q", message("held", correlation_id="twice"))
        self.fill(world, 0, 20_000)
        world.send("queue:q", message("raw", correlation_id=b"twice"), message("none"))
        queue = world.namespace.queue("queue:q")
        first = world.consumer("queue:q", "JMSCorrelationID = 'c19999' OR JMSCorrelationID = 'twice'")
        assert world.got(first) == []
        self.fill(world, 20_000, 5)
        world.send("queue:q", message("later", correlation_id="twice"))
        close(holder, 0, world.now)  # comes back in the middle of the scan, to the front
        world.work(100)
        assert world.got(first) == ["held", "m19999", "later"]
        assert queue.backlog.lookups["JMSCorrelationID"].scanning == -1
        assert world.got(world.consumer("queue:q", "JMSCorrelationID = 'c20004'")) == ["m20004"]
        assert first.view.evaluations <= 4

    def test_a_new_consumer_uses_the_lookup_once_it_is_built(self) -> None:
        world = World()
        self.fill(world)
        world.consumer("queue:q", "JMSMessageID = 'm2'", credit=0)
        second = world.consumer("queue:q", "JMSMessageID = 'm2999'")
        world.work()
        assert world.got(second) == ["m2999"]
        assert second.view.evaluations == 1

    def test_tombstones_in_it_are_bounded(self) -> None:
        world = World()
        self.fill(world, 0, 2_000)
        world.consumer("queue:q", "JMSMessageID = 'none'", credit=0)
        world.work()
        taker = world.consumer("queue:q")
        queue = world.namespace.queue("queue:q")
        for start in range(2_000, 20_000, 1_000):
            self.fill(world, start, 1_000)
            for _ in range(10):
                taker.acknowledge(taker.tag, world.now)
                taker.grant(100, world.now)
        assert len(queue.backlog.lookups["JMSMessageID"]) < 6_000

    def test_an_id_set_as_bytes_is_null_to_a_selector(self) -> None:
        world = World()
        self.fill(world)
        world.consumer("queue:q", "JMSCorrelationID = 'c0'", credit=0)
        world.work()
        world.send("queue:q", message("raw", correlation_id=b"c1"))
        assert world.got(world.consumer("queue:q", "JMSCorrelationID = 'c1'")) == ["m1"]

    def test_a_queue_that_became_shallow_drops_it(self) -> None:
        world = World()
        self.fill(world, 0, 1_500)
        world.consumer("queue:q", "JMSCorrelationID = 'none'", credit=0)
        world.work()
        queue = world.namespace.queue("queue:q")
        assert list(queue.backlog.lookups) == ["JMSCorrelationID"]
        taker = world.consumer("queue:q", credit=1_400)
        taker.acknowledge(taker.tag, world.now)
        assert queue.backlog.lookups == {}
        assert world.got(world.consumer("queue:q", "JMSCorrelationID = 'c1450'")) == ["m1450"]

    def test_a_shallow_queue_keeps_no_index(self) -> None:
        world = World()
        self.fill(world, 0, 500)
        assert world.got(world.consumer("queue:q", "JMSCorrelationID = 'c499'")) == ["m499"]
        assert world.namespace.queue("queue:q").backlog.lookups == {}


class TestIndexedProperties:
    """The same for every property: the first selector that asks for one value of it has it indexed."""

    @staticmethod
    def fill(world: World, start: int = 0, count: int = 3_000) -> None:
        world.send(
            "queue:q",
            *(message(f"m{n}", properties={"n": n, "flag": n == 7, "x": f"x{n}"}) for n in range(start, start + count)),
        )

    def test_a_later_consumer_of_another_value_opens_at_once(self) -> None:
        world = World()
        self.fill(world)
        first = world.consumer("queue:q", "n = 2900")
        world.work()
        assert world.got(first) == ["m2900"]
        for selector, found in (
            ("n = 17", ["m17"]),
            ("n = 18.0 AND x LIKE 'x%'", ["m18"]),
            ("n IN ('17')", []),
            ("(n = 20 OR n = 10) AND NOT flag", ["m10", "m20"]),
            ("n = 99999", []),
        ):
            consumer = world.consumer("queue:q", selector)
            assert world.got(consumer) == found
            assert consumer.view.evaluations == len(found)
        assert not world.broker.work(world.now)

    def test_one_scan_indexes_every_requested_name(self) -> None:
        world = World()
        self.fill(world)
        world.consumer("queue:q", "n = 1 AND x = 'none'", credit=0)
        world.work()
        assert sorted(world.namespace.queue("queue:q").backlog.lookups) == ["n", "x"]
        assert world.consumer("queue:q", "x = 'x5'").view.evaluations == 1

    def test_arrivals_and_returns_are_in_it(self) -> None:
        world = World()
        self.fill(world)
        world.consumer("queue:q", "n = -1", credit=0)
        self.fill(world, 3_000, 5)
        world.work()
        assert world.got(world.consumer("queue:q", "n = 3004")) == ["m3004"]
        holder = world.consumer("queue:q", "n = 5")
        close(holder, 1, world.now)
        recover(holder, 1, world.now)
        assert world.counts(world.consumer("queue:q", "n = 5 AND x = 'x5'")) == [("m5", 2)]

    def test_a_property_of_few_values_is_not_worth_it(self) -> None:
        """What leads to more than a turn should examine is looked for in slices; an index that only does that goes."""
        world = World()
        self.fill(world)
        world.consumer("queue:q", "flag = FALSE AND n < 0", credit=0)
        world.work()
        queue = world.namespace.queue("queue:q")
        assert queue.backlog.lookups == {}
        world.consumer("queue:q", "n = 1 AND JMSPriority = 4 AND JMSDeliveryMode = 'PERSISTENT'", credit=0)
        world.work()
        assert list(queue.backlog.lookups) == ["n"]

    def test_a_value_of_very_many_is_scanned_for_though_there_is_an_index(self) -> None:
        world = World()
        self.fill(world)
        world.send("queue:q", *(message(f"s{n}", properties={"n": -1}) for n in range(2_500)))
        world.consumer("queue:q", "n = 1", credit=0)
        world.work()
        many = world.consumer("queue:q", "n = -1", credit=5_000)
        assert many.view.evaluations <= 1_000
        world.work()
        assert len(world.got(many)) == 2_500

    def test_a_queue_keeps_few_lookups(self) -> None:
        world = World()
        self.fill(world)
        for number in range(10):
            world.consumer("queue:q", f"p{number} = 1", credit=0)
        world.work()
        assert len(world.namespace.queue("queue:q").backlog.lookups) <= 4

    def test_booleans_are_no_numbers_in_it(self) -> None:
        world = World()
        self.fill(world)
        world.consumer("queue:q", "flag = TRUE AND n > 0", credit=0)
        world.send("queue:q", *(message(f"b{n}", properties={"b": n if n > 1 else n == 1}) for n in range(2_000)))
        world.consumer("queue:q", "b = 5", credit=0)
        world.work()
        assert world.got(world.consumer("queue:q", "b = 1")) == []
        assert world.got(world.consumer("queue:q", "b = TRUE AND 1 = 1")) == ["b1"]


def test_the_first_slice_is_small_enough_for_one_turn() -> None:
    assert backlog_module.FIRST_SLICE <= 2_000


@pytest.mark.parametrize("budget", [1, 7, 1_000])
def test_compaction_during_a_scan_loses_nothing(world: World, budget: int) -> None:
    fill(world, 1_200)
    taker = world.consumer("queue:q", "n < 1100", credit=0)
    world.work()
    consumer = world.consumer("queue:q", "n >= 500", credit=16_000)
    world.broker.work(world.now, budget)
    taker.grant(800, world.now)
    compact(world.namespace.queue("queue:q"))
    world.work(budget)
    assert sorted(world.got(consumer) + world.got(taker)) == sorted(f"m{n}" for n in range(1_200)) or sorted(
        set(world.got(consumer)) | set(world.got(taker)) | set(world.browse("queue:q"))
    ) == sorted(f"m{n}" for n in range(1_200))
    assert not set(world.got(consumer)) & set(world.got(taker))


@pytest.mark.parametrize("text", [None, "n < 1000", "JMSPriority = 4"])
@pytest.mark.parametrize("verb", ["waiting", "held", "remove"])
def test_large_messages_make_short_slices(verb: str, text: str | None) -> None:
    """To take a message apart is to copy its body: hundreds of megabytes of them are never copied in one turn."""
    world, condition = World(), None if text is None else compiled(text)
    consumer = world.consumer("queue:q", credit=0)
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}, body=b"x" * 400_000) for n in range(60)))
    if verb == "held":
        consumer.grant(60, world.now)
    queue = world.namespace.queue("queue:q")
    choice = management.Choice(condition, dry_run=True)
    make: Any = {
        "waiting": partial(management.waiting, queue, condition, -1, 100),
        "held": partial(management.held, queue, condition, (-1, -1), 100),
        "remove": partial(management.remove, queue, choice),
    }[verb]
    scheduler = world.broker.scheduler
    job, count = scheduler.start(verb, make, world.now), 1
    while scheduler.run(world.now):
        count += 1
    found = job.result
    assert len(found[0]) == 60 if verb != "remove" else found.matched == 60
    if condition is not None or verb != "remove":
        assert count >= 60 * 97 // (TURN + 97)
