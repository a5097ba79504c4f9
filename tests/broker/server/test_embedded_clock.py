"""The hand on an embedded broker's clock, as a test of an application uses it. No test here waits for time to pass."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from sievemq import ConnectionFactory, aio
from sievemq_broker import EmbeddedBroker, embedded
from sievemq_broker.clock import AdjustableClock
from sievemq_broker.protocols.sieve.connection import SieveConnection
from sievemq_core.wire.commands import Command

from .wire_client import WireClient


@pytest.fixture
def _deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client here reports that it saw the clock's move, so the broker waits for none."""
    monkeypatch.setattr(embedded, "SEEN_SECONDS", 0.05)


def real_ms() -> int:
    return time.time_ns() // 1_000_000


def depth(broker: EmbeddedBroker) -> int:
    return broker.call(lambda b: b.namespace("default").queue("q").depth)


def test_clock_shows_the_machines_time_until_it_is_moved() -> None:
    with EmbeddedBroker() as broker:
        assert abs(broker.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
        moved = broker.clock.advance(seconds=3600)
        assert abs(broker.clock.now() - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)
        assert abs(moved.now - real_ms() - 3_600_000) < 60_000


@pytest.mark.usefixtures("_deaf")
def test_due_work_is_done_when_advance_returns() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        client.open_session()
        for minutes in (10, 20, 30):
            client.send("queue:q", timestamp=real_ms(), expiration=real_ms() + minutes * 60_000)
        client.confirmed()
        broker.clock.advance(seconds=9 * 60)
        assert depth(broker) == 3
        broker.clock.advance(seconds=12 * 60)
        assert depth(broker) == 1
        broker.clock.advance(seconds=3600)
        assert depth(broker) == 0


@pytest.mark.usefixtures("_deaf")
def test_many_messages_have_expired_when_advance_returns() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        client.open_session()
        expiration = real_ms() + 600_000
        for _ in range(5_000):
            client.send("queue:q", expiration=expiration)
        client.confirmed()
        assert depth(broker) == 5_000
        broker.clock.advance(seconds=601)
        assert depth(broker) == 0


def test_advance_waits_until_clients_have_seen_the_new_time() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        import threading

        def answer() -> None:
            clock = client.until(Command.CLOCK)
            client.say(Command.CLOCK_SEEN, clock[1])

        thread = threading.Thread(target=answer)
        thread.start()
        moved = broker.clock.advance(seconds=5)
        thread.join()
        assert moved.seen


@pytest.mark.usefixtures("_deaf")
def test_client_that_does_not_answer_holds_the_call_up_for_a_bounded_time_only() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        moved = broker.clock.advance(seconds=5)
        assert not moved.seen
        assert client.until(Command.CLOCK)[1] == 5_000


def test_new_connection_starts_with_the_offset() -> None:
    with EmbeddedBroker() as broker:
        broker.clock.advance(seconds=5)
        with WireClient(broker.port) as client:
            assert client.welcome[7]["clock_offset"] == 5_000
            assert broker.clock.advance(seconds=0).now


def test_clock_that_was_moved_before_the_start_is_announced() -> None:
    clock = AdjustableClock()
    clock.advance(5_000)
    with EmbeddedBroker(clock=clock) as broker, WireClient(broker.port) as client:
        assert client.welcome[7]["clock_offset"] == 5_000
        assert broker.clock.freeze().now - real_ms() > 4_000


@pytest.mark.usefixtures("_deaf")
def test_client_that_has_not_seen_the_move_yet_is_corrected() -> None:
    # Stamped before the client heard of the move: ten seconds to live are ten seconds by the broker's clock.
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        client.open_session()
        broker.clock.advance(seconds=3600)
        client.send("queue:q", timestamp=real_ms(), expiration=real_ms() + 10_000).confirmed()
        assert depth(broker) == 1
        broker.clock.advance(seconds=11)
        assert depth(broker) == 0


@pytest.mark.usefixtures("_deaf")
def test_frozen_clock_stands_still_also_for_what_clients_stamp() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        client.open_session()
        broker.clock.freeze()
        before = broker.clock.now()
        # The client's clock runs on; its message must expire exactly when the broker's clock has moved that far.
        later = real_ms() + 400
        while real_ms() < later:
            client.request(Command.PING)
        stamp = real_ms()  # once: another look may be a millisecond later
        client.send("queue:q", timestamp=stamp, expiration=stamp + 1_000).confirmed()
        assert broker.clock.now() == before
        assert depth(broker) == 1
        broker.clock.advance(seconds=1)
        assert depth(broker) == 0
        assert broker.clock.now() == before + timedelta(seconds=1)


def test_resume_runs_on() -> None:
    with EmbeddedBroker() as broker:
        broker.clock.freeze()
        frozen = broker.clock.advance(seconds=100).now
        broker.clock.resume()
        deadline = time.monotonic() + 60
        while broker.clock.now() <= datetime.fromtimestamp(frozen / 1000, UTC):
            assert time.monotonic() < deadline
        assert broker.clock.now() - datetime.now(UTC) > timedelta(seconds=90)


def test_set_accepts_any_time_with_a_time_zone() -> None:
    with EmbeddedBroker() as broker:
        noon = datetime(2030, 6, 1, 12, tzinfo=UTC)
        broker.clock.freeze()
        broker.clock.set(noon)
        assert broker.clock.now() == noon
        broker.clock.set(noon - timedelta(days=365))
        assert broker.clock.now() == noon - timedelta(days=365)
        with pytest.raises(ValueError, match="time zone"):
            broker.clock.set(datetime(2030, 6, 1, 12))  # noqa: DTZ001  the mistake is the test


def test_advance_refuses_negative_time() -> None:
    with EmbeddedBroker() as broker, pytest.raises(ValueError, match=r"set\(\)"):
        broker.clock.advance(seconds=-1)


async def test_on_a_running_loop_the_move_is_awaited() -> None:
    async with EmbeddedBroker() as broker:
        moved = await broker.clock.advance(milliseconds=3_600_500)
        assert moved.seen
        assert abs(moved.now - real_ms() - 3_600_500) < 60_000


@pytest.mark.usefixtures("_deaf")
def test_heartbeats_do_not_follow_the_clock() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        broker.clock.advance(seconds=86_400)
        assert client.request(Command.PING)[0] == Command.OK
        ticks = broker.call(lambda _: broker.server.ticks.lag.count)
        deadline = time.monotonic() + 60
        while broker.call(lambda _: broker.server.ticks.lag.count) < ticks + 2:
            assert time.monotonic() < deadline
            client.request(Command.PING)
        assert client.request(Command.PING)[0] == Command.OK


# -- with the SDK -----------------------------------------------------------------------------------------------------


def test_blocking_client_follows_the_clock() -> None:
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        queue = context.create_queue("q")
        consumer, producer = context.create_consumer(queue), context.create_producer()
        assert broker.clock.advance(seconds=3600).seen
        producer.set_time_to_live(5_000).send(queue, "short-lived")
        broker.clock.advance(seconds=6)
        assert consumer.receive_no_wait() is None
        producer.set_time_to_live(0).set_delivery_delay(60_000).send(queue, "late")
        assert consumer.receive_no_wait() is None
        broker.clock.advance(seconds=60)
        assert consumer.receive_body_no_wait(str) == "late"


def test_frozen_clock_expires_to_the_millisecond_for_the_blocking_client() -> None:
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        queue = context.create_queue("q")
        broker.clock.freeze()
        context.create_producer().set_time_to_live(1_000).send(queue, "x")
        assert depth(broker) == 1
        broker.clock.advance(milliseconds=1_000)
        assert depth(broker) == 0


def next_millisecond() -> None:
    begun = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == begun:
        pass


@pytest.mark.needs_python("replaces a method")
def test_times_of_a_message_sent_while_the_clock_stands_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the broker needs to stop the clock, and the message to arrive."""
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        queue = context.create_queue("q")
        timers = broker.server.timers
        moved = timers.moved
        monkeypatch.setattr(type(timers), "moved", lambda self: (next_millisecond(), moved()))
        frozen = broker.clock.freeze().now
        assert broker.clock.freeze().seen
        next_millisecond()
        receive = SieveConnection.receive_data
        monkeypatch.setattr(
            SieveConnection, "receive_data", lambda self, data, now: (next_millisecond(), receive(self, data, now))[1]
        )
        for _ in range(3):
            next_millisecond()
            context.create_producer().set_time_to_live(1_000).send(queue, "x")
        for message in context.create_browser(queue):
            assert message.get_jms_timestamp() == frozen
            assert message.get_jms_expiration() == frozen + 1_000
        broker.clock.advance(milliseconds=999)
        assert depth(broker) == 3
        broker.clock.advance(milliseconds=1)
        assert depth(broker) == 0


async def test_asyncio_client_on_the_same_loop_follows_the_clock() -> None:
    async with EmbeddedBroker() as broker, await aio.ConnectionFactory(broker.url).create_context() as context:
        queue = context.create_queue("q")
        moved = await broker.clock.advance(seconds=3600)
        assert moved.seen
        await context.create_producer().set_time_to_live(5_000).send(queue, "short-lived")
        assert depth(broker) == 1
        await broker.clock.advance(seconds=6)
        assert depth(broker) == 0
