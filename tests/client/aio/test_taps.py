"""Taps and staged sends with asyncio. That they take the same as the blocking ones is in test_parity.py."""

from __future__ import annotations

import asyncio

import pytest

from sievemq import InvalidSelectorException, JMSException, Queue, TextMessage
from sievemq.aio import Connection, ConnectionFactory, MessageProducer, Session
from sievemq.aio.staging import discard, publish, stage
from sievemq.aio.taps import delete_tap, find_tap, open_tap
from sievemq_core.message.envelope import BODY
from sievemq_core.wire.commands import Command

from .scripted import ScriptedBroker


async def send(producer: MessageProducer, *texts: str) -> None:
    for number, text in enumerate(texts):
        await producer.send(TextMessage(text, properties={"n": number}))


async def waiting(session: Session, queue: Queue) -> list[str | None]:
    return [message.get_body(str) async for message in await session.create_browser(queue)]


async def test_a_tap_is_read_in_pages_until_it_is_acknowledged(
    connection: Connection, producer: MessageProducer, queue: Queue
) -> None:
    await send(producer, "old")
    tap, state = await open_tap(connection, "t", queue, start="earliest", selector="n >= 0", retain_messages=100)
    assert state.made
    await send(producer, *"abcde")
    state = await tap.look(0, messages=4)
    assert (state.upto, state.last) == (4, 6)
    pages = [page async for page in tap.pages(0, state.upto, limit=3)]
    assert [len(page) for page in pages] == [3, 1]
    assert [body for page in pages for body in page.columns[BODY]] == [b"old", b"a", b"b", b"c"]
    assert [page async for page in tap.pages(6, 6)] == []
    assert (await tap.acknowledge(4)).acknowledged == 4
    assert [page.first async for page in tap.pages(0, 6)] == [5]
    found, state = await find_tap(connection, "t", queue)
    assert (found.id, state.first, state.last) == (tap.id, 5, 6)
    assert repr(found) == "<Tap 't' on queue:orders>"
    assert await delete_tap(connection, "t", queue)
    assert not await delete_tap(connection, "t", queue)
    with pytest.raises(JMSException, match="there is no tap 't'") as refused:
        await tap.fetch(0, 1)
    assert refused.value.get_error_code() == "NOT_FOUND"
    with pytest.raises(InvalidSelectorException, match=r"\^"):
        await open_tap(connection, "u", queue, selector="a ANDD b")


async def test_a_drain_consumes_and_finding_it_does_not(
    connection: Connection, session: Session, producer: MessageProducer, queue: Queue
) -> None:
    await send(producer, *"abc")
    tap, _ = await open_tap(connection, "t", queue, "drain")
    await find_tap(connection, "t", queue)
    assert await waiting(session, queue) == ["a", "b", "c"]
    assert (await tap.look(0, messages=2)).upto == 2
    assert await waiting(session, queue) == ["c"]
    await delete_tap(connection, "t", queue)
    assert await waiting(session, queue) == ["a", "b", "c"]


async def test_staged_sends_are_published_once(url: str, connection: Connection, session: Session) -> None:
    queue = Queue("orders")
    async with await ConnectionFactory(url, reconnect=0).create_connection() as other:
        staging = await other.create_session(Session.SESSION_TRANSACTED)
        producer = await staging.create_producer(queue)
        await producer.send(TextMessage("a"))
        name = await stage(staging, "k", 0)
        await producer.send(TextMessage("never"))
        await stage(staging, "k", 1)
    assert await waiting(session, queue) == []
    assert await discard(connection, "k", 1) == 1
    assert await publish(connection, "k", 0, [name]) == 1
    assert await publish(connection, "k", 0, [name]) is None
    assert await waiting(session, queue) == ["a"]


async def test_a_cancelled_open_leaves_no_unread_tap(linked: Connection, broker: ScriptedBroker) -> None:
    """One that was there before stays: the broker is told which request may have made it."""
    broker.silent.add(Command.OPEN_TAP)
    task = asyncio.create_task(open_tap(linked, "t", Queue("q")))
    request = (await broker.until(Command.OPEN_TAP))[1]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    state = {
        "id": "t.1",
        "mode": "copy",
        **dict.fromkeys(("first", "last", "acknowledged", "lost", "missed", "bytes"), 0),
    }
    broker.say(Command.OK, request, {**state, "made": True})
    session = await linked.create_session()  # its answer is read behind that one
    await session.close()  # and this is written behind what came of it
    (undo,) = [command[2:] for command in broker.heard if command[0] == Command.DELETE_TAP]
    assert undo == ("t", "queue:q", request)
