"""A transaction takes a message from one queue and puts another into a second queue: both happen, or neither."""

from __future__ import annotations

from datetime import timedelta

from sievemq import ConnectionFactory, JMSContext

PATIENCE = timedelta(minutes=1)


def main() -> None:
    with ConnectionFactory().create_context(JMSContext.SESSION_TRANSACTED) as context:
        orders, invoices = context.create_queue("example.orders"), context.create_queue("example.invoices")
        producer, consumer = context.create_producer(), context.create_consumer(orders)
        producer.send(orders, "two chairs")
        context.commit()

        print("first try:", consumer.receive_body(str, PATIENCE))
        producer.send(invoices, "invoice for nothing")
        context.rollback()  # the invoice was never written, the order is back

        message = consumer.receive(PATIENCE)
        assert message is not None
        print("second try:", message.get_body(str), "- redelivered:", message.get_jms_redelivered())
        producer.send(invoices, f"invoice for {message.get_body(str)}")
        context.commit()

        print("in the books:", context.create_consumer(invoices).receive_body(str, PATIENCE))


if __name__ == "__main__":
    main()
