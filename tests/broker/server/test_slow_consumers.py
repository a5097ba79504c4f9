"""Slow consumers: found by what they do not do, told once, closed by rule; those that merely wait are not slow."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.at_once import close

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker, Consumer, DestinationPolicy, DomainSettings
from sievemq_broker.domain.work import TURN
from sievemq_broker.server.watch.slow_consumers import SlowConsumers
from sievemq_core.errors import ErrorCode

from ..domain.support import NOW, Port, message, selector
from .conftest import StandingClock


class Connection:
    """The part of a connection that is checked."""

    address, member = "peer", SimpleNamespace(client_id=None)

    def __init__(self) -> None:
        self.deliveries = SimpleNamespace(consumers={})
        self.closed: list[tuple[ErrorCode, str]] = []

    def close(self, code: ErrorCode, text: str, now: int) -> None:
        self.closed.append((code, text))


class World:
    """Consumers of ``queue:q``, a connection each."""

    def __init__(self, **rules: Any) -> None:
        policy = DestinationPolicy(**({"slow_consumer_seconds": 10} | rules))
        self.broker = Broker(DomainSettings(default_policy=policy))
        self.space = self.broker.namespace("test")
        self.clock = StandingClock(NOW)
        self.connections: dict[str, Any] = {}
        self.seconds = 0.0
        self.watch = SlowConsumers(self.connections, self.broker.scheduler, self.clock, lambda: self.seconds)
        self.port = Port()

    def consumer(self, credit: int, text: str | None = None) -> Consumer:
        connection = self.connections[f"c{len(self.connections)}"] = Connection()
        consumer = self.space.open_consumer(
            self.port, 1, "queue:q", selector(text), connection="c", credit=credit, now=NOW
        )
        connection.deliveries.consumers[1] = consumer
        return consumer

    def send(self, count: int) -> None:
        for _ in range(count):
            self.space.send("queue:q", message(), NOW)

    def after(self, seconds: int) -> list[Consumer]:
        self.clock.time += seconds * 1000
        self.seconds += 10
        self.watch.look()
        return list(self.watch.slow)


def test_a_consumer_that_holds_messages_is_slow_until_it_acknowledges() -> None:
    world = World()
    consumer = world.consumer(2)
    world.send(5)
    assert world.after(0) == []
    assert world.after(9) == []
    assert world.after(1) == [consumer]
    assert world.after(100) == [consumer]
    consumer.acknowledge(1, NOW)
    assert world.after(0) == []
    assert world.after(9) == []
    assert world.after(2) == [consumer]
    close(consumer, 0, NOW)
    assert world.after(1) == []


def test_each_look_notes_how_long_messages_are_held_also_where_none_wait() -> None:
    world = World()
    consumer = world.consumer(5)
    world.send(2)
    assert world.after(0) == []
    assert world.after(60) == []
    assert (consumer.held_since, consumer.idle_since) == (NOW, NOW)
    world.send(4)
    world.after(1)
    world.after(10)
    assert world.watch.slow == {consumer: NOW + 61_000}
    world.watch.clock_jumped(500)
    assert world.watch.slow == {consumer: NOW + 61_500}
    assert consumer.held_since == NOW + 500


def test_a_connection_that_does_not_read_is_slow() -> None:
    world = World()
    consumer = world.consumer(100)
    world.send(3)
    world.port.writable = False
    world.send(3)
    world.after(0)
    assert world.after(10) == [consumer]


@pytest.mark.parametrize(
    "case", ["nothing waits", "holds nothing", "has credit", "other messages wait", "never", "paused"]
)
def test_an_idle_consumer_is_not_slow(case: str) -> None:
    world = World(slow_consumer_seconds=0 if case == "never" else 10)
    text = "JMSPriority = 4" if case == "other messages wait" else None
    world.consumer({"holds nothing": 0, "has credit": 100}.get(case, 2), text)
    world.send(2 if case == "nothing waits" else 5)
    if case == "other messages wait":
        world.space.queue("queue:q").clear()
        world.space.send("queue:q", message(priority=9), NOW)
    if case == "paused":
        world.space.queue("queue:q").pause()
    world.after(0)
    assert world.after(1_000) == []


def test_a_slow_consumer_is_logged_once_and_closed_by_rule(caplog: pytest.LogCaptureFixture) -> None:
    for rule in ("warn", "close"):
        world = World(slow_consumer=rule)
        world.consumer(2)
        world.send(5)
        for seconds in (0, 10, 10):
            world.after(seconds)
        assert [getattr(record, "event", "") for record in caplog.records] == ["consumer.slow"]
        caplog.clear()
        closed = world.connections["c0"].closed
        assert [code for code, _ in closed] == ([ErrorCode.CLOSED_BY_ADMINISTRATOR] if rule == "close" else [])
        assert all("queue:q" in text and "rule slow_consumer" in text for _, text in closed)


@pytest.mark.parametrize("of_one", [True, False])
def test_very_many_consumers_take_turns(of_one: bool) -> None:
    world = World()
    consumers = [world.consumer(1) for _ in range(2 * TURN)]
    if of_one:
        world.connections["c0"].deliveries.consumers = dict(enumerate(consumers))
        for number in range(1, 2 * TURN):
            del world.connections[f"c{number}"]
    world.send(3 * TURN)
    assert world.after(0) == []
    while world.broker.work(NOW):
        pass
    slow = [len(world.after(11))]
    while world.broker.work(NOW):
        slow.append(len(world.watch.slow))
    slow.append(len(world.watch.slow))
    assert slow[-1] == 2 * TURN
    assert max(after - before for before, after in pairwise([0, *slow])) <= TURN


def test_over_the_wire_its_messages_go_to_others() -> None:
    rules = {"q": {"slow_consumer": "close", "slow_consumer_seconds": 10}}
    with EmbeddedBroker(settings={"destinations": rules}) as broker:
        factory = ConnectionFactory(f"{broker.url}?prefetch=1&reconnect=0")
        slow = factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE)
        queue = slow.create_queue("q")
        consumer = slow.create_consumer(queue)
        for number in range(4):
            slow.create_producer().send(queue, str(number))
        assert consumer.receive(60_000) is not None
        watch = broker.server.shard.slow_consumers

        def look(_: Broker) -> None:
            watch._round.next = 0.0  # however short ago a tick has looked
            watch.look()

        broker.call(look)
        broker.clock.advance(seconds=11)
        broker.call(look)
        with factory.create_context() as other, other.create_consumer(queue) as reader:
            assert [reader.receive_body(str, 60_000) for _ in range(4)] == ["0", "1", "2", "3"]
        slow.close()
