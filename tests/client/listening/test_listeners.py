"""What happens to a message whose listener returns, raises, or cannot take it; in both APIs, over the real broker."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import pytest

from sievemq import JMSContext, Json, MapMessage, Message, Property, Queue, Reject, Retry, TextMessage, Topic
from sievemq.observers import Observer, Source, observe, unobserve
from sievemq_core.message.dead_letters import ATTEMPTS, ERROR
from sievemq_testing import BrokerClock, Faults, TestNamespace

from .conftest import SOON, World


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "sievemq")


@dataclass
class Order:
    number: int
    item: str


@dataclass
class Receipt:
    number: int


class Calls(list[Any]):
    """What a listener was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Semaphore(0)

    def add(self, value: Any) -> None:
        self.append(value)
        self.came.release()

    async def next(self, count: int = 1) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.came.acquire, True, SOON)


def send(context: JMSContext, body: Any = "a chair", queue: str = "orders", **properties: Any) -> None:
    producer = context.create_producer()
    for name, value in properties.items():
        producer.set_property(name, value)
    producer.send(Queue(queue), body)


async def test_a_listener_gets_body_message_and_property(world: World, sievemq_context: JMSContext) -> None:
    app, calls = world.app(), Calls()

    @app.listener("queue:orders")
    def take(order: Order, message: Message, region: Annotated[str, Property()]) -> None:
        calls.add((order, message.get_jms_redelivered(), region))

    async with world.running(app):
        send(sievemq_context, Json({"number": 1, "item": "chair"}), region="EU")
        await world.consumed()
    assert calls == [(Order(1, "chair"), False, "EU")]


async def test_a_coroutine_function_is_a_listener(
    sievemq_context: JMSContext, sievemq_namespace: TestNamespace
) -> None:
    world = World("aio", sievemq_namespace)
    app, calls = world.app(), Calls()

    @app.listener("orders")
    async def take(body: str) -> None:
        await asyncio.sleep(0)
        calls.add(body)

    async with app:
        send(sievemq_context)
        await world.consumed()
    assert calls == ["a chair"]


async def test_a_raising_listener_is_retried_with_a_growing_delay(
    world: World, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    app, calls = world.app(), Calls()

    @app.listener("orders", retries=Retry(attempts=3, delay=timedelta(minutes=1), backoff=10))
    def take(message: Message) -> None:
        calls.add(message.get_int_property("JMSXDeliveryCount"))
        raise ValueError("no such\nproduct")

    async with world.running(app):
        send(sievemq_context)
        for minutes in (1, 10):
            await calls.next()
            await world.scheduled()
            await world.advance(sievemq_clock, timedelta(minutes=minutes) - timedelta(seconds=9))
            await world.scheduled()
            await world.advance(sievemq_clock, timedelta(seconds=9))
        (dead,) = await world.dead(reason="attempts")
    assert calls == [1, 2, 3]
    assert dead.get_string_property(ERROR) == "ValueError: no such product"
    assert dead.get_int_property(ATTEMPTS) == 3


async def test_without_a_rule_that_of_the_destination_holds(world: World, sievemq_context: JMSContext) -> None:
    app, calls = world.app(), Calls()
    world.namespace.queue("orders").configure(max_attempts=2)

    @app.listener("orders")
    def take(message: Message) -> None:
        calls.add(message)
        raise KeyError(1)

    async with world.running(app):
        send(sievemq_context)
        (dead,) = await world.dead(reason="attempts")
    assert len(calls) == 2
    assert dead.get_string_property(ERROR) == "KeyError: 1"


async def test_a_retry_survives_the_restart_of_its_consumer(
    world: World, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    calls = Calls()

    def application() -> Any:
        app = world.app()

        @app.listener("orders", retries=Retry(attempts=2, delay=timedelta(hours=1)))
        def take(message: Message) -> None:
            calls.add(message.get_jms_redelivered())
            raise OSError

        return app

    async with world.running(application()):
        send(sievemq_context)
        await world.scheduled()
    async with world.running(application()):
        await world.advance(sievemq_clock, timedelta(minutes=59))
        await world.scheduled()
        await world.advance(sievemq_clock, timedelta(minutes=1))
        await world.dead(reason="attempts")
    assert calls == [False, True]


@pytest.mark.parametrize("body", ["no JSON", Json({"number": "1"}), Json([1]), b"\xff", MapMessage({"number": 1})])
@pytest.mark.parametrize("transacted", [False, True])
async def test_a_body_that_does_not_fit_is_a_dead_letter_at_once(
    world: World, sievemq_context: JMSContext, body: Any, transacted: bool
) -> None:
    app, calls = world.app(), Calls()

    @app.listener("orders", retries=Retry(attempts=5), transacted=transacted)
    def take(order: Order) -> None:
        calls.add(order)

    async with world.running(app):
        send(sievemq_context, body)
        (dead,) = await world.dead(reason="rejected")
        send(sievemq_context, MapMessage({"number": 2, "item": "table"}))
        await world.consumed()
    assert calls == [Order(2, "table")]
    assert (dead.get_string_property(ERROR) or "").startswith("the body is no Order: ")


async def test_a_listener_can_reject_a_message_for_good(world: World, sievemq_context: JMSContext) -> None:
    app = world.app()

    @app.listener("orders")
    def take(body: str) -> None:
        raise Reject(f"{body} is sold out")

    async with world.running(app):
        send(sievemq_context)
        (dead,) = await world.dead(reason="rejected")
    assert dead.get_string_property(ERROR) == "a chair is sold out"


async def test_a_rejected_dead_letter_does_not_go_round(
    world: World, sievemq_context: JMSContext, sievemq_clock: BrokerClock
) -> None:
    app, calls = world.app(), Calls()

    @app.listener("DLQ.orders")
    def take(body: str) -> None:
        calls.add(body)
        raise Reject

    sievemq_clock.freeze()
    async with world.running(app):
        send(sievemq_context, queue="DLQ.orders")
        await world.scheduled(1, "DLQ.orders")
    assert len(calls) == 1


async def test_a_missing_property_makes_a_dead_letter(world: World, sievemq_context: JMSContext) -> None:
    app, calls = world.app(), Calls()

    @app.listener("orders")
    def take(body: str, amount: Annotated[int, Property("n")], note: Annotated[str | None, Property()]) -> None:
        calls.add((body, amount, note))

    async with world.running(app):
        send(sievemq_context, "none")
        send(sievemq_context, "text", n="many")
        send(sievemq_context, "good", n="7")
        letters = await world.dead(count=2, reason="rejected")
        await world.consumed()
    assert calls == [("good", 7, None)]
    assert letters[0].get_string_property(ERROR) == "the message has no property n"


# -- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transacted", [False, True])
async def test_the_result_is_the_reply(world: World, sievemq_context: JMSContext, transacted: bool) -> None:
    app = world.app()

    @app.listener("orders", transacted=transacted)
    def take(order: Order) -> Receipt:
        return Receipt(order.number)

    async with world.running(app):
        request = TextMessage(Json({"number": 7, "item": "chair"}))
        reply = await asyncio.to_thread(sievemq_context.request, Queue("orders"), request, SOON * 1000)
        await world.consumed()
    assert reply is not None
    assert reply.get_json() == {"number": 7}
    assert reply.get_jms_correlation_id() == request.get_jms_message_id()


@pytest.mark.parametrize("transacted", [False, True])
async def test_results_go_to_a_fixed_destination(world: World, sievemq_context: JMSContext, transacted: bool) -> None:
    app = world.app()

    @app.listener("orders", reply_to="queue:receipts", transacted=transacted)
    def take(body: str) -> str | None:
        return None if body == "quiet" else body.upper()

    async with world.running(app):
        send(sievemq_context, "quiet")
        send(sievemq_context, "loud")
        await world.consumed(count=2)
    assert [each.get_body(str) for each in world.namespace.queue("receipts").messages()] == ["LOUD"]


@pytest.mark.parametrize("send_confirm", ["auto", "always"])
@pytest.mark.parametrize("transacted", [False, True])
async def test_a_reply_that_nobody_waits_for_is_dropped(
    world: World, sievemq_context: JMSContext, transacted: bool, send_confirm: str
) -> None:
    app, calls = world.app(send_confirm=send_confirm), Calls()

    @app.listener("orders", transacted=transacted)
    def take(body: str) -> str:
        calls.add(body)
        return body

    request = TextMessage("a chair")
    temporary = sievemq_context.create_temporary_queue()
    request.set_jms_reply_to(temporary)
    sievemq_context.create_producer().send(Queue("orders"), request)
    temporary.delete()
    async with world.running(app):
        await world.consumed()
        assert app.healthy
    assert calls == ["a chair"]


async def test_a_result_without_a_destination_is_dropped(world: World, sievemq_context: JMSContext) -> None:
    app = world.app()

    @app.listener("orders")
    def take(body: str) -> str:
        return body

    async with world.running(app):
        send(sievemq_context)
        await world.consumed()
    assert world.namespace.destinations == ["queue:orders"]


# -- transactions -----------------------------------------------------------------------------------------------------


async def test_what_is_sent_and_received_commits_together(world: World, sievemq_context: JMSContext) -> None:
    app, calls = world.app(), Calls()
    context_type: Any = world.context

    async def take_in_the_loop(body: str, context: context_type) -> None:
        await context.create_producer().send(Queue("billing"), body)
        calls.add(body)
        if len(calls) == 1:
            raise ValueError

    def take(body: str, context: context_type) -> None:
        context.create_producer().send(Queue("billing"), body)
        calls.add(body)
        if len(calls) == 1:
            raise ValueError

    app.listener("orders", transacted=True, retries=Retry(attempts=2, delay=0))(
        take_in_the_loop if world.awaits else take
    )
    async with world.running(app):
        send(sievemq_context)
        await world.consumed()
    assert len(calls) == 2
    assert world.namespace.queue("billing").depth == 1


async def test_a_refused_commit_is_retried_by_the_rule_of_the_listener(
    world: World, sievemq_context: JMSContext, sievemq_faults: Faults
) -> None:
    app = world.app()

    @app.listener("orders", transacted=True, reply_to="billing", retries=Retry(attempts=2, delay=timedelta(hours=1)))
    def take(body: str) -> str:
        return body

    world.namespace.queue("billing").configure(max_messages=1)
    send(sievemq_context, "first", "billing")
    async with world.running(app):
        send(sievemq_context)
        await world.scheduled()


# -- connections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transacted", [False, True])
async def test_a_connection_lost_amid_a_listener_loses_nothing(
    world: World, sievemq_context: JMSContext, sievemq_faults: Faults, transacted: bool
) -> None:
    app, calls = world.app(), Calls()

    @app.listener("orders", transacted=transacted)
    def take(body: str) -> None:
        calls.add(body)
        if len(calls) == 1:
            sievemq_faults.drop_connections()

    async with world.running(app):
        send(sievemq_context)
        await world.consumed()
    assert 1 <= len(calls) <= 2


async def test_listeners_with_selectors_share_a_queue(world: World, sievemq_context: JMSContext) -> None:
    app, calls = world.app(), Calls()

    @app.listener("orders", selector="region = 'EU'")
    def eu(body: str) -> None:
        calls.add(("EU", body))

    @app.listener("orders", selector="region <> 'EU'", concurrency=3)
    def others(body: str) -> None:
        calls.add(("other", body))

    async with world.running(app):
        send(sievemq_context, "1", region="EU")
        send(sievemq_context, "2", region="US")
        await world.consumed(count=2)
    assert sorted(calls) == [("EU", "1"), ("other", "2")]


async def test_concurrency_works_on_several_messages(
    sievemq_context: JMSContext, sievemq_namespace: TestNamespace
) -> None:
    world = World("blocking", sievemq_namespace)
    app, together = world.app(), threading.Barrier(3, timeout=SOON)

    @app.listener("orders", concurrency=3)
    def take(body: str) -> None:
        together.wait()

    async with world.running(app):
        for _ in range(3):
            send(sievemq_context)
        await world.consumed(count=3)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_subscription_is_shared(world: World, sievemq_context: JMSContext, durable: bool) -> None:
    app, calls = world.app(), Calls()

    @app.listener("topic:prices", subscription="billing", durable=durable, concurrency=2)
    def take(body: str) -> None:
        calls.add(body)

    async with world.running(app):
        sievemq_context.create_producer().send(Topic("prices"), "7")
        await calls.next()
    assert calls == ["7"]
    if durable:
        sievemq_context.unsubscribe("billing")


async def test_observers_are_around_each_call(world: World, sievemq_context: JMSContext) -> None:
    app, calls = world.app(), Calls()

    class Watching(Observer):
        @contextmanager
        def process(self, message: Message, source: Source) -> Iterator[None]:
            calls.append(f"before, at {source.destination}")
            try:
                yield
            except Reject as error:
                calls.append(str(error))
                raise

    @app.listener("orders")
    def take(number: int) -> None:
        """Text is none."""

    observer = Watching()
    observe(observer)
    try:
        async with world.running(app):
            send(sievemq_context, "text")
            await world.dead(reason="rejected")
    finally:
        unobserve(observer)
    assert calls[0] == "before, at queue:orders"
    assert calls[1].startswith("the body is no int: ")


async def test_a_consumer_that_the_broker_ends_ends_the_application(world: World, sievemq_context: JMSContext) -> None:
    app = world.app()

    @app.listener("orders")
    def take(body: str) -> None:
        """Nothing comes."""

    async with world.running(app):
        assert app.healthy
        send(sievemq_context)
        await world.consumed()
        await world.delete("queue:orders")
        await world.until_ending(app)
        assert not app.healthy
        assert "deleted" in str(app._failure)
    assert not app.healthy
