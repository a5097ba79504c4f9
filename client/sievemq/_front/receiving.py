"""The common part of both fronts' receives: timeouts, receives of a type of message or body, replies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from sievemq._engine.consumer import EngineConsumer
from sievemq.exceptions import MessageFormatException
from sievemq.messages import Message, StreamMessage
from sievemq_core.durations import milliseconds

#: Milliseconds; a receive with a shorter timeout informs the broker immediately that it waits.
SHORT_TIMEOUT: Final = 20

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Wanted(Generic[T]):
    """Takes the next message of a consumer if it is of the wanted class.

    Args:
        read: returns the wanted value of a message, or raises MessageFormatException.

    Attributes:
        value: what `read` gave of the message that was taken.
    """

    __slots__ = ("_consumer", "_read", "value")

    def __init__(self, consumer: EngineConsumer, read: Callable[[Message], T]) -> None:
        self._consumer = consumer
        self._read = read
        self.value: T | None = None

    def take(self) -> Message | None:
        """The message, or None if there is none. The engine lock is held.

        Raises:
            MessageFormatException: it is of another class. If the session acknowledges automatically the message stays,
                unseen, unless it was refused before (JCO-09); otherwise it counts as received (JCO-10, JCO-11).
        """
        consumer = self._consumer
        message = consumer.peek()
        if message is None:
            return None
        try:
            self.value = self._read(message)
        except MessageFormatException:
            if consumer.acknowledges_itself:
                consumer.refuse()
            else:
                consumer.see()
            raise
        consumer.see()
        if consumer.acknowledges_itself:
            consumer.settle()
        return message


def as_kind(message_type: type[M]) -> Callable[[Message], M]:
    """A message as one of a kind.

    Raises:
        TypeError: that is no kind of message.
    """
    if not isinstance(message_type, type) or not issubclass(message_type, Message):
        raise TypeError(f"a class of messages such as TextMessage is needed, not {message_type!r:.60}")

    def read(message: Message) -> M:
        if isinstance(message, message_type):
            return message
        raise MessageFormatException(
            f"the next message is of class {type(message).__name__} and not {message_type.__name__}"
        )

    return read


def as_body(body_type: type[T]) -> Callable[[Message], T]:
    """The body of a message; unlike ``get_body`` never None (JCO-06, JCO-07)."""

    def read(message: Message) -> T:
        body = None if isinstance(message, StreamMessage) else message.get_body(body_type)
        if body is None:
            raise MessageFormatException(f"a {type(message).__name__} without a body of type {body_type.__name__}")
        return body

    return read


def check_timeout(timeout: object) -> int:
    """The timeout of a receive in milliseconds (PY-05, MCO-04).

    Raises:
        ValueError: it is negative, neither an int nor a timedelta, or ``timedelta(0)``: as the int 0 it would wait
            without a limit, and a program that computes it means the opposite.
    """
    if isinstance(timeout, timedelta) and not timeout:
        raise ValueError(
            "a timeout of timedelta(0) is ambiguous: receive_no_wait() does not wait, receive() waits for ever"
        )
    return milliseconds("a timeout", timeout)


def answers(request: Message, reply: Message) -> bool:
    """False if the reply names another request: by the JMSCorrelationID, which is to be the request's JMSMessageID or
    JMSCorrelationID. One without a correlation id answers the request that waits."""
    correlation_id = reply.get_jms_correlation_id()
    return correlation_id is None or correlation_id in (request.get_jms_message_id(), request.get_jms_correlation_id())
