"""The database of a store, as it is in the file: its tables, its mark, how to connect to it, how rows are changed.

batch       id, envelopes of a batch (blob.py)
state       id, the outcome of them; only where the batch's row says something else
definition  kind, key, value; without a name the head: epoch, writes, next batch, name
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from sievemq_broker.store.batches import Change

#: Version of everything in the directory. A newer one is refused; older ones would be converted here.
FORMAT: Final = 1

DATABASE: Final = "store.db"

#: "SvMQ": the mark by which file(1) and this module recognise the database.
APPLICATION_ID: Final = 0x53764D51

#: A single message writes two or three pages, and what a sync takes grows with their bytes: with 4 KiB half as long
#: again. Large batches hardly notice.
PAGE_BYTES: Final = 2_048

SCHEMA: Final = (
    "CREATE TABLE batch (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE state (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE definition (kind TEXT, key BLOB, data BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID",
)

#: What the head's checksum covers beside its value.
HEAD: Final = b"head"

#: Rows that one statement writes or deletes; of batches, rows of about so many bytes. Each statement releases the
#: interpreter's lock, and beside a busy loop the writer waits for it afterwards.
TOGETHER: Final = 100
_TOGETHER_BYTES: Final = 1024 * 1024

_T = TypeVar("_T")


class _SqliteConnection(sqlite3.Connection):
    """Reads text with lone surrogates, as names from clients may have them."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.text_factory = lambda data: data.decode("utf-8", "surrogatepass")


def connect(path: Path, *, read_only: bool = False) -> Any:
    """A connection to the database, whose user begins and ends transactions explicitly.

    Args:
        read_only: leave all files as they are, the log too.
    """
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}", uri=True, factory=_SqliteConnection,
        isolation_level=None, check_same_thread=False, timeout=1.0, cached_statements=64,
    )  # fmt: skip


def create_tables(database: Any) -> None:
    """Make the tables, and mark the file. The caller begins and ends the transaction."""
    for statement in SCHEMA:
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {FORMAT}")


def definition_id(kind: str, key: bytes) -> bytes:
    """The bytes that a definition's checksum covers besides its value."""
    return kind.encode("utf-8", "surrogatepass") + b"\0" + key


class SqliteRows:
    """The rows of batches and of their states, in a transaction of the caller's.

    Args:
        database: the connection.
    """

    __slots__ = ("_execute",)

    def __init__(self, database: Any) -> None:
        self._execute = database.execute

    def batches(self) -> Iterable[tuple[int, bytes, bytes | None]]:
        query = "SELECT batch.id, batch.data, state.data FROM batch LEFT JOIN state USING (id) ORDER BY id"
        return self._execute(query)  # type: ignore[no-any-return]

    def orphan(self) -> int | None:
        row = self._execute("SELECT id FROM state WHERE id NOT IN (SELECT id FROM batch) LIMIT 1").fetchone()
        return None if row is None else row[0]

    def batch(self, batch_id: int) -> bytes | None:
        row = self._execute("SELECT data FROM batch WHERE id = ?", (batch_id,)).fetchone()
        return None if row is None else row[0]

    def state(self, batch_id: int) -> bytes | None:
        row = self._execute("SELECT data FROM state WHERE id = ?", (batch_id,)).fetchone()
        return None if row is None else row[0]

    def apply(self, change: Change) -> None:
        for ids in _groups(change.gone):
            self._delete("batch", ids)
            self._delete("state", ids)
        for ids in _groups(change.plain):
            self._delete("state", ids)
        for states in _groups(change.states):
            self._insert("INSERT OR REPLACE INTO state", states)
        rows: list[tuple[int, bytes]] = []
        size = 0
        for own, row in change.batches:
            rows.append((own, row))
            size += len(row)
            if len(rows) == TOGETHER or size >= _TOGETHER_BYTES:
                self._insert("INSERT INTO batch", rows)
                rows, size = [], 0
        if rows:
            self._insert("INSERT INTO batch", rows)
        for own, row in change.rewritten:
            self._execute("UPDATE batch SET data = ? WHERE id = ?", (row, own))

    def _insert(self, into: str, rows: list[tuple[int, bytes]]) -> None:
        places = ", ".join(["(?, ?)"] * len(rows))
        self._execute(f"{into} VALUES {places}", [value for row in rows for value in row])

    def _delete(self, table: str, ids: list[int]) -> None:
        places = ", ".join("?" * len(ids))
        self._execute(f"DELETE FROM {table} WHERE id IN ({places})", ids)  # noqa: S608


def _groups(items: Iterable[_T]) -> Iterator[list[_T]]:
    """What one statement takes at a time."""
    rest = iter(items)
    while group := list(islice(rest, TOGETHER)):
        yield group
