"""A frame that a peer has begun is complete within its time, unless it is the broker that does not read."""

from __future__ import annotations

import struct

import pytest

from sievemq_broker.protocols.heartbeat import Heartbeat
from sievemq_broker.session import SessionSettings
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

NOW = 1_700_000_000_000


def opened(frame_ms: int, heartbeat_ms: int = 0) -> tuple[WireConnection, Heartbeat]:
    client, wire = WireConnection("client"), WireConnection("broker")
    client.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "", None, {})
    wire.receive_data(client.data_to_send())
    wire.send(Command.WELCOME, PROTOCOL_VERSION, "SieveMQ", "1", "c", heartbeat_ms, {}, {})
    wire.set_heartbeat(heartbeat_ms, 0)
    heartbeat = Heartbeat(wire, SessionSettings(frame_ms=frame_ms), NOW)
    heartbeat.welcomed(NOW)
    return wire, heartbeat


def test_frame_that_is_not_complete_in_time() -> None:
    wire, heartbeat = opened(1_000)
    wire.receive_data(struct.pack(">I", 500) + bytes(100))
    heartbeat.tick(NOW)
    wire.receive_data(bytes(10))  # progress is no excuse
    heartbeat.tick(NOW + 999)
    with pytest.raises(
        ProtocolError, match=r"a frame of 504 bytes was not complete after 1000 ms .* 114 bytes"
    ) as caught:
        heartbeat.tick(NOW + 1_000)
    assert caught.value.code is ErrorCode.HEARTBEAT_MISSED


def test_each_frame_has_its_own_time() -> None:
    wire, heartbeat = opened(1_000)
    frame = struct.pack(">I", 3) + pack((Command.PING, 1))
    for turn in range(10):
        wire.receive_data(frame[:5] if not turn else frame[5:] + frame[:5])
        heartbeat.tick(NOW + 900 * turn)


def test_no_limit() -> None:
    wire, heartbeat = opened(0)
    wire.receive_data(b"\0")
    for turn in range(10):
        heartbeat.tick(NOW + turn * 10_000_000)


def test_peer_that_is_not_read_from_is_excused() -> None:
    wire, heartbeat = opened(1_000, heartbeat_ms=100)
    wire.receive_data(struct.pack(">I", 500) + bytes(100))
    for turn in range(100):
        heartbeat.excuse()
        heartbeat.tick(NOW + turn * 1_000)
    with pytest.raises(ProtocolError):
        for turn in range(100, 104):
            heartbeat.tick(NOW + turn * 1_000)
