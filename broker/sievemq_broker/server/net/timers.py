"""The loop's time turned into calls: the domain's deadlines and pending work, and the heartbeat of every connection.

There is one timer for all deadlines of the domain. The domain says when it wants to be called next; the timer is armed
anew only if that is earlier than what it is armed for, since a call too many costs nothing.

Work that takes longer than a turn should (a new selector over a deep backlog, a crowd of messages that expire at once)
comes in slices, one per turn, so that every connection is served in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sievemq_broker import logs
from sievemq_broker.server.histogram import Histogram

if TYPE_CHECKING:
    from sievemq_broker.clock import Clock
    from sievemq_broker.server.net.link import Link, Links

__all__ = ["LAG_BOUNDS", "SLICE", "TICK_SECONDS", "Domain", "Timers"]

#: Seconds between ticks, and the least when a connection asks for more: the shortest heartbeat is 100 ms.
TICK_SECONDS = 0.25
_SHORTEST_TICK_SECONDS = 0.02

#: The longest the timer is armed for: the machine's clock can be set meanwhile, so a deadline is looked at again.
_LONGEST_MS = 60_000

#: Messages examined in one slice of work: at two to four microseconds each 1 to 2 ms, so that a machine that is busy
#: with other things still ends a turn within 10.
SLICE = 500

#: Seconds; bounds of the histogram of the loop's lag.
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

log = logs.get("server")


class Domain(Protocol):
    """What has deadlines and pending work: the broker's body."""

    def due(self, now: int) -> int | None:
        """Do what is due; when to call again, None for never."""

    def work(self, now: int, budget: int) -> bool:
        """Do a slice of pending work; True if there is more."""


class Timers:
    """Calls the domain when something is due and ticks the connections.

    Args:
        loop: the running loop.
        clock: the broker's time.
        domain: what has deadlines and pending work.
        links: the open connections.
        on_tick: what else is to be done at each tick.
    """

    __slots__ = (
        "_armed",
        "_armed_for",
        "_clock",
        "_due",
        "_links",
        "_loop",
        "_mark",
        "_next_tick",
        "_on_tick",
        "_ticker",
        "_work",
        "lag",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        domain: Domain,
        links: Links,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._due = domain.due
        self._work = domain.work
        self._links = links
        self._mark: Callable[[Link], None] = lambda link: None
        self._on_tick = on_tick
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._next_tick = 0.0
        #: How late ticks were.
        self.lag = Histogram(LAG_BOUNDS)

    def start(self, mark: Callable[[Link], None]) -> None:
        """Begin to tick.

        Args:
            mark: ends the turn for a link that may have output.
        """
        self._mark = mark
        self._next_tick = self._loop.time() + TICK_SECONDS
        self._ticker = self._loop.call_at(self._next_tick, self._tick)

    def stop(self) -> None:
        """No more calls."""
        for handle in (self._armed, self._ticker):
            if handle is not None:
                handle.cancel()
        self._armed = self._ticker = None

    def rearm(self) -> None:
        """Do a slice of what is due or pending, and see to it that the rest and the next deadline come in time."""
        now = self._clock.now()
        try:
            deadline = self._due(now)
            if self._work(now, SLICE):
                deadline = now
        except (
            Exception
        ) as error:  # a fault of the broker: every other turn must still come, and the next tick tries again
            log.fault("timers.failed", error)
            return
        if deadline is None:
            return
        if self._armed is not None:
            if self._armed_for <= deadline:
                return
            self._armed.cancel()
            self._armed = None
        if deadline > now and self._clock.frozen_at is not None:
            return  # nothing becomes due by itself; whoever moves the clock says so
        wait = min(max(deadline - now, 0), _LONGEST_MS)
        self._armed_for = now + wait
        self._armed = self._loop.call_later(wait / 1000, self._fire)

    def moved(self) -> None:
        """The clock was moved: everything that is due by it is done before this returns."""
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        now = self._clock.now()
        while (deadline := self._due(now)) is not None and deadline <= now:
            pass
        while self._work(now, SLICE):
            pass
        self.rearm()

    def _fire(self) -> None:
        self._armed = None
        self.rearm()

    def _tick(self) -> None:
        loop = self._loop
        time = loop.time()
        self.lag.observe(max(0.0, time - self._next_tick))
        now = self._clock.now()
        wait = TICK_SECONDS
        for link in tuple(self._links.open):
            connection = link.connection
            try:
                deadline = connection.tick(now)
            except Exception as error:
                link.fail(error)
                continue
            if deadline is not None and deadline - now < wait * 1000:
                wait = max((deadline - now) / 1000, _SHORTEST_TICK_SECONDS)
            if connection.has_data or connection.closing:
                self._mark(link)
        self._next_tick = time + wait
        self._ticker = loop.call_at(self._next_tick, self._tick)
        self._on_tick()
        self.rearm()
