"""A queue browser: pages of a queue, read without changing it (§4.1.6)."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from sievemq._engine.outbox import Completion
from sievemq._engine.session import EngineSession
from sievemq.destinations import Queue
from sievemq.messages import Message, received
from sievemq_core.wire.commands import Command

#: Messages of a page: one round trip for a small queue, little held for a deep one.
_PAGE: Final = 100


class EngineBrowser:
    """A browser of a session; the broker keeps nothing for it.

    Args:
        selector: condition, or None; checked.

    Attributes:
        opened: settled when the broker has verified queue and selector (SES-32).
    """

    __slots__ = ("closed", "opened", "queue", "selector", "session")

    def __init__(self, session: EngineSession, queue: Queue, selector: str | None) -> None:
        session.check_open()
        self.session = session
        self.queue = queue
        self.selector = session.terms.check_selector(selector)
        self.closed = False
        self.opened = self.page(None, 0)

    def close(self) -> None:
        """Close it; the broker need not be informed."""
        self.closed = True

    @property
    def missing(self) -> bool:
        """True if there was no such queue when it was verified, though it may be created on first use."""
        cursor, *_ = self.opened.result()
        return cursor is None

    @property
    def similar(self) -> list[str]:
        """Addresses of queues with names like that of one that is missing."""
        cursor, *names = self.opened.result()
        return [] if cursor is not None else [name for name in names if isinstance(name, str)]

    def page(self, cursor: Any, limit: int, *part: int) -> Completion[Any]:
        """Request a page; of a `part` of the queue, if that is given with the number of parts."""
        dialect = self.session.terms.options.dialect
        return self.session.outbox.request(
            Command.BROWSE, str(self.queue), self.selector, dialect, cursor, limit, *part
        )


class Scan:
    """One pass over the queue: what an enumeration runs on (BRW-03).

    A front takes messages with :meth:`take`; when that gives None and the scan is not `finished`, it waits for
    :meth:`fetch` and continues.
    """

    __slots__ = ("_browser", "_cursor", "_page", "finished")

    def __init__(self, browser: EngineBrowser) -> None:
        self._browser = browser
        self._cursor: Any = None
        self._page: deque[tuple[int, Any]] = deque()
        self.finished = False

    def fetch(self) -> Completion[Any]:
        """Ask for the next page; once the completion has succeeded its messages can be taken.

        Raises:
            IllegalStateException: the session is closed.
        """
        self._browser.session.check_open()
        completion = self._browser.page(self._cursor, _PAGE)
        completion.add_callback(self._arrived)
        return completion

    def take(self) -> Message | None:
        terms = self._browser.session.terms
        while self._page:
            count, fields, *_ = self._page.popleft()
            if not fields[4] or not terms.is_expired(fields[4]):  # BRW-09: it may have expired since
                return received(fields, self._browser.queue, count, None)
        return None

    def _arrived(self, completion: Completion[Any]) -> None:
        if completion.error is None:
            self._cursor, *page = completion.result()
            self._page.extend(row for row in page if type(row) is tuple)  # else names of similar queues
            self.finished = self._cursor is None
