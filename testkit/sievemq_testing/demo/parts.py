"""The demo's processes: one publisher, and one worker per selector.

Each is written as a user would: a connection factory, a context, a producer or a consumer. They report to the parent
over a pipe, as tuples that begin with a word.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from sievemq import ConnectionFactory, DeliveryMode, JMSConsumer, Message, TextMessage
from sievemq_testing.demo.flights import fingerprint, read_flights

DESTINATION = "flights"

#: Messages between two reports to the parent: often enough for a progress bar, seldom enough to cost nothing.
REPORT_EVERY = 2_000

#: How long a subscriber waits for a message before it checks whether publishing is over.
PATIENCE_MS = 50


class Tally(NamedTuple):
    """The messages of a consumer: their number, the sum of their fingerprints, and whether they were in order."""

    messages: int
    checksum: int
    in_order: bool


def publish(url: str, limit: int | None, pipe: Pipe) -> None:
    """Publish every flight to the queue and to the topic, once the parent gives the sign."""
    flights = list(read_flights(limit))
    with ConnectionFactory(url).create_context() as context:
        queue, topic = context.create_queue(DESTINATION), context.create_topic(DESTINATION)
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        pipe.send(("ready",))
        pipe.recv()
        start = time.perf_counter()
        for number, flight in enumerate(flights, start=1):
            message = TextMessage(flight.body, properties=flight.properties)
            message.set_jms_type("flight")
            message.set_jms_correlation_id(flight.tail_number)
            producer.send(queue, message)
            producer.send(topic, message)
            if number % REPORT_EVERY == 0:
                pipe.send(("published", number))
    # Closing the context flushed its sends (D-26): the broker has all of them.
    pipe.send(("done", time.perf_counter() - start))


def take(url: str, selector: str | None, subscribe: bool, pipe: Pipe) -> None:
    """Receive by a selector: from the topic while it is published to, then, at its turn, from the queue."""
    with ConnectionFactory(url).create_context() as context:
        if subscribe:
            with context.create_consumer(context.create_topic(DESTINATION), selector) as subscriber:
                pipe.send(("ready",))
                pipe.send(("topic", _receive_until_stopped(subscriber, pipe)))
        else:
            pipe.send(("ready",))
        pipe.recv()
        with context.create_consumer(context.create_queue(DESTINATION), selector) as consumer:
            counting = Counting(pipe)
            while (message := consumer.receive_no_wait()) is not None:  # None: the queue has no more for this selector
                counting.add(message)
            pipe.send(("queue", counting.tally()))


def _receive_until_stopped(subscriber: JMSConsumer, pipe: Pipe) -> Tally:
    counting = Counting(pipe)
    told = False
    while True:
        message = subscriber.receive_no_wait() if told else subscriber.receive(PATIENCE_MS)
        if message is not None:
            counting.add(message)
        elif told:
            return counting.tally()
        elif pipe.poll():
            pipe.recv()
            told = True  # everything is published: the broker sends what is not here yet before it answers "no more"


class Counting:
    """Counts messages, and reports the count now and then."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._count = self._checksum = self._last_row = 0
        self._in_order = True

    def add(self, message: Message) -> None:
        """Count one message."""
        row = message.get_int_property("row")
        self._in_order = self._in_order and row > self._last_row
        self._last_row = row
        body = message.get_body(str) or ""
        self._checksum += fingerprint(
            message.get_jms_type(), message.get_jms_correlation_id(), message.properties, body
        )
        self._count += 1
        if self._count % REPORT_EVERY == 0:
            self._pipe.send(("received", REPORT_EVERY))

    def tally(self) -> Tally:
        return Tally(self._count, self._checksum, self._in_order)
