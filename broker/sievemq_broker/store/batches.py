"""The rows of batches, and of the outcome of their messages since: what a write changes in them.

A batch whose messages are all gone is deleted; one that has lost half of its bytes is rewritten without them. A batch
that is written ahead of its share's end counts as gone until then; one whose share never ended is deleted after a
restart.

The rows of a write are gathered, so that a database writes many of them by one statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from sievemq_broker.domain.journal import Batch, Write
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.domain.store import DamagedError
from sievemq_broker.store.blob import Outcomes, State, outcomes_of, unpack_batch

#: The most batches whose state is cached. Most messages are acknowledged soon after they were stored.
_CACHED: Final = 4_096

#: A smaller row is not rewritten.
_SPARSE_BYTES: Final = 16_384

#: Bytes of rows that are examined for that at once.
_REWRITE_BYTES: Final = 4 * 1024 * 1024


class Rows(Protocol):
    """The tables of a database, to read."""

    def batches(self) -> Iterable[tuple[int, bytes | SavedBatch, bytes | None]]:
        """Id, row and, if it has one, the state of each batch, by ascending id. The messages instead of the row, if
        they are built."""

    def orphan(self) -> int | None:
        """The id of a state without a batch."""

    def batch(self, batch_id: int) -> bytes | None:
        """The row of a batch."""

    def state(self, batch_id: int) -> bytes | None:
        """The state of a batch that has one of its own."""


class Change(NamedTuple):
    """Rows that are changed together, in this order: on a full disk new messages take the place of those that are gone.

    Attributes:
        gone: ids of batches that are deleted with their states.
        plain: ids of batches whose states are deleted.
        states: id and row of states that are new or replaced.
        batches: id and row of new batches.
        rewritten: id and row of batches that are replaced.
        freed: bytes of rows that are deleted or replaced.
    """

    gone: Sequence[int] = ()
    plain: Sequence[int] = ()
    states: Sequence[tuple[int, bytes]] = ()
    batches: Sequence[tuple[int, bytes]] = ()
    rewritten: Sequence[tuple[int, bytes]] = ()
    freed: int = 0

    def __bool__(self) -> bool:
        return any(self)


class Batches:
    """Knows the state of batches, and what a write changes.

    Args:
        rows: as they are in the database.
    """

    __slots__ = ("_changed", "_gone", "_new", "_plain", "_rows", "_sparse", "_states")

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._states: dict[int, State] = {}
        self._sparse: dict[int, None] = {}
        #: Of the present write: new rows; states to be written; batches that have no state of their own any more, and
        #: those that are gone, with the bytes of their rows.
        self._new: dict[int, bytes] = {}
        self._changed: dict[int, State] = {}
        self._plain: dict[int, None] = {}
        self._gone: dict[int, int] = {}

    def forget(self) -> None:
        """A write failed: what is cached of the rows may be wrong."""
        for cached in (self._states, self._sparse, self._new, self._changed, self._plain, self._gone):
            cached.clear()

    def saved(self, left: list[int]) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        """All batches, by ascending id, and the state of each; None if all messages are new.

        Args:
            left: gets the ids of batches of which all messages are gone.

        Raises:
            DamagedError: something is not what was written.
        """
        for batch_id, row, changed in self._rows.batches():
            batch = row if isinstance(row, SavedBatch) else unpack_batch(batch_id, row).saved()
            if changed is None:
                yield batch, batch.state
                continue
            state = State.unpack(batch_id, changed)
            state.check(batch_id, batch.last_place)
            if not state.live:
                left.append(batch_id)
            yield batch, state
        orphan = self._rows.orphan()
        if orphan is not None:
            raise DamagedError(f"batch {orphan} is missing, although its state exists")

    def change(self, write: Write, now: int) -> Change:
        """What a write changes: its batches, and their outcomes of earlier messages. It counts as written.

        Args:
            write: see :class:`~sievemq_broker.domain.journal.Write`.
            now: ms epoch.
        """
        own: dict[int, list[Outcomes]] = {part.id: [] for part in write.parts if part.accepted or part.ahead}
        for part in write.parts:
            if part.held or part.gone or part.states:
                part.sort()
                for batch_id, outcomes in outcomes_of(part):
                    if batch_id in own:
                        own[batch_id].append(outcomes)
                    else:
                        self._settle(batch_id, outcomes)
        for part in write.parts:
            if part.accepted:
                self._append(part, own[part.id], now)
            elif part.ahead:
                self._show(part, own[part.id])
        for part in write.ahead:
            self._append_hidden(part, now)
        return self._take()

    def _append(self, batch: Batch, outcomes: list[Outcomes], now: int) -> None:
        """Write the batch's own row, with the outcomes of its messages before it was written."""
        own = batch.id
        state = State.new(len(batch.accepted))
        for each in outcomes:
            state.apply(own, each)
        if not state.live:
            return  # arrived and gone between two writes
        self._new[own] = state.pack_batch(own, now, batch.accepted)
        if state.failures or state.attempts:
            self._changed[own] = state
        self._remember(own, state)

    def _append_hidden(self, batch: Batch, now: int) -> None:
        """Write a batch ahead."""
        own = batch.id
        state = State.new(len(batch.accepted))
        self._new[own] = state.pack_batch(own, now, batch.accepted)
        state.hide()
        self._changed[own] = state
        self._remember(own, state)

    def _show(self, batch: Batch, outcomes: list[Outcomes]) -> None:
        """The messages of a batch that was written ahead are there from now on, with the outcomes they have had
        since."""
        own = batch.id
        state = self._state_of(own)
        if state is None:
            raise DamagedError(f"batch {own} is missing, although it was written")
        state.show()
        for each in outcomes:
            state.apply(own, each)
        if not state.live:
            self._drop(own, state)
        elif any(state.states):
            self._changed[own] = state
        else:
            self._plain[own] = None

    def _settle(self, batch_id: int, outcomes: Outcomes) -> None:
        """Write the outcomes of messages of an earlier batch."""
        state = self._state_of(batch_id)
        if state is None:
            return  # all of it was gone before
        state.apply(batch_id, outcomes)
        if not state.live:
            self._drop(batch_id, state)
            return
        self._changed[batch_id] = state
        if state.size >= _SPARSE_BYTES and state.live * 2 < state.kept:
            self._sparse[batch_id] = None

    def _state_of(self, batch_id: int) -> State | None:
        state = self._states.get(batch_id) or self._changed.get(batch_id)
        if state is not None:
            return state
        if batch_id in self._gone:
            return None
        row = self._rows.state(batch_id)
        if row is not None:
            state = State.unpack(batch_id, row)
        else:
            row = self._rows.batch(batch_id)
            if row is None:
                return None  # all of it was gone before
            state = unpack_batch(batch_id, row).state()
        self._remember(batch_id, state)
        return state

    def _remember(self, batch_id: int, state: State) -> None:
        self._states[batch_id] = state
        if len(self._states) > _CACHED:
            # The oldest entry, not the one used longest ago: near enough, and free.
            for old in list(self._states)[: _CACHED // 4]:
                if old != batch_id:
                    del self._states[old]

    def _drop(self, batch_id: int, state: State) -> None:
        self._gone[batch_id] = state.size
        self._changed.pop(batch_id, None)
        self._states.pop(batch_id, None)
        self._sparse.pop(batch_id, None)

    def _take(self) -> Change:
        """What was gathered."""
        states = [(own, state.pack(own)) for own, state in self._changed.items()]
        freed = sum(self._gone.values())
        change = Change([*self._gone], [*self._plain], states, [*self._new.items()], freed=freed)
        for gathered in (self._new, self._changed, self._plain, self._gone):
            gathered.clear()
        return change

    @property
    def sparse(self) -> bool:
        """There are batches that could be rewritten."""
        return bool(self._sparse)

    def rewrite(self, room: int) -> Change:
        """A few sparse batches without the messages that are gone. They count as rewritten.

        Args:
            room: bytes that they may take; a larger one waits for more.
        """
        states: list[tuple[int, bytes]] = []
        rewritten: list[tuple[int, bytes]] = []
        budget = _REWRITE_BYTES
        while self._sparse and budget > 0:
            batch_id = next(iter(self._sparse))
            del self._sparse[batch_id]
            state = self._state_of(batch_id)
            if state is None or state.size > room:
                continue  # the next message that goes tries again
            row = self._rows.batch(batch_id)
            if row is None:
                continue
            budget -= len(row)
            rewritten.append((batch_id, state.without_removed(unpack_batch(batch_id, row))))
            states.append((batch_id, state.pack(batch_id)))
            room -= state.size
        return Change(states=states, rewritten=rewritten, freed=_REWRITE_BYTES - budget)
