"""AMQP clients that may not, that say little for long, that say too much, and whose network fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.broker.protocols.amqp import AmqpSocket, message, selector

from sievemq_broker import EmbeddedBroker
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, SASL_HEADER, frame_of
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Begin,
    Close,
    Disposition,
    Flow,
    Open,
    Properties,
    Rejected,
    SaslOutcome,
    Transfer,
)
from sievemq_broker.protocols.amqp.types import Described, ULong, encode
from sievemq_core.limits import HANDSHAKE_FRAME_BYTES
from sievemq_core.wire.commands import Command

from .support import PASSWORD, secured
from .test_hostile_frames import FIELDS, Peer

ANNA = {"user": "anna", "password": PASSWORD}
ADMIN = {"user": "admin", "password": PASSWORD}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with secured() as broker:
        yield broker


# -- rights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("user", "password"), [("anna", "x"), ("no one", PASSWORD), ("anna", "")])
def test_wrong_credentials_end_the_connection(broker: EmbeddedBroker, user: str, password: str) -> None:
    with AmqpSocket(broker.port, connect=False) as client:
        client.connect(user=user, password=password)
        assert client.one(SaslOutcome).code == 1
        client.ended()
        assert not client.all(Open)


def test_no_credentials_close_the_connection(broker: EmbeddedBroker) -> None:
    with AmqpSocket(broker.port, connect=False) as client:
        client.connect()
        assert client.one(Close).error.condition == "amqp:unauthorized-access"
        client.ended()


@pytest.mark.parametrize("address", ["secret", "topic:prices", "stock", None])
def test_a_send_without_the_right_is_refused(broker: EmbeddedBroker, address: str | None) -> None:
    with AmqpSocket(broker.port, **ANNA) as client:
        if address in ("secret", "stock"):
            assert client.sender(address).target is None
            assert client.detached().condition == "amqp:unauthorized-access"
        client.sender(None, handle=3)
        client.send(message(standard=Properties(to=address or "secret")), 0, 3)
        state = client.outcome(0)
        assert isinstance(state, Rejected)
        assert state.error.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize(
    ("address", "source"),
    [("secret", {}), ("stock", {}), ("topic:other", {}), ("secret", {"distribution_mode": "copy"})],
)
def test_a_receiver_without_the_right_is_refused(broker: EmbeddedBroker, address: str, source: dict[str, Any]) -> None:
    with AmqpSocket(broker.port, **ANNA) as client:
        assert client.receiver(address, **source).source is None
        assert client.detached().condition == "amqp:unauthorized-access"


def test_granted_verbs_work(broker: EmbeddedBroker) -> None:
    with AmqpSocket(broker.port, **ANNA) as client:
        client.sender("orders.a")
        client.receiver("orders.a")
        client.send(message("x"), 0)
        assert isinstance(client.outcome(0), Accepted)
        client.settle(Accepted(), client.receive().id)
        client.receiver("topic:prices", handle=2)


def test_a_disposition_settles_nothing_of_another_connection(broker: EmbeddedBroker) -> None:
    with AmqpSocket(broker.port, **ADMIN) as owner, AmqpSocket(broker.port, **ADMIN) as thief:
        owner.sender("orders.mine")
        owner.receiver("orders.mine")
        owner.send(message("x"), 0)
        delivery = owner.receive()
        thief.receiver("orders.mine")
        thief.settle(Accepted(), 0, 2**32 - 1)
        thief.say(Close())
        thief.one(Close)
        assert broker.call(lambda b: b.namespace("default").queue("orders.mine").in_flight) == 1
        owner.settle(Accepted(), delivery.id)


FORGED = {"JMS_SieveMQ_DeadLetterOrigin": "queue:payroll", "JMSXDeliveryCount": 9, "JMSXUserID": "admin", "n": 1}


def test_notes_of_the_broker_cannot_be_forged() -> None:
    """Nor by another client, as sections that an AMQP client gets as they are."""
    sections = message("x", FORGED)
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as client, Peer(broker).enter() as peer:
        client.sender()
        client.send(sections, 0)
        client.outcome(0)
        peer.say((Command.SEND, 1, 1, "queue:q", (*FIELDS, sections, None)))
        peer.ping(2)
        peer.say((Command.SEND, 1, 2, "queue:q", (*FIELDS, message("y", {"n": 2}), None)))
        client.receiver()
        assert [client.receive().properties for _ in range(3)] == [{"n": 1}, {}, {"n": 2}]


# -- little for long, and too much ------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"AMQP", AMQP_HEADER, SASL_HEADER], ids=["word", "header", "sasl"])
def test_a_missing_open_ends_the_connection(said: bytes) -> None:
    with EmbeddedBroker(settings={"handshake_seconds": 0.2}) as broker:
        with AmqpSocket(broker.port, connect=False) as client:
            client.feed(said)
            client.ended()
        assert broker.call(lambda _: len(broker.server.shard.services.connections)) == 0


@pytest.mark.parametrize("header", [AMQP_HEADER, SASL_HEADER])
def test_frames_before_open_are_small(header: bytes) -> None:
    """Else each connection without credentials could have the broker hold a large one."""
    with EmbeddedBroker() as broker, AmqpSocket(broker.port, connect=False) as client:
        client.feed(header + (HANDSHAKE_FRAME_BYTES + 1).to_bytes(4) + b"\2\0\0\0")
        client.ended()
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as client:
        client.sender()
        client.send(message("x" * 500_000), 0)
        assert isinstance(client.outcome(0), Accepted)


def test_half_a_frame_has_a_deadline_however_slowly_it_grows() -> None:
    with EmbeddedBroker(settings={"frame_seconds": 0.3}) as broker, AmqpSocket(broker.port) as client:
        client.feed(b"\0\x0f\0\0\x02\0\0\0")
        client.socket.settimeout(0.02)
        for _ in range(10_000):
            try:
                client.feed(b"x")
                assert "not complete" in client.one(Close).error.description
                break
            except TimeoutError:
                continue
        else:
            raise AssertionError("it may go on for ever")


def _list_of_nulls(count: int) -> bytes:
    out = bytearray()
    encode(Described(ULong(0x10), [None] * count), out)
    return bytes(out)


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x7f\0\0\0\x02\0\0\0", "amqp:connection:framing-error"),
        (b"\0\0\0\x0a\x02\0\0\0\0\0", "amqp:decode-error"),
        (
            frame_of(None)[:-8] + b"\0\x04\0\0\x02\0\0\0" + _list_of_nulls(3_000).ljust(262_136, b"\0"),
            "amqp:decode-error",
        ),
        (frame_of(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), 0, b"\0" * 5_000), "amqp:decode-error"),
    ],
)
def test_oversized_or_malformed_frames_close_the_connection(data: bytes, condition: str) -> None:
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as client:
        client.sender()
        client.feed(data)
        assert client.one(Close).error.condition == condition
        client.ended()


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_names_of_links_are_short(role: str) -> None:
    """Else a connection could have the broker hold thousands of a megabyte, which nothing counts."""
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as client:
        getattr(client, role)(name="x" * 1_001)
        assert client.detached().condition == "amqp:resource-limit-exceeded"
        getattr(client, role)(name="x" * 1_000, handle=7)


def test_unfinished_messages_count_as_memory() -> None:
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as client:
        client.sender()
        for _ in range(5):
            client.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True), b"x" * 1_000_000)
        client.sender("other", handle=3)  # answered behind them
        [link] = broker.call(lambda _: [each.connection.unpublished for each in broker.server.links.open])
        assert link >= 5_000_000


def test_a_client_that_does_not_read_is_sent_no_more_than_fits() -> None:
    """It holds up neither the senders nor the other consumers, and loses nothing."""
    with EmbeddedBroker() as broker, AmqpSocket(broker.port) as slow, AmqpSocket(broker.port) as sender:
        slow.receiver("topic:t", credit=10_000)
        body, count = b"x" * 50_000, 600
        sender.sender("topic:t")
        for number in range(count):
            sender.send(message(body, section=0x75), number)
        sender.outcome(count - 1)
        waiting = broker.call(
            lambda b: max(each.out.unread for each in broker.server.shard.services.connections.values())
        )
        assert waiting < 4_000_000
        with AmqpSocket(broker.port) as other:
            other.sender()
            other.receiver()
            other.send(message("meanwhile"), 0)
            assert other.receive().body == "meanwhile"
        assert [len(slow.receive().body) for _ in range(count)] == [len(body)] * count


def test_a_flood_of_frames_leaves_time_for_others() -> None:
    echo = frame_of(Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True))
    with EmbeddedBroker() as broker, ExitStack() as stack:
        floods = [stack.enter_context(AmqpSocket(broker.port)) for _ in range(3)]
        for flood in floods:
            flood.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                for _ in range(10_000):
                    flood.socket.send(echo * 1_000)
        with AmqpSocket(broker.port) as other:
            other.sender()
            for number in range(20):
                other.send(message(), number)
                assert isinstance(other.outcome(number), Accepted)


@pytest.mark.parametrize("drop", ["send", "settle"])
def test_a_connection_that_is_lost_in_the_middle_loses_nothing(drop: str) -> None:
    with EmbeddedBroker() as broker:
        with AmqpSocket(broker.port) as client:
            client.sender()
            client.receiver(filter=selector("n = 1"))
            client.send(message("a", {"n": 1}), 0)
            client.outcome(0)
            delivery = client.receive()
            if drop == "send":
                client.say(Transfer(handle=0, delivery_id=1, delivery_tag=b"t", more=True), b"half")
            else:
                client.feed(frame_of(Disposition(role=True, first=delivery.id, state=Accepted()))[:-1])
        with AmqpSocket(broker.port) as other:
            other.receiver()
            again = other.receive()
            assert (again.body, again.header.delivery_count) == ("a", 1)
            other.begin(1)
            assert other.one(Begin).remote_channel == 1
