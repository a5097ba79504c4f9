"""The outlet that all protocols share: when messages may be queued, and when the I/O layer is woken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import pytest

from sievemq_broker.domain import Broker
from sievemq_broker.protocols.amqp import AmqpConnection
from sievemq_broker.protocols.base import BaseConnection, Outlet
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.protocols.stomp import StompConnection
from sievemq_broker.session.life import CLOSING, GONE, Life
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from ..session.harness import MemoryServices

Connect: TypeAlias = Callable[[Callable[[], None]], Any]


@pytest.fixture(params=[SieveConnection, AmqpConnection, StompConnection])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes a connection of each protocol."""
    return lambda wake: request.param(Broker(), MemoryServices(), wake=wake)


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def connection(connect: Connect, woken: list[str]) -> Any:
    return connect(partial(woken.append, "woken"))


@pytest.fixture
def outlet(connection: Any) -> Outlet:
    assert isinstance(connection.outbox, Outlet)
    return connection.outbox


def test_output_wakes_the_io_layer_once_until_it_is_fetched(outlet: Outlet, woken: list[str]) -> None:
    outlet.request_flush()
    outlet.request_flush()
    assert len(woken) == 1
    assert not outlet.flushed()
    outlet.request_flush()
    assert len(woken) == 2


def test_output_that_answers_input_wakes_nothing(outlet: Outlet, woken: list[str]) -> None:
    outlet.begin_input()
    outlet.request_flush()
    assert woken == []
    outlet.end_input()
    outlet.request_flush()
    assert len(woken) == 1


def test_a_late_command_wakes_the_io_layer_even_if_a_flush_is_due(outlet: Outlet, woken: list[str]) -> None:
    outlet.begin_input()
    outlet.wake()
    assert len(woken) == 1


def test_deliveries_that_were_held_back_go_on_in_the_next_turn(outlet: Outlet, woken: list[str]) -> None:
    outlet.hold_deliveries()
    assert not outlet.writable
    assert outlet.flushed()
    assert len(woken) == 1
    outlet.accept_deliveries()
    assert outlet.writable
    assert not outlet.flushed()


def test_deliveries_wait_while_the_transport_is_congested(connection: Any, outlet: Outlet, woken: list[str]) -> None:
    connection.pause()
    assert outlet.congested
    assert not outlet.writable
    assert not outlet.flushed()
    assert woken == []
    connection.resume(0)
    assert not outlet.congested
    assert outlet.writable


def test_a_connection_that_has_ended_accepts_no_deliveries_again(connection: Any, outlet: Outlet) -> None:
    connection.close(ErrorCode.HEARTBEAT_MISSED, "test", 0)
    connection.pause()
    connection.resume(0)
    assert not outlet.writable
    assert not outlet.flushed()


def test_the_last_output_is_written_after_the_end_of_input(connection: Any) -> None:
    life: Life = connection.peer.life
    connection.close(ErrorCode.HEARTBEAT_MISSED, "test", 0)
    connection.receive_eof(0)
    assert life.state == CLOSING
    assert connection.closing
    assert connection.data_to_send()
    connection.lost(0)
    assert life.state == GONE


def test_a_connection_that_is_gone_holds_no_reference_to_the_io_layer(connection: Any, woken: list[str]) -> None:
    connection.lost(0)
    connection.outbox.wake()
    connection.outbox.closed(1, ErrorCode.SECURITY, "test")
    connection.outbox.settled(1)
    assert woken == []


def test_no_protocol_repeats_what_all_share(connection: Any) -> None:
    of_outlets = {
        "attach", "begin_input", "end_input", "request_flush", "wake", "flushed", "hold_deliveries",
        "accept_deliveries", "pause", "resume", "closed", "settled",
    }  # fmt: skip
    of_connections = {
        "closing", "heartbeats", "pause", "resume", "hold_back", "tick", "clock_jumped", "close", "receive_eof",
    }  # fmt: skip
    for thing, base, shared in ((connection.outbox, Outlet, of_outlets), (connection, BaseConnection, of_connections)):
        assert shared <= vars(base).keys()
        kinds = type(thing).__mro__
        for kind in kinds[: kinds.index(base)]:
            assert not shared & vars(kind).keys(), kind


def test_heartbeats_that_overtake_output_are_frames_of_the_protocol(connection: Any) -> None:
    assert connection.urgent_heartbeat() == b"", "there is no connection yet"
    life: Life = connection.peer.life
    life.welcome()
    assert connection.urgent_heartbeat() == {
        "sieve": connection.wire.frame_of(Command.HEARTBEAT) if isinstance(connection, SieveConnection) else b"",
        "amqp": b"\0\0\0\x08\x02\0\0\0",
        "stomp": b"\n",
    }[connection.outbox.protocol]  # fmt: skip
    life.end()
    assert connection.urgent_heartbeat() == b""
