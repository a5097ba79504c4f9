"""The rows of a data directory, and of a backup: see :mod:`sievemq_broker.store.rows`.

A backup is one file, a database like that of a directory. It has a name of its own, so that no broker starts with it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sievemq_broker.domain.store import DamagedError, HistoryLine, HistoryPart, LockedError, StoreError
from sievemq_broker.store.blob import pack_value, unpack_value
from sievemq_broker.store.database import DATABASE, FORMAT, HEAD, PAGE_BYTES, SCHEMA, connect, create_tables
from sievemq_broker.store.errors import translated
from sievemq_broker.store.files import PRIVATE_DIRECTORY, Lock, Witness, open_private, sync_directory
from sievemq_broker.store.history import HISTORY, FileHistory
from sievemq_broker.store.rows import Found, Head, Kinds

#: Free bytes on a running broker's disk below which a backup ends, if they became fewer meanwhile: so many at least.
#: The broker itself counts a disk with so few as tight.
_FREE_BYTES: Final = 64 * 1024 * 1024
_SLACK_BYTES: Final = 1024 * 1024

#: The kind of the rows of a backup that have what has happened: a row for each kind of that. A directory has files.
_HISTORY: Final = "history"

#: Ends the name of a file that is being written.
_PART: Final = ".part"


class DatabaseRows:
    """Reads as much of a database as possible. No file is changed.

    Args:
        path: of a backup, or of the database in a directory.
        witness: of the directory.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, path: Path, witness: Witness | None = None) -> None:
        self._path = path
        self._witness = witness
        try:
            self._database = connect(path, read_only=True)
        except sqlite3.Error as error:
            raise translated(error, path, "be opened") from error

    def close(self) -> None:
        self._database.close()

    def head(self, found: Found) -> Head:
        is_readable = self._examine(found)
        for (version,) in self._all("PRAGMA user_version", found):
            if version > FORMAT:
                raise StoreError(f"{self._path} has format {version}; this version of SieveMQ reads {FORMAT} and older")
        schema = [row[0] for row in self._all("SELECT sql FROM sqlite_master ORDER BY rowid", found)]
        if is_readable and schema != list(SCHEMA):
            found(f"{self._path.name}: its tables are not those that SieveMQ creates", None)
        rows = self._all("SELECT data FROM definition WHERE kind = '' AND key = x''", found)
        data = rows[0][0] if rows else b""
        head = Head()
        try:
            head = Head(*unpack_value("the head of the store", HEAD, data)[:4])
        except (DamagedError, TypeError, ValueError) as error:
            found(str(error), data)
        return head._replace(writes=max(head.writes, self._witnessed(head, found)))

    def _examine(self, found: Found) -> bool:
        """Examine how pages are linked. False if nothing could be read."""
        checked = self._all("PRAGMA quick_check(50)", found)
        for (finding,) in checked:
            if finding != "ok":
                found(f"{self._path.name}: {finding}", None)
        return bool(checked)

    def _witnessed(self, head: Head, found: Found) -> int:
        """The number of writes that the witness has seen; 0 if there is none, or if it cannot be read."""
        if self._witness is None:
            return 0
        try:
            known = self._witness.read()
        except DamagedError as error:
            found(str(error), None)
            return 0
        if known is None and head.writes > 1:
            found("witness: missing", None)
        elif known is not None and known > head.writes > 0:
            lost = known - head.writes
            found(f"{self._path.name}-wal: the last {lost} of {known} writes that were made are lost", None)
        return known or 0

    def definitions(self, found: Found) -> Iterator[tuple[str, bytes, bytes]]:
        for kind, key, data in self._all("SELECT kind, key, data FROM definition", found):
            if kind not in ("", _HISTORY) or (kind == "" and key != b""):
                yield kind, key, data

    def history(self) -> Kinds:
        try:
            rows = self._database.execute("SELECT key, data FROM definition WHERE kind = ?", (_HISTORY,)).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path, "be read") from error
        return dict(_history_of(f"{self._path.name}: what has happened", key, data) for key, data in rows)

    def batches(self, found: Found) -> Iterator[tuple[int, bytes, bytes | Exception | None]]:
        for batch_id in self._ids(found):
            rows = self._all("SELECT data FROM batch WHERE id = ?", found, (batch_id,))
            if rows:
                yield batch_id, rows[0][0], self._state(batch_id)

    def _state(self, batch_id: int) -> bytes | Exception | None:
        try:
            row = self._database.execute("SELECT data FROM state WHERE id = ?", (batch_id,)).fetchone()
        except sqlite3.Error as error:
            return error
        return None if row is None else row[0]

    def _ids(self, found: Found) -> Iterator[int]:
        """Ids of batches, from both ends up to where the tree cannot be read."""
        yielded: set[int] = set()
        for order in ("ASC", "DESC"):
            try:
                for (batch_id,) in self._database.execute(f"SELECT id FROM batch ORDER BY id {order}"):  # noqa: S608
                    if batch_id in yielded:
                        break
                    yielded.add(batch_id)
                    yield batch_id
                else:
                    return
            except sqlite3.Error as error:
                found(f"{self._path.name}: the batches cannot all be found: {error}", None)

    def _all(self, statement: str, found: Found, values: tuple[object, ...] = ()) -> list[Any]:
        try:
            return list(self._database.execute(statement, values).fetchall())
        except (sqlite3.Error, UnicodeDecodeError) as error:
            found(f"{self._path.name}: {error}", None)
            return []


class DirectoryRows(DatabaseRows):
    """A directory that no broker uses, nor can use meanwhile.

    Raises:
        StoreError: there is no store, or a broker uses it.
    """

    def __init__(self, directory: Path) -> None:
        _expect_store(directory)
        self._directory = directory
        self._lock = Lock(directory / "lock")
        try:
            super().__init__(directory / DATABASE, Witness(directory / "witness"))
        except BaseException:
            self._lock.release()
            raise

    def history(self) -> Kinds:
        return FileHistory(self._directory).read()

    def release_files(self) -> None:
        """Close the database; the directory stays locked."""
        super().close()

    def close(self) -> None:
        super().close()
        self._lock.release()


class RunningRows(DatabaseRows):
    """A snapshot of a directory. Its broker may go on meanwhile, start, or end.

    The broker cannot use its log again until this is closed, so the log grows. Reading ends once that, or a backup on
    the same disk, would fill the disk. How pages are linked is not examined, for the broker's sake: it did that when it
    started, and the checksum of each row is checked.

    Raises:
        StoreError: there is no store.
    """

    def __init__(self, directory: Path) -> None:
        _expect_store(directory)
        self._directory = directory
        self._free = shutil.disk_usage(directory).free
        super().__init__(directory / DATABASE)
        try:
            self._database.execute("BEGIN")
            self._database.execute("SELECT 1 FROM sqlite_master").fetchone()  # what is read is fixed from now on
        except sqlite3.Error as error:
            self.close()
            raise translated(error, self._path, "be read") from error

    def _examine(self, found: Found) -> bool:
        return True

    def batches(self, found: Found) -> Iterator[tuple[int, bytes, bytes | Exception | None]]:
        for row in super().batches(found):
            self._expect_room()
            yield row

    def history(self) -> Kinds:
        return FileHistory(self._directory).read()

    def _expect_room(self) -> None:
        free = shutil.disk_usage(self._directory).free
        if free < _FREE_BYTES and free < self._free - _SLACK_BYTES:
            raise StoreError(
                f"{self._directory}: its disk has {free // 1024**2} MiB left, so the backup was given up: it and the "
                "log of a running broker take room. Make room, or name a file on another disk"
            )


def _expect_store(directory: Path) -> None:
    if not (directory / DATABASE).exists() and not (directory / "witness").exists():
        raise StoreError(f"{directory} contains no store")


class NewDatabase:
    """A new database.

    Args:
        path: does not exist yet.

    Raises:
        OSError, StoreError: it cannot be written, as each method.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        os.close(open_private(path))
        self._database = connect(path)
        try:
            self._database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            self._database.execute("BEGIN")
            create_tables(self._database)
        except sqlite3.Error as error:
            self.close()
            raise translated(error, path, "be written") from error

    def define(self, kind: str, key: bytes, data: bytes) -> None:
        self._execute("INSERT INTO definition VALUES (?, ?, ?)", (kind, key, data))

    def add(self, batch_id: int, data: bytes, state: bytes | None) -> None:
        self._execute("INSERT INTO batch VALUES (?, ?)", (batch_id, data))
        if state is not None:
            self._execute("INSERT INTO state VALUES (?, ?)", (batch_id, state))

    def keep(self, history: Kinds) -> None:
        for kind, lines in history.items():
            key = kind.encode()
            self.define(_HISTORY, key, pack_value(key, [tuple(line) for line in lines]))

    def finish(self, head: Head) -> None:
        self.define("", b"", pack_value(HEAD, (head.epoch or 0, *head[1:])))
        self._execute("COMMIT")
        self.close()

    def close(self) -> None:
        self._database.close()

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        try:
            self._database.execute(statement, values)
        except sqlite3.Error as error:
            raise translated(error, self._path, "be written") from error


class NewFile:
    """A backup that does not exist yet; see :class:`~sievemq_broker.store.rows.NewStore`. What an interrupted one has
    left has another name.

    Raises:
        StoreError: it exists, or another process writes it.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise StoreError(f"{path} exists already; name a new file")
        self._path, self._part = path, path.with_name(path.name + _PART)
        if self._part.exists() and _is_being_written(self._part):
            raise StoreError(f"{self._part} is being written by another process; wait for it, or name another file")
        self._remove()
        try:
            self._new = NewDatabase(self._part)
        except BaseException:
            self._remove()
            raise
        self.define, self.add, self.keep = self._new.define, self._new.add, self._new.keep

    def finish(self, head: Head) -> None:
        self._new.finish(head)
        self._part.rename(self._path)
        sync_directory(self._path.parent)

    def close(self) -> None:
        self._new.close()
        self._remove()

    def _remove(self) -> None:
        for suffix in ("", "-journal"):
            self._part.with_name(self._part.name + suffix).unlink(missing_ok=True)


def _is_being_written(path: Path) -> bool:
    """True if a process has begun to write a database, and lives. The database's own lock says so: it works wherever
    the database does."""
    try:
        with closing(connect(path)) as database:
            database.execute("PRAGMA busy_timeout = 0")
            database.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:  # what an interrupted one has left may be anything
        return (error.sqlite_errorcode & 0xFF) == sqlite3.SQLITE_BUSY
    return False


class NewDirectory:
    """A data directory that is empty, or does not exist; see :class:`~sievemq_broker.store.rows.NewStore`.

    Raises:
        StoreError: there is something in it, or a broker uses it.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        self._directory = directory
        self._parts: list[HistoryPart] = []
        try:
            self._lock = Lock(directory / "lock")
        except LockedError as error:
            raise StoreError(f"{str(error).partition(';')[0]}; name an empty directory") from error
        try:
            # What was interrupted before its end may be made anew. A store that has lost its database is none of it.
            ended = not (directory / (DATABASE + _PART)).exists()
            if (directory / DATABASE).exists() or (ended and (directory / "witness").exists()):
                raise StoreError(f"{directory} has a store already; name an empty directory")
            ours = {"lock", "lost+found", "witness", DATABASE + _PART, f"{DATABASE}{_PART}-journal"}
            ours |= set() if ended else {HISTORY}
            if others := sorted({each.name for each in directory.iterdir()} - ours):
                raise StoreError(f"{directory} is not empty, it contains {others[0]}; name an empty directory")
            self._file = NewFile(directory / DATABASE)
        except BaseException:
            self._lock.release()
            raise
        self.define, self.add = self._file.define, self._file.add

    def keep(self, history: Kinds) -> None:
        self._parts = [HistoryPart(kind, lines, 0, len(lines)) for kind, lines in history.items() if lines]

    def finish(self, head: Head) -> None:
        try:
            self._drop_history()  # of one that was interrupted
            if self._parts:
                FileHistory(self._directory, least_free=0).write(self._parts)
            write_witness(self._directory, head.writes)
            self._file.finish(head)
        except BaseException:
            (self._directory / "witness").unlink(missing_ok=True)
            self._drop_history()
            raise

    def _drop_history(self) -> None:
        shutil.rmtree(self._directory / HISTORY, ignore_errors=True)

    def close(self) -> None:
        self._file.close()
        self._lock.release()


def _history_of(what: str, key: bytes, data: object) -> tuple[str, list[HistoryLine]]:
    """The kind and the lines of a row of a backup.

    Raises:
        DamagedError: it is no such row; `what` names it.
    """
    value = unpack_value(what, key, data)
    try:
        kind, lines = key.decode(), [HistoryLine(number, text) for number, text in value]
    except (TypeError, ValueError) as error:
        raise DamagedError(f"{what}: {key!r}: {error}") from error
    if not all(type(line.id) is int and type(line.text) is bytes for line in lines):
        raise DamagedError(f"{what}: {key!r}: it has something else than numbers with their texts")
    return kind, lines


def write_witness(directory: Path, writes: int) -> None:
    witness = Witness(directory / "witness")
    witness.open(writes)
    witness.close()
