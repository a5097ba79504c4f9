"""JMSConsumer (§8.5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Self, TypeVar, overload

from sievemq._front import as_body
from sievemq.aio.closing import Closing
from sievemq.aio.consumer import MessageConsumer
from sievemq.aio.listeners import MessageListener
from sievemq.exceptions import JMSException, runtime_twin
from sievemq.messages import Message
from sievemq_core.durations import Milliseconds

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class JMSConsumer(Closing):
    """A consumer of a context. ``async for message in consumer`` receives until it is closed."""

    __slots__ = ("_consumer", "_next")

    def __init__(self, consumer: MessageConsumer) -> None:
        self._consumer = consumer
        self._next = consumer.__anext__

    def __repr__(self) -> str:
        return f"<JMSConsumer {self._consumer!r}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._next()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def messages(self, message_type: type[M]) -> AsyncIterator[M]:
        """As :meth:`MessageConsumer.messages`; its exceptions as their runtime twins."""
        return _Messages(self._consumer.messages(message_type))

    def get_message_selector(self) -> str | None:
        """The selector; None if there is none (JCO-01)."""
        try:
            return self._consumer.get_message_selector()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def get_message_listener(self) -> MessageListener | Callable[[Message], Any] | None:
        """The listener that was set (JCO-01)."""
        try:
            return self._consumer.get_message_listener()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def set_message_listener(self, listener: MessageListener | Callable[[Message], Any] | None) -> None:
        """Deliver to a listener from now on; None to receive again. Safe while the connection is started (LIS-08)."""
        try:
            self._consumer.set_message_listener(listener)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    @overload
    async def receive(self, timeout: Milliseconds | None = None) -> Message | None: ...

    @overload
    async def receive(self, timeout: Milliseconds | None, message_type: type[M]) -> M | None: ...

    @overload
    async def receive(self, *, message_type: type[M]) -> M | None: ...

    async def receive(
        self, timeout: Milliseconds | None = None, message_type: type[Message] = Message
    ) -> Message | None:
        """As :meth:`MessageConsumer.receive`, with its arguments; its exceptions as their runtime twins."""
        try:
            return await self._consumer.receive(timeout, message_type)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    @overload
    async def receive_no_wait(self) -> Message | None: ...

    @overload
    async def receive_no_wait(self, message_type: type[M]) -> M | None: ...

    async def receive_no_wait(self, message_type: type[Message] = Message) -> Message | None:
        """As :meth:`MessageConsumer.receive_no_wait`."""
        try:
            return await self._consumer.receive_no_wait(message_type)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    async def receive_body(self, body_type: type[T], timeout: Milliseconds | None = None) -> T | None:
        """The next message's body (JCO-02, JCO-03).

        Args:
            body_type: ``str``, ``dict``, ``bytes``, the object's class, or ``object`` (JCO-05).
            timeout: a timedelta, or an int of milliseconds; 0 or None waits without limit.

        Returns:
            None when the time is over, or when the consumer is closed meanwhile.

        Raises:
            ValueError: the timeout is negative, or neither of these.
            MessageFormatRuntimeException: the message has no body, is a StreamMessage or plain Message, or its body is
                of another type (JCO-06 … JCO-08). In an AUTO or DUPS_OK session it stays where it is, and the next
                receive takes it (JCO-09); each further call that refuses it is a failed attempt, so that it becomes a
                dead letter in the end. In other sessions it counts as received (JCO-10, JCO-11).
        """
        try:
            return await self._consumer._receive_as(as_body(body_type), timeout)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    async def receive_body_no_wait(self, body_type: type[T]) -> T | None:
        """The body of a message that is available now; otherwise None (JCO-04). Errors as :meth:`receive_body`."""
        try:
            return await self._consumer._receive_as_no_wait(as_body(body_type))
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    async def close(self) -> None:
        """Close the consumer. Idempotent; see :meth:`MessageConsumer.close`."""
        try:
            await self._consumer.close()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__


class _Messages(AsyncIterator[M]):
    """An iteration over messages of one kind that raises the runtime exceptions."""

    __slots__ = ("_messages",)

    def __init__(self, messages: AsyncIterator[M]) -> None:
        self._messages = messages

    async def __anext__(self) -> M:
        try:
            return await anext(self._messages)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__
