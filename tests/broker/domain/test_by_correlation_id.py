"""A consumer for one correlation id, opened for one message on a deep queue and closed again: what an index answers is
what a look at every message would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.broker.at_once import close, recover, release

from sievemq_broker.domain import Consumer, Queue, backlog, scan
from sievemq_core.message.envelope import Envelope

from .support import World, message
from .test_observer import Notes

WANTED = "JMSCorrelationID = 'id'"


@contextmanager
def indexed_from(depth: int) -> Iterator[None]:
    """Queues have an index from this depth on."""
    with mock.patch.object(scan, "INDEX_FROM", depth), mock.patch.object(backlog, "INDEX_FROM", depth):
        yield


@pytest.fixture(params=[1, 10**9], ids=["index", "no index"], autouse=True)
def depth(request: pytest.FixtureRequest) -> Iterator[None]:
    with indexed_from(request.param):
        yield


@pytest.fixture
def world() -> World:
    """With a queue of ten messages that match no consumer, and an index if there may be one."""
    world = World()
    world.send("queue:q", *(message(f"m{n}", correlation_id=f"c{n}") for n in range(10)))
    close(world.consumer("queue:q", "JMSCorrelationID = 'none'", credit=0), 0, world.now)
    return world


def queue_of(world: World) -> Queue:
    return world.namespace.queue("queue:q")


def answer(name: str, **how: int) -> Envelope:
    return message(name, correlation_id="id", **how)


def opened(world: World, credit: int = 1) -> Consumer:
    """As the session opens it: the credit comes after the answer."""
    consumer = world.consumer("queue:q", WANTED, credit=0)
    if credit:
        consumer.grant(credit, world.now)
    return consumer


def is_as_before(world: World) -> bool:
    """Nothing is left of consumers that are closed."""
    queue = queue_of(world)
    return not (queue.backlog.views or queue.consumers or queue.holders or len(queue.index))


def test_it_receives_its_message_and_leaves_no_state(world: World) -> None:
    world.send("queue:q", answer("a"))
    consumer = opened(world)
    assert world.got(consumer) == ["a"]
    queue = queue_of(world)
    assert (queue.depth, queue.in_flight, queue.delivered) == (10, 1, 1)
    assert consumer.acknowledge(1, world.now) == 1
    close(consumer, 1, world.now)
    assert is_as_before(world)
    assert (queue.depth, queue.in_flight, queue.acknowledged, queue.delivered) == (10, 0, 1, 1)
    assert world.got(opened(world)) == []


def test_an_open_receiver_is_listed_with_its_examined_count(world: World) -> None:
    world.send("queue:q", answer("a"), answer("b"))
    consumer = opened(world)
    queue = queue_of(world)
    assert queue.consumers == [consumer]
    assert queue.matched(consumer.view) == (2, 12)
    world.send("queue:q", answer("c"), message("other", correlation_id="x"))
    assert queue.matched(consumer.view) == (3, 14)


def test_messages_held_by_others_are_not_counted(world: World) -> None:
    world.send("queue:q", answer("a"), answer("b"))
    opened(world)
    consumer = world.consumer("queue:q", "JMSCorrelationID IN ('id', 'x')")
    assert world.got(consumer) == ["b"]
    assert queue_of(world).matched(consumer.view) == (1, 11)


def test_closing_without_a_receive_returns_the_message_unmarked(world: World) -> None:
    world.send("queue:q", answer("a"), answer("b"))
    first = opened(world)
    close(first, 0, world.now)
    assert is_as_before(world)
    assert world.browse("queue:q", WANTED) == ["a", "b"]
    assert world.counts(opened(world, 2)) == [("a", 1), ("b", 1)]


def test_a_receiver_without_credit_holds_no_message(world: World) -> None:
    world.send("queue:q", answer("a"))
    idle = opened(world, 0)
    assert world.got(opened(world)) == ["a"]
    idle.grant(1, world.now)
    assert world.got(idle) == []


def test_two_for_the_same_id_get_one_each_in_order(world: World) -> None:
    world.send("queue:q", answer("a"), answer("b"), answer("c"))
    first, second = opened(world), opened(world)
    assert (world.got(first), world.got(second)) == (["a"], ["b"])
    close(first, 0, world.now)  # a comes back, to the front
    second.grant(2, world.now)
    assert world.got(second) == ["b", "a", "c"]


def test_buffered_messages_of_others_are_recalled_and_arrive_unmarked(world: World) -> None:
    world.send("queue:q", answer("a"))
    holder = world.consumer("queue:q", credit=100)
    consumer = opened(world)
    assert world.got(consumer) == []
    assert not consumer.want(world.now, brief=True)
    assert world.port(holder).recalls == [(holder.id, [11])]
    release(holder, [11], world.now)
    assert world.counts(consumer) == [("a", 1)]
    assert world.port(consumer).events == ["deliver", "settled"]


def test_handed_messages_of_others_are_not_recalled(world: World) -> None:
    world.send("queue:q", answer("a"))
    holder = world.consumer("queue:q", credit=100)
    consumer = opened(world)
    assert not consumer.want(world.now, brief=True)
    release(holder, [], world.now)  # handed to its application
    assert world.got(consumer) == []
    assert world.port(consumer).settlements == [consumer.id]
    close(consumer, 0, world.now)
    close(holder, holder.tag, world.now)
    recover(holder, holder.tag, world.now)
    assert world.counts(opened(world)) == [("a", 2)]


def test_an_expired_message_is_not_delivered(world: World) -> None:
    world.send("queue:q", answer("old", expires=world.now + 5), answer("new"))
    world.now += 5  # no timer has run
    assert world.got(opened(world)) == ["new"]
    assert queue_of(world).counts.expired == 1


def test_priority_and_redelivery_come_first(world: World) -> None:
    world.send("queue:q", answer("low", priority=1), answer("a"), answer("b"), answer("urgent", priority=9))
    first = opened(world, 3)
    assert world.got(first) == ["urgent", "a", "b"]
    first.acknowledge(1, world.now)
    recover(first, 3, world.now)
    close(first, 3, world.now)
    world.send("queue:q", answer("c"), answer("urgent 2", priority=9))
    assert world.counts(opened(world, 9)) == [("urgent 2", 1), ("a", 2), ("b", 2), ("c", 1), ("low", 1)]


def test_an_arrival_between_open_and_receive_is_delivered(world: World) -> None:
    consumer = opened(world)
    world.send("queue:q", message("other", correlation_id="x"), answer("a"), answer("b"))
    assert world.got(consumer) == ["a"]
    assert world.browse("queue:q", WANTED) == ["b"]
    assert consumer.want(world.now)
    assert world.got(consumer) == ["a", "b"]


def test_a_second_arrival_waits_for_the_next_receiver(world: World) -> None:
    world.send("queue:q", answer("a"))
    consumer = opened(world)
    world.send("queue:q", answer("b"))
    consumer.acknowledge(1, world.now)
    close(consumer, 1, world.now)
    assert world.got(opened(world)) == ["b"]


def test_a_browser_shows_waiting_messages_only(world: World) -> None:
    world.send("queue:q", answer("a"), answer("b"))
    assert world.browse("queue:q", WANTED) == ["a", "b"]
    consumer = opened(world)
    assert world.browse("queue:q", WANTED) == ["b"]
    close(consumer, 0, world.now)
    assert world.browse("queue:q", WANTED) == ["a", "b"]


def test_a_paused_queue_delivers_after_resume(world: World) -> None:
    world.send("queue:q", answer("a"))
    queue = queue_of(world)
    queue.pause()
    consumer = opened(world)
    assert world.got(consumer) == []
    queue.unpause(world.now)
    assert world.got(consumer) == ["a"]


def test_a_group_stays_with_the_one_of_two_that_has_its_first_message(world: World) -> None:
    world.send("queue:q", *(message(n, correlation_id="id", properties={"JMSXGroupID": "g"}) for n in ("a", "b")))
    first = opened(world)
    second = opened(world)
    assert (world.got(first), world.got(second)) == (["a"], [])
    first.acknowledge(1, world.now)
    assert (world.got(first), world.got(second)) == (["a"], ["b"])


def test_full_output_delivers_nothing_until_it_is_written(world: World) -> None:
    world.send("queue:q", answer("a"))
    consumer = world.consumer("queue:q", WANTED, credit=0)
    world.port(consumer).writable = False
    consumer.grant(1, world.now)
    assert world.got(consumer) == []
    world.resume(consumer)
    assert world.got(consumer) == ["a"]


def test_a_purge_while_it_is_open_leaves_nothing_to_get(world: World) -> None:
    world.send("queue:q", answer("a"), answer("b"))
    consumer = opened(world)
    assert queue_of(world).clear() == 11
    consumer.grant(5, world.now)
    assert world.got(consumer) == ["a"]
    world.send("queue:q", answer("c"))
    assert world.got(consumer) == ["a", "c"]


def test_an_id_set_as_bytes_is_nobodys(world: World) -> None:
    world.send("queue:q", message("raw", correlation_id=b"id"))
    assert world.got(opened(world)) == []


def test_an_observer_is_notified(world: World) -> None:
    notes = Notes()
    queue = queue_of(world)
    queue.observe(notes)
    world.send("queue:q", answer("a"))
    consumer = opened(world)
    consumer.acknowledge(1, world.now)
    close(consumer, 1, world.now)
    assert [what for what, _, name in notes.events if name == "a"] == ["accepted", "handed", "acknowledged"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from("xyz"), st.sampled_from([4, 4, 9]), st.sampled_from([0, 0, 0, 3])),
        st.tuples(
            st.just("open"),
            st.sampled_from(
                [
                    "JMSCorrelationID = 'x'",
                    "JMSCorrelationID = 'y'",
                    "JMSCorrelationID IN ('x', 'z')",
                    "JMSCorrelationID = 'x' AND JMSPriority = 9",
                    "JMSCorrelationID LIKE '%'",
                ]
            ),
            st.integers(0, 2),
        ),
        st.tuples(st.sampled_from(["grant", "want", "acknowledge", "recover", "close", "back"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["pause", "advance", "purge"])),
    ),
    max_size=40,
)


def play(steps: list[tuple[object, ...]]) -> list[object]:
    """What everybody sees, step by step."""
    world = World()
    queue = queue_of(world)
    consumers: list[Consumer] = []
    seen: list[object] = []
    for number, (what, *how) in enumerate(steps):
        match what, *how:
            case "send", str(value), int(priority), int(life):
                expires = world.now + life if life else 0
                world.send("queue:q", message(f"m{number}", correlation_id=value, priority=priority, expires=expires))
            case "open", str(text), int(credit):
                consumers.append(world.consumer("queue:q", text, credit=credit))
            case "pause", *_:
                if queue.paused:
                    queue.unpause(world.now)
                else:
                    queue.pause()
            case "advance", *_:
                world.advance(2)
            case "purge", *_:
                queue.clear()
            case str(verb), int(which) if consumers:
                one = consumers[which % len(consumers)]
                match verb:
                    case "grant":
                        one.grant(1, world.now)
                    case "want":
                        one.want(world.now)
                    case "acknowledge":
                        one.acknowledge(one.tag, world.now)
                    case "recover":
                        recover(one, one.tag - which % 2, world.now)
                    case "close":
                        close(one, one.tag - which % 2 if one.tag else 0, world.now)
                    case _:  # the answers to recalls, and whatever else is buffered
                        release(one, tuple(range(one.base + 1, one.tag + 1)), world.now)
        world.work()
        seen.append(
            (
                [(port.deliveries[:], port.recalls[:], port.settlements[:]) for port in world.ports.values()],
                [(one.open, one.unacknowledged, one.credit, one.source.matched(one.view)) for one in consumers],
                (queue.depth, queue.in_flight, queue.delivered, queue.counts.expired, queue.examined, len(queue.index)),
                world.browse("queue:q"),
                world.browse("queue:q", "JMSCorrelationID = 'x'"),
            )
        )
    return seen


@settings(max_examples=150)
@example(
    steps=[
        ("send", "x", 4, 0), ("open", "JMSCorrelationID = 'x'", 2), ("back", 0), ("recover", 0),
        ("open", "JMSCorrelationID IN ('x', 'z')", 0),
    ],
)  # fmt: skip
@given(steps=STEPS)
def test_with_and_without_an_index_everybody_sees_the_same(steps: list[tuple[object, ...]]) -> None:
    with indexed_from(1):
        one = play(steps)
    with indexed_from(10**9):
        other = play(steps)
    assert one == other
