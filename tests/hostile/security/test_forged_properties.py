"""Properties that only the broker sets: a producer's values are dropped, and no retry trusts them."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from tests.broker.session.harness import AUTO, TRANSACTED, World, envelope

from sievemq import ConnectionFactory, JMSContext, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from sievemq_core.message.envelope import PROPERTIES, PROPERTY_TYPES, Envelope
from sievemq_core.wire.commands import Command

from .support import PASSWORD, ask, basic, secured

FORGED = {
    "JMS_SieveMQ_DeadLetterOrigin": "queue:payroll",
    "JMS_SieveMQ_DeadLetterSubscription": "victim",
    "JMS_SieveMQ_OutcomeReason": "oldest",
    "JMSXUserID": "admin",
    "JMSXAppID": "payroll",
    "JMSXProducerTXID": "1",
}
SOON = 60_000


def fail(context: JMSContext, name: str) -> None:
    """Receive messages and recover until none is left."""
    consumer = context.create_consumer(Queue(name))
    while consumer.receive_no_wait() is not None:
        context.recover()
    consumer.close()


def as_anna(broker: EmbeddedBroker) -> JMSContext:
    """She may send to and consume from queue:orders.* and nothing else."""
    return ConnectionFactory(broker.url).create_context("anna", PASSWORD, JMSContext.CLIENT_ACKNOWLEDGE)


def retry(broker: EmbeddedBroker, queue: str) -> dict[str, Any]:
    path = f"/api/v1/namespaces/default/destinations/{queue}/actions/retry"
    answer = ask(broker, path, "POST", {}, **basic("admin"))
    assert answer.status == 200, answer.text
    return answer.json


@pytest.mark.parametrize(
    "filler",
    [
        pytest.param({f"p{number}": 1 for number in range(MAX_PROPERTIES - len(FORGED))}, id="many"),
        pytest.param({f"p{number}": "x" * 10_000 for number in range(26)}, id="large"),
    ],
)
def test_retry_sends_a_full_message_back_to_its_true_origin(filler: dict[str, Any]) -> None:
    with secured() as broker, as_anna(broker) as context:
        producer = context.create_producer()
        for name, value in {**FORGED, **filler}.items():
            producer.set_property(name, value)
        producer.send(Queue("orders.full"), "x")
        fail(context, "orders.full")
        assert retry(broker, "queue:DLQ.orders.full")["touched"] == 1
        message = context.create_consumer(Queue("orders.full")).receive(SOON)
        assert message is not None
        names = set(message.properties)
        assert names.isdisjoint(FORGED)
        assert names >= set(list(filler)[:20])


def test_retry_skips_messages_sent_directly_to_a_dead_letter_queue() -> None:
    with secured() as broker, ConnectionFactory(broker.url).create_context("admin", PASSWORD) as context:
        producer = context.create_producer()
        producer.set_property("JMS_SieveMQ_DeadLetterOrigin", "queue:payroll").send(Queue("DLQ.orders.x"), "x")
        outcome = retry(broker, "queue:DLQ.orders.x")
        assert (outcome["touched"], outcome["skipped"]) == (0, 1)
        assert context.create_consumer(Queue("payroll")).receive_no_wait() is None


def test_a_dead_letter_can_be_passed_on_as_it_is() -> None:
    mode = JMSContext.CLIENT_ACKNOWLEDGE
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context(mode) as context:
        context.create_producer().set_property("n", 7).send(Queue("orders"), "x")
        fail(context, "orders")
        letter = context.create_consumer(Queue("DLQ.orders")).receive(SOON)
        assert letter is not None
        assert letter.properties["JMS_SieveMQ_DeadLetterOrigin"] == "queue:orders"
        context.create_producer().send(Queue("parked"), letter)
        parked = context.create_consumer(Queue("parked")).receive(SOON)
        assert parked is not None
        assert dict(parked.properties) == {"n": 7, "JMSXDeliveryCount": 1}


def test_properties_set_over_http_are_dropped_too() -> None:
    with secured() as broker:
        path = "/api/v1/namespaces/default/destinations/queue:orders.h/messages"
        given = {"body": "x", "properties": {"n": 7, "JMS_SieveMQ_DeadLetterOrigin": "queue:payroll"}}
        assert ask(broker, path, "POST", given, **basic("anna")).status == 201
        with as_anna(broker) as context:
            message = context.create_consumer(Queue("orders.h")).receive(SOON)
            assert message is not None
            assert dict(message.properties) == {"n": 7, "JMSXDeliveryCount": 1}


RAW = {**FORGED, "JMSXDeliveryCount": 99, "JMSXRcvTimestamp": 1, "JMSXState": 2, "JMSXConsumerTXID": "2"}
KEPT = {"JMSXGroupID": "g", "JMSXGroupSeq": 3, "text": "JMSXUserID", "JMS_Other_Vendor": 1}


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_forged_properties_of_a_raw_client_are_dropped(mode: int, count: int) -> None:
    world = World()
    client = world.client()
    session = client.session(mode)
    consumer = client.consumer(client.session(), credit=100)
    for number in range(count):
        client.queue_send(session, envelope(properties={"n": number, **RAW, **KEPT}))
    world.settle()
    if mode == TRANSACTED:
        client.commit(session)
    found = [Envelope(delivery.fields).properties for delivery in consumer.deliveries]
    assert found == [{"n": number, **KEPT} for number in range(count)]


def test_properties_that_grow_when_they_are_packed_again_are_refused() -> None:
    world = World()
    client = world.client()
    session = client.session()
    name_chars = MAX_PROPERTIES_BYTES // MAX_PROPERTIES - 10  # a head of 3 bytes, a float32 of 5
    packer = msgpack.Packer(use_single_float=True)
    packed = packer.pack({"JMS_SieveMQ_X": 1} | {f"{n:0{name_chars}}": 0.5 for n in range(MAX_PROPERTIES - 1)})
    assert len(packed) <= MAX_PROPERTIES_BYTES
    fields = envelope()
    client.queue_send(session, (*fields[:PROPERTIES], packed, *fields[PROPERTY_TYPES:]))
    client.send(session, "next")
    assert [command[3] for command in client.take(Command.SEND_FAILED)] == [ErrorCode.MESSAGE_FORMAT]
    assert client.browse() == [(1, "next")]
