"""Messages that expire in a consumer's buffer, in both APIs."""

from __future__ import annotations

from typing import Any

from sievemq import Message

from .both import Api, text
from .bridge import engine_of


async def test_a_listener_goes_on_after_a_window_of_its_subscriber_has_expired_bit_by_bit(api: Api) -> None:
    api.start_broker()
    session = await api.session()
    busy, free = [[api.signal() for _ in range(5)] for _ in range(2)]
    rounds = iter(zip(busy, free, strict=True))

    async def block(message: Message) -> None:
        begun, go_on = next(rounds)
        begun.set()
        await go_on.wait()

    late: Any = await session.create_consumer(api.topic("prices"))
    others = await session.create_consumer(api.queue("others"))
    heard = api.listener()
    late.set_message_listener(heard)
    others.set_message_listener(api.listener(block))
    buffer, few = engine_of(late).buffer, engine_of(late).credit.half // 2
    async with await api.factory().create_context() as context:
        producer = context.create_producer()
        for number in range(5):
            await producer.set_time_to_live(0).send(api.queue("others"), "go")
            await busy[number].wait()
            producer.set_time_to_live(600_000)
            for _ in range(few):
                await producer.send(api.topic("prices"), "late")
            await api._until(lambda: len(buffer) == few)
            await api.broker.clock.advance(seconds=601)
            free[number].set()
            await api._until(lambda: not buffer)
        await producer.set_time_to_live(0).send(api.topic("prices"), "new")
    await heard.arrived(1)
    assert [text(message) for message in heard.messages] == ["new"]
