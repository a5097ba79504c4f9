"""The end of a loop turn: each connection flushes its output once, and the domain's next deadline sets the timer.

Each read may produce output for other connections. All of it is written when the reads of the turn are done, so a
connection costs one write per turn however many commands it gets.

A turn has TURN_SECONDS for processing input and WRITE_SECONDS for writing, and one connection has PIECE_SECONDS at a
time. The rest is processed and written in later turns. So a request is handled within a few turns, however many
connections flood the broker and however many subscribers get each message.

Where the setting `busy_poll` says so, the loop polls for input behind a turn before it blocks (decision 0022).

Deadlines: the domain has one timer. The domain returns the time at which it must be called next; the timer is set again
only if that is earlier, because an additional call costs nothing. Work that takes longer than a turn should (a new
selector over a deep backlog, many messages that expire at once) is done in slices, one per turn, so that every
connection is served in between."""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.session.peer import Peer

if TYPE_CHECKING:  # in memory there is no database
    from sievemq_broker.server.durability.commits import Commits

#: Seconds from its beginning after which nothing more is begun in a turn, and for how much longer it writes. With one
#: command more, which cannot be divided, and a slice of the domain's work, that stays below 10 ms.
TURN_SECONDS = 0.004
WRITE_SECONDS = 0.002
#: Seconds for which commands of one connection are carried out at a time. Far more than a read of small messages takes
#: where each has one receiver, so that no connection is interrupted without need.
PIECE_SECONDS = 0.002

#: Seconds; bounds of the histogram of turns.
TURN_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)

#: Turns whose durations go into the histogram together: there may be 20,000 in a second.
TURNS_AT_ONCE = 256

#: The longest the timer is armed for: the machine's clock can be set meanwhile, so a deadline is checked again.
_LONGEST_MS = 60_000

#: Yields the processor; where that is impossible there is no polling.
_give_way = getattr(os, "sched_yield", None)


log = logs.get("server")


class _Connected(Protocol):
    @property
    def peer(self) -> Peer: ...


class Writer(Protocol):
    """A link."""

    @property
    def connection(self) -> _Connected: ...

    @property
    def commits(self) -> Commits | None:
        """Of its shard: holds output back until what it confirms is on disk; None in memory."""

    def flush(self) -> None: ...


class _Late(Protocol):
    def catch_up(self) -> None: ...


class Domain(Protocol):
    """What has deadlines and pending work: the broker of a shard."""

    def due(self, now: int) -> int | None:
        """Do what is due; when to call again, None for never."""

    def work(self, now: int) -> bool:
        """Do a turn of pending work; True if there is more."""


class Timers:
    """Calls the domains when a deadline is due.

    Args:
        clock: the broker's time.
        domains: of all shards.
    """

    __slots__ = ("_armed", "_armed_for", "_clock", "_domains", "_loop", "_worked")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, domains: Sequence[Domain]) -> None:
        self._loop = loop
        self._clock = clock
        self._domains = domains
        self._worked = self.rearm
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = 0

    def start(self, worked: Callable[[], None]) -> None:
        """Be in turns from now on.

        Args:
            worked: a deadline has come or work goes on, even if no link has output: ends the turn, which calls
                :meth:`rearm`, and what was done may be written to disk. Before this, nothing else is in a turn.
        """
        self._worked = worked

    def stop(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def rearm(self) -> None:
        """Do a slice of what is due or pending, and see to it that the rest and the next deadline come in time."""
        now, deadline = self._clock.now(), None
        try:
            for domain in self._domains:
                due = domain.due(now)
                if domain.work(now):
                    due = now
                if deadline is None or (due is not None and due < deadline):
                    deadline = due
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
            return  # nothing becomes due by itself; the code that moves the clock calls this
        wait = min(max(deadline - now, 0), _LONGEST_MS)
        self._armed_for = now + wait
        self._armed = self._loop.call_later(wait / 1000, self._fire)

    def moved(self) -> None:
        """The clock was moved: everything that is due by it is done before this returns."""
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        now = self._clock.now()
        for domain in self._domains:
            while (deadline := domain.due(now)) is not None and deadline <= now:
                pass
            while domain.work(now):
                pass
        self.rearm()

    def _fire(self) -> None:
        self._armed = None
        self._worked()


class Turn:
    """Collects links that have output, and ends each turn once.

    Args:
        busy_poll: microseconds for which it polls for input before it blocks; 0 for never.
        commits: of durable shards: each writes at the end of a turn.

    Attributes:
        exhausted: the present turn has no time left for input. What is read now is processed in a later turn.
    """

    __slots__ = (
        "_began", "_brief", "_busy_poll", "_catching_up", "_commits", "_dirty", "_durations", "_ended", "_fed",
        "_handle", "_late", "_latency", "_looks", "_loop", "_scheduled", "_until", "exhausted", "timers", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        busy_poll: int = 0,
        timers: Timers | None = None,
        commits: Iterable[Commits] = (),
    ) -> None:
        self._loop = loop
        self._busy_poll = busy_poll / 1e6 if _give_way is not None else 0.0
        self._ended = 0.0
        self._looks = False
        #: Connections with input that were not written since; and others with output, the next one first.
        self._fed: dict[Writer, None] = {}
        self._dirty: OrderedDict[Writer, None] = OrderedDict()
        self._scheduled = False
        self._handle: asyncio.Handle | None = None
        self._began = self._until = 0.0
        self.exhausted = False
        #: Connections with input that is not carried out yet, the next one first: little, and much.
        self._brief: deque[_Late] = deque()
        self._late: deque[_Late] = deque()
        self._catching_up = False
        self._latency = Histogram(TURN_BOUNDS)
        #: Seconds that the latest turns took, not counted yet.
        self._durations: list[float] = []
        self.timers = timers
        self._commits = tuple(commits)
        for each in self._commits:
            each.work_on_with(self.worked)
        #: Called at the end of each turn; for waiters on a state that any command may bring about.
        self.watchers: list[Callable[[], None]] = []

    @property
    def latency(self) -> Histogram:
        """From the first read of a turn to its last write: what a message takes through the broker if a consumer
        waits."""
        self._count()
        return self._latency

    @property
    def late(self) -> bool:
        """True if something that was read is not carried out yet."""
        return bool(self._late or self._brief)

    def has(self, link: object) -> bool:
        """True if it is to be flushed."""
        return link in self._fed or link in self._dirty

    def grant(self) -> bool:
        """Input was read. True if it may be processed now, until :meth:`spent` is true; otherwise its link is to be put
        off."""
        now = time.monotonic()
        if not self._scheduled:
            self._schedule(now)
        end = self._began + TURN_SECONDS
        self._until = min(now + PIECE_SECONDS, end)
        self.exhausted = now >= end
        return not self.exhausted

    def spent(self) -> bool:
        return time.monotonic() > self._until

    def put_off(self, link: _Late, *, brief: bool) -> None:
        """The turn had no time for all input of `link`: it continues after the links that were put off before.

        Args:
            brief: it has sent little, so it need not wait for those that flood.
        """
        (self._brief if brief else self._late).append(link)
        if not self._catching_up:
            self._catching_up = True
            self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        brief, late = self._brief, self._late
        try:
            for at in range(len(brief)):  # one in each turn, however late it is
                if not self.grant() or (at and time.monotonic() >= self._began + PIECE_SECONDS / 2):
                    break  # links with much input must not starve
                brief.popleft().catch_up()
            for _ in range(len(late)):
                if not self.grant():
                    break
                late.popleft().catch_up()
                if time.monotonic() >= self._began + PIECE_SECONDS:
                    break  # the rest of the turn is for those that are read from now on, mostly with little input
        finally:  # a fault of one link must not end the turns of all others
            self._catching_up = self.late
            if self._catching_up:
                self._loop.call_soon(self._catch_up)

    def fed(self, link: Writer) -> None:
        """`link` has sent commands: it is flushed at the end of this turn, before links that only have output, so that
        requests are answered beside a thousand busy subscribers, also by one of them."""
        commits = link.commits
        if commits is not None:
            commits.fed(link.connection.peer)
        self._dirty.pop(link, None)
        self._fed[link] = None
        if not self._scheduled:
            self._schedule(time.monotonic())

    def mark(self, link: Writer) -> None:
        """`link` has output: it is flushed at the end of this turn, or as soon as there is time."""
        commits = link.commits
        if commits is not None:
            commits.note(link.connection.peer)
        if link not in self._fed:
            self._dirty[link] = None
        if not self._scheduled:
            self._schedule(time.monotonic())

    def worked(self) -> None:
        """The domain did something, perhaps without output: its next deadline may be another one."""
        if not self._scheduled:
            self._schedule(time.monotonic())

    def _schedule(self, now: float) -> None:
        self._scheduled = True
        self._began = now
        self._handle = self._loop.call_soon(self._end)

    def end(self) -> None:
        """End the turn before this returns."""
        self.worked()
        assert self._handle is not None
        self._handle.cancel()  # or the loop would have two ends in each of its turns as long as links have output
        self._end()

    def _end(self) -> None:
        """Write all output, and set the timer for the domain's next deadline."""
        began = self._began
        self._until = 0.0  # a flush may carry out one command that has waited, and no more
        self.exhausted = False
        try:
            # The domain comes first: output of deadlines that have come is written in this turn.
            if self.timers is not None:
                self.timers.rearm()
        finally:
            self._scheduled = False
            self._write(began + TURN_SECONDS)
            for commits in self._commits:
                commits.end_turn()
                commits.give_way()
        if self.watchers:
            for look in tuple(self.watchers):
                look()
        self._ended = now = time.monotonic()
        if self._scheduled:  # by a write: the next turn begins now, or late links would have no time in it
            self._began = now
        self._durations.append(now - began)
        if len(self._durations) >= TURNS_AT_ONCE:
            self._count()
        if self._busy_poll and not self._looks:
            self._looks = True
            self._loop.call_soon(self._look)

    def _count(self) -> None:
        for seconds in self._durations:
            self._latency.observe(seconds)
        self._durations.clear()

    def _write(self, until: float) -> None:
        """Have links write, as many as there is time for: WRITE_SECONDS, and what is left until then. A write may lead
        to delivering what waited for room."""
        fed, self._fed = self._fed, {}
        dirty = self._dirty
        left = len(dirty)  # links marked during the writes wait for the next turn
        # The clock is read between two links only: most turns have one of each kind.
        end = max(until, time.monotonic()) + WRITE_SECONDS if len(fed) > 1 or left > 1 else until
        for place, link in enumerate(fed, 1):
            link.flush()
            if place < len(fed) and time.monotonic() > end:
                self._fed = dict.fromkeys(islice(fed, place, None))  # still before all others
                break
        while left:
            link, _ = dirty.popitem(last=False)
            link.flush()
            left -= 1
            if left and time.monotonic() > end:
                break
        if dirty or self._fed:
            self.worked()

    def _look(self) -> None:
        """Make the loop poll for input once more: it does not sleep while a callback is scheduled."""
        assert _give_way is not None
        if time.monotonic() - self._ended < self._busy_poll:
            _give_way()
            self._loop.call_soon(self._look)
        else:
            self._looks = False
