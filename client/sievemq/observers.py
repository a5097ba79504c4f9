"""Hooks for instrumentation: observers are called around the operations of the clients of this process.

    class Sizes(Observer):
        def received(self, message, source, seconds):
            print(source.destination, seconds)

    observe(Sizes())      # before or after connections are made; unobserve() ends it

An observer is called in the thread or task that makes the call which it observes. Its context managers are entered
before the operation and left after it, with the exception if there is one. :mod:`sievemq.telemetry` is an observer.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple

from sievemq.destinations import Destination
from sievemq.messages import Message


class Client(NamedTuple):
    """A connection, to an observer.

    Attributes:
        client_id: its client id; None if it has none.
        peer: host and port of the broker that it was last connected to; None if they are not known.
    """

    client_id: str | None
    peer: tuple[str, int] | None


class Source(NamedTuple):
    """A consumer, to an observer.

    Attributes:
        destination: the destination that it consumes from.
        subscription: the name of its subscription; None if it has none.
        client: its connection.
    """

    destination: Destination
    subscription: str | None
    client: Client


class Observer:
    """The base class of observers. A method that is not overridden does nothing."""

    def send(
        self, message: Message | None, destination: Destination | None, client: Client
    ) -> AbstractContextManager[object]:
        """Around a send, until it is confirmed; around an asynchronous one, until it is handed over.

        Args:
            message: it may be given properties before it is sent; None if the call was refused before it had a message.
            destination: the destination of the send; None likewise.
            client: the producer's connection.
        """
        return nullcontext()

    def received(self, message: Message, source: Source, seconds: float) -> None:
        """A receive of any form returns a message.

        Args:
            message: the message.
            source: the consumer.
            seconds: how long the call took.
        """

    def receive_failed(self, error: Exception, source: Source, seconds: float) -> None:
        """A receive raises; arguments as of :meth:`received`."""

    def process(self, message: Message, source: Source) -> AbstractContextManager[object]:
        """Around the call of a message listener, and the awaiting of its result."""
        return nullcontext()

    def settle(self, operation: str, client: Client) -> AbstractContextManager[object]:
        """Around ``acknowledge``, ``commit``, ``rollback`` and ``recover``. In the asyncio API a message's
        ``acknowledge()`` ends when the acknowledgement is on its way."""
        return nullcontext()


#: The observers of this process. The clients check that there is one before they call :mod:`sievemq._front.observed`.
OBSERVERS: Final[list[Observer]] = []


def observe(observer: Observer) -> None:
    OBSERVERS.append(observer)


def unobserve(observer: Observer) -> None:
    """Remove an observer.

    Raises:
        ValueError: it was not.
    """
    OBSERVERS.remove(observer)
