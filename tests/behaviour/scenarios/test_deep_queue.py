"""A match behind everything that does not match is found, and finding it again costs no second search."""

from __future__ import annotations

import pytest

from sievemq import DeliveryMode, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.queue import Queue

# No equality that an index could answer: the selector has to look at every message.
SELECTOR = "number * 2 >= {twice}"


@pytest.mark.parametrize("depth", [20_000, pytest.param(250_000, marks=pytest.mark.slow)])
def test_the_last_of_many_is_found_and_a_second_consumer_searches_nothing(
    broker: EmbeddedBroker, context: JMSContext, depth: int
) -> None:
    queue = context.create_queue("deep")
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    for number in range(depth):
        producer.set_property("number", number).send(queue, "")
    selector = SELECTOR.format(twice=2 * (depth - 1))

    first = context.create_consumer(queue, selector)
    message = first.receive(60_000)
    assert message is not None
    assert message.get_int_property("number") == depth - 1
    after_first = evaluations(broker)
    assert after_first >= depth

    second = context.create_consumer(queue, selector)
    assert second.receive_no_wait() is None
    assert evaluations(broker) == after_first
    producer.set_delivery_mode(DeliveryMode.PERSISTENT)  # returns when the broker has it
    producer.set_property("number", depth).send(queue, "")
    assert evaluations(broker) == after_first + 1  # the arrival, once for both
    message = second.receive(60_000) or first.receive(60_000)
    assert message is not None
    assert message.get_int_property("number") == depth


def evaluations(broker: EmbeddedBroker) -> int:
    """How many times selectors of the queue were evaluated so far: on its backlog and on arrivals."""

    def count(domain: Broker) -> int:
        queue = domain.namespace("").find("queue:deep")
        assert isinstance(queue, Queue)
        return sum(view.evaluations for view in queue.backlog.views.values()) + queue.index.evaluations

    return broker.call(count)
