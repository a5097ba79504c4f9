"""JMSConsumer (§8.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from sievemq._engine import check_timeout
from sievemq.blocking.consumer import MessageConsumer
from sievemq.blocking.listeners import MessageListener
from sievemq.exceptions import JMSException, MessageFormatException, runtime_twin
from sievemq.messages import Message, StreamMessage
from sievemq_core.durations import Milliseconds

__all__ = ["JMSConsumer"]

T = TypeVar("T")


class JMSConsumer:
    """A consumer of a context. ``for message in consumer`` receives until it is closed."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: MessageConsumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<JMSConsumer {self._consumer!r}>"

    def __iter__(self) -> Iterator[Message]:
        """Receive until the consumer is closed."""
        try:
            yield from self._consumer
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def get_message_selector(self) -> str | None:
        """The selector; None if there is none (JCO-01)."""
        try:
            return self._consumer.get_message_selector()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def get_message_listener(self) -> MessageListener | Callable[[Message], None] | None:
        """The listener that was set (JCO-01)."""
        try:
            return self._consumer.get_message_listener()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def set_message_listener(self, listener: MessageListener | Callable[[Message], None] | None) -> None:
        """Deliver to a listener from now on; None to receive again. Safe while the connection is started (LIS-08)."""
        try:
            self._consumer.set_message_listener(listener)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def receive(self, timeout: Milliseconds | None = None) -> Message | None:
        """As :meth:`MessageConsumer.receive`."""
        try:
            return self._consumer.receive(timeout)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def receive_no_wait(self) -> Message | None:
        """As :meth:`MessageConsumer.receive_no_wait`."""
        try:
            return self._consumer.receive_no_wait()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def receive_body(self, body_type: type[T], timeout: Milliseconds | None = None) -> T | None:
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
        if timeout is not None and (type(timeout) is not int or timeout < 0):
            timeout = check_timeout(timeout)
        body = _Body(self._consumer, body_type)
        try:
            return None if self._consumer._receive_by(body.take, timeout) is None else body.value
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def receive_body_no_wait(self, body_type: type[T]) -> T | None:
        """The body of a message that is available now; otherwise None (JCO-04). Errors as :meth:`receive_body`."""
        body = _Body(self._consumer, body_type)
        try:
            return None if self._consumer._receive_no_wait(body.take) is None else body.value
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    def close(self) -> None:
        """Close the consumer. Idempotent; see :meth:`MessageConsumer.close`."""
        try:
            self._consumer.close()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__


class _Body(Generic[T]):
    """Takes the next message if its body is of a type, and keeps the body."""

    __slots__ = ("_consumer", "_type", "value")

    def __init__(self, consumer: MessageConsumer, body_type: type[T]) -> None:
        self._consumer = consumer
        self._type = body_type
        self.value: T | None = None

    def take(self) -> Message | None:
        """As ``MessageConsumer._take``, the engine lock held."""
        engine = self._consumer._engine
        # Looked at before it is taken: one that does not fit stays where it is, unseen (JCO-09).
        message = engine.peek()
        if message is None:
            return None
        try:
            self.value = body_of(message, self._type)
        except MessageFormatException:
            if engine.acknowledges_itself:
                engine.refuse()
            else:
                engine.take()  # counts as received (JCO-10, JCO-11)
            raise
        return self._consumer._take()


def body_of(message: Message, body_type: type[T]) -> T:
    """The body of a received message; unlike ``get_body`` never None (JCO-06, JCO-07).

    Raises:
        MessageFormatException: there is none, or it is of another type.
    """
    body = None if isinstance(message, StreamMessage) else message.get_body(body_type)
    if body is None:
        raise MessageFormatException(f"a {type(message).__name__} without a body of type {body_type.__name__}")
    return body
