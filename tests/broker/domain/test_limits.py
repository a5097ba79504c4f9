"""What happens to a send at a destination's limit: refused, made to wait, or dropped; and counted."""

from __future__ import annotations

import pytest
from tests.broker.at_once import abandon, recover

from sievemq_broker.domain.admission import LOOK_AT, Limited, Rooms
from sievemq_broker.domain.dead_letters import REFUSED_DELAY_MS
from sievemq_broker.domain.policy import CHOICES, DestinationPolicy, NamespacePolicy
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.queue import Queue
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import pack_properties

from .support import NOW, World, message, selector


def small(at_limit: str, **rules: int) -> World:
    return World(("queue:small", DestinationPolicy(at_limit=at_limit, **(rules or {"max_messages": 2}))))  # type: ignore[arg-type]


def queue_of(world: World) -> Queue:
    return world.namespace.queue("queue:small")


def test_scheduled_messages_count_towards_the_limit() -> None:
    world = small("fail", max_messages=3)
    queue = queue_of(world)
    world.send("queue:small", "a")
    assert not queue.at_limit
    world.send("queue:small", "later", at=NOW + 1_000)
    assert not queue.at_limit
    world.send("queue:small", "b")
    assert queue.at_limit
    world.advance(1_000)
    assert queue.at_limit
    consumer = world.consumer("queue:small")
    consumer.acknowledge(1, world.now)
    assert not queue.at_limit


def test_a_delay_that_grows_beyond_any_number_is_the_longest() -> None:
    rule = DestinationPolicy(redelivery_delay=10, redelivery_factor=3.0, redelivery_delay_max=5_000)
    assert [rule.redelivery_delay_after(attempts) for attempts in (1, 2, 3, 7, 10_000)] == [10, 30, 90, 5_000, 5_000]


def test_bytes_at_the_limit() -> None:
    size = len(message("a").packed)
    world = small("fail", max_bytes=2 * size)
    queue = queue_of(world)
    for name, full in (("a", False), ("b", True)):
        world.send("queue:small", message(name))
        assert queue.at_limit is full


def test_a_queue_without_limits_is_never_at_one(world: World) -> None:
    world.send("queue:small", "a")
    assert not queue_of(world).at_limit


@pytest.mark.parametrize("kind", [DestinationPolicy, NamespacePolicy])
@pytest.mark.parametrize("name", ["max_messages", "max_bytes"])
@pytest.mark.parametrize("value", [1e6, True, None, "5"])
def test_limits_are_whole_numbers(kind: type[DestinationPolicy | NamespacePolicy], name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number, it is {value!r}"):
        kind(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"redelivery_delay": 0.5}, "redelivery_delay must be a whole number, it is 0.5"),
        ({"time_to_live": 0.5}, "time_to_live must be a whole number, it is 0.5"),
        ({"delay": -1}, "delay must not be negative, it is -1"),
        ({"redelivery_factor": 0.5}, "redelivery_factor must be at least 1, it is 0.5"),
        ({"dead_letter_expired": 1}, "dead_letter_expired must be True or False, it is 1"),
        ({"slow_consumer_seconds": -1}, "slow_consumer_seconds must not be negative, it is -1"),
        ({"priority": 4.0}, "priority must be 0 to 9, it is 4.0"),
        ({"priority": -1}, "priority must be 0 to 9, it is -1"),
        ({"delivery_mode": True}, "delivery_mode must be 1 or 2, it is True"),
    ],
)
def test_rules_are_of_their_types(rule: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DestinationPolicy(**rule)  # type: ignore[arg-type]


def test_drop_oldest_keeps_the_newest_and_counts() -> None:
    world = small("drop-oldest")
    world.send("queue:small", *"abcde")
    assert world.browse("queue:small") == ["d", "e"]
    queue = queue_of(world)
    assert (queue.counts.dropped_oldest, queue.counts.dropped_newest, queue.counts.removed, queue.enqueued) == (
        3,
        0,
        0,
        5,
    )
    assert queue.depth == 2


def test_drop_newest_keeps_the_oldest_and_counts() -> None:
    world = small("drop-newest")
    world.send("queue:small", *"abcde")
    assert world.browse("queue:small") == ["a", "b"]
    queue = queue_of(world)
    assert (queue.counts.dropped_oldest, queue.counts.dropped_newest, queue.enqueued) == (0, 3, 2)


def test_drop_oldest_takes_from_the_lowest_priority() -> None:
    world = small("drop-oldest", max_messages=3)
    world.send("queue:small", "low", priority=1)
    world.send("queue:small", "old", "new")
    world.send("queue:small", "high", priority=9)
    assert world.browse("queue:small") == ["high", "old", "new"]
    world.send("queue:small", "newer")
    assert world.browse("queue:small") == ["high", "new", "newer"]


def test_drop_oldest_by_bytes_drops_as_many_as_it_takes() -> None:
    world = small("drop-oldest", max_bytes=1000)
    world.send("queue:small", *(message(name, body=b"x" * 200) for name in "abc"))
    world.send("queue:small", message("large", body=b"x" * 700))
    assert world.browse("queue:small") == ["c", "large"]
    assert queue_of(world).bytes <= 1000


def test_drop_oldest_drops_nothing_where_a_consumer_takes_the_message() -> None:
    """A consumer that wants only some looks at a full queue: what goes to it passes no limit."""
    world = small("drop-oldest")
    world.send("queue:small", "a", "b")
    consumer = world.consumer("queue:small", "n = 1")
    world.send("queue:small", message("c", properties=pack_properties({"n": 1})))
    assert world.got(consumer) == ["c"]
    assert world.browse("queue:small") == ["a", "b"]
    assert queue_of(world).counts.dropped_oldest == 0


def test_drop_oldest_is_not_seen_by_a_later_consumer_with_a_selector() -> None:
    world = small("drop-oldest", max_messages=50)
    consumer = world.consumer("queue:small", "n = 1", credit=0)
    for number in range(200):
        world.send("queue:small", message(str(number), properties=pack_properties({"n": number % 2})))
    world.work()
    consumer.grant(100, NOW)
    assert world.got(consumer) == [str(n) for n in range(151, 200, 2)]
    assert queue_of(world).depth == 25
    assert queue_of(world).counts.dropped_oldest == 150


def test_drop_oldest_also_drops_returned_and_scheduled_messages() -> None:
    world = small("drop-oldest")
    world.send("queue:small", "a", "b")
    consumer = world.consumer("queue:small")
    abandon(consumer, NOW)  # both have been delivered once
    world.send("queue:small", message("later", at=NOW + 1000))
    assert queue_of(world).depth + len(queue_of(world).scheduled) == 2
    world.send("queue:small", message("latest", at=NOW + 2000))
    world.send("queue:small", message("last", at=NOW + 3000))
    assert [entry.envelope.fields[0] for entry in queue_of(world).scheduled.values()] == ["latest", "last"]
    assert queue_of(world).counts.dropped_oldest == 3


@pytest.mark.parametrize("at_limit", CHOICES["at_limit"])
def test_a_message_larger_than_the_limit_is_always_refused(at_limit: str) -> None:
    world = small(at_limit, max_bytes=500)
    world.send("queue:small", "a")
    with pytest.raises(RequestError, match="max_bytes") as caught:
        world.send("queue:small", message("huge", body=b"x" * 600))
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    assert world.browse("queue:small") == ["a"]


class Sender:
    """Waits for room."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def room(self, place: object, now: int) -> bool:
        self.told.append(getattr(place, "label", "?"))
        return True


class Waiting:
    """Waits with a message, as a session does."""

    def __init__(self, world: World, name: str, size: int = 0) -> None:
        self.world, self.message, self.taken = world, message(name, body=b"x" * size), False
        full = world.namespace.send("queue:small", self.message, NOW)
        assert full == [queue_of(world)]
        world.broker.rooms.wait(full[0], self)

    def room(self, place: Limited, now: int) -> bool:
        self.taken = self.world.namespace.send("queue:small", self.message, now, waited=True) is None
        if self.taken:
            self.world.broker.rooms.leave(place, self)
        return self.taken


def test_block_refuses_messages_above_the_limit_and_names_the_limit() -> None:
    world = small("block")
    world.send("queue:small", "a", "b")
    full = world.namespace.send("queue:small", message("c"), NOW)
    assert full == [queue_of(world)]
    assert world.browse("queue:small") == ["a", "b"]
    sender = Sender()
    world.broker.rooms.wait(full[0], sender)
    world.work()
    assert sender.told == []
    world.consumer("queue:small", credit=1)
    world.work()
    assert sender.told == ["queue:small"]


def test_blocked_senders_are_served_in_order_and_new_ones_queue_behind() -> None:
    world = small("block")
    world.send("queue:small", "a", "b")
    first, second = Waiting(world, "c"), Waiting(world, "d")
    consumer = world.consumer("queue:small", credit=1)
    third = Waiting(world, "e")  # there is room, and it is not its turn
    world.work()
    assert [sender.taken for sender in (first, second, third)] == [True, False, False]
    consumer.grant(2, NOW)
    world.work()
    assert [sender.taken for sender in (first, second, third)] == [True, True, True]
    assert world.got(consumer) == ["a", "b", "c"]
    assert world.browse("queue:small") == ["d", "e"]
    assert not world.broker.rooms.waiting


def test_a_large_message_that_waits_is_not_overtaken_by_small_ones() -> None:
    world = small("block", max_bytes=1000)
    world.send("queue:small", message("a", body=b"x" * 300), message("b", body=b"x" * 300))
    large, little = Waiting(world, "c", 800), Waiting(world, "d")
    consumer = world.consumer("queue:small", credit=1)
    world.work()
    assert (large.taken, little.taken) == (False, False)  # for the small one there would be room
    consumer.grant(1, NOW)
    world.work()
    assert (large.taken, little.taken) == (True, True)


def test_block_resumes_senders_a_sixteenth_below_a_large_limit() -> None:
    world = small("block", max_messages=160)
    world.send("queue:small", *map(str, range(160)))
    consumer = world.consumer("queue:small", credit=10)
    assert not queue_of(world).has_room
    consumer.grant(1, NOW)
    assert queue_of(world).has_room


def test_bytes_kept_free_for_a_commit_count_as_taken() -> None:
    queue = queue_of(small("block", max_bytes=1_000))
    queue.reserve(1, 990)
    assert not queue.has_room
    queue.reserve(-1, -990)
    assert queue.has_room


def test_a_topic_waits_for_full_blocking_subscriptions_and_drops_for_others() -> None:
    for at_limit in ("block", "drop-newest"):
        world = World(("topic:t", DestinationPolicy(max_messages=1, at_limit=at_limit)))
        slow = world.consumer("topic:t", credit=0)
        slower = world.consumer("topic:t", credit=0)
        fast = world.consumer("topic:t")
        world.send("topic:t", "a")
        full = world.namespace.send("topic:t", message("b"), NOW)
        assert full == ([slow.source, slower.source] if at_limit == "block" else None)
        assert world.got(fast) == (["a"] if at_limit == "block" else ["a", "b"])  # all of them get it, or none
        assert slow.source.depth == 1
        assert isinstance(slow.source, Queue)
        assert slow.source.counts.dropped_newest == (0 if at_limit == "block" else 1)


def test_a_commit_waits_whole_or_is_refused_whole() -> None:
    world = small("block")
    world.send("queue:small", "a", "b")
    sends = [("queue:other", message("x")), ("queue:small", message("y"))]
    assert world.namespace.commit(Sends(sends), NOW, patient=True) == [queue_of(world)]
    with pytest.raises(RequestError, match="max_messages"):
        world.namespace.commit(Sends(sends), NOW)  # of somebody who cannot wait
    assert world.browse("queue:other") == []
    world.consumer("queue:small", credit=2)
    assert world.namespace.commit(Sends(sends), NOW, patient=True) is None
    assert (world.browse("queue:other"), world.browse("queue:small")) == (["x"], ["y"])


def test_a_commit_of_more_than_the_limit_waits_until_nothing_is_there() -> None:
    world = small("block")
    world.send("queue:small", "a")
    sends = [("queue:small", message(name)) for name in "bcd"]
    assert world.namespace.commit(Sends(sends), NOW, patient=True) == [queue_of(world)]
    world.consumer("queue:small", credit=1)
    assert world.namespace.commit(Sends(sends), NOW, patient=True) is None
    assert world.browse("queue:small") == ["b", "c", "d"]


def test_a_refused_commit_is_told_how_much_it_would_have_added() -> None:
    world = small("fail")
    sends = [("queue:small", message(name)) for name in "bcd"]
    text = "queue:small holds 0 messages and may hold 2; this would add 3; consume or purge some, or raise max_messages"
    with pytest.raises(RequestError, match=text):
        world.namespace.commit(Sends(sends), NOW)


def test_a_commit_drops_by_rule_and_counts() -> None:
    world = small("drop-oldest")
    world.namespace.commit(Sends([("queue:small", message(name)) for name in "abc"]), NOW)
    assert world.browse("queue:small") == ["b", "c"]
    assert queue_of(world).counts.dropped_oldest == 1


@pytest.mark.parametrize("at_limit", ["fail", "block", "drop-newest"])
def test_moved_messages_are_neither_dropped_nor_blocked(at_limit: str) -> None:
    """A dead letter whose queue is full stays where it is: better delivered once more than lost."""
    world = World(
        ("queue:DLQ.*", DestinationPolicy(max_messages=1, at_limit=at_limit)), ("queue:q", DestinationPolicy(1))
    )
    world.send("queue:q", "a", "b")
    consumer = world.consumer("queue:q")
    recover(consumer, 2, NOW)
    assert len(world.browse("queue:DLQ.q")) == 1
    world.advance(REFUSED_DELAY_MS)
    assert len(world.browse("queue:q")) == 1
    with pytest.raises(RequestError, match="max_messages"):
        world.namespace.transfer("queue:DLQ.q", message("c"), NOW)


def test_moved_messages_replace_the_oldest_under_drop_oldest() -> None:
    world = small("drop-oldest")
    for name in "abc":
        world.namespace.transfer("queue:small", message(name), NOW)
    assert world.browse("queue:small") == ["b", "c"]


def test_deleting_a_queue_releases_its_blocked_senders() -> None:
    world = small("block", max_messages=1)
    world.send("queue:small", "a")
    (queue,) = world.namespace.send("queue:small", message("b"), NOW) or ()
    sender = Sender()
    world.broker.rooms.wait(queue, sender)
    world.namespace.delete("queue:small")
    world.work()
    assert sender.told == ["queue:small"]


class Place:
    """Counts its calls."""

    limit_text = "full"

    def __init__(self) -> None:
        self.asked = 0

    @property
    def has_room(self) -> bool:
        self.asked += 1
        return False


def test_very_many_full_places_take_turns() -> None:
    rooms, sender = Rooms(), Sender()
    places = [Place() for _ in range(3 * LOOK_AT)]
    for place in places:
        rooms.wait(place, sender)
    rooms.look(NOW)
    assert sum(place.asked for place in places) == LOOK_AT
    rooms.look(NOW)
    rooms.look(NOW)
    assert {place.asked for place in places} == {1}


def test_selectors_see_no_dropped_message_in_the_backlog() -> None:
    world = small("drop-oldest", max_messages=3)
    world.send("queue:small", *"abcdef")
    assert world.namespace.browse("queue:small", selector("JMSMessageID LIKE 'ID%'"), None, 10, NOW) == (None, [])
    consumer = world.consumer("queue:small")
    assert world.got(consumer) == ["d", "e", "f"]
