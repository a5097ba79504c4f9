"""Frames that clients begin and do not end: what they take is counted, has a limit and a deadline, and is released."""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.broker.protocols.amqp import AmqpSocket, message
from tests.broker.protocols.stomp import StompSocket

from sievemq_broker import EmbeddedBroker
from sievemq_broker.protocols.amqp.frames import frame_of
from sievemq_broker.protocols.amqp.performatives import Accepted, Close, Transfer
from sievemq_broker.server.net.large_frames import LargeFrames
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import MAX_FRAME_BYTES
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

from .support import DEADLINE
from .test_hostile_frames import FIELDS, Peer

MIB = 1024 * 1024


def received(broker: EmbeddedBroker) -> int:
    """Bytes of frames that are not complete, as the broker counts them."""

    def count(_: object) -> int:
        broker.server.memory.measure()
        return broker.server.memory.input

    return broker.call(count)


def until(broker: EmbeddedBroker, low: int, high: int) -> None:
    """Wait until what was received is in this range."""
    give_up = time.monotonic() + DEADLINE
    while not low <= received(broker) <= high:
        assert time.monotonic() < give_up, received(broker)


def begin(peer: Peer, size: int, sent: int) -> None:
    """The beginning of a frame, as far as the broker reads it."""
    peer.sock.settimeout(DEADLINE)
    peer.sock.sendall(struct.pack(">I", size) + b"\x95\x18\x01\x01\xa1q" + bytes(sent - 10))


def metrics_of(broker: EmbeddedBroker) -> str:
    """What Prometheus would read."""
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=DEADLINE) as answer:
        text: str = answer.read().decode()
        return text


def resident() -> int:
    """Bytes of this process in memory, without what the C library keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def test_unfinished_frames_are_counted_and_given_back() -> None:
    with EmbeddedBroker(http=True) as broker, ExitStack() as stack:
        peers = [stack.enter_context(Peer(broker)).enter() for _ in range(4)]
        before = resident()
        for peer in peers:
            begin(peer, 40 * MIB, 30 * MIB)
        until(broker, 120 * MIB, 120 * MIB)
        give_up = time.monotonic() + DEADLINE
        while "sievemq_memory_bytes 1.2582912e+08" not in metrics_of(broker):  # a sum may have begun before
            assert time.monotonic() < give_up
        for peer in peers:
            peer.sock.close()
        until(broker, 0, 0)
        assert resident() - before < 80 * MIB


def test_unfinished_frames_have_a_limit_together() -> None:
    """One is received whatever its size, the others when it is complete; then all have been."""
    with EmbeddedBroker() as broker, ExitStack() as stack:
        broker.call(lambda _: setattr(broker.server.links.large_frames, "limit", MIB))
        first, second, third = (stack.enter_context(Peer(broker)).enter() for _ in range(3))
        send = pack((Command.SEND, 1, 1, "q", (*FIELDS[:12], bytes(20 * MIB))))
        frame = struct.pack(">I", len(send)) + send
        first.sock.sendall(frame[: 15 * MIB])
        until(broker, 15 * MIB, 15 * MIB)
        rest = {first: frame[15 * MIB :]}
        for peer in (second, third):
            rest[peer] = frame[say_all(peer.sock, frame) :]
            assert len(rest[peer]) > 5 * MIB  # it is not read from
        until(broker, 15 * MIB, 16 * MIB)  # of the others no more than a read of each
        for peer, data in rest.items():
            peer.sock.setblocking(True)
            peer.sock.sendall(data)
        give_up = time.monotonic() + DEADLINE
        while broker.call(lambda b: b.namespace("default").queue("queue:q").depth) < 3:
            assert time.monotonic() < give_up


def say_all(sock: socket.socket, data: bytes) -> int:
    """Send as much as the broker reads and the kernel takes; how much that is."""
    sock.setblocking(False)
    sent = 0
    while sent < len(data):
        if not select.select([], [sock], [], 1)[1]:
            break
        sent += sock.send(data[sent : sent + MIB])
    return sent


def test_small_frames_are_not_held_back() -> None:
    with EmbeddedBroker(settings={"max_memory_bytes": "64MiB"}) as broker, ExitStack() as stack:
        first, second, third = (stack.enter_context(Peer(broker)).enter() for _ in range(3))
        for peer in (first, second):
            begin(peer, 60 * MIB, 100_000)
        assert third.ping(7) == []


def test_deliveries_that_do_not_end_are_counted_and_given_back() -> None:
    """Each of their frames is complete."""
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as client, AmqpSocket(broker.port) as other:
        part = bytes(MIB - 64)
        for handle in range(2):
            client.sender(handle=handle)
            client.say(Transfer(handle=handle, delivery_id=handle, delivery_tag=b"t", more=True), part)
            client.feed(frame_of(Transfer(handle=handle, more=True), 0, part) * 3)
        until(broker, 8 * len(part), 8 * len(part))
        assert broker.call(lambda _: len(broker.server.links.large_frames._reading)) == 1
        other.sender()
        other.send(message("x"), 0)
        assert isinstance(other.outcome(0), Accepted)
        client.say(Close())
        client.one(Close)
        until(broker, 0, 0)


def test_a_delivery_that_does_not_end_in_time() -> None:
    with EmbeddedBroker(settings={"frame_seconds": 0.2}) as broker, AmqpSocket(broker.port) as client:
        client.sender()
        client.send(message("whole"), 0)
        client.say(Transfer(handle=0, delivery_id=1, delivery_tag=b"t", more=True), bytes(1_000))
        for _ in range(3):
            client.say(None)  # frames of other kinds do not put that off
        error = client.error()
        assert error.condition == "amqp:resource-limit-exceeded"
        assert error.description.startswith("a delivery in several transfers was not complete after 200 ms")
        assert "1000 bytes" in error.description


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_messages_of_unknown_size_have_a_limit_together(protocol: str) -> None:
    """They count with what arrived. One is received whatever its size, the others when it is complete."""
    body = b"x" * (12 * MIB)
    if protocol == "amqp":
        whole = message(body, section=0x75)
        parts = [whole[at : at + MIB - 64] for at in range(0, len(whole), MIB - 64)]
        data = b"".join(
            frame_of(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=part is not parts[-1]), 0, part)
            for part in parts
        )
    else:
        data = b"SEND\ndestination:/queue/q\n\n" + body + b"\0"
    with EmbeddedBroker() as broker, ExitStack() as stack:
        broker.call(lambda _: setattr(broker.server.links.large_frames, "limit", 4 * MIB))
        clients: list[Any] = [
            stack.enter_context(AmqpSocket(broker.port) if protocol == "amqp" else StompSocket(broker.port))
            for _ in range(2)
        ]
        if protocol == "amqp":
            for client in clients:
                client.sender()
        sent = [say_all(client.socket, data[: 10 * MIB]) for client in clients]
        assert sent[0] == 10 * MIB
        assert received(broker) < 16 * MIB
        for client, done in zip(clients, sent, strict=True):
            client.socket.setblocking(True)
            client.socket.settimeout(DEADLINE)
            client.socket.sendall(data[done:])
        give_up = time.monotonic() + DEADLINE
        while broker.call(lambda b: b.namespace("default").queue("queue:q").depth) < 2:
            assert time.monotonic() < give_up
        until(broker, 0, 0)


def test_frame_that_does_not_end_in_time() -> None:
    with EmbeddedBroker(settings={"frame_seconds": 0.2}) as broker, Peer(broker).enter() as peer:
        begin(peer, 100_000, 1_000)
        last = peer.read()[-1]
        assert last[:3] == (Command.ERROR, 0, ErrorCode.HEARTBEAT_MISSED)
        assert last[3].startswith("a frame of 100004 bytes was not complete after 200 ms (frame_seconds); 1000 bytes")


# -- who may receive one ---------------------------------------------------------------------------------------------


class Link:
    def __init__(self) -> None:
        self.reads = True

    def read_on(self) -> None:
        self.reads = True


def test_frames_are_admitted_in_their_order() -> None:
    frames = LargeFrames()
    frames.limit = 100
    a, b, c, d = (Link() for _ in range(4))
    assert frames.admit(a, 60)
    assert frames.admit(b, 40)
    for link, size in ((c, 70), (d, 10)):
        link.reads = frames.admit(link, size)
        assert not link.reads
    frames.discard(a)  # 60 of 100 are free
    assert not c.reads
    assert not d.reads  # it stands behind c
    frames.discard(b)
    assert c.reads
    assert d.reads


def test_frames_that_grow_wait_for_each_other_and_one_goes_on() -> None:
    frames = LargeFrames()
    frames.limit = 100
    a, b, c = (Link() for _ in range(3))
    assert all(frames.admit(link, 30) for link in (a, b, c))
    assert frames.grow(a, 40)
    b.reads = frames.grow(b, 50)
    assert not b.reads
    c.reads = frames.grow(c, 60)
    assert not c.reads
    assert frames.grow(a, 500)  # it is the only one that is read
    frames.discard(a)
    assert b.reads
    assert not c.reads  # 50 and 30 of 100 are taken
    frames.discard(b)
    assert c.reads
    frames.discard(c)
    assert frames.admit(a, 100)


def test_what_waits_keeps_what_it_has_counted() -> None:
    frames = LargeFrames()
    frames.limit = 100
    a, b, c = (Link() for _ in range(3))
    assert frames.admit(a, 50)
    assert frames.admit(b, 40)
    b.reads = frames.grow(b, 60)
    c.reads = frames.admit(c, 5)
    frames.discard(b)  # its connection ends
    assert not b.reads
    assert c.reads
    assert frames.grow(a, 95)
    assert frames.grow(c, 5)


def test_frame_beyond_the_limit_is_received_alone() -> None:
    frames = LargeFrames()
    frames.limit = 100
    a, b = Link(), Link()
    assert frames.admit(a, MAX_FRAME_BYTES)
    b.reads = frames.admit(b, 1)
    assert not b.reads
    frames.discard(a)
    assert b.reads


def test_another_limit_admits_what_waits() -> None:
    frames = LargeFrames()
    frames.limit = 100
    a, b, c = (Link() for _ in range(3))
    assert frames.admit(a, 90)
    for link in (b, c):
        link.reads = frames.admit(link, 60)
    frames.set_limit(150)
    assert (b.reads, c.reads) == (True, False)
    frames.set_limit(0)
    assert c.reads


def test_connection_that_ends_while_it_waits_is_forgotten() -> None:
    frames = LargeFrames()
    frames.limit = 100
    a, b, c = (Link() for _ in range(3))
    assert frames.admit(a, 100)
    b.reads = frames.admit(b, 100)
    c.reads = frames.admit(c, 100)
    frames.discard(b)
    frames.discard(a)
    assert not b.reads
    assert c.reads


@pytest.mark.parametrize("size", [100_000, MAX_FRAME_BYTES])
def test_without_a_limit_all_are_admitted(size: int) -> None:
    frames = LargeFrames()
    assert all(frames.admit(Link(), size) for _ in range(100))
