"""The end of a loop turn: who has something to say writes it, once, and the domain is asked when it wants to be called.

Reads come in one after the other; each may produce output for other connections. All of it is written when the reads of
this turn are done, so a connection costs one write per turn however many commands were said to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sievemq_broker.server.commits import Commits

__all__ = ["Turn"]


class _Writer(Protocol):
    dirty: bool

    def flush(self) -> None: ...


class _Timers(Protocol):
    def rearm(self) -> None: ...


class Turn:
    """Gathers links that have output and ends the turn once.

    Args:
        loop: the loop whose turns are meant.
    """

    __slots__ = ("_dirty", "_loop", "_scheduled", "commits", "timers", "watchers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[_Writer] = []
        self._scheduled = False
        self.timers: _Timers | None = None
        #: Of a durable broker: holds output back until what it tells of is on disk.
        self.commits: Commits | None = None
        #: Called at the end of each turn; for who waits for a state that any command may bring about.
        self.watchers: list[Callable[[], None]] = []

    def mark(self, link: _Writer) -> None:
        """`link` was fed or has output: it is flushed at the end of this turn."""
        if not link.dirty:
            link.dirty = True
            self._dirty.append(link)
        if self.commits is not None:
            self.commits.fed(link)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.end)

    def worked(self) -> None:
        """The domain did something, perhaps without output: its next deadline may be another one."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.end)

    def end(self) -> None:
        """Write what there is and arm the timer for the domain's next deadline."""
        try:
            # The domain first: what became due in the meantime goes out with this turn's writes.
            if self.timers is not None:
                self.timers.rearm()
        finally:
            self._scheduled = False
            dirty, self._dirty = self._dirty, []
            for link in dirty:
                link.flush()
            if self.commits is not None:
                self.commits.end_turn()
        for look in tuple(self.watchers):
            look()
