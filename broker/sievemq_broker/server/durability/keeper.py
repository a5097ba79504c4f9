"""Keeps a process's lease on a shard: looks at its row, takes it, beats, and reports what follows from that.

    tick, each beat ─► look (a follower) or beat (an owner), in the keeper's thread ─► the answer, in the loop ─► Lease

A tick is a timer of the loop, so a loop that hangs sends no beats, and neither does one whose store has not answered a
write for the whole lease. A shard is restored in another thread: beats go on meanwhile. The lease belongs to the loop's
thread; the keeper's thread only waits for the store.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final, Protocol

from sievemq_broker import logs
from sievemq_broker.domain.store import AwayError, FencedError, StoreError
from sievemq_broker.server.durability.probe import Probe
from sievemq_broker.server.durability.slot import Slot
from sievemq_broker.server.durability.worker import Worker
from sievemq_broker.server.histogram import Histogram
from sievemq_broker.store.lease import CLOCK_APART, FOLLOWING, GONE, OWNING, SILENT, Lease, Leases, Owner, Sight
from sievemq_broker.store.lease import now as machine_now

#: Seconds; bounds of the histogram of beats.
BEAT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

#: The time between two looks of an owner, which measure its clock.
MEASURE_SECONDS = 10.0

#: What a process is, by the state of its lease.
ROLES = ("follower", "taking", "owner", "silent", "gone")

#: The least time between two warnings that the store answers late.
WARN_SECONDS = 10.0

#: Looks without a follower after which it counts as gone: one that has lost its connection makes another.
UNFOLLOWED_LOOKS = 2

log = logs.get("store")


class TakenOverError(FencedError):
    """Another broker owns the shard, or may own it: this process ends, and is restarted as a follower."""


class Candidate(Protocol):
    """The shard, until this process owns it. Its methods are called in the loop's thread."""

    @property
    def is_warm(self) -> bool:
        """A takeover would read little: this process may ask for the shard."""

    def follow(self) -> None:
        """Another process owns the shard, or has owned it, and this one does not take it now."""

    def taken(self) -> None:
        """The row is this process's: restore the shard."""

    def failed(self, error: StoreError) -> None:
        """The shard cannot be followed."""


class Hearer(Protocol):
    """The shard that this process owns. Its methods are called in the loop's thread."""

    @property
    def writes(self) -> int:
        """Of this process, since it took the shard."""

    def silence(self, reason: str | None) -> None:
        """Another broker may own the shard: read nothing, send nothing. With None, this is over."""

    def asked(self) -> None:
        """A follower asks for the shard. Called at each beat from then on."""

    def gone(self, error: StoreError) -> None:
        """This process does not own the shard any more."""

    def hangs(self, seconds: float) -> bool:
        """True if the store has not answered a write for so long."""


class Keeper:
    """The lease of a process on a shard, and the calls that keep it.

    Args:
        loop: all methods are called in its thread.
        lease: of this process, new.
        leases: the row.
        owner: what this process writes about itself.
        candidate: hears what follows until this process owns the shard.
        hearer: hears what follows from then on.
        worker: carries out the calls; one of its own if not given.
        prober: carries out probes; one of its own if not given. A name that resolves slowly holds up no look.
        now: the time, as in store/lease.py.
        probe: whether an address accepts connections, as :func:`accepts`, which is used if none is given.
        slot: of the process; one of its own if not given.
        shard: its name, for the log.
        asks: ask the owner to hand the shard over, as soon as this process is warm.

    Attributes:
        roles: what a process may be.
        lease: as above.
        latency: of beats.
        offset: seconds by which this machine's clock was ahead of the database's when that was measured last.
        lost_writes: writes that were seen and are gone.
        silences: how often this process has fallen silent.
    """

    roles: Final = ROLES

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lease: Lease,
        leases: Leases,
        owner: Owner,
        candidate: Candidate,
        hearer: Hearer,
        worker: Worker | None = None,
        prober: Worker | None = None,
        now: Callable[[], float] = machine_now,
        probe: Callable[[str], bool | None] | None = None,
        *,
        slot: Slot | None = None,
        shard: str = "main",
        asks: bool = False,
    ) -> None:
        self._loop = loop
        self.lease = lease
        self._leases = leases
        self._owner = owner
        self._candidate = candidate
        self._hearer = hearer
        self._slot = slot or Slot()
        self._log = log.of(shard=shard)
        self._worker = worker or Worker(loop, "sievemq-lease")
        self._now = now
        self._probe = Probe(loop, lease, owner, self._died, prober, probe)
        #: The owner is to be asked.
        self._asks = asks
        self._state = lease.state
        self._timer: asyncio.TimerHandle | None = None
        #: A call is under way.
        self._waits = False
        #: The row as it was when this process tried to take it last.
        self._attempted: Sight | None = None
        #: Of this process's takeover; 0 before, and once it has ended.
        self._epoch = 0
        self._ended = False
        self._silent_since = 0.0
        #: Why the last call failed; None if it was answered.
        self._away: str | None = None
        self._warned = -WARN_SECONDS
        #: What was logged, and is so still.
        self._told: set[str] = set()
        #: Looks in a row that have shown no follower, since one was seen.
        self._unfollowed = 0
        self._looked = now()
        self.offset = 0.0
        self.latency = Histogram(BEAT_BOUNDS)
        self.lost_writes = 0
        self.silences = 0

    # -- what the server asks ---------------------------------------------------------------------------------------

    def speaks(self) -> bool:
        """Whether output may leave now."""
        return self.lease.speaks(self._now())

    @property
    def role(self) -> str:
        """What this process is: follower, taking, owner, silent or gone."""
        return ROLES[self.lease.state]

    @property
    def owner(self) -> Owner | None:
        """The owner, as seen last; None if there is none, or it is this process."""
        seen = self.lease.seen
        return None if seen is None or seen.released or self.lease.state != FOLLOWING else seen.owner

    @property
    def differing(self) -> list[str]:
        """Names of settings in which the owner differs from this process."""
        owner = self.owner
        if owner is None or owner.settings == self._owner.settings:
            return []
        try:
            ours, theirs = json.loads(self._owner.settings), json.loads(owner.settings)
            names = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        except (ValueError, AttributeError):  # of another version
            names = []
        return names or ["settings"]

    @property
    def warnings(self) -> list[str]:
        """What an operator should mend, one line each."""
        found = []
        if names := self.differing:
            found.append(f"settings differ from the owner's: {', '.join(names)}")
        if abs(self.offset) > CLOCK_APART:
            found.append(f"the clock differs from the database's by {self.offset:+.1f} s: {self._because_apart}")
        if self._away is not None:
            found.append(f"the store does not answer: {self._away}")
        if self._unfollowed >= UNFOLLOWED_LOOKS:
            found.append("no follower: the last one has gone, and no broker would take the shard over")
        return found

    @property
    def still(self) -> float:
        """Seconds for which a follower has seen the row as it is."""
        return self.lease.still if self.lease.state == FOLLOWING else 0.0

    @property
    def time_left(self) -> float:
        """Seconds until this process falls silent unless a beat is answered before."""
        return max(0.0, self.lease.until - self._now()) if self.lease.state == OWNING else 0.0

    @property
    def _because_apart(self) -> str:
        return "this broker takes no shard" if self.lease.state == FOLLOWING else "messages expire by this clock"

    # -- what the server says ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the shard, and take it when that is allowed."""
        self._tick()

    def ask(self) -> None:
        """Ask the owner to hand the shard over, as soon as this process is warm."""
        self._asks = True

    def restored(self) -> None:
        """The shard is restored, and its clients can be served."""
        self.lease.restored(self._now())
        self._look()

    def fail(self) -> None:
        """The store refuses this process, or is damaged."""
        self.lease.end()
        self._stop()
        self._look_back()

    def close(self) -> asyncio.Future[None]:
        """The store is closed: release the row, so that a follower may take it at once.

        Returns:
            Completed when that is done, or has failed.
        """
        owned = self._slot.is_held_by(self) and self.lease.state != GONE
        self.lease.end()
        self._stop()

        def leave() -> None:
            try:
                if owned:
                    self._leases.release(self.lease.token)
                self._leases.close()
            except Exception as error:
                self._log.warning("store.not_released", reason=str(error), note="a follower waits for the whole lease")

        self._worker.put(leave)
        self._probe.end()
        return self._worker.end()

    # -- the calls --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        # A follower looks twice in a beat: it learns sooner that one was missed.
        seconds = self.lease.terms.beat
        self._timer = self._loop.call_later(seconds / 2 if self.lease.state == FOLLOWING else seconds, self._tick)
        self._look()
        if self._waits or self._ended:
            return
        if self.lease.state == FOLLOWING or self._hearer.hangs(self.lease.terms.lease):
            self._call(self._leases.look, self._saw)
        else:
            token = self.lease.token
            self._call(lambda: self._leases.beat(token), self._beaten)

    def _call(self, call: Callable[[], object], then: Callable[..., None]) -> None:
        """Have the thread make a call, and go on with its answer, and with the time at which it was begun."""
        loop, answered, asked = self._loop, self._answered, self._now()
        self._waits = True

        def work() -> None:
            answer: object = None
            error = None
            try:
                answer = call()
            except Exception as raised:
                error = raised
            loop.call_soon_threadsafe(answered, then, asked, answer, error)

        self._worker.put(work)

    def _answered(self, then: Callable[..., None], asked: float, answer: object, error: Exception | None) -> None:
        self._waits = False
        self._look()  # first: a silence that an answer ends is reported all the same, with its end
        if self._ended:
            return
        if error is not None:
            self._on_error(error)
        else:
            if self._away is not None:
                self._away = None
                self._log.info("store.answers")
            then(answer, asked)
        self._look()

    def _on_error(self, error: Exception) -> None:
        if self.lease.state == FOLLOWING and not isinstance(error, AwayError):
            self._end(error if isinstance(error, StoreError) else StoreError(f"the lease: {error!r}"))
        elif self._away is None:
            self._away = str(error)
            self._log.warning("store.away", reason=self._away, role=self.role)

    def _saw(self, sight: Sight, asked: float) -> None:
        lease, before = self.lease, self.lease.seen
        self._measured(sight.offset)
        if lease.state != FOLLOWING:
            if sight.token != lease.token:
                lease.refused()
            self._counted(sight.followers)
            return
        self._report_lost(lease.saw(sight, asked, self._now()))
        if before is None or before.token != sight.token:
            self._report_owner(sight)
        if self._is_void(sight):
            self._slot.leave(self)
        if lease.may_take and self._slot.occupy(self):
            self._take()
            return
        self._candidate.follow()
        self._report_vacancy()
        may_ask = bool(sight.token) and not sight.released and not lease.clock_is_apart
        if self._asks and may_ask and self._candidate.is_warm:
            self._call(lambda: self._leases.ask(sight, lease.token), self._heard)
        else:
            self._probe.look(sight, asked)

    def _heard(self, in_time: bool, asked: float) -> None:
        """The owner was asked; or it was another one by then, which the next look shows."""
        self._asks = not in_time
        owner = self.owner
        if in_time and owner is not None:
            self._log.info("store.asked", owner=owner.name, note="the owner hands the shard over to this broker")

    def _died(self) -> None:
        """The owner's address refuses connections, as its process has ended."""
        self.lease.died()
        # A look that is under way takes it otherwise.
        if self.lease.may_take and not self._waits and self._slot.occupy(self):
            self._take()

    def _take(self) -> None:
        seen, token, owner = self.lease.seen, self.lease.token, self._owner
        assert seen is not None
        self._attempted = seen
        self._call(lambda: self._leases.take(seen, token, owner), self._took)

    def _took(self, won: bool, asked: float) -> None:
        lease = self.lease
        if not won or lease.seen is None:  # another one was faster, or the owner lives
            self._slot.leave(self)
            self._call(self._leases.look, self._saw_after)
            return
        lease.taken(asked)
        # The row is this process's already if the answer to an earlier attempt was lost.
        self._epoch = lease.seen.epoch + (lease.seen.token != lease.token)
        before = lease.seen.owner
        is_orderly = before is None or lease.seen.released
        (self._log.info if is_orderly else self._log.warning)(
            "store.taken",
            epoch=self._epoch,
            before=None if before is None else before.name,
            released=lease.seen.released,
            still_seconds=round(lease.still, 3),
        )
        self._candidate.taken()

    def _saw_after(self, sight: Sight, asked: float) -> None:
        """The row was refused: go on, with another shard maybe, once it is another's. Without a change the next tick
        tries again."""
        if self._is_void(sight):
            self._saw(sight, asked)

    def _is_void(self, sight: Sight) -> bool:
        """The row has changed since this process tried to take it: that attempt cannot succeed any more, or has."""
        tried = self._attempted
        if tried is None or sight.token == self.lease.token:
            return False
        return (sight.token, sight.beat, sight.released) != (tried.token, tried.beat, tried.released)

    def _beaten(self, heir: str | None, asked: float) -> None:
        ours = heir is not None
        took = self._now() - asked
        self.latency.observe(took)
        if ours:
            self.lease.answered(asked)
        else:
            self.lease.refused()
        if heir:
            self._hearer.asked()
        terms = self.lease.terms
        if took >= max(terms.beat, (terms.lease - terms.margin) / 4) and asked >= self._warned + WARN_SECONDS:
            self._warned = asked
            self._log.warning(
                "store.slow", seconds=round(took, 3), note="the owner of a shard is silent after longer waits"
            )
        if ours and asked >= self._looked + MEASURE_SECONDS:
            self._looked = asked
            self._call(self._leases.look, self._saw)

    # -- what follows -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Follow the time, and report a state that is another one than before."""
        if self._ended:
            return
        before, self._state = self._state, self.lease.look(self._now())
        if self._state == before:
            return
        if self._state == GONE:
            self._end(self._why_gone(before))
        elif self._state == SILENT:
            self._silent_since = self._now()
            self.silences += 1
            reason = self._away or "the store has not answered in time"
            self._log.warning("store.silent", reason=reason, note="another broker may own the shard: nothing is sent")
            self._hearer.silence(reason)
        elif self._state == OWNING and before == SILENT:
            self._log.info("store.speaks", silent_seconds=round(self._now() - self._silent_since, 3))
            self._hearer.silence(None)

    def _why_gone(self, before: int) -> StoreError:
        silent = self._now() - self._silent_since
        if before == SILENT and self._away is not None and silent >= self.lease.terms.patience:
            return TakenOverError(f"the store was away for {silent:.0f} seconds (store_patience): {self._away}")
        return TakenOverError("another broker has taken the shard over")

    def _end(self, error: StoreError) -> None:
        follows = self.lease.state == FOLLOWING
        self.lease.end()
        self._stop()
        self._look_back()
        if follows:
            self._slot.leave(self)
            self._candidate.failed(error)
        else:
            self._hearer.gone(error)

    def _look_back(self) -> None:
        """Another process owns the row, maybe. Log if the takeover by this one is not there any more: the replica that
        was promoted lacks it. Then the former owner goes on, and misses no writes."""
        epoch, writes, token = self._epoch, self._hearer.writes, self.lease.token
        self._epoch = 0
        if not epoch:
            return

        def look() -> None:
            try:
                seen = self._leases.look()
            except Exception:
                return  # the store is away: nothing is known of its writes
            if seen.token != token and seen.epoch <= epoch:
                reason = "a replica was promoted that lacks the takeover by this broker"
                self._log.error("store.lost_writes", writes=writes, reason=reason, note="this broker ends")

        self._worker.put(look)

    def _stop(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    # -- the log ----------------------------------------------------------------------------------------------------

    def _report_owner(self, sight: Sight) -> None:
        owner = sight.owner
        if owner is None or sight.released or sight.token == self.lease.token:
            return
        self._log.info("store.follows", owner=owner.name, url=owner.url, epoch=sight.epoch)
        if names := self.differing:
            self._log.warning(
                "store.settings_differ",
                owner=owner.name,
                settings=",".join(names),
                note="after a takeover other rules hold",
            )

    def _report_lost(self, lost: int) -> None:
        if lost:
            self.lost_writes += lost
            self._log.error(
                "store.lost_writes", writes=lost, note="a replica of the database without them was promoted"
            )

    def _report_vacancy(self) -> None:
        """Log once that the shard has no living owner, and that this process may not take it."""
        lease = self.lease
        if self._begins("no owner", lease.still >= lease.terms.lease):
            self._log.error("store.no_owner", still_seconds=round(lease.still, 3))

    def _measured(self, offset: float) -> None:
        """The clock was compared with the database's; log once that it is wrong."""
        self.offset = offset
        if self._begins("clock", abs(offset) > CLOCK_APART):
            self._log.error("clock.apart", seconds=round(offset, 3), note=f"set the clock: {self._because_apart}")

    def _counted(self, followers: int | None) -> None:
        """So many brokers would take the shard over; log the first one, and that the last one has gone."""
        if followers:
            self._unfollowed = 0
            if self._begins("followed", True):
                self._log.info("store.has_follower", note="another broker would take the shard over")
        elif followers == 0 and "followed" in self._told:
            self._unfollowed += 1
        if self._begins("no follower", self._unfollowed >= UNFOLLOWED_LOOKS):
            self._log.warning("store.no_follower", note="no broker would take the shard over")

    def _begins(self, what: str, is_so: bool) -> bool:
        """True if something is so, and was not before."""
        begins = is_so and what not in self._told
        (self._told.add if is_so else self._told.discard)(what)
        return begins
