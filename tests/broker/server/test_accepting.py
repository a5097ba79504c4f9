"""Connections that were just accepted when the broker stops, or its store fails: none is served or left open."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server import process
from sievemq_broker.server.net import listener
from sievemq_broker.server.server import Server

from .wire_client import DEADLINE, WireClient


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which loop brokers run on."""
    make = asyncio.new_event_loop if request.param == "asyncio" else process.new_event_loop
    monkeypatch.setattr("sievemq_broker.embedded.new_event_loop", make)


def connected(broker: EmbeddedBroker, then: Callable[[Server], object], turns: int) -> list[socket.socket]:
    """Connections that are there so many turns of the loop before it does something else."""
    clients: list[socket.socket] = []

    def later(server: Server, left: int) -> None:
        if left:
            asyncio.get_running_loop().call_soon(later, server, left - 1)
        else:
            then(server)

    def connect(server: Server) -> None:
        clients.extend(socket.create_connection(("127.0.0.1", broker.port), DEADLINE) for _ in range(3))
        later(server, turns)

    broker._submit(connect).result()
    return clients


def ended(clients: list[socket.socket]) -> None:
    """The broker has closed these connections."""
    for client in clients:
        with client, contextlib.suppress(ConnectionError):
            while client.recv(65_536):
                pass


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.usefixtures("loop")
def test_connections_that_come_as_the_broker_stops_are_closed(turns: int) -> None:
    broker = EmbeddedBroker()
    broker.start()
    thread, stopping = broker._thread, broker._stopping
    assert thread is not None
    assert stopping is not None
    clients = connected(broker, lambda _: stopping.set(), turns)
    thread.join(DEADLINE)
    ended(clients)
    del broker
    gc.collect()  # a transport or socket that is still open warns


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.usefixtures("loop")
def test_connections_that_come_as_the_store_fails_are_closed(turns: int) -> None:
    with EmbeddedBroker() as broker:
        ended(connected(broker, lambda server: server._store_failed(OSError("the disk is gone")), turns))
        assert broker.server.shard.services.connections == {}
        assert not broker.server.links.open
    gc.collect()


@pytest.mark.usefixtures("loop")
def test_a_tls_handshake_does_not_outlive_the_broker(certificates: Path) -> None:
    settings = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    with EmbeddedBroker(settings=settings) as broker:
        clients = [socket.create_connection(("127.0.0.1", broker.port), DEADLINE) for _ in range(3)]
        acceptor = broker.server._acceptors[0]
        while broker._submit(lambda _: len(acceptor._opening)).result() < 3:
            pass
    ended(clients)
    gc.collect()


@pytest.mark.usefixtures("loop")
def test_clients_wait_while_there_is_no_room_for_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, refused = socket.socket.accept, []

    def accept_later(sock: socket.socket) -> tuple[socket.socket, object]:
        if not refused:
            refused.append(sock)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(sock)

    monkeypatch.setattr(listener, "_PAUSE_SECONDS", 0.01)
    with EmbeddedBroker() as broker:
        monkeypatch.setattr(socket.socket, "accept", accept_later)
        with WireClient(broker.port) as client:
            assert client.welcome
        assert len(refused) == 1


@pytest.mark.usefixtures("loop")
def test_a_broker_stops_while_there_is_no_room_for_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(sock: socket.socket) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with EmbeddedBroker() as broker:
        monkeypatch.setattr(socket.socket, "accept", accept)
        with socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as client:
            acceptor = broker.server._acceptors[0]
            while broker._submit(lambda _: acceptor._pause).result() is None:
                pass
            broker.stop()
            ended([client])
