"""The thread of control of a session: one task at a time receives in it, or its listeners are called (THR-02)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NoReturn

from sievemq._engine import (
    CLOSED,
    PATIENCE,
    SHUT,
    Callbacks,
    Completion,
    EngineConsumer,
    EngineProducer,
    EngineSession,
    TimeLimit,
)
from sievemq._front import SHORT_TIMEOUT, sending, settling
from sievemq.aio.acknowledging import NOTHING, Acknowledgement
from sievemq.aio.callbacks import CompletionCalls
from sievemq.aio.delivery import Delivery
from sievemq.aio.transport import Transport, turn, wake
from sievemq.destinations import Destination
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq.messages import Message

#: The last receive of so many lets the loop turn, although its message is there already; not the first: what it gets
#: may be all that this consumer is for. A power of two, less one.
_TURN: Final = 127


class Control:
    """Knows which task receives in a session, and receives for it; owns the delivery task and the completion calls.

    Args:
        owner: the session, which lives, and its connection with it, as long as anything that it made.

    Attributes:
        receiving: the consumer at which some task receives; None if none does.
        delivery: calls the listeners.
        calls: calls the callbacks of asynchronous sends.
    """

    __slots__ = ("__weakref__", "_doubts", "_owner", "calls", "delivery", "engine", "receiving", "transport")

    def __init__(self, engine: EngineSession, transport: Transport, owner: object) -> None:
        self._owner = owner
        self.engine = engine
        self._doubts = engine.outcomes.doubts
        self.transport = transport
        self.receiving: EngineConsumer | None = None
        self.delivery = Delivery(engine, transport, self.recover)
        self.calls = CompletionCalls(transport, engine.sends)

    # -- receiving ----------------------------------------------------------------------------------------------------

    async def receive(self, consumer: EngineConsumer, timeout: int | None) -> Message | None:
        """Receive a message that is in the buffer, or wait as :meth:`receive_by`."""
        taken = consumer.taken
        if (
            consumer.buffer
            and not consumer.stops
            and self.receiving is None
            and self.delivery.idle
            and ~taken & _TURN
            and not self._doubts
        ):
            try:
                message = consumer.take(True)
                if message is not None:
                    if consumer.taken >= consumer.credit.mark or self.transport.asleep:
                        self._after_take(consumer)
                    return message
            except BaseException as error:
                self.interrupted(consumer, taken, error)
                raise
        return await self.receive_by(consumer, consumer.take_for_good, timeout)

    async def receive_by(  # noqa: C901
        self, consumer: EngineConsumer, take: Callable[[], Message | None], timeout: int | None
    ) -> Message | None:
        """Receive with all checks, waiting if need be. Nothing is awaited between the take and the return: a receive
        that is cancelled has taken nothing.

        Args:
            timeout: in ms; 0 or None waits without limit.
        """
        transport = self.transport
        loop = transport.loop
        if self.delivery.calling is not None:
            await self._left(consumer)
        self._enter(consumer)
        timer: asyncio.TimerHandle | None = None
        outbox = self.engine.outbox
        limit = TimeLimit(self.engine.terms, loop.time(), timeout)
        # With a short time to wait there is none to lose before WANT (PATIENCE).
        patient = not timeout or timeout >= SHORT_TIMEOUT
        expired = False
        future: asyncio.Future[bool] | None = None
        try:
            if consumer.buffer and not ~consumer.taken & _TURN:
                await turn()
            while True:
                if consumer.stops >= SHUT:
                    return None  # CLO-06
                if outbox.failure is not None:
                    outbox.check_open()
                if self._doubts and self.engine.outcomes.known:
                    await self.raise_doubts()
                message = take() if consumer.buffer and not consumer.stops else None
                if message is not None:
                    self._after_take(consumer)
                    return message
                if expired or (future is not None and limit.left(loop.time()) <= 0.0):
                    break
                patient = patient and not consumer.stops and not consumer.expect()
                if not patient:
                    consumer.want()
                urgent = outbox.urgent
                if urgent and transport.asleep:
                    transport.flush_soon()
                if transport.busy_poll and (urgent or transport.asked):
                    transport.look()
                future = loop.create_future()
                consumer.waits(partial(wake, future))
                if patient and not consumer.lone:
                    timer = loop.call_later(PATIENCE, wake, future)
                elif timeout:
                    timer = loop.call_later(limit.left(loop.time()), wake, future, True)
                expired = await future
                patient = False
                if timer is not None:
                    timer.cancel()
        finally:
            self.receiving = None
            consumer.waits(None)
            if timer is not None:
                timer.cancel()
        return await self.receive_no_wait(consumer, take) if limit.must_look and consumer.stops < SHUT else None

    async def receive_no_wait(self, consumer: EngineConsumer, take: Callable[[], Message | None]) -> Message | None:
        """Receive a message that is available now, in the buffer or at the broker."""
        if self.delivery.calling is not None:
            await self._left(consumer)
        self._enter(consumer)
        try:
            await self.raise_doubts()
            if consumer.buffer and not ~consumer.taken & _TURN:
                await turn()
            message = take() if not consumer.stops else None
            if message is None:
                completion = consumer.want(answered=True)
                if completion is None:  # MCO-06: stopped
                    return None
                try:
                    await self.transport.ask(lambda: completion)
                except JMSException:
                    if consumer.stops >= SHUT:
                        return None
                    raise
                message = take() if not consumer.stops else None
            if message is not None:
                self._after_take(consumer)
            return message
        finally:
            self.receiving = None

    def _after_take(self, consumer: EngineConsumer) -> None:
        if consumer.taken >= consumer.credit.mark:
            self.top_up(consumer)
        elif self.transport.asleep:
            self.transport.nudge()

    def top_up(self, consumer: EngineConsumer) -> None:
        """Grant credit for more messages of a consumer."""
        consumer.top_up()
        self.transport.flush_soon()

    def interrupted(self, consumer: EngineConsumer, taken: int, error: BaseException) -> None:
        """A signal handler raised while a message was taken: the connection is lost, and the message is redelivered."""
        if not isinstance(error, Exception):
            if consumer.taken != taken:
                consumer.unsettle()
            self.transport.broken(error)

    async def _left(self, consumer: EngineConsumer) -> None:
        """A listener runs, although it was unset: wait for its end, as its message is not done with yet."""
        self._check_receivable(consumer)
        await self.delivery.left()

    def _enter(self, consumer: EngineConsumer) -> None:
        """Begin to receive, alone in the session, or raise."""
        self._check_receivable(consumer)
        if self.receiving is not None:
            self._refuse()
        self.receiving = consumer

    def _check_receivable(self, consumer: EngineConsumer) -> None:
        """Raise unless this task may receive at the consumer, if no other does."""
        self.transport.check_loop()
        if consumer.stops:  # else nothing is closed
            self.check_open(consumer)
        delivery = self.delivery
        if delivery.idle:
            return
        if delivery.wanted:
            raise IllegalStateException(
                "the session has a message listener: it receives either by listeners or by receive (MCO-12)"
            )
        if delivery.mine:
            raise IllegalStateException("a message listener cannot receive: its message is not done with yet")

    def check_open(self, consumer: EngineConsumer) -> None:
        """Raise unless the consumer and the session can be used."""
        if consumer.stops >= CLOSED:
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

    async def after(
        self, consumer: EngineConsumer, until: float, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Do something once no listener of a consumer is running. Its gate is shut. If it has to wait it is carried out
        even if the caller is cancelled.

        Args:
            until: by the loop's clock, until when a listener is awaited that itself waits for the broker.
        """
        if self.delivery.calling is not consumer or self.delivery.mine:
            await work()
            return

        async def wait() -> None:
            await self.delivery.left(consumer, until)
            await work()

        await asyncio.shield(self.transport.loop.create_task(wait()))

    def check_alone(self) -> None:
        """Raise for a use of the session while another task receives in it."""
        if self.receiving is not None and not self.delivery.mine:
            self._refuse()

    async def settle_doubts(self) -> None:
        """Before a request about what the session has sent and received: wait for the outcome of calls that were
        broken off. The caller ends with :meth:`Outcomes.hear`.

        Raises:
            JMSException: one of them has failed; what the session has sent and received since is rolled back, if it is
                transacted. Or the broker has not answered within the option `request_timeout`.
        """
        if self._doubts:
            await self.transport.ask(self.engine.resolve)
            self.engine.outcomes.tell()

    async def raise_doubts(self) -> None:
        """The same for a caller that raises the error as it is."""
        try:
            await self.settle_doubts()
        except JMSException as error:
            self.engine.outcomes.hear(error)
            raise

    async def paused(self) -> None:
        """Return once no listener is running (CON-16). Delivery has stopped."""
        await self.delivery.left(None, self.transport.close_by())

    async def recover(self, failure: Mapping[str, object] | None = None) -> None:
        """Redeliver the messages that were received and not acknowledged.

        Args:
            failure: as of :meth:`EngineSession.recover`.
        """
        await self.conclude(lambda: self.engine.recover(failure))

    async def conclude(self, request: Callable[[], Completion[Any]]) -> Any:
        """Make a request about what the session has sent and received, and hear its outcome."""
        outcomes = self.engine.outcomes
        try:
            answer = await self.transport.ask(request)
        except JMSException as error:
            outcomes.hear(error)
            raise
        outcomes.hear()
        return answer

    def acknowledge(self) -> Awaitable[None]:
        """What message.acknowledge() does (MSG-01): at once; the broker's answer can be awaited."""
        self.transport.check_loop()
        outcomes = self.engine.outcomes
        with settling("acknowledge", self.engine.terms):
            if self._doubts and not self.engine.transacted and outcomes.known:
                failed = outcomes.failed
                outcomes.hear()
                if failed is not None:
                    raise failed
            outcome = self.engine.acknowledge(waits=False)
        if outcome.done:
            return NOTHING
        self.transport.flush_soon()

        async def wait() -> None:
            outcomes.add(outcome)
            await self.raise_doubts()

        return Acknowledgement(wait, outcome)

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(
        self,
        engine: EngineProducer,
        message: object,
        destination: Destination,
        callbacks: Callbacks | None,
        delivery_mode: object = None,
        priority: object = None,
        time_to_live: object = None,
    ) -> Completion[None] | None:
        """Hand a message over; the window has room. Arguments and result as of :meth:`EngineProducer.send`."""
        try:
            completion = engine.send(message, destination, callbacks, delivery_mode, priority, time_to_live)
        except BaseException as error:
            if engine.sends.torn:
                self.transport.broken(error, engine.sends)
            raise
        if engine.send_timeout and (completion is not None or callbacks is not None):
            sends = engine.sends
            self.transport.expect(sends, completion, engine.send_timeout, sends.sequence)
        return completion

    async def send_observed(
        self,
        engine: EngineProducer,
        message: Message,
        destination: Destination,
        callbacks: Callbacks | None,
        delivery_mode: object = None,
        priority: object = None,
        time_to_live: object = None,
    ) -> None:
        """Send, and notify observers. Arguments as of :meth:`EngineProducer.send`."""
        with sending(self.engine.terms, message, destination):
            if not self.transport.admits(engine.sends):
                await self.make_room(engine)
            completion = self.send(engine, message, destination, callbacks, delivery_mode, priority, time_to_live)
            if completion is not None:
                await self.transport.wait(completion)

    async def make_room(self, engine: EngineProducer) -> None:
        """Before a send: let the loop turn if much is to be written, wait if the socket or the broker is slow. Once the
        message is handed over nothing may be awaited (CPL-05)."""
        sends, transport, timeout = engine.sends, self.transport, engine.send_timeout
        transport.check_loop()
        until = transport.loop.time() + timeout / 1000.0 if timeout else None
        while not transport.admits(sends):
            engine.check_open()
            if sends.window_is_full:
                opened = sends.window_opens()
                if engine.send_timeout:
                    transport.expect(sends, opened, engine.send_timeout)
                await transport.wait(opened)
            elif transport.paused or transport.engine.repairing:
                if not await transport.drained(until):
                    raise sends.left_behind(timeout)
            else:
                transport.flush_soon()
                await turn()

    # -- closing ------------------------------------------------------------------------------------------------------

    async def called_back(self) -> None:
        """Wait for the callbacks of the asynchronous sends made so far (PRO-08)."""
        if not self.engine.closed:
            await self.calls.wait(self.transport.close_by())

    async def settle_sends(self) -> None:
        """Wait for the callbacks of the asynchronous sends made so far (CPL-09, CPL-10).

        The others need no wait: what comes next on the connection comes behind them.
        """
        if self.engine.sends.calls_back:
            self.transport.flush_soon()
        await self.calls.wait()

    async def leave(self, until: float) -> None:
        """The gate is shut: wait for everybody inside, then end the delivery task. On a lost connection only for
        listeners and callbacks that are running.

        Args:
            until: by the loop's clock, how long what was sent may wait for room (D-26), and calls for the broker.
        """
        await self.delivery.left(None, until)
        engine, transport = self.engine, self.transport
        if engine.sends.unheard:
            await transport.wait_until(transport.engine.until_lost(engine.sends.settled()), until)
        await self.calls.wait(until)
        self.delivery.stop()

    def check_may_close(self, what: str) -> None:
        """Raise in a listener or callback that closing would wait for."""
        if self.delivery.mine:
            raise IllegalStateException(f"{what} cannot be closed by a message listener that it would wait for")
        if self.calls.mine:
            raise IllegalStateException(f"{what} cannot be closed in a completion callback that it would wait for")
