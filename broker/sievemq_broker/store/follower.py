"""What a broker that follows has built of a shard's batches, so that a takeover reads and builds little.

    step, every 100 ms: ids above the newest ─► noted ─► a second later: read, built
                        some more of all ids ─► forget what is gone, note what was missed or rewritten
    takeover: ids, seals and states of all batches, as they are then ─► take what is built, read the others

A message that is gone within the second costs nothing. Nothing that is built is trusted: at a takeover a batch counts
if the row has the same seal, whatever has happened to the database meanwhile. Definitions and states are small, and
always read then. So a restore has the same result whether much was built, or nothing.

Each step reads little, in statements of their own: no snapshot is held, and the database is not kept from vacuuming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from sievemq_broker import logs
from sievemq_broker.domain.saved import SavedBatch
from sievemq_broker.store.blob import unpack_batch

#: Seconds after which a batch is built that is still there.
FOLLOW_AFTER: Final = 1.0

#: Ids that are listed at once, and bytes of rows that are read at once, about.
PAGE: Final = 1_024
_READ_BYTES: Final = 1024 * 1024

#: The share of the limit below which building goes on.
RESUME: Final = 0.9

log = logs.get("store")


class Seal(NamedTuple):
    """Differs where the rows of two batches with one id differ.

    Attributes:
        size: bytes of the first piece.
        checksum: of id, header and messages, as the row begins.
    """

    size: int
    checksum: bytes


class Listing(Protocol):
    """The batches of a shard, to look at. Each call is a statement of its own."""

    def last_write(self) -> int:
        """The number of the last write; 0 if there was none."""

    def listed(self, after: int, count: int) -> list[tuple[int, int]]:
        """Id and size of the first piece of batches with higher ids, by ascending id, `count` at most."""

    def rows(self, ids: Sequence[int]) -> Iterator[tuple[int, Seal, bytes]]:
        """These batches, as far as they are there."""

    def close(self) -> None:
        """No call follows."""


class Follower:
    """Follows the batches of a shard. In one thread at a time.

    Args:
        listing: of the shard.
        limit: bytes of messages above which no more is built; 0 for none.
        after: seconds after which a batch is built that is still there.

    Attributes:
        batches: that are built.
        messages: in these.
        bytes: that they take, counted as those of an owner are.
        is_full: no more is built, since they take so much.
        caught_up: all is built that is old enough, or that may be built.
    """

    def __init__(self, listing: Listing, limit: int = 0, after: float = FOLLOW_AFTER) -> None:
        self._listing = listing
        self._limit = limit
        self._after = after
        self._taken: Callable[[], int] = lambda: self.bytes
        self._built: dict[int, tuple[Seal, SavedBatch]] = {}
        #: Size, and when it was noted, by id: not built yet.
        self._noted: dict[int, tuple[int, float]] = {}
        #: The highest id seen; up to where all ids were listed this time, and which ones there were.
        self._newest = self._swept = -1
        self._seen: set[int] = set()
        #: All batches that there were at first are noted. Those are built at once.
        self._has_begun = False
        #: The last write before the present listing of all ids; and of the one before, which is complete.
        self._write, self._known_write = 0, -1
        self.messages = self.bytes = 0
        self.is_full = self.caught_up = False

    @property
    def batches(self) -> int:
        return len(self._built)

    def share(self, taken: Callable[[], int]) -> None:
        """The limit is that of several followers.

        Args:
            taken: bytes that all of them take, in any thread.
        """
        self._taken = taken

    def step(self, now: float) -> bool:
        """Follow for a moment.

        Args:
            now: seconds.

        Returns:
            True if there is more to do at once.

        Raises:
            StoreError: the store does not answer, or is damaged.
        """
        write = self._listing.last_write()
        more = self._note(now)
        self._sweep(write, now)
        more = self._build(now) or more
        self.caught_up = not more
        return more

    def take(self, batch_id: int, seal: Seal) -> SavedBatch | None:
        """Give a batch away, if it was built from the row with this seal."""
        found = self._built.pop(batch_id, None)
        return found[1] if found is not None and found[0] == seal else None

    def close(self) -> None:
        """Follow no more. What is built stays."""
        self._listing.close()

    def give_up(self) -> None:
        """Follow no more, and drop what is built: nobody will take it."""
        self.close()
        while self._built:  # one by one: other threads have their turn
            self._built.popitem()
        self._noted.clear()
        self._seen.clear()
        self.messages = self.bytes = 0
        self.caught_up = False

    def _note(self, now: float) -> bool:
        """Note new batches. True if there may be more."""
        page = self._listing.listed(self._newest, PAGE)
        for batch_id, size in page:
            self._noted[batch_id] = size, now if self._has_begun else now - self._after
            self._newest = batch_id
        more = len(page) == PAGE
        self._has_begun = self._has_begun or not more
        return more

    def _sweep(self, write: int, now: float) -> None:
        """List some more of all ids.

        Args:
            write: the last one.
            now: seconds.
        """
        if self._swept < 0:
            if write == self._known_write:
                return  # nothing has changed since all were listed
            self._write = write
        page = self._listing.listed(self._swept, PAGE)
        for batch_id, size in page:
            self._seen.add(batch_id)
            built = self._built.get(batch_id)
            if built is not None and built[0].size != size:  # rewritten
                self._forget(batch_id)
                built = None
            if built is None:  # it may have been written behind others with higher ids
                self._noted[batch_id] = size, self._noted.get(batch_id, (0, now))[1]
            self._swept = batch_id
        if len(page) < PAGE:
            for batch_id in self._built.keys() - self._seen:
                self._forget(batch_id)
            for batch_id in self._noted.keys() - self._seen:
                del self._noted[batch_id]
            self._seen.clear()
            self._swept, self._known_write = -1, self._write

    def _build(self, now: float) -> bool:
        """Build some batches that are old enough. True if there are more."""
        if self._is_over():
            return False
        ids: list[int] = []
        total = 0
        more = False
        for batch_id, (size, noted) in self._noted.items():
            if noted > now - self._after:
                break
            if total >= _READ_BYTES or len(ids) == PAGE:
                more = True
                break
            ids.append(batch_id)
            total += size
        if not ids:
            return False
        for batch_id, seal, row in self._listing.rows(ids):
            batch = unpack_batch(batch_id, row).saved()
            batch.build()
            self._built[batch_id] = seal, batch
            self.messages += batch.count
            self.bytes += batch.memory
        for batch_id in ids:  # those that were not there are gone
            del self._noted[batch_id]
        return more

    def _forget(self, batch_id: int) -> None:
        _, batch = self._built.pop(batch_id)
        self.messages -= batch.count
        self.bytes -= batch.memory

    def _is_over(self) -> bool:
        taken = self._taken()
        over = taken >= self._limit * (RESUME if self.is_full else 1) and self._limit > 0
        if over and not self.is_full:
            log.warning(
                "store.follower_full",
                bytes=taken,
                limit=self._limit,
                note="the other messages are read at a takeover, which takes longer",
            )
        self.is_full = over
        return over
