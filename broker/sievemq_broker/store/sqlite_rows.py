"""The rows of a data directory: see :mod:`sievemq_broker.store.rows`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sievemq_broker.domain.store import DamagedError, StoreError
from sievemq_broker.store.blob import pack_value, unpack_value
from sievemq_broker.store.database import DATABASE, HEAD, PAGE_BYTES, SCHEMA, connect, create_tables
from sievemq_broker.store.files import PRIVATE_DIRECTORY, Lock, Witness, open_private
from sievemq_broker.store.rows import Found, Head


class DirectoryRows:
    """Reads as much of a directory as possible. No file is changed.

    Raises:
        StoreError: there is no store, or a broker uses it.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / DATABASE
        if not self._path.exists() and not (directory / "witness").exists():
            raise StoreError(f"{directory} contains no store")
        self._lock = Lock(directory / "lock")
        self._witness = Witness(directory / "witness")
        try:
            self._database = connect(self._path, read_only=True)
        except BaseException:
            self._lock.release()
            raise

    def release_files(self) -> None:
        """Close the database; the directory stays locked."""
        self._database.close()

    def close(self) -> None:
        self._database.close()
        self._lock.release()

    def head(self, found: Found) -> Head:
        checked = self._all("PRAGMA quick_check(50)", found)
        for (finding,) in checked:
            if finding != "ok":
                found(f"{self._path.name}: {finding}", None)
        schema = [row[0] for row in self._all("SELECT sql FROM sqlite_master ORDER BY rowid", found)]
        if checked and schema != list(SCHEMA):
            found(f"{self._path.name}: its tables are not those that SieveMQ creates", None)
        rows = self._all("SELECT data FROM definition WHERE kind = '' AND key = x''", found)
        data = rows[0][0] if rows else b""
        head = Head()
        try:
            head = Head(*unpack_value("the head of the store", HEAD, data)[:4])
        except (DamagedError, TypeError, ValueError) as error:
            found(str(error), data)
        return head._replace(writes=max(head.writes, self._witnessed(head, found)))

    def _witnessed(self, head: Head, found: Found) -> int:
        """The number of writes that the witness has seen; 0 if it cannot be read."""
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
            if kind != "" or key != b"":
                yield kind, key, data

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


class NewDatabase:
    """The database of a data directory, without its witness.

    Args:
        path: does not exist yet.
    """

    def __init__(self, path: Path) -> None:
        os.close(open_private(path))
        self._database = connect(path)
        self._database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._database.execute("BEGIN")
        create_tables(self._database)

    def define(self, kind: str, key: bytes, data: bytes) -> None:
        self._database.execute("INSERT INTO definition VALUES (?, ?, ?)", (kind, key, data))

    def add(self, batch_id: int, data: bytes, state: bytes | None) -> None:
        self._database.execute("INSERT INTO batch VALUES (?, ?)", (batch_id, data))
        if state is not None:
            self._database.execute("INSERT INTO state VALUES (?, ?)", (batch_id, state))

    def finish(self, head: Head) -> None:
        self.define("", b"", pack_value(HEAD, (head.epoch or 0, *head[1:])))
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


class NewDirectory:
    """A data directory that has no store yet; see :class:`~sievemq_broker.store.rows.NewStore`.

    Raises:
        StoreError: there is a store, or a broker uses it.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        self._path = directory / DATABASE
        self._lock = Lock(directory / "lock")
        try:
            if self._path.exists() or (directory / "witness").exists():
                raise StoreError(f"{directory} has a store already; name an empty directory")
            self._new: NewDatabase | None = NewDatabase(self._path)
        except BaseException:
            self._lock.release()
            raise
        self.define, self.add = self._new.define, self._new.add

    def finish(self, head: Head) -> None:
        assert self._new is not None
        self._new.finish(head)
        self._new.close()
        self._new = None
        write_witness(self._path.parent, head.writes)

    def close(self) -> None:
        if self._new is not None:  # not finished
            self._new.close()
            for name in (DATABASE, f"{DATABASE}-journal"):
                (self._path.parent / name).unlink(missing_ok=True)
        self._lock.release()


def write_witness(directory: Path, writes: int) -> None:
    witness = Witness(directory / "witness")
    witness.open(writes)
    witness.close()
