"""Which protocols clients may speak at which port, and where an operator sees what a client speaks."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

import pytest
from typer.testing import CliRunner

from sievemq import ConnectionFactory
from sievemq._engine import ClientConnection, EngineOptions
from sievemq.blocking.transport import wall_clock
from sievemq.cli.manage.parties import connection as connection_command
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import ConfigError
from sievemq_broker.server.net.listener import ListenError
from sievemq_testing import TestBroker, TestNamespace

SOON = 20

CONNECT = b"CONNECT\naccept-version:1.2\nhost:%s\n\n\0"
HELLO = ClientConnection(EngineOptions(heartbeat=0), wall_clock).hello().data_to_send()


def stomp(port: int, host: str = "x") -> socket.socket:
    """A STOMP client that is connected."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.settimeout(SOON)
    sock.sendall(CONNECT % host.encode())
    assert sock.recv(9) == b"CONNECTED"
    return sock


def got(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def test_api_metrics_and_command_line_show_the_protocol_of_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        EmbeddedBroker(http=True) as broker,
        ConnectionFactory(broker.url).create_context(),
        stomp(broker.port),
        stomp(broker.port),
    ):
        rows = json.loads(got(f"{broker.http_url}/api/v1/connections"))["connections"]
        assert [row["protocol"] for row in rows] == ["sieve", "stomp", "stomp"]
        metrics = got(f"{broker.http_url}/metrics").decode()
        assert 'sievemq_clients{protocol="sieve"} 1.0' in metrics
        assert 'sievemq_clients{protocol="stomp"} 2.0' in metrics
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", broker.http_url)
        shown = CliRunner().invoke(connection_command, ["ls", "--json"])
        assert [json.loads(line)["protocol"] for line in shown.stdout.splitlines()] == ["sieve", "stomp", "stomp"]
        assert "protocol" in CliRunner().invoke(connection_command, ["ls"]).stdout.splitlines()[0]


def test_journal_and_views_of_a_test_show_the_protocol_of_each_client(sievemq_namespace: TestNamespace) -> None:
    with (
        ConnectionFactory(sievemq_namespace.url).create_context(),
        stomp(sievemq_namespace.broker.port, f"/{sievemq_namespace.name}"),
    ):
        assert [connection.protocol for connection in sievemq_namespace.connections] == ["sieve", "stomp"]
    connected = [event.detail for event in sievemq_namespace.journal if event.kind == "connected"]
    assert [detail.rpartition(", protocol ")[2] for detail in connected] == ["sieve", "stomp"]


@pytest.mark.parametrize(
    ("first", "answer"),
    [(CONNECT % b"x", b"CONNECTED"), (b"AMQP\0\1\0\0", b"AMQP\0\1\0\0"), (HELLO, b"\0\0")],
    ids=["stomp", "amqp", "sieve"],
)
def test_a_protocol_is_recognised_though_its_first_bytes_arrive_one_by_one(first: bytes, answer: bytes) -> None:
    with EmbeddedBroker() as broker, socket.create_connection(("127.0.0.1", broker.port)) as sock:
        sock.settimeout(SOON)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(first)):
            sock.sendall(first[at : at + 1])
            for _ in range(2):
                broker.call(lambda _: None)  # turns of its loop
        assert sock.recv(len(answer)) == answer


def test_a_port_of_its_own_speaks_stomp_beside_the_wire_port() -> None:
    with EmbeddedBroker(stomp_port=0) as broker:
        own = int(broker.stomp_url.rpartition(":")[2])
        assert own != broker.port
        stomp(own).close()
        stomp(broker.port).close()
        ConnectionFactory(broker.url).create_context().close()


def test_a_port_of_its_own_speaks_nothing_else() -> None:
    with (
        EmbeddedBroker(stomp_port=0) as broker,
        socket.create_connection(("127.0.0.1", broker.server.port_of("stomp"))) as sock,
    ):
        sock.settimeout(SOON)
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n\0")
        assert b"is no command of a STOMP client" in b"".join(iter(lambda: sock.recv(4096), b""))


def test_stomp_only_at_its_own_port() -> None:
    with EmbeddedBroker(stomp_port=0, settings={"protocols": "sieve"}) as broker:
        stomp(broker.server.port_of("stomp")).close()
        with socket.create_connection(("127.0.0.1", broker.port)) as sock:
            sock.settimeout(SOON)
            sock.sendall(CONNECT % b"x")
            assert b"CONNECTED" not in b"".join(iter(lambda: sock.recv(4096), b""))


def test_without_stomp_there_is_no_url_for_it() -> None:
    with (
        EmbeddedBroker(settings={"protocols": "sieve"}) as broker,
        pytest.raises(RuntimeError, match="does not speak stomp: see the settings protocols and stomp_port"),
    ):
        broker.stomp_url  # noqa: B018


def test_a_restarted_broker_keeps_its_ports() -> None:
    with TestBroker(stomp_port=0) as broker:
        before = broker.url, broker.stomp_url
        broker.restart()
        assert (broker.url, broker.stomp_url) == before
        stomp(broker.server.port_of("stomp")).close()


def test_a_port_in_use_names_its_setting_and_frees_the_others() -> None:
    with EmbeddedBroker() as other:
        with socket.create_server(("127.0.0.1", 0)) as held:
            free = held.getsockname()[1]
        with pytest.raises(ListenError, match=rf"STOMP port {other.port} on 127.0.0.1 .* \(setting stomp_port\)"):
            EmbeddedBroker(port=free, stomp_port=other.port).start()
        with EmbeddedBroker(port=free):
            pass


@pytest.mark.parametrize("value", ["70000", -1, "x"])
def test_a_port_is_a_number(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"stomp_port .* must be a whole number from 0 to 65535"):
        EmbeddedBroker(settings={"stomp_port": value})
