"""A queue: order, priorities, what comes back, credit, many views. Rules by their ids."""

from __future__ import annotations

import sys
import tracemalloc

import pytest
from tests.broker.at_once import abandon, close, recover, release

from sievemq_broker.domain import Broker, Consumer, DestinationPolicy
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.queue import SERVED
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.destination import parse_address
from sievemq_core.message.envelope import Envelope

from .support import NOW, Port, World, message


def test_ord_03_priority_first_then_arrival(world: World) -> None:
    for name, priority in (("a", 4), ("b", 9), ("c", 4), ("d", 0), ("e", 9)):
        world.send("queue:q", name, priority=priority)
    assert world.browse("queue:q") == ["b", "e", "a", "c", "d"]
    assert world.got(world.consumer("queue:q")) == ["b", "e", "a", "c", "d"]


def test_ord_07_redelivered_before_undelivered_of_equal_priority(world: World) -> None:
    first = world.consumer("queue:q", "n = 1")
    world.send("queue:q", message("a"), message("b", properties={"n": 1}), message("urgent", priority=9))
    assert world.got(first) == ["b"]
    recover(first, 1, world.now)
    close(first, 1, world.now)
    other = world.consumer("queue:q")
    assert world.counts(other) == [("urgent", 1), ("b", 2), ("a", 1)]


def test_mco_10_buffered_messages_return_to_their_place_unmarked(world: World) -> None:
    world.send("queue:q", "a", "b", "c", "d")
    first = world.consumer("queue:q", credit=3)
    assert world.got(first) == ["a", "b", "c"]
    close(first, 1, world.now)
    second = world.consumer("queue:q")
    assert world.counts(second) == [("b", 1), ("c", 1), ("d", 1)]
    assert first.unacknowledged == 1


def test_mco_09_a_closed_consumer_keeps_what_its_application_has_until_it_is_settled(world: World) -> None:
    world.send("queue:q", "a", "b")
    first = world.consumer("queue:q")
    second = world.consumer("queue:q")
    close(first, 2, world.now)
    assert world.got(second) == []
    assert world.namespace.queue("queue:q").in_flight == 2
    assert first.acknowledge(1, world.now) == 1
    recover(first, 2, world.now)  # ACK-20
    assert world.counts(second) == [("b", 2)]
    assert world.namespace.queue("queue:q").holders == set()


def test_ack_14_recover_marks_only_what_was_handed(world: World) -> None:
    world.send("queue:q", "a", "b", "c")
    consumer = world.consumer("queue:q")
    world.clear(consumer)
    recover(consumer, 2, world.now)
    assert world.got(consumer) == []  # its credit is gone until the client grants it anew
    consumer.grant(10, world.now)
    assert world.counts(consumer) == [("a", 2), ("b", 2), ("c", 1)]
    assert [d.tag for d in world.port(consumer).deliveries] == [4, 5, 6]


def test_ack_08_to_recover_a_session_all_its_consumers_stand_still_first(world: World) -> None:
    one, two = world.consumer("queue:q", credit=2), world.consumer("queue:q", credit=2)
    world.send("queue:q", "a", "b")
    world.clear(one, two)
    one.halt()
    two.halt()
    recover(one, 1, world.now)
    recover(two, 1, world.now)
    assert world.got(one) == world.got(two) == []
    two.grant(2, world.now)
    assert world.counts(two) == [("a", 2), ("b", 2)]


def test_ack_18_a_lost_connection_gives_everything_back_marked(world: World) -> None:
    world.send("queue:q", "a", "b")
    lost = world.consumer("queue:q")
    abandon(lost, world.now)
    abandon(lost, world.now)
    assert world.counts(world.consumer("queue:q")) == [("a", 2), ("b", 2)]


def test_acknowledging_undelivered_messages_is_refused(world: World) -> None:
    consumer = world.consumer("queue:q")
    world.send("queue:q", "a")
    with pytest.raises(RequestError, match="never delivered tag 2") as caught:
        consumer.acknowledge(2, world.now)
    assert caught.value.code is ErrorCode.ILLEGAL_STATE
    with pytest.raises(RequestError, match="tag 7"):
        release(consumer, [1, 7], world.now)
    assert consumer.unacknowledged == 1
    assert consumer.acknowledge(1, world.now) == 1
    assert consumer.acknowledge(1, world.now) == 0  # MSG-03
    release(consumer, [1], world.now)
    assert world.browse("queue:q") == []


def test_acknowledgement_skips_released_messages(world: World) -> None:
    world.send("queue:q", *"abcde")
    consumer = world.consumer("queue:q", credit=5)
    release(consumer, [2, 4], world.now)
    assert world.browse("queue:q") == ["b", "d"]
    assert consumer.acknowledge(5, world.now) == 3
    assert (consumer.unacknowledged, consumer._holes, len(consumer.window)) == (0, 0, 0)


def test_credit_bounds_what_is_in_flight(world: World) -> None:
    world.send("queue:q", *"abcd")
    consumer = world.consumer("queue:q", credit=0)
    assert world.got(consumer) == []
    consumer.grant(1, world.now)
    consumer.grant(2, world.now)
    assert world.got(consumer) == ["a", "b", "c"]
    consumer.acknowledge(3, world.now)
    assert world.got(consumer) == ["a", "b", "c"]


def test_a_slow_consumer_does_not_hold_up_the_others(world: World) -> None:
    slow, quick = world.consumer("queue:q", credit=1), world.consumer("queue:q")
    world.send("queue:q", *"abcd")
    assert world.got(slow) == ["a"]
    assert world.got(quick) == ["b", "c", "d"]


def test_messages_go_round_among_consumers_with_credit(world: World) -> None:
    three = [world.consumer("queue:q") for _ in range(3)]
    world.send("queue:q", *"abcdef")
    assert [world.got(consumer) for consumer in three] == [["a", "d"], ["b", "e"], ["c", "f"]]


def test_messages_go_round_also_over_different_selectors_that_match(world: World) -> None:
    plain, one, two = (world.consumer("queue:q", text) for text in (None, "n = 1", "n > 0"))
    world.send("queue:q", *(message(f"m{n}", properties={"n": 1}) for n in range(9)))
    assert sorted(len(world.got(consumer)) for consumer in (plain, one, two)) == [3, 3, 3]


def test_a_port_that_is_full_counts_as_no_credit_until_it_resumes(world: World) -> None:
    blocked, other = world.consumer("queue:q"), world.consumer("queue:q", "n = 1")
    world.port(blocked).writable = False
    world.send("queue:q", message("a"), message("b", properties={"n": 1}))
    assert world.got(blocked) == []
    assert world.got(other) == ["b"]
    world.resume(blocked)
    assert world.got(blocked) == ["a"]


def test_a_port_that_fills_up_half_way_stops_the_dispatch() -> None:
    class Narrow(Port):
        def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
            super().deliver(consumer_id, tag, count, packed)
            self.writable = len(self.deliveries) % 2 == 1

    world = World()
    world.send("queue:q", *"abcd")
    port = Narrow()
    consumer = world.namespace.open_consumer(port, 1, "queue:q", connection="c", credit=9, now=NOW)
    assert [d.name for d in port.deliveries] == ["a", "b"]
    port.writable = True
    consumer.resume(NOW)
    assert [d.name for d in port.deliveries] == ["a", "b", "c", "d"]


def test_sel_06_unselected_messages_stay_for_others(world: World) -> None:
    picky = world.consumer("queue:q", "n = 1")
    world.send("queue:q", message("a"), message("b", properties={"n": 1}), message("c", properties={"n": "1"}))
    assert world.got(picky) == ["b"]
    assert world.got(world.consumer("queue:q")) == ["a", "c"]


def test_null_matches_neither_a_condition_nor_its_opposite(world: World) -> None:
    equal, unequal = world.consumer("queue:q", "n = 1"), world.consumer("queue:q", "n <> 1")
    absent = world.consumer("queue:q", "n IS NULL")
    world.send("queue:q", message("a"), message("b", properties={"n": 2}))
    assert [world.got(consumer) for consumer in (equal, unequal, absent)] == [[], ["b"], ["a"]]


def test_a_message_delivered_from_one_view_leaves_all_views(world: World) -> None:
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(4)))
    views = [world.consumer("queue:q", text, credit=0) for text in ("n >= 0", "n < 2", "n > 1", "n <> 7")]
    plain = world.consumer("queue:q", credit=0)
    for number, consumer in enumerate([views[0], views[1], plain, views[2]]):
        consumer.grant(1, world.now)
        assert len(world.got(consumer)) == 1, number
    assert [world.got(consumer) for consumer in views] == [["m0"], ["m1"], ["m3"], []]
    assert world.got(plain) == ["m2"]
    views[3].grant(9, world.now)
    assert world.got(views[3]) == []
    assert world.namespace.queue("queue:q").depth == 0


def test_tombstones_are_bounded(world: World) -> None:
    idle = [world.consumer("queue:q", f"n >= {bound}", credit=0) for bound in range(5)]
    busy = world.consumer("queue:q", "n > 5", credit=0)
    queue = world.namespace.queue("queue:q")
    for _ in range(50):
        world.send("queue:q", *(message("m", properties={"n": 9}) for _ in range(100)))
        busy.grant(100, world.now)
        busy.acknowledge(busy.tag, world.now)
    assert queue.depth == 0
    assert sum(len(view) for view in (queue.main, *queue.backlog.views.values())) < 3_000
    assert all(world.got(consumer) == [] for consumer in idle)


def test_messages_released_again_and_again_take_no_more_room(world: World) -> None:
    world.consumer("queue:q", "n > 0", credit=0)
    giver = world.consumer("queue:q", credit=0)
    world.send("queue:q", *(message("m", properties={"n": 1}) for _ in range(10)))
    queue = world.namespace.queue("queue:q")
    for _ in range(100):
        first = giver.tag + 1
        giver.grant(10, world.now)
        release(giver, list(range(first, giver.tag + 1)), world.now)
    assert queue.depth == 10
    assert sum(len(view) for view in (queue.main, *queue.backlog.views.values())) <= 60


def test_views_without_consumers_are_dropped(world: World) -> None:
    consumers = [world.consumer("queue:q", text) for text in ("n = 1", "n=1", "n = 2")]
    queue = world.namespace.queue("queue:q")
    assert len(queue.backlog.views) == 2  # the first two say the same
    for consumer in consumers:
        close(consumer, 0, world.now)
    assert (queue.backlog.views, len(queue.index), queue.consumers) == ({}, 0, [])
    world.send("queue:q", message("a", properties={"n": 1}))
    assert queue.index.evaluations == 0


def test_a_message_is_examined_once_per_distinct_selector(world: World) -> None:
    for _ in range(10):
        world.consumer("queue:q", "n LIKE '%x'", credit=0)
        world.consumer("queue:q", "n = 'y'", credit=0)
    world.send("queue:q", *(message("m", properties={"n": "z"}) for _ in range(7)))
    assert world.namespace.queue("queue:q").index.evaluations == 7


def test_d14_properties_that_cannot_be_decoded_leave_the_message_on_the_queue(world: World) -> None:
    picky = world.consumer("queue:q", "n = 1")
    header = world.consumer("queue:q", "JMSType = 'ok'", credit=1)
    bad = (b"\xc1garbage", None)
    world.send(
        "queue:q",
        message("bad", properties=bad),
        message("good", properties={"n": 1}),
        message("by header", type="ok", properties=bad),
    )
    queue = world.namespace.queue("queue:q")
    assert world.got(picky) == ["good"]
    assert world.got(header) == ["by header"]
    assert (queue.counts.unreadable, queue.depth) == (2, 1)
    assert world.browse("queue:q") == ["bad"]
    assert world.browse("queue:q", "n = 1") == []
    assert world.got(world.consumer("queue:q", "n IS NULL")) == []
    assert world.got(world.consumer("queue:q")) == ["bad"]


def test_waiting_messages_are_compact(world: World) -> None:
    envelope = message("a", properties={"n": 1})
    world.send("queue:q", envelope)
    assert envelope._fields is None
    assert envelope._properties is None
    assert isinstance(envelope, Envelope)


#: Frames whose memory is a message's; brokers of other tests in this process have threads that take some, too.
OURS = [tracemalloc.Filter(True, name) for name in ("*/sievemq_broker/domain/*", "*/sievemq_core/*", "*/tests/*")]


def test_a_waiting_message_takes_little_more_than_its_bytes(world: World) -> None:
    count = 4_000
    world.send("queue:q", *("m" for _ in range(300)))  # their sequences are numbers that Python has anyway
    taken = []
    for _ in range(3):
        tracemalloc.start(1)
        try:
            for number in range(count):
                world.send("queue:q", message(f"m{number}", body=bytes(256)))
            traces = tracemalloc.take_snapshot().filter_traces(OURS)
        finally:
            tracemalloc.stop()
        traced = sum(each.size for each in traces.statistics("filename"))
        waiting = world.namespace.queue("queue:q").main.waits(-1, 99_999)[-count:]
        taken.append((traced - sum(len(entry.envelope.packed) for entry in waiting)) / count)
    # Around the bytes 33, Envelope 80, Entry 96, its sequence 28, and a place in the lane of 8 to 14. Compiled,
    # Envelope has a pointer more, and the sequence is no object. Other threads of the process take some now and then.
    assert min(taken) < 33 + 80 + 96 + 28 + 15 + 4


def test_entry_and_envelope_take_at_most_96_bytes_in_either_build(world: World) -> None:
    world.send("queue:q", "a")
    (entry,) = world.namespace.queue("queue:q").main.waits(-1, 1)
    # Python gives out memory in steps of 16 bytes.
    assert max(map(sys.getsizeof, (entry, entry.envelope))) <= 96


def test_limits_refuse_what_would_not_fit_and_keep_the_rest() -> None:
    world = World(("queue:small", DestinationPolicy(max_messages=2)), ("queue:tiny", DestinationPolicy(max_bytes=200)))
    world.send("queue:small", "a", "b")
    with pytest.raises(RequestError, match="max_messages") as caught:
        world.send("queue:small", "c")
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    world.send("queue:tiny", message("a", body=b"x" * 150))
    with pytest.raises(RequestError, match="max_bytes"):
        world.send("queue:tiny", message("b", body=b"x" * 150))
    assert world.browse("queue:small") == ["a", "b"]
    consumer = world.consumer("queue:small", credit=1)
    world.send("queue:small", "c")  # in flight does not count: credit bounds that
    assert world.browse("queue:small") == ["b", "c"]
    consumer.acknowledge(1, NOW)


def test_d21_an_administrator_overrides_the_sender_and_headers_show_it() -> None:
    policy = DestinationPolicy(priority=7, delivery_mode=2, time_to_live=100, delay=10)
    world = World(("queue:q", policy))
    world.send("queue:q", message("a", priority=1))
    consumer = world.consumer("queue:q", "JMSPriority = 7 AND JMSDeliveryMode = 'PERSISTENT'")
    world.advance(9)
    assert world.got(consumer) == []
    world.advance(1)
    assert world.got(consumer) == ["a"]
    recover(consumer, 1, world.now)
    world.advance(90)
    assert world.namespace.queue("queue:q").counts.expired == 1


def test_pause_stops_deliveries_and_nothing_else(world: World) -> None:
    queue = world.namespace.queue("queue:q")
    consumer = world.consumer("queue:q")
    selective = world.consumer("queue:q", "n = 1")
    queue.pause()
    world.send("queue:q", message("a"), message("b", properties={"n": 1}))
    consumer.grant(5, world.now)
    assert world.browse("queue:q") == ["a", "b"]
    queue.unpause(world.now)
    assert world.got(consumer) + world.got(selective) == ["a", "b"]


def test_counters() -> None:
    world = World(("queue:q", DestinationPolicy(max_attempts=2)))
    queue = world.namespace.queue("queue:q")
    world.send("queue:q", *"abc")
    world.send("queue:q", message("later", at=NOW + 5))
    consumer = world.consumer("queue:q", credit=2)
    recover(consumer, 2, world.now)
    consumer.grant(9, world.now)
    recover(consumer, 5, world.now)
    consumer.grant(9, world.now)
    world.advance(5)
    consumer.acknowledge(consumer.tag, world.now)
    assert (queue.enqueued, queue.acknowledged, queue.counts.redelivered, queue.counts.dead_lettered) == (
        4,
        2,
        3 + 2,
        2,
    )
    assert (queue.delivered, queue.in_flight, queue.depth, queue.bytes) == (2 + 3 + 1 + 1, 0, 0, 0)


def test_deleting_a_destination_closes_its_consumers_and_frees_what_they_held(world: World) -> None:
    world.send("queue:q", *"abc")
    consumer = world.consumer("queue:q", credit=1)
    assert world.namespace.delete("queue:q")
    assert world.port(consumer).closures == [
        (consumer.id, ErrorCode.INVALID_DESTINATION, "queue:q was deleted by an administrator")
    ]
    consumer.acknowledge(1, world.now)
    close(consumer, 1, world.now)
    assert not world.namespace.delete("queue:q")
    world.send("queue:q", "d")  # a new one of that name
    assert world.browse("queue:q") == ["d"]
    held = world.consumer("queue:q")
    world.namespace.delete("queue:q")
    recover(held, 1, world.now)
    assert held.unacknowledged == 0
    assert world.browse("queue:q") == []


def test_a_bare_name_and_a_queue_address_are_one_destination(world: World) -> None:
    world.send("q", "a")
    world.send("queue:q", "b")
    assert world.browse("queue:q") == ["a", "b"]
    assert list(world.namespace.destinations) == ["queue:q"]
    assert world.namespace.find("q") is world.namespace.find("queue:q")
    assert world.namespace.find("topic:q") is None


def test_a_deleted_destination_is_forgotten_in_every_spelling(world: World) -> None:
    for address in ("q", "queue:q", parse_address("queue:q"), "topic:q", parse_address("topic:q"), "urn:q"):
        world.namespace.send(address, message("a"), NOW)
    for address in ("queue:q", "topic:q", "urn:q"):
        assert world.namespace.delete(address)
    assert (world.namespace._routes, world.namespace.destinations) == ({}, {})


def test_a_closed_consumer_that_holds_nothing_is_forgotten(world: World) -> None:
    queue = world.namespace.queue("queue:q")
    close(world.consumer("queue:q"), 0, NOW)
    holder = world.consumer("queue:q")
    world.send("queue:q", "a", "b")
    close(holder, 2, NOW)
    assert queue.holders == {holder}
    holder.acknowledge(1, NOW)
    release(holder, [2], NOW)
    assert queue.holders == set()
    assert world.browse("queue:q") == ["b"]


def test_destinations_are_limited_and_need_not_be_made_on_first_use() -> None:
    world = World(max_destinations=1)
    world.send("queue:q", "a")
    with pytest.raises(RequestError) as caught:
        world.send("queue:r", "a")
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    strict = World(auto_create=False)
    with pytest.raises(RequestError) as caught:
        strict.send("queue:q", "a")
    assert caught.value.code is ErrorCode.INVALID_DESTINATION
    strict.namespace.create("queue:q")
    strict.send("queue:q", "a")


def test_namespaces_are_apart() -> None:
    broker = Broker()
    one, two = broker.namespace("one"), broker.namespace("two")
    assert broker.namespace("") is broker.namespace("default")
    one.send("queue:q", message("a"), NOW)
    assert two.browse("queue:q", None, None, 9, NOW) == (None, [])
    port = Port()
    one.open_consumer(port, 1, "queue:q", connection="c", credit=1, now=NOW)
    assert broker.delete_namespace("one")
    assert len(port.closures) == 1
    assert not broker.delete_namespace("one")
    assert broker.namespace("one").destinations == {}


def test_txn_10_a_commit_is_all_or_nothing() -> None:
    world = World(("queue:small", DestinationPolicy(max_messages=2)))
    sends = [("queue:a", message("a")), ("queue:small", message("b")), ("queue:small", message("c"))]
    world.send("queue:small", "full")
    with pytest.raises(RequestError):
        world.namespace.commit(Sends(sends), NOW)
    assert world.browse("queue:a") == []
    assert world.browse("queue:small") == ["full"]
    with pytest.raises(RequestError):
        world.namespace.commit(Sends([("queue:a", message("a")), ("temporary-queue:gone.1", message("b"))]), NOW)
    assert world.browse("queue:a") == []
    world.namespace.commit(Sends([*sends[:2], ("queue:a", message("d"))]), NOW)
    assert world.browse("queue:a") == ["a", "d"]  # TXN-12
    assert world.browse("queue:small") == ["full", "b"]


@pytest.mark.parametrize("selector", [None, "n = 1"])
@pytest.mark.parametrize("how", ["credit", "unpause"])
def test_very_many_messages_are_delivered_in_slices_and_in_order(selector: str | None, how: str) -> None:
    """They came back, so each is looked at on its own."""
    world, count = World(), 5 * SERVED
    world.send("queue:q", *(message(f"m{number}", properties={"n": 1}) for number in range(count)))
    lost = world.consumer("queue:q", credit=count)
    world.work()
    abandon(lost, world.now)
    consumer = world.consumer("queue:q", selector, credit=0)
    world.work()
    queue = world.namespace.queue("queue:q")
    before = queue.delivered
    if how == "credit":
        consumer.grant(2 * count, world.now)
    else:
        queue.pause()
        consumer.grant(2 * count, world.now)
        queue.unpause(world.now)
    world.send("queue:q", message("new", properties={"n": 1}))
    assert not consumer.want(world.now)
    found = [queue.delivered - before]
    while world.broker.work(world.now, 500):
        found.append(queue.delivered - before - sum(found))
    assert max(found) == SERVED
    assert queue.standstill.held == 0
    assert world.got(consumer) == [*(f"m{number}" for number in range(count)), "new"]


# -- a limit of bytes -------------------------------------------------------------------------------------------------


def large(count: int) -> list[Envelope]:
    return [message(str(number), body=b"x" * 1_000) for number in range(count)]


def limited(world: World, size: int) -> Consumer:
    """A consumer with a limit, whose port takes one message at a time."""
    consumer = world.consumer("queue:q", credit=0)
    consumer.limit_bytes(size)
    port = world.port(consumer)

    def deliver_row(consumer_id: int, tag: int, row: list[bytes]) -> int:
        port.deliver(consumer_id, tag, 1, row[0])
        return 1

    port.deliver_row = deliver_row  # type: ignore[method-assign]
    return consumer


def test_credit_is_withheld_after_so_many_bytes_until_the_next_grant(world: World) -> None:
    consumer = limited(world, 2_500)
    world.send("queue:q", *large(9))
    consumer.grant(8, world.now)
    assert world.got(consumer) == ["0", "1", "2"]
    assert (consumer.credit, consumer.withheld, consumer.can_take()) == (0, 5, False)
    world.send("queue:q", "small")
    assert world.got(consumer) == ["0", "1", "2"]
    consumer.acknowledge(2, world.now, 1)
    assert world.got(consumer) == [str(number) for number in range(6)]
    consumer.acknowledge(6, world.now)  # grants nothing
    assert len(world.got(consumer)) == 6
    assert (consumer.credit, consumer.withheld) == (0, 3)


def test_want_gives_withheld_credit_back(world: World) -> None:
    consumer = limited(world, 2_500)
    world.send("queue:q", *large(7))
    consumer.grant(6, world.now)
    assert len(world.got(consumer)) == 3
    assert consumer.want(world.now)
    assert len(world.got(consumer)) == 6
    assert (consumer.credit, consumer.withheld) == (0, 0)
    assert consumer.want(world.now)  # without credit it is worth one
    assert len(world.got(consumer)) == 7


def test_a_message_for_a_consumer_that_waits_is_delivered_whatever_its_size(world: World) -> None:
    consumer = world.consumer("queue:q", credit=0)
    consumer.limit_bytes(10)
    consumer.grant(5, world.now)
    for number, envelope in enumerate(large(5)):
        world.send("queue:q", envelope)
        assert len(world.got(consumer)) == number + 1
        assert not consumer.want(world.now) or consumer.waiting


def test_a_row_of_messages_ends_with_the_one_that_uses_up_the_bytes(world: World) -> None:
    consumer = world.consumer("queue:q", credit=0)
    consumer.limit_bytes(2_500)
    world.send("queue:q", *large(8))
    consumer.grant(8, world.now)
    assert (world.got(consumer), consumer.credit, consumer.withheld) == (["0", "1", "2"], 0, 5)
    assert consumer.want(world.now)
    assert (len(world.got(consumer)), consumer.withheld) == (6, 2)
    assert consumer.want(world.now)
    assert (len(world.got(consumer)), consumer.credit, consumer.withheld) == (8, 0, 0)


def test_a_row_that_arrives_ends_with_the_message_that_uses_up_the_bytes(world: World) -> None:
    consumer = world.consumer("queue:q", credit=8)
    consumer.limit_bytes(1)
    world.send("queue:q", *"abc")
    assert (world.got(consumer), consumer.withheld) == (["a"], 7)
    assert [consumer.want(world.now), consumer.want(world.now)] == [True, True]
    assert world.got(consumer) == ["a", "b", "c"]


def test_recovery_and_close_forget_withheld_credit(world: World) -> None:
    for end in (recover, close):
        consumer = limited(world, 500)
        world.send("queue:q", *large(2))
        consumer.grant(5, world.now)
        assert consumer.withheld == 4
        end(consumer, consumer.tag, world.now)
        assert (consumer.credit, consumer.withheld) == (0, 0)


def test_what_is_recalled_renews_no_bytes(world: World) -> None:
    consumer = limited(world, 2_500)
    world.send("queue:q", *large(6))
    consumer.grant(6, world.now)
    release(consumer, [3], world.now)
    assert world.got(consumer) == ["0", "1", "2"]
    assert world.browse("queue:q") == ["2", "3", "4", "5"]
