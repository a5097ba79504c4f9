"""A disk that fails for a while, or for good: faults are injected at the store's interface, no disk is needed."""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.server.wire_client import WireClient

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.durability import commits
from sievemq_broker.server.http.app import readiness
from sievemq_core.wire.commands import Command


class Fault:
    """Makes every sync fail while it is on."""

    def __init__(self, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        assert broker.server.shard.opened is not None
        self._store = broker.server.shard.opened.store
        self._on = threading.Event()
        self.met = threading.Event()
        execute = self._store._execute

        def failing(statement: str, values: tuple[object, ...] = ()) -> Any:
            if statement == "COMMIT" and self._on.is_set():
                self.met.set()
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
                raise error
            return execute(statement, values)

        monkeypatch.setattr(self._store, "_execute", failing)

    def begin(self) -> None:
        self._on.set()

    def end(self) -> None:
        self._on.clear()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        yield broker


def send(client: WireClient, sequence: int, body: bytes) -> None:
    """A PERSISTENT message."""
    envelope = (None, 1, 4, 2, 0, 0, None, None, None, None, None, 2, body)
    client.say(Command.SEND, 1, sequence, "queue:q", envelope)


def test_clients_learn_of_a_failing_disk_at_once_and_continue_afterwards(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(commits, "RETRY_SECONDS", 600.0)
    fault = Fault(broker, monkeypatch)
    with WireClient(broker.port) as producer, WireClient(broker.port) as consumer:
        producer.open_session()
        consumer.open_session().open_consumer("queue:q", credit=10)
        send(producer, 1, b"before")
        assert producer.until(Command.CONFIRM)[1:] == (1, 1)
        assert consumer.until(Command.DELIVER)[2:4] == (1, 1)
        fault.begin()
        send(producer, 2, b"meanwhile")
        for client in (producer, consumer):
            flow = client.until(Command.FLOW)
            assert flow[1] is True
            assert "disk I/O error" in flow[2]
        consumer.say(Command.ACKNOWLEDGE, 1, 1, 0)  # noted when that can be
        assert broker.call(lambda _: [link.held for link in broker.server.links.open if link.held]) != []
        assert readiness(broker.server) == (False, {"status": "not ready", "role": "owner", "reasons": [flow[2]]})
        fault.end()
        assert producer.until(Command.CONFIRM)[1:] == (1, 2)
        assert producer.until(Command.FLOW)[1:3] == (False, "")
        assert consumer.until(Command.DELIVER)[2] == 2


def test_a_permanent_disk_failure_ends_the_broker_and_keeps_confirmed_messages(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(commits, "RETRY_SECONDS", 0.1)
    over = threading.Event()
    broker.call(lambda _: setattr(broker.server, "on_failure", over.set))
    fault = Fault(broker, monkeypatch)
    with WireClient(broker.port) as producer:
        producer.open_session()
        send(producer, 1, b"kept")
        assert producer.until(Command.CONFIRM)[1:] == (1, 1)
        fault.begin()
        send(producer, 2, b"open")
        assert over.wait(60)
        assert broker.server.failure is not None
        said = []
        with pytest.raises((AssertionError, ConnectionError)):
            while True:
                said.append(producer.next(lambda command: True)[0])
        assert Command.CONFIRM not in said
    with pytest.raises(OSError, match="refused"):  # no client connects to a broker that will not answer
        socket.create_connection(("127.0.0.1", broker.server.port), 60).close()
    with pytest.raises(RuntimeError, match=r"serves no clients any more: .*disk I/O error"):
        broker.call(lambda domain: domain)
    with pytest.raises(RuntimeError, match="disk I/O error"):
        _ = broker.url
    assert readiness(broker.server) == (
        False,
        {"status": "not ready", "role": "owner", "reasons": [f"the store has failed: {broker.server.failure}"]},
    )
    broker.stop()
    with (
        EmbeddedBroker(data_dir=tmp_path / "data") as again,
        ConnectionFactory(again.url).create_context(JMSContext.AUTO_ACKNOWLEDGE) as context,
    ):
        bodies = [message.get_body(bytes) for message in context.create_browser(context.create_queue("q"))]
    assert bodies[:1] == [b"kept"]
    assert set(bodies) <= {b"kept", b"open"}
