"""What the test kit costs: brokers, namespaces, and the way through memory beside TCP over the loopback.

    python -m benchmarks.testkit

Prints medians and the best of each; the two transports are measured in turns, so that whatever else the machine does
falls on both, and compared as a ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from statistics import median

import sievemq.aio
from sievemq import ConnectionFactory, JMSContext, Queue
from sievemq_testing import TestBroker

__all__ = ["main"]

ORDERS = Queue("orders")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--namespaces", type=int, default=1_000, help="fresh namespaces (1,000)")
    parser.add_argument("--rounds", type=int, default=2_000, help="round trips per transport (2,000)")
    arguments = parser.parse_args()
    _show("start and stop a TestBroker", _times(50, _start_and_stop))
    with TestBroker() as broker:
        count = arguments.namespaces
        print(f"\n{count:,} fresh namespaces of one broker, each")
        _show("made and dropped", _times(count, lambda: _namespace(broker, _nothing)))
        _show("with a message sent and received", _times(count, lambda: _namespace(broker, _message)))
        print("\nblocking client")
        _compare(broker.memory_factory(), ConnectionFactory(broker.url), arguments.rounds)
        print("\nasyncio client")
        aio = sievemq.aio.ConnectionFactory(broker.url)
        asyncio.run(_compare_aio(broker.aio_memory_factory(), aio, arguments.rounds))


def _start_and_stop() -> None:
    with TestBroker():
        pass


def _namespace(broker: TestBroker, use: Callable[[JMSContext], object]) -> None:
    namespace = broker.namespace("fresh")
    if use is _nothing:
        broker.call(lambda inside: inside.namespace("fresh"))
    else:
        with ConnectionFactory(namespace.url).create_context() as context:
            use(context)
    namespace.drop()


def _nothing(_: JMSContext) -> None:
    pass


def _message(context: JMSContext) -> None:
    context.create_producer().send(ORDERS, "x")
    if context.create_consumer(ORDERS).receive_body(str, 5_000) != "x":
        raise RuntimeError("the message was not received")


def _compare(memory: ConnectionFactory, tcp: ConnectionFactory, rounds: int) -> None:
    _ratio(
        "connect and close",
        _in_turns(rounds // 20, *(lambda f=f: f.create_connection().close() for f in (memory, tcp))),
    )
    with memory.create_context() as one, tcp.create_context() as other:
        _ratio("send, until it is confirmed", _in_turns(rounds, *(_sending(context) for context in (one, other))))


def _sending(context: JMSContext) -> Callable[[], object]:
    producer = context.create_producer()
    topic = context.create_topic("nobody")
    return lambda: producer.send(topic, "x")


async def _compare_aio(memory: sievemq.aio.ConnectionFactory, tcp: sievemq.aio.ConnectionFactory, rounds: int) -> None:
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds // 20):
        for factory, taken in zip((memory, tcp), times, strict=True):
            begin = time.perf_counter()
            await (await factory.create_connection()).close()
            taken.append(time.perf_counter() - begin)
    _ratio("connect and close", times)
    times = ([], [])
    async with await memory.create_context() as one, await tcp.create_context() as other:
        producers = one.create_producer(), other.create_producer()
        topic = one.create_topic("nobody")
        for _ in range(rounds):
            for producer, taken in zip(producers, times, strict=True):
                begin = time.perf_counter()
                await producer.send(topic, "x")
                taken.append(time.perf_counter() - begin)
    _ratio("send, until it is confirmed", times)


def _times(count: int, act: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begin)
    return taken


def _in_turns(count: int, *acts: Callable[[], object]) -> tuple[list[float], ...]:
    taken: tuple[list[float], ...] = tuple([] for _ in acts)
    for _ in range(count):
        for act, times in zip(acts, taken, strict=True):
            times += _times(1, act)
    return taken


def _show(what: str, taken: list[float]) -> None:
    print(f"  {what:<36} {median(taken) * 1e3:8.3f} ms   at best {min(taken) * 1e3:.3f}")


def _ratio(what: str, taken: tuple[list[float], ...]) -> None:
    memory, tcp = (median(times) * 1e6 for times in taken)
    print(f"  {what:<36} memory {memory:7.0f} µs   TCP {tcp:7.0f} µs   ratio {memory / tcp:.2f}")


if __name__ == "__main__":
    main()
