"""What follows the broker's clock, and what goes by the machine's. No test here waits for time to pass."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

import pytest

from sievemq import ConnectionFactory, ExceptionListener, JMSContext, JMSException, Queue
from sievemq._engine.consumer import EngineConsumer
from sievemq.blocking.control import Control
from sievemq_broker import embedded
from sievemq_broker.embedded import BrokerClock
from sievemq_broker.server.server import Server
from sievemq_testing import Faults, TestBroker, TestNamespace

ORDERS = Queue("orders")


@pytest.fixture
def _deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is cut off cannot report the clock's move, so the broker does not wait for it."""
    monkeypatch.setattr(embedded, "SEEN_SECONDS", 0.05)


HOUR = 3_600_000
SOON = 30.0  # less than the minutes that are skipped


def test_expiry_on_the_queue_and_in_a_consumers_buffer(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    producer = sievemq_context.create_producer()
    producer.set_time_to_live(HOUR).send(ORDERS, "on the queue")
    sievemq_clock.advance(milliseconds=HOUR - 60_000)
    assert sievemq_namespace.queue("orders").depth == 1
    sievemq_clock.advance(seconds=60)
    assert sievemq_namespace.queue("orders").depth == 0
    consumer = sievemq_context.create_consumer(ORDERS)
    producer.set_time_to_live(HOUR).send(ORDERS, "in the buffer")
    sievemq_namespace.wait_until_idle()
    sievemq_clock.advance(milliseconds=HOUR)
    assert consumer.receive_no_wait() is None


def test_delivery_delay(sievemq_context: JMSContext, sievemq_clock: BrokerClock) -> None:
    consumer = sievemq_context.create_consumer(ORDERS)
    sievemq_context.create_producer().set_delivery_delay(HOUR).send(ORDERS, "later")
    sievemq_clock.freeze()
    sievemq_clock.advance(milliseconds=HOUR - 60_000)
    assert consumer.receive_no_wait() is None
    sievemq_clock.advance(seconds=60)
    assert consumer.receive_body(str, 60_000) == "later"


def test_redelivery_delay_that_grows(sievemq_namespace: TestNamespace, sievemq_clock: BrokerClock) -> None:
    queue = sievemq_namespace.queue("orders")
    queue.configure(redelivery_delay=1_000, redelivery_factor=10.0)
    sievemq_clock.freeze()
    with ConnectionFactory(sievemq_namespace.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        context.commit()
        consumer = context.create_consumer(ORDERS)
        for delay in (1_000, 10_000, 100_000):
            assert consumer.receive(60_000) is not None
            context.rollback()
            assert len(queue.scheduled()) == 1
            sievemq_clock.advance(milliseconds=delay - 1)
            assert consumer.receive_no_wait() is None
            sievemq_clock.advance(milliseconds=1)
        assert consumer.receive(60_000) is not None


def test_timestamps_are_the_brokers_time(sievemq_context: JMSContext, sievemq_clock: BrokerClock) -> None:
    sievemq_clock.set(datetime(2030, 1, 1, tzinfo=UTC))
    sievemq_context.create_producer().send(ORDERS, "x")
    message = sievemq_context.create_consumer(ORDERS).receive(60_000)
    assert message is not None
    sent = datetime.fromtimestamp(message.get_jms_timestamp() / 1000, UTC)
    assert timedelta() <= sent - datetime(2030, 1, 1, tzinfo=UTC) < timedelta(seconds=30)


# -- receive with a timeout -------------------------------------------------------------------------------------------

MINUTE = 60_000


def in_thread(call: Callable[[], object]) -> Future[object]:
    """What a call returns that waits, in a thread of its own."""
    result: Future[object] = Future()
    threading.Thread(target=lambda: result.set_result(call()), daemon=True).start()
    return result


def test_a_blocked_receive_ends_when_its_time_was_skipped(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    consumer = sievemq_context.create_consumer(ORDERS)
    received = in_thread(lambda: consumer.receive(MINUTE))
    sievemq_namespace.queue("orders").assert_awaited(within=SOON)
    sievemq_clock.advance(seconds=30)
    assert not received.done()
    sievemq_clock.advance(seconds=30)
    assert received.result(SOON) is None


def test_a_frozen_clock_advances_as_told(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    sievemq_clock.freeze()
    stopped = time.time()
    while time.time() < stopped + 0.01:  # the machine's clock runs on: the minute below is no shorter for it
        pass
    consumer = sievemq_context.create_consumer(ORDERS)
    received = in_thread(lambda: consumer.receive(MINUTE))
    sievemq_namespace.queue("orders").assert_awaited(within=SOON)
    sievemq_clock.advance(milliseconds=MINUTE)
    assert received.result(SOON) is None
    assert consumer.receive(1) is None  # nobody moves the clock now: the machine's time ends it


def test_messages_due_in_the_skipped_time_are_received(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    sievemq_context.create_producer().set_delivery_delay(MINUTE // 2).send(ORDERS, "in time")
    consumer = sievemq_context.create_consumer(ORDERS)
    received = in_thread(lambda: consumer.receive_body(str, MINUTE))
    sievemq_namespace.queue("orders").assert_awaited(within=SOON)
    sievemq_clock.advance(milliseconds=MINUTE)
    assert received.result(SOON) == "in time"


def test_the_clock_is_moved_after_receive_was_called_and_before_it_waits(
    sievemq_context: JMSContext,
    sievemq_test_broker: TestBroker,
    sievemq_clock: BrokerClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = sievemq_context.create_consumer(ORDERS)
    check, checks = Control._check_receivable, []

    def check_and_move(self: Control, engine: EngineConsumer) -> None:
        check(self, engine)
        checks.append(engine)
        if len(checks) == 2:  # the receive knows by now when it ends
            sievemq_test_broker.on_server(move)  # the client is informed while the receive is on its way to wait

    def move(server: Server) -> None:
        sievemq_test_broker._adjustable.advance(MINUTE)
        server.clock_moved()

    monkeypatch.setattr(Control, "_check_receivable", check_and_move)
    assert in_thread(lambda: consumer.receive(MINUTE)).result(SOON) is None
    assert len(checks) == 2


def test_a_clock_set_back_extends_no_deadline(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    consumer = sievemq_context.create_consumer(ORDERS)
    received = in_thread(lambda: consumer.receive(MINUTE))
    sievemq_namespace.queue("orders").assert_awaited(within=SOON)
    sievemq_clock.set(datetime(2001, 1, 1, tzinfo=UTC))
    assert not received.done()
    sievemq_clock.advance(milliseconds=MINUTE)
    assert received.result(SOON) is None


def test_a_receive_that_begins_afterwards_has_all_its_time(
    sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    sievemq_context.create_producer().set_delivery_delay(HOUR).send(ORDERS, "later")
    consumer = sievemq_context.create_consumer(ORDERS)
    sievemq_clock.advance(milliseconds=HOUR)
    assert consumer.receive_body(str, 60_000) == "later"


# -- heartbeats -------------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_ends_no_connection(sievemq_context: JMSContext, sievemq_clock: BrokerClock) -> None:
    # Who answers is not silent: a day that a test skips is no day of silence.
    for seconds in (86_400, 86_400 * 365):
        sievemq_clock.advance(seconds=seconds)
        sievemq_context.create_producer().send(ORDERS, "x")
        assert sievemq_context.create_consumer(ORDERS).receive(60_000) is not None


def test_time_skipped_while_the_network_stands_still_is_a_missed_heartbeat(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock: BrokerClock, sievemq_faults: Faults
) -> None:
    lost = ConnectionFactory(sievemq_namespace.url, client_id="lost", reconnect=0)
    context = lost.create_context(JMSContext.CLIENT_ACKNOWLEDGE)
    told: Future[Exception] = Future()
    context.set_exception_listener(told.set_result)
    sievemq_context.create_producer().send(ORDERS, "x")
    assert context.create_consumer(ORDERS).receive(60_000) is not None
    with sievemq_faults.pause_connections("lost"):
        for _ in range(2):
            assert not told.done()
            assert sievemq_namespace.queue("orders").in_flight == 1
            sievemq_clock.advance(seconds=15)  # the heartbeat's interval
        # Both ends have noticed: the message has come back, the listener was called.
        assert sievemq_namespace.queue("orders").in_flight == 0
        lost_connection = told.result(SOON)
        assert isinstance(lost_connection, JMSException)
        assert lost_connection.get_error_code() == "CONNECTION_LOST"
    again = sievemq_context.create_consumer(ORDERS).receive(60_000)  # this connection was not paused
    assert again is not None
    assert again.get_jms_redelivered()
    assert "HEARTBEAT_MISSED" in sievemq_namespace.excerpt()
    context.close()


def test_a_missed_heartbeat_is_repaired(
    sievemq_namespace: TestNamespace, sievemq_context: JMSContext, sievemq_clock: BrokerClock, sievemq_faults: Faults
) -> None:
    restored = threading.Event()

    class Listener(ExceptionListener):
        def on_exception(self, exception: JMSException) -> None:
            raise exception

        def on_connection_restored(self) -> None:
            restored.set()

    connection = ConnectionFactory(sievemq_namespace.url, client_id="lost").create_connection()
    connection.set_exception_listener(Listener())
    consumer = connection.create_session().create_consumer(ORDERS)
    connection.start()
    with sievemq_faults.pause_connections("lost"):
        sievemq_context.create_producer().send(ORDERS, "x")
        sievemq_clock.advance(seconds=86_400)
        assert restored.wait(SOON)
        assert consumer.receive(MINUTE) is not None
    connection.close()


def test_a_client_without_heartbeats_learns_of_the_skip_when_the_network_resumes(
    sievemq_namespace: TestNamespace, sievemq_clock: BrokerClock, sievemq_faults: Faults
) -> None:
    context = ConnectionFactory(sievemq_namespace.url, heartbeat=0, reconnect=0).create_context()
    told: Future[Exception] = Future()
    context.set_exception_listener(told.set_result)
    with sievemq_faults.pause_connections():
        sievemq_clock.advance(seconds=86_400)
        assert not told.done()
    assert "nothing was heard" in str(told.result(SOON))
    context.close()


@pytest.mark.usefixtures("_deaf")
def test_time_skipped_before_the_network_stands_still_is_no_silence(
    sievemq_context: JMSContext, sievemq_clock: BrokerClock, sievemq_faults: Faults
) -> None:
    for _ in range(3):
        with sievemq_faults.pause_connections():
            sievemq_clock.advance(seconds=15)
        sievemq_clock.advance(seconds=15)
    sievemq_context.create_producer().send(ORDERS, "x")
    assert sievemq_context.create_consumer(ORDERS).receive_body(str, 60_000) == "x"


def test_the_fixture_leaves_the_machines_time_behind(sievemq_test_broker: TestBroker) -> None:
    assert abs(sievemq_test_broker.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
    sievemq_test_broker.clock.freeze()
    sievemq_test_broker.clock.advance(seconds=HOUR)
    sievemq_test_broker.reset_clock()
    assert abs(sievemq_test_broker.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
    before = sievemq_test_broker.clock.now()
    deadline = time.monotonic() + 60
    while sievemq_test_broker.clock.now() == before:  # it runs
        assert time.monotonic() < deadline


async def test_with_asyncio(sievemq_aio, sievemq_clock: BrokerClock) -> None:  # type: ignore[no-untyped-def]
    async with sievemq_aio() as context:
        consumer = await context.create_consumer(ORDERS)
        await context.create_producer().set_delivery_delay(HOUR).send(ORDERS, "later")
        await sievemq_clock.advance(milliseconds=HOUR)
        assert await consumer.receive_body(str, 60_000) == "later"


async def test_receive_with_asyncio_ends_when_its_time_was_skipped(sievemq_aio, sievemq_clock: BrokerClock) -> None:  # type: ignore[no-untyped-def]
    async with sievemq_aio() as context:
        consumer = await context.create_consumer(ORDERS)
        for freeze in (False, True):
            if freeze:
                await sievemq_clock.freeze()
            received = asyncio.create_task(consumer.receive(MINUTE))
            await asyncio.sleep(0)
            await sievemq_clock.advance(seconds=30)
            assert not received.done()
            await sievemq_clock.advance(seconds=30)
            assert await asyncio.wait_for(received, SOON) is None


async def test_with_asyncio_what_became_due_is_received(sievemq_aio, sievemq_clock: BrokerClock) -> None:  # type: ignore[no-untyped-def]
    async with sievemq_aio() as context:
        consumer = await context.create_consumer(ORDERS)
        await context.create_producer().set_delivery_delay(MINUTE // 2).send(ORDERS, "in time")
        received = asyncio.create_task(consumer.receive_body(str, MINUTE))
        await asyncio.sleep(0)
        await sievemq_clock.advance(milliseconds=MINUTE)
        assert await asyncio.wait_for(received, SOON) == "in time"
