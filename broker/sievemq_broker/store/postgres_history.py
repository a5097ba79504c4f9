"""Rows of a history in PostgreSQL, over a connection of its own: the next owner of the shard goes on with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sievemq_broker.domain.store import HistoryLine, HistoryPart
from sievemq_broker.store.postgres_connection import Connection, connect, transaction, translated

_READ = "SELECT kind, id, data FROM sievemq.history WHERE shard = %s ORDER BY kind, id"
_INSERT = (
    "INSERT INTO sievemq.history (shard, kind, id, data) SELECT %s, %s, u.id, u.data "
    "FROM unnest(%s::bigint[], %s::text[]) AS u (id, data) ON CONFLICT DO NOTHING"
)
_DELETE = "DELETE FROM sievemq.history WHERE shard = %s AND kind = %s AND id < %s"


class PostgresHistory:
    """See :class:`~sievemq_broker.domain.store.HistoryStore`. Connects when it must.

    Args:
        url: of the database, as libpq knows it.
        shard: name of the shard.
        timeout: seconds for which a call waits for its answer.
    """

    def __init__(self, url: str, shard: str, *, timeout: float) -> None:
        self._url, self._shard, self._timeout = url, shard, timeout
        self._connection: Connection | None = None

    def read(self) -> Mapping[str, Sequence[HistoryLine]]:
        found: dict[str, list[HistoryLine]] = {}
        try:
            for kind, number, text in self._connected().execute(_READ, (self._shard,)):
                found.setdefault(kind, []).append(HistoryLine(number, text.encode()))
        except Exception as error:
            self.close()
            raise translated(error, self._url, "be read for its history") from error
        return found

    def write(self, parts: Sequence[HistoryPart]) -> None:
        try:
            connection = self._connected()
            with transaction(connection):
                # It need not be on disk when this returns, and does not wait for a standby.
                connection.execute("SET LOCAL synchronous_commit = off")
                for kind, lines, oldest, _ in parts:
                    ids, texts = [line.id for line in lines], [line.text.decode() for line in lines]
                    connection.execute(_INSERT, (self._shard, kind, ids, texts))
                    connection.execute(_DELETE, (self._shard, kind, oldest))
        except Exception as error:
            self.close()
            raise translated(error, self._url, "be written for its history") from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        if self._connection is None:
            name = f"sievemq {self._shard} history"
            self._connection = connect(self._url, timeout=self._timeout, application=name)
        return self._connection
