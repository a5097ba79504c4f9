"""Floods that take the broker's loop many turns, over real sockets: nothing is lost, doubled or out of order, and
others are heard in between (decision 0026)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.net import turn
from sievemq_core.wire.commands import Command

from .test_sockets import client_context, tls_settings
from .wire_client import WireClient

SUBSCRIBERS = 100
MESSAGES = 150
FLOODERS = 3


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast the machine is."""
    monkeypatch.setattr(turn, "PIECE_SECONDS", 0.0001)


class Hearer:
    """A connection with many subscribers of a topic; what each of them got."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.client = WireClient(port, tls=tls).open_session()
        for number in range(SUBSCRIBERS):
            self.client.open_consumer("topic:t", credit=10_000, consumer=number + 1)
        self.got: dict[int, list[tuple[str, int]]] = {number + 1: [] for number in range(SUBSCRIBERS)}

    def hear(self, each: int) -> None:
        """Until every subscriber has so many messages."""
        left = each * SUBSCRIBERS
        while left:
            while self.client.waiting:
                command = self.client.waiting.pop()
                if command[0] == Command.DELIVER:
                    left -= 1
                    name, number = bytes(command[4][-1]).decode().split()
                    self.got[command[1]].append((name, int(number)))
            if left:
                self.client.read()
                self.client.waiting.reverse()  # taken from the end: the oldest first


def flood(client: WireClient, name: str, first: int = 0, count: int = MESSAGES, to: str = "topic:t") -> None:
    """Say all of it before anything is heard."""
    parts = []
    for number in range(first, first + count):
        client.sent += 1
        envelope = (None, 1, 4, 1, 0, 0, None, None, None, None, None, 2, f"{name} {number}".encode())
        client.wire.send(Command.SEND, 1, client.sent, to, envelope)
        if number % 50 == 49:
            parts.append(client.wire.data_to_send())
    client.wire.send(Command.PING, 99)
    client.sock.sendall(b"".join([*parts, client.wire.data_to_send()]))


@pytest.fixture(params=["clear", "tls"])
def transport(
    request: pytest.FixtureRequest, certificates: Path
) -> Iterator[tuple[EmbeddedBroker, ssl.SSLContext | None]]:
    if request.param == "clear":
        with EmbeddedBroker() as broker:
            yield broker, None
    else:
        with EmbeddedBroker(settings=tls_settings(certificates)) as broker:
            yield broker, client_context(certificates)


def late_links(broker: EmbeddedBroker) -> list[Any]:
    """Links that were late at the end of a turn, gathered from now on."""
    seen: list[Any] = []
    server = broker.server
    broker.call(
        lambda _: server.turn.watchers.append(lambda: seen.extend(link for link in server.links.open if link.late))
    )
    return seen


def test_each_subscriber_receives_every_flooder_in_order_and_once(
    transport: tuple[EmbeddedBroker, ssl.SSLContext | None],
) -> None:
    broker, tls = transport
    hearers = [Hearer(broker.port, tls) for _ in range(2)]
    flooders = [WireClient(broker.port, tls=tls).open_session() for _ in range(FLOODERS)]
    bystander = WireClient(broker.port, tls=tls).open_session()
    late = late_links(broker)
    with ThreadPoolExecutor() as pool:
        heard = [pool.submit(hearer.hear, FLOODERS * MESSAGES) for hearer in hearers]
        said = [pool.submit(flood, client, f"f{n}") for n, client in enumerate(flooders)]
        asked = 0
        while not all(one.done() for one in heard):
            assert bystander.request(Command.PING)[0] == Command.OK
            asked += 1
        for one in (*heard, *said):
            one.result()
    assert late, "this was no flood"
    assert asked > 3
    for client in flooders:
        client.next(lambda command: command[:2] == (Command.OK, 99))
    for hearer in hearers:
        for got in hearer.got.values():
            for name in (f"f{n}" for n in range(FLOODERS)):
                assert [number for who, number in got if who == name] == list(range(MESSAGES))
        hearer.client.close()
    for client in (*flooders, bystander):
        client.close()


def test_a_flood_that_ends_is_processed_whole() -> None:
    with EmbeddedBroker() as broker:
        hearer = Hearer(broker.port)
        late = late_links(broker)
        with WireClient(broker.port).open_session() as client:
            flood(client, "gone")
            client.sock.shutdown(socket.SHUT_WR)
            assert client.at_end()
        hearer.hear(MESSAGES)
        assert late
        assert all(got == [("gone", number) for number in range(MESSAGES)] for got in hearer.got.values())
        hearer.client.close()


def test_a_kill_during_a_flood_keeps_confirmed_sends_and_repeats_others_once(tmp_path: Path) -> None:
    """A durable broker ends while a connection is late: confirmed is what is on disk."""
    with EmbeddedBroker(settings={"data_dir": str(tmp_path)}) as broker:
        reader = WireClient(broker.port).open_session()
        client = WireClient(broker.port).open_session()
        late = late_links(broker)
        for number in range(40):
            client.wire.send(Command.DECLARE, 1_000 + number, f"queue:q{number}")
        parts = [client.wire.data_to_send()]
        for number in range(4_000):
            client.sent += 1
            envelope = (None, 1, 4, 2, 0, 0, None, None, None, None, None, 2, str(number).encode())
            client.wire.send(Command.SEND, 1, client.sent, f"queue:q{number % 40}", envelope)
            if number % 1_000 == 999:
                parts.append(client.wire.data_to_send())
        client.sock.sendall(b"".join(parts))
        confirmed = client.until(Command.CONFIRM)[2]
        broker.call(lambda _: broker.server.links.abort_all())
        reader.close()
        client.close()
    with EmbeddedBroker(settings={"data_dir": str(tmp_path)}) as broker:
        queues = broker.call(lambda b: dict(b.namespace("").destinations))
        found = {
            int(bytes(entry.envelope.fields[-1]))
            for queue in queues.values()
            for entry in broker.call(lambda _, queue=queue: queue.main.waits(-1, 10_000))
        }
    assert found >= set(range(confirmed))
    assert found == set(range(len(found))), "a prefix of what was said"
    assert late
