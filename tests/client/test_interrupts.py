"""KeyboardInterrupt at any point of a call of either front, over sockets (decision 0029).

The application catches it and goes on with the same context. It works on; what was confirmed comes once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import sievemq.aio
from sievemq import ConnectionFactory, JMSRuntimeException
from sievemq_broker import EmbeddedBroker

from .interrupts import Interrupts

pytestmark = pytest.mark.needs_python("counts the functions that it interrupts")

SOON = 60_000
#: Every so many points one is tried here, all of them in the slow part.
STRIDE = 29


def check(interrupts: Interrupts, sent: list[str | None], received: list[str | None], left: list[str | None]) -> None:
    """See what became of the messages.

    Args:
        interrupts: what came in between.
        sent: by calls that returned.
        received: and acknowledged, by calls that returned.
        left: what another consumer found afterwards.
    """
    where = interrupts.place
    assert len(left) == len(set(left)), (where, left)
    assert not set(left) & set(received), (where, left, received)
    missing = set(sent) - set(left) - set(received)
    # In AUTO_ACKNOWLEDGE a call that has taken its message, and was interrupted then, has acknowledged it.
    assert len(missing) <= bool(where), (where, missing)


def blocking(url: str, point: int) -> Interrupts:
    """Send three messages, receive two, close the consumer; the interrupt comes somewhere in that."""
    interrupts = Interrupts(point)
    sent: list[str | None] = []
    received: list[str | None] = []
    with ConnectionFactory(url).create_context() as context:
        queue = context.create_queue("q")
        producer, consumer = context.create_producer(), context.create_consumer(queue)
        producer.send(queue, "first")
        assert consumer.receive_body(str, SOON) == "first"

        def steps() -> None:
            for number in range(3):
                producer.send(queue, str(number))
                sent.append(str(number))
            for _ in range(2):
                received.append(consumer.receive_body(str, SOON))
            consumer.close()

        with suppress(KeyboardInterrupt), interrupts.armed():
            steps()
        producer.send(queue, "after")
        sent.append("after")
        with suppress(JMSRuntimeException):
            consumer.close()
    check(interrupts, sent, received, rest(url))
    return interrupts


def asynchronous(url: str, point: int) -> Interrupts:
    """As :func:`blocking`. The exception leaves the loop, which runs again."""
    interrupts = Interrupts(point)
    sent: list[str | None] = []
    received: list[str | None] = []
    with asyncio.Runner() as runner:
        loop = runner.get_loop()

        def run(work: Awaitable[Any]) -> Any:
            return loop.run_until_complete(work)

        context = run(sievemq.aio.ConnectionFactory(url).create_context())
        queue = context.create_queue("q")
        producer = context.create_producer()
        consumer = run(context.create_consumer(queue))
        run(producer.send(queue, "first"))
        assert run(consumer.receive_body(str, SOON)) == "first"

        async def steps() -> None:
            for number in range(3):
                await producer.send(queue, str(number))
                sent.append(str(number))
            for _ in range(2):
                received.append(await consumer.receive_body(str, SOON))
            await consumer.close()

        task = loop.create_task(steps())
        with suppress(KeyboardInterrupt), interrupts.armed():
            loop.run_until_complete(task)
        if not task.done():  # it came in a callback of the loop
            run(asyncio.wait_for(task, SOON / 1000))
        else:
            with suppress(KeyboardInterrupt):
                task.result()

        async def end() -> None:
            await producer.send(queue, "after")
            sent.append("after")
            with suppress(JMSRuntimeException):
                await consumer.close()
            await context.close()

        run(asyncio.wait_for(end(), SOON / 1000))
    check(interrupts, sent, received, rest(url))
    return interrupts


def rest(url: str) -> list[str | None]:
    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(context.create_queue("q"))
        left: list[str | None] = []
        while (message := consumer.receive_no_wait()) is not None:
            left.append(message.get_body(str))
        return left


FRONTS = [pytest.param(blocking, id="blocking"), pytest.param(asynchronous, id="asyncio")]


def sweep(front: Callable[[str, int], Interrupts], first: int, stride: int) -> int:
    """Interrupt at these points; how many were passed until the calls had no further ones."""
    with EmbeddedBroker() as broker:
        point = first
        while front(broker.namespace(f"n{point}").url, point).place:
            point += stride
        return point


@pytest.mark.parametrize("front", FRONTS)
def test_a_front_works_on_after_an_interrupt_anywhere(front: Callable[[str, int], Interrupts]) -> None:
    assert sweep(front, 1, STRIDE) > 300


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("front", FRONTS)
def test_a_front_works_on_after_an_interrupt_at_each_point(front: Callable[[str, int], Interrupts]) -> None:
    assert sweep(front, 1, 1) > 300
