"""The rows of batches, and of what became of their messages since. One connection and transaction of the caller's.

A batch whose messages are all gone is deleted; one that has lost half of its bytes is written anew without them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

from sievemq_broker.domain.journal import GONE_STATE, HELD_FLAG, PLACE_BITS, Batch, SavedEntry
from sievemq_broker.store.blob import State, pack_batch, unpack_batch
from sievemq_broker.store.errors import DamagedError

__all__ = ["Batches", "ascending"]

#: Batches whose state is kept at hand. What is acknowledged was mostly kept a moment ago.
_STATES: Final = 4_096

#: A row that is smaller is not worth writing anew.
_SPARSE_BYTES: Final = 16_384

#: Bytes of rows that one write goes through for that.
_REWRITE_BYTES: Final = 4 * 1024 * 1024


def ascending(numbers: list[int]) -> list[int]:
    """Each number once, in order; they mostly are."""
    distinct = set(numbers)
    if len(distinct) < len(numbers):
        return sorted(distinct)
    numbers.sort()
    return numbers


def _set(states: array[int], numbers: list[int], first: int, end: int, value: int) -> None:
    """Give messages their state.

    Args:
        states: by place.
        numbers: ascending; those from `first` to before `end` are meant.
        first: number of the message at place 0.
        end: behind the last.
        value: the state.
    """
    low = bisect_left(numbers, first)
    high = bisect_left(numbers, end, low)
    if low == high:
        return
    start = numbers[low] - first
    if numbers[high - 1] - numbers[low] == high - low - 1:  # one after the other
        states[start : start + high - low] = array("H", (value,)) * (high - low)
        return
    for number in numbers[low:high]:
        states[number - first] = value


class Batches:
    """Writes batches into the database, and reads back what is left of them.

    Args:
        database: the connection.
    """

    __slots__ = ("_execute", "_sparse", "_states")

    def __init__(self, database: Any) -> None:
        self._execute = database.execute
        self._states: dict[int, State] = {}
        self._sparse: dict[int, None] = {}

    def forget(self) -> None:
        """A write failed: what memory knew of the rows is not so."""
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
            yield from kept.entries(kept.state() if changed is None else State.unpack(batch_id, changed))
        orphan = self._execute("SELECT id FROM state WHERE id NOT IN (SELECT id FROM batch) LIMIT 1").fetchone()
        if orphan is not None:
            raise DamagedError(f"batch {orphan[0]} is missing, though there is a state of it")

    def write(self, batch: Batch, now: int) -> None:
        """Note what a batch brings, and what it says of messages of earlier ones.

        Args:
            batch: see :class:`~sievemq_broker.domain.journal.Batch`.
            now: ms epoch.
        """
        batch.held = ascending(batch.held)
        batch.gone = ascending(batch.gone)
        if batch.accepted:
            self._append(batch, now)
        if batch.held or batch.gone or batch.states:
            self._settle(batch)
        if self._sparse:
            self._rewrite()

    def _append(self, batch: Batch, now: int) -> None:
        """The batch's own row, with what became of its messages before it was written."""
        own = batch.id
        count = len(batch.accepted)
        states = array("H", bytes(2 * count))
        state = State(count, count, 0, states, {})
        self.apply(batch, own, state)
        if not state.live:
            return  # came and went between two writes
        data = pack_batch(own, now, batch.accepted, states)
        state.size = len(data)
        self._execute("INSERT INTO batch VALUES (?, ?)", (own, data))
        if state.failures:
            self._execute("INSERT INTO state VALUES (?, ?)", (own, state.pack(own)))
        self._remember(own, state)

    def _settle(self, batch: Batch) -> None:
        """What became of messages of earlier batches: mostly a handful of them, and all that follow one another."""
        base = batch.base
        touched = {number >> PLACE_BITS for number in batch.states if number < base}
        for numbers in (batch.held, batch.gone):
            at, end = 0, bisect_left(numbers, base)
            while at < end:
                batch_id = numbers[at] >> PLACE_BITS
                touched.add(batch_id)
                at = bisect_left(numbers, (batch_id + 1) << PLACE_BITS, at, end)
        for batch_id in touched:
            state = self._state_of(batch_id)
            if state is None:
                continue  # all of it was gone before
            self.apply(batch, batch_id, state)
            if not state.live:
                self._drop(batch_id)
                continue
            self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (batch_id, state.pack(batch_id)))
            if state.size >= _SPARSE_BYTES and state.live * 2 < state.kept:
                self._sparse[batch_id] = None

    @staticmethod
    def apply(batch: Batch, batch_id: int, state: State) -> None:
        """Note in the state of one batch what another, or itself, says of its messages.

        Args:
            batch: says it; its numbers ascend.
            batch_id: of the one whose messages are meant.
            state: of that one.
        """
        states = state.states
        first = batch_id << PLACE_BITS
        end = first + len(states)
        _set(states, batch.held, first, end, HELD_FLAG)
        if batch.states:
            failures = batch.failures
            for number, value in batch.states.items():
                if first <= number < end and states[number - first] != GONE_STATE:
                    states[number - first] = value
                    if number in failures:
                        state.failures[number - first] = failures[number]
        _set(states, batch.gone, first, end, GONE_STATE)
        state.live = len(states) - states.count(GONE_STATE)
        if state.failures:
            state.failures = {place: when for place, when in state.failures.items() if states[place] != GONE_STATE}

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
            # Not the oldest use but the oldest entry: near enough, and free.
            for old in list(self._states)[: _STATES // 4]:
                if old != batch_id:
                    del self._states[old]

    def _drop(self, batch_id: int) -> None:
        self._execute("DELETE FROM batch WHERE id = ?", (batch_id,))
        self._execute("DELETE FROM state WHERE id = ?", (batch_id,))
        self._states.pop(batch_id, None)
        self._sparse.pop(batch_id, None)

    def _rewrite(self) -> None:
        """Write sparse batches anew without what is gone, a few at a time."""
        budget = _REWRITE_BYTES
        while self._sparse and budget > 0:
            batch_id = next(iter(self._sparse))
            del self._sparse[batch_id]
            row = self._execute("SELECT data FROM batch WHERE id = ?", (batch_id,)).fetchone()
            state = self._state_of(batch_id)
            if row is None or state is None:
                continue
            budget -= len(row[0])
            data = unpack_batch(batch_id, row[0]).without_gone(state)
            self._execute("UPDATE batch SET data = ? WHERE id = ?", (data, batch_id))
            self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (batch_id, state.pack(batch_id)))
