"""What the shop's parts say to each other: destinations, and the messages on them."""

from __future__ import annotations

from dataclasses import dataclass

from sievemq import MapMessage, Message, Queue, Topic

ORDERS = Queue("orders")
"""Orders to be handled. Properties: region, amount."""
PAYMENTS = Queue("payments")
"""Requests for payment; the reply goes to JMSReplyTo, with the order's number as correlation id."""
SHIPMENTS = Queue("shipments")
DECLINED = Queue("declined")
PRICES = Topic("prices")
"""Price updates. Properties: symbol, price."""

EXPRESS = 8
"""Priority of what must leave today."""


class BadOrderError(ValueError):
    """A message on the orders queue that is none."""


class PaymentUnavailableError(Exception):
    """Nobody answered in time; it may be better later."""


@dataclass(frozen=True)
class Order:
    """An order; `amount` in cents."""

    number: str
    region: str
    amount: int
    express: bool = False

    def to_message(self) -> MapMessage:
        message = MapMessage({"number": self.number, "amount": self.amount, "express": self.express})
        message.set_string_property("region", self.region)
        message.set_int_property("amount", self.amount)
        return message

    @classmethod
    def of(cls, message: Message) -> Order:
        """Read an order.

        Raises:
            BadOrderError: the message is none.
        """
        if not isinstance(message, MapMessage) or not message.item_exists("number"):
            raise BadOrderError(f"{message!r} is no order")
        amount = message.get_int("amount")
        if amount <= 0:
            raise BadOrderError(f"order {message.get_string('number')} has the amount {amount}")
        region = message.get_string_property("region") or ""
        return cls(message.get_string("number") or "", region, amount, message.get_boolean("express"))
