"""The limit of all messages together: what counts, when producers wait, when they go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from sievemq_broker.domain import Broker
from sievemq_broker.server.counts import queues_of
from sievemq_broker.server.memory import OVERHEAD_BYTES, Memory, machine_limit

from ..domain.support import NOW, Port, message

EACH = len(message(body=b"x" * 1_000).packed) + OVERHEAD_BYTES


class World:
    """One namespace, its memory measured, the flow written down."""

    def __init__(self, limit: int) -> None:
        self.broker = Broker()
        self.space = self.broker.namespace("test")
        self.flow: list[str | None] = []
        self.time = 0.0
        self.memory = Memory(limit, lambda: queues_of(self.broker), self.flow.append, clock=lambda: self.time)

    def send(self, count: int, size: int = 1_000) -> None:
        for _ in range(count):
            self.space.send("queue:q", message(body=b"x" * size), NOW)

    def look(self) -> None:
        self.time += 1
        self.memory.look()


def test_producers_wait_at_the_limit_and_go_on_a_tenth_below() -> None:
    world = World(10 * EACH)
    world.send(9)
    world.look()
    assert world.flow == []
    world.send(1)
    world.look()
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


def test_what_consumers_hold_counts() -> None:
    """Else one consumer with much credit, that acknowledges nothing, could take all memory there is."""
    world = World(100 * EACH)
    consumer = world.space.open_consumer(Port(), 1, "queue:q", connection="c", credit=1_000, now=NOW)
    world.send(100)
    assert world.space.queue("queue:q").depth == 0
    world.look()
    assert len(world.flow) == 1
    assert world.memory.bytes == 100 * EACH
    consumer.close(50, NOW)  # 50 go back, 50 are still its session's
    assert world.memory.measure() == 100 * EACH
    consumer.acknowledge(50, NOW)
    assert world.memory.measure() == 50 * EACH


def test_what_is_held_is_estimated_from_a_few_and_holes_are_no_trouble() -> None:
    world = World(0)
    consumer = world.space.open_consumer(Port(), 1, "queue:q", connection="c", credit=10, now=NOW)
    world.send(5)
    world.send(5, 3_000)
    assert world.memory.measure() == pytest.approx(10 * EACH + 5 * 2_000, rel=0.01)
    consumer.credit = 0
    consumer.release([2, 5, 10], NOW)
    assert world.memory.measure() == pytest.approx(10 * EACH + 5 * 2_000, rel=0.2)


def test_the_machines_limit_is_the_containers_where_that_is_less(tmp_path: Path) -> None:
    whole = machine_limit(tmp_path)
    assert whole > 0
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1048576\n")
    assert machine_limit(tmp_path) == 1_048_576
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert machine_limit(tmp_path) == whole
