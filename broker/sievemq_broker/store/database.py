"""The database of a store, as it is in the file: its tables, its mark, how to connect to it.

batch       id, envelopes of a batch (blob.py)
state       id, the outcome of them; only where the batch's row says something else
definition  kind, key, value; without a name the head: epoch, writes, next batch, name
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

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


class _Connection(sqlite3.Connection):
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
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}", uri=True, factory=_Connection,
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
