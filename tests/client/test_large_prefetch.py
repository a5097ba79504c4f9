"""What a consumer fetches ahead is bounded in bytes, and no consumer is left waiting by that; in both APIs."""

from __future__ import annotations

from sievemq._engine.credit import WINDOW_BYTES

from .both import SOON, Api
from .bridge import engine_of

SIZE = 1024 * 1024
COUNT = 3 * WINDOW_BYTES // SIZE


async def test_large_messages_of_a_queue_are_fetched_a_few_at_a_time(api: Api) -> None:
    context = await api.context()
    producer = context.create_producer()
    for number in range(COUNT):
        await producer.send(api.queue("large"), bytes([number]) * SIZE)
    consumer = await context.create_consumer(api.queue("large"))
    buffer, most = engine_of(consumer).buffer, 0
    for number in range(COUNT):
        assert (await consumer.receive_body(bytes, SOON))[:1] == bytes([number])
        most = max(most, len(buffer))
    assert most <= WINDOW_BYTES // SIZE + 1  # the bytes of one may be on their way when the next are granted
    assert await consumer.receive_no_wait() is None


async def test_a_subscriber_gets_all_of_many_large_messages(api: Api) -> None:
    context, other = await api.context(), await api.context()
    for_listener = await context.create_consumer(api.topic("large"))
    heard = api.listener()
    for_listener.set_message_listener(heard)
    for_receives = await other.create_consumer(api.topic("large"))
    async with await api.factory().create_context() as publishing:
        for number in range(COUNT):
            await publishing.create_producer().send(api.topic("large"), bytes([number]) * SIZE)
    for number in range(COUNT):
        assert (await for_receives.receive_body(bytes, SOON))[:1] == bytes([number])
    assert len(await heard.arrived(COUNT)) == COUNT
