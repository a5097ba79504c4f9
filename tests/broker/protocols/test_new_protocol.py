"""A protocol that is new to the broker needs two classes and a row in the table of protocols.

This one is the smallest part of MQTT 3.1.1 that sends and receives with QoS 1.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any, Final

import pytest

from sievemq import ConnectionFactory
from sievemq_broker.protocols import PROTOCOLS, Spoken
from sievemq_broker.protocols.base import no_wake
from sievemq_broker.protocols.foreign import Converted, ForeignConnection, ForeignOutbox, Line, unexpected
from sievemq_broker.session import verbs
from sievemq_broker.session.life import CLOSING
from sievemq_broker.session.session import SessionMode
from sievemq_broker.session.table import TABLE
from sievemq_core.errors import ErrorCode, SieveError
from sievemq_core.message.envelope import BODY, BodyKind, Envelope
from sievemq_core.message.headers import PERSISTENT
from sievemq_testing import TestBroker

SOON: Final = 20
SESSION: Final = 1

#: The numbers of packets, in their first four bits.
CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP = 1, 2, 3, 4, 8, 9, 12, 13


def packet(number: int, body: bytes, flags: int = 0) -> bytes:
    length, rest = b"", len(body)
    while True:
        rest, low = divmod(rest, 128)
        length += bytes([low | (128 if rest else 0)])
        if not rest:
            return bytes([number << 4 | flags]) + length + body


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def cut_text(data: bytes) -> tuple[str, bytes]:
    end = 2 + int.from_bytes(data[:2], "big")
    return data[2:end].decode(), data[end:]


def cut_packet(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Number and body of the first packet, and what follows it."""
    size = at = 0
    while True:
        at += 1
        if at >= len(data):
            return None
        size |= (data[at] & 127) << 7 * (at - 1)
        if data[at] < 128:
            break
    end = at + 1 + size
    return None if end > len(data) else (data[0] >> 4, data[at + 1 : end], data[end:])


class PacketParser:
    def __init__(self) -> None:
        self._data = b""
        self.number = 0

    @property
    def pending(self) -> int:
        return len(self._data)

    def receive(self, data: bytes) -> None:
        self._data += data

    def next(self) -> tuple[int, bytes] | None:
        found = cut_packet(self._data)
        if found is None:
            return None
        number, body, self._data = found
        self.number += 1
        return number, body

    def drop(self) -> None:
        self._data = b""


class MqttOutbox(ForeignOutbox):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: Filters of subscriptions, by consumer.
        self.filters: dict[int, str] = {}
        #: Consumer and tag of deliveries, by packet id.
        self.unsettled: dict[int, tuple[int, int]] = {}
        #: Packet ids of sends that are not confirmed.
        self.sent: dict[int, bytes] = {}

    @property
    def protocol(self) -> str:
        return "mqtt"

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        fields = Envelope.from_packed(packed).fields
        self.count_conversion(packed, fields)
        number = next(each for each in range(1, 65_536) if each not in self.unsettled)
        self.unsettled[number] = consumer_id, tag
        body = text(self.filters[consumer_id]) + number.to_bytes(2, "big") + (fields[BODY] or b"")
        self.write_message(packet(PUBLISH, body, flags=2 | (8 if count > 1 else 0)))

    def confirm(self, session: int, sequence: int) -> None:
        for each in [each for each in self.sent if each <= sequence]:
            self.write(packet(PUBACK, self.sent.pop(each)))

    def refuse_send(self, session: int, sequence: int, error: SieveError) -> None:
        self.end(error)

    def consumer_gone(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        self.end(SieveError(text, code))

    def fail(self, error: SieveError) -> None:
        if self.is_new:
            self.write(packet(CONNACK, b"\0\5"))


class MqttConnection(ForeignConnection[PacketParser, MqttOutbox]):
    def __init__(  # type: ignore[no-untyped-def]
        self, broker, services, table=TABLE, *, address="", wake=no_wake, watcher=None, make_outbox=MqttOutbox
    ) -> None:
        parser = PacketParser()
        outbox = make_outbox(services.settings, wake, services.converted.setdefault("mqtt", Converted()))
        line = Line(parser, outbox, "CONNECT", b"")
        super().__init__(broker, services, table, address, watcher, parser, outbox, line)
        self._sends = 0

    def _carry_out(self, frame: tuple[int, bytes], now: int) -> None:
        number, body = frame
        if (number == CONNECT) != self.outbox.is_new:
            raise unexpected("CONNECT is the first packet, and comes once")
        if number == CONNECT:
            self._connect(body, now)
        elif number == PUBLISH:
            self._publish(body, now)
        elif number == PUBACK:
            consumer, tag = self.outbox.unsettled.pop(int.from_bytes(body, "big"))
            self._do(now, verbs.acknowledge(consumer=consumer, tag=tag, credit=1))
        elif number == SUBSCRIBE:
            self._subscribe(body, now)
        elif number == PINGREQ:
            self.outbox.write(packet(PINGRESP, b""))

    def _connect(self, body: bytes, now: int) -> None:
        client_id, rest = cut_text(body[10:])
        user = cut_text(rest)[0] if rest else None

        def welcomed(real: int) -> None:
            self._line.agree(int.from_bytes(body[8:10], "big") * 750, 0)  # silence of two intervals ends it
            self._heartbeat.welcomed(real)
            self.outbox.write(packet(CONNACK, b"\0\0"))
            self.peer.open_session(SESSION, SessionMode.CLIENT_ACKNOWLEDGE, 0)

        self.outbox.expect(0, welcomed)
        hello = verbs.Hello(namespace=user or "", user=None, password=None, client_id=client_id or None, agent="MQTT")
        self._do(now, hello)

    def _publish(self, body: bytes, now: int) -> None:
        topic, rest = cut_text(body)
        self._sends += 1
        self.outbox.sent[self._sends] = rest[:2]
        fields = (f"ID:{self.peer.member.id}:m{self._sends}", now, 4, PERSISTENT, 0, 0, *[None] * 5)
        envelope = (*fields, int(BodyKind.BYTES), rest[2:])
        self._do(
            now, verbs.send(session=SESSION, sequence=self._sends, destination=f"topic:{topic}", envelope=envelope)
        )
        self.peer.flush_confirms()

    def _subscribe(self, body: bytes, now: int) -> None:
        name, _ = cut_text(body[2:])
        consumer = self._new_id()
        self.outbox.filters[consumer] = name
        durable = self.peer.member.client_id is not None
        request = verbs.OpenConsumer(
            request=self._new_id(), session=SESSION, consumer=consumer, destination=f"topic:{name}", selector=None,
            dialect=None, no_local=False, subscription=name if durable else None, durable=durable, shared=False,
            credit=10,
        )  # fmt: skip
        self._ask(now, lambda _: self.outbox.write(packet(SUBACK, body[:2] + b"\1")), request)

    def _fail(self, error: SieveError, frame: object, now: int) -> None:
        if self.peer.life.state < CLOSING:
            self.peer.fail(error, now)

    @property
    def _has_duties(self) -> bool:
        return False

    def _do_duties(self, now: int) -> None:
        """MQTT has a packet for each."""

    def _give_back(self, consumer: int, now: int) -> None:
        self._do(now, verbs.Release(consumer=consumer, tags=()))


class Client:
    """One MQTT client of the shared port."""

    def __init__(self, broker: TestBroker, namespace: str, client_id: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port))
        self._socket.settimeout(SOON)
        self._data = b""
        self.say(CONNECT, text("MQTT") + b"\4\x80\0\x3c" + text(client_id) + text(namespace))
        assert self.next() == (CONNACK, b"\0\0")

    def say(self, number: int, body: bytes, flags: int = 0) -> None:
        self._socket.sendall(packet(number, body, flags))

    def next(self) -> tuple[int, bytes] | None:
        while (found := cut_packet(self._data)) is None:
            data = self._socket.recv(4096)
            if not data:
                return None
            self._data += data
        number, body, self._data = found
        return number, body

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestBroker]:
    beginning = re.compile(rb"\x10([\x00-\x7f]\x00\x04|[\x80-\xff][\x01-\x7f]\x00)")
    spoken = Spoken("mqtt", lambda: (MqttConnection, MqttOutbox), beginning)
    monkeypatch.setitem(PROTOCOLS, "mqtt", spoken)
    with TestBroker(settings={"protocols": ",".join(PROTOCOLS)}) as broker:
        yield broker


@pytest.mark.parametrize("client_id", ["plant", "plant" * 40], ids=["a length of one byte", "of two"])
def test_a_new_protocol_shares_the_port_and_its_topics(broker: TestBroker, client_id: str) -> None:
    namespace = broker.namespace("plant")
    with ConnectionFactory(namespace.url).create_context() as context:
        consumer = context.create_consumer(context.create_topic("heat"))
        client = Client(broker, "plant", client_id)
        client.say(SUBSCRIBE, b"\0\1" + text("heat") + b"\1")
        assert client.next() == (SUBACK, b"\0\1\1")
        client.say(PUBLISH, text("heat") + b"\0\7" + b"21 C", flags=2)
        packets = [client.next(), client.next()]
        assert (PUBACK, b"\0\7") in packets
        assert (PUBLISH, text("heat") + b"\0\1" + b"21 C") in packets
        received = consumer.receive(60_000)
        assert received is not None
        assert received.get_body(bytes) == b"21 C"
        assert [connection.protocol for connection in namespace.connections] == ["sieve", "mqtt"]
        client.close()


def test_a_durable_subscription_keeps_what_a_lost_client_has_not_acknowledged(broker: TestBroker) -> None:
    namespace = broker.namespace("plant")
    with ConnectionFactory(namespace.url).create_context() as context:
        client = Client(broker, "plant", "gauge")
        client.say(SUBSCRIBE, b"\0\1" + text("heat") + b"\1")
        assert client.next() == (SUBACK, b"\0\1\1")
        context.create_producer().send(context.create_topic("heat"), b"21 C")
        context.create_producer().send(context.create_topic("heat"), b"22 C")
        assert client.next() == (PUBLISH, text("heat") + b"\0\1" + b"21 C")
        assert client.next() == (PUBLISH, text("heat") + b"\0\2" + b"22 C")
        client.say(PUBACK, b"\0\1")
        client.say(PINGREQ, b"")
        assert client.next() == (PINGRESP, b"")
        client.close()
        broker.wait_until_idle()
        again = Client(broker, "plant", "gauge")
        again.say(SUBSCRIBE, b"\0\1" + text("heat") + b"\1")
        assert again.next() == (SUBACK, b"\0\1\1")
        assert again.next() == (PUBLISH, text("heat") + b"\0\1" + b"22 C")
        again.close()
