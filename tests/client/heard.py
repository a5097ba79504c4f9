"""What a test waits with: signals, and listeners that keep what they hear."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sievemq import JMSException, Message, TextMessage

if TYPE_CHECKING:
    from .both import Api

#: Seconds after which a wait has failed.
LIMIT = 90.0


def text(message: Message | None) -> str | None:
    """The text of a message that must have arrived."""
    assert isinstance(message, TextMessage), message
    return message.get_text()


def outline(message: Message | None) -> tuple[str | None, bool, int]:
    """Text, redelivered, delivery count."""
    assert message is not None
    return text(message), message.get_jms_redelivered(), message.get_int_property("JMSXDeliveryCount")


class Signal:
    """An event that threads and tasks set and await alike."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._event = threading.Event()
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        self._event.set()
        if threading.get_ident() == self._thread:
            self._release()
        else:
            self._loop.call_soon_threadsafe(self._release)

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        if threading.get_ident() != self._thread:  # in a listener of the blocking world
            assert self._event.wait(LIMIT), "a signal was not set"
        elif not self._event.is_set():
            future = self._loop.create_future()
            self._waiters.append(future)
            async with asyncio.timeout(LIMIT):
                await future

    def _release(self) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters.clear()


class _Collector:
    """Keeps what arrives; `arrived` waits for a number of them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._wanted: list[tuple[int, Signal]] = []
        self._count = 0

    def _arrived(self) -> None:
        with self._lock:
            self._count += 1
            ready = [signal for number, signal in self._wanted if number <= self._count]
        for signal in ready:
            signal.set()

    async def _wait(self, number: int) -> None:
        signal = self._api.signal()
        with self._lock:
            self._wanted.append((number, signal))
            enough = self._count >= number
        if not enough:
            await signal.wait()


class Listener(_Collector):
    """A message listener that keeps what it gets.

    Args:
        act: plain or coroutine function, called with each message before it is kept; may raise.
    """

    def __init__(self, api: Api, act: Callable[[Message], Any] | None = None) -> None:
        super().__init__(api)
        self.messages: list[Message] = []
        self._act = act

    async def on_message(self, message: Message) -> None:
        try:
            if self._act is not None:
                result = self._act(message)
                if inspect.isawaitable(result):
                    await result
        finally:
            self.messages.append(message)
            self._arrived()

    async def arrived(self, number: int) -> list[Message]:
        """The messages, once there are so many; the call for the last has nearly returned then."""
        await self._wait(number)
        return list(self.messages)

    @property
    def texts(self) -> list[str | None]:
        return [text(message) for message in self.messages]


class Reports(_Collector):
    """An exception listener that records its calls."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.errors: list[JMSException] = []

    def on_exception(self, error: JMSException) -> None:
        self.errors.append(error)
        self._arrived()

    async def arrived(self, number: int = 1) -> list[JMSException]:
        """What was told, once it is so many."""
        await self._wait(number)
        return list(self.errors)


class Completions(_Collector):
    """A completion listener that keeps outcomes: (message, None) or (message, exception), in order of the calls.

    Args:
        act: plain or coroutine function, called with message and exception; what it raises is kept in `errors`.
    """

    def __init__(self, api: Api, act: Callable[[Message, Exception | None], Any] | None = None) -> None:
        super().__init__(api)
        self.outcomes: list[tuple[Message, Exception | None]] = []
        self.errors: list[BaseException] = []
        self._act = act

    async def on_completion(self, message: Message) -> None:
        await self._keep(message, None)

    async def on_exception(self, message: Message, exception: Exception) -> None:
        await self._keep(message, exception)

    async def _keep(self, message: Message, exception: Exception | None) -> None:
        try:
            if self._act is not None:
                result = self._act(message, exception)
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            self.errors.append(error)
        finally:
            self.outcomes.append((message, exception))
            self._arrived()

    async def arrived(self, number: int) -> list[tuple[Message, Exception | None]]:
        """The outcomes, once there are so many."""
        await self._wait(number)
        return list(self.outcomes)
