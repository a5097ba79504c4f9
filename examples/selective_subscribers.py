"""One topic, three subscribers, each with a selector of its own (asyncio)."""

from __future__ import annotations

import asyncio

from sievemq.aio import ConnectionFactory

SELECTORS = ("region = 'EU'", "amount > 500", "region = 'US' AND NOT (urgent = TRUE)")
ORDERS = (("EU", 120, True), ("US", 700, True), ("US", 90, False), ("EU", 900, False))


async def main() -> None:
    async with ConnectionFactory().create_context() as context:
        topic = context.create_topic("example.orders")
        consumers = [await context.create_consumer(topic, selector) for selector in SELECTORS]
        producer = context.create_producer()
        for region, amount, urgent in ORDERS:
            producer.set_property("region", region).set_property("amount", amount).set_property("urgent", urgent)
            await producer.send(topic, f"{amount} from {region}")
        for selector, consumer in zip(SELECTORS, consumers, strict=True):
            received = []
            while (text := await consumer.receive_body_no_wait(str)) is not None:
                received.append(text)
            print(f"{selector}: {', '.join(received)}")


if __name__ == "__main__":
    asyncio.run(main())
