"""What a store keeps, whatever database it is in."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Protocol

import pytest
from tests.postgres import Database

from sievemq_broker.domain.journal import HELD_FLAG, Batch, Write, state_of
from sievemq_broker.domain.store import FencedError, Store
from sievemq_broker.store import SqliteStore
from sievemq_broker.store.database import DATABASE

from .support import NOW, DictStore, message, name_of, random_writes, saved_in, write, write_of

#: As clients may choose them: PostgreSQL's text takes neither.
ODD = "a\0b\ud800"


class Place(Protocol):
    """Where stores are kept."""

    def open(self, incarnation: str = "name") -> Store:
        """Become the owner."""

    def sizes(self, table: str) -> list[int]:
        """The bytes of its rows."""


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, incarnation: str = "name") -> Store:
        return SqliteStore(self._path, incarnation, reserve=0)

    def sizes(self, table: str) -> list[int]:
        database = sqlite3.connect(self._path / DATABASE)
        rows = database.execute(f"SELECT length(data) FROM {table} ORDER BY id").fetchall()
        database.close()
        return [row[0] for row in rows]


class Shard:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = database.shard()
        self._owners = 0

    def open(self, incarnation: str = "name") -> Store:
        from sievemq_broker.store.postgres import PostgresStore

        self._owners += 1
        token = f"token{self._owners}"
        self._database.take(self._name, token)
        return PostgresStore(self._database.url, self._name, token, incarnation)

    def sizes(self, table: str) -> list[int]:
        statement = f"SELECT sum(length(data)) FROM sievemq.{table} WHERE shard = %s GROUP BY id ORDER BY id"
        return [row[0] for row in self._database.execute(statement, self._name)]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Folder(tmp_path) if request.param == "sqlite" else Shard(request.getfixturevalue("database"))


def add(store: Store | DictStore, *names: str, owner: int = 1, size: int = 0) -> list[int]:
    """Write a batch of new messages; their numbers."""
    batch = Batch(store.next_batch)
    for name in names:
        batch.accepted.append((owner, message(name, body=b"x" * size).packed))
    write(store, batch)
    return [batch.base | place for place in range(len(names))]


def settle(store: Store | DictStore, *numbers: int) -> None:
    batch = Batch(store.next_batch)
    batch.gone += numbers
    write(store, batch)


def names(store: Store) -> list[str]:
    return [name_of(entry.packed) for entry in saved_in(store)]


def test_written_rows_are_read_back(place: Place) -> None:
    store = place.open()
    numbers = add(store, "a", "b", "c")
    batch = Batch(store.next_batch)
    batch.held.append(numbers[0])
    batch.states[numbers[1]] = failed = state_of(3, 2)
    batch.failures[numbers[1]] = NOW + 5
    batch.gone.append(numbers[2])
    batch.definitions["kind", ("key", None, 7)] = ("value", 2)
    batch.definitions["kind", (ODD,)] = (ODD,)
    write(store, batch)
    for _ in range(2):
        found = [(name_of(e.packed), e.number, e.owner, e.state, e.failed, e.time) for e in saved_in(store)]
        assert found == [("a", numbers[0], 1, HELD_FLAG, 0, NOW), ("b", numbers[1], 1, failed, NOW + 5, NOW)]
        assert store.definitions("kind") == {("key", None, 7): ("value", 2), (ODD,): (ODD,)}
        assert store.definitions("other") == {}
        assert store.next_batch == 3
        store.close()
        store = place.open()
    store.close()


def test_a_store_keeps_its_incarnation_and_counts_its_owners(place: Place) -> None:
    for epoch in (1, 2, 3):
        store = place.open(f"broker{epoch}")
        assert (store.epoch, store.incarnation) == (epoch, "broker1")
        store.close()


def test_a_definition_can_be_changed_and_forgotten(place: Place) -> None:
    store = place.open()
    for value, expected in (((1,), {("k",): (1,)}), ((2,), {("k",): (2,)}), (None, {})):
        batch, later = Batch(store.next_batch), Batch(store.next_batch + 1)
        batch.definitions["kind", ("k",)] = (0,)
        later.definitions["kind", ("k",)] = value
        write(store, batch, later)
        assert store.definitions("kind") == expected
    store.close()


def test_a_message_of_a_topic_is_kept_once(place: Place) -> None:
    store = place.open()
    packed = message("t", body=b"y" * 5_000).packed
    batch = Batch(store.next_batch)
    batch.accepted += [(owner, packed) for owner in range(1, 11)]
    batch.accepted.append((1, message("last").packed))
    write(store, batch)
    found = [(entry.owner, name_of(entry.packed)) for entry in saved_in(store)]
    assert found == [(owner, "t") for owner in range(1, 11)] + [(1, "last")]
    store.close()
    (size,) = place.sizes("batch")
    assert size < 6_000


def test_messages_consumed_between_two_writes_are_not_written(place: Place) -> None:
    store = place.open()
    batch = Batch(store.next_batch)
    batch.accepted += [(1, message("a").packed), (1, message("b").packed)]
    batch.gone += [batch.base, batch.base | 1]
    write(store, batch)
    assert names(store) == []
    store.close()
    assert place.sizes("batch") == place.sizes("state") == []


def test_a_batch_is_deleted_with_its_last_message(place: Place) -> None:
    store = place.open()
    first, second = add(store, "a", "b"), add(store, "c")
    settle(store, first[0])
    assert names(store) == ["b", "c"]
    settle(store, first[1], second[0], second[0])  # saying it twice changes nothing
    store.close()
    assert place.sizes("batch") == place.sizes("state") == []


def test_a_batch_that_lost_half_of_its_messages_is_rewritten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(place, Shard):
        monkeypatch.setattr("sievemq_broker.store.postgres._REWRITE_SECONDS", 0)
    store = place.open()
    numbers = add(store, *(f"m{i}" for i in range(100)), size=1_000)
    other = DictStore()
    add(other, *(f"m{i}" for i in range(100)), size=1_000)
    for step in (2, 3, 5, 7):
        gone = [number for at, number in enumerate(numbers) if at % step]
        settle(store, *gone)
        settle(other, *gone)
        store.tidy()
        assert saved_in(store) == saved_in(other)
    store.close()
    (size,) = place.sizes("batch")
    assert size < 5_000
    store = place.open()
    assert saved_in(store) == saved_in(other)
    settle(store, *numbers)
    assert names(store) == []
    store.close()
    assert place.sizes("batch") == place.sizes("state") == []


def test_states_that_are_not_at_hand_are_read_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.store.batches._CACHED", 4)
    store = place.open()
    numbers = [add(store, f"a{i}", f"b{i}") for i in range(20)]
    settle(store, *(pair[0] for pair in numbers))
    settle(store, *(pair[1] for pair in numbers[:19]))
    assert names(store) == ["b19"]
    store.close()


def test_a_write_that_was_made_is_not_made_again(place: Place) -> None:
    store = place.open()
    batch = Batch(1)
    batch.accepted.append((1, message("a").packed))
    twice = write_of(store, batch)
    for _ in range(2):
        store.write(twice, NOW)
        assert names(store) == ["a"]
        store.reopen()
    add(store, "b")
    assert names(store) == ["a", "b"]
    store.close()


def test_what_was_written_ahead_of_an_end_that_never_came_is_deleted(place: Place) -> None:
    store = place.open()
    batch = Batch(1)
    for name in ("a", "b"):
        batch.add(1, message(name).packed)
    store.write(Write(store.next_write, (), 2, (batch.take_ahead(),)), NOW)
    assert names(store) == []
    assert len(place.sizes("batch")) == 1
    store.tidy()
    assert len(place.sizes("batch")) == 1, "its end may come"
    store.close()
    store = place.open()
    assert names(store) == []
    store.tidy()
    assert place.sizes("batch") == place.sizes("state") == []
    add(store, "c")
    assert names(store) == ["c"]
    store.close()


def test_a_former_owner_neither_writes_nor_reads_on(place: Place) -> None:
    if isinstance(place, Folder):
        pytest.skip("its lock refuses a second owner: test_sqlite.py")
    former = place.open()
    (number,) = add(former, "a")
    owner = place.open()
    for _ in range(2):
        with pytest.raises(FencedError, match="another broker"):
            settle(former, number)
        with pytest.raises(FencedError, match="another broker"):
            former.reopen()
    former.tidy()
    assert names(owner) == ["a"]
    add(owner, "b")
    assert names(owner) == ["a", "b"]
    owner.close()
    former.abandon()


@pytest.mark.parametrize("seed", range(3))
def test_after_any_write_the_store_equals_the_model(place: Place, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(place, Shard):
        monkeypatch.setattr("sievemq_broker.store.postgres._REWRITE_SECONDS", 0)
        monkeypatch.setattr("sievemq_broker.store.postgres_rows._LISTED", 3)
        monkeypatch.setattr("sievemq_broker.store.postgres_rows._READ_BYTES", 1_000)
        monkeypatch.setattr("sievemq_broker.store.postgres_rows._CALL_BYTES", 2_000)
        monkeypatch.setattr("sievemq_broker.store.postgres_rows.PIECE_BYTES", 700)
    monkeypatch.setattr("sievemq_broker.store.batches._SPARSE_BYTES", 500)
    chance = random.Random(seed)
    store, other = place.open(), DictStore()
    for parts in random_writes(chance):
        write(other, *parts)
        write(store, *parts)
        if chance.random() < 0.2:
            store.tidy()
        if chance.random() < 0.3:
            assert content(store) == content(other)
        if chance.random() < 0.1:
            store.abandon()
            store = place.open()
    assert content(store) == content(other)
    store.close()


def content(store: Store | DictStore) -> object:
    return saved_in(store), dict(store.definitions("kind")), store.next_batch
