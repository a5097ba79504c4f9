"""With the option `busy_poll` the loop polls for an answer before it blocks (decision 0022)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import pytest

from sievemq import Queue
from sievemq.aio import Connection
from sievemq.aio import transport as module

from .conftest import Connect

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_yield"), reason="needs os.sched_yield")

#: Microseconds: long enough for a broker of this very process on a busy machine.
GENEROUS = 10_000
#: Seconds.
SOON = 20.0


class Neighbour:
    """The processor is yielded to it between two polls."""

    times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def neighbour(monkeypatch: pytest.MonkeyPatch) -> Neighbour:
    neighbour = Neighbour()
    monkeypatch.setattr(module, "_give_way", neighbour)
    return neighbour


def ask(connection: Connection) -> Awaitable[object]:
    return connection._transport.ask(connection._engine.ping)


async def ask_until(connection: Connection, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        await ask(connection)


async def test_a_thread_that_waits_for_an_answer_polls(connect: Connect, neighbour: Neighbour) -> None:
    await ask_until(await connect(busy_poll=GENEROUS), lambda: neighbour.times > 0)


async def test_a_receive_after_a_send_polls_for_the_reply(connect: Connect, neighbour: Neighbour) -> None:
    connection = await connect(busy_poll=GENEROUS)
    session = await connection.create_session()
    producer, consumer = await session.create_producer(Queue("q")), await session.create_consumer(Queue("q"))
    await ask_until(connection, lambda: neighbour.times > 0)
    end = time.monotonic() + SOON
    before, number = neighbour.times, 0
    while neighbour.times == before:
        assert time.monotonic() < end, "it does not come about"
        number += 1
        await producer.send(session.create_text_message(str(number)))
        received = await consumer.receive(int(SOON * 1000))
        assert received is not None
        assert received.get_body(str) == str(number)


async def test_by_default_no_caller_polls(connect: Connect, neighbour: Neighbour) -> None:
    connection = await connect()
    for _ in range(300):
        await ask(connection)
    assert not neighbour.times


async def test_the_loop_sleeps_once_no_answer_is_expected(connect: Connect, neighbour: Neighbour) -> None:
    connection = await connect(busy_poll=GENEROUS)
    await ask_until(connection, lambda: neighbour.times > 0)
    transport = connection._transport
    async with asyncio.timeout(SOON):
        while transport._looks:
            await module.turn()
    before = neighbour.times
    for _ in range(50):
        await module.turn()
    assert neighbour.times == before


async def test_a_cancelled_wait_does_not_extend_the_poll(connect: Connect, neighbour: Neighbour) -> None:
    connection = await connect(busy_poll=GENEROUS)
    consumer = await (await connection.create_session()).create_consumer(Queue("nothing"))
    await ask_until(connection, lambda: neighbour.times > 0)
    for _ in range(20):
        receiving = asyncio.ensure_future(consumer.receive())
        await module.turn()
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
    async with asyncio.timeout(SOON):
        while connection._transport._looks:
            await module.turn()
    await ask(connection)
