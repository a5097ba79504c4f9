# Generated from sievemq/aio/consumer.py by client/generate_blocking.py; change that file, then run `make format`.
"""MessageConsumer (§8), QueueReceiver and TopicSubscriber."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar, overload

from sievemq._engine import Completion, EngineConsumer
from sievemq._front import Receipt, Wanted, as_kind, check_timeout, message_callback
from sievemq.blocking.closing import Closing
from sievemq.blocking.control import Control
from sievemq.blocking.listeners import MessageListener
from sievemq.blocking.waiting import now
from sievemq.destinations import Queue, Topic
from sievemq.exceptions import IllegalStateException, JMSException, MessageFormatException
from sievemq.messages import Message
from sievemq.observers import OBSERVERS
from sievemq_core.durations import Milliseconds

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class MessageConsumer(Closing):
    """Created by a session. ``for message in consumer`` receives until the consumer is closed."""

    __slots__ = ("_broken_off", "_control", "_engine", "_listener", "_transport")

    def __init__(self, control: Control, engine: EngineConsumer) -> None:
        self._broken_off = False  # a close() was interrupted
        self._control = control
        self._engine = engine
        self._transport = control.transport
        self._listener: MessageListener | Callable[[Message], None] | None = None

    def __repr__(self) -> str:
        opened = self._engine.selection
        selector = f" where {opened.selector!r}" if opened.selector else ""
        return f"<{type(self).__name__} {opened.address}{selector}{', closed' if self._engine.closed else ''}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        engine = self._engine
        message = None
        if engine.flowing or not self._is_over:
            try:
                if OBSERVERS:
                    message = self._receive(engine.take_for_good, None)
                else:
                    message = self._control.receive(engine, None)
            except IllegalStateException:
                if not self._is_over:
                    raise
        if message is None:
            raise StopIteration
        return message

    @property
    def _is_over(self) -> bool:
        session = self._control.engine
        return self._engine.shut or session.closed or session.outbox.closed

    def messages(self, message_type: type[M]) -> Iterator[M]:
        """Receive messages of one class until the consumer is closed.

        Args:
            message_type: as for :meth:`receive`, such as ``TextMessage``.

        Raises:
            TypeError: it is no class of messages.
            MessageFormatException: as :meth:`receive`; then the iteration is over.
        """
        return _Messages(self, message_type)

    def get_message_selector(self) -> str | None:
        """The selector; None if there is none (MCO-01)."""
        self._control.check_open(self._engine)
        return self._engine.selection.selector

    def get_message_listener(self) -> MessageListener | Callable[[Message], None] | None:
        """The listener that was set (MCO-02)."""
        self._control.check_open(self._engine)
        return self._listener

    def set_message_listener(self, listener: MessageListener | Callable[[Message], None] | None) -> None:
        """Deliver to a listener from now on; None to receive again (MCO-02).

        Args:
            listener: an object with ``on_message(message)``, or a callable.
        """
        callback = None if listener is None else message_callback(listener, awaits=False)
        with self._transport.lock:
            self._control.check_open(self._engine)
            if callback is not None:
                self._engine.one_at_a_time()
            self._control.delivery.set_listener(self._engine, callback)
            self._listener = listener
            if callback is not None:
                self._engine.top_up()
            self._transport.flush_soon()

    # -- receiving ----------------------------------------------------------------------------------------------------

    @overload
    def receive(self, timeout: Milliseconds | None = None) -> Message | None: ...

    @overload
    def receive(self, timeout: Milliseconds | None, message_type: type[M]) -> M | None: ...

    @overload
    def receive(self, *, message_type: type[M]) -> M | None: ...

    def receive(self, timeout: Milliseconds | None = None, message_type: type[Message] = Message) -> Message | None:
        """The next message; waits for one.

        Args:
            timeout: a timedelta, or an int of milliseconds; 0 or None waits without limit (MCO-04).
            message_type: the class that the message must be of, such as ``TextMessage``; any kind if not given.

        Returns:
            None when the time is over, or when the consumer, its session or its connection is closed meanwhile.

        Raises:
            ValueError: the timeout is negative, or neither of these.
            IllegalStateException: closed; the session has a listener (MCO-12); another thread is receiving (MCO-13).
            MessageFormatException: the message is of another class. For what becomes of it, see
                :meth:`JMSConsumer.receive_body`.
            JMSException: the connection is lost.
        """
        if message_type is not Message:
            return self._receive_as(as_kind(message_type), timeout)
        if timeout is not None and (type(timeout) is not int or timeout < 0):
            timeout = check_timeout(timeout)
        if OBSERVERS:
            return self._receive(self._engine.take_for_good, timeout)
        return self._control.receive(self._engine, timeout)

    @overload
    def receive_no_wait(self) -> Message | None: ...

    @overload
    def receive_no_wait(self, message_type: type[M]) -> M | None: ...

    def receive_no_wait(self, message_type: type[Message] = Message) -> Message | None:
        """A message if one is available now, in the buffer or at the broker; otherwise None (MCO-05).

        Args:
            message_type: as for :meth:`receive`.
        """
        if message_type is not Message:
            return self._receive_as_no_wait(as_kind(message_type))
        return self._receive_now(self._engine.take_for_good)

    def _receive_as(self, read: Callable[[Message], T], timeout: Milliseconds | None) -> T | None:
        """Receive what `read` gives of the next message."""
        if timeout is not None:
            timeout = check_timeout(timeout)
        wanted = Wanted(self._engine, read)
        try:
            return None if self._receive(wanted.take, timeout) is None else wanted.value
        except MessageFormatException:
            self._end_attempt()
            raise

    def _receive_as_no_wait(self, read: Callable[[Message], T]) -> T | None:
        wanted = Wanted(self._engine, read)
        try:
            return None if self._receive_now(wanted.take) is None else wanted.value
        except MessageFormatException:
            self._end_attempt()
            raise

    def _receive(self, take: Callable[[], Message | None], timeout: int | None) -> Message | None:
        if not OBSERVERS:
            return self._control.receive_by(self._engine, take, timeout)
        with Receipt(self._engine, now) as receipt:
            return receipt.of(self._control.receive_by(self._engine, take, timeout))

    def _receive_now(self, take: Callable[[], Message | None]) -> Message | None:
        if not OBSERVERS:
            return self._control.receive_no_wait(self._engine, take)
        with Receipt(self._engine, now) as receipt:
            return receipt.of(self._control.receive_no_wait(self._engine, take))

    def _end_attempt(self) -> None:
        """Have a message redelivered whose body was refused, if that counts."""
        engine = self._engine
        if engine.acknowledges_itself and engine.done != engine.handed:
            with suppress(JMSException):  # the broker returns the message when the connection ends
                self._control.recover()

    # -- closing ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the consumer (MCO-07). Idempotent.

        Waits for a receive or listener in progress; a receive that is blocked returns None. In its own listener it
        does not wait, and the listener's message is acknowledged by the session's rules (MCO-08). What is only
        buffered goes back, unmarked (MCO-10).

        On a lost connection it does not wait for the broker; else no longer than the option `close_timeout`.
        """
        self._end(self._transport.close_by())

    def _end(self, until: float) -> None:
        """Close it; until then, by the clock of :meth:`Transport.close_by`, it may wait for the broker."""
        engine = self._engine
        try:
            with self._transport.lock:
                if engine.closed or (engine.shut and not self._broken_off):
                    return
                engine.shut_gate()
            self._control.after(engine, until, lambda: self._close(until))
        except BaseException:
            self._broken_off = not engine.closed  # the next call does the rest
            raise

    def _close(self, until: float) -> None:
        try:
            self._transport.end(self._leave, until)
        except JMSException:
            if self._control.engine.outbox.failure is None:
                raise

    def _leave(self) -> Completion[Any]:
        self._control.delivery.set_listener(self._engine, None)
        return self._control.engine.close_consumer(self._engine)


class _Messages(Iterator[M]):
    """An iteration over messages of one class."""

    __slots__ = ("_consumer", "_read")

    def __init__(self, consumer: MessageConsumer, message_type: type[M]) -> None:
        self._consumer = consumer
        self._read = as_kind(message_type)

    def __next__(self) -> M:
        consumer = self._consumer
        message = None
        if not consumer._is_over:
            try:
                message = consumer._receive_as(self._read, None)
            except IllegalStateException:
                if not consumer._is_over:
                    raise
        if message is None:
            raise StopIteration
        return message


class QueueReceiver(MessageConsumer):
    """A consumer of a queue."""

    __slots__ = ()

    def get_queue(self) -> Queue:
        """The queue (section 13)."""
        self._control.check_open(self._engine)
        assert isinstance(self._engine.selection.destination, Queue)
        return self._engine.selection.destination


class TopicSubscriber(MessageConsumer):
    """A consumer of a topic."""

    __slots__ = ()

    def get_topic(self) -> Topic:
        """The topic (section 13)."""
        self._control.check_open(self._engine)
        assert isinstance(self._engine.selection.destination, Topic)
        return self._engine.selection.destination

    def get_no_local(self) -> bool:
        """True if what its own connection publishes is not delivered (SES-21)."""
        self._control.check_open(self._engine)
        return self._engine.selection.no_local
