"""How long a peer may be silent, and what the broker says to one that wants to hear something."""

from __future__ import annotations

import pytest

from sievemq_broker.session import SessionSettings
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import MIN_HEARTBEAT_MS
from sievemq_core.wire.commands import Command

from .harness import Client, World


def test_a_peer_that_says_no_hello_in_time_is_dropped(world: World) -> None:
    client = Client(world)
    start = world.now
    assert client.broker.tick(start) == start + 10_000
    assert client.broker.tick(start + 9_999) == start + 10_000
    assert not client.broker.closing
    assert client.broker.tick(start + 10_000) is None
    assert client.broker.closing
    assert b"no HELLO within 10000 ms" in client.broker.data_to_send()
    assert world.services.woken == [client.broker]


def test_silence_for_two_intervals_ends_a_connection() -> None:
    world = World(SessionSettings(heartbeat_ms=1000))
    client = world.client()
    consumer = client.consumer(client.session())
    client.send(consumer.session, "a")
    start = world.now
    assert client.broker.tick(start) == start + 1000
    assert client.broker.tick(start + 1999) == start + 2000
    client.say(Command.HEARTBEAT)
    assert client.broker.tick(start + 2000) is not None
    assert client.broker.tick(start + 3999) is not None
    assert client.broker.tick(start + 4000) is None
    world.settle()
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.HEARTBEAT_MISSED
    assert world.client().browse() == [(2, "a")]


def test_the_broker_sends_heartbeats_at_the_clients_interval() -> None:
    world = World(SessionSettings(heartbeat_ms=0))
    client = world.client(heartbeat=1000)
    start = world.now
    assert client.broker.tick(start) == start + 500  # the WELCOME counts as said
    assert client.broker.tick(start + 500) == start + 1000
    assert world.services.woken == [client.broker]
    world.settle()
    assert client.take(Command.HEARTBEAT)
    client.ask(Command.PING)
    client.broker.tick(start + 1000)
    world.settle()
    assert not client.take(Command.HEARTBEAT)  # the answer was enough


def test_intervals_that_are_too_short_are_lengthened() -> None:
    world = World(SessionSettings(heartbeat_ms=0))
    client = world.client(heartbeat=1)
    assert client.broker.tick(world.now) == world.now + MIN_HEARTBEAT_MS // 2


def test_no_heartbeats_wanted_means_no_ticks() -> None:
    world = World(SessionSettings(heartbeat_ms=0))
    assert world.client().broker.tick(world.now) is None


@pytest.mark.parametrize("jump", [3_600_000, -3_600_000])
def test_setting_the_clock_makes_no_peer_look_dead(jump: int) -> None:
    """Nor does a process that was stopped for an hour: what the peer said meanwhile is still to be read."""
    world = World(SessionSettings(heartbeat_ms=1000))
    client = world.client(heartbeat=1000)
    client.broker.tick(world.now)
    world.services.real += jump
    start = world.now
    assert client.broker.tick(start) is not None
    assert not client.broker.closing
    client.say(Command.HEARTBEAT)
    assert client.broker.tick(start + 500) is not None
    world.settle()
    assert client.take(Command.HEARTBEAT)  # and the broker goes on saying something itself
    assert client.broker.tick(start + 1500) is not None
    assert client.broker.tick(start + 2500) is None  # silence is still noticed


def test_moving_the_clock_makes_no_peer_look_dead() -> None:
    world = World(SessionSettings(heartbeat_ms=1000))
    client = world.client()
    client.broker.tick(world.now)
    world.services.move_clock(86_400_000, world.services.real + 86_400_000)
    assert client.broker.tick(world.now) is not None
    assert not client.broker.closing
