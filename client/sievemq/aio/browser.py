"""QueueBrowser (§4.1.6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar, overload

from sievemq._engine import EngineBrowser, Scan
from sievemq._front import as_kind
from sievemq.aio.closing import Closing
from sievemq.aio.control import Control
from sievemq.destinations import Queue
from sievemq.exceptions import IllegalStateException
from sievemq.messages import Message

M = TypeVar("M", bound=Message)


class QueueBrowser(Closing):
    """Browses a queue without changing it; created by a session. Works on a stopped connection too (D-36).

    ``async for message in browser`` is a new scan.
    """

    __slots__ = ("_control", "_engine", "_transport")

    def __init__(self, control: Control, engine: EngineBrowser) -> None:
        self._control = control  # keeps the connection alive
        self._transport = control.transport
        self._engine = engine

    def __repr__(self) -> str:
        return f"<QueueBrowser {self._engine.queue}>"

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.get_enumeration()

    def get_queue(self) -> Queue:
        """The queue (BRW-01)."""
        self._check_open()
        return self._engine.queue

    def get_message_selector(self) -> str | None:
        """The selector; None if there is none (BRW-02)."""
        self._check_open()
        return self._engine.selector

    @overload
    def get_enumeration(self) -> AsyncIterator[Message]: ...

    @overload
    def get_enumeration(self, message_type: type[M]) -> AsyncIterator[M]: ...

    def get_enumeration(self, message_type: type[Message] = Message) -> AsyncIterator[Message]:
        """A new scan: the messages in the order in which they would be received (BRW-03).

        Args:
            message_type: the class that each message must be of, such as ``TextMessage``. The scan raises
                MessageFormatException for one of another class, and continues behind it.

        Raises:
            IllegalStateException: the browser, its session or its connection is closed (BRW-11).
            TypeError: that is no class of messages.
        """
        self._check_open()
        return _Enumeration(self, Scan(self._engine), message_type)

    def _check_open(self) -> None:
        if self._engine.closed:
            raise IllegalStateException("the browser is closed")
        self._engine.session.check_open()

    async def close(self) -> None:
        """Close the browser (BRW-11). Idempotent."""
        self._engine.close()


class _Enumeration(AsyncIterator[M]):
    """One scan; needs no closing."""

    __slots__ = ("_browser", "_read", "_scan")

    def __init__(self, browser: QueueBrowser, scan: Scan, message_type: type[M]) -> None:
        self._browser = browser
        self._scan = scan
        self._read = as_kind(message_type)

    async def __anext__(self) -> M:
        scan = self._scan
        while True:
            message = scan.take()
            if message is not None:
                return self._read(message)
            if scan.finished:
                raise StopAsyncIteration
            self._browser._check_open()
            await self._browser._transport.ask(scan.fetch)
