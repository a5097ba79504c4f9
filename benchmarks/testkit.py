"""What the test kit costs: brokers and namespaces.

    python -m benchmarks.testkit

Prints the median and the best of each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from sievemq import ConnectionFactory, JMSContext, Queue
from sievemq_testing import TestBroker

ORDERS = Queue("orders")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--namespaces", type=int, default=1_000, help="fresh namespaces (1,000)")
    arguments = parser.parse_args()
    _show("start and stop a TestBroker", _times(50, _start_and_stop))
    with TestBroker() as broker:
        count = arguments.namespaces
        print(f"\n{count:,} fresh namespaces of one broker, each")
        _show("made and dropped", _times(count, lambda: _namespace(broker, _nothing)))
        _show("with a message sent and received", _times(count, lambda: _namespace(broker, _message)))


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


def _times(count: int, act: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begin)
    return taken


def _show(what: str, taken: list[float]) -> None:
    print(f"  {what:<36} {median(taken) * 1e3:8.3f} ms   at best {min(taken) * 1e3:.3f}")


if __name__ == "__main__":
    main()
