"""The end of a loop turn: who has something to say writes it, once, and the domain is asked when it wants to be called.

Reads come in one after the other; each may produce output for other connections. All of it is written when the reads of
this turn are done, so a connection costs one write per turn however many commands were said to it.

Where turns follow each other closely, the loop looks for input for a moment instead of sleeping (decision 0022).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sievemq_broker.server.histogram import Histogram
from sievemq_core.wire.busy_poll import BusyPoll

if TYPE_CHECKING:
    from sievemq_broker.server.commits import Commits

__all__ = ["Turn"]

#: Seconds; bounds of the histogram of turns.
TURN_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)

#: Lets others have the processor; where that cannot be said nobody looks.
_give_way = getattr(os, "sched_yield", None)

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
        busy_poll: microseconds for which it looks for input before it sleeps; 0 for never.
    """

    __slots__ = (
        "_began",
        "_busy_poll",
        "_dirty",
        "_ended",
        "_looks",
        "_loop",
        "_scheduled",
        "_turns",
        "commits",
        "latency",
        "timers",
        "watchers",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, busy_poll: int = 0) -> None:
        self._loop = loop
        self._busy_poll = BusyPoll(busy_poll) if busy_poll and _give_way is not None else None
        self._ended = 0.0
        self._looks = False
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
            if self._busy_poll is not None:
                self._busy_poll.waited(time.monotonic() - self._ended)
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
        busy_poll = self._busy_poll
        if busy_poll is not None:
            self._ended = time.monotonic()
            if busy_poll.worth and not self._looks:
                self._looks = True
                self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Have the loop look for input once more: as long as something is to be called it does not sleep."""
        assert self._busy_poll is not None
        assert _give_way is not None
        if time.monotonic() - self._ended < self._busy_poll.seconds:
            _give_way()
            self._loop.call_soon(self._look)
        else:
            self._looks = False
