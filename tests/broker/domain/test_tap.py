"""Taps: what arrives is copied or drained, read by sequence as often as one likes, until it is acknowledged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.domain.support import World, message, name_of, selector

from sievemq_broker.domain import Consumer
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.tap import CopyTap, DrainTap, Tap
from sievemq_broker.domain.tap_log import OVERHEAD_BYTES, TapLog
from sievemq_broker.domain.work import TURN
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import CORRELATION_ID
from sievemq_core.wire.codec import unpack_value


class Tapped(World):
    """A world whose taps are opened in one line."""

    def tap(
        self, address: str, text: str | None = None, mode: str = "copy", name: str = "t", **options: Any
    ) -> CopyTap | DrainTap:
        return self.namespace.taps.open("maker", name, address, mode, selector(text), options, self.now)

    def read(self, tap: Tap, after: int = 0, upto: int | None = None, limit: int = 1_000) -> list[str]:
        """Names behind `after`; as far as the tap has come if `upto` is not given."""
        if upto is None:
            upto = self.reach(tap, after)
        return [name_of(item.packed) for item in tap.fetch(tap.id, after, upto, limit, 1 << 20, self.now)]

    def reach(self, tap: Tap, after: int = 0, messages: int = 0, size: int = 0) -> int:
        more = True
        while more:
            upto, more = tap.look(after, messages, size, self.now)
            self.work()
        return upto

    def depth(self, address: str) -> int:
        return self.namespace.queue(address).depth


@pytest.fixture
def world() -> Tapped:
    return Tapped()


@pytest.mark.parametrize("address", ["queue:q", "topic:t"])
def test_a_copy_tap_sees_what_arrives_and_changes_nothing(world: Tapped, address: str) -> None:
    consumer = world.consumer(address)
    tap = world.tap(address)
    world.send(address, "a", "b")
    assert world.got(consumer) == ["a", "b"]
    consumer.acknowledge(2, world.now)
    world.send(address, "c")
    assert world.read(tap) == ["a", "b", "c"]
    assert world.read(tap, 1, 2) == ["b"]
    assert world.read(tap, 1, 2) == ["b"]  # again, in any order


def test_messages_that_arrive_together_are_copied_one_by_one(world: Tapped) -> None:
    queue = world.namespace.queue("queue:q")
    consumer = world.consumer("queue:q", credit=2)
    tap = world.tap("queue:q")
    world.namespace.send_row(queue, [message(name) for name in "abc"], world.now, "c9")
    assert world.read(tap) == ["a", "b", "c"]
    assert consumer.unacknowledged == 2
    world.namespace.taps.drop(tap, world.now)
    world.namespace.send_row(queue, [message(name) for name in "de"], world.now, "c9")
    assert len(tap.log) == 3
    assert queue.depth == 3


def test_a_copy_shares_the_bytes(world: Tapped) -> None:
    tap = world.tap("queue:q")
    envelope = message("a")
    world.send("queue:q", envelope)
    assert tap.log.slice(0, 1, 1, 0)[0].packed is envelope.packed


def test_delayed_and_expired_messages_are_copied_when_they_arrive(world: Tapped) -> None:
    tap = world.tap("queue:q")
    world.send("queue:q", "later", at=world.now + 60_000)
    world.send("queue:q", "late", expires=world.now - 1)
    assert world.read(tap) == ["later", "late"]


def test_only_matching_messages_are_copied(world: Tapped) -> None:
    queue = world.tap("queue:q", "n > 1")
    topic = world.tap("topic:t", "n > 1")
    for address in ("queue:q", "topic:t"):
        world.send(address, *(message(f"m{n}", properties={"n": n}) for n in range(4)))
        world.send(address, message("broken", properties=(b"\x01", None)))  # D-14: nobody can say
    assert world.read(queue) == world.read(topic) == ["m2", "m3"]


@pytest.mark.parametrize("text", [None, "n > 1"])
def test_waiting_messages_precede_later_ones(world: Tapped, text: str | None) -> None:
    """What waited when the tap was made goes before what came while that was looked at; acknowledged or not."""
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(4)))
    tap = world.tap("queue:q", text, start="earliest")
    assert tap.held_bytes >= 4 * OVERHEAD_BYTES
    consumer = world.consumer("queue:q")
    consumer.acknowledge(4, world.now)
    world.send("queue:q", message("new", properties={"n": 9}))
    assert world.read(tap) == (["m0", "m1"] if text is None else []) + ["m2", "m3", "new"]


def test_an_unread_backlog_does_not_grow(world: Tapped) -> None:
    world.send("queue:q", *(f"m{n}" for n in range(8)))
    tap = world.tap("queue:q", start="earliest", retain_messages=100)
    for n in range(8, 12):
        world.send("queue:q", f"m{n}")
    assert len(tap.log) == 12
    assert world.read(tap) == [f"m{n}" for n in range(12)]


def test_a_long_backlog_is_copied_in_steps(world: Tapped) -> None:
    world.send("queue:q", *(message("x") for _ in range(TURN + 1)))
    tap = world.tap("queue:q", start="earliest")
    assert tap.look(0, 0, 0, world.now) == (TURN, True)
    assert tap.look(0, 0, 0, world.now) == (TURN + 1, False)


def test_latest_begins_with_the_next_message(world: Tapped) -> None:
    world.send("queue:q", "old")
    tap = world.tap("queue:q")
    world.send("queue:q", "new")
    assert world.read(tap) == ["new"]


def test_acknowledged_is_dropped_and_once_more_does_no_harm(world: Tapped) -> None:
    tap = world.tap("queue:q")
    world.send("queue:q", "a", "b", "c")
    assert tap.acknowledge(tap.id, 2, world.now) == 2
    assert tap.acknowledge(tap.id, 2, world.now) == tap.acknowledge(tap.id, 1, world.now) == 0
    assert tap.acknowledged == 2
    assert (tap.log.first, tap.log.last, tap.lost) == (3, 3, 0)
    assert world.read(tap, 2) == ["c"]
    with pytest.raises(RequestError, match="9 is beyond") as refused:
        tap.acknowledge(tap.id, 9, world.now)
    assert refused.value.code is ErrorCode.ILLEGAL_STATE


def test_a_full_tap_drops_and_reports_the_oldest(world: Tapped) -> None:
    tap = world.tap("queue:q", retain_messages=3)
    world.send("queue:q", *"abcde")
    assert world.read(tap) == ["c", "d", "e"]
    assert (tap.log.first, tap.lost, tap.missed) == (3, 2, 2)
    tap.acknowledge(tap.id, 4, world.now)
    world.send("queue:q", *"fg")
    assert (tap.log.first, tap.lost, tap.missed) == (5, 2, 2)  # the reader was done with what went


def test_bytes_are_bounded_too(world: Tapped) -> None:
    tap = world.tap("queue:q", retain_bytes=4_096)
    world.send("queue:q", *(message(f"m{n}", body=b"x" * 1_000) for n in range(9)))
    assert tap.log.bytes <= 4_096
    assert world.read(tap, 6) == ["m6", "m7", "m8"]
    assert tap.lost == 6
    world.send("queue:q", message("huge", body=b"x" * 10_000))
    assert (len(tap.log), tap.lost, tap.log.bytes) == (0, 10, 0)


def test_age_is_bounded_without_requests(world: Tapped) -> None:
    tap = world.tap("queue:q", retain_age=10_000)
    world.send("queue:q", "a")
    world.advance(6_000)
    world.send("queue:q", "b")
    world.advance(5_000)
    assert world.read(tap) == ["b"]
    world.advance(5_000)
    assert (len(tap.log), tap.lost, tap.held_bytes) == (0, 2, 0)


# -- drain ------------------------------------------------------------------------------------------------------------


def test_a_drain_delivers_no_more_than_requested(world: Tapped) -> None:
    world.send("queue:q", *"abcde")
    tap = world.tap("queue:q", mode="drain")
    assert world.reach(tap, 0, messages=2) == 2
    assert world.depth("queue:q") == 3
    assert world.reach(tap, 0, messages=2) == 2
    assert world.depth("queue:q") == 3
    assert world.read(tap, 0, 2) == ["a", "b"]
    assert world.reach(tap, 2, messages=2) == 4
    assert world.read(tap, 0, 4) == ["a", "b", "c", "d"]
    other = world.consumer("queue:q")
    assert world.got(other) == ["e"]


def test_a_drain_takes_nothing_more_once_it_holds_its_bytes(world: Tapped) -> None:
    for name in "abcd":
        world.send("queue:q", name, body=b"x" * 3_000)
    tap = world.tap("queue:q", mode="drain", retain_bytes=4_096)
    assert [world.reach(tap, 0, messages=wanted) for wanted in (1, 2, 3)] == [1, 2, 2]
    assert world.depth("queue:q") == 2
    tap.acknowledge(tap.id, 1, world.now)
    assert world.reach(tap, 1, messages=2) == 3


def test_drained_messages_are_removed_when_acknowledged(world: Tapped) -> None:
    world.send("queue:q", *"abc")
    tap = world.tap("queue:q", mode="drain")
    assert world.reach(tap) == 3
    queue = world.namespace.queue("queue:q")
    assert (queue.in_flight, queue.acknowledged) == (3, 0)
    tap.acknowledge(tap.id, 2, world.now)
    assert (queue.in_flight, queue.acknowledged) == (1, 2)
    assert world.read(tap, 2, 3) == ["c"]


def test_a_drain_with_a_selector_leaves_the_rest(world: Tapped) -> None:
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(6)))
    tap = world.tap("queue:q", "n >= 4", "drain")
    assert world.reach(tap) == 2
    assert world.read(tap, 0, 2) == ["m4", "m5"]
    assert world.browse("queue:q") == ["m0", "m1", "m2", "m3"]


def test_a_lost_lease_gives_everything_back_marked(world: Tapped) -> None:
    world.send("queue:q", *"abc")
    tap = world.tap("queue:q", mode="drain", lease=10_000)
    world.reach(tap, 0, messages=2)
    tap.acknowledge(tap.id, 1, world.now)
    world.advance(9_000)
    tap.hear(world.now)
    world.advance(9_000)
    assert world.namespace.queue("queue:q").in_flight == 1
    world.advance(1_000)
    assert world.namespace.queue("queue:q").in_flight == 0
    assert (tap.lost, tap.missed, tap.log.first) == (2, 1, 3)
    consumer = world.consumer("queue:q")
    assert world.counts(consumer) == [("b", 2), ("c", 1)]


def test_after_a_lost_lease_messages_are_redelivered_under_new_numbers(world: Tapped) -> None:
    world.send("queue:q", *"ab")
    tap = world.tap("queue:q", mode="drain", lease=1_000)
    assert world.reach(tap) == 2
    world.advance(1_000)
    assert world.reach(tap, 2) == 4
    assert world.read(tap, 0, 4) == ["a", "b"]
    assert [item.delivery for item in tap.log.slice(2, 4, 9, 0)] == [2, 2]
    tap.acknowledge(tap.id, 2, world.now)  # too late: it acknowledges nothing
    assert world.namespace.queue("queue:q").in_flight == 2
    tap.acknowledge(tap.id, 4, world.now)
    assert world.namespace.queue("queue:q").acknowledged == 2


def test_a_full_drain_takes_no_more(world: Tapped) -> None:
    world.send("queue:q", *"abcd")
    tap = world.tap("queue:q", mode="drain", retain_messages=2)
    assert world.reach(tap) == 2
    assert world.depth("queue:q") == 2
    tap.acknowledge(tap.id, 1, world.now)
    assert world.reach(tap, 1) == 3
    big = world.tap("queue:b", mode="drain", retain_bytes=4_096)
    world.send("queue:b", *(message(f"m{n}", body=b"x" * 2_000) for n in range(9)))
    assert world.reach(big) == 2
    assert world.depth("queue:b") == 7


def test_a_drain_does_not_keep_others_waiting(world: Tapped) -> None:
    """WANT recalls nothing from a drain: what it has is handed out for good, and it has no credit between requests."""
    world.send("queue:q", *"ab")
    tap = world.tap("queue:q", mode="drain")
    world.reach(tap)
    consumer = world.consumer("queue:q", credit=0)
    assert consumer.want(world.now, brief=True)
    world.send("queue:q", "c")
    other: Consumer = world.consumer("queue:q")
    assert world.got(other) == ["c"]


def test_a_deleted_drain_gives_back(world: Tapped) -> None:
    world.send("queue:q", *"ab")
    tap = world.tap("queue:q", mode="drain")
    world.reach(tap)
    world.namespace.taps.drop(tap, world.now)
    assert world.browse("queue:q") == ["a", "b"]
    assert len(world.namespace.taps) == 0


def much(count: int = 3 * TURN + 7) -> tuple[Tapped, DrainTap, list[str]]:
    """A drain that holds all of a queue, its first message with only one attempt left."""
    world = Tapped()
    names = [str(number) for number in range(count)]
    world.send("queue:q", *names)
    tap = world.tap("queue:q", mode="drain", lease=10_000)
    assert isinstance(tap, DrainTap)
    while world.reach(tap) < count:
        pass
    assert world.namespace.queue("queue:q").depth == 0
    return world, tap, names


def test_a_deleted_drain_gives_back_in_slices_oldest_first_and_takes_no_more() -> None:
    world, tap, names = much()
    scheduler = world.broker.scheduler
    scheduler.start(tap, tap.empty, world.now)
    assert world.browse("queue:q") == names[:TURN]
    assert tap.missed == 0
    with pytest.raises(RequestError, match="it is being deleted"):
        world.reach(tap)
    while scheduler.run(world.now):
        pass
    assert 0 < world.namespace.queue("queue:q").in_flight <= TURN
    world.namespace.taps.drop(tap, world.now)
    queue = world.namespace.queue("queue:q")
    assert world.browse("queue:q") == names
    assert (queue.in_flight, queue.counts.redelivered) == (0, len(names))


def test_a_deleted_copy_drops_its_messages_in_slices_and_counts_none_as_missed(world: Tapped) -> None:
    tap = world.tap("queue:q")
    world.send("queue:q", *(f"m{number}" for number in range(2 * TURN + 1)))
    scheduler = world.broker.scheduler
    scheduler.start(tap, tap.empty, world.now, later=True)
    left = [len(tap.log)]
    while scheduler.run(world.now):
        left.append(len(tap.log))
    left.append(len(tap.log))
    assert left == [2 * TURN + 1, TURN + 1, 1]
    assert tap.missed == 0


def test_the_end_of_a_lease_gives_back_in_slices() -> None:
    world, tap, names = much()
    world.now += 10_000
    world.broker.due(world.now)
    assert world.browse("queue:q") == names[:TURN]
    assert tap.lost == TURN
    for _ in range(5):
        world.now += 1
        world.broker.due(world.now)
    assert world.browse("queue:q") == names
    assert tap.missed == tap.lost == len(names)
    world.work()
    assert world.reach(tap, len(names)) == 2 * len(names)  # it can take them again


def test_only_the_oldest_that_a_drain_gives_back_is_suspected() -> None:
    world, _, names = much()
    world.namespace.queue("queue:q").policy = DestinationPolicy(max_attempts=1)
    for _ in range(5):
        world.now += 10_000
        world.broker.due(world.now)
    assert world.browse("queue:q") == names[1:]
    assert world.browse("queue:DLQ.q") == names[:1]


def test_a_reader_that_resumes_in_time_keeps_its_messages() -> None:
    world, tap, names = much()
    world.now += 10_000
    world.broker.due(world.now)
    tap.acknowledge(tap.id, 2 * TURN, world.now)  # of which the first half is in the queue again
    world.now += 1
    world.broker.due(world.now)
    queue = world.namespace.queue("queue:q")
    assert world.browse("queue:q") == names[:TURN]
    assert (queue.acknowledged, queue.in_flight) == (TURN, len(names) - 2 * TURN)


def test_an_administrator_may_close_a_drain(world: Tapped) -> None:
    world.send("queue:q", *"ab")
    tap = world.tap("queue:q", mode="drain")
    world.reach(tap, 0, messages=1)
    tap._consumer.stop(ErrorCode.CLOSED_BY_ADMINISTRATOR, "closed by an administrator")  # type: ignore[union-attr]
    with pytest.raises(RequestError, match="closed by an administrator"):
        world.reach(tap)
    world.namespace.taps.drop(tap, world.now)
    assert world.browse("queue:q") == ["a", "b"]


# -- which one --------------------------------------------------------------------------------------------------------


def test_opening_again_finds_it_and_changes_what_may_change(world: Tapped) -> None:
    tap = world.tap("queue:q", retain_messages=5)
    world.send("queue:q", *"abcde")
    assert world.tap("q", retain_messages=9) is tap  # another form of the address
    assert tap.terms.messages == 9
    assert world.namespace.taps.find("t", "queue:q") is tap
    other = world.tap("queue:q", name="u")
    assert other.id != tap.id


@pytest.mark.parametrize(("text", "mode"), [("a = 1", "copy"), (None, "drain")])
def test_another_kind_under_the_same_name_is_refused(world: Tapped, text: str | None, mode: str) -> None:
    world.tap("queue:q")
    with pytest.raises(RequestError, match="exists with mode 'copy' and no selector"):
        world.tap("queue:q", text, mode)


def test_a_recreated_tap_is_not_taken_for_the_old_one(world: Tapped) -> None:
    old = world.tap("queue:q")
    world.send("queue:q", "a")
    world.namespace.taps.drop(old, world.now)
    tap = world.tap("queue:q")
    for call in (lambda: tap.fetch(old.id, 0, 1, 1, 0, world.now), lambda: tap.acknowledge(old.id, 0, world.now)):
        with pytest.raises(RequestError, match="which was created later") as refused:
            call()
        assert refused.value.code is ErrorCode.NOT_FOUND


def test_taps_end_with_their_destination(world: Tapped) -> None:
    world.send("queue:q", "a")
    world.tap("queue:q")
    drain = world.tap("queue:q", mode="drain", name="d")
    world.reach(drain)
    world.tap("topic:t")
    world.namespace.delete("queue:q")
    world.namespace.delete("topic:t")
    assert len(world.namespace.taps) == 0
    with pytest.raises(RequestError, match="there is no tap 't' on queue:q"):
        world.namespace.taps.find("t", "queue:q")
    world.advance(3_600_000)  # no deadline of a tap that is gone does anything
    world.send("queue:q", "b")
    assert world.browse("queue:q") == ["b"]


def test_a_copy_tap_with_a_lease_expires_without_requests(world: Tapped) -> None:
    tap = world.tap("queue:q", lease=5_000)
    world.advance(4_000)
    world.reach(tap)
    world.advance(4_000)
    assert len(world.namespace.taps) == 1
    world.advance(1_000)
    assert len(world.namespace.taps) == 0
    assert world.namespace.queue("queue:q").taps == ()


@pytest.mark.parametrize(
    ("address", "how", "says"),
    [
        ("queue:q", {"mode": "take"}, "'copy', 'outcomes' or 'drain', not 'take'"),
        ("queue:q", {"start": 5}, "'earliest' or 'latest', not 5"),
        ("queue:q", {"retain_messages": 0}, "retain_messages is a number from 1"),
        ("queue:q", {"retain_bytes": "1"}, "retain_bytes is a number"),
        ("queue:q", {"lease": 5}, "1000 ms or more"),
        ("queue:q", {"mode": "drain", "lease": 0}, "needs a lease"),
        ("queue:q", {"name": ""}, "1 to 255 printable"),
        ("topic:t", {"mode": "drain"}, "holds no messages to drain"),
    ],
)
def test_mistakes(world: Tapped, address: str, how: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        world.tap(address, **how)
    assert len(world.namespace.taps) == 0


def test_a_tap_may_require_that_its_destination_exists(world: Tapped) -> None:
    with pytest.raises(RequestError, match="there is no queue:q in namespace 'test'") as refused:
        world.tap("queue:q", existing=True)
    assert refused.value.code is ErrorCode.NOT_FOUND
    world.namespace.queue("queue:q")
    assert world.tap("queue:q", existing=True).destination.label == "queue:q"
    assert world.tap("queue:DLQ.q", existing=True).destination.label == "queue:DLQ.q"  # its origin exists


def test_temporary_destinations_have_none_and_there_may_be_too_many(
    world: Tapped, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = world.namespace.temporaries.create("c1", False, 1)
    with pytest.raises(RequestError, match="is temporary"):
        world.tap(str(address))
    monkeypatch.setattr("sievemq_broker.domain.taps.MAX_TAPS", 2)
    world.tap("queue:a")
    world.tap("queue:b")
    with pytest.raises(RequestError, match="as many as there may be") as refused:
        world.tap("queue:c")
    assert refused.value.code is ErrorCode.RESOURCE_ALLOCATION


def test_a_copied_message_can_be_read_after_its_queue_has_forgotten_it(world: Tapped) -> None:
    tap = world.tap("queue:q")
    world.send("queue:q", "a", correlation_id="c-1")
    world.namespace.queue("queue:q").clear()
    (item,) = tap.log.slice(0, 1, 1, 0)
    assert unpack_value(item.packed)[CORRELATION_ID] == "c-1"


# -- the log against a list -------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 300)),
            st.tuples(st.just("drop"), st.integers(0, 60)),
            st.tuples(st.just("keep"), st.integers(0, 20), st.integers(0, 5_000)),
        ),
        max_size=60,
    ),
    st.integers(0, 70),
    st.integers(0, 70),
    st.integers(0, 8),
    st.integers(0, 3_000),
)
def test_the_log_is_a_list_with_numbers(
    steps: list[tuple[Any, ...]], after: int, upto: int, limit: int, size: int
) -> None:
    log, plain, last = TapLog(7), {}, 7
    for step in steps:
        if step[0] == "append":
            last += 1
            plain[last] = bytes(step[1])
            log.append(plain[last], 1, last)
        elif step[0] == "drop":
            gone = [number for number in plain if number <= step[1]]
            assert log.drop(step[1]) == len(gone)
            for number in gone:
                del plain[number]
        else:
            while len(plain) > step[1] or sum(map(_size, plain.values())) > step[2]:
                del plain[min(plain)]
            log.drop(log.over(step[1], step[2]))
        assert (len(log), log.last, log.first) == (len(plain), last, min(plain, default=last + 1))
        assert log.bytes == sum(map(_size, plain.values()))
        assert log.oldest == min(plain, default=None)
    wanted: list[tuple[int, bytes]] = []
    total = 0
    for number, packed in sorted(plain.items()):
        total += _size(packed) if number > after else 0
        if after < number and (not limit or len(wanted) < limit) and (not size or not wanted or total <= size):
            wanted.append((number, packed))
        elif number > after:
            break
    assert log.reach(after, limit, size) == (wanted[-1][0] if wanted else max(min(after, last), log.first - 1))
    assert [item.packed for item in log.slice(after, upto, limit, size)] == [p for n, p in wanted if n <= upto]


def _size(packed: bytes) -> int:
    return len(packed) + OVERHEAD_BYTES
