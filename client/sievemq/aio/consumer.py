"""MessageConsumer (§8), and what it is called on a queue and on a topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from sievemq._engine import PATIENCE, EngineConsumer
from sievemq._front import Wanted, as_kind, check_timeout, message_callback
from sievemq.aio.listeners import MessageListener
from sievemq.aio.transport import turn, wake
from sievemq.destinations import Queue, Topic
from sievemq.exceptions import IllegalStateException, JMSException, MessageFormatException
from sievemq.messages import Message
from sievemq_core.durations import Milliseconds

if TYPE_CHECKING:
    from sievemq.aio.session import Session

__all__ = ["MessageConsumer", "QueueReceiver", "TopicSubscriber"]

T = TypeVar("T")
M = TypeVar("M", bound=Message)

#: Milliseconds below which a wait is too short to wait for what is probably on its way.
_SHORT: Final = 20
#: The last receive of so many lets the loop turn, although its message is there already; not the first: what it gets
#: may be all that this consumer is for. A power of two, less one.
_TURN_MASK: Final = 127


class MessageConsumer:
    """Made by a session. ``async for message in consumer`` receives until the consumer is closed.

    A receive that is cancelled has not taken a message: what has arrived meanwhile comes with the next one.
    """

    __slots__ = ("_engine", "_listener", "_session", "_transport")

    def __init__(self, session: Session, engine: EngineConsumer) -> None:
        self._session = session
        self._engine = engine
        self._transport = session._transport
        self._listener: MessageListener | Callable[[Message], Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        selector = f" where {self._engine.selector!r}" if self._engine.selector else ""
        return f"<{type(self).__name__} {self._engine.address}{selector}{', closed' if self._engine.closed else ''}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        engine, session = self._engine, self._session
        # As in receive(); here again because a further coroutine for each message would cost as much as all this.
        if engine.flowing and session._receiving is None and session._delivery.idle and ~engine.taken & _TURN_MASK:
            message = engine.take()
            if message is not None:
                if engine.acknowledges_itself:
                    engine.settle()
                if engine.taken >= engine.mark:
                    engine.top_up()
                    self._transport.flush_soon()
                elif not self._transport.armed:
                    self._transport.acknowledge_soon()
                return message
        if engine.shut or session._engine.closed or session._engine.outbox.closed:
            raise StopAsyncIteration
        message = await self._wait(self._take, None)
        if message is None:
            raise StopAsyncIteration
        return message

    def messages(self, message_type: type[M]) -> AsyncIterator[M]:
        """Receive messages of one class until the consumer is closed, by ``async for``.

        Args:
            message_type: as for :meth:`receive`, such as ``TextMessage``.

        Raises:
            TypeError: it is no class of messages.
            MessageFormatException: as :meth:`receive`; then the iteration is over.
        """
        return _Messages(self, message_type)

    def get_message_selector(self) -> str | None:
        """The selector; None if there is none (MCO-01)."""
        self._check_open()
        return self._engine.selector

    def get_message_listener(self) -> MessageListener | Callable[[Message], Any] | None:
        """The listener that was set (MCO-02)."""
        self._check_open()
        return self._listener

    def set_message_listener(self, listener: MessageListener | Callable[[Message], Any] | None) -> None:
        """Deliver to a listener from now on; None to receive again (MCO-02).

        Args:
            listener: an object with ``on_message(message)``, or a callable; may be a coroutine function.
        """
        callback = None if listener is None else message_callback(listener, awaits=True)
        self._check_open()
        self._transport.check_loop()
        engine = self._engine
        if callback is not None:
            engine.one_at_a_time()
        self._session._delivery.set_listener(engine, callback)
        self._listener = listener
        if callback is not None:
            engine.top_up()
        self._transport.flush_soon()

    # -- receiving ----------------------------------------------------------------------------------------------------

    @overload
    async def receive(self, timeout: Milliseconds | None = None) -> Message | None: ...

    @overload
    async def receive(self, timeout: Milliseconds | None, message_type: type[M]) -> M | None: ...

    @overload
    async def receive(self, *, message_type: type[M]) -> M | None: ...

    async def receive(
        self, timeout: Milliseconds | None = None, message_type: type[Message] = Message
    ) -> Message | None:
        """The next message; waits for one.

        Args:
            timeout: a timedelta, or an int of milliseconds; 0 or None waits without limit (MCO-04).
            message_type: the class that the message must be of, such as ``TextMessage``; any kind if not given.

        Returns:
            None when the time is over, or when the consumer, its session or its connection is closed meanwhile.

        Raises:
            ValueError: the timeout is negative, or neither of these.
            IllegalStateException: closed; the session has a listener (MCO-12); another task is receiving (MCO-13).
            MessageFormatException: the message is of another class. What becomes of it is said at
                :meth:`JMSConsumer.receive_body`.
            JMSException: the connection is lost.
        """
        if message_type is not Message:
            return await self._receive_as(as_kind(message_type), timeout)
        if timeout is not None and (type(timeout) is not int or timeout < 0):
            timeout = check_timeout(timeout)
        engine, session = self._engine, self._session
        if engine.flowing and session._receiving is None and session._delivery.idle and ~engine.taken & _TURN_MASK:
            message = engine.take()
            if message is not None:
                if engine.acknowledges_itself:
                    engine.settle()
                if engine.taken >= engine.mark:
                    engine.top_up()
                    self._transport.flush_soon()
                elif not self._transport.armed:
                    self._transport.acknowledge_soon()
                return message
        return await self._wait(self._take, timeout)

    @overload
    async def receive_no_wait(self) -> Message | None: ...

    @overload
    async def receive_no_wait(self, message_type: type[M]) -> M | None: ...

    async def receive_no_wait(self, message_type: type[Message] = Message) -> Message | None:
        """A message if one is available now, in the buffer or at the broker; otherwise None (MCO-05).

        Args:
            message_type: as for :meth:`receive`.
        """
        if message_type is not Message:
            return await self._receive_as_no_wait(as_kind(message_type))
        return await self._receive_no_wait(self._take)

    async def _receive_as(self, read: Callable[[Message], T], timeout: Milliseconds | None) -> T | None:
        """Receive what `read` gives of the next message."""
        if timeout is not None:
            timeout = check_timeout(timeout)
        wanted = Wanted(self._engine, read)
        try:
            return None if await self._wait(wanted.take, timeout) is None else wanted.value
        except MessageFormatException:
            await self._end_attempt()
            raise

    async def _receive_as_no_wait(self, read: Callable[[Message], T]) -> T | None:
        wanted = Wanted(self._engine, read)
        try:
            return None if await self._receive_no_wait(wanted.take) is None else wanted.value
        except MessageFormatException:
            await self._end_attempt()
            raise

    async def _receive_no_wait(self, take: Callable[[], Message | None]) -> Message | None:
        engine, transport, session = self._engine, self._transport, self._session
        await self._enter()
        try:
            if engine.buffer and not ~engine.taken & _TURN_MASK:
                await turn()
            message = take() if engine.flowing else None
            if message is None:
                completion = engine.want(answered=True)
                if completion is None:  # MCO-06: stopped
                    return None
                try:
                    await transport.ask(lambda: completion)
                except JMSException:
                    if engine.shut:
                        return None
                    raise
                message = take() if engine.flowing else None
            if message is not None:
                self._after_take()
            return message
        finally:
            session._receiving = None

    def _take(self) -> Message | None:
        """Take a message from the buffer."""
        engine = self._engine
        message = engine.take()
        if message is not None and engine.acknowledges_itself:
            engine.settle()
        return message

    async def _wait(self, take: Callable[[], Message | None], timeout: int | None) -> Message | None:
        """Receive with all checks, waiting if need be. Nothing is awaited between the take and the return: a receive
        that is cancelled has taken nothing."""
        engine, transport, session = self._engine, self._transport, self._session
        await self._enter()
        timer: asyncio.TimerHandle | None = None
        outbox, terms = session._engine.outbox, session._engine.terms
        end = transport.loop.time() + terms.skipped + timeout / 1000.0 if timeout else None
        # With a short time to wait there is none to lose before the broker is told (PATIENCE).
        patient = not timeout or timeout >= _SHORT
        expired = False
        try:
            if engine.buffer and not ~engine.taken & _TURN_MASK:
                await turn()
            while True:
                if engine.shut:
                    return None  # CLO-06
                if outbox.failure is not None:
                    outbox.check_open()
                message = take() if engine.flowing else None
                if message is not None:
                    self._after_take()
                    return message
                if expired or (end is not None and end <= transport.loop.time() + terms.skipped):
                    return None
                patient = patient and engine.flowing and not engine.expect() and not engine.lone
                if not patient:
                    engine.want()
                if not transport.armed and outbox.urgent:
                    transport.flush_soon()
                if transport.asked or transport.armed:
                    transport.look()
                future: asyncio.Future[bool] = transport.loop.create_future()
                engine.waits(partial(wake, future))
                if patient:
                    timer = transport.loop.call_later(PATIENCE, wake, future)
                elif end is not None:
                    timer = transport.loop.call_at(end - terms.skipped, wake, future, True)
                expired = await future
                patient = False
                if timer is not None:
                    timer.cancel()
        finally:
            session._receiving = None
            engine.waits(None)
            if timer is not None:
                timer.cancel()

    async def _end_attempt(self) -> None:
        """Have a message redelivered whose body was refused, if that counts."""
        engine = self._engine
        if engine.acknowledges_itself and engine.done != engine.handed:
            with suppress(JMSException):  # the message goes back with its connection's end
                await self._session._recover()

    def _after_take(self) -> None:
        if self._engine.taken >= self._engine.mark:
            self._engine.top_up()
            self._transport.flush_soon()
        elif not self._transport.armed:
            self._transport.acknowledge_soon()

    async def _enter(self) -> None:
        """Begin to receive, alone in the session, or raise. A listener that runs although it was unset is waited for:
        its message is not done with yet."""
        self._check_open()
        self._transport.check_loop()
        session = self._session
        delivery = session._delivery
        if delivery.wanted:
            raise IllegalStateException(
                "the session has a message listener: it receives either by listeners or by receive (MCO-12)"
            )
        if delivery.mine:
            raise IllegalStateException("a message listener cannot receive: its message is not done with yet")
        if delivery.calling is not None:
            await delivery.left()
            self._check_open()
        if session._receiving is not None:
            session._refuse()
        session._receiving = self._engine

    def _check_open(self) -> None:
        if self._engine.closed:
            gone = self._engine.gone
            raise IllegalStateException(f"the consumer is closed{f': {gone}' if gone else ''}", None, gone)
        self._session._engine.check_open()

    # -- closing ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the consumer (MCO-07). Idempotent.

        Waits for a listener in progress; a receive that waits in another task returns None. In its own listener it
        does not wait, and the listener's message is acknowledged by the session's rules (MCO-08). What is only
        buffered goes back, unmarked (MCO-10). Once begun it is carried out, cancelled or not.
        """
        engine = self._engine
        if engine.closed or engine.shut:
            return
        self._transport.check_loop()
        engine.shut_gate()
        delivery = self._session._delivery
        if delivery.calling is engine and not delivery.mine:
            await asyncio.shield(self._transport.loop.create_task(self._close_after_listener()))
        else:
            await self._close()

    async def _close_after_listener(self) -> None:
        await self._session._delivery.left(self._engine)
        await self._close()

    async def _close(self) -> None:
        engine = self._engine
        self._session._delivery.set_listener(engine, None)
        try:
            await self._transport.ask(lambda: self._session._engine.close_consumer(engine))
            self._transport.flush_soon()  # where there was nothing to wait for
        except JMSException:
            if self._session._engine.outbox.failure is None:
                raise


class _Messages(AsyncIterator[M]):
    """An iteration over messages of one class."""

    __slots__ = ("_consumer", "_read")

    def __init__(self, consumer: MessageConsumer, message_type: type[M]) -> None:
        self._consumer = consumer
        self._read = as_kind(message_type)

    async def __anext__(self) -> M:
        consumer = self._consumer
        engine = consumer._engine
        if engine.shut or consumer._session._engine.closed or consumer._session._engine.outbox.closed:
            raise StopAsyncIteration
        message = await consumer._receive_as(self._read, None)
        if message is None:
            raise StopAsyncIteration
        return message


class QueueReceiver(MessageConsumer):
    """A consumer of a queue."""

    __slots__ = ()

    def get_queue(self) -> Queue:
        """The queue (section 13)."""
        self._check_open()
        assert isinstance(self._engine.destination, Queue)
        return self._engine.destination


class TopicSubscriber(MessageConsumer):
    """A consumer of a topic."""

    __slots__ = ()

    def get_topic(self) -> Topic:
        """The topic (section 13)."""
        self._check_open()
        assert isinstance(self._engine.destination, Topic)
        return self._engine.destination

    def get_no_local(self) -> bool:
        """True if what its own connection publishes is not delivered (SES-21)."""
        self._check_open()
        return self._engine.no_local
