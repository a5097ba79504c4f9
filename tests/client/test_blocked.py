"""Limits at which senders wait, as an application sees them: blocked, timed out, withdrawn, let go again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sievemq import (
    DeliveryMode,
    JMSException,
    ResourceAllocationException,
    ResourceAllocationRuntimeException,
    TextMessage,
    TransactionRolledBackException,
)

from .both import Api, Completions, text
from .bridge import engine_of
from .relay import Relay

RULES = {"full": {"max_messages": 2, "at_limit": "block"}}


async def start(api: Api) -> None:
    """A broker where the queue "full" holds two messages, and has them."""
    api.start_broker(settings={"destinations": RULES})
    await api.fill("full", "a", "b")


def succeeded(completions: Completions) -> list[str | None]:
    return [text(message) for message, error in completions.outcomes if error is None]


def failed(completions: Completions) -> list[tuple[str | None, Exception]]:
    return [(text(message), error) for message, error in completions.outcomes if error is not None]


class Flow:
    """An exception listener that receives of limits."""

    def __init__(self, api: Api) -> None:
        self.blocked, self.unblocked = api.signal(), api.signal()
        self.told: list[tuple[str | None, str | None]] = []
        self.errors: list[JMSException] = []
        self.failed = api.signal()

    def on_exception(self, exception: JMSException) -> None:
        self.errors.append(exception)
        self.failed.set()

    def on_blocked(self, destination: str | None, reason: str) -> None:
        self.told.append((destination, reason))
        self.blocked.set()

    def on_unblocked(self, destination: str | None) -> None:
        self.told.append((destination, None))
        self.unblocked.set()


async def test_an_application_is_notified_when_it_is_blocked_and_unblocked(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    await start(api)
    connection, flow = await api.connect(), Flow(api)
    connection.set_exception_listener(flow)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue("full"))
    assert connection.blocked == ()
    sending = api.task(producer.send(TextMessage("c")))
    await flow.blocked.wait()
    ((destination, reason),) = connection.blocked
    assert destination == "queue:full"
    assert "may hold 2 messages" in reason
    assert any("may hold 2 messages" in record.getMessage() for record in caplog.records)
    assert not sending.done()
    # Another session of the same connection goes on, and makes the room.
    consumer = await (await connection.create_session()).create_consumer(api.queue("full"))
    assert await api.texts(consumer, 3) == ["a", "b", "c"]
    await sending
    await flow.unblocked.wait()
    assert connection.blocked == ()
    assert flow.told == [("queue:full", reason), ("queue:full", None)]
    assert not flow.errors


async def test_a_listener_with_only_on_exception_gets_no_other_call(api: Api) -> None:
    await start(api)
    connection = await api.connect()
    heard: list[Exception] = []
    connection.set_exception_listener(heard.append)
    producer = await (await connection.create_session()).create_producer(api.queue("full"))
    sending = api.task(producer.send(TextMessage("c")))
    await api._until(lambda: bool(connection.blocked))
    consumer = await (await connection.create_session()).create_consumer(api.queue("full"))
    assert await api.texts(consumer, 3) == ["a", "b", "c"]
    await sending
    assert not heard


async def test_a_send_that_waits_longer_than_send_timeout_is_withdrawn(api: Api) -> None:
    await start(api)
    connection = await api.connect(send_timeout=30_000)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue("full"))
    assert producer.get_send_timeout() == 30_000
    sending = api.task(producer.send(TextMessage("late")))
    await api._until(lambda: bool(connection.blocked))
    await api.broker.clock.advance(seconds=29)
    assert not sending.done()
    await api.broker.clock.advance(seconds=1.5)
    with pytest.raises(ResourceAllocationException, match=r"may hold 2 messages.*30000 ms.*not sent") as caught:
        await sending
    assert caught.value.get_error_code() == "SEND_TIMEOUT"
    assert connection.blocked == ()
    # The message is nowhere, the session goes on, in order.
    consumer = await session.create_consumer(api.queue("full"))
    assert await api.texts(consumer, 2) == ["a", "b"]
    await producer.send(TextMessage("next"))
    assert await api.texts(consumer, 1) == ["next"]
    assert await consumer.receive_no_wait() is None


async def test_each_producer_may_have_its_own_send_timeout(api: Api) -> None:
    await start(api)
    context = await api.context(send_timeout=3_600_000)
    producer = context.create_producer().set_send_timeout(1_000)
    assert producer.get_send_timeout() == 1_000
    sending = api.task(producer.send(api.queue("full"), "late"))
    await api._until(lambda: bool(context.blocked))
    await api.broker.clock.advance(seconds=2)
    with pytest.raises(ResourceAllocationRuntimeException, match="1000 ms"):
        await sending
    session = await api.session()
    classic = await session.create_producer(api.queue("full"))
    assert classic.get_send_timeout() == 0
    with pytest.raises(JMSException, match="send timeout"):
        classic.set_send_timeout(-1)


async def test_an_asynchronous_send_that_waits_too_long_fails_and_the_next_one_succeeds(api: Api) -> None:
    await start(api)
    connection = await api.connect(send_timeout=10_000)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue("full"))
    completions = api.completions()
    await producer.send(TextMessage("late"), completion_listener=completions)
    await api._until(lambda: bool(connection.blocked))
    with pytest.raises(ResourceAllocationException, match="behind others"):
        waiting = api.task(producer.send(TextMessage("later"), completion_listener=completions))
        await api._until(lambda: bool(engine_of(producer).sends.window_waiters))
        await api.broker.clock.advance(seconds=11)
        await waiting  # its turn has not come: it has failed before it was sent (CPL-03)
    await api._until(lambda: bool(failed(completions)))
    ((name, error),) = failed(completions)
    assert name == "late"
    assert isinstance(error, ResourceAllocationException)
    consumer = await (await api.session()).create_consumer(api.queue("full"))
    assert await api.texts(consumer, 2) == ["a", "b"]
    await producer.send(TextMessage("next"), completion_listener=completions)
    assert await api.texts(consumer, 1) == ["next"]
    await producer.close()
    assert succeeded(completions) == ["next"]


async def test_a_commit_that_waits_longer_than_send_timeout_is_rolled_back(api: Api) -> None:
    await start(api)
    connection = await api.connect(send_timeout=5_000)
    session = await connection.create_session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(None)
    await producer.send(api.queue("elsewhere"), TextMessage("x"))
    await producer.send(api.queue("full"), TextMessage("y"))
    committing = api.task(session.commit())
    await api._until(lambda: bool(connection.blocked))
    await api.broker.clock.advance(seconds=6)
    with pytest.raises(TransactionRolledBackException, match="may hold 2 messages"):
        await committing
    assert connection.blocked == ()
    assert await api.left("full") == ["a", "b"]
    assert await api.left("elsewhere") == []
    await producer.send(api.queue("elsewhere"), TextMessage("z"))
    await session.commit()
    assert await api.left("elsewhere") == ["z"]


async def test_a_withdrawn_send_is_not_repeated_after_a_lost_connection(api: Api) -> None:
    await start(api)
    connection, flow = await api.connect(send_timeout=5_000), Flow(api)
    restored = api.signal()
    flow.on_connection_restored = restored.set  # type: ignore[attr-defined]
    connection.set_exception_listener(flow)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue("full"))
    sending = api.task(producer.send(TextMessage("late")))
    await flow.blocked.wait()
    await api.broker.clock.advance(seconds=6)
    with pytest.raises(ResourceAllocationException):
        await sending
    await cut(api)
    await restored.wait()
    consumer = await (await api.session()).create_consumer(api.queue("full"))
    assert await api.texts(consumer, 2) == ["a", "b"]
    await producer.send(TextMessage("c"))
    assert await api.texts(consumer, 1) == ["c"]
    assert await consumer.receive_no_wait() is None


async def test_blocked_sends_are_repeated_after_a_lost_connection_and_accepted_once(api: Api) -> None:
    await start(api)
    connection, flow = await api.connect(), Flow(api)
    restored = api.signal()
    flow.on_connection_restored = restored.set  # type: ignore[attr-defined]
    connection.set_exception_listener(flow)
    producer = await (await connection.create_session()).create_producer(api.queue("full"))
    sending = api.task(producer.send(TextMessage("c")))
    await flow.blocked.wait()
    await cut(api)
    await restored.wait()
    await api._until(lambda: bool(connection.blocked))
    consumer = await (await api.session()).create_consumer(api.queue("full"))
    assert await api.texts(consumer, 3) == ["a", "b", "c"]
    await sending
    assert await consumer.receive_no_wait() is None


async def cut(api: Api) -> None:
    """The network of every connection to the broker fails."""
    await asyncio.to_thread(api.broker.drop_connections)


async def test_asynchronous_sends_are_accepted_before_the_session_ends(api: Api) -> None:
    await start(api)
    connection = await api.connect()
    session = await connection.create_session()
    producer = await session.create_producer(api.queue("full"))
    await producer.send(TextMessage("c"), delivery_mode=DeliveryMode.NON_PERSISTENT)
    closing = api.task(connection.close())
    consumer = await (await api.session()).create_consumer(api.queue("full"))
    assert await api.texts(consumer, 3) == ["a", "b", "c"]
    await closing


async def test_sends_without_room_at_the_end_of_the_session_are_reported(api: Api) -> None:
    await start(api)
    connection, flow = await api.connect(send_timeout=50), Flow(api)
    connection.set_exception_listener(flow)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue("full"))
    await producer.send(TextMessage("c"), delivery_mode=DeliveryMode.NON_PERSISTENT)
    await session.close()
    await flow.failed.wait()
    assert "lost: 1 message that" in str(flow.errors[0])
    assert await api.left("full") == ["a", "b"]
    assert connection.blocked == ()


async def test_a_window_of_sends_is_admitted_in_order_at_a_small_limit(api: Api) -> None:
    """Far more are on their way than fit: they are resent, a few at a time, and none is taken twice."""
    api.start_broker(settings={"destinations": {"full": {"max_messages": 20, "at_limit": "block"}}})
    session = await api.session()
    producer = await session.create_producer(api.queue("full"))
    completions = api.completions()
    count = 1_500

    async def flood() -> None:
        for number in range(count):
            await producer.send(TextMessage(str(number)), completion_listener=completions)

    sending = api.task(flood())
    consumer = await (await api.session()).create_consumer(api.queue("full"))
    assert await api.texts(consumer, count) == [str(number) for number in range(count)]
    await sending
    await producer.close()
    assert len(succeeded(completions)) == count
    assert await consumer.receive_no_wait() is None


async def test_the_brokers_own_limit_blocks_everybody(api: Api) -> None:
    api.start_broker()
    connection, flow = await api.connect(send_timeout=5_000), Flow(api)
    connection.set_exception_listener(flow)
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    await asyncio.to_thread(lambda: api.broker.call(lambda _: api.broker.server.shard.services.flow("memory is short")))
    sending = api.task(producer.send(TextMessage("waits")))
    await flow.blocked.wait()
    assert (None, "memory is short") in connection.blocked
    await api._until(lambda: ("queue:orders", "memory is short") in connection.blocked)
    await api.broker.clock.advance(seconds=6)
    with pytest.raises(ResourceAllocationException, match="memory is short"):
        await sending
    await asyncio.to_thread(lambda: api.broker.call(lambda _: api.broker.server.shard.services.flow(None)))
    await producer.send(TextMessage("goes"))
    assert connection.blocked == ()
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 1) == ["goes"]


# -- a lost connection ------------------------------------------------------------------------------------------------


@contextmanager
def outage(api: Api) -> Iterator[Relay]:
    """A network that a test cuts."""
    with Relay(api.broker.port) as relay:
        yield relay


async def lose(api: Api, relay: Relay, connection: Any) -> None:
    relay.refuse()
    relay.cut()
    await api._until(lambda: connection._engine.repairing)


async def test_a_send_waits_for_the_repair_of_its_connection_no_longer_than_send_timeout(api: Api) -> None:
    with outage(api) as relay:
        options = {"reconnect": "forever", "send_timeout": 100, "reconnect_max_delay": 20}
        connection = await api.factory(relay.url(api.url), **options).create_connection()
        session = await connection.create_session()
        producer = await session.create_producer(api.queue())
        await lose(api, relay, connection)
        completions = api.completions()
        await producer.send(TextMessage("asynchronous"), completion_listener=completions)
        with pytest.raises(
            ResourceAllocationException, match=r"the connection is lost .*100 ms.*it was not sent$"
        ) as caught:
            await producer.send(TextMessage("late"))
        assert caught.value.get_error_code() == "SEND_TIMEOUT"
        await api._until(lambda: bool(failed(completions)))
        relay.accept()
        producer.set_send_timeout(0)
        await producer.send(TextMessage("next"))
        assert await api.left() == ["next"]
        await connection.close()


async def test_a_send_behind_many_others_waits_no_longer_than_send_timeout_in_an_outage(api: Api) -> None:
    with outage(api) as relay:
        options = {"reconnect": "forever", "send_timeout": 100, "reconnect_max_delay": 20}
        connection = await api.factory(relay.url(api.url), **options).create_connection()
        session = await connection.create_session()
        producer = await session.create_producer(api.queue())
        await lose(api, relay, connection)

        async def flood() -> None:
            for _ in range(100_000):
                await producer.send(TextMessage("x" * 10_000), delivery_mode=DeliveryMode.NON_PERSISTENT)

        with pytest.raises(ResourceAllocationException, match="behind others: it was not sent"):
            await flood()
        await connection.close()


@pytest.mark.parametrize("before", [True, False])
async def test_a_commit_waits_for_the_repair_of_its_connection_no_longer_than_send_timeout(
    api: Api, before: bool
) -> None:
    """Begun before the loss or after it: the next call of the session tells its outcome."""
    with outage(api) as relay:
        options = {"reconnect": "forever", "send_timeout": 300, "reconnect_max_delay": 20}
        connection = await api.factory(relay.url(api.url), **options).create_connection()
        session = await connection.create_session(api.SESSION_TRANSACTED)
        producer = await session.create_producer(api.queue())
        await producer.send(TextMessage("one"))
        if before:
            relay.stand()
            committing = api.task(session.commit())
            await api._until(lambda: session._engine.awaits_answer)
            await lose(api, relay, connection)
        else:
            await lose(api, relay, connection)
            committing = api.task(session.commit())
        with pytest.raises(JMSException, match="send_timeout"):
            await committing
        relay.accept()
        with pytest.raises(TransactionRolledBackException):
            await session.commit()
        await producer.send(TextMessage("two"))
        await session.commit()
        assert await api.left() == ["two"]
        await connection.close()
