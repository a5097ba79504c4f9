"""A backlog that one consumer drains: the same messages in the same order, and no more than it can take."""

from __future__ import annotations

import pytest
from tests.broker.at_once import abandon, close

from sievemq_broker.domain import Consumer
from sievemq_broker.domain.queue import ROW
from sievemq_broker.domain.view import PIECE

from .support import Port, World, message
from .test_by_correlation_id import indexed_from


def names(*numbers: int) -> list[str]:
    return [f"m{number}" for number in numbers]


@pytest.fixture
def world() -> World:
    return World()


def rows(world: World) -> list[int]:
    """How many messages each row had, for whomever: a test that is about rows must have seen one."""
    return [length for port in world.ports.values() for length in port.rows]


class Narrow(Port):
    """Takes some messages, then it is full."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        super().deliver(consumer_id, tag, count, packed)
        self.room -= 1
        self.writable = self.room > 0


def depth(world: World) -> tuple[int, int]:
    queue = world.namespace.queue("queue:q")
    return queue.depth, queue.bytes


@pytest.mark.parametrize("late", [0, 1, 60_000])
def test_expired_messages_are_not_delivered_although_no_timer_has_run(world: World, late: int) -> None:
    expires = world.now + 1_000
    for name in names(*range(6)):
        world.send("queue:q", name, expires=expires if name in ("m2", "m5") else 0)
    world.now = expires + late
    consumer = world.consumer("queue:q")
    assert world.got(consumer) == names(0, 1, 3, 4)
    assert world.namespace.queue("queue:q").counts.expired == 2
    assert rows(world)


def test_credit_is_used_up_and_no_more(world: World) -> None:
    world.send("queue:q", *names(*range(10)))
    whole = depth(world)[1]
    consumer = world.consumer("queue:q", credit=4)
    assert world.got(consumer) == names(0, 1, 2, 3)
    assert (consumer.credit, consumer.tag, consumer.unacknowledged) == (0, 4, 4)
    assert depth(world) == (6, whole * 6 // 10)
    consumer.grant(100, world.now)
    assert world.got(consumer) == names(*range(10))
    assert [delivery.tag for delivery in world.port(consumer).deliveries] == list(range(1, 11))
    assert depth(world) == (0, 0)
    assert rows(world) == [4, 6]
    world.send("queue:q", "next")
    assert world.got(consumer)[-1] == "next"


def test_a_port_that_is_full_ends_the_row_where_it_is(world: World) -> None:
    world.send("queue:q", *names(*range(8)))
    port = world.ports[1] = Narrow(3)
    consumer = world.namespace.open_consumer(port, 1, "queue:q", None, connection="c1", credit=100, now=world.now)
    assert world.got(consumer) == names(0, 1, 2)
    assert (consumer.credit, depth(world)[0]) == (97, 5)
    port.room, port.writable = 2, True
    consumer.resume(world.now)
    assert world.got(consumer) == names(0, 1, 2, 3, 4)
    port.room, port.writable = 100, True
    consumer.resume(world.now)
    assert world.got(consumer) == names(*range(8))
    assert rows(world) == [3, 2, 3]


def test_expired_messages_are_skipped_and_later_ones_delivered(world: World) -> None:
    for number in range(6):
        world.send("queue:q", message(f"m{number}", expires=world.now + 10 if number in (0, 2, 3) else 0))
    world.now += 10  # the timer has not come round to it
    consumer = world.consumer("queue:q")
    assert world.got(consumer) == names(1, 4, 5)
    assert world.namespace.queue("queue:q").counts.expired == 3
    assert depth(world) == (0, 0)
    assert rows(world) == [2]


def test_messages_that_will_expire_lose_their_deadline(world: World) -> None:
    for number in range(3_000):
        world.send("queue:q", message(f"m{number}", expires=world.now + 1_000 + number))
    consumer = world.consumer("queue:q", credit=3_000)
    assert len(world.got(consumer)) == 3_000
    world.advance(10_000)
    assert world.namespace.queue("queue:q").counts.expired == 0
    consumer.acknowledge(3_000, world.now)
    assert len(world.broker.deadlines) < 3_000


def test_priorities_come_first_and_returned_messages_lead_their_priority(world: World) -> None:
    world.send("queue:q", *names(0, 1))
    world.send("queue:q", "high", priority=9)
    first = world.consumer("queue:q", credit=2)
    assert world.got(first) == ["high", "m0"]
    abandon(first, world.now)  # both come back, marked
    second = world.consumer("queue:q")
    assert world.counts(second) == [("high", 2), ("m0", 2), ("m1", 1)]


def test_several_consumers_take_turns(world: World) -> None:
    queue = world.namespace.queue("queue:q")
    one, two = world.consumer("queue:q", credit=0), world.consumer("queue:q", credit=0)
    world.send("queue:q", *names(*range(6)))
    queue.pause()
    one.grant(3, world.now)
    two.grant(3, world.now)
    queue.unpause(world.now)
    assert sorted(world.got(one) + world.got(two)) == names(*range(6))
    assert len(world.got(one)) == len(world.got(two)) == 3
    assert world.got(one) in (names(0, 2, 4), names(1, 3, 5))
    assert not rows(world)


def test_a_request_is_answered_once(world: World) -> None:
    consumer, queue = world.consumer("queue:q", credit=0), world.namespace.queue("queue:q")
    queue.hold()
    assert not consumer.want(world.now), "a batch is being published: the answer has to wait for it"
    world.send("queue:q", *names(0, 1, 2))
    consumer.grant(10, world.now)
    assert not world.port(consumer).events
    queue.release(world.now)
    assert world.got(consumer) == names(0, 1, 2)
    assert world.port(consumer).events.count("settled") == 1


def views(world: World) -> tuple[Consumer, Consumer, Consumer]:
    return (
        world.consumer("queue:q", "n = 0", credit=0),
        world.consumer("queue:q", "n = 1", credit=0),
        world.consumer("queue:q", credit=0),
    )


def test_a_row_of_one_view_leaves_tombstones_in_the_others(world: World) -> None:
    even, odd, every = views(world)
    world.send("queue:q", *(message(f"m{number}", properties={"n": number % 2}) for number in range(12)))
    even.grant(4, world.now)
    assert world.got(even) == names(0, 2, 4, 6)
    every.grant(3, world.now)
    assert world.got(every) == names(1, 3, 5)
    odd.grant(100, world.now)
    assert world.got(odd) == names(7, 9, 11)
    even.grant(100, world.now)
    assert world.got(even) == names(0, 2, 4, 6, 8, 10)
    assert depth(world) == (0, 0)
    assert rows(world) == [4, 2, 3]


def test_very_many_tombstones_are_dropped_in_the_middle_of_draining(world: World) -> None:
    even, odd, every = views(world)
    count = 6 * ROW
    world.send("queue:q", *(message(f"m{number}", properties={"n": number % 2}) for number in range(count)))
    even.grant(count, world.now)
    world.work()
    assert world.got(even) == names(*range(0, count, 2))
    every.grant(ROW // 2, world.now)
    odd.grant(count, world.now)
    world.work()
    assert world.got(every) + world.got(odd) == names(*range(1, count, 2))
    assert depth(world) == (0, 0)
    assert len(world.namespace.queue("queue:q").main) < count


def test_a_queue_that_is_never_drained_does_not_grow(world: World) -> None:
    """Credit is used up before anybody looks whether there is more: what was delivered is let go of all the same."""
    world.send("queue:q", *names(*range(500)))
    consumer, queue = world.consumer("queue:q", credit=0), world.namespace.queue("queue:q")
    number = 500
    for _ in range(3 * PIECE // 500):
        world.send("queue:q", *names(*range(number, number + 500)))
        number += 500
        consumer.grant(500, world.now)
        consumer.acknowledge(consumer.tag, world.now)
    lane = queue.main.lanes[4]
    assert lane is not None
    assert (queue.depth, len(lane)) == (500, 500)
    assert len(lane.items) <= PIECE + 500
    assert world.got(consumer) == names(*range(number - 500))
    assert len(rows(world)) >= 3 * PIECE // 500


def test_a_consumer_that_finds_only_tombstones_keeps_its_turn(world: World) -> None:
    queue = world.namespace.queue("queue:q")
    queue.pause()
    world.send("queue:q", message("m0", properties={"n": 1}))
    every, ones = world.consumer("queue:q", credit=9), world.consumer("queue:q", "n = 1", credit=9)
    queue.unpause(world.now)
    assert world.got(every) == ["m0"]
    world.send("queue:q", message("m1", properties={"n": 1}))
    assert world.got(ones) == ["m1"], "the other one was served last"


# -- what arrives in a row --------------------------------------------------------------------------------------------


def send_row(world: World, address: str, *texts: str, priority: int = 4) -> None:
    """As a session sends what has come in one go."""
    destination = world.namespace.route(address)
    assert destination is not None, "nothing was sent there before"
    world.namespace.send_row(destination, [message(text, priority=priority) for text in texts], world.now, "c9")


def test_each_subscriber_gets_as_much_of_a_row_as_it_can_take_and_the_rest_in_order(world: World) -> None:
    narrow = world.ports[1] = Narrow(3)
    first = world.namespace.open_consumer(narrow, 1, "topic:t", None, connection="c1", credit=100, now=world.now)
    second, third, idle = (world.consumer("topic:t", credit=credit) for credit in (2, 100, 0))
    world.send("topic:t", "m0")
    send_row(world, "topic:t", *names(*range(1, 8)))
    assert [len(world.got(each)) for each in (first, second, third, idle)] == [3, 2, 8, 0]
    assert [each.source.depth for each in (first, second, third, idle)] == [5, 6, 0, 8]
    size = world.namespace.queue("queue:q").bytes
    assert size == 0
    assert first.source.bytes * 6 == second.source.bytes * 5
    send_row(world, "topic:t", *names(8, 9))
    assert world.got(third) == names(*range(10))
    narrow.room, narrow.writable = 100, True
    first.resume(world.now)
    second.grant(3, world.now)
    second.grant(100, world.now)
    idle.grant(100, world.now)
    for each in (first, second, idle):
        assert world.got(each) == names(*range(10))
        assert [delivery.tag for delivery in world.port(each).deliveries] == list(range(1, 11))
        assert (each.source.depth, each.source.bytes, each.source.enqueued, each.unacknowledged) == (0, 0, 10, 10)
        assert (each.newest, each.acknowledge(7, world.now), each.unacknowledged) == (10, 7, 3)


def test_a_waiting_row_is_delivered_by_priority(world: World) -> None:
    consumer = world.consumer("queue:q", credit=0)
    world.send("queue:q", "m0")
    send_row(world, "queue:q", *names(1, 2))
    send_row(world, "queue:q", *names(3, 4), priority=9)
    consumer.grant(100, world.now)
    assert world.got(consumer) == names(3, 4, 0, 1, 2)


def test_a_row_is_found_by_correlation_id(world: World) -> None:
    world.send("queue:q", message("m0", correlation_id="z"))
    with indexed_from(1):
        close(world.consumer("queue:q", "JMSCorrelationID = 'none'", credit=0), 0, world.now)
    queue = world.namespace.queue("queue:q")
    assert queue.backlog.lookups, "an index that stays"
    consumer, row = world.consumer("queue:q", credit=0), []
    for number in range(1, 5):
        row.append(message(f"m{number}", correlation_id="xy"[number % 2]))
    world.namespace.send_row(queue, row, world.now, "c9")
    assert world.got(world.consumer("queue:q", "JMSCorrelationID = 'x'", credit=10)) == names(2, 4)
    consumer.grant(100, world.now)
    assert world.got(consumer) == names(0, 1, 3)


def test_a_waiting_consumer_gets_the_first_of_a_row_and_no_more(world: World) -> None:
    consumer, queue = world.consumer("queue:q", credit=0), world.namespace.queue("queue:q")
    world.send("queue:q", "m0")
    consumer.grant(1, world.now)
    consumer.want(world.now)
    assert consumer.waiting
    send_row(world, "queue:q", *names(1, 2, 3))
    assert (world.got(consumer), consumer.waiting) == (names(0, 1), False)
    consumer.grant(1, world.now)
    assert (world.got(consumer), queue.depth) == (names(0, 1, 2), 1)


@pytest.mark.parametrize("lead", [0, 3])
def test_a_port_that_fails_has_not_been_given_anything(world: World, lead: int) -> None:
    class Broken(Port):
        def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
            raise ZeroDivisionError

    port = world.ports[1] = Broken()
    consumer = world.namespace.open_consumer(port, 1, "queue:q", None, connection="c1", credit=lead, now=world.now)
    world.send("queue:q", *names(*range(lead)))
    destination = world.namespace.declare("queue:q")
    consumer.credit = 10
    with pytest.raises(ZeroDivisionError):
        world.namespace.send_row(destination, [message("a"), message("b")], world.now, "c9")
    assert (consumer.tag, consumer.unacknowledged, consumer.credit) == (lead, lead, 10)
