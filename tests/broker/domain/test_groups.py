"""Message groups: one consumer at a time, in order, nothing lost, nobody held up for nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from tests.broker.at_once import abandon, close, recover

from sievemq_broker.domain import Consumer, DestinationPolicy, turns
from sievemq_broker.domain import queue as queues
from sievemq_broker.domain.queue import SERVED, Queue
from sievemq_broker.domain.turns import Groups
from sievemq_broker.domain.work import TURN

from .support import NOW, World, message, name_of


def grouped(name: str, group: str | None, **how: int) -> object:
    return message(name, properties={} if group is None else {"JMSXGroupID": group}, **how)


def test_a_group_stays_with_the_consumer_that_got_its_first_message(world: World) -> None:
    one, two = world.consumer("queue:q"), world.consumer("queue:q")
    world.send("queue:q", *(grouped(f"{group}{n}", group) for n in range(3) for group in "ab"))
    assert sorted([world.got(one), world.got(two)]) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


def test_a_busy_group_owner_does_not_block_later_messages(world: World) -> None:
    owner, other = world.consumer("queue:q", credit=1), world.consumer("queue:q", credit=0)
    world.send("queue:q", grouped("a0", "a"), grouped("a1", "a"), grouped("x", None), grouped("a2", "a"))
    other.grant(5, NOW)
    assert world.got(other) == ["x"]
    assert world.browse("queue:q") == ["a1", "a2"]
    owner.grant(5, NOW)
    assert world.got(owner) == ["a0", "a1", "a2"]
    assert world.browse("queue:q") == []


def test_a_new_selector_matches_messages_set_aside(world: World) -> None:
    owner, other = world.consumer("queue:q", credit=1), world.consumer("queue:q", credit=0)
    world.send("queue:q", grouped("a0", "a"), grouped("a1", "a"), grouped("a2", "a", priority=9))
    other.grant(1, NOW)
    selective = world.consumer("queue:q", "JMSXGroupID = 'a'")
    assert world.got(selective) == ["a2", "a1"]
    owner.grant(9, NOW)
    assert world.got(owner) == ["a0"]


def test_a_group_is_free_when_its_consumer_leaves(world: World) -> None:
    first, second, third = (world.consumer("queue:q", credit=n) for n in (1, 0, 0))
    world.send("queue:q", *(grouped(f"a{n}", "a") for n in range(4)))
    second.grant(1, NOW)  # puts aside
    assert world.got(second) == []
    close(first, 0, NOW)
    assert world.got(second) == ["a0"]
    third.grant(9, NOW)
    assert world.got(third) == []
    close(second, 0, NOW)
    assert world.got(third) == ["a0", "a1", "a2", "a3"]


def test_messages_set_aside_do_not_overtake_returned_ones(world: World) -> None:
    owner = world.consumer("queue:q", credit=1)
    world.send("queue:q", *(grouped(f"a{n}", "a") for n in range(3)))
    other = world.consumer("queue:q", credit=9)
    world.send("queue:q", grouped("a3", "a"))
    recover(owner, 1, NOW)
    close(owner, 1, NOW)
    assert world.got(other) == ["a0", "a1", "a2", "a3"]


def test_the_group_of_messages_delivered_before_the_second_consumer_came(world: World) -> None:
    owner = world.consumer("queue:q", credit=1)
    world.send("queue:q", grouped("a0", "a"))
    other = world.consumer("queue:q")
    world.send("queue:q", grouped("a1", "a"))
    assert world.got(other) == []
    owner.grant(1, NOW)
    assert world.got(owner) == ["a0", "a1"]


def test_an_owner_that_is_done_and_takes_nothing_more_gives_its_group_up(world: World) -> None:
    owner, other = world.consumer("queue:q", credit=1), world.consumer("queue:q", credit=0)
    world.send("queue:q", grouped("a0", "a"), grouped("a1", "a"))
    other.grant(1, NOW)
    assert world.got(other) == []
    owner.acknowledge(1, NOW)
    assert other.want(NOW)
    assert world.got(other) == ["a1"]


def test_recall_leaves_groups_with_their_owner(world: World) -> None:
    owner = world.consumer("queue:q")
    other = world.consumer("queue:q", credit=0)
    world.send("queue:q", grouped("a0", "a"), grouped("x", None))
    assert not other.want(NOW)
    assert world.port(owner).recalls == [(owner.id, [2])]


def test_idle_groups_are_forgotten(world: World) -> None:
    one, two = world.consumer("queue:q", credit=16_000), world.consumer("queue:q", credit=16_000)
    for n in range(25_000):
        world.send("queue:q", grouped("m", f"g{n}"))
        if n % 100 == 99:
            for consumer in (one, two):
                consumer.acknowledge(consumer.tag, NOW)
                consumer.grant(100, NOW)
    groups = groups_of(world.namespace.queue("queue:q"))
    assert groups is not None
    assert len(groups.owners) <= 10_001


MANY = 5 * SERVED


def put_aside(world: World) -> tuple[Consumer, Consumer, list[int]]:
    """The owner of the group of very many messages, another consumer, and what each turn put aside."""
    owner, other = world.consumer("queue:q", credit=1), world.consumer("queue:q", credit=0)
    world.send("queue:q", *(grouped(f"a{n}", "a") for n in range(MANY)), "x")
    view, counts = world.namespace.queue("queue:q").main, [0]
    other.grant(1, NOW)
    counts.append(len(view.passed))
    while world.broker.work(NOW, TURN):
        counts.append(len(view.passed))
    return owner, other, [after - before for before, after in pairwise(counts)]


def test_no_turn_puts_aside_more_than_a_slice(world: World) -> None:
    _, other, turns = put_aside(world)
    assert max(turns) <= SERVED
    assert sum(turns) == MANY - 1
    assert world.got(other) == ["x"]


def test_no_turn_frees_more_than_a_slice_when_an_owner_leaves(world: World) -> None:
    owner, other, _ = put_aside(world)
    view, counts = world.namespace.queue("queue:q").main, [MANY - 1]
    abandon(owner, NOW)
    counts.append(len(view.passed))
    other.grant(MANY + 1, NOW)
    world.send("queue:q", "y")
    while world.broker.work(NOW, TURN):
        counts.append(len(view.passed))
    assert max(before - after for before, after in pairwise(counts)) <= SERVED
    assert counts[-1] == 0
    assert world.got(other) == ["x", *(f"a{n}" for n in range(MANY)), "y"]


def test_no_turn_delivers_more_than_a_slice_of_what_was_put_aside(world: World) -> None:
    owner, _, _ = put_aside(world)
    counts = [1]
    owner.grant(MANY, NOW)
    counts.append(len(world.got(owner)))
    while world.broker.work(NOW, TURN):
        counts.append(len(world.got(owner)))
    assert max(after - before for before, after in pairwise(counts)) <= SERVED
    assert world.got(owner) == [f"a{n}" for n in range(MANY)]


def test_purged_messages_are_not_placed_again_when_their_owner_closes(world: World) -> None:
    owner, other, _ = put_aside(world)
    world.namespace.queue("queue:q").pause()
    abandon(owner, NOW)
    world.namespace.queue("queue:q").clear()
    world.namespace.queue("queue:q").unpause(NOW)
    other.grant(10, NOW)
    world.send("queue:q", "y")
    world.work()
    assert world.got(other) == ["x", "y"]
    assert world.namespace.queue("queue:q").depth == 0


@pytest.mark.needs_python("counts calls of a function")
def test_groups_are_searched_in_slices_when_a_second_consumer_opens(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = world.consumer("queue:q", credit=MANY)
    world.send("queue:q", *(grouped(f"a{n}", f"g{n}") for n in range(MANY)))
    looked = [0]
    real = turns.group_of
    monkeypatch.setattr(turns, "group_of", lambda envelope: looked.append(looked.pop() + 1) or real(envelope))
    other = world.consumer("queue:q", credit=9)
    looked.append(0)
    while world.broker.work(NOW, TURN):
        looked.append(0)
    assert max(looked) <= SERVED
    assert sum(looked) == MANY
    owner.grant(1, NOW)
    world.send("queue:q", grouped("b", f"g{MANY - 1}"), grouped("c", "new"), "x")
    assert world.got(other) == ["c", "x"]
    assert world.got(owner)[-1] == "b"


def test_messages_that_arrive_during_the_search_for_groups_wait_for_their_owner(world: World) -> None:
    owner = world.consumer("queue:q", credit=MANY + 1)
    world.send("queue:q", *(grouped(f"a{n}", f"g{n}") for n in range(MANY)))
    other = world.consumer("queue:q", credit=9)
    world.send("queue:q", grouped("b", f"g{MANY - 1}"), "x")
    assert not world.got(other)
    owner.acknowledge(10, NOW)
    world.work()
    assert world.got(owner)[-1] == "b"
    assert world.got(other) == ["x"]


def test_an_owner_that_closes_during_the_search_for_its_groups_has_none(world: World) -> None:
    owner = world.consumer("queue:q", credit=MANY)
    world.send("queue:q", *(grouped(f"a{n}", f"g{n}") for n in range(MANY)))
    other = world.consumer("queue:q", credit=MANY + 1)
    third = world.consumer("queue:q", credit=1)
    abandon(owner, NOW)
    world.send("queue:q", grouped("b", f"g{MANY - 1}"))
    world.work()
    assert sorted([*world.got(other), *world.got(third)]) == sorted(["b", *(f"a{n}" for n in range(MANY))])
    assert len(world.got(third)) == 1


def groups_of(queue: Queue, consumer: Consumer | None = None) -> Groups | None:
    """Message groups of a consumer's view, or of the view of everything."""
    return queue._turns[queue.main if consumer is None else consumer.view].groups


class GroupMachine(RuleBasedStateMachine):
    consumers = Bundle("consumers")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(("queue:q", DestinationPolicy(max_attempts=0)))
        self.queue = self.world.namespace.queue("queue:q")
        self.sent = 0
        self.done: list[str] = []
        self.open: list[Consumer] = []

    @rule(group=st.sampled_from([None, "a", "b", "c"]), priority=st.sampled_from([4, 4, 9]))
    def send(self, group: str | None, priority: int) -> None:
        self.sent += 1
        self.world.send("queue:q", grouped(f"{self.sent}", group, priority=priority))

    @rule(target=consumers, credit=st.integers(0, 3), text=st.sampled_from([None, None, None, "JMSPriority > 4"]))
    def join(self, credit: int, text: str | None) -> Consumer:
        consumer = self.world.consumer("queue:q", text, credit=credit)
        self.open.append(consumer)
        return consumer

    @rule(consumer=consumers, n=st.integers(1, 3))
    def grant(self, consumer: Consumer, n: int) -> None:
        consumer.grant(n, NOW)

    @rule(consumer=consumers, data=st.data())
    def acknowledge(self, consumer: Consumer, data: st.DataObject) -> None:
        tag = data.draw(st.integers(consumer.base, consumer.tag))
        for entry in list(consumer.window)[: tag - consumer.base]:
            if entry is not None:
                self.done.append(name_of(entry.envelope.packed))
        consumer.acknowledge(tag, NOW)

    @rule(consumer=consumers)
    def recover(self, consumer: Consumer) -> None:
        recover(consumer, consumer.tag, NOW)

    @rule(consumer=consumers)
    def want(self, consumer: Consumer) -> None:
        consumer.want(NOW)

    @rule(consumer=consumes(consumers))
    def leave(self, consumer: Consumer) -> None:
        self.open.remove(consumer)
        abandon(consumer, NOW)

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        waiting = self.world.browse("queue:q")
        held = [name_of(e.envelope.packed) for c in self.open for e in c.window if e is not None]
        assert sorted(self.done + waiting + held) == sorted(str(n + 1) for n in range(self.sent))
        assert self.queue.depth == len(waiting)

    @invariant()
    def no_group_is_with_two_consumers_of_one_view(self) -> None:
        holders: dict[tuple[object, object], set[Consumer]] = {}
        for consumer in self.open:
            for entry in consumer.window:
                if entry is not None and (group := entry.envelope.properties.get("JMSXGroupID")) is not None:
                    holders.setdefault((consumer.view, group), set()).add(consumer)
        assert all(len(who) == 1 for who in holders.values())

    @invariant()
    def nobody_with_credit_waits_for_what_nobody_owns(self) -> None:
        for consumer in self.open:
            if consumer.credit:
                waiting = self.world.browse("queue:q", consumer.view.condition and consumer.view.condition.text)
                groups = groups_of(self.queue, consumer)
                assert groups is not None or not waiting
                owned = set() if groups is None else {g for g in "abc" if groups.owner(g) not in (None, consumer)}
                for _, envelope in self.world.namespace.browse("queue:q", None, None, 1000, NOW)[1]:
                    condition = consumer.view.condition
                    if condition is None or condition.function(envelope.properties, envelope.fields):
                        assert envelope.properties.get("JMSXGroupID") in owned

    def teardown(self) -> None:
        """The last consumer gets everything, groups in order of arrival within a priority."""
        for consumer in self.open:
            abandon(consumer, NOW)
        last = self.world.consumer("queue:q", credit=10_000)
        assert sorted([*self.done, *self.world.got(last)]) == sorted(str(n + 1) for n in range(self.sent))


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroups = GroupMachine.TestCase


@pytest.mark.needs_python("replaces how many messages are looked at in a turn")
class SlicedGroupMachine(GroupMachine):
    """Looks at one message in a turn for the group that it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(queues, "SERVED", 1)

    @rule()
    def work(self) -> None:
        self.world.broker.work(NOW, 1)

    @invariant()
    def nobody_with_credit_waits_for_what_nobody_owns(self) -> None:
        if not self.queue.standstill.held:
            super().nobody_with_credit_waits_for_what_nobody_owns()

    def teardown(self) -> None:
        self.world.work()
        self.nobody_with_credit_waits_for_what_nobody_owns()
        self._patch.undo()
        super().teardown()


SlicedGroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroupsInSlices = SlicedGroupMachine.TestCase
