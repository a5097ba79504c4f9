"""MessageListener: section 15 of the API map; threads: section 32."""

from __future__ import annotations

import threading

import pytest

from sievemq import Connection, MessageConsumer, MessageProducer, Queue, TextMessage

from .conftest import Connect
from .helpers import SOON, Collector


def test_listeners_at_full_speed(connection: Connection, connect: Connect, queue: Queue) -> None:
    """Two listeners share a queue; at its end they take from each other's buffers. Each message goes to one of them."""
    count = 3_000
    left = threading.Semaphore(0)
    collectors = [Collector(lambda _: left.release()) for _ in range(2)]
    sessions = [connection.create_session() for _ in collectors]
    for session, collector in zip(sessions, collectors, strict=True):
        session.create_consumer(queue).set_message_listener(collector)
    producer: MessageProducer = connect(start=False).create_session().create_producer(queue)
    for number in range(count):
        producer.send(TextMessage(str(number)), delivery_mode=1)
    for _ in range(count):
        assert left.acquire(timeout=SOON / 1000)
    for session in sessions:
        session.close()  # the last calls have returned
    received = [collector.texts for collector in collectors]
    assert sorted(int(t or 0) for some in received for t in some) == list(range(count))


def test_a_listener_is_an_object_or_a_callable(consumer: MessageConsumer) -> None:
    with pytest.raises(TypeError):
        consumer.set_message_listener("me")  # type: ignore[arg-type]
