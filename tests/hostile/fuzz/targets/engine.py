"""Payloads to a client's engine: behind a handshake with a session, a consumer, a producer and requests that wait; as
the answer to its HELLO; and as the answer to the HELLO with which it repairs a lost connection. Nothing escapes, and in
the end nothing waits any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.client.engine.harness import FakeBroker, envelope
from tests.hostile.fuzz.targets import pieces, together
from tests.hostile.fuzz.targets.vectors import vectors

from sievemq import Queue, TextMessage
from sievemq._engine import EngineOptions, EngineProducer
from sievemq.exceptions import JMSException
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import pack_frames

OPEN, HANDSHAKE, REPAIR = b"\0", b"\1", b"\2"

#: Requests whose answers have a form of their own, and such answers.
OF_TAPS = (
    (Command.LOOK_TAP, ("t", "queue:q", 0, 1, 1)),
    (Command.FETCH_TAP, ("t", "queue:q", "t.1", 0, 2, 2)),
    (Command.PUBLISH, ("k", 0, ("s",))),
)
STATE = {"id": "t.1", "mode": "copy", "first": 1, "last": 2, "acknowledged": 0, "lost": 0, "missed": 0, "bytes": 9}
PAGE = (1, (5, 5), (1, 1), *zip(envelope("x"), envelope("y"), strict=True))


def seeds() -> Iterator[bytes]:
    yield OPEN + together([pack((Command.DELIVER, 1, tag, 1, envelope("x"))) for tag in (1, 2, 3)])
    yield OPEN + together([pack((Command.DELIVER_SEVERAL, 1, 1, (envelope("x"), envelope("y"))))])
    for request in range(8):
        said = [pack((Command.OK, request, None)), pack((Command.ERROR, request + 1, 300, "no", {}))]
        yield OPEN + together(said)
    for request in range(4, 12):
        for result in ({**STATE, "upto": 2, "more": False}, PAGE, 2):
            yield OPEN + together([pack((Command.OK, request, result))])
    for vector in vectors("broker"):
        payload = bytes.fromhex(vector["hex"])[4:]
        yield (OPEN if vector["state"] == "open" else HANDSHAKE) + together([payload])
        if vector["state"] != "open":
            yield REPAIR + together([payload])
    for resumed in (
        False,
        (1, 2),
        {},
        {"sessions": ((1, 1, 0),), "refused": ((1, 1, 12, "too large"),), "temporaries": False},
        {"sessions": (1, 2)},
        {"refused": (("x", None),)},
    ):
        features = {"clock_offset": -5, "resumed": resumed}
        welcome = pack((Command.WELCOME, 1, "SieveMQ/test", "i", "c1", 0, {"window_messages": 3}, features))
        yield REPAIR + together([welcome, pack((Command.CONFIRM, 1, 5))])


def run(data: bytes) -> None:
    """The first byte says where it stands; each piece behind it is the payload of a frame."""
    mode, payloads = data[:1], pieces(data[1:])[:50]
    if mode == HANDSHAKE:
        _handshake(payloads)
    else:
        _open(payloads, repair=mode == REPAIR)


def _handshake(payloads: list[bytes]) -> None:
    broker = FakeBroker(EngineOptions(heartbeat=0))
    broker.heard()
    handshake = broker.handshake
    assert handshake is not None
    _say(broker, payloads)
    handshake.lost(None)
    assert handshake.over
    assert handshake.error is None or isinstance(handshake.error, JMSException)


def _say(broker: FakeBroker, payloads: list[bytes]) -> None:
    for payload in payloads:
        if payload:
            broker.feed(b"".join(pack_frames([payload])))
        broker.engine.data_to_send()
        broker.engine.tick(broker.clock.now)


def _open(payloads: list[bytes], *, repair: bool) -> None:
    broker = FakeBroker(EngineOptions(heartbeat=0, prefetch=10, reconnect=1_000 if repair else 0))
    broker.welcome()
    session = broker.session()
    consumer = broker.consumer(session)
    broker.engine.start()
    producer: EngineProducer = broker.producer(session)
    waiting: list[Any] = [session.declare("queue:q"), broker.engine.ping(), broker.engine.create_temporary(True)]
    waiting += [broker.engine.request(kind, *fields) for kind, fields in OF_TAPS]
    if repair:
        producer.send(TextMessage("x"), Queue("q"))
        broker.engine.lost(None)
        broker.reopen()
    _say(broker, payloads)
    consumer.buffer.clear()
    broker.engine.receive_eof()
    broker.engine.tick(broker.clock.now + 100_000)
    broker.engine.give_up()
    assert broker.engine.failure is not None or broker.engine.closed
    for request in waiting:
        assert request.done
        assert request.error is None or isinstance(request.error, JMSException), request.error
    for reported in broker.reported:
        assert isinstance(reported, JMSException), reported
    assert producer.destination == Queue("q")
