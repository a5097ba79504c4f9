"""Ticks: each connection checks its heartbeats, its handshake and its frame four times a second, and when a deadline of
its own comes before.

    every TICK_SECONDS ─► a round: all links, some in each turn
    deadline of a link ─► this link alone, however far the round has come

In a flood a round over ten thousand links takes a second. The deadline of a short heartbeat does not wait for it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection
from itertools import count
from typing import Protocol

from sievemq_broker.clock import Clock
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.server.net.turn import Writer
from sievemq_broker.session.peer import Peer

#: Seconds between rounds, and the minimum before a deadline of a connection: the shortest heartbeat is 100 ms.
TICK_SECONDS = 0.25
_SHORTEST_SECONDS = 0.02

#: Links that are ticked in a turn: a millisecond or two, and as much again if a heartbeat is due at all of them.
TICKED_AT_ONCE = 100

#: Seconds; bounds of the histogram of the loop's lag.
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class _Connection(Protocol):
    @property
    def peer(self) -> Peer: ...

    @property
    def has_data(self) -> bool: ...

    @property
    def closing(self) -> bool: ...

    def tick(self, now: int) -> int | None: ...


class _Link(Writer, Protocol):
    @property
    def connection(self) -> _Connection: ...

    def fail(self, error: Exception) -> None: ...


class _Links(Protocol):
    @property
    def open(self) -> Collection[_Link]: ...


class Ticks:
    """Ticks the connections.

    Args:
        clock: the broker's time.
        on_round: called when all links were ticked; calls :meth:`look`.

    Attributes:
        lag: how late rounds began.
    """

    __slots__ = (
        "_began", "_clock", "_due_at", "_handle", "_left", "_links", "_looks", "_loop", "_mark", "_next_round",
        "_number", "_on_round", "_soon", "_took", "_worked", "lag",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        links: _Links,
        on_round: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._links = links
        self._on_round = on_round
        self._mark: Callable[[Writer], None] = lambda link: None
        self._worked: Callable[[], None] = lambda: None
        self._looks: list[Callable[[], bool]] = []
        self._handle: asyncio.Handle | None = None
        #: Links that the present round has not reached; None between two rounds.
        self._left: list[_Link] | None = None
        #: When the next round begins, when the present one began, and what the last one took, in seconds of the loop.
        self._next_round = self._began = self._took = 0.0
        #: Deadlines (ms since 1970) that may come before a round reaches the link, the first one first; and by link.
        self._soon: list[tuple[int, int, _Link]] = []
        self._due_at: dict[_Link, int] = {}
        self._number = count()
        self.lag = Histogram(LAG_BOUNDS)

    def start(self, mark: Callable[[Writer], None], worked: Callable[[], None]) -> None:
        """Begin to tick.

        Args:
            mark: ends the turn for a link that may have output.
            worked: ends the turn in which a round is over.
        """
        self._mark = mark
        self._worked = worked
        self._next_round = self._loop.time() + TICK_SECONDS
        self._handle = self._loop.call_at(self._next_round, self._begin_round)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def at_each_round(self, look: Callable[[], bool]) -> None:
        """Call this in each round, until it returns False."""
        self._looks.append(look)

    def look(self) -> None:
        self._looks = [look for look in self._looks if look()]

    def _begin_round(self) -> None:
        self._began = self._loop.time()
        self.lag.observe(max(0.0, self._began - self._next_round))
        self._left = list(self._links.open)
        self._step()

    def _step(self) -> None:
        """Tick TICKED_AT_ONCE links: those whose deadlines have come, at most half of them while others are left."""
        now, left = self._clock.now(), self._left
        most = TICKED_AT_ONCE - self._tick_due(TICKED_AT_ONCE // 2 if left else TICKED_AT_ONCE, now)
        if left:
            part = left[-most:]
            del left[-most:]
            for link in part:
                self._tick(link, now)
        over = left is not None and not left
        if over:
            self._left = None
            self._next_round = self._loop.time() + TICK_SECONDS
            self._took = self._loop.time() - self._began
        self._arm(now)
        if over:
            self._on_round()
            self._worked()  # its tasks have had a slice in this turn, and continue in the next one

    def _tick_due(self, most: int, now: int) -> int:
        """Tick links whose deadlines have come, and return how many there were."""
        done, soon = 0, self._soon
        while done < most and soon and soon[0][0] <= now:
            due, _, link = heapq.heappop(soon)
            if self._due_at.get(link) == due:  # otherwise an earlier one has come
                del self._due_at[link]
                self._tick(link, now)
                done += 1
        return done

    def _tick(self, link: _Link, now: int) -> None:
        if link not in self._links.open:
            return
        connection = link.connection
        try:
            deadline = connection.tick(now)
        except Exception as error:
            link.fail(error)
            return
        if deadline is not None and deadline < now + 1000 * (2 * TICK_SECONDS + self._took):
            known = self._due_at.get(link)
            if known is None or deadline < known:
                self._due_at[link] = deadline
                heapq.heappush(self._soon, (deadline, next(self._number), link))
        if connection.has_data or connection.closing:
            self._mark(link)

    def _arm(self, now: int) -> None:
        """Go on in the next turn if links are left; otherwise with the next round, or a deadline before."""
        soon = self._soon
        if self._left or (soon and soon[0][0] <= now):
            self._handle = self._loop.call_soon(self._step)
            return
        at, act = self._next_round, self._begin_round
        if soon:
            due = self._loop.time() + max((soon[0][0] - now) / 1000, _SHORTEST_SECONDS)
            if due < at:
                at, act = due, self._step
        self._handle = self._loop.call_at(at, act)
