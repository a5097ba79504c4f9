"""The shop's worker and payment service once more, with asyncio: hundreds of them share one thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sievemq import Message, TemporaryQueue, TextMessage
from sievemq.aio import ConnectionFactory, JMSContext

from .orders import DECLINED, ORDERS, PAYMENTS, PRICES, SHIPMENTS, Order, PaymentUnavailableError


async def place(context: JMSContext, order: Order, *, valid_for: int = 0) -> None:
    """Place an order."""
    await context.create_producer().set_time_to_live(valid_for).send(ORDERS, order.to_message())


@asynccontextmanager
async def payment_service(factory: ConnectionFactory, limit: int = 100_000) -> AsyncIterator[dict[str, int]]:
    """Answers requests for payment while the block runs; yields what was charged, by order."""
    charged: dict[str, int] = {}

    async def serve(context: JMSContext) -> None:
        producer = context.create_producer()
        async for request in await context.create_consumer(PAYMENTS):
            number, amount = request.get_jms_correlation_id(), request.get_int_property("amount")
            asker = request.get_jms_reply_to()
            assert number is not None
            assert asker is not None
            if amount <= limit:
                charged.setdefault(number, amount)
            reply = TextMessage("approved" if amount <= limit else "declined")
            reply.set_jms_correlation_id(number)
            await producer.send(asker, reply)

    async with factory.create_context() as context:
        serving = asyncio.create_task(serve(context))
        try:
            yield charged
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def work(factory: ConnectionFactory, orders: int, *, patience: int = 60_000) -> None:
    """Handle so many orders, failed attempts counted.

    Args:
        patience: ms that a payment may take.
    """
    async with (
        factory.create_context(JMSContext.SESSION_TRANSACTED) as context,
        context.create_context(JMSContext.AUTO_ACKNOWLEDGE) as talk,
    ):
        replies_to = await talk.create_temporary_queue()
        await talk.start()
        consumer = await context.create_consumer(ORDERS)
        for _ in range(orders):
            message = await consumer.receive(60_000)
            if message is None:
                break
            try:
                order = Order.of(message)
                approved = await _pay(talk, replies_to, order, patience)
                target = SHIPMENTS if approved else DECLINED
                await context.create_producer().send(target, order.to_message())
                await context.commit()
            except (PaymentUnavailableError, ValueError):
                await context.rollback()


async def _pay(talk: JMSContext, replies_to: TemporaryQueue, order: Order, patience: int) -> bool:
    request = Message()
    request.set_jms_reply_to(replies_to)
    request.set_jms_correlation_id(order.number)
    request.set_int_property("amount", order.amount)
    async with talk.create_consumer(replies_to, f"JMSCorrelationID = '{order.number}'") as replies:
        await talk.create_producer().send(PAYMENTS, request)
        reply = await replies.receive_body(str, patience)
    if reply is None:
        raise PaymentUnavailableError(f"no reply for order {order.number}")
    return reply == "approved"


async def watch(context: JMSContext, selector: str, count: int) -> list[str]:
    """The next so many prices that a selector picks."""
    seen = []
    async with context.create_consumer(PRICES, selector) as consumer:
        async for message in consumer.messages(TextMessage):
            seen.append(message.get_text() or "")
            if len(seen) == count:
                break
    return seen
