"""A cancelled opening leaves nothing behind at the broker, and no connection that nothing refers to."""

from __future__ import annotations

import asyncio

import pytest

from sievemq import Topic
from sievemq.aio import Connection, ConnectionFactory
from sievemq.aio.transport import Transport
from sievemq_core.wire.commands import Command

from .conftest import Connect
from .scripted import ScriptedBroker, scripted, until


async def test_con_11_a_connect_cancelled_in_the_turn_in_which_it_succeeds_is_not_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def welcomed(transport: Transport, data: bytes) -> None:
        received(transport, data)
        task.cancel()

    received = Transport.data_received
    monkeypatch.setattr(Transport, "data_received", welcomed)
    async with scripted() as broker:
        task = asyncio.create_task(ConnectionFactory(broker.url).create_context())
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: broker.transport.is_closing())
        assert broker.count(Command.HELLO) == 1
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "sievemq-reconnect"]


async def test_sub_14_a_cancelled_create_is_taken_back_before_the_next(
    linked: Connection, broker: ScriptedBroker
) -> None:
    session = await linked.create_session()
    broker.silent.add(Command.OPEN_CONSUMER)
    cancelled = asyncio.create_task(session.create_shared_durable_consumer(Topic("t"), "s", "a = 1"))
    opening = await broker.until(Command.OPEN_CONSUMER)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    again = asyncio.create_task(session.create_shared_durable_consumer(Topic("t"), "s", "a = 2"))
    leaving = asyncio.create_task(session.unsubscribe("other"))
    await linked.create_session()  # what the two would have said by now was heard before this
    assert broker.count(Command.OPEN_CONSUMER) == 1
    assert broker.count(Command.UNSUBSCRIBE) == 0
    broker.silent.clear()
    broker.say(Command.OK, opening[1], None)
    await again
    heard = [command[0] for command in broker.heard if command[0] in (Command.OPEN_CONSUMER, Command.CLOSE_CONSUMER)]
    assert heard == [Command.OPEN_CONSUMER, Command.CLOSE_CONSUMER, Command.OPEN_CONSUMER]
    broker.say(Command.OK, (await broker.until(Command.UNSUBSCRIBE))[1], None)
    await leaving


@pytest.mark.parametrize("turns", range(1, 8))
async def test_sub_11_a_durable_subscription_is_free_after_a_cancelled_create(connect: Connect, turns: int) -> None:
    session = await (await connect(client_id="cancelled")).create_session()
    task = asyncio.create_task(session.create_durable_consumer(Topic("t"), "s"))
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        await (await task).close()
    await (await session.create_durable_consumer(Topic("t"), "s")).close()
    await session.unsubscribe("s")
