"""The lease on a shard: which process owns it, the port behind which its row is kept, and a state machine without I/O.

    FOLLOWING ─► TAKING ─► OWNING ◄──► SILENT        any but FOLLOWING ─► GONE

    FOLLOWING  looks at the row, and may take it once its owner has released it, or is silent for the whole lease. It
               may ask the owner for the shard; the others leave it to the one that has asked, for two beats
    TAKING     the row is this process's; the shard is restored from the store
    OWNING     the last beat was answered within the lease: this process serves, and its output leaves
    SILENT     no beat was answered for so long that another may own the shard: nothing is read, nothing leaves
    GONE       another owns it, it was released, or the store was away for too long; the process ends

The row holds no time. Its owner raises a counter, the beat; a follower takes the row once it has seen the same beat for
the whole lease. Each process uses its own clock alone, so it does not matter how clocks are set. An owner counts from
before it sent the last beat that was answered, a follower from after it saw the beat; so the owner is silent before.

A follower begins to count anew with each connection to the database, since another one may lead to a promoted replica
that lacks the last beats; and after a time without answers, when the owner may have had none either.

Times are seconds of one clock that runs while the machine is suspended (:func:`now`).
"""

from __future__ import annotations

import sys
import time
from typing import Final, NamedTuple, Protocol

FOLLOWING: Final = 0
TAKING: Final = 1
OWNING: Final = 2
SILENT: Final = 3
GONE: Final = 4

#: The states by name.
STATES: Final = ("FOLLOWING", "TAKING", "OWNING", "SILENT", "GONE")

AT_TAKE: Final = (TAKING, TAKING, OWNING, SILENT, GONE)
AT_RESTORE: Final = (FOLLOWING, OWNING, OWNING, SILENT, GONE)
AT_LAPSE: Final = (FOLLOWING, TAKING, SILENT, SILENT, GONE)
AT_RENEWAL: Final = (FOLLOWING, TAKING, OWNING, OWNING, GONE)
AT_END: Final = (GONE, GONE, GONE, GONE, GONE)

#: By event, the state that follows each.
EVENTS: Final = {
    "take": AT_TAKE,
    "restore": AT_RESTORE,
    "lapse": AT_LAPSE,
    "renewal": AT_RENEWAL,
    "end": AT_END,
}

#: Seconds by which a machine's clock may differ from the database's: expiry and delivery times are absolute, and the
#: next owner's clock decides.
CLOCK_APART: Final = 1.0


def now() -> float:
    """Seconds of a clock that cannot be set. It runs while the machine is suspended, where there is such a clock."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    elif sys.platform != "win32":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    else:
        return time.monotonic()


class Terms(NamedTuple):
    """How long the parts of a lease are, in seconds. All processes of a shard use the same.

    Attributes:
        beat: between two beats, or two looks.
        lease: for which a beat is good.
        margin: before the end of the lease, in which an owner is silent already.
        patience: for which an owner stays silent before it gives up.
    """

    beat: float = 0.5
    lease: float = 5.0
    margin: float = 1.0
    patience: float = 300.0


class Owner(NamedTuple):
    """What an owner writes about itself.

    Attributes:
        name: for people: host and process.
        url: for clients, as advertised.
        address: host:port whose kernel refuses connections once the process is gone; it is served in each state. "" if
            there is none.
        settings: of its domain, in a canonical form: a follower compares its own.
        http_url: of its management port, for people and commands; "" if that is not known.
        ports: that one protocol has for itself, by protocol, as JSON; "" for none.
    """

    name: str
    url: str
    address: str
    settings: str
    http_url: str = ""
    ports: str = ""


class Sight(NamedTuple):
    """What one look at the row has shown.

    Attributes:
        token: of the last owner, random; "" if there was none yet.
        beat: grows while the owner lives.
        released: the owner has given the shard up.
        epoch: number of owners so far, for people.
        owner: what it wrote about itself; None if there was none yet.
        writes: number of the last write.
        view: number of the database connection that showed it.
        offset: seconds by which this machine's clock is ahead of the database's.
        heir: token of the follower that has asked for the shard, and takes it first once it is released; "" if there
            is none.
        followers: processes that follow the shard now; None where that is not known.
    """

    token: str
    beat: int
    released: bool
    epoch: int
    owner: Owner | None
    writes: int
    view: int
    offset: float
    heir: str = ""
    followers: int | None = None


class ShardSight(NamedTuple):
    """What one look at all rows has shown of a shard.

    Attributes:
        shard: its name.
        owner: what its owner wrote about itself; None if there is none now, as far as one look can tell.
        epoch: number of owners so far, for people.
        followers: processes that follow the shard now; None where that is not known.
    """

    shard: str
    owner: Owner | None
    epoch: int
    followers: int | None


class Leases(Protocol):
    """The row, in a store that processes share. Called in one thread at a time; no call takes longer than its
    time-outs, which are shorter than the lease. Each raises StoreError if the store does not answer; then it may have
    been carried out or not."""

    def look(self) -> Sight:
        """Read the row."""

    def take(self, seen: Sight, token: str, owner: Owner) -> bool:
        """Become the owner, if the row is as it was seen, over the connection that showed it. Writes under earlier
        tokens fail from then on; one that is under way is ended.

        Args:
            seen: the last look.
            token: the new owner's; random, never used by another process.
            owner: what is written about it.

        Returns:
            False: the row is not as it was seen, or the connection is another one. Nothing was done.
        """

    def ask(self, seen: Sight, token: str) -> bool:
        """Ask the owner to hand the shard over.

        Args:
            seen: the last look.
            token: of the follower that asks.

        Returns:
            False: another owner has it by now, or it was released. Nothing was done.
        """

    def beat(self, token: str) -> str | None:
        """Raise the beat.

        Returns:
            The token of the follower that has asked for the shard; "" if none has. None: another token owns the row.
        """

    def release(self, token: str) -> None:
        """Give the shard up, unless another token owns it by now: a follower may take it at once."""

    def close(self) -> None:
        """Close the connection."""


class Lease:
    """What one process knows of the lease, and what follows from it. It does no I/O, and reads no clock.

    Its verbs are called by one thread at a time; :meth:`speaks`, by any thread at any time.

    Args:
        terms: of the lease.
        token: of this process, should it become the owner: random. A process becomes the owner once at most.

    Attributes:
        state: a number of :data:`STATES`.
        seen: the last look; None before the first.
        until: time at which this process falls silent unless a beat is answered before.
    """

    __slots__ = ("_fell_silent", "_is_dead", "_lost", "_since", "_still", "seen", "state", "terms", "token", "until")

    def __init__(self, terms: Terms, token: str) -> None:
        self.terms = terms
        self.token = token
        self.state: int = FOLLOWING
        self.seen: Sight | None = None
        self.until = 0.0
        #: Since when the row was seen as it is, and for how long it had been when it was looked at last.
        self._since = self._still = 0.0
        self._is_dead = False
        self._lost = False
        self._fell_silent = 0.0

    # -- a follower -----------------------------------------------------------------------------------------------

    def saw(self, sight: Sight, asked: float, now: float) -> int:
        """A look was answered.

        Args:
            sight: what it has shown.
            asked: when it was begun.
            now: when it was answered.

        Returns:
            How many writes that were seen before are gone: a replica without them was promoted.
        """
        before, self.seen = self.seen, sight
        lost = 0
        if before is not None:
            lost = max(before.writes - sight.writes, 0)
            self._lost = self._lost or lost > 0 or sight.epoch < before.epoch
        gap = asked - self._since - self._still
        same = before is not None and _what_counts(before) == _what_counts(sight) and gap <= self.terms.lease / 2
        if same:
            self._still = asked - self._since
        else:
            self._since, self._still = now, 0.0
            self._is_dead = False
        return lost

    @property
    def still(self) -> float:
        """Seconds for which the row has been seen as it is."""
        return self._still

    @property
    def suspects(self) -> bool:
        """The owner has missed two beats. If its address refuses a connection now, call :meth:`died`."""
        seen = self.seen
        if self.state != FOLLOWING or seen is None or seen.owner is None or not seen.owner.address:
            return False
        return self._still >= 2 * self.terms.beat

    def died(self) -> None:
        """The owner's address, which had accepted one before, refused a connection after :attr:`suspects`: its machine
        says that the process is gone. Holds until the row changes."""
        self._is_dead = self.suspects

    @property
    def clock_is_apart(self) -> bool:
        """This machine's clock differs too much from the database's: this process takes nothing."""
        return self.seen is not None and abs(self.seen.offset) > CLOCK_APART

    @property
    def may_take(self) -> bool:
        """This process may try to take the row, as it was seen."""
        seen = self.seen
        if self.state != FOLLOWING or seen is None or self.clock_is_apart:
            return False
        if not seen.token or seen.token == self.token:  # the answer to its own attempt was lost
            return True
        # After a promotion that lost writes the release may be that of an owner before the last one.
        if seen.released and not self._lost and (seen.heir in ("", self.token) or self._still >= 2 * self.terms.beat):
            return True
        return self._is_dead or self._still >= self.terms.lease

    def taken(self, asked: float) -> None:
        """An attempt has succeeded.

        Args:
            asked: when it was begun.
        """
        self.state = AT_TAKE[self.state]
        self.answered(asked)

    # -- an owner -------------------------------------------------------------------------------------------------

    def restored(self, now: float) -> None:
        """The shard is restored from the store, and can be served."""
        self.state = AT_RESTORE[self.state]
        self.look(now)

    def answered(self, asked: float) -> None:
        """A beat was answered: this process owns the row.

        Args:
            asked: when the beat was begun.
        """
        self.until = max(self.until, asked + self.terms.lease - self.terms.margin)

    def refused(self) -> None:
        """Another owns the row: a beat or a write was refused."""
        self.state = AT_END[self.state]

    def end(self) -> None:
        """This process gives up: it has released the row, or cannot use the store."""
        self.state = AT_END[self.state]

    def speaks(self, now: float) -> bool:
        """Whether output may leave."""
        return now < self.until and self.state == OWNING

    def look(self, now: float) -> int:
        """Follow the time. Returns the state."""
        before = self.state
        if now < self.until:
            self.state = AT_RENEWAL[before]
        else:
            self.state = AT_LAPSE[before]
            if self.state == SILENT:
                if before != SILENT:
                    self._fell_silent = now
                elif now >= self._fell_silent + self.terms.patience:
                    self.state = AT_END[before]
        return self.state


def _what_counts(sight: Sight) -> tuple[object, ...]:
    return sight.token, sight.beat, sight.released, sight.view
