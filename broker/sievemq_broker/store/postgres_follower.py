"""The batches of a shard in PostgreSQL, for a follower (:mod:`sievemq_broker.store.follower`), over a connection of its
own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from sievemq_broker.store.follower import Seal
from sievemq_broker.store.postgres_connection import Connection, check, connect, translated
from sievemq_broker.store.postgres_rows import PostgresRows
from sievemq_broker.store_url import without_password

T = TypeVar("T")


class PostgresListing:
    """See :class:`~sievemq_broker.store.follower.Listing`. Connects when it must.

    Args:
        url: of the database, as libpq knows it.
        shard: name of the shard.
        timeout: seconds for which a call waits for its answer.
    """

    def __init__(self, url: str, shard: str, *, timeout: float = 2.0) -> None:
        self._url, self._shard, self._timeout = url, shard, timeout
        self._connection: Connection | None = None

    def last_write(self) -> int:
        return self._read(PostgresRows.last_write)

    def listed(self, after: int, count: int) -> list[tuple[int, int]]:
        return self._read(lambda rows: rows.listed(after, count))

    def rows(self, ids: Sequence[int]) -> Iterator[tuple[int, Seal, bytes]]:
        return iter(self._read(lambda rows: list(rows.rows(ids))))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _read(self, read: Callable[[PostgresRows], T]) -> T:
        try:
            return read(PostgresRows(self._connected(), self._shard))
        except Exception as error:
            self.close()
            raise translated(error, self._url, "be followed") from error

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = connect(self._url, timeout=self._timeout, application=f"sievemq {self._shard} follower")
            try:
                check(connection, without_password(self._url))
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection
