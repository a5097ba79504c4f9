"""Requests find their replies: through a temporary queue, and by correlation id among many in a shared one."""

from __future__ import annotations

import threading

from sievemq import ConnectionFactory, JMSContext, Message, TextMessage
from sievemq.aio import ConnectionFactory as AsyncConnectionFactory
from sievemq_broker import EmbeddedBroker


class Service:
    """Answers every request with its text in capitals, to wherever the request says."""

    def __init__(self, context: JMSContext) -> None:
        self._producer = context.create_producer()
        context.create_consumer(context.create_queue("shout")).set_message_listener(self)

    def on_message(self, request: Message) -> None:
        reply = TextMessage((request.get_body(str) or "").upper())
        reply.set_jms_correlation_id(request.get_jms_correlation_id() or request.get_jms_message_id())
        self._producer.send(request.get_jms_reply_to(), reply)


def test_a_reply_arrives_on_a_temporary_queue(broker: EmbeddedBroker, context: JMSContext) -> None:
    with ConnectionFactory(broker.url).create_context() as client:
        Service(context)
        replies = client.create_temporary_queue()
        consumer = client.create_consumer(replies)
        for text in ("one", "two", "three"):
            request = TextMessage(text)
            request.set_jms_reply_to(replies)
            client.create_producer().send(client.create_queue("shout"), request)
            reply = consumer.receive(60_000)
            assert reply is not None
            assert reply.get_body(str) == text.upper()
            assert reply.get_jms_correlation_id() == request.get_jms_message_id()
            assert reply.get_jms_destination() == replies


def test_clients_of_one_reply_queue_receive_their_own_replies(broker: EmbeddedBroker, context: JMSContext) -> None:
    Service(context)
    replies: dict[int, str | None] = {}

    def call(number: int) -> None:
        with ConnectionFactory(broker.url).create_context() as client:
            shared = client.create_queue("replies")
            with client.create_consumer(shared, f"JMSCorrelationID = 'call-{number}'") as consumer:
                request = TextMessage(f"text {number}")
                request.set_jms_reply_to(shared)
                request.set_jms_correlation_id(f"call-{number}")
                client.create_producer().send(client.create_queue("shout"), request)
                replies[number] = consumer.receive_body(str, 60_000)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert replies == {number: f"TEXT {number}" for number in range(12)}


async def test_blocking_and_asyncio_clients_talk_to_each_other(broker: EmbeddedBroker, context: JMSContext) -> None:
    Service(context)
    async with await AsyncConnectionFactory(broker.url).create_context() as client:
        replies = await client.create_temporary_queue()
        consumer = await client.create_consumer(replies)
        request = TextMessage("across")
        request.set_jms_reply_to(replies)
        await client.create_producer().send(client.create_queue("shout"), request)
        reply = await consumer.receive(60_000)
        assert reply is not None
        assert reply.get_body(str) == "ACROSS"
        assert reply.get_jms_correlation_id() == request.get_jms_message_id()
