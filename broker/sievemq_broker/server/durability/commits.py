"""Group commit: what a turn has changed is on disk before any client is notified of it.

    turn ends ─► links flush ─► hold(link, bytes)          nothing to wait for: written at once
             └─► end_turn ─► cut the batch ─► writer thread: Store.write, one sync
                                 turns continue, and gather the next batch
             release ◄── the batch is on disk: its turns' bytes go out, in order; the next batch follows at once

All output of a link in a turn waits, confirms and deliveries alike: a message that was seen before it was kept
would be delivered again as new after a crash. One sync serves all links of all turns that came together while the last
one was under way. Acknowledgements without a waiting caller wait for further changes.

A full disk: the store gives up its reserve, so that this batch and what follows from consumers can be written, and
PERSISTENT messages are not taken until there is room again. Any other error is tried again for RETRY_SECONDS; clients
receive the reason (FLOW). Then the broker ends, and has confirmed nothing that is not on disk.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from sievemq_broker import logs
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.store.errors import DamagedError, FencedError, StoreError, StoreFullError

if TYPE_CHECKING:
    from sievemq_broker.clock import Clock
    from sievemq_broker.domain.journal import Batch, Journal
    from sievemq_broker.server.durability.progress import Progress

__all__ = ["LAZY_SECONDS", "RETRY_SECONDS", "Commits", "DurableStore"]

#: The longest time for which changes without a waiting caller wait for others.
LAZY_SECONDS = 0.005

#: The time between two attempts to write, and for how long they are repeated.
PAUSE_SECONDS = 0.25
RETRY_SECONDS = 10.0

#: The time between two checks for room on a full disk.
LOOK_SECONDS = 1.0

#: Seconds; bounds of the histogram of commits.
COMMIT_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

log = logs.get("store")


class DurableStore(Protocol):
    """A store that can handle a full or failing disk."""

    def write(self, batch: Batch, now: int) -> None:
        """Write a batch."""

    @property
    def low(self) -> bool:
        """True if there is hardly room for acknowledgements."""

    def relieve(self) -> None:
        """Release the reserve."""

    def restock(self) -> bool:
        """Take the reserve again. False if there is no room."""

    def reopen(self) -> None:
        """Open it again after an error."""

    def close(self) -> None:
        """Close it."""


class Holder(Protocol):
    """A link."""

    def release(self, data: bytes) -> None:
        """Output that was held may be sent."""


class Commits:
    """Writes batches one after the other on a thread of its own, and holds back what waits for them.

    Args:
        loop: the running loop.
        clock: the broker's time.
        journal: gathers the batches.
        store: keeps them.
        refuse: makes the broker refuse PERSISTENT messages for a reason, or with None take them again.
        failed: the store cannot be used any more: the broker must end.
        stands: tells clients why answers are held back, ahead of held output; with None, that they continue.

    Attributes:
        writes: batches written.
        latency: that writing took.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        journal: Journal,
        store: DurableStore,
        refuse: Callable[[str | None], None],
        failed: Callable[[Exception], None],
        stands: Callable[[str | None], None] = lambda reason: None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._journal = journal
        self._store = store
        self._refuse = refuse
        self._failed = failed
        self._stands = stands
        self._standing = False
        self._held: dict[Holder, list[bytes]] = {}
        self._flying: dict[Holder, list[bytes]] = {}
        self._asked: list[asyncio.Future[None]] = []
        self._owed: list[asyncio.Future[None]] = []
        self._busy = False
        self._dead = False
        self._since = self._cut = 0.0
        self._progress: Progress | None = None
        self._fed: dict[Any, None] = {}
        self._lazy: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="sievemq-store", daemon=True)
        self._thread.start()
        self.writes = 0
        #: From the cut of a batch until it was on disk.
        self.latency = Histogram(COMMIT_BOUNDS)

    def start(self, progress: Progress) -> None:
        """Note the progress of connections before each cut from now on."""
        self._progress = progress

    # -- what a turn does -----------------------------------------------------------------------------------------

    def hold(self, link: Holder, data: bytes) -> bool:
        """Hold `data` until everything that it may confirm is on disk. False if it is already."""
        if self._held or self._journal.batch:
            waiting = self._held
        elif self._busy:
            waiting = self._flying
        else:
            return self._dead  # nothing is sent any more
        parts = waiting.get(link)
        if parts is None:
            waiting[link] = [data]
        else:
            parts.append(data)
        return True

    def fed(self, link: Any) -> None:
        """A link had input: its output belongs to the present batch."""
        self._fed[link] = None

    def sweep(self) -> None:
        """Forget connections that cannot be resumed any more."""
        if self._progress is not None:
            self._progress.sweep()

    def end_turn(self) -> None:
        """All links have their output: write, unless a write is under way."""
        if self._busy or self._dead:
            return
        if self._held or self._asked:
            self._begin()
        elif self._lazy is None and self._journal.batch:
            self._lazy = self._loop.call_later(LAZY_SECONDS, self._begin_lazily)

    def synced(self) -> asyncio.Future[None]:
        """Completed when everything that has happened so far is on disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._journal.batch or self._held:
            self._asked.append(future)
            self.end_turn()
        elif self._busy:
            self._owed.append(future)
        else:
            future.set_result(None)
        return future

    # -- writing --------------------------------------------------------------------------------------------------

    def _begin_lazily(self) -> None:
        self._lazy = None
        if not self._busy and self._journal.batch:
            self._begin()

    def _begin(self) -> None:
        """Write the present batch."""
        if self._dead or self._journal.holds:  # the turn in which the last hold ends calls this again
            return
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        self._busy = True
        self._flying, self._held = self._held, {}
        self._owed, self._asked = self._asked, []
        self._since = self._loop.time()
        self._cut = time.perf_counter()
        if self._fed:
            if self._progress is not None and self._journal.batch:
                self._progress.note([link.connection.peer for link in self._fed])
            self._fed.clear()
        batch = self._journal.cut()
        if not batch:  # a failed start has cut the journal; there is nothing to write
            self._done(batch, 0, None)
        else:
            self._submit(batch, self._clock.now())

    def _submit(self, batch: Batch, now: int) -> None:
        loop, done = self._loop, self._done

        def write() -> None:
            error, low = None, False
            try:
                self._store.write(batch, now)
                low = self._store.low
            except Exception as raised:
                error = raised
            loop.call_soon_threadsafe(done, batch, now, error, low)

        self._jobs.put(write)

    def _done(self, batch: Batch, now: int, error: Exception | None, low: bool = False) -> None:
        if error is not None:
            self._on_error(batch, now, error)
            return
        if low and self._journal.refusing is None:
            self._full("the disk of the data directory is full")
        if self._standing:
            self._standing = False
            log.info("store.works", note="held-back output is sent")
            self._stands(None)
        self._busy = False
        took = time.perf_counter() - self._cut
        flying, self._flying = self._flying, {}
        owed, self._owed = self._owed, []
        if self._held or self._asked:
            self._begin()  # first: the writer works while this thread writes to sockets
        for link, parts in flying.items():
            link.release(parts[0] if len(parts) == 1 else b"".join(parts))
        for future in owed:
            if not future.done():
                future.set_result(None)
        self.writes += 1
        self.latency.observe(took)
        self.end_turn()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    # -- a full or failing disk -----------------------------------------------------------------------------------

    def _on_error(self, batch: Batch, now: int, error: Exception) -> None:
        waited = self._loop.time() - self._since
        if isinstance(error, StoreFullError):
            if self._journal.refusing is None:
                self._jobs.put(self._store.relieve)
                self._full(str(error))
                self._submit(batch, now)
                return
        elif isinstance(error, (FencedError, DamagedError)) or waited >= RETRY_SECONDS:
            self._end(error)
            return
        else:
            log.warning("store.write_failed", reason=str(error), note="retrying")
            self._jobs.put(self._reopen)
        if not self._standing:
            self._standing = True
            self._stands(str(error))
        self._later = self._loop.call_later(PAUSE_SECONDS, self._submit, batch, now)

    def _reopen(self) -> None:
        try:
            self._store.reopen()
        except Exception as error:
            # The write that follows fails likewise, and reports it.
            log.warning("store.reopen_failed", reason=str(error))

    def _end(self, error: Exception) -> None:
        self._dead = True
        if isinstance(error, StoreError):
            log.error("store.failed", reason=str(error), note="the broker exits; everything confirmed is on disk")
        else:
            log.fault("store.failed", error)
        for future in (*self._owed, *self._asked):
            future.cancel()
        self._failed(error)

    def start_refusing(self, reason: str) -> None:
        """Accept no PERSISTENT messages until there is room on the disk."""
        self._full(reason)

    def _full(self, reason: str) -> None:
        log.error("store.full", reason=reason, note="PERSISTENT messages are refused or wait until there is room")
        self._refuse(reason)
        self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Check whether there is room again."""
        if self._dead or self._journal.refusing is None or not self._thread.is_alive():
            return

        def look() -> None:
            room = self._store.restock()
            self._loop.call_soon_threadsafe(self._looked, room)

        self._jobs.put(look)

    def _looked(self, room: bool) -> None:
        if room:
            log.info("store.has_room", note="PERSISTENT messages are accepted again")
            self._refuse(None)
        elif not self._dead:
            self._loop.call_later(LOOK_SECONDS, self._look)

    # -- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write the rest, and close the store."""
        if not self._dead:
            try:
                await self.synced()
            except asyncio.CancelledError:
                if not self._dead:
                    raise
        for handle in (self._lazy, self._later):
            if handle is not None:
                handle.cancel()
        self._dead = True
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)
        self._store.close()
