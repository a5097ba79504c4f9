"""STOMP clients that may not, that say little for long, that say too much, and whose network fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.broker.protocols.stomp import StompSocket, frame

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_testing import Faults, TestNamespace

from .support import PASSWORD, secured

ANNA = {"login": "anna", "passcode": PASSWORD, "client-id": "anna"}
ADMIN = {"login": "admin", "passcode": PASSWORD}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with secured() as broker:
        yield broker


# -- rights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connect", [{}, {"login": "anna"}, {"login": "anna", "passcode": "x"}, {"login": "no one"}])
def test_wrong_credentials_are_an_error_and_the_end(broker: EmbeddedBroker, connect: dict[str, str]) -> None:
    with StompSocket(broker.port, None) as client:
        client.socket.sendall(frame("CONNECT", accept_version="1.2", host="x", **connect))
        error = client.frame("ERROR")
        assert error.headers["code"] == "AUTHENTICATION"
        assert b"rosebud" not in error.body
        client.ended()


@pytest.mark.parametrize(
    ("command", "headers"),
    [
        ("SEND", {"destination": "/queue/secret"}),
        ("SEND", {"destination": "/topic/prices"}),
        ("SEND", {"destination": "/queue/stock"}),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/secret"}),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/stock"}),
        ("SUBSCRIBE", {"id": "1", "destination": "/topic/other"}),
        ("SUBSCRIBE", {"id": "1", "destination": "/topic/other", "durable-subscription-name": "d"}),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/secret", "browser": "true"}),
    ],
)
def test_a_verb_without_the_right_is_an_error(broker: EmbeddedBroker, command: str, headers: dict[str, str]) -> None:
    with StompSocket(broker.port, ANNA) as client:
        client.say(command, receipt="r", **headers)
        error = client.frame("ERROR")
        assert (error.headers["code"], error.headers["receipt-id"]) == ("SECURITY", "r")
        client.ended()


def test_a_transaction_with_a_send_that_is_not_granted_sends_nothing(broker: EmbeddedBroker) -> None:
    with StompSocket(broker.port, ANNA) as client:
        client.say("BEGIN", transaction="t")
        client.say("SEND", b"x", destination="/queue/orders.tx", transaction="t")
        client.say("SEND", b"x", destination="/queue/secret", transaction="t")
        client.say("COMMIT", transaction="t", receipt="c")
        assert client.frame("ERROR").headers["code"] == "SECURITY"
        client.ended()
    with StompSocket(broker.port, ADMIN) as admin:
        admin.say("SUBSCRIBE", id="1", destination="/queue/orders.tx", browser="true")
        assert admin.message(browser="end") == ""


def test_granted_verbs_work(broker: EmbeddedBroker) -> None:
    with StompSocket(broker.port, ANNA) as client:
        client.confirmed("SUBSCRIBE", id="1", destination="/queue/orders.a", ack="client")
        client.confirmed("SUBSCRIBE", id="2", destination="/topic/prices")
        client.say("SEND", b"x", destination="/queue/orders.a")
        client.confirmed("ACK", id=client.frame("MESSAGE").headers["ack"])


def test_an_ack_names_no_message_of_another_connection(broker: EmbeddedBroker) -> None:
    with StompSocket(broker.port, ADMIN) as owner, StompSocket(broker.port, ANNA) as thief:
        owner.say("SUBSCRIBE", id="1", destination="/queue/orders.mine", ack="client-individual")
        owner.say("SEND", b"x", destination="/queue/orders.mine")
        message = owner.frame("MESSAGE")
        thief.confirmed("SUBSCRIBE", id="1", destination="/queue/orders.mine", ack="client-individual")
        thief.say("ACK", id=message.headers["ack"])
        assert thief.frame("ERROR").headers["code"] == "NOT_FOUND"
        owner.confirmed("ACK", id=message.headers["ack"])


def test_a_temporary_queue_of_another_is_for_its_owner(broker: EmbeddedBroker) -> None:
    with StompSocket(broker.port, ADMIN) as owner, StompSocket(broker.port, ADMIN) as other:
        owner.confirmed("SUBSCRIBE", id="1", destination="/temp-queue/mine")
        owner.say("SUBSCRIBE", id="2", destination="/queue/orders.look")
        owner.say("SEND", b"x", destination="/queue/orders.look", reply_to="/temp-queue/mine")
        address = owner.frame("MESSAGE").headers["reply-to"]
        other.say("SUBSCRIBE", id="1", destination=address)
        assert other.frame("ERROR").headers["message"]
        other.ended()


def test_notes_of_the_broker_cannot_be_forged(broker: EmbeddedBroker) -> None:
    with StompSocket(broker.port, ADMIN) as client:
        client.say("SUBSCRIBE", id="1", destination="/queue/orders.forged")
        client.say(
            "SEND", b"x", destination="/queue/orders.forged", JMSXDeliveryCount="9", color="red",
            **{"JMS_SieveMQ_DeadLetterReason": "rejected", "message-id": "ID:mine", "redelivered": "true"},
        )  # fmt: skip
        headers = client.frame("MESSAGE").headers
    assert (headers["color"], headers["redelivered"]) == ("red", "false")
    assert headers["message-id"] != "ID:mine"
    assert not {"JMSXDeliveryCount", "JMS_SieveMQ_DeadLetterReason"} & headers.keys()


# -- little for long, and too much ------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"CONN", b"CONNECT\naccept-version:1.2\nhost:x\n"], ids=["word", "headers"])
def test_an_incomplete_connect_ends_the_connection(said: bytes) -> None:
    with EmbeddedBroker(settings={"handshake_seconds": 0.2}, stomp_port=0) as broker:
        with StompSocket(broker.server.port_of("stomp"), None) as client:
            client.socket.sendall(said)
            assert client.frame("ERROR").headers["message"] == "no CONNECT within 200 ms"
            client.ended()
        assert broker.call(lambda _: len(broker.server.shard.services.connections)) == 0


@pytest.mark.parametrize(
    "said",
    [
        b"CONNECT\nhost:x\ncontent-length:60000000\n\n",
        b"CONNECT\nhost:x\n\n" + b"x" * 100_000,
        b"SEND\ndestination:/queue/a\ncontent-length:60000000\n\n",
        b"CONNECT\nhost:" + b"x" * 100_000,
        b"CONNECT\nhost:" + b"x" * 100_000 + b"\n\n\0",
    ],
    ids=["length", "body", "send", "endless header", "large header"],
)
def test_frames_before_the_handshake_are_small(said: bytes) -> None:
    """Else each connection without credentials could have the broker hold the largest body there may be."""
    with EmbeddedBroker(stomp_port=0) as broker, StompSocket(broker.server.port_of("stomp"), None) as client:
        client.socket.sendall(said)
        assert "bytes" in client.frame("ERROR").headers["message"]
        client.ended()


def test_half_a_frame_has_a_deadline_however_slowly_it_grows() -> None:
    with EmbeddedBroker(settings={"frame_seconds": 0.3}) as broker, StompSocket(broker.port) as client:
        client.socket.sendall(b"SEND\ndestination:/queue/a\ncontent-length:100000\n\n")
        client.socket.settimeout(0.02)
        for _ in range(10_000):
            try:
                client.socket.sendall(b"x")
                client.frame("ERROR")
                break
            except TimeoutError:
                continue
        else:
            raise AssertionError("it may go on for ever")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"SEND\ncontent-length:99999999999\n\n", "max_body_bytes"),
        (b"SEND\ndestination:/queue/a\n\n" + b"x" * 20_000, "max_body_bytes"),
        (b"SEND\n" + b"a:b\n" * 2_000 + b"\n\0", "headers"),
        (b"SEND\na:" + b"x" * 600_000, "bytes in all"),
        (b"HELP\n\n\0", "no command"),
        (b"SEND\ndestination\n\n\0", "colon"),
        (b"SEND\na:\xff\n\n\0", "UTF-8"),
    ],
)  # fmt: skip
def test_oversized_or_malformed_frames_are_refused(data: bytes, text: str) -> None:
    with EmbeddedBroker(settings={"max_body_bytes": 10_000}) as broker, StompSocket(broker.port) as client:
        client.socket.sendall(data)
        assert text in client.frame("ERROR").headers["message"]
        client.ended()


@pytest.mark.parametrize(
    ("command", "header"),
    [("SUBSCRIBE", "id"), ("SUBSCRIBE", "destination"), ("BEGIN", "transaction"), ("SEND", "receipt")],
)
def test_names_that_the_broker_remembers_are_short(command: str, header: str) -> None:
    """Else a connection could have it hold thousands of 500 KB, which nothing counts."""
    given = {"id": "1", "destination": "/queue/q", "transaction": "t"}
    if command == "SEND":
        del given["transaction"]
    with EmbeddedBroker() as broker, StompSocket(broker.port) as client:
        client.say(command, **{**given, header: "x" * 1_001})
        assert f"the header {header} has at most 1000 characters" in client.frame("ERROR").headers["message"]
        client.ended()


def test_unfinished_frames_count_as_memory() -> None:
    with EmbeddedBroker() as broker, StompSocket(broker.port) as client:
        client.socket.sendall(b"SEND\ndestination:/queue/a\ncontent-length:9000000\n\n" + b"x" * 5_000_000)
        give_up = time.monotonic() + 60
        while broker.call(lambda _: broker.server.memory.measure()) < 5_000_000:
            assert time.monotonic() < give_up


def test_a_client_that_does_not_read_is_sent_no_more_than_fits() -> None:
    """It holds up neither the senders nor the other consumers, and loses nothing."""
    with EmbeddedBroker() as broker, StompSocket(broker.port) as slow, StompSocket(broker.port) as sender:
        slow.confirmed("SUBSCRIBE", id="1", destination="/topic/t", **{"prefetch-count": "100000"})
        body, count = b"x" * 50_000, 600
        for _ in range(count):
            sender.say("SEND", body, destination="/topic/t")
        sender.confirmed("SEND", b"last", destination="/topic/t")
        waiting = broker.call(
            lambda b: max(each.out.unread for each in broker.server.shard.services.connections.values())
        )
        assert waiting < 4_000_000
        with StompSocket(broker.port) as other:
            other.confirmed("SUBSCRIBE", id="1", destination="/queue/q")
            other.say("SEND", b"meanwhile", destination="/queue/q")
            assert other.message() == "meanwhile"
        assert [len(slow.frame("MESSAGE").body) for _ in range(count)] == [len(body)] * count
        assert slow.message() == "last"


def test_a_flood_of_frames_leaves_time_for_others() -> None:
    with EmbeddedBroker() as broker, ExitStack() as stack:
        floods = [stack.enter_context(StompSocket(broker.port)) for _ in range(3)]
        data = frame("BEGIN", transaction="t") + frame("ABORT", transaction="t")
        for flood in floods:
            flood.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                for _ in range(10_000):
                    flood.socket.send(data * 1_000)
        with StompSocket(broker.port) as other:
            for _ in range(20):
                other.confirmed("SEND", b"x", destination="/queue/a")


# -- faults of the test kit -------------------------------------------------------------------------------------------


@pytest.fixture
def client(sievemq_stomp_url: str) -> Iterator[StompSocket]:
    with connected(sievemq_stomp_url) as client:
        yield client


def connected(url: str) -> StompSocket:
    address, _, name = url.removeprefix("stomp://").partition("/")
    return StompSocket(int(address.rpartition(":")[2]), {"host": f"/{name}"})


def test_a_refused_send_is_an_error(client: StompSocket, sievemq_faults: Faults) -> None:
    sievemq_faults.refuse("send")
    client.say("SEND", b"x", destination="/queue/a", receipt="r")
    assert client.frame("ERROR").headers["receipt-id"] == "r"
    client.ended()


def test_a_connection_that_fails_before_its_commit_has_done_nothing(
    client: StompSocket, sievemq_stomp_url: str, sievemq_faults: Faults
) -> None:
    client.say("SEND", b"before", destination="/queue/a")
    client.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
    message = client.frame("MESSAGE")
    sievemq_faults.drop_on("commit")
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=message.headers["ack"], transaction="t")
    client.say("SEND", b"in t", destination="/queue/b", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    client.ended()
    with connected(sievemq_stomp_url) as again:
        again.say("SUBSCRIBE", id="1", destination="/queue/a")
        assert again.message(redelivered="true") == "before"
        again.say("SUBSCRIBE", id="2", destination="/queue/b", browser="true")
        assert again.message(browser="end") == ""


def test_a_connection_that_fails_after_its_commit_has_committed(
    client: StompSocket, sievemq_stomp_url: str, sievemq_faults: Faults
) -> None:
    sievemq_faults.drop_on("commit", after=True)
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"in t", destination="/queue/b", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    client.ended()
    with connected(sievemq_stomp_url) as again:
        again.say("SUBSCRIBE", id="1", destination="/queue/b")
        assert again.message() == "in t"


def test_a_frame_cut_in_half(client: StompSocket, sievemq_stomp_url: str, sievemq_faults: Faults) -> None:
    client.confirmed("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
    assert sievemq_faults.cut_frame() == 1
    with connected(sievemq_stomp_url) as sender:
        sender.confirmed("SEND", b"x" * 1_000, destination="/queue/a")
        with pytest.raises(AssertionError):  # not all of it comes
            client.frame("MESSAGE")
        sender.say("SUBSCRIBE", id="1", destination="/queue/a")
        assert len(sender.message(redelivered="true")) == 1_000


def test_a_network_that_stalls_and_resumes(client: StompSocket, sievemq_faults: Faults) -> None:
    with sievemq_faults.pause_connections():
        client.say("SEND", b"x", destination="/queue/a", receipt="r")
    assert client.frame("RECEIPT").headers["receipt-id"] == "r"


def test_held_commands_are_carried_out_when_released(client: StompSocket, sievemq_faults: Faults) -> None:
    with sievemq_faults.hold() as held:
        client.say("SEND", b"1", destination="/queue/a")
        client.say("SEND", b"2", destination="/queue/a")
        client.say("BEGIN", transaction="t")
        while len(held.commands) < 3:
            pass
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    assert [client.message(), client.message()] == ["1", "2"]


def test_a_slow_consumer_receives_as_many_as_allowed(
    client: StompSocket, sievemq_stomp_url: str, sievemq_faults: Faults
) -> None:
    client.confirmed("SUBSCRIBE", id="1", destination="/topic/t")
    with sievemq_faults.slow_consumers() as slow:
        with connected(sievemq_stomp_url) as sender:
            for body in (b"1", b"2"):
                sender.confirmed("SEND", body, destination="/topic/t")
        slow.let(1)
        assert client.message() == "1"
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.message()
        client.socket.settimeout(60)
    assert client.message() == "2"


def test_a_full_queue_refuses_or_blocks_as_its_rule_says(
    client: StompSocket, sievemq_faults: Faults, sievemq_namespace: TestNamespace
) -> None:
    client.confirmed("SEND", b"x", destination="/queue/a")
    sievemq_faults.fill("queue:a")
    client.say("SEND", b"y", destination="/queue/a", receipt="r")
    assert client.frame("ERROR").headers["code"] == "RESOURCE_ALLOCATION"
    with ConnectionFactory(sievemq_namespace.url).create_context() as context:
        assert context.create_consumer(Queue("a")).receive_body(str, 60_000) == "x"
