"""The rows of batches, and of the outcome of their messages since. One connection and transaction of the caller's.

A batch whose messages are all gone is deleted; one that has lost half of its bytes is rewritten without them. A batch
that is written ahead of its share's end counts as gone until then; a restart deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from sievemq_broker.domain.journal import Batch, Write
from sievemq_broker.domain.store import DamagedError, SavedEntry
from sievemq_broker.store.blob import Outcomes, State, outcomes_of, unpack_batch

#: The most batches whose state is cached. Most messages are acknowledged soon after they were stored.
_STATES: Final = 4_096

#: A smaller row is not rewritten.
_SPARSE_BYTES: Final = 16_384

#: Bytes of rows that one write examines for that.
_REWRITE_BYTES: Final = 4 * 1024 * 1024


class Batches:
    """Writes batches into the database, and reads their rows."""

    __slots__ = ("_execute", "_hidden", "_left", "_sparse", "_states")

    def __init__(self, database: Any) -> None:
        self._execute = database.execute
        self._states: dict[int, State] = {}
        self._sparse: dict[int, None] = {}
        #: Rows that were written ahead: by this owner of the store, and by one that did not come to the share's end.
        self._hidden: set[int] = set()
        self._left: list[int] = []

    def forget(self) -> None:
        """A write failed: what is cached of the rows may be wrong."""
        self._states.clear()
        self._sparse.clear()

    def entries(self) -> Iterator[SavedEntry]:
        """All messages that are not gone, by ascending number.

        Raises:
            DamagedError: something is not what was written.
        """
        query = "SELECT batch.id, batch.data, state.data FROM batch LEFT JOIN state USING (id) ORDER BY id"
        for batch_id, data, changed in self._execute(query):
            kept = unpack_batch(batch_id, data)
            state = kept.state() if changed is None else State.unpack(batch_id, changed)
            if not state.live and batch_id not in self._hidden:
                self._left.append(batch_id)
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
        while self._left:
            self._drop(self._left.pop())
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
        self._execute("INSERT INTO batch VALUES (?, ?)", (own, state.pack_batch(own, now, batch.accepted)))
        if state.failures or state.attempts:
            self._execute("INSERT INTO state VALUES (?, ?)", (own, state.pack(own)))
        self._remember(own, state)

    def _append_hidden(self, batch: Batch, now: int) -> None:
        """Write a batch ahead."""
        own = batch.id
        state = State.new(len(batch.accepted))
        self._execute("INSERT INTO batch VALUES (?, ?)", (own, state.pack_batch(own, now, batch.accepted)))
        state.hide()
        self._execute("INSERT INTO state VALUES (?, ?)", (own, state.pack(own)))
        self._hidden.add(own)
        self._remember(own, state)

    def _show(self, batch: Batch, outcomes: list[Outcomes]) -> None:
        """The messages of a batch that was written ahead are there from now on, with the outcomes they have had
        since."""
        own = batch.id
        state = self._state_of(own)
        if state is None:
            raise DamagedError(f"batch {own} is missing, although it was written")
        self._hidden.discard(own)
        state.show()
        for each in outcomes:
            state.apply(own, each)
        if not state.live:
            self._drop(own)
        elif any(state.states):
            self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (own, state.pack(own)))
        else:
            self._execute("DELETE FROM state WHERE id = ?", (own,))

    def _settle(self, batch_id: int, outcomes: Outcomes) -> None:
        """Write the outcomes of messages of an earlier batch."""
        state = self._state_of(batch_id)
        if state is None:
            return  # all of it was gone before
        state.apply(batch_id, outcomes)
        if not state.live:
            self._drop(batch_id)
            return
        self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (batch_id, state.pack(batch_id)))
        if state.size >= _SPARSE_BYTES and state.live * 2 < state.kept:
            self._sparse[batch_id] = None

    def _state_of(self, batch_id: int) -> State | None:
        state = self._states.get(batch_id)
        if state is not None:
            return state
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
        self._execute("DELETE FROM batch WHERE id = ?", (batch_id,))
        self._execute("DELETE FROM state WHERE id = ?", (batch_id,))
        self._states.pop(batch_id, None)
        self._sparse.pop(batch_id, None)

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
