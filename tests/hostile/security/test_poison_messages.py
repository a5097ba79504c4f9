"""Messages that a raw client may send although no honest one does: what is confirmed reaches every reader, over each
protocol, and ends no connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.protocols.amqp import AmqpSocket
from tests.broker.protocols.stomp import StompSocket

from sievemq import Connection, ConnectionFactory, MessageFormatException
from sievemq.cli.show import as_json, print_message
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.protocols.amqp.mapping import payload_of
from sievemq_broker.protocols.stomp.frames import encode
from sievemq_broker.protocols.stomp.mapping import message_of
from sievemq_core.message.body import encode_map, encode_stream
from sievemq_core.message.values import Char
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

from .support import DEADLINE, ask
from .test_hostile_frames import FIELDS, Peer

SOON = int(DEADLINE * 1_000)
HALF = "\ud800"
ADDRESS = "queue:nonsense:x"
MAP, STREAM = 3, 4


def fields(**changed: object) -> tuple[Any, ...]:
    """An envelope with other values: `f3` is its field 3."""
    changes = {int(name[1:]): value for name, value in changed.items()}
    return tuple(changes.get(number, value) for number, value in enumerate(FIELDS))


POISON = {
    "timestamp beyond a long": fields(f1=2**63),
    "timestamp below zero": fields(f1=-(2**63)),
    "expiration beyond a long": fields(f4=2**64 - 1),
    "delivery time below zero": fields(f5=-(2**63)),
    "correlation id of half a character": fields(f6=HALF),
    "correlation id of bytes": fields(f6=b"\xff\0"),
    "reply to nothing": fields(f7=""),
    "reply to an unknown kind": fields(f7="nonsense:x"),
    "reply to control characters": fields(f7="a\x00b\n"),
    "reply to half a character": fields(f7=HALF),
    "type of half a character": fields(f8=f"{HALF}\n"),
    "properties of other bytes": fields(f9=b"\xff"),
    "properties of an array": fields(f9=b"\x93\xc0\xc0\xc0"),
    "property beyond a long": fields(f9=pack({"a": 2**64 - 1})),
    "property of an array": fields(f9=pack({"a": (1,)})),
    "property of half a character": fields(f9=pack({"a": HALF, HALF: "a", "": 1, "a:b\n": "c:d\n"})),
    "group of another type": fields(f9=pack({"JMSXGroupID": 5, "JMSXGroupSeq": 2**63, "content_type": 7})),
    "letters of nothing": fields(f10="zzzz"),
    "kind unknown": fields(f11=9),
    "kind beyond a long": fields(f11=2**64 - 1),
    "kind below zero": fields(f11=-1),
    "text of other bytes": fields(f12=b"\xff\xfe"),
    "map without a body": fields(f11=MAP, f12=None),
    "map of other bytes": fields(f11=MAP, f12=b"\xff"),
    "map of an array": fields(f11=MAP, f12=b"\x92\xc0\x90"),
    "map with a key of nothing": fields(f11=MAP, f12=b"\x92\xc0\x81\xc0\xc0"),
    "map nested deep": fields(f11=MAP, f12=b"\x91" * 1_000 + b"\xc0"),
    "map of half a character": fields(f11=MAP, f12=encode_map({HALF: 1, "c": Char(HALF), "s": HALF})),
    "stream without a body": fields(f11=STREAM, f12=None),
    "stream of other bytes": fields(f11=STREAM, f12=b"\xff"),
    "stream of arrays": fields(f11=STREAM, f12=b"\x92\xc0\x91\x91\xc0"),
    "stream with an integer beyond a long": fields(f11=STREAM, f12=b"\x92\xc0\x91\xcf" + b"\xff" * 8),
    "stream with a character of two": fields(f11=STREAM, f12=b"\x92\xa1c\x91\xa2xx"),
    "stream with a byte that is none": fields(f11=STREAM, f12=b"\x92\xa1b\x91\xcd\xff\xff"),
    "stream of half a character": fields(f11=STREAM, f12=encode_stream([Char(HALF), HALF, float("nan")])),
    "object of other bytes": fields(f11=5, f12=b"\xc1"),
    "sections that are none": (*FIELDS, b"\xff", None),
    "sections that end too soon": (*FIELDS, b"\x00Sw\xb1\x7f\xff\xff\xff", b""),
    "sections of another type": (*FIELDS, "text", 5),
}

#: What no JMS type holds is refused; everything else is accepted, and read by each of them (D-46).
REFUSED = {
    name for name in POISON if name.startswith("kind")
} | {"properties of other bytes", "properties of an array", "property beyond a long", "property of an array",
     "group of another type"}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def sdk(broker: EmbeddedBroker) -> Iterator[Connection]:
    with ConnectionFactory(broker.url).create_connection() as connection:
        connection.start()
        yield connection


@pytest.mark.parametrize("name", POISON)
def test_confirmed_messages_reach_every_reader(broker: EmbeddedBroker, sdk: Connection, name: str) -> None:
    where = name.replace(" ", "-")
    with ExitStack() as stack:
        session = stack.enter_context(sdk.create_session())
        consumer = session.create_consumer(session.create_topic(where))
        stomp = stack.enter_context(StompSocket(broker.port))
        stomp.confirmed("SUBSCRIBE", id="1", destination=f"/topic/{where}")
        amqp = stack.enter_context(AmqpSocket(broker.port))
        amqp.receiver(f"topic:{where}")
        queue = session.create_queue(where)
        tap, _ = open_tap(sdk, where, queue)
        peer = stack.enter_context(Peer(broker)).enter()
        for number, address in enumerate((f"topic:{where}", f"queue:{where}")):
            peer.say((Command.SEND, 1, 2 * number + 1, address, POISON[name]))
            peer.say((Command.SEND, 1, 2 * number + 2, address, (*FIELDS[:12], b"behind")))
            refused = any(command[0] == Command.SEND_FAILED for command in peer.ping(9))
        assert refused == (name in REFUSED)
        count = 1 if refused else 2
        messages = [consumer.receive(SOON) for _ in range(count)]
        assert messages[-1] is not None
        assert messages[-1].get_body(str) == "behind"
        for message in messages:
            assert repr(message)
            assert message.get_jms_reply_to() is None or str(message.get_jms_reply_to()) in ("queue:\ufffd", ADDRESS)
            try:
                assert json.loads(as_json(message))["properties"] == dict(message.properties)
                print_message(message, json_line=False, verbose=True)
            except MessageFormatException:
                assert name.startswith(("text", "map", "stream"))  # a body is its receiver's to judge
            assert max(message.get_jms_timestamp(), message.get_jms_expiration()) < 2**63
            assert HALF not in f"{message.properties} {message.get_jms_type()} {message.get_jms_correlation_id()}"
        assert [stomp.frame("MESSAGE").body for _ in range(count)][-1] == b"behind"
        assert [amqp.receive().body for _ in range(count)][-1] == "behind"
        assert len(list(session.create_browser(queue))) == count
        assert len(tap.fetch(0, tap.look(0).last).counts) == count
        path = f"/api/v1/namespaces/default/destinations/queue:{where}/messages"
        rows = ask(broker, path).json["messages"]
        assert len(rows) == count
        assert [ask(broker, f"{path}/{row['id']}").status for row in rows] == [200] * count
        assert [row["unreadable"] for row in rows] == [None] * count


times = st.integers(-(2**63), 2**64 - 1)
texts = st.none() | st.text(st.characters(codec=None), max_size=5) | st.text("queue:\0 \n", max_size=8)
bits = st.none() | st.binary(max_size=12) | st.binary(max_size=8).map(b"\x92\xc0".__add__)


@given(
    st.tuples(
        texts, times, st.integers(0, 9), st.integers(1, 2), times, times, texts | bits, texts, texts, bits, texts,
        st.integers(0, 5), bits,
    ),
    st.just(()) | st.tuples(bits | texts, bits | texts | times),
)  # fmt: skip
def test_any_envelope_becomes_a_message_of_every_protocol(sent: tuple[Any, ...], behind: tuple[Any, ...]) -> None:
    assert payload_of((*sent, *behind), "queue:q", 1, 1_700_000_000_000)[0]
    headers, body = message_of(sent)
    assert encode("MESSAGE", headers, body)
