"""A consumer process is killed with messages in its hands: all of them reach another consumer, in order and marked."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from sievemq import ConnectionFactory, DeliveryMode, JMSContext, Message
from sievemq_broker import EmbeddedBroker

HELD = 1_000
HOLDER = Path(__file__).with_name("holder.py")


def test_messages_of_a_killed_consumer_reach_another_consumer(broker: EmbeddedBroker, context: JMSContext) -> None:
    queue = context.create_queue("work")
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    for number in range(HELD):
        producer.send(queue, str(number))

    holder = subprocess.Popen(
        [sys.executable, str(HOLDER), broker.url, "work", str(HELD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == f"holding {HELD}\n"
        with context.create_consumer(queue) as other:
            assert other.receive_no_wait() is None  # they are in the holder's hands, not in a buffer to be recalled
    finally:
        holder.kill()
        holder.communicate()

    # A message that arrives before the end of the connection may still be handed to its consumer: it comes back marked.
    deadline = time.monotonic() + 60
    while broker.call(lambda domain: len(domain.namespace("").queue("queue:work").consumers)):
        assert time.monotonic() < deadline

    # Messages that come after the accident: they wait behind those that come back, and are not marked.
    for number in range(HELD, HELD + 10):
        producer.send(queue, str(number))
    received: list[Message] = []
    with ConnectionFactory(broker.url).create_context() as rescuer:
        consumer = rescuer.create_consumer(rescuer.create_queue("work"))
        while len(received) < HELD + 10:
            message = consumer.receive(60_000)
            assert message is not None, f"only {len(received)} of {HELD + 10} messages came"
            received.append(message)
        assert consumer.receive_no_wait() is None

    assert [message.get_body(str) for message in received] == [str(number) for number in range(HELD + 10)]
    assert [message.get_jms_redelivered() for message in received] == [True] * HELD + [False] * 10
    counts = [message.get_int_property("JMSXDeliveryCount") for message in received]
    assert counts == [2] * HELD + [1] * 10
