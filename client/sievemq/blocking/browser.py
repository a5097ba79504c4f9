"""QueueBrowser (§4.1.6)."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sievemq._engine import EngineBrowser, Scan
from sievemq.destinations import Queue
from sievemq.exceptions import IllegalStateException
from sievemq.messages import Message

if TYPE_CHECKING:
    from sievemq.blocking.session import Session

__all__ = ["QueueBrowser"]


class QueueBrowser:
    """Looks at a queue without changing it; made by a session. Works on a stopped connection too (D-36).

    ``for message in browser`` is a new scan.
    """

    __slots__ = ("_engine", "_session")

    def __init__(self, session: Session, engine: EngineBrowser) -> None:
        self._session = session
        self._engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        return self.get_enumeration()

    def get_queue(self) -> Queue:
        """The queue (BRW-01)."""
        self._check_open()
        return self._engine.queue

    def get_message_selector(self) -> str | None:
        """The selector; None if there is none (BRW-02)."""
        self._check_open()
        return self._engine.selector

    def get_enumeration(self) -> Iterator[Message]:
        """A new scan: the messages in the order in which they would be received (BRW-03).

        Raises:
            IllegalStateException: the browser, its session or its connection is closed (BRW-11).
        """
        self._check_open()
        return self._scan(Scan(self._engine))

    def _scan(self, scan: Scan) -> Iterator[Message]:
        while True:
            while (message := scan.take()) is not None:
                yield message
            if scan.finished:
                return
            self._check_open()
            self._session._transport.ask(scan.fetch)

    def _check_open(self) -> None:
        if self._engine.closed:
            raise IllegalStateException("the browser is closed")
        self._engine.session.check_open()

    def close(self) -> None:
        """Close the browser (BRW-11). Idempotent."""
        self._engine.closed = True
