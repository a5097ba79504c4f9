"""The memory of all messages: measured, and producers wait at its limit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.memory import OVERHEAD_BYTES, Memory, machine_limit
from sievemq_core.wire.commands import Command

from .wire_client import WireClient


def queue(depth: int, size: int, scheduled: int = 0) -> Any:
    return SimpleNamespace(depth=depth, bytes=size, scheduled=[None] * scheduled)


class Rig:
    """A memory over queues of the test, with a clock of the test."""

    def __init__(self, limit: int) -> None:
        self.queues: list[Any] = []
        self.said: list[str | None] = []
        self.times = 0.0
        self.step = 0.0
        self.memory = Memory(limit, lambda: self.queues, self.said.append, self.clock)

    def clock(self) -> float:
        self.times += self.step
        return self.times


def test_packed_bytes_and_what_each_message_takes_beside_them() -> None:
    rig = Rig(0)
    rig.queues = [queue(10, 1_000), queue(0, 50, scheduled=2)]
    assert rig.memory.measure() == 1_050 + 12 * OVERHEAD_BYTES


def test_producers_wait_from_the_limit_on_and_go_on_well_below_it() -> None:
    rig = Rig(10_000)
    for size, blocked in ((9_999, False), (10_000, True), (9_500, True), (9_000, True), (8_999, False), (9_999, False)):
        rig.queues = [queue(0, size)]
        rig.memory.look()
        assert rig.memory.blocked is blocked
    assert [text is None for text in rig.said] == [False, True]
    assert "10000" in (rig.said[0] or "")


def test_without_a_limit_nothing_is_added_up() -> None:
    rig = Rig(0)
    rig.queues = [queue(0, 10**15)]
    rig.memory.look()
    assert (rig.memory.bytes, rig.said) == (0, [])


def test_adding_up_takes_a_small_share_of_the_time() -> None:
    rig = Rig(10_000)
    rig.step = 0.010  # one look takes ten milliseconds
    rig.memory.look()
    until = rig.times + 0.010 / 0.02 - 0.010
    rig.queues = [queue(0, 99_999)]
    rig.step = 0.0
    rig.times = until - 0.001
    rig.memory.look()
    assert rig.said == []
    rig.times = until + 0.001
    rig.memory.look()
    assert rig.memory.blocked


def test_broker_holds_confirms_back_and_says_so() -> None:
    with EmbeddedBroker(settings={"max_memory_bytes": "1MiB"}) as broker, WireClient(broker.port) as client:
        client.open_session().open_consumer("queue:q", credit=0)
        for _ in range(20):
            client.send("queue:q", b"x" * 64 * 1024)
        flow = client.until(Command.FLOW)
        assert flow[1] is True
        assert "max_memory_bytes" in flow[2]
        client.send("queue:q", b"one more")  # taken, not confirmed
        assert client.request(Command.PING)[0] == Command.OK
        assert broker.call(lambda b: b.namespace("default").queue("q").depth) == 21
        client.say(Command.CREDIT, 1, 21)
        flow = client.until(Command.FLOW)  # the backlog has left: producers go on
        assert flow[1] is False
        assert client.until(Command.CONFIRM)[2] == 21


@pytest.mark.parametrize(
    ("file", "content", "limit"),
    [
        ("sys/fs/cgroup/memory.max", "1048576\n", 1048576),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n", 2097152),
        ("sys/fs/cgroup/memory.max", "max\n", None),
    ],
)
def test_limit_of_the_container_or_else_of_the_machine(
    tmp_path: Path, file: str, content: str, limit: int | None
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    assert machine_limit(tmp_path) == (limit or machine_limit(tmp_path / "nothing"))
    assert machine_limit(tmp_path / "nothing") > 2097152
