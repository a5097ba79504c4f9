"""A short conversation, cut at any byte, in either direction, over both APIs: the account is right every time.

What was confirmed is there; nothing is delivered unmarked twice; what was acknowledged does not come again; producers
keep their order; a transaction is there as a whole or not at all, and commit says which.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sievemq import JMSException, JMSRuntimeException, TextMessage, TransactionRolledBackException

from .both import Api, text
from .relay import Relay, options

SOON = 60_000


class Account:
    """What the application believes to have happened."""

    def __init__(self) -> None:
        self.confirmed: list[str] = []
        self.asked: list[str] = []  # sent, and not heard of it
        self.acknowledged: list[str] = []
        self.sightings: list[tuple[str, bool]] = []
        self.committed: list[str] = []
        self.rolled_back: list[str] = []

    def see(self, message: Any) -> str:
        body = text(message)
        assert body is not None
        assert (message.get_int_property("JMSXDeliveryCount") > 1) == message.get_jms_redelivered()
        self.sightings.append((body, message.get_jms_redelivered()))
        return body

    def check(self, left: list[tuple[str, bool]]) -> None:
        everything = self.sightings + left
        unmarked = Counter(body for body, marked in everything if not marked)
        assert max(unmarked.values(), default=0) <= 1, everything
        there = {body for body, _ in everything}
        assert not set(self.confirmed) - there, "lost"
        assert not set(self.rolled_back) & there, "came although its transaction was rolled back"
        assert not set(self.committed) - there, "lost from a committed transaction"
        assert not {body for body, _ in left} & set(self.acknowledged), "came again after it was acknowledged"
        order = [body for body, marked in everything if not marked and body.startswith("a")]
        assert order == sorted(order), order


async def converse(api: Api, url: str, account: Account) -> None:
    """Everything that a session can do, in a few hundred bytes."""
    connection = await api.factory(url, **options()).create_connection()
    try:
        await connection.start()
        session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
        producer = await session.create_producer(api.queue("q"))
        for body in ("a1", "a2"):
            await producer.send(TextMessage(body))
            account.confirmed.append(body)
        await producer.send(TextMessage("a3"), delivery_mode=1)
        consumer = await session.create_consumer(api.queue("q"))
        received = [account.see(await consumer.receive(SOON)), account.see(await consumer.receive(SOON))]
        try:
            await session._acknowledge()
        except JMSException:
            pass  # they come again
        else:
            account.acknowledged += received
        await consumer.close()

        transacted = await connection.create_session(api.SESSION_TRANSACTED)
        sender = await transacted.create_producer(api.queue("q"))
        taker = await transacted.create_consumer(api.queue("q"))
        taken = account.see(await taker.receive(SOON))
        for body in ("t1", "t2"):
            await sender.send(TextMessage(body))
        try:
            await transacted.commit()
        except TransactionRolledBackException:
            account.rolled_back += ["t1", "t2"]
        else:
            account.committed += ["t1", "t2"]
            account.acknowledged.append(taken)
        reply = await session.create_temporary_queue()
        await (await session.create_producer(reply)).send(TextMessage("r"))
        assert text(await (await session.create_consumer(reply)).receive(SOON)) == "r"
    finally:
        await connection.close()


async def drain(api: Api) -> list[tuple[str, bool]]:
    """What is left, also of what was handed out too often."""
    left = []
    async with await api.factory().create_context() as context:
        for name in ("q", "DLQ.q"):
            consumer = await context.create_consumer(api.queue(name))
            while (message := await consumer.receive_no_wait()) is not None:
                left.append((text(message) or "", message.get_jms_redelivered()))
            await consumer.close()
    return left


async def play(api: Api, relay: Relay) -> tuple[int, int]:
    """Converse once and check; bytes from client and broker on the first connection."""
    account = Account()
    first = len(relay._pairs)
    await converse(api, relay.url(api.url), account)
    account.check(await drain(api))
    return relay.passed(first)


async def cut_at(api: Api, phase: int, *, step: int = 0, places: int = 0) -> int:
    """The conversation, cut after each `step` bytes, or in about so many places of either direction."""
    with Relay(api.broker.port) as relay:
        sizes = await play(api, relay)
        cuts = 0
        for direction, size in enumerate(sizes):
            apart = step or size // places
            for offset in range(phase % apart, size + 1, apart):
                limits: list[int | None] = [None, None]
                limits[direction] = offset
                relay.cut_next(*limits)
                try:
                    await play(api, relay)
                except (AssertionError, JMSException, JMSRuntimeException, TimeoutError) as error:
                    raise AssertionError(f"cut {'up' if direction == 0 else 'down'} at {offset}: {error}") from error
                cuts += 1
        assert relay.accepted > 1.9 * cuts  # each was followed by a further connection, except for those in GOODBYE
        return cuts


async def test_cut_at_some_bytes(api: Api) -> None:
    assert await cut_at(api, 7, places=25) >= 50


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_cut_at_every_byte(api: Api) -> None:
    """Either front is cut at every other byte: what they do with bytes, they share."""
    assert await cut_at(api, 0 if api.world == "aio" else 1, step=2) > 500
