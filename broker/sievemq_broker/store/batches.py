"""The rows of batches, and of the outcome of their messages since. One connection and transaction of the caller's.

A batch whose messages are all gone is deleted; one that has lost half of its bytes is rewritten without them. A batch
that is written ahead of its share's end counts as gone until then; one whose share never ended is deleted after a
restart.

The rows of a write are gathered, and many are written by one statement. Each statement releases the interpreter's lock,
and beside a busy loop the writer waits for it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

from sievemq_broker.domain.journal import Batch, Write
from sievemq_broker.domain.store import DamagedError, SavedEntry
from sievemq_broker.store.blob import Outcomes, State, outcomes_of, unpack_batch

#: The most batches whose state is cached. Most messages are acknowledged soon after they were stored.
_STATES: Final = 4_096

#: A smaller row is not rewritten.
_SPARSE_BYTES: Final = 16_384

#: Bytes of rows that one write examines for that.
_REWRITE_BYTES: Final = 4 * 1024 * 1024

#: Rows that one statement writes or deletes; of batches, rows of about so many bytes.
TOGETHER: Final = 100
_TOGETHER_BYTES: Final = 1024 * 1024

_T = TypeVar("_T")


class Batches:
    """Writes batches into the database, and reads their rows."""

    __slots__ = ("_changed", "_execute", "_gone", "_new", "_plain", "_sparse", "_states")

    def __init__(self, database: Any) -> None:
        self._execute = database.execute
        self._states: dict[int, State] = {}
        self._sparse: dict[int, None] = {}
        #: Of the present write: new rows; states to be written; batches that have no state of their own any more, and
        #: those that are gone.
        self._new: dict[int, bytes] = {}
        self._changed: dict[int, State] = {}
        self._plain: dict[int, None] = {}
        self._gone: dict[int, None] = {}

    def forget(self) -> None:
        """A write failed: what is cached of the rows may be wrong."""
        for cached in (self._states, self._sparse, self._new, self._changed, self._plain, self._gone):
            cached.clear()

    def entries(self, left: list[int]) -> Iterator[SavedEntry]:
        """All messages that are not gone, by ascending number.

        Args:
            left: gets the ids of batches without any.

        Raises:
            DamagedError: something is not what was written.
        """
        query = "SELECT batch.id, batch.data, state.data FROM batch LEFT JOIN state USING (id) ORDER BY id"
        for batch_id, data, changed in self._execute(query):
            kept = unpack_batch(batch_id, data)
            state = kept.state() if changed is None else State.unpack(batch_id, changed)
            if not state.live:
                left.append(batch_id)
            yield from kept.entries(state)
        orphan = self._execute("SELECT id FROM state WHERE id NOT IN (SELECT id FROM batch) LIMIT 1").fetchone()
        if orphan is not None:
            raise DamagedError(f"batch {orphan[0]} is missing, although its state exists")

    def write(self, write: Write, now: int, room: Callable[[], int]) -> None:
        """Write the batches, and their outcomes of earlier messages.

        Args:
            write: see :class:`~sievemq_broker.domain.journal.Write`.
            now: ms epoch.
            room: bytes that may be spent on rewriting sparse batches; a larger one waits for more.
        """
        own: dict[int, list[Outcomes]] = {part.id: [] for part in write.parts if part.accepted or part.ahead}
        for part in write.parts:
            if part.held or part.gone or part.states:
                part.sort()
                for batch_id, outcomes in outcomes_of(part):
                    if batch_id in own:
                        own[batch_id].append(outcomes)
                    else:  # first: on a full disk the new messages take the place of those that are gone
                        self._settle(batch_id, outcomes)
        for part in write.parts:
            if part.accepted:
                self._append(part, own[part.id], now)
            elif part.ahead:
                self._show(part, own[part.id])
        for part in write.ahead:
            self._append_hidden(part, now)
        self._flush()
        if self._sparse:
            self._rewrite(room())

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
            self._drop(own)
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
            self._drop(batch_id)
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
        row = self._execute("SELECT data FROM state WHERE id = ?", (batch_id,)).fetchone()
        if row is not None:
            state = State.unpack(batch_id, row[0])
        else:
            row = self._execute("SELECT data FROM batch WHERE id = ?", (batch_id,)).fetchone()
            if row is None:
                return None  # all of it was gone before
            state = unpack_batch(batch_id, row[0]).state()
        self._remember(batch_id, state)
        return state

    def _remember(self, batch_id: int, state: State) -> None:
        self._states[batch_id] = state
        if len(self._states) > _STATES:
            # The oldest entry, not the one used longest ago: near enough, and free.
            for old in list(self._states)[: _STATES // 4]:
                if old != batch_id:
                    del self._states[old]

    def _drop(self, batch_id: int) -> None:
        self._gone[batch_id] = None
        self._changed.pop(batch_id, None)
        self._states.pop(batch_id, None)
        self._sparse.pop(batch_id, None)

    def delete(self, batches: Iterable[int]) -> None:
        """Delete the rows of these batches."""
        for ids in _groups(batches):
            self._delete("batch", ids)
            self._delete("state", ids)

    def _flush(self) -> None:
        """Write what was gathered. On a full disk the new messages take the place of those that are gone."""
        self.delete(self._gone)
        for ids in _groups(self._plain):
            self._delete("state", ids)
        for states in _groups(self._changed.items()):
            self._insert("INSERT OR REPLACE INTO state", [(own, state.pack(own)) for own, state in states])
        rows: list[tuple[int, bytes]] = []
        size = 0
        for own, row in self._new.items():
            rows.append((own, row))
            size += len(row)
            if len(rows) == TOGETHER or size >= _TOGETHER_BYTES:
                self._insert("INSERT INTO batch", rows)
                rows, size = [], 0
        if rows:
            self._insert("INSERT INTO batch", rows)
        for gathered in (self._new, self._changed, self._plain, self._gone):
            gathered.clear()

    def _insert(self, into: str, rows: list[tuple[int, bytes]]) -> None:
        places = ", ".join(["(?, ?)"] * len(rows))
        self._execute(f"{into} VALUES {places}", [value for row in rows for value in row])

    def _delete(self, table: str, ids: list[int]) -> None:
        places = ", ".join("?" * len(ids))
        self._execute(f"DELETE FROM {table} WHERE id IN ({places})", ids)  # noqa: S608

    def _rewrite(self, room: int) -> None:
        """Rewrite a few sparse batches without the messages that are gone."""
        budget = _REWRITE_BYTES
        while self._sparse and budget > 0:
            batch_id = next(iter(self._sparse))
            del self._sparse[batch_id]
            state = self._state_of(batch_id)
            if state is None or state.size > room:
                continue  # the next message that goes tries again
            row = self._execute("SELECT data FROM batch WHERE id = ?", (batch_id,)).fetchone()
            if row is None:
                continue
            budget -= len(row[0])
            data = state.without_removed(unpack_batch(batch_id, row[0]))
            self._execute("UPDATE batch SET data = ? WHERE id = ?", (data, batch_id))
            self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (batch_id, state.pack(batch_id)))
            room -= state.size


def _groups(items: Iterable[_T]) -> Iterator[list[_T]]:
    """What one statement takes at a time."""
    rest = iter(items)
    while group := list(islice(rest, TOGETHER)):
        yield group
