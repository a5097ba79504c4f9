"""What a listener costs beside the loop that it takes the place of, per message, in processor time of the client.

    python -m benchmarks.listening [--messages 10000] [--pairs 15]

Blocks of both follow each other in one process, and the median of the pairs' ratios counts: on a busy machine the same
happens to both. The loop does what a careful one does, and no more: it acknowledges by itself, and checks no types.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.macro.processes import Broker
from sievemq import ConnectionFactory, DeliveryMode, Json, Listeners, Queue, aio

ORDERS = Queue("orders")


@dataclass
class Order:
    """A body."""

    number: int
    item: str
    price: float


class Work:
    """What is done with the messages of a block: they are counted.

    Args:
        done: called with the last one.
    """

    def __init__(self, messages: int, done: Callable[[], None]) -> None:
        self.left = messages
        self._done = done

    def order(self, order: Order) -> None:
        assert order.price == 9.5
        self.left -= 1
        if not self.left:
            self._done()

    def text(self, body: str) -> None:
        assert body
        self.left -= 1
        if not self.left:
            self._done()

    async def order_in_task(self, order: Order) -> None:
        assert order.price == 9.5
        self.left -= 1
        if not self.left:
            self._done()

    async def text_in_task(self, body: str) -> None:
        assert body
        self.left -= 1
        if not self.left:
            self._done()


def fill(url: str, messages: int) -> None:
    with ConnectionFactory(url).create_context() as context:
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        for number in range(messages):
            producer.send(ORDERS, Json({"number": number, "item": "a chair", "price": 9.5}))


def loop(url: str, messages: int, typed: bool) -> None:
    """The loop written by hand."""
    work = Work(messages, lambda: None)
    with ConnectionFactory(url).create_context() as context, context.create_consumer(ORDERS) as consumer:
        for message in consumer:
            if typed:
                value = message.get_json()
                work.order(Order(value["number"], value["item"], value["price"]))
            else:
                work.text(message.get_body(str) or "")
            if not work.left:
                return


def listener(url: str, messages: int, typed: bool) -> None:
    """The same with Listeners."""
    done = threading.Event()
    work, app = Work(messages, done.set), Listeners(url)
    app.listener(ORDERS)(work.order if typed else work.text)
    with app:
        done.wait()


async def loop_of_tasks(url: str, messages: int, typed: bool) -> None:
    """The loop written by hand, in asyncio."""
    work = Work(messages, lambda: None)
    async with aio.ConnectionFactory(url).create_context() as context:
        async for message in await context.create_consumer(ORDERS):
            if typed:
                value = message.get_json()
                await work.order_in_task(Order(value["number"], value["item"], value["price"]))
            else:
                await work.text_in_task(message.get_body(str) or "")
            if not work.left:
                return


async def listener_in_tasks(url: str, messages: int, typed: bool) -> None:
    """The same with Listeners."""
    done = asyncio.Event()
    work, app = Work(messages, done.set), aio.Listeners(url)
    app.listener(ORDERS)(work.order_in_task if typed else work.text_in_task)
    async with app:
        await done.wait()


def run(function: Callable[..., Any], url: str, messages: int, typed: bool) -> float:
    """Microseconds of processor time per message."""
    fill(url, messages)
    start = time.process_time()
    result = function(url, messages, typed)
    if asyncio.iscoroutine(result):
        asyncio.run(result)
    return (time.process_time() - start) / messages * 1e6


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listening", description="a listener beside a loop")
    parser.add_argument("--messages", type=int, default=10_000, help="messages of a block (10000)")
    parser.add_argument("--pairs", type=int, default=15, help="pairs of blocks (15)")
    arguments = parser.parse_args()
    print("| | loop, µs | listener, µs | ratio, median of pairs |\n| --- | --- | --- | --- |")
    broker = Broker()
    try:
        for name, one, other in (("blocking", loop, listener), ("asyncio", loop_of_tasks, listener_in_tasks)):
            for typed in (False, True):
                pairs = [
                    tuple(run(each, broker.url, arguments.messages, typed) for each in (one, other))
                    for _ in range(arguments.pairs)
                ]
                by_hand, listening = (statistics.median(row) for row in zip(*pairs, strict=True))
                ratio = statistics.median(second / first for first, second in pairs)
                body = "dataclass" if typed else "text"
                print(f"| {name}, {body} | {by_hand:.1f} | {listening:.1f} | {ratio:.2f} |", flush=True)
    finally:
        broker.stop()


if __name__ == "__main__":
    main()
