"""Any bytes from an AMQP client: one connection at most ends, and what the broker says is in form."""

from __future__ import annotations

from collections.abc import Iterator

from tests.broker.protocols.amqp import message, selector
from tests.hostile.fuzz.targets import pieces, together
from tests.hostile.fuzz.test_session import NOW, Rim

from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.amqp import AmqpConnection
from sievemq_broker.protocols.amqp.composites import write
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, SASL, SASL_HEADER, FrameParser, frame_of
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Properties,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from sievemq_broker.protocols.amqp.types import decode

BEGIN = frame_of(Begin(next_outgoing_id=0, incoming_window=50, outgoing_window=50))
CONNECT = AMQP_HEADER + frame_of(Open(container_id="c", idle_time_out=1_000)) + BEGIN
SIGN_IN = SASL_HEADER + frame_of(SaslInit(mechanism="PLAIN", initial_response=b"\0me@b\0p"), kind=SASL)


def _sender(handle: int, target: Target | Coordinator) -> bytes:
    return frame_of(Attach(name=f"s{handle}", handle=handle, role=False, source=Source(), target=target))


def _receiver(handle: int, **source: object) -> bytes:
    attach = Attach(name=f"r{handle}", handle=handle, role=True, source=Source(**source), target=Target())  # type: ignore[arg-type]
    flow = Flow(
        next_incoming_id=0, incoming_window=50, next_outgoing_id=0, outgoing_window=9, handle=handle,
        delivery_count=0, link_credit=10, drain=handle % 2 == 1,
    )  # fmt: skip
    return frame_of(attach) + frame_of(flow)


def _transfer(handle: int, number: int, payload: bytes, **more: object) -> bytes:
    transfer = Transfer(handle=handle, delivery_id=number, delivery_tag=b"t", **more)  # type: ignore[arg-type]
    return frame_of(transfer, 0, payload)


def _value(composite: Declare | Discharge) -> bytes:
    out = bytearray()
    write(composite, out)
    value, _ = decode(bytes(out), 0, len(out))
    return message(value)


FIRST = (1).to_bytes(8)
SECOND = (2).to_bytes(8)

CONVERSATIONS = (
    (
        _sender(0, Target(address="a")), _receiver(1, address="a", filter=selector("n > 1 OR c = 'x'")),
        _transfer(0, 0, message("x", {"n": 5})), _transfer(0, 1, message({"a": [1]}, {"c": "x"}), settled=True),
        _transfer(0, 2, b"half", more=True), _transfer(0, 2, b"", aborted=True),
        frame_of(Disposition(role=True, first=0, last=1, settled=True, state=Accepted())),
        frame_of(Disposition(role=True, first=0, last=2**32 - 1, state=Modified(delivery_failed=True))),
        frame_of(Detach(handle=1, closed=True)), frame_of(End()), frame_of(Close()),
    ),
    (
        _sender(0, Coordinator()), _sender(2, Target(address="topic:t")), _receiver(4, address="topic:t"),
        _transfer(0, 0, _value(Declare())), _transfer(2, 1, message("y"), state=TransactionalState(txn_id=SECOND)),
        frame_of(Disposition(role=True, first=0, state=TransactionalState(txn_id=SECOND, outcome=Accepted()))),
        _transfer(0, 2, _value(Discharge(txn_id=SECOND))), _transfer(0, 3, _value(Discharge(txn_id=FIRST, fail=True))),
    ),
    (
        _sender(0, Target()), _transfer(0, 0, message("z", standard=Properties(to="queue:q", reply_to="r"))),
        _receiver(1, address="q", distribution_mode="copy"), _receiver(2, dynamic=True),
        _receiver(3, address="topic:d", durable=2, capabilities=["shared", "global"]),
        frame_of(Attach(name="r3", handle=7, role=True, target=Target())), frame_of(Detach(handle=7, closed=True)),
        frame_of(None),
    ),
)  # fmt: skip


def seeds() -> Iterator[bytes]:
    for conversation in CONVERSATIONS:
        yield together((CONNECT, *conversation))
        yield together((SIGN_IN, CONNECT, *conversation))
    yield together([CONNECT, b"".join(part for conversation in CONVERSATIONS for part in conversation)])
    yield together(bytes([byte]) for byte in SIGN_IN + CONNECT)
    yield together([b"AMQP\0\0\x09\x01"])


def run(data: bytes) -> None:
    """Each piece is what one read of the broker brings."""
    rim, broker = Rim(), Broker()
    bad, good = AmqpConnection(broker, rim), AmqpConnection(broker, rim)
    _feed(good, CONNECT + _sender(0, Target(address="z")), broker)
    said = b""
    for piece in pieces(data)[:200]:
        said += _feed(bad, piece, broker)
        bad.tick(NOW + 1)
    assert rim.faults == []
    parser = FrameParser(2**24)
    parser.receive(said)
    while parser.next() is not None:  # what the broker says is always in form
        pass
    assert parser.pending == 0, said
    broker.due(NOW + 10_000)
    _work(broker)
    bad.lost(NOW)
    said = _feed(good, _transfer(0, 0, message("x")), broker)
    assert said == frame_of(Disposition(role=True, first=0, last=0, settled=True, state=Accepted())), said
    assert rim.faults == []
    assert rim.connections == {good.peer.member.id: good.peer}


def _feed(connection: AmqpConnection, data: bytes, broker: Broker) -> bytes:
    """What the connection says to this."""
    connection.receive_data(data, NOW)
    said = b""
    for _ in range(10_000):
        if connection.closing and not connection.outbox.unread:
            return said
        if connection.behind:
            connection.catch_up(NOW)
        if connection.has_data:
            said += connection.data_to_send()
        elif not connection.behind:
            _work(broker)
            if not (connection.has_data or connection.behind):
                return said
    raise AssertionError("it never comes to rest")


def _work(broker: Broker) -> None:
    for _ in range(1_000):
        if not broker.work(NOW + 10_000):
            return
    raise AssertionError("the broker's work never ends")
