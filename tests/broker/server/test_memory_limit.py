"""The limit of all messages together: what counts, when producers wait, when they go on."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import pytest
from tests.broker.at_once import close, release

from sievemq_broker.domain import Broker
from sievemq_broker.domain.admission import MESSAGE_BYTES, Limited
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.work import TURN, Budget, Task
from sievemq_broker.server.net.link import Links
from sievemq_broker.server.watch.counts import SELECTOR_BYTES
from sievemq_broker.server.watch.memory import COSTLY, MemoryLimit, machine_limit
from sievemq_core.errors import RequestError
from sievemq_core.selector import cache, compile_selector

from ..domain.support import NOW, Port, message

EACH = len(message(body=b"x" * 1_000).packed) + MESSAGE_BYTES
GIB = 2**30


@pytest.fixture(autouse=True)
def no_long_selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of tests before, which a broker of theirs may hold still, count in the whole process."""
    monkeypatch.setattr(cache, "_long", WeakValueDictionary())


class World:
    """One namespace, its memory measured, the flow written down."""

    def __init__(self, limit: int) -> None:
        self.broker = Broker()
        self.space = self.broker.namespace("test")
        self.flow: list[str | None] = []
        self.time = 0.0
        self.links = Links(10)
        self.memory = MemoryLimit(
            limit, self.broker, self.links, self.flow.append, lambda act: act(), clock=lambda: self.time
        )

    def send(self, count: int, size: int = 1_000, address: str = "queue:q") -> int:
        """Send; how many were taken."""
        taken = 0
        for _ in range(count):
            taken += self.space.send(address, message(body=b"x" * size), NOW) is None
            while self.broker.fan_out is not None:
                self.broker.work(NOW)
        return taken

    def look(self) -> None:
        """Sum up, in as many turns as that takes."""
        self.time += 10
        self.memory.look()
        while self.broker.work(NOW):
            pass

    def sums(self) -> list[int]:
        """What is known of the sum after each turn of adding it up."""
        self.memory.bytes, sums = 0, []
        self.time += 10
        self.memory.look()
        sums.append(self.memory.bytes)
        while self.broker.scheduler.ring:
            self.broker.work(NOW)
            sums.append(self.memory.bytes)
        return sums


class Blocked:
    """A session that waits for room with a message."""

    load = 1, EACH
    kept = EACH

    def __init__(self, world: World, place: Limited) -> None:
        self.rooms, self.place = world.broker.rooms, place
        self.rooms.wait(place, self)
        self.rooms.keep(EACH)

    def leave(self) -> None:
        self.rooms.leave(self.place, self)
        self.rooms.give_back(EACH)

    def room(self, place: Limited, now: int) -> bool:
        return False


class SlowLink:
    """A link whose client does not read."""

    input_bytes = 0
    output_bytes = bytes_in = bytes_out = EACH
    connection = SimpleNamespace(peer=SimpleNamespace(staged=SimpleNamespace(used=0)))


def test_producers_wait_at_the_limit_and_resume_a_tenth_below() -> None:
    world = World(10 * EACH)
    assert world.send(10) == 10
    assert world.flow == []
    assert world.send(3) == 0
    world.look()
    assert len(world.flow) == 1
    assert "max_memory_bytes" in str(world.flow[0])
    consumer = world.space.open_consumer(Port(), 1, "queue:q", connection="c", credit=1, now=NOW)
    consumer.acknowledge(1, NOW)
    world.look()
    assert len(world.flow) == 1  # nine tenths are not below nine tenths
    consumer.grant(1, NOW)
    consumer.acknowledge(2, NOW)
    world.look()
    assert world.flow[1:] == [None]
    assert world.send(3) == 2


def test_another_limit_applies_at_once() -> None:
    world = World(10 * EACH)
    assert world.send(12) == 10
    world.memory.use(15 * EACH)
    assert world.flow[1:] == [None]
    assert world.send(7) == 5
    world.memory.use(0)
    world.look()
    assert world.flow[3:] == [None]
    assert world.send(10) == 10
    assert world.broker.gate is None
    world.memory.use(20 * EACH)
    assert world.send(1) == 0
    world.space.queue("queue:q").clear()
    world.look()
    assert world.send(1) == 1
    world.memory.use(GIB)
    world.look()
    assert world.broker.gate is None


def test_a_sum_that_is_under_way_when_the_limit_ends_blocks_nobody() -> None:
    world = World(GIB)
    for number in range(TURN + 2):
        world.space.queue(f"queue:q{number}")
    world.time += 10
    world.memory.look()
    assert world.broker.scheduler.ring
    world.memory.use(0)
    while world.broker.work(NOW):
        pass
    assert (world.flow, world.broker.gate) == ([], None)


def test_removed_messages_make_room_at_once() -> None:
    world = World(10 * EACH)
    consumer = world.space.open_consumer(Port(), 1, "queue:q", connection="c", credit=1_000, now=NOW)
    for tag in range(1, 101):
        assert world.send(1) == 1
        consumer.acknowledge(tag, NOW)
    assert world.flow == []


def test_a_topic_counts_for_each_that_gets_it() -> None:
    world = World(10 * EACH)
    for number in range(3):
        world.space.open_consumer(Port(), number, "topic:t", connection="c", credit=0, now=NOW)
    assert world.send(5, address="topic:t") == 3
    assert world.memory.measure() == 9 * EACH


def test_a_message_larger_than_the_memory_limit_is_refused() -> None:
    world = World(10 * EACH)
    with pytest.raises(RequestError, match=f"may take {10 * EACH} bytes here .max_memory_bytes. and this alone"):
        world.send(1, 20_000)
    assert world.send(10) == 10


def test_far_from_the_limit_nothing_is_counted() -> None:
    world = World(GIB)
    assert world.broker.gate is None
    allowed = world.links.look_at
    assert 10 * allowed < GIB
    world.send(100)
    assert "queue:q" in world.space._routes
    world.links.bytes_in = allowed + 1
    world.look()
    assert allowed < world.links.look_at < world.links.bytes_in + allowed  # a little less may come than before


def test_near_the_limit_each_send_is_counted() -> None:
    world = World(GIB)
    queue = world.space.queue("queue:q")
    queue.backlog.bytes = GIB - 5 * EACH  # as if there were so much
    world.look()
    assert world.broker.gate is not None
    assert world.space._routes == {}
    assert world.send(7) == 5
    queue.backlog.bytes = 0
    world.look()
    assert world.broker.gate is None
    assert world.send(1) == 1
    assert "queue:q" in world.space._routes


def test_sends_are_counted_only_until_a_sum_of_several_turns_is_known() -> None:
    """While sends are counted, a topic looks up the receivers of each message twice."""
    world = World(GIB)
    for number in range(TURN + 2):
        world.space.queue(f"queue:q{number}")
    world.look()  # the first sum that takes several turns
    assert world.memory._in_slices
    assert world.broker.gate is None
    world.time += 10
    world.links.on_look_at()
    assert world.broker.gate is not None
    world.broker.work(NOW)
    assert world.broker.gate is None
    assert not world.broker.scheduler.ring


def test_the_read_allowance_is_used_up_before_the_next_sum() -> None:
    """Adding up is slow there: what is certain to fit is counted down first."""
    world = World(GIB)
    queue = world.space.queue("queue:q")
    for number in range(COSTLY):
        world.space.queue(f"queue:q{number}")
    world.look()
    queue.backlog.bytes = GIB - 20 * EACH
    world.links.on_look_at()
    gate = world.broker.gate
    assert gate is not None
    assert 0 < gate.bytes < GIB // 64
    # The first that finds nothing left of that adds up; there is a little room, but less than is checked so often
    gate.bytes = 0
    assert world.send(1) == 0
    assert world.memory.blocked
    queue.backlog.bytes = 0
    world.time += 10
    world.memory.look()
    assert not world.memory.blocked
    assert world.send(1) == 1


def test_a_blocked_send_does_not_block_itself() -> None:
    """Senders that wait with more, all together, than there may be."""
    world = World(10 * EACH)
    world.send(10)
    assert world.send(1) == 0
    assert world.broker.over is not None
    for _ in range(20):
        Blocked(world, world.broker.over)
    world.space.queue("queue:q").clear()
    world.look()
    assert world.flow[1:] == [None]
    assert world.memory.bytes == 20 * EACH


def test_sends_blocked_elsewhere_count() -> None:
    """Else as many sessions as there may be could each keep a large message at a full queue."""
    world = World(10 * EACH)
    assert world.send(2) == 2
    waiting = [Blocked(world, world.space.queue("queue:q")) for _ in range(8)]
    world.look()
    assert world.memory.bytes == 10 * EACH
    assert world.send(1) == 0
    assert len(world.flow) == 1
    for blocked in waiting[:4]:
        blocked.leave()
    world.look()
    assert world.flow[1:] == [None]


def test_unread_output_counts() -> None:
    world = World(10 * EACH)
    assert world.send(2) == 2
    links: Any = [SlowLink() for _ in range(8)]
    world.links.open.update(links)
    world.look()
    assert world.memory.bytes == 10 * EACH
    assert world.send(1) == 0
    assert len(world.flow) == 1
    world.links.open.clear()
    world.look()
    assert world.flow[1:] == [None]


def test_long_selectors_count_once_for_each_text() -> None:
    """Else lists of thousands of constants, each another, would take gigabytes that are not counted."""
    world = World(GIB)
    lists = [", ".join(f"'{number} {n}'" for n in range(2_000)) for number in range(3)]
    texts = [f"a IN ({items})" for items in lists]
    space, before = world.space, world.memory.measure()

    def consume(number: int) -> Consumer:
        selector = compile_selector(texts[number % 3])
        return space.open_consumer(Port(), number, "queue:q", selector, connection="c", credit=0, now=NOW)

    consumers = [consume(number) for number in range(9)]
    assert world.memory.measure() - before == SELECTOR_BYTES * sum(map(len, texts))
    while consumers:
        close(consumers.pop(), 0, NOW)
    space.delete("queue:q")
    gc.collect()
    assert world.memory.measure() == before


def test_very_many_connections_are_added_up_in_several_ticks() -> None:
    world = World(GIB)
    links: Any = [SlowLink() for _ in range(2 * TURN + 1)]
    world.links.open.update(links)
    assert world.sums() == [0, 0, (2 * TURN + 1) * EACH]


def test_unacknowledged_messages_count() -> None:
    """Else one consumer with much credit, that acknowledges nothing, could take all memory there is."""
    world = World(100 * EACH)
    consumer = world.space.open_consumer(Port(), 1, "queue:q", connection="c", credit=1_000, now=NOW)
    assert world.send(101) == 100
    assert world.space.queue("queue:q").depth == 0
    assert len(world.flow) == 1
    assert world.memory.bytes == 100 * EACH
    close(consumer, 50, NOW)  # 50 go back, 50 are still its session's
    assert world.memory.measure() == 100 * EACH
    consumer.acknowledge(50, NOW)
    assert world.memory.measure() == 50 * EACH


def test_very_many_consumers_of_one_queue_are_added_up_in_several_ticks() -> None:
    world = World(GIB)
    for number in range(2 * TURN):
        world.space.open_consumer(Port(), number, "queue:q", connection="c", credit=1, now=NOW)
    world.send(2 * TURN)
    while world.broker.work(NOW):
        pass
    before = world.broker.scheduler.overrun
    *others, last = world.sums()
    assert (others, last) == ([0] * len(others), 2 * TURN * EACH)
    assert len(others) >= 2
    assert world.broker.scheduler.overrun == before


def test_messages_are_acknowledged_while_those_that_hold_them_are_added_up() -> None:
    world = World(GIB)
    consumers = [
        world.space.open_consumer(Port(), number, "queue:q", connection="c", credit=1, now=NOW)
        for number in range(2 * TURN)
    ]
    world.send(2 * TURN)
    while world.broker.work(NOW):
        pass
    world.time += 10
    world.memory.look()
    for consumer in consumers:
        consumer.acknowledge(1, NOW)
    while world.broker.work(NOW):  # raises what the sum raises
        pass
    world.look()
    assert world.memory.bytes == 0


def test_held_bytes_are_estimated_from_a_sample_with_gaps() -> None:
    world = World(0)
    consumer = world.space.open_consumer(Port(), 1, "queue:q", connection="c", credit=10, now=NOW)
    world.send(5)
    world.send(5, 3_000)
    assert world.memory.measure() == pytest.approx(10 * EACH + 5 * 2_000, rel=0.01)
    consumer.credit = 0
    release(consumer, [2, 5, 10], NOW)
    assert world.memory.measure() == pytest.approx(10 * EACH + 5 * 2_000, rel=0.2)


def test_the_machines_limit_is_the_containers_where_that_is_less(tmp_path: Path) -> None:
    whole = machine_limit(tmp_path)
    assert whole > 0
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1048576\n")
    assert machine_limit(tmp_path) == 1_048_576
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert machine_limit(tmp_path) == whole


def test_very_many_queues_are_added_up_in_several_ticks() -> None:
    world = World(GIB)
    for number in range(2 * TURN + 1):
        world.space.open_consumer(Port(), number, "topic:t", connection="c", credit=0, now=NOW)
    assert world.send(1, address="topic:t") == 1
    assert world.sums() == [0, 0, (2 * TURN + 1) * EACH]


def test_topics_without_subscriptions_are_added_up_in_several_ticks() -> None:
    world = World(GIB)
    for number in range(2 * TURN):
        world.space.declare(f"topic:{number}")
    assert world.send(1) == 1
    assert world.sums() == [0, 0, EACH]


@pytest.mark.parametrize("last", ["topic:t", "queue:q"])
def test_the_limit_holds_for_sends_during_the_sum(last: str) -> None:
    world = World(20 * TURN * EACH)
    for number in range(2 * TURN):
        world.space.open_consumer(Port(), number, "topic:t", connection="c", credit=0, now=NOW)
    for _ in range(4):
        world.look()  # there is so little room that sends are counted
    for _ in range(4):
        world.send(2, address="topic:t")
        world.look()
        assert world.memory.measure() <= world.memory.limit
    world.send(100, address=last)
    world.look()
    assert world.memory.measure() <= world.memory.limit
    assert len(world.flow) == (last == "topic:t")


def test_no_send_adds_up_very_many_queues() -> None:
    """Near the limit each send that found nothing left once added up all queues in its turn."""
    world = World(4 * TURN * EACH)
    for number in range(2 * TURN):
        world.space.open_consumer(Port(), number, "topic:t", connection="c", credit=0, now=NOW)
    for _ in range(8):
        world.look()
    looked: list[int] = []
    real = world.memory.add_up

    def counted(now: int, budget: Budget) -> Task[None]:
        looked.append(now)
        return real(now, budget)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryLimit, "add_up", lambda memory, now, budget: counted(now, budget))
        patch.setattr(MemoryLimit, "measure", lambda memory: pytest.fail("all queues in one turn"))
        taken = world.send(1, address="topic:t")
        for _ in range(40):
            world.look()
            taken += world.send(1, address="topic:t")
    assert world.space.declare("topic:t").published == taken == 2  # type: ignore[union-attr]
    assert world.memory.blocked
    assert looked
    for consumer in [each.queue.consumers[0] for each in world.space.declare("topic:t").subscriptions]:  # type: ignore[union-attr]
        consumer.grant(10, NOW)
        consumer.acknowledge(1, NOW)
    for _ in range(10):
        world.look()
    assert not world.memory.blocked
    assert world.send(1, address="topic:t") == 1
