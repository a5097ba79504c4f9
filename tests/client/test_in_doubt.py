"""Calls that are broken off while the broker's answer is held back, over both APIs (D-41, D-42)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import sievemq.aio
import sievemq.aio.taps
import sievemq.taps
from sievemq import (
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    Queue,
    TextMessage,
    Topic,
    TransactionRolledBackException,
)
from sievemq.blocking.transport import CAN_LEAD
from sievemq_broker import EmbeddedBroker

from .both import SOON, Api, text
from .relay import Relay, options

TRANSACTED = Api.SESSION_TRANSACTED


@pytest.fixture
def relay(api: Api) -> Iterator[Relay]:
    with Relay(api.broker.port) as relay:
        yield relay


@contextmanager
def impatient(session: Any) -> Iterator[None]:
    """Requests have hardly any time, as with a short option request_timeout."""
    transport = session._transport
    before = transport._patience
    if isinstance(before, int) and transport._limiting is not None:  # the timer of asyncio is set for the usual time
        transport._limiting.cancel()
        transport._limiting = None
        transport._limits.clear()
    transport._patience = 20 if isinstance(before, int) else 0.02
    try:
        yield
    finally:
        transport._patience = before


async def time_out(session: Any, call: Any) -> None:
    with impatient(session), pytest.raises(JMSException, match="request_timeout") as failure:
        await call
    assert failure.value.get_error_code() == "TIMEOUT"


@pytest.mark.parametrize("mode", [Api.CLIENT_ACKNOWLEDGE, Api.SESSION_TRANSACTED])
async def test_ack_08_recover_again_after_a_timeout_redelivers_once_and_in_order(
    api: Api, relay: Relay, mode: int
) -> None:
    await api.fill("q", "0", "1", "2", "3")
    session = await (await api.connect(url=relay.url(api.url), **options())).create_session(mode)
    consumer = await session.create_consumer(api.queue("q"))
    assert text(await consumer.receive(SOON)) == "0"
    back = session.rollback if mode == api.SESSION_TRANSACTED else session.recover
    relay.keep(1)
    await time_out(session, back())
    assert await consumer.receive(1) is None
    await time_out(session, back())
    relay.release()
    await back()
    assert await api.outlines(consumer, 4) == [("0", True, 2), *((number, False, 1) for number in "123")]
    assert await consumer.receive_no_wait() is None


@pytest.mark.parametrize("kind", ["queue", "durable"])
@pytest.mark.parametrize("lost", [True, False])
async def test_d_42_a_consumer_that_timed_out_takes_nothing(api: Api, relay: Relay, kind: str, lost: bool) -> None:
    connection = await api.connect(url=relay.url(api.url), client_id=f"me-{api.namespace}", **options())
    session = await connection.create_session()
    destination = api.queue("q") if kind == "queue" else Topic("t")

    def create() -> Any:
        if kind == "queue":
            return session.create_consumer(destination)
        return session.create_durable_consumer(destination, "s")

    relay.keep(1)
    await time_out(session, create())
    if lost:
        relay.cut()
    relay.release()
    consumer = await create()
    await api.fill(destination, *map(str, range(40)))
    assert await api.texts(consumer, 40) == list(map(str, range(40)))


async def test_d_42_a_consumer_that_timed_out_during_an_outage_is_never_opened(api: Api, relay: Relay) -> None:
    connection = await api.connect(url=relay.url(api.url), client_id=f"me-{api.namespace}", **options())
    session = await connection.create_session()
    relay.refuse()
    relay.cut()
    for _ in range(2):
        await time_out(session, session.create_durable_consumer(Topic("t"), "s"))
    relay.accept()
    consumer = await session.create_durable_consumer(Topic("t"), "s")
    await consumer.close()
    await session.unsubscribe("s")


@pytest.mark.parametrize("arrives", [True, False])
async def test_d_42_a_subscription_whose_answer_is_lost_with_the_connection_is_deleted(
    api: Api, relay: Relay, arrives: bool
) -> None:
    connection = await api.connect(url=relay.url(api.url), client_id=f"me-{api.namespace}", **options())
    session = await connection.create_session()
    relay.keep(1 if arrives else 0)
    await time_out(session, session.create_durable_consumer(Topic("t"), "s"))
    if arrives:
        await asyncio.get_running_loop().run_in_executor(None, relay.until_kept, 1)
    relay.cut()
    relay.release()
    await session.create_consumer(api.queue("q"))
    with pytest.raises(InvalidDestinationException):
        await session.unsubscribe("s")


@pytest.mark.parametrize("tries", [1, 2])
async def test_d_42_a_tap_whose_calls_all_timed_out_is_deleted(api: Api, relay: Relay, tries: int) -> None:
    connection = await api.connect(url=relay.url(api.url), **options())
    session = await connection.create_session()
    relay.keep(1)
    for _ in range(tries):
        await time_out(session, in_its_world(connection, sievemq.taps.open_tap, sievemq.aio.taps.open_tap))
    relay.release()
    await session.create_consumer(api.queue("q"))
    with pytest.raises(JMSException) as told:
        await in_its_world(connection, sievemq.taps.find_tap, sievemq.aio.taps.find_tap)
    assert told.value.get_error_code() == "NOT_FOUND"


async def in_its_world(connection: Any, blocking: Any, aio: Any) -> Any:
    """Call a function about the tap t of the queue q."""
    if isinstance(connection, sievemq.aio.Connection):
        return await aio(connection, "t", Queue("q"))
    return await asyncio.get_running_loop().run_in_executor(None, blocking, connection._object, "t", Queue("q"))


# -- a commit in doubt: cancelled, or interrupted by a signal handler ------------------------------------------------


class Interrupted(BaseException):
    """Raised by the signal handler."""


async def cancel_held(relay: Relay, call: Any, direction: int) -> None:
    """Cancel a call once its request, or the answer to that, is held."""
    task = asyncio.ensure_future(call)
    await asyncio.get_running_loop().run_in_executor(None, relay.until_kept, direction)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("verb", ["commit", "rollback", "receive"])
async def test_txn_09_the_next_call_tells_what_became_of_a_cancelled_commit(
    both_broker: EmbeddedBroker, arrives: bool, verb: str
) -> None:
    url = both_broker.namespace(f"cancelled-{arrives}-{verb}").url
    queue = Queue("q")
    with Relay(both_broker.port) as relay:
        async with sievemq.aio.ConnectionFactory(relay.url(url), **options()).create_connection() as connection:
            await connection.start()
            session = await connection.create_session(TRANSACTED)
            producer, consumer = await session.create_producer(queue), await session.create_consumer(Queue("other"))
            await producer.send(TextMessage("A"))
            control = session._control
            await control.transport.wait(control.transport.call(control.engine.sends.settled))
            await session.create_consumer(Queue("other"))  # everything before it is answered
            relay.keep(1 if arrives else 0)
            await cancel_held(relay, session.commit(), 1 if arrives else 0)
            await producer.send(TextMessage("B"))
            relay.cut()
            relay.release()
            call = {"commit": session.commit, "rollback": session.rollback, "receive": consumer.receive_no_wait}[verb]
            if arrives and verb != "commit":
                await call()
                await session.rollback()
            else:
                with pytest.raises(TransactionRolledBackException) as told:
                    await call()
                assert told.value.committed == (1 if arrives else 0)
            await producer.send(TextMessage("C"))
            await session.commit()
    assert left(url) == (["A", "C"] if arrives else ["C"])


@pytest.mark.skipif(not CAN_LEAD, reason="the waiting thread does not read on this platform")
@pytest.mark.parametrize("arrives", [True, False])
def test_txn_09_the_next_commit_tells_what_became_of_an_interrupted_one(
    both_broker: EmbeddedBroker, arrives: bool
) -> None:
    url = both_broker.namespace(f"interrupted-{arrives}").url
    me, direction = threading.get_ident(), 1 if arrives else 0

    def interrupt(*_: object) -> None:
        raise Interrupted

    def director() -> None:
        relay.until_kept(direction)
        while context._connection._transport.lead.thread != me:  # before that it would break into the engine
            os.sched_yield()
        signal.pthread_kill(me, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with (
            Relay(both_broker.port) as relay,
            ConnectionFactory(relay.url(url), **options()).create_context(TRANSACTED) as context,
        ):
            producer = context.create_producer()
            producer.send(Queue("q"), "A")
            transport, sends = context._connection._transport, context._session._engine.sends
            transport.wait(transport.call(sends.settled))
            context.create_consumer(Queue("other"))  # everything before it is answered
            relay.keep(direction)
            thread = threading.Thread(target=director)
            thread.start()
            with pytest.raises(Interrupted):
                context.commit()
            thread.join()
            producer.send(Queue("q"), "B")
            relay.cut()
            relay.release()
            with pytest.raises(TransactionRolledBackException) as told:
                context.commit()
            assert told.value.committed == (1 if arrives else 0)
            producer.send(Queue("q"), "C")
            context.commit()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert left(url) == (["A", "C"] if arrives else ["C"])


def left(url: str) -> list[str | None]:
    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(Queue("q"))
        found: list[str | None] = []
        while (message := consumer.receive_no_wait()) is not None:
            found.append(message.get_body(str))
        return found
