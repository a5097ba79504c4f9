"""A closed connection leaves nothing behind, without help of the garbage collector, which seldom runs in a broker."""

from __future__ import annotations

import gc
import socket
from collections import Counter
from collections.abc import Callable

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker


def objects_of_connections() -> Counter[str]:
    names = (
        "SieveConnection", "SieveOutbox", "WireConnection", "Heartbeat", "Peer", "Life", "Link", "Session", "Consumer",
        "Transaction", "Unpacker",
    )  # fmt: skip
    return Counter(
        f"{kind.__module__}.{kind.__name__}"
        for thing in gc.get_objects()
        if (kind := type(thing)).__name__ in names and str(kind.__module__).startswith(("sievemq_broker", "msgpack"))
    )


def open_and_close(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        queue = context.create_queue("q")
        context.create_producer().send(queue, "x")
        context.create_consumer(queue, "a = 'b'")
        context.create_shared_durable_consumer(context.create_topic("t"), "s")
        context.create_temporary_queue()


def cut_off(broker: EmbeddedBroker) -> None:
    host, _, port = broker.url.removeprefix("sievemq://").partition("/")[0].partition(":")
    socket.create_connection((host, int(port))).close()


@pytest.mark.parametrize("play", [open_and_close, cut_off])
def test_closed_connections_are_gone_without_the_garbage_collector(play: Callable[[EmbeddedBroker], None]) -> None:
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as last:
        play(broker)
        gc.collect()
        gc.disable()
        try:
            play(broker)
            last.create_temporary_queue()
            before = objects_of_connections()
            for _ in range(10):
                play(broker)
            for _ in range(1_000):
                last.create_temporary_queue()  # the broker has done something meanwhile
                if sum((more := objects_of_connections() - before).values()) < 10:  # the last may be on its way out
                    break
        finally:
            gc.enable()
    assert max(more.values(), default=0) < 5, more  # the broker may be about to free what was played last


def temporary_queue(context: JMSContext) -> None:
    queue = context.create_temporary_queue()
    context.create_producer().send(queue, "x")
    with context.create_consumer(queue) as consumer:
        assert consumer.receive(60_000) is not None
    queue.delete()


def topic_subscriber(context: JMSContext) -> None:
    context.create_consumer(context.create_topic("t"), "a = 'b'").close()


def durable_subscription(context: JMSContext) -> None:
    context.create_shared_durable_consumer(context.create_topic("t"), "s").close()
    context.unsubscribe("s")


def objects_of_the_domain() -> Counter[str]:
    return Counter(
        kind.__name__
        for thing in gc.get_objects()
        if str((kind := type(thing)).__module__).startswith(("sievemq_broker.domain", "sievemq_broker.matching"))
    )


@pytest.mark.parametrize("play", [temporary_queue, topic_subscriber, durable_subscription])
def test_deleted_objects_of_a_live_connection_are_freed_without_the_collector(
    play: Callable[[JMSContext], None],
) -> None:
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        play(context)
        gc.collect()
        gc.disable()
        try:
            play(context)
            before = objects_of_the_domain()
            for _ in range(10):
                play(context)
            more = objects_of_the_domain() - before
        finally:
            gc.enable()
    assert max(more.values(), default=0) < 5, more  # the broker may be about to free what was played last
