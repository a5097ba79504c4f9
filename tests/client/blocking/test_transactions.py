"""Local transactions: section 25 of the API map, over a socket."""

from __future__ import annotations

import pytest

from sievemq import Connection, DeliveryMode, Queue, Session, TextMessage

from .conftest import Connect
from .helpers import nothing_left, texts


@pytest.fixture
def transacted(connection: Connection) -> Session:
    return connection.create_session(True)


def test_rollbacks_at_full_buffers_lose_nothing(transacted: Session, connect: Connect, queue: Queue) -> None:
    """Deliveries are on their way whenever a rollback takes them back."""
    count = 500
    producer = connect(start=False).create_session().create_producer(queue)
    for number in range(count):
        producer.send(TextMessage(str(number)), delivery_mode=DeliveryMode.NON_PERSISTENT)
    consumer = transacted.create_consumer(queue)
    received: list[str | None] = []
    step = 0
    while len(received) < count:
        step += 1
        some = texts(consumer, min(step % 9 + 1, count - len(received)))
        if step % 3 == 0:
            transacted.rollback()
        else:
            transacted.commit()
            received += some
    assert received == [str(number) for number in range(count)]
    assert nothing_left(consumer)
