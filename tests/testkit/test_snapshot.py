"""Snapshots of a namespace: what they keep, and what is there again after a restore."""

from __future__ import annotations

from datetime import timedelta

from sievemq import ConnectionFactory, JMSContext, Queue, Topic
from sievemq_testing import BrokerClock, TestBroker, TestNamespace

ORDERS, PRICES = Queue("orders"), Topic("prices")
SOON = timedelta(minutes=1)


def texts(namespace: TestNamespace) -> list[str]:
    return [message.get_body(str) for message in namespace.queue("orders").messages()]


def test_messages_in_each_state_are_there_again(
    namespace: TestNamespace, context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    sievemq_clock.freeze()
    producer = context.create_producer()
    producer.send(ORDERS, "held").set_priority(9).send(ORDERS, "urgent").set_priority(4).send(ORDERS, "waits")
    producer.set_delivery_delay(timedelta(minutes=5)).send(ORDERS, "later")
    producer.set_delivery_delay(0).set_time_to_live(timedelta(minutes=2)).send(ORDERS, "short")
    namespace.queue("orders").configure(max_attempts=2)
    with ConnectionFactory(namespace.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as holder:
        holder.create_consumer(ORDERS, "JMSPriority = 9").receive(SOON)
        snapshot = namespace.snapshot()
    assert snapshot.messages == 5
    namespace.queue("orders").configure(max_attempts=7)
    namespace.queue("orders").pause()
    producer.send(ORDERS, "after")
    sievemq_clock.advance(timedelta(hours=1))
    for _ in range(2):
        namespace.restore(snapshot)
        assert texts(namespace) == ["urgent", "held", "waits", "short"]
        assert len(namespace.queue("orders").scheduled()) == 1
        assert namespace.queue("orders").configure().max_attempts == 2
    sievemq_clock.advance(timedelta(minutes=5))
    assert texts(namespace) == ["urgent", "held", "waits", "later"]
    assert context.create_consumer(ORDERS).receive_body(str, SOON) == "urgent"  # it is not paused any more


def test_durable_subscriptions_are_there_again(namespace: TestNamespace, sievemq_test_broker: TestBroker) -> None:
    with ConnectionFactory(namespace.url).create_context() as context:
        for name in ("one", "two"):
            context.create_shared_durable_consumer(PRICES, name, "n > 0").close()
        context.create_producer().set_property("n", 1).send(PRICES, "x")
        namespace.topic("prices")
        snapshot = namespace.snapshot()
        context.unsubscribe("two")
        consumer = context.create_shared_durable_consumer(PRICES, "one", "n > 0")
        assert consumer.receive_body(str, SOON) == "x"
        namespace.restore(snapshot)
        assert consumer.receive_body(str, SOON) == "x"
        other = context.create_shared_durable_consumer(PRICES, "two", "n > 0")
        assert other.receive_body(str, SOON) == "x"
        assert other.receive_no_wait() is None
    elsewhere = sievemq_test_broker.namespace(f"{namespace.name}-copy")
    elsewhere.restore(snapshot)
    assert [row["depth"] for row in elsewhere.topic("prices").subscriptions] == [1, 1]
    elsewhere.drop()


def test_a_paused_queue_is_paused_again(namespace: TestNamespace, context: JMSContext) -> None:
    context.create_producer().send(ORDERS, "x")
    namespace.queue("orders").pause()
    snapshot = namespace.snapshot()
    namespace.queue("orders").resume()
    namespace.restore(snapshot)
    assert context.create_consumer(ORDERS).receive_no_wait() is None


def test_a_temporary_queue_and_an_unused_namespace(namespace: TestNamespace, context: JMSContext) -> None:
    assert namespace.snapshot().messages == 0
    context.create_temporary_queue()
    assert namespace.snapshot().destinations == ()
