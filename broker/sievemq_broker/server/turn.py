"""The end of a loop turn: who has something to say writes it, once, and the domain is asked when it wants to be called.

Reads come in one after the other; each may produce output for other connections. All of it is written when the reads of
this turn are done, so a connection costs one write per turn however many commands were said to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sievemq_broker.server.histogram import Histogram

if TYPE_CHECKING:
    from sievemq_broker.server.commits import Commits

__all__ = ["Turn"]

#: Seconds; bounds of the histogram of turns.
TURN_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)

#: One turn in so many (a power of two) is timed.
TIMED = 8


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

    __slots__ = ("_began", "_dirty", "_loop", "_scheduled", "_turns", "commits", "latency", "timers", "watchers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[_Writer] = []
        self._scheduled = False
        self._turns = 0
        self._began = 0.0
        #: From the first read of a turn to its last write: what a message takes through the broker if a consumer waits.
        self.latency = Histogram(TURN_BOUNDS)
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
            self._turns += 1
            if not self._turns % TIMED:
                self._began = self._loop.time()
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
            if self._began:
                self.latency.observe(self._loop.time() - self._began)
                self._began = 0.0
            if self.commits is not None:
                self.commits.end_turn()
        for look in tuple(self.watchers):
            look()
