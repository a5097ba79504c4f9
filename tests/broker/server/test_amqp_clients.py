"""AMQP clients over real sockets, beside SieveMQ's own client and STOMP's."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from tests.broker.protocols.amqp import AmqpSocket, message, selector
from tests.broker.protocols.stomp import StompSocket

from sievemq import ConnectionFactory, Queue, Topic
from sievemq_broker import EmbeddedBroker
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Header,
    Modified,
    Properties,
    Rejected,
)
from sievemq_broker.protocols.amqp.types import Symbol, ULong
from sievemq_core.message.values import Byte
from sievemq_testing import Faults, TestNamespace

SOON = 20_000


def test_messages_cross_to_the_sdk_and_back() -> None:
    with (
        EmbeddedBroker() as broker,
        AmqpSocket(broker.port) as client,
        ConnectionFactory(broker.url).create_context() as context,
    ):
        consumer = context.create_consumer(Queue("in"), "region = 'EU' AND n > 4")
        client.sender("in")
        standard = Properties(message_id="ID:7", subject="order", reply_to="topic:answers", correlation_id="c")
        client.send(message("hello", {"region": "EU", "n": 5}, header=Header(durable=True), standard=standard), 0)
        assert isinstance(client.outcome(0), Accepted)
        got = consumer.receive(SOON)
        assert got is not None
        assert (got.get_body(str), got.get_jms_message_id(), got.get_jms_type()) == ("hello", "ID:7", "order")
        assert (got.get_jms_reply_to(), got.get_jms_correlation_id()) == (Topic("answers"), "c")
        client.receiver("out", handle=2)
        producer = context.create_producer().set_property("n", 5).set_jms_reply_to(Queue("r"))
        for body in ("text", b"\x00\xff", {"n": 1, "s": "x"}):
            producer.send(Queue("out"), body)
        deliveries = [client.receive() for _ in range(3)]
        assert [each.body for each in deliveries] == ["text", b"\x00\xff", {"n": 1, "s": "x"}]
        assert [each.annotations[Symbol("x-opt-jms-msg-type")] for each in deliveries] == [Byte(5), Byte(3), Byte(2)]
        assert deliveries[0].properties == {"n": 5}
        assert (deliveries[0].standard.to, deliveries[0].standard.reply_to) == ("queue:out", "queue:r")


def test_messages_cross_to_stomp_and_back() -> None:
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as client, StompSocket(broker.port) as other:
        other.confirmed("SUBSCRIBE", id="1", destination="/queue/in", selector="n = 5")
        client.sender("in")
        client.send(message("hello", {"n": 5}, standard=Properties(subject="order")), 0)
        assert other.message(type="order", n="5") == "hello"
        client.receiver("out", handle=2, filter=selector("color = 'red'"))
        other.say("SEND", b"back", destination="/queue/out", color="red")
        delivery = client.receive()
        assert (delivery.body, delivery.properties) == ("back", {"color": "red"})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b"\x01\xab", "ID:AMQP_BINARY:01AB"), (b"plain", "ID:AMQP_BINARY:706C61696E"), (ULong(7), "ID:AMQP_ULONG:7"),
        (UUID(int=5), f"ID:AMQP_UUID:{UUID(int=5)}"), ("text", "text"),
    ],
)  # fmt: skip
def test_a_correlation_id_survives_services_of_all_clients(given: Any, text: str) -> None:
    with (
        EmbeddedBroker() as broker,
        AmqpSocket(broker.port) as client,
        ConnectionFactory(broker.url).create_context() as context,
        StompSocket(broker.port) as other,
    ):
        client.sender("requests")
        client.receiver("answers", handle=2, filter=selector(f"JMSCorrelationID = '{text}'"))
        standard = Properties(correlation_id=given)
        client.send(message("?", standard=standard), 0)
        with context.create_consumer(Queue("requests"), f"JMSCorrelationID = '{text}'") as consumer:
            request = consumer.receive(SOON)
            assert request is not None
        assert request.get_jms_correlation_id() == text
        if isinstance(given, bytes):
            assert request.get_jms_correlation_id_as_bytes() == given
        producer = context.create_producer().set_jms_correlation_id(request.get_jms_correlation_id())
        producer.send(Queue("answers"), "sdk")
        other.confirmed("SUBSCRIBE", id="1", destination="/queue/requests")
        client.send(message("?", standard=standard), 1)
        asked = other.frame("MESSAGE")
        assert asked.headers["correlation-id"] == text
        echo = asked.headers["correlation-id"]
        other.say("SEND", b"stomp", destination="/queue/answers", **{"correlation-id": echo})
        answers = [client.receive() for _ in range(2)]
        assert [(each.body, each.standard.correlation_id) for each in answers] == [("sdk", given), ("stomp", given)]


def test_a_correlation_id_set_as_bytes_survives_a_stomp_service() -> None:
    with (
        EmbeddedBroker() as broker,
        ConnectionFactory(broker.url).create_context() as context,
        StompSocket(broker.port) as other,
    ):
        other.confirmed("SUBSCRIBE", id="1", destination="/queue/requests")
        context.create_producer().set_jms_correlation_id_as_bytes(b"\x01\xab").send(Queue("requests"), "?")
        echo = other.frame("MESSAGE").headers["correlation-id"]
        other.say("SEND", b"!", destination="/queue/answers", **{"correlation-id": echo})
        answer = context.create_consumer(Queue("answers")).receive(SOON)
        assert answer is not None
        assert answer.get_jms_correlation_id_as_bytes() == b"\x01\xab"


def test_a_message_between_amqp_clients_is_not_touched(tmp_path: Path) -> None:
    payload = message(
        {"deep": [1, {"x": b"y"}]}, {"bytes": b"z", "JMSXOwn": 1},
        standard=Properties(user_id=b"u", content_encoding="gzip"), annotations={"x-opt-mine": 1},
    )  # fmt: skip
    with EmbeddedBroker(data_dir=tmp_path) as broker, AmqpSocket(broker.port) as client:
        client.sender()
        client.send(b"\0\x53\x70\xc0\x02\x01\x41" + payload, 0)  # durable
        assert isinstance(client.outcome(0), Accepted)  # it is on disk
    with EmbeddedBroker(data_dir=tmp_path) as broker, AmqpSocket(broker.port) as client:
        client.receiver()
        assert client.receive().payload.endswith(payload)


def test_many_messages_in_order() -> None:
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as sender, AmqpSocket(broker.port) as receiver:
        sender.sender()
        receiver.receiver(credit=100)
        for number in range(2_000):
            sender.send(message(str(number)), number)
        for number in range(2_000):
            delivery = receiver.receive()
            assert delivery.body == str(number)
            receiver.settle(Accepted(), delivery.id)
            if number % 50 == 49:
                receiver.grant(100, count=number + 1, next_in=number + 1)
        assert isinstance(sender.outcome(1_999), Accepted)


def test_a_sender_waits_where_a_queue_is_full_and_loses_nothing() -> None:
    rules = {"destinations": {"queue:q": {"max_messages": 10, "at_limit": "block"}}}
    with (
        EmbeddedBroker(settings=rules) as broker,
        AmqpSocket(broker.port) as client,
        ConnectionFactory(broker.url).create_context() as context,
    ):
        client.sender()
        for number in range(300):
            client.send(message(str(number)), number)
        consumer = context.create_consumer(Queue("q"))
        assert [consumer.receive_body(str, timeout=SOON) for _ in range(300)] == [str(n) for n in range(300)]
        assert isinstance(client.outcome(299), Accepted)


def test_a_message_that_failed_too_often_is_a_dead_letter_with_the_reason() -> None:
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as client:
        client.sender()
        client.send(message("bad"), 0)
        client.receiver(credit=100)
        attempts = 0
        client.receiver("DLQ.q", handle=2)
        while True:
            delivery = client.receive()
            if delivery.handle == 2:
                break
            assert delivery.header.delivery_count == attempts
            attempts += 1
            client.settle(Modified(delivery_failed=True), delivery.id)
        assert attempts > 1
        assert delivery.body == "bad"
        assert delivery.properties["JMS_SieveMQ_DeadLetterOrigin"] == "queue:q"
        client.settle(Rejected(), delivery.id)


def test_a_port_of_its_own_and_turned_off() -> None:
    with EmbeddedBroker(amqp_port=0) as broker:
        own = urlsplit(broker.amqp_url).port
        assert own is not None
        assert own != broker.port
        for port in (own, broker.port):
            AmqpSocket(port).socket.close()
    with EmbeddedBroker(settings={"protocols": "sieve,stomp"}) as broker:
        with pytest.raises(RuntimeError, match="amqp_port"):
            broker.amqp_url  # noqa: B018
        with socket.create_connection(("127.0.0.1", broker.port)) as sock:
            sock.settimeout(20)
            sock.sendall(AMQP_HEADER)
            assert AMQP_HEADER not in b"".join(iter(lambda: sock.recv(4096), b""))


def test_over_tls(certificates: Path) -> None:
    files = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    with EmbeddedBroker(settings=files) as broker:
        assert broker.amqp_url.startswith("amqps://")
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        raw = socket.create_connection(("127.0.0.1", broker.port))
        with context.wrap_socket(raw, server_hostname="localhost") as sock:
            sock.sendall(AMQP_HEADER)
            assert sock.recv(8) == AMQP_HEADER


def test_the_api_shows_the_protocol_and_the_client() -> None:
    with EmbeddedBroker(http=True) as broker, AmqpSocket(broker.port, properties={Symbol("product"): "Mine"}):
        with urllib.request.urlopen(f"{broker.http_url}/api/v1/connections") as answer:
            [row] = json.loads(answer.read())["connections"]
        assert (row["protocol"], row["agent"]) == ("amqp", "AMQP 1.0 Mine")


def test_the_fixture_leads_to_the_namespace_of_the_test(
    sievemq_amqp_url: str, sievemq_namespace: TestNamespace
) -> None:
    parts = urlsplit(sievemq_amqp_url)
    [host] = parse_qs(parts.query)["amqp.vhost"]
    assert parts.port is not None
    with AmqpSocket(parts.port, host=host) as client:
        client.receiver("topic:t", filter=selector("amount > 100"))
        client.sender("topic:t")
        client.send(message("x", {"amount": "120"}), 0)
        assert isinstance(client.outcome(0), Accepted)
    assert "amount is '120', a string, unlike types" in sievemq_namespace.excerpt()


def test_a_fault_meets_an_amqp_client(sievemq_namespace: TestNamespace, sievemq_faults: Faults) -> None:
    with AmqpSocket(sievemq_namespace.broker.port, host=f"/{sievemq_namespace.name}") as client:
        client.sender()
        sievemq_faults.drop_on("send")
        client.send(message(), 0)
        client.ended()
    assert sievemq_namespace.queue("q").depth == 0
