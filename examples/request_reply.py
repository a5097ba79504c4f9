"""A service answers requests; each reply carries the request's message id as its correlation id."""

from __future__ import annotations

from datetime import timedelta

from sievemq import ConnectionFactory, JMSContext, Message, TextMessage


class Shouting:
    """Replies with the request's text in capitals."""

    def __init__(self, context: JMSContext) -> None:
        self.producer = context.create_producer()

    def on_message(self, request: Message) -> None:
        reply = TextMessage((request.get_body(str) or "").upper())
        reply.set_jms_correlation_id(request.get_jms_message_id())
        if (asker := request.get_jms_reply_to()) is not None:
            self.producer.send(asker, reply)


def main() -> None:
    factory = ConnectionFactory()
    with factory.create_context() as service, factory.create_context() as client:
        service.create_consumer(service.create_queue("example.shout")).set_message_listener(Shouting(service))

        replies = client.create_temporary_queue()
        consumer = client.create_consumer(replies)
        for text in ("hello", "is anybody there"):
            request = TextMessage(text)
            request.set_jms_reply_to(replies)
            client.create_producer().send(client.create_queue("example.shout"), request)
            reply = consumer.receive(timedelta(minutes=1))
            assert reply is not None
            assert reply.get_jms_correlation_id() == request.get_jms_message_id()
            print(f"{text} -> {reply.get_body(str)}")


if __name__ == "__main__":
    main()
