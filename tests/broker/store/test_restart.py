"""A broker with a data directory, stopped or killed and started again: what its clients find."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.broker.protocols.stomp import StompSocket
from tests.client.relay import Relay

from sievemq import ConnectionFactory, DeliveryMode, JMSContext, Listeners, Message, Retry
from sievemq.staging import publish, stage
from sievemq_broker import EmbeddedBroker
from sievemq_broker.store import LockedError

from .kill import Life
from .sharing import until


def texts(context: JMSContext, queue: str) -> list[tuple[str, bool]]:
    """What waits in a queue, and whether it is marked."""
    browser = context.create_browser(context.create_queue(queue))
    return [(message.get_text(), message.get_jms_redelivered()) for message in browser]


@pytest.fixture
def broker(tmp_path: Path) -> EmbeddedBroker:
    return EmbeddedBroker(data_dir=tmp_path / "data")


def test_persistent_messages_are_there_again_in_their_order(broker: EmbeddedBroker) -> None:
    with broker, ConnectionFactory(broker.url).create_context() as context:
        assert context.get_meta_data().durable
        queue = context.create_queue("q")
        for number in range(5):
            context.create_producer().set_priority(number).send(queue, f"m{number}")
        context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT).send(queue, "gone with the process")
        context.create_producer().set_delivery_delay(3_600_000).send(queue, "later")
    with broker, ConnectionFactory(broker.url).create_context() as context:
        assert texts(context, "q") == [(f"m{number}", False) for number in (4, 3, 2, 1, 0)]
        broker.clock.advance(seconds=3_601)
        assert texts(context, "q")[0] == ("m4", False)
        assert ("later", False) in texts(context, "q")


def test_a_restart_ends_the_delay_of_a_retry_and_keeps_its_attempts(broker: EmbeddedBroker) -> None:
    calls: list[int] = []

    def application() -> Listeners:
        app = Listeners(broker.url)

        @app.listener("q", retries=Retry(attempts=3, delay=timedelta(minutes=10), backoff=3))
        def take(message: Message) -> None:
            calls.append(message.get_int_property("JMSXDeliveryCount"))
            raise ValueError

        app.start()
        return app

    def until_scheduled(number: int = 1) -> None:
        until(broker, lambda server: len(server.shard.broker.namespace("default").queue("queue:q").scheduled) == number)

    with broker, closing_application(application()):
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_producer().send(context.create_queue("q"), "m")
        until_scheduled()
    with broker, closing_application(application()):
        until_scheduled()  # it was delivered at once, and its attempt has failed
        assert calls == [1, 2]
        broker.clock.advance(seconds=29 * 60)
        until_scheduled()
        broker.clock.advance(seconds=60)
        until_scheduled(0)
        until(broker, lambda server: server.shard.broker.namespace("default").queue("queue:DLQ.q").depth == 1)
    assert calls == [1, 2, 3]


@contextmanager
def closing_application(app: Listeners) -> Iterator[None]:
    try:
        yield
    finally:
        app.stop()


def test_messages_that_are_read_from_disk_do_not_count_as_enqueued(broker: EmbeddedBroker) -> None:
    def enqueued() -> int:
        return broker.call(lambda domain: domain.namespace("").queue("queue:q").enqueued)

    with broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(context.create_queue("q"), "m0")
        context.create_producer().set_delivery_delay(3_600_000).send(context.create_queue("q"), "later")
        assert enqueued() == 2
    with broker, ConnectionFactory(broker.url).create_context() as context:
        assert enqueued() == 0
        broker.clock.advance(seconds=3_601)
        assert enqueued() == 0
        context.create_producer().send(context.create_queue("q"), "m1")
        assert enqueued() == 1


@pytest.mark.parametrize("waiting", [3, 1_200])  # looked through; found by an index
def test_d_17_messages_are_found_by_correlation_id_after_a_restart(broker: EmbeddedBroker, waiting: int) -> None:
    with broker, ConnectionFactory(broker.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        queue, producer = context.create_queue("q"), context.create_producer()
        for number in range(waiting):
            producer.set_jms_correlation_id(f"c{number}").send(queue, f"m{number}")
        context.commit()
    with broker, ConnectionFactory(broker.url).create_context() as context:
        for number in (2, 1):
            consumer = context.create_consumer(context.create_queue("q"), f"JMSCorrelationID = 'c{number}'")
            assert consumer.receive(60_000).get_text() == f"m{number}"
            consumer.close()


def test_delivered_messages_are_redelivered_marked_and_acknowledged_ones_are_not(broker: EmbeddedBroker) -> None:
    with broker, ConnectionFactory(broker.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        queue = context.create_queue("q")
        for number in range(4):
            context.create_producer().send(queue, f"m{number}")
        consumer = context.create_consumer(queue)
        consumer.receive(60_000)
        consumer.receive(60_000).acknowledge()
        assert consumer.receive(60_000).get_text() == "m2"
    with broker, ConnectionFactory(broker.url).create_context() as context:
        assert texts(context, "q") == [("m2", True), ("m3", False)]
        message = context.create_consumer(context.create_queue("q")).receive(60_000)
        assert message.get_int_property("JMSXDeliveryCount") == 2


def test_durable_subscriptions_collect_over_a_restart(broker: EmbeddedBroker) -> None:
    def subscribed() -> JMSContext:
        context = ConnectionFactory(broker.url).create_context()
        context.set_client_id("me")
        return context

    with broker:
        with subscribed() as context:
            context.create_durable_consumer(context.create_topic("t"), "s", "n > 1", False).close()
        with ConnectionFactory(broker.url).create_context() as context:
            for number in range(4):
                context.create_producer().set_property("n", number).send(context.create_topic("t"), f"m{number}")
    with broker, subscribed() as context:
        consumer = context.create_durable_consumer(context.create_topic("t"), "s", "n > 1", False)
        assert [consumer.receive(60_000).get_text() for _ in range(2)] == ["m2", "m3"]
        consumer.close()
        context.unsubscribe("s")
    with broker:
        assert broker.call(lambda b: dict(b.namespace("").subscriptions.durable)) == {}


def test_deliveries_and_attempts_survive_apart(broker: EmbeddedBroker) -> None:
    with broker, ConnectionFactory(broker.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        queue = context.create_queue("q")
        for number in range(3):
            context.create_producer().send(queue, f"m{number}")
    for _ in range(3):
        with broker, StompSocket(broker.port) as client:
            client.say("SUBSCRIBE", id="1", destination="/queue/q", ack="client")
            for _ in range(3):
                client.frame("MESSAGE")
            client.confirmed("DISCONNECT")
    with broker:
        entries = broker.call(lambda b: [*b.namespace("").queue("queue:q").main.waits(-1, 9)])
        assert [(entry.count, entry.attempts) for entry in entries] == [(3, 3), (3, 0), (3, 0)]


def test_a_message_that_waits_for_its_client_returns_with_a_restart(tmp_path: Path) -> None:
    """The loss was no attempt then: the broker ended before it could be one."""
    settings = {"destinations": {"queue:q": {"max_attempts": 1}}}
    broker = EmbeddedBroker(data_dir=tmp_path / "data", settings=settings)
    with (
        broker,
        Relay(broker.port) as relay,
        ConnectionFactory(relay.url(broker.url)).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context,
    ):
        queue = context.create_queue("q")
        context.create_producer().send(queue, "m")
        context.create_consumer(queue).receive(60_000)
        relay.refuse()
        relay.cut()
        for _ in range(10_000):
            if waits := broker.call(lambda b: len(b.namespace("").queue("queue:q").scheduled)):
                break
        assert waits
    with broker:
        [entry] = broker.call(lambda b: [*b.namespace("").queue("queue:q").main.waits(-1, 9)])
        assert (entry.count, entry.attempts) == (1, 0)


def test_dead_letters_and_counts_survive(tmp_path: Path) -> None:
    settings = {"destinations": {"queue:q": {"max_attempts": 3}}}
    broker = EmbeddedBroker(data_dir=tmp_path / "data", settings=settings)
    for attempt in range(3):
        with broker, ConnectionFactory(broker.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
            queue = context.create_queue("q")
            if not attempt:
                context.create_producer().send(queue, "poison")
                context.commit()
            message = context.create_consumer(queue).receive(60_000)
            assert message.get_int_property("JMSXDeliveryCount") == attempt + 1
            context.rollback()
    with broker, ConnectionFactory(broker.url).create_context() as context:
        assert texts(context, "q") == []
        (letter,) = context.create_browser(context.create_queue("DLQ.q"))
        assert letter.get_int_property("JMS_SieveMQ_DeadLetterAttempts") == 3
        assert str(letter.get_string_property("JMS_SieveMQ_DeadLetterFailedByAddress")).startswith("127.0.0.1:")


def test_deleted_destinations_stay_deleted(broker: EmbeddedBroker) -> None:
    with broker:
        with ConnectionFactory(broker.url).create_context() as context:
            for name in ("kept", "deleted", "purged"):
                context.create_producer().send(context.create_queue(name), name)
        broker.call(lambda b: b.namespace("").delete("queue:deleted"))
        broker.call(lambda b: b.namespace("").queue("queue:purged").clear())
        broker.call(lambda b: b.namespace("other").create("topic:t"))
        broker.call(lambda b: b.namespace("gone"))
        broker.call(lambda b: b.delete_namespace("gone"))
    with broker:
        assert broker.call(lambda b: sorted(b.namespaces)) == ["default", "other"]
        assert broker.call(lambda b: sorted(b.namespace("").destinations)) == ["queue:kept", "queue:purged"]
        assert broker.call(lambda b: b.namespace("").queue("queue:purged").depth) == 0


def test_a_namespace_that_is_made_anew_publishes_its_first_batch(broker: EmbeddedBroker) -> None:
    def publish_first() -> int | None:
        with ConnectionFactory(f"{broker.url}/again").create_connection() as connection:
            session = connection.create_session(JMSContext.SESSION_TRANSACTED)
            session.create_producer(session.create_queue("q")).send(session.create_text_message("x"))
            return publish(connection, "key", 0, [stage(session, "key", 0)])

    with broker:
        assert publish_first() == 1
        assert publish_first() is None
        broker.call(lambda b: b.delete_namespace("again"))
    with broker:
        assert "again" not in broker.call(lambda b: list(b.namespaces))
        assert publish_first() == 1


def test_the_broker_keeps_its_identity_and_never_reuses_ids(broker: EmbeddedBroker) -> None:
    ids = []
    for _ in range(3):
        with broker, ConnectionFactory(broker.url).create_context() as context:
            message = context.create_text_message("x")
            context.create_producer().send(context.create_queue("q"), message)
            ids.append(message.get_jms_message_id())
    assert len(set(ids)) == 3
    assert len({text.split("-")[0] for text in ids}) == 1


def test_a_second_broker_on_the_same_directory_is_refused(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with broker, pytest.raises(LockedError, match="in use by another broker"):
        EmbeddedBroker(data_dir=tmp_path / "data").start()


def test_repeated_sends_are_not_doubled(tmp_path: Path, port: int) -> None:
    """The SDK says unconfirmed sends again when the broker is back: each message is there once, none is missing."""
    life = Life(7, tmp_path)
    life.options = ("--port", str(port))
    life.start()
    sent: list[str] = []
    failed: list[BaseException] = []
    told = threading.Condition()
    over = threading.Event()

    def produce(name: str) -> None:
        try:
            with ConnectionFactory(f"sievemq://127.0.0.1:{port}?reconnect=60000").create_context() as context:
                queue = context.create_queue("q")
                producer = context.create_producer()
                number = 0
                while not over.is_set():
                    number += 1
                    producer.send(queue, f"{name}{number}")
                    with told:
                        sent.append(f"{name}{number}")
                        told.notify()
        except BaseException as error:
            with told:
                failed.append(error)
                told.notify()

    threads = [threading.Thread(target=produce, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for kill in range(4):
        with told:
            assert told.wait_for(lambda reached=(kill + 1) * 60: len(sent) >= reached or bool(failed), 60)
        life.kill()
        life.start()
    over.set()
    for thread in threads:
        thread.join(60)
    assert not failed, failed
    with ConnectionFactory(f"sievemq://127.0.0.1:{port}").create_context() as context:
        there = [text for text, _ in texts(context, "q")]
    life.stop()
    assert sorted(there) == sorted(sent)
    for name in "abc":
        own = [text for text in there if text.startswith(name)]
        assert own == [f"{name}{number}" for number in range(1, len(own) + 1)]


def test_a_drop_oldest_queue_is_restored_exactly(tmp_path: Path) -> None:
    rules = {"ring": {"max_messages": 3, "at_limit": "drop-oldest"}}
    broker = EmbeddedBroker(data_dir=tmp_path / "data", settings={"destinations": rules})
    with broker, ConnectionFactory(broker.url).create_context() as context:
        for number in range(10):
            context.create_producer().set_priority(9 if number == 4 else 4).send(
                context.create_queue("ring"), f"m{number}"
            )
        before = texts(context, "ring")
        assert before == [("m4", False), ("m8", False), ("m9", False)]
    for number in (10, 11):
        with broker, ConnectionFactory(broker.url).create_context() as context:
            assert texts(context, "ring") == before
            context.create_producer().send(context.create_queue("ring"), f"m{number}")  # and it goes on dropping
            before = [before[0], before[2], (f"m{number}", False)]
            assert texts(context, "ring") == before
