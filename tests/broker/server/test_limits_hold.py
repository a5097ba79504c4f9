"""Limits of a namespace and of the broker, with many senders at once: checked after every turn of the loop."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.admission import MESSAGE_BYTES
from sievemq_broker.server.watch.counts import queues_in

MIB = 1024 * 1024
PRODUCERS = 50
DEADLINE = 120.0


class Watch:
    """The most that there was at the end of a turn."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.server = broker.server
        self.memory = self.messages = self.bytes = 0
        broker.call(lambda _: self.server.turn.watchers.append(self.look))

    def look(self) -> None:
        domain = self.server.shard.broker
        # What each session waits with is beside the limit, and what came in this turn was not asked for.
        memory = self.server.memory
        self.memory = max(self.memory, memory.measure() - memory.input - domain.rooms.bytes)
        held = [(queue.depth + len(queue.scheduled), queue.bytes) for queue in queues_in(domain.namespace("default"))]
        messages = sum(depth for depth, _ in held)
        self.messages = max(self.messages, messages)
        self.bytes = max(self.bytes, sum(size for _, size in held) + MESSAGE_BYTES * messages)


@contextmanager
def senders(broker: EmbeddedBroker, address: str, count: int, size: int, mode: int) -> Iterator[None]:
    """Fifty, each with a connection of its own; at the end all have sent what they had."""
    failed: list[Exception] = []

    def send(number: int) -> None:
        try:
            patient = ConnectionFactory(broker.url, close_timeout=int(DEADLINE * 1_000))
            with patient.create_context(mode) as context:
                kind, _, name = address.partition(":")
                destination = context.create_topic(name) if kind == "topic" else context.create_queue(name)
                producer = context.create_producer().set_delivery_mode(1)
                for index in range(count):
                    producer.set_property("number", number * count + index)
                    producer.send(destination, b"x" * size)
                    if mode == JMSContext.SESSION_TRANSACTED and index % 5 == 4:
                        context.commit()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(DEADLINE)
    assert failed == []
    assert not any(thread.is_alive() for thread in threads)


def until_somebody_waits(broker: EmbeddedBroker) -> None:
    deadline = time.monotonic() + DEADLINE
    while not broker.call(lambda domain: bool(domain.rooms.waiting)):
        assert time.monotonic() < deadline


def taken(context: JMSContext, name: str, count: int) -> list[int]:
    """The numbers of all that was sent to a queue."""
    consumer = context.create_consumer(context.create_queue(name))
    found = []
    for _ in range(count):
        message = consumer.receive(int(DEADLINE * 1000))
        assert message is not None
        found.append(message.get_int_property("number"))
    return found


@pytest.mark.parametrize("mode", [JMSContext.AUTO_ACKNOWLEDGE, JMSContext.SESSION_TRANSACTED])
@pytest.mark.parametrize("size", [0, 20_000])
def test_the_whole_brokers_limit(size: int, mode: int) -> None:
    limit = 12 * MIB if size else MIB  # the larger one begins where nothing is counted yet
    count = 20 if size else 200
    with EmbeddedBroker(settings={"max_memory_bytes": limit}) as broker:
        assert (broker.call(lambda domain: domain.gate) is None) is bool(size)
        watch = Watch(broker)
        with senders(broker, "queue:q", count, size, mode):
            until_somebody_waits(broker)
            with ConnectionFactory(broker.url).create_context() as context:
                assert sorted(taken(context, "q", PRODUCERS * count)) == list(range(PRODUCERS * count))
        # What fifty connections have sent and the broker has not read yet fills the rest.
        assert limit // 4 < watch.memory <= limit


@pytest.mark.parametrize("mode", [JMSContext.AUTO_ACKNOWLEDGE, JMSContext.SESSION_TRANSACTED])
@pytest.mark.parametrize("rule", ["max_bytes", "max_messages"])
def test_a_namespaces_limit(rule: str, mode: int) -> None:
    limit = MIB if rule == "max_bytes" else 777
    with EmbeddedBroker(settings={"namespaces": {"default": {rule: limit}}}) as broker:
        watch = Watch(broker)
        with senders(broker, "queue:q", 40, 1_000, mode):
            until_somebody_waits(broker)
            with ConnectionFactory(broker.url).create_context() as context:
                assert sorted(taken(context, "q", PRODUCERS * 40)) == list(range(PRODUCERS * 40))
        held = watch.bytes if rule == "max_bytes" else watch.messages
        assert limit // 2 < held <= limit


def test_http_sends_are_refused_at_the_limit() -> None:
    with EmbeddedBroker(http=True, settings={"namespaces": {"default": {"max_messages": 3}}}) as broker:
        url = f"{broker.http_url}/api/v1/namespaces/default/destinations/queue:q/messages"
        answers = []
        for _ in range(5):
            request = urllib.request.Request(url, b'{"body": "x"}', {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                    answers.append(answer.status)
            except urllib.error.HTTPError as error:
                with error:
                    text = error.read()
                answers.append(error.code)
        assert answers[:3] == [201] * 3
        assert all(status >= 400 for status in answers[3:])
        assert b"holds 3 and may hold 3 (max_messages in the limits of default)" in text
        assert broker.call(lambda domain: domain.namespace("default").queue("queue:q").depth) == 3


def test_a_topic_whose_messages_are_kept_many_times() -> None:
    limit = 12 * MIB
    with EmbeddedBroker(settings={"max_memory_bytes": limit}) as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            for number in range(10):
                context.create_shared_durable_consumer(context.create_topic("t"), f"s{number}").close()
        watch = Watch(broker)
        with senders(broker, "topic:t", 10, 5_000, JMSContext.AUTO_ACKNOWLEDGE):
            until_somebody_waits(broker)
            with ConnectionFactory(broker.url).create_context() as context:
                for number in range(10):
                    context.unsubscribe(f"s{number}")
        assert limit // 2 < watch.memory <= limit
