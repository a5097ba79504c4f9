"""A listener fails in the middle of a batch: what it finished is done, what it failed at comes again."""

from __future__ import annotations

import asyncio

from sievemq import ConnectionFactory, Message
from sievemq.aio import ConnectionFactory as AsyncConnectionFactory
from sievemq_broker import EmbeddedBroker


async def test_a_failed_message_of_a_listener_is_redelivered_marked(broker: EmbeddedBroker) -> None:
    """All messages are in the buffer before the first is handled, so the acknowledgements of one and two are still
    waiting to be written when three fails: they must not cover it."""
    seen: list[tuple[str | None, bool]] = []
    complete = asyncio.Event()

    def on_message(message: Message) -> None:
        text, again = message.get_body(str), message.get_jms_redelivered()
        seen.append((text, again))
        if text == "three" and not again:
            raise ValueError("the first time")
        if len(seen) == 5:
            complete.set()

    texts = ["one", "two", "three", "four"]
    async with await AsyncConnectionFactory(broker.url).create_context() as context:
        queue = context.create_queue("work")
        for text in texts:
            await context.create_producer().send(queue, text)
        context.set_auto_start(False)
        consumer = await context.create_consumer(queue)
        consumer.set_message_listener(on_message)
        await context.start()
        await asyncio.wait_for(complete.wait(), 60)
    assert seen == [("one", False), ("two", False), ("three", False), ("three", True), ("four", False)]
    with ConnectionFactory(broker.url).create_context() as context:
        assert context.create_consumer(context.create_queue("work")).receive_no_wait() is None
