"""The store on a small disk: whatever has room is written, and leaves room for acknowledgements.

SQLite runs over a file layer with a limit, so no file system is mounted. Its shared memory is not limited.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from sievemq_broker.domain.journal import PLACE_BITS, Batch, Write
from sievemq_broker.store import SqliteStore, StoreFullError
from sievemq_broker.store.database import PAGE_BYTES

from .support import NOW, message, name_of, saved_in, write_of

RESERVE = 256 * 1024


class FullDisk:
    """A disk of limited size, seen by the store and by SQLite.

    Args:
        folder: the store's.
        size: bytes.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        #: Bytes that other programs have taken.
        self.others = 0

    @property
    def free(self) -> int:
        files = self.folder.iterdir() if self.folder.exists() else ()
        return self.size - self.others - sum([path.stat().st_size for path in files if path.suffix != ".db-shm"])

    def fill(self) -> None:
        """Other programs take all that is free."""
        self.others += max(0, self.free)

    def check(self, grows: int) -> None:
        if grows > 0 and grows > self.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Connection:
    """A connection of apsw whose errors are those of sqlite3."""

    def __init__(self, path: Path) -> None:
        self._database = apsw.Connection(str(path), vfs="full")

    def execute(self, statement: str, values: Any = ()) -> Any:
        try:
            return self._database.execute(statement, values)
        except apsw.Error as error:
            raised = sqlite3.OperationalError(str(error))
            raised.sqlite_errorcode = getattr(error, "extendedresult", sqlite3.SQLITE_FULL)
            raised.sqlite_errorname = type(error).__name__
            raise raised from error

    def close(self) -> None:
        self._database.close()


def layer(disk: FullDisk) -> Any:
    class File(apsw.VFSFile):  # type: ignore[misc]
        def __init__(self, name: Any, flags: list[int]) -> None:
            super().__init__("", name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:
            try:
                disk.check(offset + len(data) - self.xFileSize())
            except OSError as error:
                raise apsw.FullError("the disk is full") from error
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:
            """No power is cut here."""

    class Layer(apsw.VFS):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("full", "", iVersion=2)

        def xOpen(self, name: Any, flags: list[int]) -> Any:
            return File(name, flags)

    return Layer()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FullDisk]:
    disk = FullDisk(tmp_path / "data", 6 * RESERVE)

    def allocate(descriptor: int, _: int, size: int) -> None:
        disk.check(size - os.fstat(descriptor).st_size)
        os.ftruncate(descriptor, size)

    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=disk.free))
    monkeypatch.setattr("os.posix_fallocate", allocate)
    kept = layer(disk)
    yield disk
    kept.unregister()


class Sender:
    """Sends what the store has room for, and acknowledges."""

    def __init__(self, disk: FullDisk) -> None:
        self.disk = disk
        self.kept: dict[int, str] = {}
        self.sent = 0
        self.store = self._open()

    def _open(self) -> SqliteStore:
        return SqliteStore(self.disk.folder, "name", reserve=RESERVE, opener=Connection)

    def write(self, batch: Batch) -> None:
        """As Commits does."""
        write = write_of(self.store, batch)
        try:
            self.store.write(write, NOW)
        except StoreFullError:
            self.store.relieve()
            self.store.write(write, NOW)
        self.store.tidy()

    def send(self, size: int, count: int = 1) -> bool:
        """So many messages together; False if there is no room."""
        bodies = [message(f"m{self.sent + n}", body=os.urandom(size)).packed for n in range(count)]
        if sum([len(body) + 64 for body in bodies]) > self.store.room:
            return False
        self.sent += count
        batch = Batch(self.store.next_batch)
        for packed in bodies:
            self.kept[batch.add(1, packed)] = name_of(packed)
        self.write(batch)
        return True

    def acknowledge(self, *numbers: int) -> None:
        batch = Batch(self.store.next_batch)
        batch.gone += numbers
        for number in numbers:
            del self.kept[number]
        self.write(batch)

    def kill(self) -> None:
        """End, with a log that could not be copied if there was no room, and begin again."""
        self.store.abandon()
        self.store = self._open()

    def check(self) -> None:
        assert {entry.number: name_of(entry.packed) for entry in saved_in(self.store)} == self.kept


@pytest.mark.parametrize("size", [500, 15_000, 125_000, 600_000])
def test_a_disk_can_be_filled_and_drained_again_and_again(disk: FullDisk, size: int) -> None:
    """With the sizes of small messages, of large transactions, and of messages larger than the reserve."""
    sender = Sender(disk)
    for _ in range(3):
        sent = 0
        while sender.send(size, count=1 if size > 500 else 40):
            sent += 1
        assert sent
        for batch_id in sorted({number >> PLACE_BITS for number in sender.kept}):
            sender.acknowledge(*[number for number in sender.kept if number >> PLACE_BITS == batch_id])
        sender.check()
        assert sender.store.room > sender.store.full_below * 5 // 4, "an empty store accepts messages again"
    sender.store.close()


@pytest.mark.parametrize("seed", range(12))
def test_all_that_has_room_is_written_whatever_other_programs_take(disk: FullDisk, seed: int) -> None:
    chance = random.Random(seed)
    sender = Sender(disk)
    for _ in range(80):
        what = chance.random()
        if what < 0.5:
            sender.send(int(500 * 1_500 ** chance.random()), chance.choice((1, 1, 1, 5)))
        elif what < 0.85:
            if sender.kept:
                sender.acknowledge(*chance.sample(list(sender.kept), chance.randint(1, min(len(sender.kept), 8))))
        elif what < 0.9:
            disk.others += int(max(0, disk.free) * chance.random() * chance.random())
        elif what < 0.93:
            disk.fill()
        elif what < 0.97:
            disk.others = int(disk.others * chance.random())
        else:
            sender.kill()
            sender.check()
    sender.check()
    sender.store.close()


def test_acknowledgements_are_written_after_others_have_filled_the_disk(disk: FullDisk) -> None:
    sender = Sender(disk)
    while sender.send(10_000):
        pass
    disk.fill()
    for number in list(sender.kept):
        sender.acknowledge(number)
        disk.fill()
    sender.check()
    assert not sender.kept
    disk.others = 0
    sender.store.tidy()
    assert sender.send(10_000)
    sender.store.close()


def test_messages_written_ahead_of_no_end_take_no_room_after_a_restart(disk: FullDisk) -> None:
    sender = Sender(disk)
    while sender.store.room > sender.store.full_below:
        batch = Batch(sender.store.next_batch)
        batch.add(1, message("ahead", body=os.urandom(20_000)).packed)
        sender.store.write(Write(sender.store.next_write, (), batch.id + 1, (batch,)), NOW)
        sender.store.tidy()
    sender.kill()
    sender.check()
    sender.store.tidy()
    assert sender.store.room > sender.store.full_below * 5 // 4, "an empty store accepts messages"
    sender.store.close()


@pytest.mark.parametrize("how", ["closed", "killed", "killed without a reserve"])
def test_a_store_opens_on_a_full_disk(disk: FullDisk, how: str) -> None:
    sender = Sender(disk)
    sender.send(1_000, count=10)
    if how == "closed":
        sender.store.close()
    else:
        if how != "killed":
            sender.store.relieve()
        killed = disk.folder.with_name("killed")
        shutil.copytree(disk.folder, killed)
        sender.store.close()
        disk.folder = killed
    disk.fill()
    assert disk.free == 0
    sender.store = sender._open()
    sender.check()
    for number in list(sender.kept):
        sender.acknowledge(number)
    sender.store.close()


def test_the_reserve_of_the_last_run_counts(disk: FullDisk) -> None:
    sender = Sender(disk)
    while sender.send(10_000):
        pass
    for number in list(sender.kept):
        sender.acknowledge(number)
    room = sender.store.room
    assert room > sender.store.full_below * 5 // 4
    sender.kill()
    assert sender.store.room > sender.store.full_below * 5 // 4
    sender.store.close()


def test_deleting_a_message_writes_little(disk: FullDisk) -> None:
    sender = Sender(disk)
    sender.send(300_000)
    log = disk.folder / "store.db-wal"
    sender.store._execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sender.acknowledge(*sender.kept)
    assert log.stat().st_size < 40 * PAGE_BYTES
    sender.store.close()
