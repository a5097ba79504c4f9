"""Real sockets: many of them, broken ones, slow ones, too many, encrypted ones."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server import process
from sievemq_broker.server.net.link import HIGH_WATER, READ_BYTES, READ_PAUSE, UNREAD
from sievemq_broker.server.net.listener import ListenError
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

from .wire_client import DEADLINE, WireClient

MIB = 1024 * 1024


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def unsent(broker: EmbeddedBroker) -> int:
    """Bytes that the broker holds for its slowest connection."""

    def largest(_: object) -> int:
        links = broker.server.links.open
        return max(
            (link.transport.get_write_buffer_size() + link.connection.wire.pending_bytes for link in links), default=0
        )

    return broker.call(largest)


def eventually(broker: EmbeddedBroker, condition: object) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        broker.call(lambda _: None)


def test_three_hundred_connections_at_once(broker: EmbeddedBroker) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1024:
        pytest.skip(f"needs 700 file descriptors, {soft} are allowed")
    clients = [WireClient(broker.port) for _ in range(300)]
    assert len({client.welcome[4] for client in clients}) == 300
    for client in clients:
        client.open_session().send("queue:q")
    for client in clients:
        client.confirmed().close()
    eventually(broker, lambda: not broker.server.links.open)
    assert broker.call(lambda b: b.namespace("default").queue("q").depth) == 300
    assert broker.server.shard.services.connections == {}


def test_commands_cut_into_single_bytes(broker: EmbeddedBroker) -> None:
    with WireClient(broker.port, hello=False) as client:
        client.wire.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "test", None, {})
        for byte in client.wire.data_to_send():
            client.sock.send(bytes([byte]))
        assert client.until(Command.WELCOME)


def test_half_a_frame_and_the_end(broker: EmbeddedBroker) -> None:
    client = WireClient(broker.port)
    client.sock.sendall((100).to_bytes(4, "big") + b"\x93")
    client.sock.shutdown(socket.SHUT_WR)
    assert client.at_end()
    client.close()
    eventually(broker, lambda: not broker.server.links.open)


@pytest.mark.parametrize(
    ("junk", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ErrorCode.FRAME_TOO_LARGE),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ErrorCode.FRAME_TOO_LARGE),
        (b"\x00\x00\x00\x00", ErrorCode.MALFORMED_FRAME),
        (b"\x00\x00\x00\x02\xc1\xc1", ErrorCode.MALFORMED_FRAME),
    ],
)
def test_junk_is_answered_by_an_error_and_the_end(broker: EmbeddedBroker, junk: bytes, code: ErrorCode) -> None:
    with WireClient(broker.port, hello=False) as client, WireClient(broker.port) as other:
        client.sock.sendall(junk)
        error = client.until(Command.ERROR)
        assert error[1:3] == (0, code)
        assert client.at_end()
        assert other.request(Command.PING)[0] == Command.OK


def test_silent_connection_is_ended_after_its_time() -> None:
    with EmbeddedBroker(settings={"handshake_seconds": 0.1}) as broker, WireClient(broker.port, hello=False) as client:
        error = client.until(Command.ERROR)
        assert error[1] == 0
        assert client.at_end()


def test_a_connection_above_the_limit_is_refused_and_others_stay() -> None:
    with EmbeddedBroker(settings={"max_connections": 2}) as broker:
        first, second = WireClient(broker.port), WireClient(broker.port)
        with WireClient(broker.port, hello=False) as extra:
            error = extra.until(Command.ERROR)
            assert error[1:3] == (0, ErrorCode.TOO_MANY_CONNECTIONS)
            assert "2 connections" in error[3]
            assert extra.at_end()
        assert first.request(Command.PING)[0] == Command.OK
        first.close()
        eventually(broker, lambda: len(broker.server.links.open) == 1)
        with WireClient(broker.port) as again:
            assert again.welcome[0] == Command.WELCOME
        second.close()


def test_a_slow_reader_costs_bounded_memory_and_delays_no_other_client(broker: EmbeddedBroker) -> None:
    body = b"x" * 64 * 1024
    with WireClient(broker.port) as producer, WireClient(broker.port, receive_buffer=4096) as slow:
        slow.open_session().open_consumer("queue:q", credit=1_000)
        slow.open_consumer("queue:other", credit=1_000, consumer=2)
        producer.open_session()
        for _ in range(500):  # 32 MiB for a reader that does not read
            producer.send("queue:q", body)
        producer.confirmed()
        # What the kernel took is not ours; ours is one gathered outbox above the transport's mark at most.
        assert unsent(broker) < HIGH_WATER + 4 * MIB
        waiting = broker.call(lambda b: b.namespace("default").queue("q").depth)
        assert waiting > 300
        with WireClient(broker.port) as quick:
            quick.open_session().open_consumer("queue:q", credit=5)
            for _ in range(5):
                quick.until(Command.DELIVER)
        got = 0
        while got < 495:  # and when it reads, it gets everything, in order
            assert slow.until(Command.DELIVER)[2] == got + 1
            got += 1
        assert unsent(broker) == 0


def test_a_peer_that_does_not_read_is_paused_and_resumed(broker: EmbeddedBroker) -> None:
    def is_read_from() -> bool:
        return broker.call(lambda _: not any(link._pauses & UNREAD for link in broker.server.links.open))

    with WireClient(broker.port, receive_buffer=4096) as client:
        client.open_session()
        for _ in range(3):
            client.send("queue:q", b"x" * MIB)
        client.confirmed()
        asked = 0
        while is_read_from():
            asked += 1
            assert asked < 100, "a hundred pages were asked for, none was read, and the broker still listens"
            before = broker.server.links.bytes_in
            client.say(Command.BROWSE, asked, "queue:q", None, None, None, 1)  # answered by a page of 1 MiB
            eventually(broker, lambda before=before: broker.server.links.bytes_in > before)
        assert READ_PAUSE < unsent(broker) < READ_PAUSE + 2 * MIB
        client.say(Command.PING, 1_000)
        with WireClient(broker.port) as other:
            assert other.request(Command.PING)[0] == Command.OK
        for number in range(1, asked + 1):  # once it reads, it gets every answer, and the broker listens again
            assert client.until(Command.OK)[1] == number
        assert client.until(Command.OK)[1] == 1_000
        assert is_read_from()


def test_hundreds_of_requested_pages_are_not_all_built(broker: EmbeddedBroker) -> None:
    with WireClient(broker.port) as client:
        client.open_session().send("queue:q", b"x" * MIB).confirmed()
        for number in range(1, 501):
            client.wire.send(Command.BROWSE, number, "queue:q", None, None, None, 1)
        server, unsent = broker.server, [0]
        (link,) = server.links.open
        broker.call(
            lambda _: server.turn.watchers.append(lambda: unsent.append(link.transport.get_write_buffer_size()))
        )
        client.sock.sendall(client.wire.data_to_send())
        answers = [client.until(Command.OK, Command.ERROR) for _ in range(500)]
        refused = [answer for answer in answers if answer[0] == Command.ERROR]
        assert {answer[2] for answer in refused} <= {ErrorCode.RESOURCE_ALLOCATION}
        assert len(refused) < 500 - 64
        assert max(unsent) < 100 * MIB, "who does not read them is not asked what else it wants"
        assert client.request(Command.PING)[0] == Command.OK


def test_port_in_use_names_port_and_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"wire port {port} on 127.0.0.1 is in use .* \(setting port\)"):
            EmbeddedBroker(port=port).start()


def test_host_that_is_not_ours_is_named() -> None:
    with pytest.raises(ListenError, match=r"192\.0\.2\.1 is not an address of this machine"):
        EmbeddedBroker(host="192.0.2.1", settings={"insecure": True}).start()


def test_host_that_does_not_resolve_is_named() -> None:
    with pytest.raises(ListenError, match=r"'no\.such\.host\.invalid' cannot be resolved"):
        EmbeddedBroker(host="no.such.host.invalid", settings={"insecure": True}).start()


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_other_spellings_of_the_loopback(host: str) -> None:
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        broker = EmbeddedBroker(host=host).start()
    except ListenError as error:
        pytest.skip(f"no {host} here: {error}")
    try:
        assert broker.url == (f"sievemq://[::1]:{broker.port}" if host == "::1" else f"sievemq://{host}:{broker.port}")
        socket.create_connection((host, broker.port), DEADLINE).close()
    finally:
        broker.stop()


def test_plain_asyncio_loop_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.embedded.new_event_loop", asyncio.new_event_loop)
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        assert broker.call(lambda _: type(asyncio.get_running_loop()).__module__).startswith("asyncio")
        client.open_session().open_consumer("queue:q", credit=5).send("queue:q").until(Command.DELIVER)


def test_uvloop_is_used_where_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = process.new_event_loop()
    assert isinstance(loop, uvloop.Loop)
    loop.close()


# -- TLS --------------------------------------------------------------------------------------------------------------


def tls_settings(folder: Path, **more: str) -> dict[str, object]:
    return {"tls_cert": str(folder / "server.pem"), "tls_key": str(folder / "server.key"), **more}


def client_context(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "ca.pem")


def test_tls(certificates: Path) -> None:
    with EmbeddedBroker(settings=tls_settings(certificates)) as broker:
        assert broker.url.startswith("sievemqs://")
        with WireClient(broker.port, tls=client_context(certificates)) as client:
            assert isinstance(client.sock, ssl.SSLSocket)
            assert client.sock.version() in ("TLSv1.2", "TLSv1.3")
            client.open_session().open_consumer("queue:q", credit=5).send("queue:q", b"x" * MIB)
            assert len(client.until(Command.DELIVER)[4][12]) == MIB
            broker.stop()
            assert client.until(Command.ERROR)[2] == ErrorCode.SHUTTING_DOWN


@pytest.mark.parametrize("uvloop", [True, False])
def test_tls_whose_end_comes_with_its_last_commands(
    certificates: Path, uvloop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is read with them, and what they do takes longer than a turn."""
    if not uvloop:
        monkeypatch.setattr("sievemq_broker.embedded.new_event_loop", asyncio.new_event_loop)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with (
        EmbeddedBroker(settings=tls_settings(certificates)) as broker,
        socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as client,
    ):
        tls = client_context(certificates).wrap_bio(incoming, outgoing, server_hostname="localhost")

        def until_done(act: Callable[[], object]) -> None:
            while True:
                try:
                    act()
                except ssl.SSLWantReadError:
                    client.sendall(outgoing.read())
                    incoming.write(client.recv(1 << 16))
                else:
                    client.sendall(outgoing.read())
                    return

        until_done(tls.do_handshake)
        tls.write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        until_done(lambda: tls.read(1 << 16))
        sends = b"".join(b"SEND\ndestination:/queue/q\n\n%d\0" % number for number in range(1_500))
        assert len(sends) < READ_BYTES
        tls.write(sends)
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.unwrap()
        client.sendall(outgoing.read())
        eventually(broker, lambda: broker.call(lambda b: b.namespace("").queue("queue:q").depth) == 1_500)
        eventually(broker, lambda: not broker.server.links.open)


def test_clear_text_to_a_tls_port_gets_nowhere(certificates: Path) -> None:
    with EmbeddedBroker(settings=tls_settings(certificates)) as broker, WireClient(broker.port, hello=False) as client:
        wire = WireConnection("client")
        wire.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "test", None, {})
        client.sock.sendall(wire.data_to_send())
        assert client.at_end()
        assert broker.server.shard.services.connections == {}


def test_silence_instead_of_a_tls_handshake_is_ended(certificates: Path) -> None:
    settings = tls_settings(certificates) | {"handshake_seconds": 0.1}
    with EmbeddedBroker(settings=settings) as broker, WireClient(broker.port, hello=False) as client:
        assert client.at_end()


def test_a_client_certificate_is_required(certificates: Path) -> None:
    settings = tls_settings(certificates, tls_client_ca=str(certificates / "ca.pem"))
    with EmbeddedBroker(settings=settings) as broker:
        context = client_context(certificates)
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            WireClient(broker.port, tls=context)
        context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
        with WireClient(broker.port, tls=context) as client:
            assert client.welcome[0] == Command.WELCOME


def test_certificate_that_cannot_be_read_is_named(certificates: Path) -> None:
    with pytest.raises(ListenError, match=r"none\.pem"):
        EmbeddedBroker(settings={"tls_cert": str(certificates / "none.pem")}).start()
    with pytest.raises(ListenError, match=r"server\.pem with the key .*client\.key"):
        settings = tls_settings(certificates) | {"tls_key": str(certificates / "client.key")}
        EmbeddedBroker(settings=settings).start()
    with pytest.raises(ListenError, match=r"CA of client certificates"):
        EmbeddedBroker(settings=tls_settings(certificates, tls_client_ca=str(certificates / "none.pem"))).start()
