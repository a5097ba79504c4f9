"""What an outage counts for: deliveries, attempts, dead letters (D-40)."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.both import SOON, Api, outline, text
from tests.client.relay import Relay

from sievemq import JMSException

from .outage import begin_outage, connect, lose

DEAD = "DLQ.orders"


def limit(api: Api, attempts: int) -> None:
    """The most attempts of the queue of this test."""
    api.start_broker(settings={"destinations": {"orders": {"max_attempts": attempts}}})


async def test_acknowledge_after_an_outage_tells_the_truth_about_a_last_attempt(api: Api) -> None:
    limit(api, 1)
    await api.fill("orders", "a")
    with Relay(api.broker.port) as relay:
        connection = await connect(api, relay)
        session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
        consumer = await session.create_consumer(api.queue())
        first = await consumer.receive(SOON)
        await lose(api, relay, connection)
        with pytest.raises(JMSException, match="redelivered"):
            await first.acknowledge()
        again = await consumer.receive(SOON)
        assert outline(again) == ("a", True, 2)
        await again.acknowledge()
        await connection.close()
        assert (await api.left(), await api.left(DEAD)) == ([], [])


async def test_a_rollback_during_an_outage_is_an_attempt(api: Api) -> None:
    limit(api, 1)
    await api.fill("orders", "a", "b")
    with Relay(api.broker.port) as relay:
        connection = await connect(api, relay)
        session = await connection.create_session(api.SESSION_TRANSACTED)
        consumer = await session.create_consumer(api.queue())
        assert text(await consumer.receive(SOON)) == "a"
        await begin_outage(api, relay, connection)
        rolling = api.task(session.rollback())
        await api.until_paused(consumer)
        relay.accept()
        await rolling
        assert outline(await consumer.receive(SOON)) == ("b", False, 1)
        await session.commit()
        assert (await api.left(), await api.left(DEAD)) == ([], ["a"])


async def test_a_listener_that_raises_during_an_outage_loses_no_message(api: Api) -> None:
    limit(api, 2)
    with Relay(api.broker.port) as relay:
        connection = await connect(api, relay)
        session = await connection.create_session()
        consumer = await session.create_consumer(api.queue())
        entered, leave = api.signal(), api.signal()
        heard: list[tuple[str | None, bool, int]] = []

        async def on_message(message: object) -> None:
            heard.append(outline(message))  # type: ignore[arg-type]
            if len(heard) == 1:
                entered.set()
                await leave.wait()
                raise ValueError("no")

        listener = api.listener(on_message)
        consumer.set_message_listener(listener)
        await api.fill("orders", "a")
        await entered.wait()
        await begin_outage(api, relay, connection)
        leave.set()
        relay.accept()
        await listener.arrived(2)
        assert heard == [("a", False, 1), ("a", True, 2)]
        await connection.close()
        assert (await api.left(), await api.left(DEAD)) == ([], [])


@pytest.mark.parametrize("prefetch", [1, 10, 100])
async def test_dead_letters_were_in_work_as_often_as_the_limit_says(api: Api, prefetch: int) -> None:
    """Workers end in turn: closed in order, killed, or cut off and back. Every third message is never finished."""
    most, sent = 3, [f"{n}" for n in range(6)]
    limit(api, most)
    await api.fill("orders", *sent)
    attempts = dict.fromkeys(sent, 0)
    handled: list[str | None] = []

    def unfinished() -> int:
        return sum(count < most for body, count in attempts.items() if body not in handled)

    with Relay(api.broker.port) as relay:
        for turn in range(40):
            if not unfinished():
                break
            how = ("close", "kill", "return")[turn % 3]
            repairs = {} if how == "return" else {"reconnect": 0}
            connection = await connect(api, relay, prefetch=prefetch, **repairs)
            session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
            consumer = await session.create_consumer(api.queue())
            message = await consumer.receive(SOON)
            body = text(message)
            assert body is not None
            if int(body) % 3:
                await message.acknowledge()
                handled.append(body)
            else:
                attempts[body] += 1
                if how == "return":
                    attempts[body] -= attempts[body] == most  # it has survived its last attempt
                    await lose(api, relay, connection)
                    assert text(await consumer.receive(SOON)) == body
                    attempts[body] += 1
                elif how == "kill":
                    relay.cut()
            await connection.close()
            while len(await api.left()) < unfinished():  # noqa: ASYNC110 - the broker has to notice the loss
                await asyncio.sleep(0)
    dead = await api.left(DEAD)
    assert sorted(str(body) for body in dead) == ["0", "3"]
    assert sorted(str(body) for body in handled + dead) == sent
