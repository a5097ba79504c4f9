"""The calls of observers by both fronts."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final

from sievemq._engine.consumer import EngineConsumer
from sievemq._engine.sends import Callbacks, of_another
from sievemq._engine.terms import Terms
from sievemq.destinations import Destination
from sievemq.messages import Message, adopt
from sievemq.observers import OBSERVERS, Client, Source

_log = logging.getLogger("sievemq")

_UNOBSERVED: Final = nullcontext()


def _client(terms: Terms) -> Client:
    return Client(terms.client_id, terms.peer)


def _source(consumer: EngineConsumer) -> Source:
    return Source(consumer.selection.destination, consumer.selection.subscription, _client(consumer.terms))


def adopted(message: Any, callbacks: Callbacks | None) -> tuple[Message, Callbacks | None]:
    """The message for observers, adopted if it is of another implementation; callbacks that get the original.

    Raises:
        MessageFormatException: it is no message.
    """
    if isinstance(message, Message):
        return message, callbacks
    return adopt(message), None if callbacks is None else of_another(message, callbacks)


@contextmanager
def sending(terms: Terms, message: Message | None, destination: Destination | None) -> Iterator[None]:
    with ExitStack() as stack:
        for observer in tuple(OBSERVERS):
            stack.enter_context(observer.send(message, destination, _client(terms)))
        yield


def refused(terms: Terms, error: Exception) -> None:
    """A send was refused before there was a message and a destination."""
    try:
        with sending(terms, None, None):
            raise error
    except Exception as raised:
        if raised is not error:
            raise


def settling(operation: str, terms: Terms) -> AbstractContextManager[None]:
    return _settling(operation, terms) if OBSERVERS else _UNOBSERVED


@contextmanager
def _settling(operation: str, terms: Terms) -> Iterator[None]:
    with ExitStack() as stack:
        for observer in tuple(OBSERVERS):
            stack.enter_context(observer.settle(operation, _client(terms)))
        yield


class Receipt:
    """Around a receive.

    Args:
        clock: gives seconds.
    """

    __slots__ = ("_begun", "_clock", "_consumer", "_message")

    def __init__(self, consumer: EngineConsumer, clock: Callable[[], float]) -> None:
        self._consumer = consumer
        self._clock = clock
        self._begun = clock()
        self._message: Message | None = None

    def __enter__(self) -> Receipt:
        return self

    def of(self, message: Message | None) -> Message | None:
        """The message that was received."""
        self._message = message
        return message

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        took, source = self._clock() - self._begun, _source(self._consumer)
        for observer in tuple(OBSERVERS):
            try:
                if isinstance(error, Exception):
                    observer.receive_failed(error, source, took)
                elif self._message is not None:
                    observer.received(self._message, source, took)
            except Exception:  # the message is the application's all the same
                _log.exception("an observer raised")


def observed_listener(consumer: EngineConsumer, listener: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """A listener as observers see it called."""

    def observed(message: Message) -> Any:
        with ExitStack() as stack:
            for observer in tuple(OBSERVERS):
                stack.enter_context(observer.process(message, _source(consumer)))
            return listener(message)

    return observed


def awaiting_listener(consumer: EngineConsumer, listener: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """As :func:`observed_listener`, for a listener that may be a coroutine function."""

    async def observed(message: Message) -> None:
        with ExitStack() as stack:
            for observer in tuple(OBSERVERS):
                stack.enter_context(observer.process(message, _source(consumer)))
            result = listener(message)
            if result is not None and inspect.isawaitable(result):
                await result

    return observed
