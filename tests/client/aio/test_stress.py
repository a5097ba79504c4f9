"""Many tasks at once: nothing is lost, doubled or stuck, whatever is cancelled, rolled back or closed meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from sievemq import DeliveryMode, JMSException, Message, Queue, Session, TextMessage
from sievemq.aio import Connection, ConnectionFactory
from sievemq_broker import EmbeddedBroker

from ..both import text
from .conftest import Connect
from .scripted import until

MESSAGES = 1_500


async def produce(connection: Connection, queue: Queue, first: int, count: int, mode: int) -> None:
    session = await connection.create_session()
    producer = await session.create_producer(queue)
    producer.set_delivery_mode(mode)
    for number in range(first, first + count):
        await producer.send(TextMessage(str(number)))
    await session.close()


@pytest.mark.parametrize("seed", range(4))
async def test_receivers_that_are_cancelled_and_closed(connect: Connect, queue: Queue, seed: int) -> None:
    """Every message is received once, although receives are cancelled and consumers closed all the time."""
    dice = random.Random(seed)
    connection = await connect()
    got: Counter[str | None] = Counter()
    stop = asyncio.Event()

    async def receive() -> None:
        while not stop.is_set():
            session = await connection.create_session()
            consumer = await session.create_consumer(queue)
            for _ in range(dice.randrange(1, 40)):

                async def one(consumer: object = consumer) -> None:
                    message = await consumer.receive(20)
                    if message is not None:
                        got[text(message)] += 1

                task = asyncio.create_task(one())
                if dice.random() < 0.5:
                    for _ in range(dice.randrange(6)):
                        await asyncio.sleep(0)
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await (consumer if dice.random() < 0.5 else session).close()
            await session.close()

    receivers = [asyncio.create_task(receive()) for _ in range(4)]
    quick = produce(await connect(), queue, 0, MESSAGES // 2, DeliveryMode.NON_PERSISTENT)
    sure = produce(await connect(), queue, MESSAGES // 2, MESSAGES // 2, DeliveryMode.PERSISTENT)
    await asyncio.gather(quick, sure)
    await until(lambda: len(got) == MESSAGES)
    stop.set()
    await asyncio.gather(*receivers)
    assert got == Counter({str(number): 1 for number in range(MESSAGES)})


@pytest.mark.parametrize("seed", range(4))
async def test_transacted_listeners_that_roll_back(connect: Connect, queue: Queue, seed: int) -> None:
    """Each message is moved to the other queue once: commit and rollback are all or nothing."""
    dice = random.Random(seed)
    moved = Queue("moved")
    sessions = []
    for _ in range(3):
        session = await (await connect()).create_session(Session.SESSION_TRANSACTED)
        producer = await session.create_producer(moved)

        async def on_message(message: Message, session: object = session, producer: object = producer) -> None:
            await producer.send(TextMessage(text(message)))
            if dice.random() < 0.1 and message.get_int_property("JMSXDeliveryCount") < 5:
                await session.rollback()
            else:
                await session.commit()

        for _ in range(2):
            (await session.create_consumer(queue)).set_message_listener(on_message)
        sessions.append(session)
    count = MESSAGES // 3
    await produce(await connect(), queue, 0, count, DeliveryMode.PERSISTENT)
    reading = await (await connect()).create_session()
    consumer = await reading.create_consumer(moved)
    got = Counter([text(await consumer.receive(60_000)) for _ in range(count)])
    assert got == Counter({str(number): 1 for number in range(count)})
    for session in sessions:
        await session.close()
    assert await consumer.receive_no_wait() is None


async def test_a_broker_that_stops_lets_everybody_go() -> None:
    """Receives, sends, listeners and closes come to an end when the broker does."""
    with EmbeddedBroker() as broker:
        connection = await ConnectionFactory(broker.url, reconnect=0).create_connection()
        await connection.start()
        receiving = await (await connection.create_session()).create_consumer(Queue("nothing"))
        listening = await (await connection.create_session()).create_consumer(Queue("orders"))
        listening.set_message_listener(lambda message: None)
        producer = await (await connection.create_session()).create_producer(Queue("orders"))

        async def send() -> None:
            while True:
                await producer.send(TextMessage("x"))

        tasks = [asyncio.create_task(receiving.receive()), asyncio.create_task(send())]
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, broker.stop)
        async with asyncio.timeout(60):
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, JMSException) for result in results)
            await connection.close()
