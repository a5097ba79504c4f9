"""While the disk is busy: who waits for it, and who does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.server.wire_client import WireClient

from sievemq import CompletionListener, ConnectionFactory, DeliveryMode, JMSContext, Message
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker
from sievemq_broker.domain.journal import Write
from sievemq_broker.domain.publishing import AT_ONCE
from sievemq_broker.domain.work import Budget, Task
from sievemq_core.wire.commands import Command

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


def send(client: WireClient, sequence: int, size: int) -> None:
    """A PERSISTENT message."""
    envelope = (None, 1, 4, 2, 0, 0, None, None, None, None, None, 2, b"m" * size)
    client.say(Command.SEND, 1, sequence, "queue:q", envelope)


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
            brief = ConnectionFactory(f"{broker.url}?close_timeout=10")  # its end waits for the disk, too
            with brief.create_context() as late:  # a new one is welcomed
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


def test_what_waits_for_a_task_leaves_when_it_is_over_though_no_client_says_anything(broker: EmbeddedBroker) -> None:
    def work(now: int, budget: Budget) -> Task[None]:
        """Goes on for a few turns after output is held back for it."""
        turns = 0
        while turns < 5:
            turns += any(link.held for link in broker.server.links.open)
            budget.spend(budget.left)
            yield

    def begin(domain: Broker) -> None:
        journal = domain.journal
        assert journal is not None
        journal.hold()
        domain.scheduler.start("task", work, 0, later=True).then(lambda now: journal.let_go())

    with WireClient(broker.port) as client:
        client.open_session()
        broker.call(begin)
        send(client, 1, 10)
        assert client.until(Command.CONFIRM)[1:] == (1, 1)


def test_a_large_commit_on_a_quiet_broker_is_written_ahead(broker: EmbeddedBroker) -> None:
    commits = broker.server.shard.commits
    assert commits is not None
    written: list[Write] = []
    write = commits.store.write

    def watched(each: Write, now: int) -> None:
        written.append(each)
        write(each, now)

    broker.call(lambda _: setattr(commits.store, "write", watched))
    count = 10 * AT_ONCE
    with WireClient(broker.port) as client:
        client.open_session(mode=0)
        for number in range(1, count + 1):
            send(client, number, 500)
        assert client.request(Command.COMMIT, 1, ())[0] == Command.OK
    ahead = sum(len(batch.accepted) for each in written for batch in each.ahead)
    assert 0 < ahead <= count
    assert ahead + sum(len(batch.accepted) for each in written for batch in each.parts) == count


def test_what_is_told_of_a_tap_is_stored(broker: EmbeddedBroker) -> None:
    """Another connection repeats an acknowledgement that is not stored yet."""
    disk, tap = Disk(broker), ("t", "queue:q")
    with WireClient(broker.port) as first, WireClient(broker.port) as again, WireClient(broker.port) as other:
        made = first.open_session().request(Command.OPEN_TAP, *tap, "copy", None, None, {})[2]
        send(first, 1, 10)
        assert first.until(Command.CONFIRM)[1:] == (1, 1)
        with disk.held():
            first.say(Command.ACKNOWLEDGE_TAP, 9, *tap, made["id"], 1)
            assert disk.writing.wait(DEADLINE)
            again.say(Command.ACKNOWLEDGE_TAP, 1, *tap, made["id"], 1)
            again.say(Command.OPEN_TAP, 2, *tap, "copy", None, None, {})
            for _ in range(2):  # what came before is carried out by then
                other.request(Command.PING)
            again.sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                again.read()
        again.sock.settimeout(DEADLINE)
        assert [again.until(Command.OK)[2]["acknowledged"] for _ in range(2)] == [1, 1]
