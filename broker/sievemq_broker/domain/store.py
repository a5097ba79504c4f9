"""The port behind which messages are stored, and its errors. The domain and the server know a store by this alone.

    open (raises the epoch) ─► definitions, batches: restore ─► write, write, … ─► close
                                                                │   ▲
                                                   no room ─► relieve, again; any other error ─► reopen, again

The server calls a store from one thread at a time. Only what says so may be called from any thread, at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sievemq_broker.domain.journal import Key, Write
from sievemq_broker.domain.saved import SavedBatch, SavedState


class StoreError(Exception):
    """The store cannot be used; the text names it, what is wrong and what to do."""


class StoreFullError(StoreError):
    """There is no room. Nothing was written; a later retry may succeed."""


class LockedError(StoreError):
    """Another process uses the store."""


class FencedError(StoreError):
    """Another owner has opened the store since: this one must neither write nor trust what it has read."""


class LostWritesError(FencedError):
    """What this owner has written is not there any more: a replica that lacks it was promoted. It must not be trusted.

    Attributes:
        lost: how many writes are gone.
    """

    def __init__(self, text: str, lost: int) -> None:
        super().__init__(text)
        self.lost = lost


class AwayError(StoreError):
    """The store does not answer now, or what became of a call is unknown. A later retry may succeed."""


class AbandonedError(StoreError):
    """The caller gave up before everything was read. The store is as it was."""


class DamagedError(StoreError):
    """The bytes read are not the bytes written.

    Attributes:
        findings: everything that was found wrong, one line each.
    """

    def __init__(self, text: str, findings: list[str] | None = None) -> None:
        super().__init__(text)
        self.findings = findings or [text]


class Saved(Protocol):
    """The contents of a store, for :func:`~sievemq_broker.domain.restore.restore`."""

    @property
    def next_write(self) -> int:
        """The number of the next write."""

    @property
    def next_batch(self) -> int:
        """Above the ids of all batches that were ever begun, as far as a write is known that came after."""

    @property
    def batch_bytes(self) -> int:
        """:attr:`Batch.size` above which no message is added to a batch."""

    def definitions(self, kind: str) -> Mapping[Key, tuple[Any, ...]]:
        """All definitions of a kind.

        Raises:
            DamagedError: one of them is not what was written.
        """

    def batches(self) -> Iterable[tuple[SavedBatch, SavedState | None]]:
        """All messages, by ascending number, and what has become of them since: None if all are new. Their entries may
        be built already; nothing else has them.

        Raises:
            DamagedError: something is not what was written.
        """


class Store(Saved, Protocol):
    """An open store. It has one owner at a time: opening it raises the epoch, and writes of former owners are
    refused."""

    @property
    def epoch(self) -> int:
        """The number of owners so far, this one included."""

    @property
    def time(self) -> int:
        """ms epoch of the last write by another owner's clock; 0 if there was none."""

    @property
    def incarnation(self) -> str:
        """The broker's name, the same as long as the store exists."""

    def write(self, write: Write, now: int) -> None:
        """Write batches, all or nothing. They are on stable storage when this returns. A write that is there already
        is not made again, whether the caller knew of it or not.

        Args:
            write: the next one, or again the last one.
            now: ms epoch.

        Raises:
            StoreFullError: there is no room; nothing was written, and it may be tried again.
            FencedError: another process owns the store now.
            StoreError: it cannot be written.
        """

    def reopen(self) -> None:
        """Begin again with what is there, after an error other than a lack of room. What was written is there, or this
        raises.

        Raises:
            StoreError: the store cannot be used.
        """

    def close(self) -> None:
        """Close it in order, and release it for other owners."""

    def abandon(self) -> None:
        """Release it as it is: it could not be used."""

    # -- room -----------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Bytes of new messages that can be written, with enough left to acknowledge them. In any thread."""

    @property
    def full_below(self) -> int:
        """The :attr:`room` below which the store counts as full. In any thread."""

    @property
    def free(self) -> int:
        """Bytes that are free where the store is. In any thread."""

    @property
    def total(self) -> int:
        """Bytes that there are where the store is, free or not; 0 if that is not known. In any thread."""

    @property
    def reserve(self) -> int:
        """Bytes that are kept for when it is full. In any thread."""

    def size(self) -> int:
        """Bytes that the store takes, without what it keeps in reserve. In any thread."""

    def tidy(self) -> int:
        """Upkeep after a write, and once everything was read: see to it that later writes have as much room as there
        is, and renew what :meth:`relieve` has given up. Messages of earlier owners that were written ahead of an end
        that never came take no room any more.

        Returns:
            The :attr:`room` since.
        """

    def relieve(self) -> None:
        """A write found no room: give up what is kept in reserve for that, if there is anything, so that
        acknowledgements can be written."""


# -- the history ------------------------------------------------------------------------------------------------------


class HistoryLine(NamedTuple):
    """A row of what has happened.

    Attributes:
        id: ascends.
        text: an object of JSON that begins with the id, without a line's end.
    """

    id: int
    text: bytes


class HistoryPart(NamedTuple):
    """Rows of one kind that are to be stored.

    Attributes:
        kind: of the rows, in small letters.
        lines: those that follow the rows stored so far.
        oldest: id of the oldest row that is kept.
        limit: rows that are kept.
    """

    kind: str
    lines: Sequence[HistoryLine]
    oldest: int
    limit: int


class HistoryStore(Protocol):
    """Where the rows of a history are stored, beside the messages and never in their way. One thread calls it."""

    def read(self) -> Mapping[str, Sequence[HistoryLine]]:
        """All rows by kind, oldest first. What is damaged is left out.

        Raises:
            StoreError: they cannot be read.
        """

    def write(self, parts: Sequence[HistoryPart]) -> None:
        """Store rows, and forget those that are not kept any more. A row that is there already is not stored again.

        Raises:
            StoreFullError: there is no room but for messages.
            StoreError: they cannot be written.
        """

    def close(self) -> None:
        """No more calls follow."""
