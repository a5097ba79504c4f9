"""Group commit: what a client is notified of is on disk before.

    turn ends ─► links flush ─► hold(link, bytes, needs)   nothing to wait for: written at once
             └─► end_turn ─► cut the journal ─► writer thread: Store.write, one sync
                                 turns continue, and gather the next write
             release ◄── the write is on disk: the bytes that needed it go out, in order; the next one follows at once

A link's output waits for what its own commands have changed and for the stored messages that it was delivered: a
message that was seen before it was kept would be delivered again as new after a crash. Its later output waits behind.
Other links are not held back, however long a write takes. What a verb of several turns does is written when it is
complete, except new messages that are written ahead; those that learn of it wait for that. One sync serves all links of
all turns that came together while the last one was under way. Acknowledgements without a waiting caller wait for
further changes.

A full disk: the journal accepts no PERSISTENT message for which the store has no room, so that what it has accepted can
be written, and acknowledgements after it. If others fill the disk meanwhile, the store gives up its reserve. If even
that is not enough, the broker is stuck: it tries again until there is room. Any other error is tried again for
RETRY_SECONDS; then the broker ends. Clients receive the reason (FLOW). Nothing is confirmed that is not on disk.

The gate: where other brokers may take the store over, output leaves only while the lease lasts; it is held until then,
whether it waits for a write or not. All output of the shard passes it: that of links in hold and release, and what the
management port sends (http/gate.py).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.domain.journal import SCARCE_BYTES, Journal, Write
from sievemq_broker.domain.ports import Stored
from sievemq_broker.domain.store import (
    AwayError,
    DamagedError,
    FencedError,
    LostWritesError,
    Store,
    StoreError,
    StoreFullError,
)
from sievemq_broker.server.durability.progress import Progress
from sievemq_broker.server.durability.worker import Worker
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.session.peer import Peer

#: Links whose output is released in a turn of the loop: each is a write to a socket, some ten microseconds.
RELEASED_AT_ONCE = 150

#: The longest time for which changes without a waiting caller wait for others.
LAZY_SECONDS = 0.005

#: The time between two attempts to write, and for how long they are repeated.
PAUSE_SECONDS = 0.25
RETRY_SECONDS = 10.0

#: The time between two checks for room on a full disk.
LOOK_SECONDS = 1.0

#: How long the end waits for the disk: for one that works but takes long, and for one that does not.
CLOSE_SECONDS = 30.0
STUCK_CLOSE_SECONDS = 2.0

#: The least time between two warnings that a message was too large for the room on the disk.
WARN_SECONDS = 10.0

FULL = "the disk of the data directory is full"

#: Seconds; bounds of the histogram of commits.
COMMIT_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

log = logs.get("store")


def log_full(reason: str) -> None:
    log.error("store.full", reason=reason, note="PERSISTENT messages are refused or wait until there is room")


def _always() -> bool:
    return True


def _never() -> bool:
    return False


class Holder(Protocol):
    """A link."""

    def release(self, data: bytes) -> None:
        """Output that was held may be sent."""


class _Held:
    """Output that waits for the disk, in order for each link. False if there is none.

    Args:
        speaks: the gate: False while no output may leave.
    """

    __slots__ = ("_loop", "_of", "_releasing", "_speaks")

    def __init__(self, loop: asyncio.AbstractEventLoop, speaks: Callable[[], bool]) -> None:
        self._loop = loop
        self._speaks = speaks
        #: By link: its output, each part with the writes that it waits for.
        self._of: dict[Holder, deque[tuple[bytes, list[Stored]]]] = {}
        #: Releases the output of further links in a later turn of the loop; None if there are no more.
        self._releasing: asyncio.Handle | None = None

    def __bool__(self) -> bool:
        return bool(self._of)

    def shut(self) -> None:
        """Release nothing from now on."""
        self._speaks = _never

    def add(self, link: Holder, data: bytes, missing: list[Stored]) -> bool:
        """Hold output until nothing is missing; False if nothing is, and no earlier output of this link waits."""
        waiting = self._of.get(link)
        if waiting is not None:
            waiting.append((data, missing))
        elif missing or not self._speaks():
            self._of[link] = deque([(data, missing)])
        else:
            return False
        return True

    def take(self) -> list[tuple[Holder, bytes]]:
        """Remove and return the output whose writes are on disk, of RELEASED_AT_ONCE links at most. That of the others
        is released in later turns of the loop."""
        if self._releasing is not None or not self._speaks():
            return []
        ready: list[tuple[Holder, bytes]] = []
        for link, waiting in tuple(self._of.items()):
            if len(ready) == RELEASED_AT_ONCE:
                self._releasing = self._loop.call_soon(self._release_more)
                break
            parts = []
            while waiting and all(need.stored for need in waiting[0][1]):
                parts.append(waiting.popleft()[0])
            if parts:
                del self._of[link]
                if waiting:
                    self._of[link] = waiting  # behind the others, or those that always have output would starve them
                ready.append((link, parts[0] if len(parts) == 1 else b"".join(parts)))
        return ready

    def release(self) -> None:
        """Send the output whose writes are on disk, as far as :meth:`take` returns it."""
        for link, data in self.take():
            link.release(data)

    def release_all(self) -> None:
        """Send now what :meth:`take` has left to later turns."""
        while self._releasing is not None:
            self._releasing.cancel()
            self._release_more()

    def _release_more(self) -> None:
        self._releasing = None
        self.release()


class Commits:
    """Makes writes one after the other on a thread of its own, and holds back what waits for them.

    Args:
        clock: the broker's time.
        refuse: makes the broker refuse PERSISTENT messages for a reason, or with None take them again.
        guard: makes the broker check each PERSISTENT message for room, or no longer.
        failed: the store cannot be used any more: the broker must end.
        stands: tells clients why answers are held back, ahead of held output; with None, that they continue.
        worker: calls the store; one with a thread of its own if not given.
        speaks: the gate: False while no output may leave. Without one it is always open.
        patience: seconds for which a write is repeated while the store is away. Other errors but a lack of room are
            tried for RETRY_SECONDS.

    Attributes:
        writes: how many were made.
        latency: that writing took.
        full: why PERSISTENT messages are not accepted; None while they are.
        stuck: why nothing can be written, so that nothing is confirmed or delivered; None while it can.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        journal: Journal,
        store: Store,
        refuse: Callable[[str | None], None],
        guard: Callable[[bool], None],
        failed: Callable[[Exception], None],
        stands: Callable[[str | None], None] = lambda reason: None,
        worker: Worker | None = None,
        speaks: Callable[[], bool] | None = None,
        patience: float = RETRY_SECONDS,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._journal = journal
        self._store = store
        self._refuse = refuse
        self._guard = guard
        self._failed = failed
        self._stands = stands
        self._patience = patience
        self.full: str | None = None
        self.stuck: str | None = None
        self._relieved = False
        self._lacks = 0
        self._warned = 0.0
        self._held = _Held(loop, speaks or _always)
        #: Futures of those that asked, each with what it waits for.
        self._asked: list[tuple[asyncio.Future[None], list[Stored]]] = []
        self._busy = False
        self._dead = False
        self._since = self._cut = 0.0
        self._progress: Progress | None = None
        self._work_on: Callable[[], None] = lambda: None
        self._extent = journal.extent
        #: Clients whose progress is stored with the next write.
        self._fed: dict[Peer, None] = {}
        self._lazy: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._worker = worker or Worker(loop, "sievemq-store")
        self.writes = 0
        #: From the cut of a write until it was on disk.
        self.latency = Histogram(COMMIT_BOUNDS)

    @property
    def store(self) -> Store:
        return self._store

    @property
    def refused(self) -> int:
        """How often a message or a transaction was refused, or had to wait, because the room was too small for it."""
        return self._journal.lacks

    def start(self, progress: Progress) -> None:
        """Note the progress of connections before each cut from now on."""
        self._progress = progress

    def work_on_with(self, worked: Callable[[], None]) -> None:
        """Call this when verbs of the domain that waited for a write go on."""
        self._work_on = worked

    # -- what a turn does -----------------------------------------------------------------------------------------

    def hold(self, link: Holder, data: bytes, needs: list[Stored]) -> bool:
        """Hold output of a link until what it needs is on disk, its earlier output is written, and the gate is open.
        False if that is so already. `needs` is emptied."""
        missing = self._journal.missing(needs)
        needs.clear()
        return self._held.add(link, data, missing)

    def begin(self) -> None:
        """Commands of a link are carried out next."""
        self._extent = self._journal.extent

    def fed(self, peer: Peer) -> None:
        """Commands of a client were carried out: its output waits for what they have changed."""
        self._fed[peer] = None
        if self._journal.extent != self._extent:
            peer.out.needs.append(self._journal.mark)

    def note(self, peer: Peer) -> None:
        """Store the progress of a client with the next write."""
        self._fed[peer] = None

    def sweep(self) -> None:
        """Forget connections that cannot be resumed any more; and log that there was no room for large messages."""
        if self._progress is not None:
            self._progress.sweep()
        lacks, now = self._journal.lacks, self._loop.time()
        if lacks > self._lacks and now >= self._warned + WARN_SECONDS:
            log.warning("store.no_room", refused=lacks - self._lacks, room_bytes=self._store.room)
            self._lacks, self._warned = lacks, now

    def opened(self) -> None:
        """The gate is open again: send what was held back for it alone."""
        self._held.release()
        self.end_turn()

    def hangs(self, seconds: float) -> bool:
        """True if the store has not answered a write for so long."""
        return self._busy and self.stuck is None and self._loop.time() - self._since >= seconds

    def end_turn(self) -> None:
        """All links have their output: write, unless a write is under way."""
        if self._busy or self._dead:
            return
        if not self._journal.has_changes:
            self._answer_asked()
            self._held.release()  # what waited for a verb that has changed nothing
        elif self._held or self._asked:
            self._begin()
            return
        if self._journal.is_awaited:
            self._begin()
            return
        if self._lazy is None and (self._journal.has_changes or self._journal.has_ahead):
            self._lazy = self._loop.call_later(LAZY_SECONDS, self._begin_lazily)

    def give_way(self) -> None:
        """Let the writer's thread go on, if a write is under way: a busy loop leaves the processor for a moment.

        The writer needs the interpreter some ten times in a write, and is woken up for it on the loop's processor, as a
        rule. Linux let it wait there for up to 60 ms each time: a write of a megabyte took 200 ms beside a large
        COMMIT, now 10, and a confirmed send waited for two of them.
        """
        if self._busy:
            time.sleep(0)

    def synced(self) -> asyncio.Future[None]:
        """Completed when everything that is complete so far is on disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        missing = self._journal.missing(self._journal.unwritten)
        if missing:
            self._asked.append((future, missing))
            self.end_turn()
        else:
            future.set_result(None)
        return future

    # -- writing --------------------------------------------------------------------------------------------------

    def _begin_lazily(self) -> None:
        self._lazy = None
        if not self._busy and (self._journal.has_changes or self._journal.has_ahead):
            self._begin()

    def _answer_asked(self) -> None:
        asked, self._asked = self._asked, []
        for future, needs in asked:
            if self._journal.missing(needs):
                self._asked.append((future, needs))
            elif not future.done():
                future.set_result(None)

    def _begin(self) -> None:
        """Write everything that is complete."""
        if self._dead or self._journal.holds:  # the turn in which the last hold ends calls this again
            return
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        self._busy = True
        self._since = self._loop.time()
        self._cut = time.perf_counter()
        if self._fed:
            if self._progress is not None:
                self._progress.note(self._fed)
            self._fed.clear()
        write = self._journal.cut()
        if not write:  # all of it belongs to verbs that are not complete
            self._done(write, 0, None)
        else:
            self._submit(write, self._clock.now())

    def _submit(self, write: Write, now: int) -> None:
        loop, done = self._loop, self._done

        def job() -> None:
            error = None
            try:
                self._store.write(write, now)
            except Exception as raised:
                error = raised
            loop.call_soon_threadsafe(done, write, now, error)
            if error is None:
                self._tidy()

        self._worker.put(job)

    def _done(self, write: Write, now: int, error: Exception | None) -> None:
        if self._dead:
            return
        if error is not None:
            self._on_error(write, now, error)
            return
        if self.stuck is not None:
            self.stuck = None
            log.info("store.works", note="held-back output is sent")
            self._stands(None)
        if self._journal.is_awaited:
            self._work_on()  # verbs go on
        self._journal.written()
        self._busy = self._relieved = False
        took = time.perf_counter() - self._cut
        self._answer_asked()
        ready = self._held.take()
        if (self._held or self._asked) and self._journal.has_changes:
            self._begin()  # first: the writer works while this thread writes to sockets
        for link, data in ready:
            link.release(data)
        self.writes += 1
        self.latency.observe(took)
        self.end_turn()

    # -- a full or failing disk -----------------------------------------------------------------------------------

    def _on_error(self, write: Write, now: int, error: Exception) -> None:
        waited = self._loop.time() - self._since
        if isinstance(error, StoreFullError):
            self._worker.put(self._store.relieve)
            if not self._relieved:
                self._relieved = True
                self._submit(write, now)
                return
            if self.full is None:
                self._begin_refusing(str(error))
            if self.stuck is None:
                log.error("store.stuck", reason=str(error), note="nothing is confirmed until there is room")
        elif isinstance(error, (FencedError, DamagedError)) or waited >= self._patience_with(error):
            self.end(error)
            return
        else:
            if self.stuck is None:
                log.warning("store.write_failed", reason=str(error), note="retrying")
            self._worker.put(self._reopen)
        if self.stuck is None:
            self.stuck = str(error)
            self._stands(self.stuck)
        self._later = self._loop.call_later(PAUSE_SECONDS, self._submit, write, now)

    def _patience_with(self, error: Exception) -> float:
        """Seconds for which a write is tried again that fails with this."""
        return self._patience if isinstance(error, AwayError) else RETRY_SECONDS

    def _reopen(self) -> None:
        try:
            self._store.reopen()
        except Exception as error:
            # The write that follows fails likewise, and reports it.
            log.debug("store.reopen_failed", reason=str(error))

    def end(self, error: Exception) -> None:
        """The store cannot be used any more, or is another broker's: nothing leaves from now on."""
        if self._dead:
            return
        self._die()
        if isinstance(error, LostWritesError):
            log.error("store.lost_writes", writes=error.lost, reason=str(error), note="this broker ends")
        elif isinstance(error, FencedError):
            log.error("store.fenced", reason=str(error), note="this broker ends; another one goes on")
        elif isinstance(error, StoreError):
            log.error("store.failed", reason=str(error), note="the broker exits; everything confirmed is on disk")
        else:
            log.fault("store.failed", error)
        for future, _ in self._asked:
            future.cancel()
        self._failed(error)

    def _die(self) -> None:
        self._dead = True
        self._held.shut()

    # -- the room on the disk -------------------------------------------------------------------------------------

    def _tidy(self) -> None:
        room = self._store.tidy()
        if self._journal.guards or room < SCARCE_BYTES:
            self._loop.call_soon_threadsafe(self.check_room)

    def check_room(self, log_it: bool = True) -> None:
        """Accept what there is room for."""
        if self._dead:
            return
        room, least = self._journal.measured(), self._store.full_below
        self._guard(room < (2 * SCARCE_BYTES if self._journal.scarce else SCARCE_BYTES))
        if self.full is None:
            if room < least:
                self._begin_refusing(FULL, log_it)
        elif room >= least + least // 4 and self.stuck is None:
            self.full = None
            log.info("store.has_room", note="PERSISTENT messages are accepted again")
            self._refuse(None)

    def _begin_refusing(self, reason: str, log_it: bool = True) -> None:
        if log_it:
            log_full(reason)
        self.full = reason
        self._refuse(reason)
        self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self.full is not None and not self._dead:
            self._worker.put(self._tidy)
            self._loop.call_later(LOOK_SECONDS, self._look)

    # -- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> bool:
        """Write the rest, and close the store. Bounded, whatever the disk does.

        Returns:
            False if something that was accepted, and not confirmed, could not be written.
        """
        written = await self._finish()
        self._held.release_all()
        for handle in (self._lazy, self._later):
            if handle is not None:
                handle.cancel()
        self._die()
        if not (await asyncio.wait([self._worker.end()], timeout=CLOSE_SECONDS if written else STUCK_CLOSE_SECONDS))[0]:
            log.error("store.hangs", note="the broker does not wait for the disk any longer")
            return False
        self._store.close()
        return written

    async def _finish(self) -> bool:
        if self._dead:
            return True
        synced = self.synced()
        deadline = self._loop.time() + CLOSE_SECONDS
        while not synced.done():
            stuck = self.stuck is not None
            if stuck:
                deadline = min(deadline, self._loop.time() + STUCK_CLOSE_SECONDS)
            await asyncio.wait([synced], timeout=STUCK_CLOSE_SECONDS)
            if not synced.done() and (self._loop.time() >= deadline or (stuck and self.stuck is not None)):
                log.error(
                    "store.unwritten",
                    reason=self.stuck or "the disk does not answer",
                    note="what was not confirmed is not stored; everything confirmed is on disk",
                )
                return False
        return True
