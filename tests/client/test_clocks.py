"""Clients whose clock differs from the broker's, and brokers whose clock stands still, in both APIs."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from sievemq import Message
from sievemq_testing import TestBroker

from .both import SOON, Api, text

HOUR = 3_600_000


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    """Connections that are opened from here on are of a machine whose clock is ahead by so many ms."""

    def wall_clock() -> int:
        return time.time_ns() // 1_000_000 + ahead

    for front in ("aio", "blocking"):
        monkeypatch.setattr(f"sievemq.{front}.connect.wall_clock", wall_clock)


@pytest.mark.parametrize("ahead", [-HOUR, -2_000, 2_000, HOUR])
async def test_a_consumer_whose_clock_is_wrong_gets_what_lives(
    api: Api, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    await api.fill("orders", "lives for ever")
    async with await api.factory().create_context() as right:
        await right.create_producer().set_time_to_live(600_000).send(api.queue("orders"), "lives")
        set_clock(monkeypatch, ahead)
        context = await api.context()
        consumer = await context.create_consumer(api.queue("orders"))
        assert await api.texts(consumer, 2) == ["lives for ever", "lives"]
        heard = api.listener()
        (await context.create_consumer(api.queue("more"))).set_message_listener(heard)
        await right.create_producer().set_time_to_live(600_000).send(api.queue("more"), "lives, too")
        assert [text(message) for message in await heard.arrived(1)] == ["lives, too"]


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_times_that_a_client_sets_are_the_brokers(api: Api, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    set_clock(monkeypatch, ahead)
    context = await api.context()
    sent_at = time.time_ns() // 1_000_000
    await context.create_producer().set_time_to_live(600_000).send(api.queue("orders"), "x")
    message = await (await context.create_consumer(api.queue("orders"))).receive(SOON)
    assert abs(message.get_jms_timestamp() - sent_at) < 60_000
    assert message.get_jms_expiration() == message.get_jms_timestamp() + 600_000


async def test_a_consumer_that_gives_a_message_back_as_expired_does_not_get_it_in_a_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of its machine is set forward after the connection was opened."""
    broker = TestBroker().start()
    api._own.append(broker)
    api.broker = broker
    ahead = 0

    def wall_clock() -> int:
        return time.time_ns() // 1_000_000 + ahead

    for front in ("aio", "blocking"):
        monkeypatch.setattr(f"sievemq.{front}.connect.wall_clock", wall_clock)
    context = await api.context()
    consumer = await context.create_consumer(api.queue("orders"))
    async with await api.factory().create_context() as right:
        await right.create_producer().set_time_to_live(600_000).send(api.queue("orders"), "first")
        ahead = HOUR
        receiving = api.task(consumer.receive(SOON))
        waiting = broker.namespace(api.namespace).queue("orders")
        await api._until(lambda: len(waiting.scheduled()) == 1)  # it waits
        ahead = 0
        await broker.clock.advance(seconds=2)
        assert text(await receiving) == "first"


async def test_nothing_expires_while_the_clock_is_frozen(api: Api) -> None:
    api.start_broker()
    context = await api.context()
    consumer = await context.create_consumer(api.queue("orders"))
    producer = context.create_producer()
    await api.broker.clock.freeze()
    before = await context.create_producer().set_time_to_live(1).send(api.queue("orders"), "one")
    assert before is not None
    producer.set_time_to_live(1)
    await producer.send(api.queue("orders"), "two")
    other = await api.context()  # connected while it is frozen
    await other.create_producer().set_time_to_live(1).send(api.queue("orders"), "three")
    began = time.monotonic_ns()
    await api._until(lambda: time.monotonic_ns() > began + 20_000_000)  # far longer than they live
    assert await api.texts(consumer, 3) == ["one", "two", "three"]
    await other.create_producer().set_time_to_live(1).send(api.queue("orders"), "four")
    await api.broker.clock.advance(milliseconds=1)
    assert await consumer.receive_no_wait() is None
    assert await api.left() == []


async def test_a_receive_that_begins_after_the_clock_was_moved_is_not_shortened(api: Api) -> None:
    """Its connection was lost, and learns of the step when it is repaired."""
    broker = TestBroker().start()
    api._own.append(broker)
    api.broker = broker
    context = await api.context()
    consumer = await context.create_consumer(api.queue("orders"))
    await context.create_producer().set_delivery_delay(timedelta(hours=1)).send(api.queue("orders"), "delayed")
    broker.faults.drop_connections()
    await broker.clock.advance(timedelta(hours=1))
    assert text(await consumer.receive(SOON)) == "delayed"


async def test_a_receive_that_the_clock_ends_gets_what_became_due(api: Api) -> None:
    """Its connection is lost before the step, and repaired after it."""
    broker = TestBroker().start()
    api._own.append(broker)
    api.broker = broker
    context = await api.context()
    consumer: Any = await context.create_consumer(api.queue("orders"))
    await context.create_producer().set_delivery_delay(timedelta(hours=1)).send(api.queue("orders"), "delayed")
    receives = [api.task(consumer.receive(HOUR - 1))]
    await api.until_receiving(consumer)
    broker.faults.drop_connections()
    await broker.clock.advance(timedelta(hours=1))
    messages: list[Message | None] = [await receive for receive in receives]
    assert [text(message) for message in messages] == ["delayed"]
