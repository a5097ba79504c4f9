"""While the disk is busy: who waits for it, and who does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sievemq import CompletionListener, ConnectionFactory, DeliveryMode, JMSContext, Message
from sievemq_broker import EmbeddedBroker

from .disk import DEADLINE, Disk

SOON = DEADLINE * 1_000


class Confirmed(CompletionListener):
    """Notes which sends were confirmed."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def on_completion(self, message: Message) -> None:
        self.messages.append(message)

    def on_exception(self, message: Message, exception: Exception) -> None:
        raise AssertionError(exception)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        yield broker


def context(broker: EmbeddedBroker, mode: int = JMSContext.AUTO_ACKNOWLEDGE) -> JMSContext:
    return ConnectionFactory(broker.url).create_context(mode)


def test_only_those_whose_messages_are_not_on_disk_wait_for_it(broker: EmbeddedBroker) -> None:
    disk, confirmed = Disk(broker), Confirmed()
    with context(broker) as sender, context(broker) as receiver, context(broker) as other:
        stored, echo = other.create_queue("stored"), other.create_queue("echo")
        consumer, echoes = receiver.create_consumer(stored), other.create_consumer(echo)
        producer = sender.create_producer()
        producer.send(stored, "first")
        assert consumer.receive(SOON).get_text() == "first"
        quick = other.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        with disk.held():
            producer.set_async(confirmed).send(stored, "second")
            assert disk.writing.wait(DEADLINE)
            for number in range(20):  # another client's messages, which are not stored
                quick.send(echo, str(number))
                assert echoes.receive(SOON).get_text() == str(number)
            assert echoes.receive_no_wait() is None
            with context(broker) as late:  # a new one is welcomed
                late.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT).send(echo, "late")
                assert echoes.receive(SOON).get_text() == "late"
            assert broker.call(lambda domain: domain.namespace("default").queue("queue:stored").in_flight) == 1
            assert consumer.receive(1) is None  # it is delivered, and waits for the disk
            assert confirmed.messages == []
        assert consumer.receive(SOON).get_text() == "second"
    assert len(confirmed.messages) == 1


@pytest.mark.parametrize("mode", [JMSContext.AUTO_ACKNOWLEDGE, JMSContext.SESSION_TRANSACTED])
def test_what_a_client_is_answered_after_a_crash_was_on_disk(tmp_path: Path, mode: int) -> None:
    """Sends of all sizes, one client after the other; the store is read as a crash at each answer would leave it."""
    with EmbeddedBroker(data_dir=tmp_path) as broker, context(broker, mode) as sender:
        commits = broker.server.shard.commits
        assert commits is not None
        producer, queue = sender.create_producer(), sender.create_queue("q")
        for count in (1, 1_200, 1, 700):
            for number in range(count):
                producer.send(queue, str(number))
            if mode == JMSContext.SESSION_TRANSACTED:
                sender.commit()
            assert broker.call(lambda domain: domain.journal is not None and not domain.journal.unwritten)
