"""A broker on a machine whose clock is set, an hour back or a day forward: nothing stalls or ends before its time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker import clock as clock_module
from sievemq_broker.server.net.link import Link

from .test_slow_consumers import World

HOUR = 3_600_000
JUMPS = pytest.mark.parametrize("by", [-HOUR, 24 * HOUR], ids=["an hour back", "a day forward"])
Jump = Callable[[int], None]


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Sets the clock of the broker's machine; the clients have machines of their own."""
    apart = [0]
    real = time.time_ns
    monkeypatch.setattr(clock_module, "time_ns", lambda: real() + apart[0])

    def jump(milliseconds: int) -> None:
        apart[0] += milliseconds * 1_000_000

    return jump


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"destinations": {"queue:again": {"redelivery_delay": 2_500}}, "heartbeat_seconds": 1}
    with EmbeddedBroker(http=True, settings=settings) as broker:
        yield broker


@JUMPS
def test_messages_and_redeliveries_flow_and_no_connection_ends(broker: EmbeddedBroker, jump: Jump, by: int) -> None:
    with (
        ConnectionFactory(f"{broker.url}?reconnect=0").create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context,
        ConnectionFactory(f"{broker.url}?reconnect=0").create_context() as other,
    ):
        queue = context.create_queue("again")
        consumer = context.create_consumer(queue)
        other.create_producer().send(queue, "before")
        first = consumer.receive(60_000)
        assert first is not None
        context.recover()  # it waits longer than two heartbeats
        jump(by)
        second = consumer.receive(60_000)
        assert second is not None
        assert (second.get_body(str), second.get_jms_redelivered()) == ("before", True)
        context.acknowledge()
        other.create_producer().send(context.create_queue("q"), "after")
        answer = other.create_consumer(context.create_queue("q")).receive(60_000)
        assert answer is not None
        temporary = other.create_temporary_queue()
        context.create_producer().send(temporary, "still there")
        assert other.create_consumer(temporary).receive_body(str, 60_000) == "still there"


@JUMPS
def test_a_lost_connection_keeps_its_time_to_resume(broker: EmbeddedBroker, jump: Jump, by: int) -> None:
    """Its temporary queue, with what is on it, outlives a jump; and is not kept for an hour after it."""
    with ConnectionFactory(f"{broker.url}?reconnect=60000").create_context() as context:
        temporary = context.create_temporary_queue()
        context.create_producer().send(temporary, "kept")
        untils = broker.call(lambda _: _lose(broker, by, jump))
        assert untils == by
        assert context.create_consumer(temporary).receive_body(str, 60_000) == "kept"


def _lose(broker: EmbeddedBroker, by: int, jump: Jump) -> int:
    """In one turn of the loop: the connection is lost, the clock jumps, the lost ones are looked through. By how much
    the time of the connection was put off."""
    server = broker.server
    link: Link
    (link,) = server.links.open
    link.connection.lost(server.clock.now())
    (memory,) = server.shard.lost._by_id.values()
    before = memory.until
    jump(by)
    server._look()
    assert len(server.shard.lost) == 1
    link.abort()
    return memory.until - before


@JUMPS
def test_a_clock_jump_leaves_a_client_the_time_of_the_handshake(jump: Jump, by: int) -> None:
    with (
        EmbeddedBroker(settings={"handshake_seconds": 30}) as broker,
        socket.create_connection(("127.0.0.1", broker.server.port)),
    ):
        while not broker.call(lambda _: len(broker.server.links.open)):
            pass

        def look(_: object) -> bool:
            (link,) = broker.server.links.open
            jump(by)
            deadline = link.connection.tick(broker.server.clock.now())
            left = 0 if deadline is None else deadline - broker.server.clock.now()
            return not link.connection.closing and 0 < left <= 30_000

        assert broker.call(look)


@JUMPS
def test_a_clock_jump_makes_no_consumer_slow(by: int) -> None:
    world = World()
    consumer = world.consumer(2)
    world.send(5)
    world.after(0)
    world.watch.clock_jumped(by)
    world.clock.time += by
    assert world.after(9) == []
    assert world.after(1) == [consumer]


@JUMPS
def test_uptime_continues(broker: EmbeddedBroker, jump: Jump, by: int) -> None:
    before = broker.server.started_at
    jump(by)
    broker.call(lambda _: broker.server.clock.now())
    assert broker.server.started_at - before == pytest.approx(by / 1000, abs=1)
