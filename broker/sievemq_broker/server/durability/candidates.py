"""The shards that a process follows until it owns one of them: the first whose lease it can take.

    read the lease of the first shard ─► it is free: take the shard, drop the others
                                      └─► it has an owner: follow the shard, read the lease of the next one

Once all leases were read, the process follows all shards, and takes the first one that becomes free. A process uses one
core, so it owns one shard at most, and follows none beside it. A slot (slot.py) ensures that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from sievemq_broker import logs
from sievemq_broker.domain.store import AbandonedError, StoreError
from sievemq_broker.server.durability.durable import Source
from sievemq_broker.server.durability.following import Following
from sievemq_broker.server.durability.keeper import Keeper
from sievemq_broker.server.durability.slot import Slot
from sievemq_broker.store.follower import Follower

log = logs.get("store")


class Choice(Protocol):
    """What a candidate needs of all of them."""

    def build(self, candidate: Candidate) -> Following:
        """Begin to build its messages."""

    def seen(self, candidate: Candidate) -> None:
        """Its lease was read; another process has it."""

    def took(self, candidate: Candidate) -> None:
        """This process owns it."""

    def failed(self, candidate: Candidate) -> None:
        """It cannot be followed."""


class Candidate:
    """A shard that this process follows, and may take. Its keeper reports to it.

    Args:
        name: of the shard.
        source: where its messages are stored.
        choice: hears what becomes of it.

    Attributes:
        name: as above.
        source: as above.
        keeper: keeps the lease; None before it is followed, and once it is not any more.
        following: builds its messages while another process owns it; None otherwise.
        failure: why it cannot be followed; None if it can.
    """

    def __init__(self, name: str, source: Source, choice: Choice) -> None:
        self.name = name
        self.source = source
        self.keeper: Keeper | None = None
        self.following: Following | None = None
        self.failure: StoreError | None = None
        self._choice = choice
        self._asks = False

    def start(self, keep: Callable[[Candidate], Keeper]) -> None:
        """Follow the shard.

        Args:
            keep: makes its keeper.
        """
        self.keeper = keep(self)
        if self._asks:
            self.keeper.ask()
        self.keeper.start()

    def ask(self) -> None:
        """Ask the owner to hand the shard over, once it is followed."""
        self._asks = True
        if self.keeper is not None:
            self.keeper.ask()

    def drop(self) -> asyncio.Future[None] | None:
        """Follow it no more.

        Returns:
            Completed when the lease is closed; None if it is.
        """
        keeper, self.keeper = self.keeper, None
        following, self.following = self.following, None
        if following is not None:
            following.drop()
        return None if keeper is None else keeper.close()

    @property
    def warnings(self) -> list[str]:
        """What an operator should mend, one line each."""
        if self.failure is not None:
            return [f"it is not followed: {self.failure}"]
        return [] if self.keeper is None else self.keeper.warnings

    # -- what the keeper reports ------------------------------------------------------------------------------------

    @property
    def is_warm(self) -> bool:
        """What may be built ahead is built, or nothing is."""
        return self.following is None or self.following.follower.caught_up

    def follow(self) -> None:
        """Another process owns it, or has owned it."""
        if self.keeper is not None and self.following is None:
            self.following = self._choice.build(self)
            self._choice.seen(self)

    def taken(self) -> None:
        """This process owns it."""
        self._choice.took(self)

    def failed(self, error: StoreError) -> None:
        """It cannot be followed."""
        self.failure = error
        self._choice.failed(self)


class Candidates:
    """The shards that a process follows, until it owns one of them.

    Args:
        sources: where the messages of each shard are stored, by its name. Leases are read in this order.
        limit: bytes that the messages of all followers may take; 0 for no limit.
        following: makes what builds the messages of a shard.

    Attributes:
        followed: the shards by name; empty once this process owns one.
        follows: set once all leases were read, and no shard was taken.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        limit: int,
        following: Callable[[Follower, str, int], Following] = Following,
    ) -> None:
        self.followed = {name: Candidate(name, source, self) for name, source in sources.items()}
        self.follows = asyncio.Event()
        self._limit = limit
        self._following = following
        self._slot = Slot()
        self._waiting = list(self.followed.values())
        self._keep: Callable[[Candidate, Slot], Keeper] | None = None
        self._when_taken: Callable[[Candidate], None] = lambda candidate: None
        self._when_failed: Callable[[StoreError], None] = lambda error: None
        self._is_wanted = True
        #: Completed when the leases of shards that were dropped are closed.
        self._closing: list[asyncio.Future[None]] = []
        self._abandon: Callable[[], object] = lambda: None

    async def take(self, keep: Callable[[Candidate, Slot], Keeper]) -> Candidate:
        """Follow the shards until this process owns one of them.

        Args:
            keep: makes the keeper of a shard, which uses this slot.

        Raises:
            AbandonedError: :meth:`give_up` was called.
            StoreError: none of them can be followed.
        """
        loop = asyncio.get_running_loop()
        taken: asyncio.Future[Candidate] = loop.create_future()

        def end(candidate: Candidate | None, error: StoreError | None) -> None:
            if taken.done():
                return
            if candidate is not None:
                taken.set_result(candidate)
            else:
                taken.set_exception(error or abandoned())

        self._abandon = partial(loop.call_soon_threadsafe, end, None, None)
        if not self._is_wanted:
            raise abandoned()
        self.start(keep, lambda candidate: end(candidate, None), lambda error: end(None, error))
        found = await taken
        self.followed = {}
        return found

    def start(
        self,
        keep: Callable[[Candidate, Slot], Keeper],
        taken: Callable[[Candidate], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Follow the shards, one after the other.

        Args:
            keep: makes the keeper of a shard, which uses this slot.
            taken: called with the shard that this process owns. The others are dropped by then.
            failed: called if none of them can be followed.
        """
        self._keep, self._when_taken, self._when_failed = keep, taken, failed
        self._start_next()

    def give_up(self) -> None:
        """Have :meth:`take` end soon, in any thread. Without effect once it has ended."""
        self._is_wanted = False
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._abandon()

    async def close(self, seconds: float) -> None:
        """Follow them no more.

        Args:
            seconds: that this waits for their leases at most.
        """
        self._waiting.clear()
        for each in self.followed.values():
            self._drop(each)
        if self._closing:
            await asyncio.wait(self._closing, timeout=seconds)

    def ask_for(self, shard: str) -> None:
        """Ask the owner of a shard to hand it over to this process.

        Raises:
            ValueError: it is not followed.
        """
        names = [name for name, each in self.followed.items() if each.failure is None]
        if shard not in names:
            raise ValueError(f"this broker does not follow the shard {shard}: it follows {', '.join(names) or 'none'}")
        self.followed[shard].ask()

    @property
    def warnings(self) -> list[str]:
        """What an operator should mend, one line each, with the shards that it is about unless these are all."""
        found: dict[str, list[str]] = {}
        for name, candidate in self.followed.items():
            for text in candidate.warnings:
                found.setdefault(text, []).append(name)
        every = len(self.followed)
        return [text if len(names) == every else f"shard {', '.join(names)}: {text}" for text, names in found.items()]

    def _drop(self, candidate: Candidate) -> None:
        closed = candidate.drop()
        if closed is not None:
            self._closing.append(closed)

    def _start_next(self) -> None:
        if not self._waiting:
            self.follows.set()
            return
        candidate, keep = self._waiting.pop(0), self._keep
        assert keep is not None
        candidate.start(lambda candidate: keep(candidate, self._slot))

    # -- what candidates report -------------------------------------------------------------------------------------

    def build(self, candidate: Candidate) -> Following:
        """Begin to build the messages of a candidate. Limit and steps are those of all of them."""
        follower = candidate.source.follower(self._limit)
        follower.share(self._bytes)
        following = self._following(follower, candidate.name, len(self.followed))
        following.start()
        return following

    def _bytes(self) -> int:
        every = [each.following for each in tuple(self.followed.values())]
        return sum(following.follower.bytes for following in every if following is not None)

    def seen(self, candidate: Candidate) -> None:
        """The lease of a candidate was read for the first time, and another process has it."""
        self._start_next()

    def took(self, candidate: Candidate) -> None:
        """This process owns a candidate: drop the others."""
        others = [each for each in self.followed.values() if each is not candidate]
        self.followed = {candidate.name: candidate}
        self._waiting.clear()
        for each in others:
            self._drop(each)
        self._when_taken(candidate)

    def failed(self, candidate: Candidate) -> None:
        """A candidate cannot be followed: go on with the others."""
        assert candidate.failure is not None
        self._drop(candidate)
        if all(each.failure is not None for each in self.followed.values()):
            self._when_failed(candidate.failure)
            return
        log.error("store.shard_failed", shard=candidate.name, reason=str(candidate.failure))
        self._start_next()


def abandoned() -> AbandonedError:
    """The process was stopped."""
    return AbandonedError("the broker was stopped before it had restored its store")
