"""A store that a follower can follow, in memory; and a broker as a whole, to compare two of them."""

from __future__ import annotations

import types
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any

from sievemq_broker.domain.admission import UNLIMITED
from sievemq_broker.domain.journal import BATCH_BYTES, Key, Write
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.store import batches
from sievemq_broker.store.batches import Batches, Change
from sievemq_broker.store.follower import Follower, Seal

from .support import DictStore


class Tables:
    """The rows of batches and of their states, as a database has them."""

    def __init__(self) -> None:
        self.data: dict[int, bytes] = {}
        self.changed: dict[int, bytes] = {}
        self.writes = 0

    def copy(self) -> Tables:
        other = Tables()
        other.data, other.changed, other.writes = dict(self.data), dict(self.changed), self.writes
        return other

    def apply(self, change: Change) -> None:
        for batch_id in (*change.gone, *change.plain):
            self.changed.pop(batch_id, None)
        for batch_id in change.gone:
            self.data.pop(batch_id, None)
        self.changed.update(change.states)
        self.data.update(change.batches)
        self.data.update(change.rewritten)

    # -- as batches.py reads them -----------------------------------------------------------------------------------

    def batches(self) -> Iterator[tuple[int, bytes | SavedBatch, bytes | None]]:
        for batch_id in sorted(self.data):
            yield batch_id, self.data[batch_id], self.changed.get(batch_id)

    def orphan(self) -> int | None:
        return next((batch_id for batch_id in self.changed if batch_id not in self.data), None)

    def batch(self, batch_id: int) -> bytes | None:
        return self.data.get(batch_id)

    def state(self, batch_id: int) -> bytes | None:
        return self.changed.get(batch_id)

    # -- as a follower reads them -----------------------------------------------------------------------------------

    def last_write(self) -> int:
        return self.writes

    def listed(self, after: int, count: int) -> list[tuple[int, int]]:
        ids = sorted(batch_id for batch_id in self.data if batch_id > after)[:count]
        return [(batch_id, len(self.data[batch_id])) for batch_id in ids]

    def rows(self, ids: Sequence[int]) -> Iterator[tuple[int, Seal, bytes]]:
        for batch_id in sorted(ids):
            if batch_id in self.data:
                yield batch_id, seal_of(self.data[batch_id]), self.data[batch_id]

    def close(self) -> None:
        pass


class SharedTables:
    """The same, for a follower in another thread than their writer's.

    Args:
        lock: that the writer holds.
        check: raises if they are away.
    """

    def __init__(self, tables: Tables, lock: AbstractContextManager[Any], check: Callable[[], None]) -> None:
        self._tables, self._lock, self._check = tables, lock, check

    def last_write(self) -> int:
        self._check()
        return self._tables.last_write()

    def listed(self, after: int, count: int) -> list[tuple[int, int]]:
        self._check()
        with self._lock:
            return self._tables.listed(after, count)

    def rows(self, ids: Sequence[int]) -> Iterator[tuple[int, Seal, bytes]]:
        self._check()
        with self._lock:
            return iter(list(self._tables.rows(ids)))

    def close(self) -> None:
        pass


def seal_of(row: bytes) -> Seal:
    return Seal(len(row), row[:4])


class FollowedTables(Tables):
    """The same, read by a broker that has followed them.

    Args:
        tables: as they are at the takeover.
    """

    def __init__(self, tables: Tables, follower: Follower) -> None:
        super().__init__()
        self.data, self.changed = dict(tables.data), dict(tables.changed)
        self._follower = follower

    def batches(self) -> Iterator[tuple[int, bytes | SavedBatch, bytes | None]]:
        for batch_id, row, state in super().batches():
            assert isinstance(row, bytes)
            yield batch_id, self._follower.take(batch_id, seal_of(row)) or row, state


class TableStore(DictStore):
    """The obvious store, with the rows that a real one has."""

    def __init__(self, batch_bytes: int = BATCH_BYTES) -> None:
        super().__init__(batch_bytes)
        self.tables = Tables()
        self._batches = Batches(self.tables)

    def copy(self) -> TableStore:
        other = TableStore(self.batch_bytes)
        other.next_write, other.next_batch = self.next_write, self.next_batch
        other.messages, other.ahead, other.defined = dict(self.messages), dict(self.ahead), dict(self.defined)
        other.tables = self.tables.copy()
        other._batches = Batches(other.tables)
        return other

    def write(self, write: Write, now: int) -> None:
        if not write or write.number < self.next_write:
            return
        super().write(write, now)
        self.tables.apply(self._batches.change(write, now))
        self.tables.apply(self._batches.rewrite(UNLIMITED))
        self.tables.writes = write.number


class Reading:
    """What a broker restores.

    Args:
        store: as it is at the takeover.
        follower: of it until then; None for none.
    """

    def __init__(self, store: TableStore, follower: Follower | None = None) -> None:
        self._store = store
        self.tables = store.tables if follower is None else FollowedTables(store.tables, follower)
        self.next_write, self.next_batch, self.batch_bytes = store.next_write, store.next_batch, store.batch_bytes

    def definitions(self, kind: str) -> Mapping[Key, tuple[Any, ...]]:
        return self._store.definitions(kind)

    def batches(self) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        return Batches(self.tables).saved([])


def rewrites_all() -> tuple[Any, str, int]:
    """For monkeypatch: batches are rewritten however small they are."""
    return batches, "_SPARSE_BYTES", 0


def anatomy(thing: Any) -> Any:
    """All that can be reached from an object, as plain values: equal for two that differ in nothing. An object that
    occurs again is its number."""
    numbers: dict[int, int] = {}
    return _anatomy(thing, numbers)


_PLAIN = (int, float, str, bytes, type(None), Enum, type)


def _anatomy(thing: Any, numbers: dict[int, int]) -> Any:
    if isinstance(thing, _PLAIN):
        return thing
    if isinstance(thing, list | tuple | deque | array):
        return [_anatomy(each, numbers) for each in thing]
    if isinstance(thing, dict):
        return [(_anatomy(key, numbers), _anatomy(value, numbers)) for key, value in thing.items()]
    if isinstance(thing, set | frozenset):
        return sorted(repr(_anatomy(each, numbers)) for each in thing)
    if isinstance(thing, types.MethodType):
        return thing.__func__.__qualname__, _anatomy(thing.__self__, numbers)
    if isinstance(thing, Callable | types.ModuleType):  # type: ignore[arg-type]
        return getattr(thing, "__qualname__", type(thing).__name__)
    if id(thing) in numbers:
        return f"#{numbers[id(thing)]}"
    numbers[id(thing)] = len(numbers)
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    names += getattr(thing, "__dict__", {})
    return type(thing).__name__, [
        (name, _anatomy(getattr(thing, name), numbers)) for name in names if hasattr(thing, name)
    ]


def difference(one: Any, other: Any, path: str = "") -> str | None:
    """Where two anatomies differ first; None if they do not."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            name = left[0] if isinstance(left, tuple) and left and isinstance(left[0], str) else number
            if (found := difference(left, right, f"{path}.{name}")) is not None:
                return found
        return None
    return None if one == other else f"{path}: {one!r:.300} is not {other!r:.300}"
