"""A STOMP client that others wrote (stomp.py), over real sockets, beside SieveMQ's own client."""

from __future__ import annotations

import queue
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import stomp

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_testing import Faults, TestNamespace

SOON = 20


class Inbox:
    """A listener of stomp.py's that keeps what comes."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()
        self.ends: queue.Queue[None] = queue.Queue()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_: None
        raise AttributeError(name)

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)

    def on_disconnected(self) -> None:
        self.ends.put(None)

    def next(self) -> Any:
        return self.messages.get(timeout=SOON)


def connected(port: int, kind: Any = stomp.Connection12, **options: Any) -> tuple[Any, Inbox]:
    inbox = Inbox()
    connection = kind([("127.0.0.1", port)], **options)
    connection.set_listener("inbox", inbox)
    connection.connect(wait=True)
    return connection, inbox


@pytest.mark.parametrize("kind", [stomp.Connection10, stomp.Connection11, stomp.Connection12])
def test_each_version_sends_subscribes_and_acknowledges(kind: Any) -> None:
    with EmbeddedBroker() as broker:
        connection, inbox = connected(broker.port, kind)
        connection.subscribe("/queue/a", id="1", ack="client", selector="color = 'red'")
        connection.send("/queue/a", "no", color="blue")
        connection.send("/queue/a", "päper", color="red")
        frame = inbox.next()
        assert frame.body == "päper"
        if kind is stomp.Connection12:
            connection.ack(frame.headers["ack"])
        elif kind is stomp.Connection11:
            connection.ack(frame.headers["message-id"], "1")
        else:
            connection.ack(frame.headers["message-id"])
        connection.disconnect(receipt="bye")
        assert inbox.receipts.get(timeout=SOON) == "bye"
        with ConnectionFactory(broker.url).create_context() as context:
            assert context.create_consumer(Queue("a")).receive_no_wait().get_body(bytes) == b"no"  # type: ignore[union-attr]
            assert context.create_consumer(Queue("a")).receive_no_wait() is None


def test_bodies_cross_to_the_sdk_and_back() -> None:
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        connection, inbox = connected(broker.port)
        producer, consumer = context.create_producer(), context.create_consumer(Queue("in"))
        connection.subscribe("/queue/out", id="1")
        for body in ("text", b"\x00\xff", {"n": 1, "s": "x"}):
            producer.send(Queue("out"), body)
        assert [inbox.next().body, inbox.next().headers["content-length"]] == ["text", "2"]
        assert inbox.next().body == '{"n": 1, "s": "x"}'
        connection.send("/queue/in", "text", headers={"amq-msg-type": "text"})
        connection.send("/queue/in", b"bytes")
        connection.send("/queue/in", '{"n": 1}', headers={"transformation": "jms-map-json"})
        assert consumer.receive_body(str, timeout=SOON * 1000) == "text"
        assert consumer.receive_body(bytes, timeout=SOON * 1000) == b"bytes"
        assert consumer.receive_body(dict, timeout=SOON * 1000) == {"n": 1}
        connection.disconnect()


def test_a_receipt_means_on_disk(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        connection, inbox = connected(broker.port)
        connection.send("/queue/a", "kept", persistent="true", receipt="r")
        assert inbox.receipts.get(timeout=SOON) == "r"
        connection.disconnect()
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        connection, inbox = connected(broker.port)
        connection.subscribe("/queue/a", id="1")
        assert inbox.next().body == "kept"
        connection.disconnect()


def test_many_messages_in_order_to_a_client_that_acknowledges_each() -> None:
    with EmbeddedBroker() as broker:
        connection, inbox = connected(broker.port)
        connection.subscribe("/queue/a", id="1", ack="client-individual")
        for number in range(2_000):
            connection.send("/queue/a", str(number))
        for number in range(2_000):
            frame = inbox.next()
            assert frame.body == str(number)
            connection.ack(frame.headers["ack"])
        connection.disconnect()


def test_a_sender_waits_where_a_queue_is_full_and_loses_nothing() -> None:
    rules = {"destinations": {"queue:a": {"max_messages": 10, "at_limit": "block"}}}
    with EmbeddedBroker(settings=rules) as broker, ConnectionFactory(broker.url).create_context() as context:
        connection, inbox = connected(broker.port)
        for number in range(300):
            connection.send("/queue/a", str(number), receipt=str(number))
        consumer = context.create_consumer(Queue("a"))
        got = [consumer.receive_body(bytes, timeout=SOON * 1000) for _ in range(300)]
        assert got == [str(number).encode() for number in range(300)]
        assert [inbox.receipts.get(timeout=SOON) for _ in range(300)] == [str(number) for number in range(300)]
        connection.disconnect()


def test_stomp_can_be_turned_off() -> None:
    with (
        EmbeddedBroker(settings={"protocols": "sieve"}) as broker,
        socket.create_connection(("127.0.0.1", broker.port)) as sock,
    ):
        sock.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        sock.settimeout(SOON)
        assert b"CONNECTED" not in b"".join(iter(lambda: sock.recv(4096), b""))


def test_a_connect_in_single_bytes() -> None:
    with EmbeddedBroker() as broker, socket.create_connection(("127.0.0.1", broker.port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"CONNECT\naccept-version:1.2\nhost:x\n\n\0":
            sock.send(bytes([byte]))
        sock.settimeout(SOON)
        assert sock.recv(9) == b"CONNECTED"


def test_over_tls(certificates: Path) -> None:
    files = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    with EmbeddedBroker(settings=files) as broker:
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        raw = socket.create_connection(("127.0.0.1", broker.port))
        with context.wrap_socket(raw, server_hostname="localhost") as sock:
            sock.sendall(b"STOMP\naccept-version:1.2\nhost:x\n\n\0")
            assert sock.recv(9) == b"CONNECTED"


def test_the_journal_of_a_test_says_why_a_selector_did_not_match(
    sievemq_stomp_url: str, sievemq_namespace: TestNamespace
) -> None:
    address, _, name = sievemq_stomp_url.removeprefix("stomp://").partition("/")
    connection, inbox = connected(int(address.rpartition(":")[2]), vhost=f"/{name}")
    connection.subscribe("/topic/t", id="1", selector="amount > 100")
    connection.send("/topic/t", "x", amount="120", receipt="r")
    assert inbox.receipts.get(timeout=SOON) == "r"
    connection.disconnect()
    journal = sievemq_namespace.excerpt()
    assert "STOMP 1.2" in journal
    assert "amount is '120', a string, unlike types" in journal


def test_a_fault_meets_a_stomp_client(sievemq_stomp_url: str, sievemq_faults: Faults) -> None:
    address, _, name = sievemq_stomp_url.removeprefix("stomp://").partition("/")
    connection, inbox = connected(int(address.rpartition(":")[2]), vhost=f"/{name}")
    sievemq_faults.drop_on("send")
    connection.send("/queue/a", "x", receipt="r")
    inbox.ends.get(timeout=SOON)
    assert inbox.receipts.empty()
