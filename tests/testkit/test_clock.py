"""What follows the broker's clock, and what goes by the machine's. No test here waits for time to pass."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from sievemq import ConnectionFactory, JMSContext, Queue
from sievemq_broker.embedded import BrokerClock
from sievemq_testing import TestBroker, TestNamespace

ORDERS = Queue("orders")
HOUR = 3_600_000


def test_expiry_on_the_queue_and_in_a_consumers_buffer(
    sievemq_namespace: TestNamespace, sievemq: JMSContext, sievemq_clock: BrokerClock
) -> None:
    producer = sievemq.create_producer()
    producer.set_time_to_live(HOUR).send(ORDERS, "on the queue")
    sievemq_clock.advance(milliseconds=HOUR - 1_000)
    assert sievemq_namespace.queue("orders").depth == 1
    sievemq_clock.advance(seconds=1)
    assert sievemq_namespace.queue("orders").depth == 0
    consumer = sievemq.create_consumer(ORDERS)
    producer.set_time_to_live(HOUR).send(ORDERS, "in the buffer")
    sievemq_namespace.wait_until_idle()
    sievemq_clock.advance(milliseconds=HOUR)
    assert consumer.receive_no_wait() is None


def test_delivery_delay(sievemq: JMSContext, sievemq_clock: BrokerClock) -> None:
    consumer = sievemq.create_consumer(ORDERS)
    sievemq.create_producer().set_delivery_delay(HOUR).send(ORDERS, "later")
    sievemq_clock.freeze()
    sievemq_clock.advance(milliseconds=HOUR - 60_000)
    assert consumer.receive_no_wait() is None
    sievemq_clock.advance(seconds=60)
    assert consumer.receive_body(str, 1_000) == "later"


def test_redelivery_delay_that_grows(sievemq_namespace: TestNamespace, sievemq_clock: BrokerClock) -> None:
    queue = sievemq_namespace.queue("orders")
    queue.configure(redelivery_delay=1_000, redelivery_factor=10.0)
    sievemq_clock.freeze()
    with ConnectionFactory(sievemq_namespace.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        context.commit()
        consumer = context.create_consumer(ORDERS)
        for delay in (1_000, 10_000, 100_000):
            assert consumer.receive(1_000) is not None
            context.rollback()
            assert len(queue.scheduled()) == 1
            sievemq_clock.advance(milliseconds=delay - 1)
            assert consumer.receive_no_wait() is None
            sievemq_clock.advance(milliseconds=1)
        assert consumer.receive(1_000) is not None


def test_timestamps_are_the_brokers_time(sievemq: JMSContext, sievemq_clock: BrokerClock) -> None:
    sievemq_clock.set(datetime(2030, 1, 1, tzinfo=UTC))
    sievemq.create_producer().send(ORDERS, "x")
    message = sievemq.create_consumer(ORDERS).receive(1_000)
    assert message is not None
    sent = datetime.fromtimestamp(message.get_jms_timestamp() / 1000, UTC)
    assert timedelta() <= sent - datetime(2030, 1, 1, tzinfo=UTC) < timedelta(seconds=30)


def test_a_receive_does_not_time_out_early(sievemq: JMSContext, sievemq_clock: BrokerClock) -> None:
    # A timeout is the caller's patience, not the broker's time: moving the clock to let a message become due must not
    # end the receive that waits for it.
    sievemq.create_producer().set_delivery_delay(HOUR).send(ORDERS, "later")
    consumer = sievemq.create_consumer(ORDERS)
    sievemq_clock.advance(milliseconds=HOUR)
    assert consumer.receive_body(str, 60_000) == "later"


def test_a_clock_that_jumps_ends_no_connection(sievemq: JMSContext, sievemq_clock: BrokerClock) -> None:
    # Heartbeats go by the machine's time: a day that a test skips is no day of silence.
    for seconds in (86_400, 86_400 * 365):
        sievemq_clock.advance(seconds=seconds)
        sievemq.create_producer().send(ORDERS, "x")
        assert sievemq.create_consumer(ORDERS).receive(1_000) is not None


def test_the_fixture_leaves_the_machines_time_behind(sievemq_broker: TestBroker) -> None:
    assert abs(sievemq_broker.clock.now() - datetime.now(UTC)) < timedelta(seconds=1)
    sievemq_broker.clock.freeze()
    sievemq_broker.clock.advance(seconds=HOUR)
    sievemq_broker.reset_clock()
    assert abs(sievemq_broker.clock.now() - datetime.now(UTC)) < timedelta(seconds=1)
    before = sievemq_broker.clock.now()
    deadline = time.monotonic() + 5
    while sievemq_broker.clock.now() == before:  # it runs
        assert time.monotonic() < deadline


async def test_with_asyncio(sievemq_aio, sievemq_clock: BrokerClock) -> None:  # type: ignore[no-untyped-def]
    async with sievemq_aio() as context:
        consumer = await context.create_consumer(ORDERS)
        await context.create_producer().set_delivery_delay(HOUR).send(ORDERS, "later")
        await sievemq_clock.advance(milliseconds=HOUR)
        assert await consumer.receive_body(str, 1_000) == "later"
