"""What docs/protocols.md promises a STOMP client, over a real socket and with bytes of our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.protocols.stomp import StompSocket

from sievemq import ConnectionFactory, Queue, Topic
from sievemq_broker import EmbeddedBroker

SOON = 60_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[StompSocket]:
    with StompSocket(broker.port, {"client-id": "me"}) as client:
        yield client


def test_any_frame_may_ask_for_a_receipt(client: StompSocket) -> None:
    client.confirmed("SEND", b"1", destination="/queue/a")
    client.confirmed("SEND", b"2", destination="/queue/a")
    client.confirmed("BEGIN", transaction="t")
    client.confirmed("SEND", b"3", destination="/queue/a", transaction="t")
    client.confirmed("COMMIT", transaction="t")
    client.confirmed("BEGIN", transaction="t")
    client.confirmed("ABORT", transaction="t")
    # The receipt of a SUBSCRIBE may come behind its first messages.
    client.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", receipt="s")
    received = [client.frame("MESSAGE") for _ in "123"]
    assert client.frame("RECEIPT").headers["receipt-id"] == "s"
    client.confirmed("ACK", id=received[0].headers["ack"])
    client.confirmed("NACK", id=received[1].headers["ack"], requeue="false")
    client.confirmed("UNSUBSCRIBE", id="1")
    client.confirmed("DISCONNECT")
    client.ended()


def test_a_receipt_of_a_connection_that_only_knows_version_1_0(broker: EmbeddedBroker) -> None:
    with StompSocket(broker.port, {"accept-version": "1.0"}) as client:
        client.confirmed("SUBSCRIBE", destination="/queue/a")
        client.say("SEND", b"x", destination="/queue/a")
        assert client.message(subscription="/queue/a") == "x"
        client.confirmed("UNSUBSCRIBE", destination="/queue/a")


def test_heart_beats_in_both_directions() -> None:
    with EmbeddedBroker(settings={"heartbeat_seconds": 0.2}) as broker:
        with StompSocket(broker.port, {"heart-beat": "0,100"}) as client:
            assert client.connected.headers["heart-beat"] == "200,200"
            client.beat()
            client.beat()
        with StompSocket(broker.port, {"heart-beat": "200,0"}) as silent:
            error = silent.frame("ERROR")
            assert error.headers["message"] == "nothing was heard for 400 ms"
            silent.ended()


def test_client_acknowledgement_is_cumulative(broker: EmbeddedBroker) -> None:
    with StompSocket(broker.port) as sender:
        for body in (b"1", b"2", b"3", b"4"):
            sender.confirmed("SEND", body, destination="/queue/a")
    with StompSocket(broker.port) as first:
        first.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
        received = [first.frame("MESSAGE") for _ in "1234"]
        first.confirmed("ACK", id=received[2].headers["ack"])
    with StompSocket(broker.port) as second:
        second.say("SUBSCRIBE", id="1", destination="/queue/a")
        assert second.message(redelivered="true", JMSXDeliveryCount="2") == "4"


def test_nack_returns_with_a_count_or_makes_a_dead_letter(client: StompSocket, broker: EmbeddedBroker) -> None:
    client.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual")
    client.say("SEND", b"x", destination="/queue/a")
    first = client.frame("MESSAGE")
    assert (first.headers["redelivered"], "JMSXDeliveryCount" in first.headers) == ("false", False)
    client.say("NACK", id=first.headers["ack"])
    second = client.frame("MESSAGE")
    assert (second.headers["redelivered"], second.headers["JMSXDeliveryCount"]) == ("true", "2")
    client.confirmed("NACK", id=second.headers["ack"], requeue="false")
    with ConnectionFactory(broker.url).create_context() as context:
        dead = context.create_consumer(Queue("DLQ.a")).receive(SOON)
        assert dead is not None
        assert dead.get_string_property("JMS_SieveMQ_DeadLetterReason") == "rejected"


@pytest.mark.parametrize(("end", "left"), [("COMMIT", ["in t"]), ("ABORT", ["acked", "nacked"])])
def test_a_transaction_sends_acknowledges_and_returns(broker: EmbeddedBroker, end: str, left: list[str]) -> None:
    with StompSocket(broker.port) as client:
        client.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual")
        client.say("SEND", b"acked", destination="/queue/a")
        client.say("SEND", b"nacked", destination="/queue/a")
        acked, nacked = client.frame("MESSAGE"), client.frame("MESSAGE")
        client.say("BEGIN", transaction="t")
        client.say("SEND", b"in t", destination="/queue/a", transaction="t")
        client.say("ACK", id=acked.headers["ack"], transaction="t")
        client.say("NACK", id=nacked.headers["ack"], transaction="t", requeue="false")
        client.say("UNSUBSCRIBE", id="1")
        client.confirmed(end, transaction="t")
    with StompSocket(broker.port) as other:
        other.say("SUBSCRIBE", id="1", destination="/queue/a")
        assert [other.message() for _ in left] == left
        if end == "COMMIT":
            other.say("SUBSCRIBE", id="2", destination="/queue/DLQ.a")
            assert other.message(subscription="2") == "nacked"


def test_headers_of_jms(client: StompSocket) -> None:
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    client.say(
        "SEND", b"x", destination="/queue/a", persistent="true", priority="7", expires="4000000000000",
        correlation_id="c", type="t", reply_to="/topic/answers", color="red",
    )  # fmt: skip
    headers = client.frame("MESSAGE").headers
    wanted = {
        "persistent": "true", "priority": "7", "expires": "4000000000000", "correlation-id": "c", "type": "t",
        "reply-to": "/topic/answers", "color": "red", "subscription": "1", "destination": "/queue/a",
        "redelivered": "false",
    }  # fmt: skip
    assert {name: headers[name] for name in wanted} == wanted
    assert headers["message-id"].startswith("ID:")


def test_an_expired_message_is_not_delivered(client: StompSocket) -> None:
    client.confirmed("SEND", b"expired", destination="/queue/a", expires="1000")
    client.confirmed("SEND", b"fresh", destination="/queue/a")
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    assert client.message() == "fresh"


def test_a_scheduled_message_is_delivered_after_its_delay(client: StompSocket, broker: EmbeddedBroker) -> None:
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    client.confirmed("SEND", b"later", destination="/queue/a", AMQ_SCHEDULED_DELAY="3600000")
    client.say("SEND", b"now", destination="/queue/a")
    assert client.message() == "now"
    broker.clock.advance(seconds=3600)
    assert client.message() == "later"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_request_is_answered_at_a_temporary_destination(broker: EmbeddedBroker, kind: str) -> None:
    with StompSocket(broker.port) as caller, StompSocket(broker.port) as service:
        service.confirmed("SUBSCRIBE", id="s", destination="/queue/requests")
        caller.confirmed("SUBSCRIBE", id="c", destination=f"/temp-{kind}/mine")
        caller.say("SEND", b"hello", destination="/queue/requests", reply_to=f"/temp-{kind}/mine", correlation_id="7")
        request = service.frame("MESSAGE")
        assert request.headers["reply-to"].startswith(f"/remote-temp-{kind}/")
        service.say("SEND", b"HELLO", destination=request.headers["reply-to"], correlation_id="7")
        answer = caller.frame("MESSAGE")
        assert (answer.body, answer.headers["correlation-id"]) == (b"HELLO", "7")
        assert answer.headers["destination"] == f"/temp-{kind}/mine"


@pytest.mark.parametrize("header", ["activemq.subscriptionName", "durable-subscription-name"])
def test_a_durable_subscription_keeps_messages_meanwhile(broker: EmbeddedBroker, header: str) -> None:
    me = {"client-id": "me"}
    with StompSocket(broker.port, me) as client:
        client.confirmed("SUBSCRIBE", id="1", destination="/topic/t", **{header: "d"})
        client.confirmed("DISCONNECT")
    with StompSocket(broker.port) as other:
        other.confirmed("SEND", b"meanwhile", destination="/topic/t")
    with StompSocket(broker.port, me) as client:
        client.say("SUBSCRIBE", id="1", destination="/topic/t", **{header: "d"})
        assert client.message() == "meanwhile"
        client.confirmed("UNSUBSCRIBE", id="1", **{header: "d"})
        client.confirmed("SEND", b"after it", destination="/topic/t")
        client.say("SUBSCRIBE", id="2", destination="/topic/t", **{header: "d"})
        client.say("SEND", b"new", destination="/topic/t")
        assert client.message() == "new"


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize"])
def test_no_more_than_the_prefetch_is_unsettled(client: StompSocket, header: str) -> None:
    for body in (b"1", b"2", b"3"):
        client.confirmed("SEND", body, destination="/queue/a")
    client.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", receipt="s", **{header: "2"})
    first, second = client.frame("MESSAGE"), client.frame("MESSAGE")
    assert client.frame("RECEIPT").headers["receipt-id"] == "s"
    client.confirmed("BEGIN", transaction="nothing came before this receipt")
    client.say("ACK", id=second.headers["ack"])
    assert client.message() == "3"
    client.confirmed("ACK", id=first.headers["ack"])


def test_a_browser_sees_without_taking(client: StompSocket) -> None:
    for body in (b"1", b"2"):
        client.confirmed("SEND", body, destination="/queue/a", color="red")
    client.confirmed("SEND", b"no", destination="/queue/a", color="blue")
    client.say("SUBSCRIBE", id="b", destination="/queue/a", browser="true", selector="color = 'red'")
    assert [client.message(subscription="b"), client.message(subscription="b")] == ["1", "2"]
    assert client.message(subscription="b", browser="end") == ""
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    assert [client.message(subscription="1") for _ in "123"] == ["1", "2", "no"]


def test_a_group_stays_with_one_consumer(broker: EmbeddedBroker) -> None:
    with StompSocket(broker.port) as client, StompSocket(broker.port) as other:
        client.confirmed("SUBSCRIBE", id="1", destination="/queue/a")
        other.confirmed("SUBSCRIBE", id="1", destination="/queue/a")
        with StompSocket(broker.port) as sender:
            for number in range(6):
                sender.confirmed("SEND", str(number).encode(), destination="/queue/a", JMSXGroupID="g")
            for _ in range(4):
                sender.confirmed("SEND", b"end", destination="/queue/a")
        bodies: list[list[str]] = []
        for each in (client, other):
            bodies.append([])
            while (body := each.message()) != "end":
                bodies[-1].append(body)
        assert sorted(bodies) == [[], list("012345")]


def test_a_selector_of_a_wrong_form_is_an_error_with_the_place(client: StompSocket) -> None:
    client.say("SUBSCRIBE", id="1", destination="/queue/a", selector="amount > > 5", receipt="s")
    error = client.frame("ERROR")
    assert error.headers["receipt-id"] == "s"
    assert error.headers["code"] == "INVALID_SELECTOR"
    lines = error.body.decode().splitlines()
    place = next(number for number, line in enumerate(lines) if line.strip().startswith("^"))
    assert lines[place - 1][lines[place].index("^")] == ">"
    client.ended()


def test_bodies_of_each_kind_to_the_sdk_and_back(client: StompSocket, broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        consumer, producer = context.create_consumer(Queue("in")), context.create_producer()
        client.say("SEND", "päper".encode(), destination="/queue/in")
        client.say("SEND", b"\0\xff", destination="/queue/in", content_length="2")
        client.say("SEND", b'{"n": 1, "s": "x", "b": true}', destination="/queue/in", transformation="jms-map-json")
        bodies: list[Any] = [consumer.receive(SOON) for _ in "123"]
        assert bodies[0].get_text() == "päper"
        assert bodies[1].get_body(bytes) == b"\0\xff"
        assert bodies[2].get_body(dict) == {"n": 1, "s": "x", "b": True}
        client.say("SUBSCRIBE", id="1", destination="/topic/out")
        client.confirmed("BEGIN", transaction="the subscription is there")
        for body in ("päper", b"\0\xff", {"n": 1, "s": "x"}):
            producer.send(Topic("out"), body)
        text, data, table = (client.frame("MESSAGE") for _ in "123")
        assert (text.body, text.headers["content-type"]) == ("päper".encode(), "text/plain")
        assert (data.body, "content-type" in data.headers) == (b"\0\xff", False)
        assert (table.body, table.headers["transformation"]) == (b'{"n": 1, "s": "x"}', "jms-map-json")


def test_a_subscription_does_not_see_its_own_connection(client: StompSocket, broker: EmbeddedBroker) -> None:
    client.confirmed("SUBSCRIBE", id="1", destination="/topic/t", no_local="true")
    client.confirmed("SEND", b"own", destination="/topic/t")
    with StompSocket(broker.port) as other:
        other.confirmed("SEND", b"other", destination="/topic/t")
    assert client.message() == "other"


@pytest.mark.parametrize(
    ("connect", "name"),
    [({"host": "/team"}, "team"), ({"login": "@team", "passcode": ""}, "team"), ({"host": "elsewhere"}, "default")],
)
def test_the_namespace_of_a_connection(broker: EmbeddedBroker, connect: dict[str, str], name: str) -> None:
    with StompSocket(broker.port, connect) as client:
        client.confirmed("SEND", b"x", destination="/queue/a")
        url = broker.namespace(name).url
    with ConnectionFactory(url).create_context() as context:
        assert context.create_consumer(Queue("a")).receive_body(str, SOON) == "x"


def test_late_replies_are_logged_once_for_a_connection(
    client: StompSocket, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), StompSocket(broker.port) as other:
        for service in (client, client, other):
            service.confirmed("SEND", b"late", destination="/remote-temp-queue/gone.1")
    assert sum("reply.dropped" in record.getMessage() for record in caplog.records) == 2
