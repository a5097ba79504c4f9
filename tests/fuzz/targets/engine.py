"""Payloads to a client's engine with a session, a consumer, a producer and requests that wait: nothing escapes, and in
the end nothing waits any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.client.engine.harness import FakeBroker, envelope
from tests.fuzz.targets import pieces, together
from tests.fuzz.targets.vectors import vectors

from sievemq import Queue
from sievemq._engine import EngineOptions, EngineProducer
from sievemq.exceptions import JMSException
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command
from sievemq_core.wire.framing import pack_frames


def seeds() -> Iterator[bytes]:
    yield together([pack((Command.DELIVER, 1, tag, 1, envelope("x"))) for tag in (1, 2, 3)])
    for request in range(8):
        yield together([pack((Command.OK, request, None)), pack((Command.ERROR, request + 1, 300, "no", {}))])
    for vector in vectors("broker"):
        if vector["state"] == "open":
            yield together([bytes.fromhex(vector["hex"])[4:]])


def run(data: bytes) -> None:
    """Each piece is the payload of a frame."""
    broker = FakeBroker(EngineOptions(heartbeat=0, prefetch=10))
    broker.welcome()
    session = broker.session()
    consumer = broker.consumer(session)
    broker.engine.start()
    producer: EngineProducer = broker.producer(session)
    waiting: list[Any] = [broker.engine.declare("queue:q"), broker.engine.ping(), broker.engine.create_temporary(True)]
    for payload in pieces(data)[:50]:
        if payload:
            broker.engine.receive_data(b"".join(pack_frames([payload])))
        broker.engine.data_to_send()
        broker.engine.tick(broker.clock.now)
    consumer.buffer.clear()
    broker.engine.receive_eof()
    broker.engine.tick(broker.clock.now + 100_000)
    assert broker.engine.failure is not None or broker.engine.closed
    for request in waiting:
        assert request.done
        assert request.error is None or isinstance(request.error, JMSException), request.error
    for reported in broker.reported:
        assert isinstance(reported, JMSException), reported
    assert producer.destination == Queue("q")
