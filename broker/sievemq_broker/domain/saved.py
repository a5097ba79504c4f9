"""Stored messages on their way back into queues, a batch at a time.

    a batch as stored ─► SavedBatch ─► SavedRun: those of one queue ─► build: a SavedRow ─┐
                                                           state of the batch ─► live ────┴─► Queue (restore.py)

Most of the time goes into building entries, and what is built depends on nothing that changes. So a broker that follows
builds them ahead (store/follower.py). The state says what has become of them since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from sievemq_broker.domain.admission import MESSAGE_BYTES
from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.journal import GONE_STATE, PLACE_BITS, STATE_BITS
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import DELIVERY_TIME, Envelope

#: Messages that are built between two looks at whether they are still wanted.
AT_ONCE: Final = 1_000


class SavedState(Protocol):
    """What has become of the messages of a batch."""

    @property
    def states(self) -> Sequence[int]:
        """By place: count of deliveries, with HELD_FLAG; or GONE_STATE."""

    @property
    def failures(self) -> Mapping[int, int]:
        """By place: ms epoch of the first attempt, of those that have any, if it is known."""

    @property
    def attempts(self) -> Mapping[int, int]:
        """By place: attempts of those that have any."""


class SavedRow:
    """Messages of a queue, built, in order.

    Attributes:
        entries: new ones, or with the state they had.
        by_priority: the same.
        expiring: those that expire.
        size: packed bytes.
        scheduled: one of them may have a delivery time.
        fresh: none was ever delivered.
    """

    __slots__ = ("by_priority", "entries", "expiring", "fresh", "scheduled", "size")

    def __init__(self, entries: list[Entry], *, scheduled: bool, fresh: bool = True) -> None:
        self.entries = entries
        self.scheduled = scheduled
        self.fresh = fresh
        self.size = 0
        self.expiring: list[Entry] = []
        self.by_priority: dict[int, list[Entry]] = {}
        for entry in entries:
            envelope = entry.envelope
            self.size += len(envelope.packed)
            self.by_priority.setdefault(envelope.priority, []).append(entry)
            if envelope.expiration:
                self.expiring.append(entry)
        if len(self.by_priority) == 1:
            self.by_priority = dict.fromkeys(self.by_priority, entries)


class SavedRun:
    """The messages of one batch on one queue, or the copies of one tap, in order.

    Attributes:
        owner: number of the queue or tap.
    """

    __slots__ = ("_base", "_packs", "_places", "_row", "owner")

    def __init__(self, batch_id: int, owner: int, places: Sequence[int], packs: Sequence[bytes]) -> None:
        self.owner = owner
        self._base = batch_id << PLACE_BITS
        self._places = places
        self._packs = packs
        self._row: SavedRow | None = None

    def build(self, check: Callable[[], object]) -> SavedRow:
        """Its messages as new ones, the same each time.

        Args:
            check: called now and then; what it raises ends this.

        Raises:
            ProtocolError: one of them is no message.
        """
        if self._row is None:
            entries: list[Entry] = []
            scheduled = False
            for place, packed in zip(self._places, self._packs, strict=True):
                if not len(entries) % AT_ONCE:
                    check()
                envelope = Envelope.from_packed(packed, compact=False)
                scheduled = scheduled or envelope.fields[DELIVERY_TIME] > 0
                envelope.compact()
                entry = Entry(0, envelope)
                entry.resume(self._base | place, 0, 0, 0)
                entries.append(entry)
            self._row = SavedRow(entries, scheduled=scheduled)
        return self._row

    def states(self, state: SavedState) -> list[int]:
        """The state of each message, with its attempts."""
        values = list(map(state.states.__getitem__, self._places))
        if attempts := state.attempts:
            values = [
                value | attempts.get(place, 0) << STATE_BITS if value != GONE_STATE else value
                for place, value in zip(self._places, values, strict=True)
            ]
        return values

    def failures(self, state: SavedState) -> list[int]:
        """When each message had its first attempt, ms epoch; 0 if it had none, or if that is unknown."""
        return [state.failures.get(place, 0) for place in self._places]

    def kept(self, state: SavedState | None) -> Iterator[tuple[int, bytes]]:
        """Number and packed envelope of each message that is not gone."""
        base = self._base
        for place, packed in zip(self._places, self._packs, strict=True):
            if state is None or state.states[place] != GONE_STATE:
                yield base | place, packed


class SavedBatch:
    """The messages of a batch, sorted by their queues.

    Args:
        batch_id: its number.
        time: ms epoch at which it was stored.
        owners: number of the queue or tap, of each message.
        places: in the batch, ascending.
        packs: packed envelopes.
        state: what had become of them by then; None if all were new.

    Attributes:
        id, time, state: as above.
        runs: the messages of each queue.
        count: messages.
        memory: bytes that they take, about.
        last_place: of the last one.
    """

    __slots__ = ("count", "id", "last_place", "memory", "runs", "state", "time")

    def __init__(
        self,
        batch_id: int,
        time: int,
        owners: Sequence[int],
        places: Sequence[int],
        packs: Sequence[bytes],
        state: SavedState | None = None,
    ) -> None:
        self.id = batch_id
        self.time = time
        self.state = state
        self.count = len(owners)
        self.last_place = places[-1]
        self.memory = sum(map(len, packs)) + MESSAGE_BYTES * self.count
        apart = set(owners)
        if len(apart) == 1:
            self.runs = [SavedRun(batch_id, owners[0], places, packs)]
            return
        sorted_out: dict[int, tuple[list[int], list[bytes]]] = {owner: ([], []) for owner in sorted(apart)}
        for owner, place, packed in zip(owners, places, packs, strict=True):
            own_places, own_packs = sorted_out[owner]
            own_places.append(place)
            own_packs.append(packed)
        self.runs = [SavedRun(batch_id, owner, *parts) for owner, parts in sorted_out.items()]

    def build(self) -> None:
        """Build all entries, but for copies of a tap that are no messages."""
        for run in self.runs:
            with suppress(SieveError):
                run.build(lambda: None)
