"""No consumer starves: messages buffered by idle consumers are recalled for a waiting one (MCO-14, D-23)."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import pytest
from tests.broker.at_once import abandon, close, recover, release

from sievemq_broker.domain import Consumer
from sievemq_broker.domain.recall import IDLE_MS, RECALLED, SEARCHED, YOUNGER

from .support import World, message


def claim(world: World, consumer: Consumer) -> Any:
    """What a consumer asks of others, and others of it."""
    return world.namespace.queue("queue:q")._recall.claim_of(consumer)


def test_want_is_settled_at_once_if_something_waits(world: World) -> None:
    world.send("queue:q", "a", "b")
    consumer = world.consumer("queue:q", credit=0)
    assert consumer.want(world.now)
    assert world.got(consumer) == ["a"]  # a WANT means one message at least
    assert world.port(consumer).settlements == []


def test_a_want_is_settled_at_once_if_no_consumer_holds_anything(world: World) -> None:
    idle, consumer = world.consumer("queue:q"), world.consumer("queue:q", credit=0)
    assert consumer.want(world.now)
    assert world.port(idle).recalls == []
    world.send("queue:q", "a")
    assert world.got(consumer) == ["a"]  # one that waits goes before one that only prefetches


def test_mco_14_a_waiting_consumer_receives_messages_buffered_by_an_idle_one(world: World) -> None:
    idle = world.consumer("queue:q")
    world.send("queue:q", "a", "b", "c")
    waiter = world.consumer("queue:q", credit=1)
    assert not waiter.want(world.now)
    assert world.port(idle).recalls == [(idle.id, [1])]  # the oldest
    release(idle, [1], world.now)
    assert world.counts(waiter) == [("a", 1)]
    assert world.port(waiter).events == ["deliver", "settled"]
    assert idle.credit == 97


def test_several_are_recalled_for_several_but_never_more_than_half(world: World) -> None:
    idle = world.consumer("queue:q")
    world.send("queue:q", *"abcdef")
    waiter = world.consumer("queue:q", credit=10)
    assert not waiter.want(world.now)
    assert world.port(idle).recalls == [(idle.id, [1, 2, 3])]
    release(idle, [1, 2, 3], world.now)
    assert world.got(waiter) == ["a", "b", "c"]
    assert waiter.acknowledge(3, world.now) == 3
    assert not waiter.want(world.now)
    assert world.port(idle).recalls[1:] == [(idle.id, [4, 5])]


def test_released_messages_do_not_go_straight_back(world: World) -> None:
    idle = world.consumer("queue:q")
    world.send("queue:q", *"abcdef")
    waiter = world.consumer("queue:q", credit=10)
    waiter.want(world.now)
    release(idle, [1, 2, 3], world.now)
    assert len(world.got(idle)) == 6


def test_handed_messages_are_skipped_and_later_ones_recalled(world: World) -> None:
    busy = world.consumer("queue:q")
    world.send("queue:q", "a", "b", "c")
    waiter = world.consumer("queue:q", credit=1)
    assert not waiter.want(world.now)
    release(busy, [], world.now)  # "a" is with the application
    assert world.port(busy).recalls == [(busy.id, [1]), (busy.id, [2])]
    assert world.port(waiter).settlements == []
    release(busy, [2], world.now)
    assert world.got(waiter) == ["b"]
    assert world.port(waiter).settlements == [waiter.id]


def test_want_is_answered_when_all_have_answered_and_nothing_came(world: World) -> None:
    one, two = world.consumer("queue:q"), world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    waiter = world.consumer("queue:q", credit=5)
    assert not waiter.want(world.now)
    release(one, [], world.now)
    assert world.port(waiter).settlements == []
    release(two, [], world.now)
    assert world.port(waiter).settlements == [waiter.id]
    assert waiter.want(world.now)  # both are known to have handed out everything


def test_a_recall_ends_when_its_holder_disappears(world: World) -> None:
    holder = world.consumer("queue:q")
    world.send("queue:q", "a")
    waiter = world.consumer("queue:q", credit=1)
    assert not waiter.want(world.now)
    abandon(holder, world.now)
    assert world.counts(waiter) == [("a", 2)]
    assert world.port(waiter).settlements == [waiter.id]


def test_a_recovered_holder_has_nothing_left_to_answer_with(world: World) -> None:
    holder = world.consumer("queue:q")
    world.send("queue:q", "a")
    waiter = world.consumer("queue:q", credit=1)
    waiter.want(world.now)
    recover(holder, 1, world.now)
    assert world.counts(waiter) == [("a", 2)]
    release(holder, [], world.now)  # the answer that was on its way
    assert world.port(waiter).settlements == [waiter.id]
    assert claim(world, holder).recalled == claim(world, waiter).recalled


def test_a_waiter_that_leaves_is_not_answered(world: World) -> None:
    holder = world.consumer("queue:q")
    world.send("queue:q", "a")
    waiter = world.consumer("queue:q", credit=1)
    waiter.want(world.now)
    close(waiter, 0, world.now)
    release(holder, [1], world.now)
    assert world.port(waiter).settlements == []
    assert world.got(holder) == ["a", "a"]  # nobody else is there


def test_only_messages_that_match_the_waiter_are_recalled(world: World) -> None:
    idle = world.consumer("queue:q")
    world.send("queue:q", *(message(f"m{n}", properties={"n": n % 3}) for n in range(9)))
    waiter = world.consumer("queue:q", "n = 2", credit=9)
    assert not waiter.want(world.now)
    assert world.port(idle).recalls == [(idle.id, [3, 6, 9])]
    release(idle, [3, 6, 9], world.now)
    assert world.got(waiter) == ["m2", "m5", "m8"]
    waiter.acknowledge(3, world.now)
    before = waiter.view.evaluations
    assert waiter.want(world.now)
    assert waiter.view.evaluations == before  # nothing is tested twice


def test_the_search_resumes_at_its_last_position(world: World) -> None:
    idle = world.consumer("queue:q")
    waiter = world.consumer("queue:q", "n = 1", credit=0)
    world.send("queue:q", *(message("m", properties={"n": 0}) for _ in range(50)))
    for _ in range(3):
        assert waiter.want(world.now)
    assert waiter.view.evaluations == 50
    waiter.halt()
    world.send("queue:q", message("hit", properties={"n": 1}))
    assert not waiter.want(world.now)
    assert waiter.view.evaluations == 51
    assert world.port(idle).recalls == [(idle.id, [51])]


def test_two_that_wait_are_served_in_turn(world: World) -> None:
    one, two = world.consumer("queue:q", credit=0), world.consumer("queue:q", credit=0)
    assert two.want(world.now)
    assert one.want(world.now)
    world.send("queue:q", "a", "b")
    assert (world.got(two), world.got(one)) == (["a"], ["b"])


def test_a_message_is_recalled_for_one_waiter_only(world: World) -> None:
    idle = world.consumer("queue:q")
    world.send("queue:q", *"abcd")
    one, two = world.consumer("queue:q", credit=1), world.consumer("queue:q", credit=1)
    assert not one.want(world.now)
    assert not two.want(world.now)
    assert world.port(idle).recalls == [(idle.id, [1]), (idle.id, [2])]
    release(idle, [1], world.now)
    release(idle, [2], world.now)
    assert (world.got(one), world.got(two)) == (["a"], ["b"])


def test_messages_given_back_for_another_reason_are_not_the_answer(world: World) -> None:
    idle = world.consumer("queue:q", credit=4)
    world.send("queue:q", *"abcd")
    waiter = world.consumer("queue:q", "n IS NULL AND JMSType IS NULL", credit=0)
    assert not waiter.want(world.now)
    release(idle, [4], world.now)
    assert world.got(waiter) == ["d"]
    assert len(claim(world, idle).recalled) == 1
    release(idle, [1], world.now)
    assert len(claim(world, idle).recalled) == 0


def test_shared_subscriptions_recall_too(world: World) -> None:
    how = {"subscription": "s", "shared": True}
    idle = world.consumer("topic:t", **how)
    waiter = world.consumer("topic:t", credit=0, **how)
    world.send("topic:t", "a", "b")
    assert not waiter.want(world.now)
    release(idle, [1], world.now)
    assert world.got(waiter) == ["a"]


def test_a_closed_consumer_wants_nothing(world: World) -> None:
    consumer = world.consumer("queue:q")
    close(consumer, 0, world.now)
    assert consumer.want(world.now)
    consumer.grant(5, world.now)
    consumer.resume(world.now)
    world.send("queue:q", "a")
    assert world.got(consumer) == []


def test_a_waiter_whose_port_was_full_keeps_its_turn(world: World) -> None:
    waiter, other = world.consumer("queue:q", credit=0), world.consumer("queue:q", credit=0)
    waiter.want(world.now)
    world.port(waiter).writable = False
    world.send("queue:q", "a")
    assert world.got(waiter) == []
    world.resume(waiter)
    assert world.got(waiter) == ["a"]
    other.grant(1, world.now)
    world.send("queue:q", "b")
    assert world.got(other) == ["b"]


# -- order: a WANT that asks for no answer is patient ------------------------------------------------------------------


def shared_out(world: World, *, credit: int = 10) -> tuple[Consumer, Consumer]:
    """One consumer holds a, b, c; the other got d and is done with it, and waits."""
    busy, waiter = world.consumer("queue:q", credit=3), world.consumer("queue:q", credit=0)
    world.send("queue:q", "a", "b", "c")
    waiter.grant(credit, world.now)
    world.send("queue:q", "d")
    waiter.acknowledge(1, world.now)
    return busy, waiter


def test_ord_01_older_messages_stay_with_the_consumer_that_works_on_them(world: World) -> None:
    busy, waiter = shared_out(world)
    assert waiter.want(world.now, patient=True)
    for tag in (1, 2, 3):
        world.advance(IDLE_MS - 1)
        busy.acknowledge(tag, world.now)  # slow, but it goes on
        assert waiter.want(world.now, patient=True)
    world.advance(IDLE_MS)
    assert world.port(busy).recalls == []
    assert world.got(waiter) == ["d"]


def test_credit_is_progress_too(world: World) -> None:
    busy, waiter = shared_out(world)
    waiter.want(world.now, patient=True)
    for _ in range(3):
        world.advance(IDLE_MS - 1)
        busy.grant(1, world.now)
    assert world.port(busy).recalls == []


def test_mco_14_older_messages_are_recalled_from_a_consumer_that_has_stopped_working(world: World) -> None:
    busy, waiter = shared_out(world)
    assert waiter.want(world.now, patient=True)
    world.advance(IDLE_MS - 1)
    assert world.port(busy).recalls == []
    world.advance(1)  # without a further request: the deadline does it
    assert world.port(busy).recalls == [(busy.id, [1, 2])]
    release(busy, [1, 2], world.now)
    assert world.got(waiter) == ["d", "a", "b"]
    # It still sleeps: the next is requested without waiting again.
    waiter.acknowledge(3, world.now)
    assert not waiter.want(world.now, patient=True)
    assert world.port(busy).recalls[1:] == [(busy.id, [3])]


def test_mco_14_a_stuck_one_is_emptied_behind_the_message_it_is_stuck_on(world: World) -> None:
    busy, waiter = shared_out(world, credit=1)
    waiter.want(world.now, patient=True)
    world.advance(IDLE_MS)
    release(busy, [], world.now)  # "a" is with the application
    assert world.port(busy).recalls == [(busy.id, [1]), (busy.id, [2])]
    release(busy, [2], world.now)
    assert world.got(waiter) == ["d", "b"]


def test_younger_messages_are_recalled_at_once(world: World) -> None:
    busy, waiter = world.consumer("queue:q", credit=2), world.consumer("queue:q", credit=0)
    world.send("queue:q", "a", "b")
    waiter.grant(1, world.now)
    world.send("queue:q", "c")
    busy.grant(3, world.now)
    world.send("queue:q", "d", "e", "f")
    waiter.acknowledge(1, world.now)
    waiter.grant(5, world.now)
    assert not waiter.want(world.now, patient=True)
    assert world.port(busy).recalls == [(busy.id, [3, 4, 5])]  # half of five, rounded up; not "a" and "b"
    release(busy, [3, 4], world.now)  # "f" was taken after all
    assert world.got(waiter) == ["c", "d", "e"]


def test_mco_05_a_want_with_an_answer_does_not_wait(world: World) -> None:
    busy, waiter = shared_out(world)
    assert waiter.want(world.now, patient=True)
    assert not waiter.want(world.now)
    assert world.port(busy).recalls == [(busy.id, [1, 2])]


def test_mco_05_a_want_that_joins_a_patient_one_is_not_patient(world: World) -> None:
    busy, waiter = shared_out(world, credit=1)
    busy.grant(1, world.now)
    world.send("queue:q", "e")
    assert not waiter.want(world.now, patient=True)
    assert world.port(busy).recalls == [(busy.id, [4])]
    assert not waiter.want(world.now)
    release(busy, [], world.now)  # "e" was taken, and so was all before
    assert world.port(waiter).settlements == [waiter.id]


def test_a_consumer_that_got_nothing_yet_waits_for_nothing(world: World) -> None:
    idle = world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    waiter = world.consumer("queue:q", credit=1)
    assert not waiter.want(world.now, patient=True)
    assert world.port(idle).recalls == [(idle.id, [1])]


def test_the_deadline_finds_nothing_to_do(world: World) -> None:
    """The waiter was served, or left, or the holder left: no recall, nothing kept alive."""
    busy, waiter = shared_out(world)
    waiter.want(world.now, patient=True)
    world.send("queue:q", "e")
    assert world.got(waiter) == ["d", "e"]
    world.advance(IDLE_MS)
    assert world.port(busy).recalls == []
    busy.acknowledge(1, world.now)
    waiter.acknowledge(2, world.now)
    waiter.want(world.now, patient=True)
    assert list(claim(world, waiter).watched) == [claim(world, busy)]
    close(busy, 3, world.now)
    assert claim(world, waiter).watched == {}
    world.advance(IDLE_MS)
    close(waiter, 0, world.now)
    world.advance(IDLE_MS)
    assert world.port(busy).recalls == []


def test_a_selector_is_tested_once_on_younger_messages(world: World) -> None:
    busy = world.consumer("queue:q", credit=100)
    waiter = world.consumer("queue:q", "n = 1", credit=0)
    world.send("queue:q", *(message("m", properties={"n": 0}) for _ in range(10)))
    waiter.grant(1, world.now)
    busy.halt()
    world.send("queue:q", message("mine", properties={"n": 1}))
    assert world.got(waiter) == ["mine"]
    waiter.acknowledge(1, world.now)
    busy.grant(100, world.now)
    world.send("queue:q", *(message("m", properties={"n": 0}) for _ in range(10)))
    assert waiter.want(world.now, patient=True)
    before = waiter.view.evaluations
    for _ in range(3):
        waiter.halt()
        assert waiter.want(world.now, patient=True)
    assert waiter.view.evaluations == before
    waiter.halt()
    world.send("queue:q", message("hit", properties={"n": 1}))
    assert not waiter.want(world.now, patient=True)
    assert world.port(busy).recalls == [(busy.id, [21])]


# -- a WANT that is over with its answer -------------------------------------------------------------------------------


def test_mco_05_an_empty_receive_leaves_no_credit(world: World) -> None:
    poller, other = world.consumer("queue:q", credit=0), world.consumer("queue:q", credit=0)
    for _ in range(3):
        assert poller.want(world.now, brief=True)
    assert (poller.credit, poller.waiting, len(world.namespace.queue("queue:q")._turns[poller.view].waiting)) == (
        0,
        False,
        0,
    )
    world.send("queue:q", "a")
    assert world.got(poller) == []
    assert world.browse("queue:q") == ["a"]
    assert other.want(world.now, brief=True)
    assert world.got(other) == ["a"]


def test_credit_that_was_granted_stays(world: World) -> None:
    poller, eager = world.consumer("queue:q", credit=1), world.consumer("queue:q", credit=5)
    assert poller.want(world.now, brief=True)
    assert poller.credit == 1
    eager.want(world.now)
    world.send("queue:q", "a", "b")
    assert world.got(eager)[0] == "a"  # it waits; the other only prefetches


def test_a_recall_in_vain_ends_it_too(world: World) -> None:
    holder = world.consumer("queue:q")
    world.send("queue:q", "a")
    poller = world.consumer("queue:q", credit=0)
    assert not poller.want(world.now, brief=True)
    poller.grant(2, world.now)
    release(holder, [], world.now)
    assert world.port(poller).settlements == [poller.id]
    assert (poller.credit, poller.waiting) == (2, False)


def test_a_closed_consumer_is_neither_watched_nor_watching(world: World) -> None:
    busy, waiter = shared_out(world)
    waiter.want(world.now, patient=True)
    assert list(claim(world, waiter).watched) == [claim(world, busy)]
    close(busy, 0, world.now)
    assert not claim(world, waiter).watched
    world = World()
    busy, waiter = shared_out(world)
    waiter.want(world.now, patient=True)
    close(waiter, 0, world.now)
    assert not claim(world, busy).watchers


@pytest.mark.parametrize("count", [50, 500])
def test_closing_a_consumer_costs_the_same_among_many(world: World, count: int) -> None:
    """Counted in what Python calls: who leaves does not look at everybody who stays."""
    consumers = [world.consumer("queue:q", credit=1) for _ in range(count)]
    calls = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # what hypothesis measures of a collection would be counted
    sys.setprofile(count_call)
    try:
        close(consumers[count // 2], 0, world.now)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert 0 < calls < 50


# -- very many buffered messages ---------------------------------------------------------------------------------------


MANY = 5 * SEARCHED


def searching(patient: bool = False) -> tuple[World, Consumer, Consumer]:
    """A consumer that has buffered very many messages, and one whose WANT has them searched."""
    world = World()
    holder = world.consumer("queue:q", credit=0)
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(MANY)))
    holder.grant(MANY, world.now)
    world.work()
    waiter = world.consumer("queue:q", f"n = {MANY - 1}", credit=0)
    assert not waiter.want(world.now, patient=patient)
    return world, holder, waiter


@pytest.mark.parametrize("patient", [False, True])
def test_a_large_buffer_is_searched_in_slices(patient: bool) -> None:
    world, holder, waiter = searching(patient)
    found, more = [waiter.view.evaluations], True
    while more:
        more = world.broker.work(world.now, SEARCHED)
        found.append(waiter.view.evaluations - sum(found))
    assert max(found) <= SEARCHED
    assert sum(found) == MANY
    assert world.port(holder).recalls == [(holder.id, [MANY])]
    release(holder, [MANY], world.now)
    assert world.got(waiter) == [f"m{MANY - 1}"]
    assert world.port(waiter).settlements == [waiter.id]


def test_a_search_in_vain_answers_the_want() -> None:
    world, holder, waiter = searching()
    holder.note_handed(MANY)
    world.work()
    assert world.port(waiter).settlements == [waiter.id]
    assert world.port(holder).recalls == []


@pytest.mark.parametrize("who", ["waiter", "holder"])
def test_a_consumer_that_leaves_ends_the_search(who: str) -> None:
    world, holder, waiter = searching()
    close(waiter if who == "waiter" else holder, 0, world.now)
    world.work()
    assert world.port(waiter).settlements == ([] if who == "waiter" else [waiter.id])
    assert world.got(waiter) == ([] if who == "waiter" else [f"m{MANY - 1}"])
    assert not world.broker.work(world.now)


def test_a_message_that_arrives_meanwhile_answers_the_want() -> None:
    world, holder, waiter = searching()
    world.send("queue:q", message("new", properties={"n": MANY - 1}))
    assert world.got(waiter) == ["new"]
    world.work()
    assert world.port(waiter).settlements == [waiter.id]
    assert world.port(holder).recalls == []


def test_messages_acknowledged_meanwhile_are_not_recalled() -> None:
    world, holder, waiter = searching()
    world.broker.work(world.now, SEARCHED)
    holder.acknowledge(MANY, world.now)
    world.work()
    assert world.port(holder).recalls == []
    assert world.port(waiter).settlements == [waiter.id]


def test_a_deleted_queue_is_searched_no_more() -> None:
    world, _, _ = searching()
    world.namespace.delete("queue:q")
    world.work()
    assert not world.broker.work(world.now)


@pytest.mark.parametrize("patient", [False, True])
def test_no_more_are_recalled_at_a_time_than_a_turn_has_time_for(world: World, patient: bool) -> None:
    waiter, holder = world.consumer("queue:q", credit=0), world.consumer("queue:q", credit=0)
    count = YOUNGER + 5_000
    world.send("queue:q", *(message(f"m{n}") for n in range(count)))
    holder.grant(count, world.now)
    world.work()
    waiter.grant(count, world.now)
    waiter.want(world.now, patient=patient)
    world.work()
    ((_, tags),) = world.port(holder).recalls
    first = count - YOUNGER if patient else 0
    assert tags == list(range(first + 1, first + RECALLED + 1))


# -- only messages younger than the last one are searched --------------------------------------------------------------


def evaluations(holder: Consumer, waiter: Consumer, world: World) -> int:
    """How many of the messages that others have buffered a patient WANT evaluates its selector on."""
    calls = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == "matches"

    sys.setprofile(count_call)
    try:
        waiter.want(world.now, patient=True)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.needs_python("counts calls of a method")
def test_a_patient_want_evaluates_its_selector_on_younger_messages_alone(world: World) -> None:
    holder = world.consumer("queue:q", "kind = 'a'", credit=1_000)
    waiter = world.consumer("queue:q", "kind = 'b'", credit=0)
    world.send("queue:q", *(message(f"a{n}", properties={"kind": "a"}) for n in range(100)))
    assert evaluations(holder, waiter, world) == 100  # it has got nothing: everything is younger
    for turn in range(20):
        world.send("queue:q", *(message(f"a{turn}.{n}", properties={"kind": "a"}) for n in range(10)))
        world.send("queue:q", message(f"b{turn}", properties={"kind": "b"}))
        world.send("queue:q", message(f"c{turn}", properties={"kind": "a"}))
        assert world.got(waiter)[-1] == f"b{turn}"
        waiter.acknowledge(waiter.tag, world.now)
        assert evaluations(holder, waiter, world) == 1


def test_a_waiter_behind_another_with_the_same_selector_gets_younger_messages_of_a_busy_holder(world: World) -> None:
    """The first waiter's last message is the newest of all; the second one's is older than what the holder has."""
    ahead, behind = (world.consumer("queue:q", "n >= 0", credit=0) for _ in range(2))
    world.send("queue:q", message("first", properties={"n": 0}))
    assert behind.want(world.now)
    assert world.got(behind) == ["first"]
    holder = world.consumer("queue:q", credit=4)
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(4)))
    assert len(world.got(holder)) == 4
    world.send("queue:q", message("newest", properties={"n": 9}))
    assert ahead.want(world.now)
    assert world.got(ahead) == ["newest"]
    ahead.acknowledge(1, world.now)
    assert ahead.want(world.now, patient=True)  # nothing is younger
    assert not behind.want(world.now, patient=True)
    assert world.port(holder).recalls == [(holder.id, [1])]


def test_older_messages_of_a_consumer_that_stops_are_recalled_after_a_search_of_younger_ones(world: World) -> None:
    holder = world.consumer("queue:q", credit=3)
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(3)))
    assert len(world.got(holder)) == 3
    waiter = world.consumer("queue:q", "n >= 0", credit=0)
    world.send("queue:q", message("newest", properties={"n": 9}))
    assert waiter.want(world.now)
    assert world.got(waiter) == ["newest"]
    assert waiter.want(world.now, patient=True)
    assert world.port(holder).recalls == []
    world.advance(IDLE_MS)
    assert world.port(holder).recalls == [(holder.id, [1])]
