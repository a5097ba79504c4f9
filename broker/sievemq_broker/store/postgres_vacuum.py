"""Vacuums the tables of a shard by the bytes that its owner has deleted: autovacuum looks once a minute, and by then
there would be many times as much room without rows as with them."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

import psycopg

from sievemq_broker import logs
from sievemq_broker.store.postgres_connection import Connection, connect, translated
from sievemq_broker.store.postgres_tables import BUSY

#: Bytes of deleted rows after which the tables are vacuumed, at least, and as a part of their size: an index is read as
#: a whole. And seconds for which that may take.
VACUUM_BYTES: Final = 32 * 1024 * 1024
_VACUUM_PART: Final = 4
_VACUUM_SECONDS: Final = 3600.0

#: The age of a snapshot, in seconds, from which it is reported: no row that it may see is ever vacuumed.
_OLD_SECONDS: Final = 600

log = logs.get("store")


class Vacuum:
    """Works in a thread of its own, over a connection of its own.

    Attributes:
        size: bytes of the tables, when they were measured last.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._freed = 0
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._ended = False
        self._reported = ""
        self.size = 0

    def freed(self, size: int) -> None:
        self._freed += size

    def begin(self) -> None:
        if self._freed < max(VACUUM_BYTES, self.size // _VACUUM_PART):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._freed = 0
        self._thread = threading.Thread(target=self._run, name="sievemq-vacuum", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended = True
        connection = self._connection
        if connection is not None:
            with suppress(psycopg.Error):  # it may have ended meanwhile
                connection.cancel_safe(timeout=1.0)
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        try:
            with connect(self._url, timeout=_VACUUM_SECONDS, application="sievemq vacuum") as connection:
                self._connection = connection
                for table in BUSY:
                    if self._ended:
                        return
                    connection.execute(f"VACUUM (TRUNCATE off) sievemq.{table}")
                self.measure(connection)
                if connection.warnings:  # of a role that does not own the tables
                    self._failed(connection.warnings[0])
        except Exception as error:
            if not self._ended:
                self._failed(str(translated(error, self._url, "be vacuumed")))
        finally:
            self._connection = None

    def _failed(self, reason: str) -> None:
        if reason != self._reported:
            self._reported = reason
            log.warning("store.vacuum_failed", reason=reason, note="autovacuum does it, later")

    def measure(self, connection: Connection) -> None:
        """Read how large the tables are, and report a transaction that keeps deleted rows."""
        sizes = " + ".join(f"pg_total_relation_size('sievemq.{table}')" for table in BUSY)
        row = connection.execute(f"SELECT {sizes}").fetchone()
        self.size = 0 if row is None else row[0]
        oldest = connection.execute(
            "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float8 FROM pg_stat_activity "
            "WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1"
        ).fetchone()
        if oldest is not None and (oldest[1] or 0) >= _OLD_SECONDS:
            log.warning(
                "store.old_snapshot",
                backend=oldest[0],
                seconds=round(oldest[1]),
                note="rows that were deleted since take room until this transaction ends",
            )
