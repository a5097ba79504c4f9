"""The store on disk: what is written is there again, or an exact error says why not."""

from __future__ import annotations

import io
import json
import random
import shutil
import sqlite3
from array import array
from pathlib import Path
from typing import Any

import pytest

from sievemq_broker.domain.journal import PLACE_BITS, Batch
from sievemq_broker.store import DamagedError, FencedError, LockedError, SqliteStore, StoreError, StoreFullError
from sievemq_broker.store.blob import State, pack_batch, unpack_batch
from sievemq_broker.store.database import DATABASE, connect
from sievemq_broker.store.salvage import check, export, repair
from sievemq_broker.store.sqlite_rows import DirectoryRows

from .support import NOW, DictStore, message, name_of, random_writes, saved_in, write, write_of


def opened(folder: Path, **more: object) -> SqliteStore:
    return SqliteStore(folder, "name", reserve=0, **more)  # type: ignore[arg-type]


def add(store: SqliteStore | DictStore, *names: str, owner: int = 1, size: int = 0) -> list[int]:
    """Write a batch of new messages; their numbers."""
    batch = Batch(store.next_batch)
    for name in names:
        batch.accepted.append((owner, message(name, body=b"x" * size).packed))
    write(store, batch)
    return [batch.base | place for place in range(len(names))]


def settle(store: SqliteStore | DictStore, *numbers: int) -> None:
    batch = Batch(store.next_batch)
    batch.gone += numbers
    write(store, batch)


def names(store: SqliteStore) -> list[str]:
    return [name_of(entry.packed) for entry in saved_in(store)]


def rows(folder: Path, table: str) -> int:
    with sqlite3.connect(folder / DATABASE) as database:
        count = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    database.close()
    return int(count)


def alter(folder: Path, statement: str) -> None:
    """Change the database behind its store's back."""
    with sqlite3.connect(folder / DATABASE) as database:
        database.execute(statement)
    database.close()


class TestOwners:
    def test_a_second_broker_is_refused(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        with pytest.raises(LockedError, match=r"in use by another broker \(process \d+\)"):
            opened(tmp_path)
        add(store, "still works")
        store.close()
        opened(tmp_path).close()

    def test_a_former_owner_cannot_write(self, tmp_path: Path) -> None:
        """As where a lock does not work: the epoch fences."""
        former = opened(tmp_path)
        (number,) = add(former, "a")
        assert former._lock is not None
        former._lock.release()
        owner = opened(tmp_path)
        for _ in range(2):
            with pytest.raises(FencedError, match="was opened by another broker"):
                settle(former, number)
        with pytest.raises(FencedError):
            former.reopen()
        assert names(owner) == ["a"]
        add(owner, "b")
        owner.close()
        former.abandon()


class TestDamage:
    def filled(self, folder: Path) -> None:
        store = opened(folder)
        numbers = add(store, "a", "b", "c", size=60)
        add(store, "d")
        settle(store, numbers[1])
        batch = Batch(store.next_batch)
        batch.definitions["destination", ("ns", "queue:q")] = (1,)
        write(store, batch)
        store.close()

    def read(self, folder: Path) -> object:
        store = opened(folder)
        try:
            return (
                [(e.number, e.owner, e.packed, e.state, e.failed, e.time) for e in saved_in(store)],
                dict(store.definitions("destination")), store.incarnation, store.next_batch,
            )  # fmt: skip
        finally:
            store.abandon()

    def read_or_error(self, folder: Path) -> tuple[object, str]:
        try:
            return self.read(folder), ""
        except StoreError as error:
            return None, str(error)

    @pytest.mark.slow
    @pytest.mark.parametrize("bit", [0x01, 0x80])
    def test_a_flipped_bit_anywhere_is_noticed_or_changes_nothing(self, tmp_path: Path, bit: int) -> None:
        """Every fourth byte of the database that is not an empty part of a page: an error, or the same content."""
        good = tmp_path / "good"
        self.filled(good)
        expected = self.read(good)
        content = (good / DATABASE).read_bytes()
        bad = tmp_path / "bad"
        shutil.copytree(good, bad)
        for suffix in ("-wal", "-shm"):
            (bad / (DATABASE + suffix)).unlink(missing_ok=True)
        noticed = 0
        used = [at for at in range(bit & 3, len(content), 4) if content[at] or at % 512 == 0]
        for at in used:
            damaged = bytearray(content)
            damaged[at] ^= bit
            (bad / DATABASE).write_bytes(damaged)
            for suffix in ("-wal", "-shm"):
                (bad / (DATABASE + suffix)).unlink(missing_ok=True)
            shutil.copy(good / "witness", bad / "witness")
            found, error = self.read_or_error(bad)
            if error:
                noticed += 1
                assert str(bad) in error
            else:
                assert found == expected, f"byte {at}"
        assert noticed > len(used) // 3

    def test_a_row_that_is_missing_is_missed(self, tmp_path: Path) -> None:
        self.filled(tmp_path)
        alter(tmp_path, "DELETE FROM batch WHERE id = 1")
        with pytest.raises(DamagedError, match=r"batch 1 is missing.*sievemq store repair"):
            self.read(tmp_path)

    def test_a_row_under_another_id_is_noticed(self, tmp_path: Path) -> None:
        self.filled(tmp_path)
        alter(tmp_path, "UPDATE batch SET id = 9 WHERE id = 2")
        with pytest.raises(DamagedError, match=r"checksum of batch 9 is wrong.*sievemq store export"):
            self.read(tmp_path)

    def test_a_log_that_lost_writes_is_noticed(self, tmp_path: Path) -> None:
        """SQLite takes a damaged frame for the end of its log: everything behind it would be gone in silence."""
        live = tmp_path / "live"
        store = opened(live)
        for number in range(5):
            add(store, f"m{number}")
        killed = tmp_path / "killed"
        shutil.copytree(live, killed)
        store.close()
        log = killed / f"{DATABASE}-wal"
        content = bytearray(log.read_bytes())
        content[len(content.rstrip(b"\0")) // 2] ^= 0x10  # behind it are zeros
        log.write_bytes(content)
        with pytest.raises(DamagedError, match=r"its log store.db-wal has lost the last \d+"):
            self.read(killed)

    def test_files_that_are_missing_are_missed(self, tmp_path: Path) -> None:
        self.filled(tmp_path)
        (tmp_path / DATABASE).rename(tmp_path / "elsewhere")
        with pytest.raises(DamagedError, match=r"store.db is missing, although \d+ writes to it were made"):
            opened(tmp_path)
        (tmp_path / "elsewhere").rename(tmp_path / DATABASE)
        (tmp_path / "witness").unlink()
        with pytest.raises(DamagedError, match="witness is missing"):
            opened(tmp_path)
        (tmp_path / "witness").write_bytes(b"\0" * 12)
        with pytest.raises(DamagedError, match="witness: the checksum is wrong"):
            opened(tmp_path)

    def test_something_else_is_not_touched(self, tmp_path: Path) -> None:
        alter(tmp_path, "CREATE TABLE mine (a)")
        with pytest.raises(StoreError, match="is a database of another program"):
            opened(tmp_path)
        (tmp_path / DATABASE).write_bytes(b"not a database at all" * 50)
        with pytest.raises(StoreError, match=r"is damaged: file is not a database"):
            opened(tmp_path)

    def test_a_newer_format_is_refused(self, tmp_path: Path) -> None:
        self.filled(tmp_path)
        alter(tmp_path, "PRAGMA user_version = 2")
        with pytest.raises(StoreError, match="has format 2; this version of SieveMQ reads 1"):
            opened(tmp_path)

    @pytest.mark.parametrize("cut", [0, 3, 10, -1])
    def test_blobs_that_are_cut_off(self, cut: int) -> None:
        data = pack_batch(5, NOW, [(1, b"abc")], array("H", [0]))
        with pytest.raises(DamagedError, match="batch 5"):
            unpack_batch(5, data[:cut])
        state = State(1, 1, 1, array("H", [0]), {}).pack(5)
        with pytest.raises(DamagedError, match="the state of batch 5"):
            State.unpack(5, state[:cut])


class TestFullDisk:
    def limited(self, folder: Path, pages: int) -> SqliteStore:
        store = opened(folder)
        store._execute(f"PRAGMA max_page_count = {pages}")
        return store

    def test_a_write_that_does_not_fit_leaves_nothing_behind(self, tmp_path: Path) -> None:
        store = self.limited(tmp_path, 20)
        numbers = add(store, "a", "b", size=2_000)
        large = Batch(store.next_batch)
        large.accepted.append((1, message("large", body=b"x" * 500_000).packed))
        large.gone.append(numbers[0])
        for _ in range(2):
            with pytest.raises(StoreFullError, match="the disk is full"):
                write(store, large)
            assert names(store) == ["a", "b"]
        store._execute("PRAGMA max_page_count = 1000")
        write(store, large)
        assert names(store) == ["b", "large"]
        store.close()
        store = opened(tmp_path)
        assert names(store) == ["b", "large"]
        store.close()

    def test_the_reserve_is_given_up_and_taken_back(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path, "n", reserve=100_000)
        reserve = tmp_path / "reserve"
        assert reserve.stat().st_size == 100_000
        store.relieve()
        assert not reserve.exists()
        store.tidy()
        assert reserve.stat().st_size == 100_000
        store.close()

    def test_numbers_fit_their_bits(self) -> None:
        assert Batch(2**38).base >> PLACE_BITS == 2**38 < 2**63 >> PLACE_BITS


def killed(folder: Path, where: Path) -> Path:
    """The directory as a broker leaves it that is killed now."""
    shutil.copytree(folder, where)
    return where


def content(store: SqliteStore | DictStore) -> object:
    return saved_in(store), dict(store.definitions("kind")), store.next_batch


class Failing:
    """A connection to the database on which chosen statements fail."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.fails: tuple[str, ...] = ()
        self.code = sqlite3.SQLITE_IOERR_FSYNC

    def execute(self, statement: str, values: Any = ()) -> Any:
        if self.fails and statement.startswith(self.fails):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self.code
            error.sqlite_errorname = "SQLITE_FAILS"
            raise error
        return self._database.execute(statement, values)

    def close(self) -> None:
        self._database.close()


class TestKill:
    @pytest.mark.parametrize("seed", range(4))
    def test_after_any_write_the_store_equals_the_model(self, tmp_path: Path, seed: int) -> None:
        """Small and large batches, several owners; exported and repaired, too."""
        chance = random.Random(seed)
        store, other = opened(tmp_path / "live"), DictStore()
        for step, parts in enumerate(random_writes(chance)):
            write(other, *parts)
            write(store, *parts)
            if chance.random() < 0.5:
                folder = killed(tmp_path / "live", tmp_path / f"killed{step}")
                report = check(DirectoryRows(folder))
                assert (report.findings, report.definitions) == ([], len(other.definitions("kind")))
                out = io.StringIO()
                export(DirectoryRows(folder), out.write)
                assert sorted(json.loads(line)["message_id"] for line in out.getvalue().splitlines()) == sorted(
                    name_of(entry.packed) for entry in saved_in(other)
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

    def test_a_failed_transaction_keeps_earlier_rows(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "live", opener=lambda path: Failing(connect(path)))
        add(store, "a")
        add(store, "b")
        batch = Batch(store.next_batch)
        batch.accepted += [(1, message(f"m{number}").packed) for number in range(20)]
        store._db.fails = ("COMMIT",)
        for _ in range(2):
            with pytest.raises(StoreError, match="disk I/O error"):
                write(store, batch)
        again = opened(killed(tmp_path / "live", tmp_path / "killed"))
        assert names(again) == ["a", "b"]
        again.close()
        store._db.fails = ()
        store.reopen()
        twice = write_of(store, batch)
        store.write(twice, NOW)
        store.write(twice, NOW)  # kept already
        assert len(names(store)) == 22
        store.close()

    @pytest.mark.parametrize("before", [0, 2])
    def test_a_failed_batch_is_written_again_even_if_the_head_could_not_be_read(
        self, tmp_path: Path, before: int
    ) -> None:
        made: list[Failing] = []

        def opener(path: Path) -> Failing:
            made.append(Failing(connect(path)))
            made[-1].fails = made[0].fails
            return made[-1]

        store = opened(tmp_path / "live", opener=opener)
        for number in range(before):
            add(store, f"a{number}")
        batch = Batch(store.next_batch)
        batch.accepted += [(1, message(f"m{number}").packed) for number in range(20)]
        failing = write_of(store, batch)
        made[0].fails = ("COMMIT", "ROLLBACK", "SELECT data FROM definition WHERE kind = ''", "PRAGMA synchronous")
        with pytest.raises(StoreError):
            store.write(failing, NOW)
        with pytest.raises(StoreError):
            store.reopen()
        with pytest.raises(StoreError):
            store.write(failing, NOW)
        made[0].fails = ()
        store.reopen()
        store.write(failing, NOW)
        again = opened(killed(tmp_path / "live", tmp_path / "killed"))
        assert len(names(again)) == 20 + before
        again.close()
        store.close()

    def test_a_write_that_reached_the_disk_although_its_commit_failed_is_not_kept_twice(self, tmp_path: Path) -> None:
        class FailingAfterwards(Failing):
            def execute(self, statement: str, values: Any = ()) -> Any:
                if statement.startswith(self.fails or ("-",)):
                    self._database.execute(statement, values)
                return super().execute(statement, values)

        store = opened(tmp_path / "live", opener=lambda path: FailingAfterwards(connect(path)))
        batch = Batch(store.next_batch)
        batch.accepted.append((1, message("a").packed))
        store._db.fails = ("COMMIT",)
        twice = write_of(store, batch)
        with pytest.raises(StoreError, match="disk I/O error"):
            store.write(twice, NOW)
        store._db.fails = ()
        store.reopen()
        store.write(twice, NOW)
        add(store, "b")
        assert names(store) == ["a", "b"]
        store.close()

    def test_a_full_disk_at_the_start_gives_up_the_reserve(self, tmp_path: Path) -> None:
        reserve = tmp_path / "killed" / "reserve"
        store = SqliteStore(tmp_path / "live", "name", reserve=10_000)
        add(store, "a")
        killed(tmp_path / "live", tmp_path / "killed")
        store.close()

        class Full(Failing):
            def execute(self, statement: str, values: Any = ()) -> Any:
                self.code = sqlite3.SQLITE_FULL
                self.fails = ("COMMIT",) if reserve.exists() else ()
                return super().execute(statement, values)

        again = SqliteStore(tmp_path / "killed", "name", reserve=10_000, opener=lambda path: Full(connect(path)))
        assert names(again) == ["a"]
        assert again.epoch == 2
        again.close()
