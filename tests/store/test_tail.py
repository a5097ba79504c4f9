"""Small batches beside the database (store/tail.py): killed, damaged, torn, fenced, full: there, or it says so."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import msgpack
import pytest

from sievemq_broker.domain.journal import HELD_FLAG, Batch
from sievemq_broker.store import DamagedError, FencedError, SqliteStore, StoreError, tail
from sievemq_broker.store.block_file import BLOCK, BlockFile
from sievemq_broker.store.database import DATABASE, connect
from sievemq_broker.store.salvage import check, export, repair

from .support import NOW, DictStore, message, name_of, tail_file


def opened(folder: Path, **more: Any) -> SqliteStore:
    return SqliteStore(folder, "name", **{"reserve": 0, **more})


def batch_of(store: SqliteStore | DictStore, *names: str, size: int = 0) -> Batch:
    batch = Batch(store.next_batch)
    for name in names:
        batch.accepted.append((1, message(name, body=b"x" * size).packed))
    return batch


def add(store: SqliteStore | DictStore, *names: str, size: int = 0) -> list[int]:
    batch = batch_of(store, *names, size=size)
    store.write(batch, NOW)
    return [batch.base | place for place in range(len(names))]


def names(store: SqliteStore) -> list[str]:
    return [name_of(entry.packed) for entry in store.entries()]


def rows(folder: Path) -> int:
    """Batches in the database."""
    database = connect(folder / DATABASE)
    count = database.execute("SELECT count(*) FROM batch").fetchone()[0]
    database.close()
    return int(count)


def killed(folder: Path, where: Path) -> Path:
    """The directory as a broker leaves it that is killed now."""
    shutil.copytree(folder, where)
    return where


def content(store: Any) -> object:
    return list(store.entries()), dict(store.definitions("kind")), store.next_batch


def test_a_small_batch_is_beside_the_database_and_there_again_after_a_kill(tmp_path: Path) -> None:
    store = opened(tmp_path / "live")
    numbers = add(store, "a", "b", "c")
    batch = Batch(store.next_batch)
    batch.held.append(numbers[0])
    batch.states[numbers[1]] = 3
    batch.failures[numbers[1]] = NOW + 5
    batch.gone.append(numbers[2])
    batch.definitions["kind", ("key", None, 7)] = ("value", {"a": [1, b"\xff"]})
    store.write(batch, NOW + 1)
    assert rows(tmp_path / "live") == 0
    again = opened(killed(tmp_path / "live", tmp_path / "killed"))
    found = [(name_of(e.packed), e.number, e.owner, e.state, e.failed, e.time) for e in again.entries()]
    assert found == [("a", numbers[0], 1, HELD_FLAG, 0, NOW), ("b", numbers[1], 1, 3, NOW + 5, NOW)]
    assert again.definitions("kind") == {("key", None, 7): ("value", {"a": (1, b"\xff")})}
    assert again.next_batch == 3
    again.close()
    store.close()


def test_a_message_of_a_topic_is_kept_once_over_a_kill(tmp_path: Path) -> None:
    store = opened(tmp_path / "live")
    batch = Batch(1)
    packed = message("t", body=b"y" * 5_000).packed
    batch.accepted += [(owner, packed) for owner in range(1, 11)]
    store.write(batch, NOW)
    assert rows(tmp_path / "live") == 0
    opened(killed(tmp_path / "live", tmp_path / "killed")).close()
    store.close()
    with sqlite3.connect(tmp_path / "killed" / DATABASE) as database:
        size = len(database.execute("SELECT data FROM batch").fetchone()[0])
    database.close()
    assert size < 6_000


@pytest.mark.parametrize("seed", range(4))
def test_killed_after_any_write_it_is_what_the_obvious_store_is(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small and large batches in any order, over several rounds of the file and several owners; repaired, too."""
    chance = random.Random(seed)
    monkeypatch.setattr(tail, "_RECORDS", chance.choice((3, 7)))
    store, other = opened(tmp_path / "live"), DictStore()
    numbers: list[int] = []
    for step in range(40):
        large = chance.random() < 0.1
        batch = batch_of(store, *(f"m{step}.{place}" for place in range(20 if large else chance.randrange(3))), size=50)
        fresh = [batch.base | place for place in range(len(batch.accepted))]
        for number in chance.sample(numbers + fresh, min(len(numbers + fresh), chance.randrange(4))):
            if chance.random() < 0.6:
                batch.gone.append(number)
                numbers = [each for each in numbers if each != number]
                fresh = [each for each in fresh if each != number]
            else:
                batch.states[number] = chance.choice((1, 2, HELD_FLAG))
        numbers += fresh
        batch.definitions["kind", (chance.randrange(3),)] = None if chance.random() < 0.2 else (step,)
        other.write(batch, NOW)
        store.write(batch, NOW)
        if chance.random() < 0.5:
            folder = killed(tmp_path / "live", tmp_path / f"killed{step}")
            report = check(folder)
            assert (report.findings, report.definitions) == ([], len(other.definitions("kind")))
            out = io.StringIO()
            export(folder, out)
            assert sorted(json.loads(line)["id"] for line in out.getvalue().splitlines()) == sorted(
                name_of(entry.packed) for entry in other.entries()
            )
            spoilt = killed(folder, tmp_path / f"spoilt{step}")
            (spoilt / "witness").write_bytes(b"no number")
            assert repair(spoilt, lambda: "name").set_aside is not None
            for each in (folder, spoilt):
                again = opened(each)
                assert content(again) == content(other)
                again.close()
        if chance.random() < 0.1:
            store.abandon()
            store = opened(tmp_path / "live")
    store.close()
    assert rows(tmp_path / "live") > 0 or not numbers


def test_what_an_earlier_round_left_in_the_file_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_RECORDS", 10)
    store, other = opened(tmp_path / "live"), DictStore()
    for number in range(14):  # a round of ten, its write into the database, and three of the same size over the first
        for each in (store, other):
            add(each, f"m{number:02}")
    assert rows(tmp_path / "live") == 11
    again = opened(killed(tmp_path / "live", tmp_path / "killed"))
    assert content(again) == content(other)
    again.close()
    store.close()


def test_a_definition_that_its_owner_changes_afterwards_is_kept_as_it_was(tmp_path: Path) -> None:
    store = opened(tmp_path)
    batch = Batch(1)
    value: dict[str, int] = {"sent": 1}
    batch.definitions["kind", ("k",)] = (value,)
    store.write(batch, NOW)
    value["sent"] = 2
    store.close()
    store = opened(tmp_path)
    assert store.definitions("kind") == {("k",): ({"sent": 1},)}
    store.close()


@pytest.mark.parametrize("record", [0, 2, 4])
def test_a_record_that_is_damaged_is_noticed(tmp_path: Path, record: int) -> None:
    store = opened(tmp_path / "live")
    for number in range(5):
        add(store, f"m{number}")
    folder = killed(tmp_path / "live", tmp_path / "killed")
    store.close()
    path = tail_file(folder)
    data = bytearray(path.read_bytes())
    data[BLOCK * (1 + record) + 40] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=rf"or tail has lost the last {5 - record}\. .*sievemq store repair"):
        opened(folder)
    assert any(f"the last {5 - record} of" in finding for finding in check(folder).findings)
    report = repair(folder, lambda: "name")
    assert report.set_aside is not None
    assert (report.set_aside / tail.FORMER).exists()
    again = opened(folder)
    assert names(again) == [f"m{number}" for number in range(record)]
    add(again, "goes on")
    again.close()


def test_a_beginning_that_is_damaged_is_noticed(tmp_path: Path) -> None:
    """Without it the file looks like one of before there were salts, and none of its records fits."""
    store = opened(tmp_path / "live")
    add(store, "a")
    add(store, "b")
    for place in range(16):
        folder = killed(tmp_path / "live", tmp_path / f"killed{place}")
        data = bytearray(tail_file(folder).read_bytes())
        data[place] ^= 0x10
        tail_file(folder).write_bytes(data)
        with pytest.raises(DamagedError, match="or tail has lost the last 2"):
            opened(folder)
    store.close()


def test_where_the_head_cannot_be_read_the_records_are_set_aside_not_dropped(tmp_path: Path) -> None:
    store = opened(tmp_path / "live")
    add(store, "a")
    folder = killed(tmp_path / "live", tmp_path / "killed")
    store.close()
    database = connect(folder / DATABASE)
    database.execute("UPDATE definition SET data = x'00' WHERE kind = ''")
    database.close()
    assert any("tail: a record may follow" in finding for finding in check(folder).findings)
    report = repair(folder, lambda: "name")
    assert report.set_aside is not None
    assert "a record may follow" in (report.set_aside / "left-out.jsonl").read_text()
    opened(folder).close()


def test_a_record_that_was_never_confirmed_may_be_torn(tmp_path: Path) -> None:
    store = opened(tmp_path / "live")
    add(store, "a")
    record = tail_file(tmp_path / "live").read_bytes()[BLOCK : 2 * BLOCK].rstrip(b"\0")
    for cut in (1, 8, 20, len(record) - 1):
        folder = killed(tmp_path / "live", tmp_path / f"cut{cut}")
        data = bytearray(tail_file(folder).read_bytes())
        data[2 * BLOCK : 2 * BLOCK + cut] = record[:cut]  # the beginning of another one
        tail_file(folder).write_bytes(data)
        again = opened(folder)
        assert names(again) == ["a"]
        again.close()
    store.close()


def test_a_former_owner_confirms_nothing_that_its_successor_does_not_read(tmp_path: Path) -> None:
    """As where a lock does not work."""
    former = opened(tmp_path)
    add(former, "a")
    assert former._lock is not None
    former._lock.release()
    owner = opened(tmp_path)
    for _ in range(2):
        with pytest.raises(FencedError, match=r"was opened by another broker \(epoch 2, this one is 1\)"):
            add(former, "lost")
    add(owner, "b")
    former.abandon()
    assert names(owner) == ["a", "b"]
    owner.close()


def test_a_sync_that_fails_ends_the_tail_and_nothing_of_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "live")
    add(store, "a")

    def fail(file: BlockFile, data: bytes, at: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(BlockFile, "write", fail)
        batch = batch_of(store, "b")
        with pytest.raises(StoreError, match=r"tail cannot be written: .*input/output error"):
            store.write(batch, NOW)
        store.reopen()
        store.write(batch, NOW)  # into the database, and what was there before with it
    assert rows(tmp_path / "live") == 2
    add(store, "c")
    again = opened(killed(tmp_path / "live", tmp_path / "killed"))
    assert names(again) == ["a", "b", "c"]
    again.close()
    store.close()


def test_a_record_whose_sync_failed_may_be_there_and_is_not_kept_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "live")
    add(store, "a")
    write = BlockFile.write

    def fail(file: BlockFile, data: bytes, at: int) -> None:
        write(file, data, at)
        os.close(-1)

    with monkeypatch.context() as patch:
        patch.setattr(BlockFile, "write", fail)
        batch = batch_of(store, "b")
        with pytest.raises(StoreError, match="Bad file descriptor"):
            store.write(batch, NOW)
    maybe = opened(killed(tmp_path / "live", tmp_path / "before"))
    assert names(maybe) == ["a", "b"]
    maybe.close()
    store.write(batch, NOW)
    surely = opened(killed(tmp_path / "live", tmp_path / "after"))
    assert names(surely) == ["a", "b"]
    surely.close()
    store.close()


class Failing:
    """A connection to the database that fails where it is told to."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.fails: tuple[str, ...] = ()
        self.code = sqlite3.SQLITE_IOERR_FSYNC

    def execute(self, statement: str, values: Any = ()) -> Any:
        if statement.startswith(self.fails or ("-",)):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self.code
            error.sqlite_errorname = "SQLITE_FAILS"
            raise error
        return self._database.execute(statement, values)

    def close(self) -> None:
        self._database.close()


def test_a_transaction_that_fails_leaves_what_the_tail_had(tmp_path: Path) -> None:
    store = opened(tmp_path / "live", opener=lambda path: Failing(connect(path)))
    add(store, "a")
    add(store, "b")
    large = batch_of(store, *(f"m{number}" for number in range(20)))
    store._db.fails = ("COMMIT",)
    for _ in range(2):
        with pytest.raises(StoreError, match="disk I/O error"):
            store.write(large, NOW)
    again = opened(killed(tmp_path / "live", tmp_path / "killed"))
    assert names(again) == ["a", "b"]
    again.close()
    store._db.fails = ()
    store.reopen()
    store.write(large, NOW)
    store.write(large, NOW)  # kept already
    assert len(names(store)) == 22
    store.close()


def test_noting_what_is_kept_at_any_moment_is_never_ahead_of_it(tmp_path: Path) -> None:
    """The loop's thread does so when it has said what it wrote, and the other one may be in a transaction by then."""
    looks = 0

    class Noting(Failing):
        def execute(self, statement: str, values: Any = ()) -> Any:
            nonlocal looks
            if made:
                made[0].note()
                if statement.startswith(("BEGIN", "UPDATE", "COMMIT", "ROLLBACK", "SELECT data")):
                    again = opened(killed(tmp_path / "live", tmp_path / f"killed{looks}"))
                    assert names(again)[:2] == ["a", "b"]
                    again.close()
                    looks += 1
            return super().execute(statement, values)

    made: list[SqliteStore] = []
    store = opened(tmp_path / "live", opener=lambda path: Noting(connect(path)))
    add(store, "a")
    add(store, "b")
    made.append(store)
    large = batch_of(store, *(f"m{number}" for number in range(20)))
    store._db.fails = ("COMMIT",)
    with pytest.raises(StoreError, match="disk I/O error"):
        store.write(large, NOW)
    store._db.fails = ()
    store.reopen()
    store.write(large, NOW)
    add(store, "c")
    assert looks > 8
    made.clear()
    store.close()


def test_what_is_kept_and_not_noted_yet_is_there(tmp_path: Path) -> None:
    store = opened(tmp_path / "live")
    add(store, "a")
    store.keep(batch_of(store, "b"), NOW)
    assert check(killed(tmp_path / "live", tmp_path / "killed")).batches == 2
    for number, lost in enumerate((1, 2)):  # of which a start knows
        folder = killed(tmp_path / "live", tmp_path / f"damaged{number}")
        tail_file(folder).write_bytes(b"")
        with pytest.raises(DamagedError, match=f"has lost the last {lost}"):
            opened(folder)
        store.note()
    store.close()


@pytest.mark.parametrize("before", [0, 2])
def test_a_batch_is_not_taken_for_kept_when_nothing_could_be_read_after_its_failure(
    tmp_path: Path, before: int
) -> None:
    """The transaction fails, and so does looking how far the database has come: it must be tried again."""
    made: list[Failing] = []

    def opener(path: Path) -> Failing:
        made.append(Failing(connect(path)))
        made[-1].fails = made[0].fails
        return made[-1]

    store = opened(tmp_path / "live", opener=opener)
    for number in range(before):
        add(store, f"a{number}")
    large = batch_of(store, *(f"m{number}" for number in range(20)))
    made[0].fails = ("COMMIT", "ROLLBACK", "SELECT data FROM definition WHERE kind = ''", "PRAGMA synchronous")
    with pytest.raises(StoreError):
        store.write(large, NOW)
    with pytest.raises(StoreError):
        store.reopen()
    with pytest.raises(StoreError):
        store.write(large, NOW)
    made[0].fails = ()
    store.reopen()
    store.write(large, NOW)
    again = opened(killed(tmp_path / "live", tmp_path / "killed"))
    assert len(names(again)) == 20 + before
    again.close()
    store.close()


def test_where_the_file_cannot_be_made_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: BlockFile, data: bytes, at: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(BlockFile, "write", refuse)
    store = opened(tmp_path)
    add(store, "a")
    assert not (tmp_path / tail.TAIL).exists()
    assert rows(tmp_path) == 1
    store.close()


def test_a_record_that_does_not_fit_goes_into_the_database(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, "a")
    add(store, "large", size=200_000)
    assert rows(tmp_path) == 2
    add(store, "b")
    assert rows(tmp_path) == 2
    assert names(store) == ["a", "large", "b"]
    store.close()


def test_is_light_says_when_a_write_is_only_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_RECORDS", 3)
    store = opened(tmp_path)
    for number in range(8):
        batch = batch_of(store, f"m{number}")
        assert store.is_light(batch) == (number % 4 != 3)
        before = rows(tmp_path)
        store.write(batch, NOW)
        assert (rows(tmp_path) == before) == (number % 4 != 3)
    assert not store.is_light(batch_of(store, *(f"m{number}" for number in range(17))))
    store.close()


def test_a_full_disk_at_the_start_gives_up_the_reserve_for_what_the_tail_has(tmp_path: Path) -> None:
    reserve = tmp_path / "killed" / "reserve"
    store = opened(tmp_path / "live", reserve=10_000)
    add(store, "a")
    killed(tmp_path / "live", tmp_path / "killed")
    store.close()

    class Full(Failing):
        def execute(self, statement: str, values: Any = ()) -> Any:
            self.code = sqlite3.SQLITE_FULL
            self.fails = ("COMMIT",) if reserve.exists() else ()
            return super().execute(statement, values)

    again = opened(tmp_path / "killed", opener=lambda path: Full(connect(path)))
    assert names(again) == ["a"]
    assert again.epoch == 2
    again.close()


def test_nothing_is_left_for_the_next_start_after_an_end_in_order(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, "a")
    store.close()
    assert not (tmp_path / tail.TAIL).exists()  # an earlier version would be refused by the directory
    store = opened(tmp_path)
    assert names(store) == ["a"]
    store.close()


def sealed(body: bytes, number: int, seed: int = 0) -> bytes:
    """A record as the file has it."""
    rest = len(body).to_bytes(4, "little") + number.to_bytes(8, "little") + body
    return zlib.crc32(rest, seed).to_bytes(4, "little") + rest


def body_of(names: list[str], batch: int, size: int = 0) -> bytes:
    envelopes = [message(name, body=b"x" * size).packed for name in names]
    accepted = [(1, place) for place in range(len(names))]
    return bytes(msgpack.packb((batch, NOW, envelopes, accepted, [], {}, [], {}, [])))


def test_what_a_client_sends_is_not_taken_for_a_record(tmp_path: Path) -> None:
    """A body of an earlier round lies right behind the last record, and looks like the one that follows it."""
    store = opened(tmp_path / "live")
    forged = sealed(body_of(["forged"], 3), 4)
    at = 2 * BLOCK

    def carrying(before: int) -> Batch:
        batch = Batch(1)
        batch.accepted.append((1, message("carrier", body=b"x" * before + forged).packed))
        return batch

    less = BLOCK + 16 + tail._pack(carrying(3_000), NOW).index(forged) - 3_000
    store.write(carrying(at - less), NOW)
    assert tail_file(tmp_path / "live").read_bytes()[at:].startswith(forged)
    store._flush()
    add(store, "second")
    folder = killed(tmp_path / "live", tmp_path / "killed")
    store.close()
    data = tail_file(folder).read_bytes()
    assert data[at:].startswith(forged)
    assert len(list(tail.read_tail(folder / tail.TAIL, 2))) == 1
    assert (check(folder).batches, check(folder).findings) == (2, [])
    again = opened(folder)
    assert names(again) == ["carrier", "second"]
    again.close()
    # It would be one where it had the salt.
    salted = sealed(body_of(["forged"], 3), 4, zlib.crc32(data[:16]))
    (tmp_path / "salted").write_bytes(data[:at] + salted + data[at + len(salted) :])
    assert len(list(tail.read_tail(tmp_path / "salted", 2))) == 2


@pytest.mark.parametrize("begin", [b"", b"SieveMQ\x01" + b"salt" * 2])
def test_a_file_of_an_earlier_version_is_read(tmp_path: Path, begin: bytes) -> None:
    """Of before there were salts, and of before each owner had a directory and records began at blocks."""
    folder = tmp_path / "live"
    opened(folder).close()
    seed = zlib.crc32(begin)
    records = sealed(body_of(["a"], 1), 2, seed) + sealed(body_of(["b", "c"], 2), 3, seed)
    (folder / tail.TAIL).write_bytes(begin + records + bytes(1_000))
    (folder / tail.FORMER).write_bytes(b"of its predecessor")
    report = check(folder)
    assert (report.batches, report.findings) == (2, [])
    store = opened(folder)
    assert (names(store), store.next_batch) == (["a", "b", "c"], 3)
    add(store, "d")
    again = opened(killed(folder, tmp_path / "killed"))
    assert names(again) == ["a", "b", "c", "d"]
    again.close()
    store.close()
