"""Asynchronous sends: section 12 of the API map."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from sievemq import JMSException, Message, Queue, TextMessage

from .conftest import Connect
from .helpers import SOON


class Completions:
    """A completion listener that keeps what it receives."""

    def __init__(self, act: Any = None) -> None:
        self.heard: list[tuple[str, Message, Exception | None]] = []
        self.threads: set[int] = set()
        self._act = act
        self._changed = threading.Condition()

    def on_completion(self, message: Message) -> None:
        self._hear("completed", message, None)

    def on_exception(self, message: Message, exception: Exception) -> None:
        self._hear("failed", message, exception)

    def _hear(self, what: str, message: Message, error: Exception | None) -> None:
        self.threads.add(threading.get_ident())
        try:
            if self._act is not None:
                self._act(message)
        finally:
            with self._changed:
                self.heard.append((what, message, error))
                self._changed.notify_all()

    def wait(self, count: int) -> list[tuple[str, Message, Exception | None]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.heard) >= count, SOON / 1000), self.heard
            return list(self.heard)


def test_d_32_a_lost_connection_fails_async_sends_in_order(connect: Connect, queue: Queue) -> None:
    connection = connect()
    connection._engine.leaving = True  # as if it were about to be closed: the loss is not repaired
    producer = connection.create_session().create_producer(queue)
    transport, listener = connection._transport, Completions()
    connection._engine.terms.clock = lambda: 2**62
    with transport.lock:  # nothing can be written
        transport._pace.due = math.inf  # and no send tries to
        for number in range(3):
            producer.send(TextMessage(str(number)), completion_listener=listener)
        connection._engine.lost(ConnectionResetError("cut"))
    transport.wake()
    heard = listener.wait(3)
    assert [what for what, _, _ in heard] == ["failed"] * 3
    assert [m.get_text() for _, m, _ in heard if isinstance(m, TextMessage)] == ["0", "1", "2"]
    with pytest.raises(JMSException, match="cut"):
        producer.send(TextMessage("late"), completion_listener=listener)
    producer.close()
    assert len(listener.heard) == 3
