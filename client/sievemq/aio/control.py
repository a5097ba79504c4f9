"""The thread of control of a session: one task at a time receives in it, or its listeners are called (THR-02)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

from sievemq._engine import PATIENCE, EngineConsumer, EngineSession
from sievemq.aio.callbacks import CompletionCalls
from sievemq.aio.delivery import Delivery
from sievemq.aio.transport import Transport, turn, wake
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq.messages import Message

__all__ = ["TURN_MASK", "Control"]

#: Milliseconds below which a wait is too short to wait for what is probably on its way.
_SHORT: Final = 20
#: The last receive of so many lets the loop turn, although its message is there already; not the first: what it gets
#: may be all that this consumer is for. A power of two, less one.
TURN_MASK: Final = 127


class Control:
    """Knows which task receives in a session, and receives for it; owns the delivery task and the completion calls.

    Args:
        engine: of the session.
        transport: of its connection.
        owner: the session, which lives, and its connection with it, as long as anything that it made.

    Attributes:
        receiving: the consumer at which some task receives; None if none does.
        delivery: calls the listeners.
        calls: calls the callbacks of asynchronous sends.
    """

    __slots__ = ("_owner", "calls", "delivery", "engine", "receiving", "transport")

    def __init__(self, engine: EngineSession, transport: Transport, owner: object) -> None:
        self._owner = owner
        self.engine = engine
        self.transport = transport
        self.receiving: EngineConsumer | None = None
        self.delivery = Delivery(engine, transport, self.recover)
        self.calls = CompletionCalls(transport, engine.sends)

    # -- receiving ----------------------------------------------------------------------------------------------------

    async def receive(
        self, consumer: EngineConsumer, take: Callable[[], Message | None], timeout: int | None
    ) -> Message | None:
        """Receive with all checks, waiting if need be. Nothing is awaited between the take and the return: a receive
        that is cancelled has taken nothing.

        Args:
            consumer: where.
            take: takes a message from its buffer.
            timeout: in ms; 0 or None waits without limit.
        """
        transport = self.transport
        await self._enter(consumer)
        timer: asyncio.TimerHandle | None = None
        outbox, terms = self.engine.outbox, self.engine.terms
        end = transport.loop.time() + terms.skipped + timeout / 1000.0 if timeout else None
        # With a short time to wait there is none to lose before the broker is told (PATIENCE).
        patient = not timeout or timeout >= _SHORT
        expired = False
        try:
            if consumer.buffer and not ~consumer.taken & TURN_MASK:
                await turn()
            while True:
                if consumer.shut:
                    return None  # CLO-06
                if outbox.failure is not None:
                    outbox.check_open()
                message = take() if consumer.flowing else None
                if message is not None:
                    self._after_take(consumer)
                    return message
                if expired or (end is not None and end <= transport.loop.time() + terms.skipped):
                    return None
                patient = patient and consumer.flowing and not consumer.expect() and not consumer.lone
                if not patient:
                    consumer.want()
                if not transport.armed and outbox.urgent:
                    transport.flush_soon()
                if transport.asked or transport.armed:
                    transport.look()
                future: asyncio.Future[bool] = transport.loop.create_future()
                consumer.waits(partial(wake, future))
                if patient:
                    timer = transport.loop.call_later(PATIENCE, wake, future)
                elif end is not None:
                    timer = transport.loop.call_at(end - terms.skipped, wake, future, True)
                expired = await future
                patient = False
                if timer is not None:
                    timer.cancel()
        finally:
            self.receiving = None
            consumer.waits(None)
            if timer is not None:
                timer.cancel()

    async def receive_no_wait(self, consumer: EngineConsumer, take: Callable[[], Message | None]) -> Message | None:
        """Receive what is there now, in the buffer or at the broker."""
        await self._enter(consumer)
        try:
            if consumer.buffer and not ~consumer.taken & TURN_MASK:
                await turn()
            message = take() if consumer.flowing else None
            if message is None:
                completion = consumer.want(answered=True)
                if completion is None:  # MCO-06: stopped
                    return None
                try:
                    await self.transport.ask(lambda: completion)
                except JMSException:
                    if consumer.shut:
                        return None
                    raise
                message = take() if consumer.flowing else None
            if message is not None:
                self._after_take(consumer)
            return message
        finally:
            self.receiving = None

    def _after_take(self, consumer: EngineConsumer) -> None:
        if consumer.taken >= consumer.mark:
            consumer.top_up()
            self.transport.flush_soon()
        elif not self.transport.armed:
            self.transport.acknowledge_soon()

    async def _enter(self, consumer: EngineConsumer) -> None:
        """Begin to receive, alone in the session, or raise. A listener that runs although it was unset is waited for:
        its message is not done with yet."""
        self.check_open(consumer)
        self.transport.check_loop()
        delivery = self.delivery
        if delivery.wanted:
            raise IllegalStateException(
                "the session has a message listener: it receives either by listeners or by receive (MCO-12)"
            )
        if delivery.mine:
            raise IllegalStateException("a message listener cannot receive: its message is not done with yet")
        if delivery.calling is not None:
            await delivery.left()
            self.check_open(consumer)
        if self.receiving is not None:
            self._refuse()
        self.receiving = consumer

    def check_open(self, consumer: EngineConsumer) -> None:
        """Raise unless the consumer and the session can be used."""
        if consumer.closed:
            gone = consumer.gone
            raise IllegalStateException(f"the consumer is closed{f': {gone}' if gone else ''}", None, gone)
        self.engine.check_open()

    # -- what must be alone -------------------------------------------------------------------------------------------

    async def exclusively(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what must not happen while a listener or a receive is under way; waits for a listener."""
        delivery = self.delivery
        if delivery.mine:
            await work()
            return
        if self.receiving is not None:
            self._refuse()
        delivery.hold()
        try:
            await delivery.left()
            await work()
        finally:
            delivery.release()

    def _refuse(self) -> NoReturn:
        """Raise for a use of the session while another task receives in it."""
        self.engine.check_open()
        raise IllegalStateException(
            "another task is receiving in this session: a session is used by one task at a time "
            "(MCO-13); create_context() and create_session() make more of them"
        )

    async def recover(self) -> None:
        """Have what was received and not acknowledged come again."""
        await self.transport.ask(self.engine.recover)

    # -- closing ------------------------------------------------------------------------------------------------------

    async def settle_sends(self) -> None:
        """Wait for the sends made so far and for the callbacks of the asynchronous ones (CPL-09, CPL-10)."""
        await self.transport.ask(self.engine.sends.settled)
        await self.calls.wait()

    async def leave(self, until: float | None) -> None:
        """The gate is shut: wait for everybody inside, then end the delivery task.

        Args:
            until: by the loop's clock, how long what was sent may wait for room (D-26); None for ever.
        """
        await self.delivery.left()
        engine = self.engine
        if engine.sends.linger:
            await self.transport.wait_until(engine.sends.settled(), until)
        await self.calls.wait()
        self.delivery.stop()

    def check_may_close(self, what: str) -> None:
        """Raise in a listener or callback that closing would wait for."""
        if self.delivery.mine:
            raise IllegalStateException(f"{what} cannot be closed by a message listener that it would wait for")
        if self.calls.mine:
            raise IllegalStateException(f"{what} cannot be closed in a completion callback that it would wait for")
