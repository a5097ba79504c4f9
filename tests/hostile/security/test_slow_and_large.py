"""Peers that say little for long, and peers that say too much."""

from __future__ import annotations

import base64
import socket
import struct
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
from tests.broker.protocols.amqp import AmqpSocket
from tests.broker.protocols.stomp import StompSocket

from sievemq_broker import EmbeddedBroker
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, SASL_HEADER
from sievemq_broker.server.http import protocol
from sievemq_broker.server.http.access import MAX_REQUEST_BYTES
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import HANDSHAKE_FRAME_BYTES
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

from .support import DEADLINE, PASSWORD, ask, basic, hello, raw, secured, until_closed

ADMIN = b"Authorization: Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()) + b"\r\n"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), DEADLINE)


def http_port(broker: EmbeddedBroker) -> int:
    return urlsplit(broker.http_url).port or 0


# -- the wire ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"\0", b"\0\0\0\x10\x01"], ids=["nothing", "half a length", "half a frame"])
def test_a_missing_handshake_ends_the_connection(said: bytes) -> None:
    with secured(handshake_seconds=0.2) as broker, connect(broker.port) as sock:
        sock.sendall(said)
        assert b"no HELLO within 200 ms" in until_closed(sock)
        assert broker.call(lambda _: len(broker.server.shard.services.connections)) == 0


def test_byte_now_and_then_is_no_sign_of_life() -> None:
    """Each byte is progress of a kind, and the deadline of the whole stays."""
    with secured(handshake_seconds=0.3) as broker, connect(broker.port) as sock:
        sock.settimeout(0.02)
        wire = WireConnection("client")
        wire.send(Command.HELLO, PROTOCOL_VERSION, "", "admin", PASSWORD, None, 0, "x" * 200, None, {})
        said = b""
        for byte in wire.data_to_send()[:-1]:
            try:
                sock.sendall(bytes([byte]))
                said += sock.recv(1_000)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            if said:
                break
        assert b"no HELLO within 300 ms" in said


@pytest.mark.parametrize("length", [HANDSHAKE_FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_frame_that_is_too_long_is_refused_by_its_length_alone(broker: EmbeddedBroker, length: int) -> None:
    with connect(broker.port) as sock:
        sock.sendall(struct.pack(">I", length))
        client = WireConnection("client")
        client.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "", None, {})
        (last,) = client.receive_data(until_closed(sock))
        assert last[:3] == (Command.ERROR, 0, ErrorCode.FRAME_TOO_LARGE)


def test_bytes_of_other_protocols_end_the_connection(broker: EmbeddedBroker) -> None:
    for data in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff" * 1_000,
    ):
        with connect(broker.port) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            said = until_closed(sock)
            assert len(said) < 1_000
    assert broker.call(lambda _: len(broker.server.shard.services.connections)) == 0


def test_silent_connections_are_closed_for_new_ones() -> None:
    """And a broker that is full of them is ready."""
    with secured(max_connections=4) as broker, ExitStack() as stack:
        silent = [stack.enter_context(connect(broker.port)) for _ in range(4)]
        for number in range(1, 4):
            sock = stack.enter_context(connect(broker.port))
            sock.sendall(hello("admin", PASSWORD))
            client = WireConnection("client")
            client.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "", None, {})
            assert client.receive_data(sock.recv(1 << 16))[0][0] == Command.WELCOME
            assert broker.call(lambda _: len(broker.server.shard.services.connections)) == number
            assert ask(broker, "/readyz").status == 200
            assert b"max_connections" in until_closed(silent[number - 1])


@pytest.mark.parametrize("port", ["wire", "amqp", "stomp"])
@pytest.mark.parametrize("said", [b"", b"CONNECT\nhost:x\n", AMQP_HEADER, SASL_HEADER])
def test_a_handshake_that_another_protocol_has_begun_makes_room_too(port: str, said: bytes) -> None:
    settings = {"max_connections": 2}
    with EmbeddedBroker(http=True, settings=settings, amqp_port=0, stomp_port=0) as broker, ExitStack() as stack:
        at = broker.port if port == "wire" else broker.server.port_of(port)
        silent = [stack.enter_context(connect(at)) for _ in range(2)]
        for sock in silent:
            sock.sendall(said)
        stack.enter_context(AmqpSocket(broker.port))
        assert ask(broker, "/readyz").status == 200
        stack.enter_context(StompSocket(broker.port))
        for sock in silent:
            until_closed(sock)
        assert ask(broker, "/readyz").status == 503


def test_connections_that_are_welcomed_do_not_make_room() -> None:
    with secured(max_connections=1) as broker, connect(broker.port) as welcomed:
        welcomed.sendall(hello("admin", PASSWORD))
        assert welcomed.recv(1 << 16)
        with connect(broker.port) as late:
            assert b"max_connections" in until_closed(late)
        assert ask(broker, "/readyz").status == 503
        assert broker.call(lambda _: len(broker.server.shard.services.connections)) == 1


# -- HTTP -------------------------------------------------------------------------------------------------------------

SLOW = {
    "nothing": b"",
    "half a line": b"GET / HT",
    "head without an end": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "body that does not come": b"POST /session HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nuser=",
}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.2)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("said", SLOW.values(), ids=SLOW.keys())
def test_request_that_does_not_end(said: bytes) -> None:
    with secured() as broker, connect(http_port(broker)) as sock:
        sock.sendall(said)
        assert b"HTTP/1.1 200" not in until_closed(sock)  # fails if the connection is still there at the deadline


def test_second_request_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with secured() as broker, connect(http_port(broker)) as sock:
        sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = b""
        while not said.endswith(b"}"):  # head and body may come one by one
            said += sock.recv(10_000)
        assert said.startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)  # only now: the first request has all its time
        sock.sendall(SLOW["half a line"])
        assert until_closed(sock) == b""


@pytest.mark.parametrize("said", SLOW.values(), ids=SLOW.keys())
def test_probe_gets_through_hundreds_of_slow_ones(said: bytes) -> None:
    """Or else whoever holds the port could have the broker started anew by those who watch it."""
    with secured() as broker, ExitStack() as stack:
        slow = [stack.enter_context(connect(http_port(broker))) for _ in range(protocol.MAX_CONNECTIONS + 20)]
        for sock in slow:
            with suppress(ConnectionError):
                sock.sendall(said)
        for _ in range(3):
            assert ask(broker, "/livez").status == 200
        assert ask(broker, "/api/v1/broker", **basic("admin")).status == 200
        assert until_closed(slow[0]) == b""  # the oldest had to make room


def test_a_request_being_answered_is_not_evicted() -> None:
    with secured() as broker, ExitStack() as stack:
        stream = stack.enter_context(connect(http_port(broker)))
        stream.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n" + ADMIN + b"\r\n")
        stream.settimeout(DEADLINE)
        assert stream.recv(10_000).startswith(b"HTTP/1.1 200")
        for _ in range(protocol.MAX_CONNECTIONS + 20):
            stack.enter_context(connect(http_port(broker))).sendall(SLOW["half a line"])
        assert ask(broker, "/livez").status == 200
        said = b""
        while b"event: tick" not in said:
            said += stream.recv(10_000)


def test_patience_is_of_seconds() -> None:
    assert protocol.HEAD_SECONDS == 10
    assert protocol.BODY_SECONDS == 60


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 70_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 20_000,
        b"\0" * 100_000,
    ],
    ids=["path", "header", "headers", "no HTTP at all"],
)
def test_an_endless_head_is_refused(broker: EmbeddedBroker, head: bytes) -> None:
    try:
        said = raw(broker, head)
    except ConnectionError:
        said = b""
    assert said == b"" or said.split(b" ", 2)[1] in (b"400", b"431", b"414")


def test_body_that_is_too_long_is_refused_by_its_length_alone(broker: EmbeddedBroker) -> None:
    head = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\n" + ADMIN
    said = raw(broker, head + b"Content-Length: %d\r\n\r\n{" % (MAX_REQUEST_BYTES + 1))
    assert said.startswith(b"HTTP/1.1 413")


def test_the_body_of_an_unauthenticated_request_is_not_awaited(broker: EmbeddedBroker) -> None:
    head = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    with connect(http_port(broker)) as sock:
        sock.sendall(head)
        sock.settimeout(DEADLINE)
        assert sock.recv(1_000).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding: xchunked\r\n",
    ],
)
def test_lengths_that_two_servers_would_read_in_two_ways(broker: EmbeddedBroker, framing: bytes) -> None:
    """Nothing behind such a request is ever taken for a request of its own."""
    behind = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    said = raw(broker, b"POST /session HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n0\r\n\r\n" + behind)
    assert b'"status":"ok"' not in said


def test_a_head_that_arrives_at_once_is_bounded() -> None:
    def head(size: int) -> bytes:
        begin, end = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: ", b"\r\n\r\n"
        return begin + b"a" * (size - len(begin) - len(end)) + end

    with secured() as broker:
        assert raw(broker, head(protocol.HEAD_BYTES)).startswith(b"HTTP/1.1 200")
        for size in (protocol.HEAD_BYTES + 2, 70_000):
            with suppress(ConnectionError):
                assert raw(broker, head(size)).split(b" ", 2)[1] in (b"400", b"431")


def test_body_behind_a_head_is_read_whole() -> None:
    body = b'{"body": "' + b"x" * 200_000 + b'"}'
    with secured() as broker:
        head = (
            b"POST /api/v1/namespaces/default/destinations/queue:orders.x/messages HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        )
        assert raw(broker, head + ADMIN + b"\r\n" + body).startswith(b"HTTP/1.1 201")
