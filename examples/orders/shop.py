"""The shop, blocking. Each part has a context of its own, since a context belongs to one thread."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from sievemq import ConnectionFactory, JMSContext, JMSException, Message, TextMessage

from .orders import DECLINED, EXPRESS, ORDERS, PAYMENTS, PRICES, SHIPMENTS, Order, PaymentUnavailableError


class Part:
    """Something with a context, to be closed."""

    context: JMSContext

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


class OrderDesk(Part):
    """Takes orders in."""

    def __init__(self, factory: ConnectionFactory) -> None:
        self.context = factory.create_context()

    def place(self, order: Order, *, valid_for: int = 0) -> None:
        """Place an order; returns when the broker has it.

        Args:
            valid_for: ms after which the order expires; 0 for never.
        """
        producer = self.context.create_producer().set_time_to_live(valid_for)
        producer.set_priority(EXPRESS if order.express else 4).send(ORDERS, order.to_message())


class PaymentService(Part):
    """Answers requests for payment, on a thread of its client. An order that asks again is not charged again."""

    def __init__(self, factory: ConnectionFactory, limit: int = 100_000) -> None:
        self.limit = limit
        self.charged: dict[str, int] = {}
        with ExitStack() as opened:  # closes the context if the consumer is refused
            self.context = opened.enter_context(factory.create_context())
            self._producer = self.context.create_producer()
            self.context.create_consumer(PAYMENTS).set_message_listener(self.pay)
            opened.pop_all()

    def pay(self, request: Message) -> None:
        number, amount = request.get_jms_correlation_id(), request.get_int_property("amount")
        asker = request.get_jms_reply_to()
        assert number is not None
        assert asker is not None
        approved = amount <= self.limit
        if approved:
            self.charged.setdefault(number, amount)
        reply = TextMessage("approved" if approved else "declined")
        reply.set_jms_correlation_id(number)
        self._producer.send(asker, reply)


class OrderWorker(Part):
    """Handles orders, each in a transaction: what it takes and what it sends happen together or not at all. What fails
    comes again; what fails too often becomes a dead letter."""

    def __init__(self, factory: ConnectionFactory, selector: str | None = None, *, patience: int = 60_000) -> None:
        """
        Args:
            selector: only these orders.
            patience: ms that a payment may take.
        """
        self.patience = patience
        with ExitStack() as opened:
            self.context = opened.enter_context(factory.create_context(JMSContext.SESSION_TRANSACTED))
            self._orders = self.context.create_consumer(ORDERS, selector)
            # Requests and replies cannot wait for the commit, so they have a session of their own.
            self._talk = opened.enter_context(self.context.create_context(JMSContext.AUTO_ACKNOWLEDGE))
            self._replies_to = self._talk.create_temporary_queue()
            self._talk.start()
            opened.pop_all()

    def work(self, timeout: int = 60_000) -> bool:
        """Handle the next order; False if there was none, or it failed and was put back."""
        message = self._orders.receive(timeout)
        if message is None:
            return False
        try:
            self._handle(Order.of(message))
            self.context.commit()
        except (PaymentUnavailableError, ValueError):
            self.context.rollback()
            return False
        return True

    def _handle(self, order: Order) -> None:
        target = SHIPMENTS if self._pay(order) else DECLINED
        self.context.create_producer().set_priority(EXPRESS if order.express else 4).send(target, order.to_message())

    def _pay(self, order: Order) -> bool:
        request = Message()
        request.set_jms_reply_to(self._replies_to)
        request.set_jms_correlation_id(order.number)
        request.set_int_property("amount", order.amount)
        # A reply that came too late for an earlier attempt is still good: the selector picks it by the order's number.
        with self._talk.create_consumer(self._replies_to, f"JMSCorrelationID = '{order.number}'") as replies:
            try:
                self._talk.create_producer().set_time_to_live(self.patience).send(PAYMENTS, request)
                reply = replies.receive_body(str, self.patience)
            except JMSException as error:
                raise PaymentUnavailableError(str(error)) from error
        if reply is None:
            raise PaymentUnavailableError(f"no reply for order {order.number}")
        return reply == "approved"

    def __exit__(self, *_: object) -> None:
        self._talk.close()
        self.context.close()


class PriceBoard(Part):
    """Publishes prices."""

    def __init__(self, factory: ConnectionFactory) -> None:
        self.context = factory.create_context()

    def publish(self, symbol: str, price: float) -> None:
        message = TextMessage(f"{symbol} {price:.2f}")
        message.set_string_property("symbol", symbol)
        message.set_double_property("price", price)
        self.context.create_producer().send(PRICES, message)


class PriceWatch(Part):
    """Sees the prices that a selector picks; with a name also those that came while it was away."""

    def __init__(self, factory: ConnectionFactory, selector: str | None = None, name: str | None = None) -> None:
        with ExitStack() as opened:
            self.context = opened.enter_context(factory.create_context())
            if name is None:
                self._consumer = self.context.create_consumer(PRICES, selector)
            else:
                self._consumer = self.context.create_shared_durable_consumer(PRICES, name, selector)
            opened.pop_all()

    def next(self, timeout: int = 60_000) -> str | None:
        return self._consumer.receive_body(str, timeout)

    def nothing_yet(self) -> bool:
        return self._consumer.receive_no_wait() is None
