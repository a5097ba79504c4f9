"""Hooks for instrumentation, in both APIs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from sievemq import JMSException, Message, TextMessage
from sievemq.destinations import Destination
from sievemq.messages import MapMessage
from sievemq.observers import OBSERVERS, Client, Observer, Source, observe, unobserve

from .both import SOON, Api, text


class Notes(Observer):
    """Notes each call, and how its context manager was left."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @contextmanager
    def _around(self, what: str) -> Iterator[None]:
        self.notes.append(f"{what} begins")
        try:
            yield
        except Exception as error:
            self.notes.append(f"{what} raises {type(error).__name__}")
            raise
        else:
            self.notes.append(f"{what} ends")

    def send(
        self, message: Message | None, destination: Destination | None, client: Client
    ) -> AbstractContextManager[object]:
        if message is not None:
            message.set_string_property("noted", "yes")
        return self._around(f"send to {destination}")

    def received(self, message: Message, source: Source, seconds: float) -> None:
        assert seconds >= 0
        self.notes.append(f"received {message.get_string_property('noted')} from {source.destination}")

    def receive_failed(self, error: Exception, source: Source, seconds: float) -> None:
        self.notes.append(f"receive raises {type(error).__name__}")

    def process(self, message: Message, source: Source) -> AbstractContextManager[object]:
        return self._around("listener")

    def settle(self, operation: str, client: Client) -> AbstractContextManager[object]:
        assert client.peer is not None
        return self._around(operation)


@pytest.fixture
def noted() -> Iterator[list[str]]:
    notes = Notes()
    observe(notes)
    yield notes.notes
    unobserve(notes)
    assert not OBSERVERS


async def test_send_receive_and_acknowledge(api: Api, noted: list[str]) -> None:
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    producer = await session.create_producer(api.queue("q"))
    await producer.send(TextMessage("x"))
    consumer = await session.create_consumer(api.queue("q"))
    message = await consumer.receive(SOON)
    await session._acknowledge()
    assert text(message) == "x"
    assert noted == [
        "send to queue:q begins",
        "send to queue:q ends",
        "received yes from queue:q",
        "acknowledge begins",
        "acknowledge ends",
    ]


async def test_a_transaction(api: Api, noted: list[str]) -> None:
    context = await api.context(api.SESSION_TRANSACTED)
    await context.create_producer().send(api.queue("q"), "x")
    await context.rollback()
    await context.commit()
    assert [note for note in noted if not note.startswith("send")] == [
        "rollback begins",
        "rollback ends",
        "commit begins",
        "commit ends",
    ]


async def test_failures_are_observed(api: Api, noted: list[str]) -> None:
    session = await api.session()
    producer = await session.create_producer(None)
    with pytest.raises(JMSException):
        await producer.send(None, TextMessage("x"))
    with pytest.raises(JMSException):
        await session.commit()
    await api.fill("q", "x")
    consumer = await session.create_consumer(api.queue("q"))
    with pytest.raises(JMSException):
        await consumer.receive(SOON, MapMessage)
    assert [note for note in noted if "raises" in note] == [
        "send to None raises InvalidDestinationException",
        "commit raises IllegalStateException",
        "receive raises MessageFormatException",
    ]


async def test_an_observer_that_raises_loses_no_message(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def received(self, message: Message, source: Source, seconds: float) -> None:
            raise LookupError("broken")

    await api.fill("q", "x")
    consumer = await (await api.session()).create_consumer(api.queue("q"))
    broken: Any = Broken()
    observe(broken)
    try:
        assert text(await consumer.receive(SOON)) == "x"
    finally:
        unobserve(broken)
    assert "an observer raised" in caplog.text


async def test_a_removed_observer_is_not_called(api: Api) -> None:
    notes = Notes()
    observe(notes)
    unobserve(notes)
    await api.fill("q", "x")
    assert notes.notes == []
    with pytest.raises(ValueError, match="not in list"):
        unobserve(notes)
