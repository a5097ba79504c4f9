"""The tables of namespaces and patterns in PostgreSQL; see :class:`~sievemq_broker.store.places.Places`.

A name is bytes, as all keys are: text in PostgreSQL has no NUL and no lone surrogates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from sievemq_broker.domain.journal import NAMESPACE
from sievemq_broker.domain.store import FencedError
from sievemq_broker.store.blob import pack_value
from sievemq_broker.store.lease import ShardSight
from sievemq_broker.store.postgres_connection import (
    Connection,
    check,
    check_cluster,
    connect,
    transaction,
    translated,
)
from sievemq_broker.store.postgres_leases import all_leases
from sievemq_broker.store.postgres_rows import encoded
from sievemq_broker.store_url import without_password

_R = TypeVar("_R")

_COUNT: Final = "SELECT count(*) FROM sievemq.namespace"
_FIND: Final = "SELECT name, shard FROM sievemq.namespace WHERE name = ANY (%s::bytea[])"
_STORED: Final = (
    "SELECT key, shard FROM sievemq.definition "
    "WHERE shard = ANY (%s::text[]) AND kind = %s AND key = ANY (%s::bytea[]) ORDER BY shard DESC"
)
_EXISTING: Final = "SELECT key, shard FROM sievemq.definition WHERE shard = ANY (%s::text[]) AND kind = %s"
_CLAIM: Final = (
    "INSERT INTO sievemq.namespace (name, shard) SELECT u.name, u.shard FROM unnest(%s::bytea[], %s::text[]) "
    "AS u (name, shard) ON CONFLICT (name) DO NOTHING"
)
_BRIEF: Final = "SET LOCAL idle_in_transaction_session_timeout = '1s'"  # a broker that is stopped holds up no takeover
#: Locks the head until the transaction ends, as a write does. Only when this is answered, the row is changed. So if an
#: answer is lost, another attempt, or a takeover, waits until the fate of this one is decided.
_FENCE: Final = "SELECT 1 FROM sievemq.head WHERE shard = %s AND token = %s FOR UPDATE"
_MOVE: Final = "UPDATE sievemq.namespace SET shard = %s WHERE name = %s AND shard = %s"
_NEW_PATTERN: Final = (
    "INSERT INTO sievemq.placement (position, pattern, shard) "
    "SELECT coalesce(max(position), 0) + 1, %s, %s FROM sievemq.placement"
)


class PostgresPlaces:
    """See :class:`~sievemq_broker.store.places.Places`. Connects when it must.

    Args:
        url: of the database, as libpq knows it.
        timeout: seconds for which a call waits for an answer of the database, half of the lease.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        self._connection: Connection | None = None

    def names(self, shard: str) -> list[str]:
        def read(connection: Connection) -> list[str]:
            rows = connection.execute("SELECT name FROM sievemq.namespace WHERE shard = %s", (shard,))
            return [_text(name) for (name,) in rows]

        return self._run(read)

    def all_names(self) -> dict[str, str]:
        def read(connection: Connection) -> dict[str, str]:
            found = _found(connection.execute("SELECT name, shard FROM sievemq.namespace"))
            rows = connection.execute(_EXISTING, ([*set(found.values())], encoded(NAMESPACE)))
            existing = {(bytes(key), shard) for key, shard in rows}
            return {name: shard for name, shard in found.items() if (_key(name), shard) in existing}

        return self._run(read)

    def count(self) -> int:
        return self._run(lambda connection: int(connection.execute(_COUNT).fetchall()[0][0]))

    def find(self, names: Sequence[str]) -> dict[str, str]:
        return self._run(lambda connection: _found(connection.execute(_FIND, ([encoded(name) for name in names],))))

    def stored(self, names: Sequence[str], shards: Sequence[str]) -> dict[str, str]:
        keys = {_key(name): name for name in names}

        def read(connection: Connection) -> dict[str, str]:
            found = connection.execute(_STORED, (sorted(shards), encoded(NAMESPACE), [*keys])).fetchall()
            return {keys[bytes(key)]: shard for key, shard in found}

        return self._run(read)

    def claim(self, wanted: Mapping[str, str]) -> dict[str, str]:
        # In the same order everywhere: two claims of several names do not wait for each other in a circle.
        rows = sorted((encoded(name), shard) for name, shard in wanted.items())
        names = [name for name, _ in rows]

        def claim(connection: Connection) -> dict[str, str]:
            with transaction(connection):
                connection.execute(_CLAIM, (names, [shard for _, shard in rows]))
            return _found(connection.execute(_FIND, (names,)))

        return self._run(claim)

    def move(self, name: str, shard: str, token: str, to: str) -> str:
        def move(connection: Connection) -> str:
            with transaction(connection):
                connection.execute(_BRIEF)
                if connection.execute(_FENCE, (shard, token)).fetchone() is None:
                    raise FencedError(f"another broker owns the shard {shard}: the namespace {name!r} stays in it")
                connection.execute(_MOVE, (to, encoded(name), shard))
                return _found(connection.execute(_FIND, ([encoded(name)],)))[name]

        return self._run(move)

    def patterns(self) -> list[tuple[str, str]]:
        def read(connection: Connection) -> list[tuple[str, str]]:
            rows = connection.execute("SELECT pattern, shard FROM sievemq.placement ORDER BY position")
            return [(_text(pattern), shard) for pattern, shard in rows]

        return self._run(read)

    def set_pattern(self, pattern: str, shard: str | None) -> None:
        row = encoded(pattern)

        def write(connection: Connection) -> None:
            with transaction(connection):
                connection.execute("LOCK TABLE sievemq.placement IN SHARE ROW EXCLUSIVE MODE")
                if shard is None:
                    connection.execute("DELETE FROM sievemq.placement WHERE pattern = %s", (row,))
                    return
                statement = "UPDATE sievemq.placement SET shard = %s WHERE pattern = %s"
                if not connection.execute(statement, (shard, row)).rowcount:
                    connection.execute(_NEW_PATTERN, (row, shard))

        self._run(write)

    def shards(self) -> list[ShardSight]:
        return self._run(lambda connection: all_leases(connection, 2 * self._timeout))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self, call: Callable[[Connection], _R]) -> _R:
        try:
            return call(self._connected())
        except BaseException as error:
            self.close()
            if isinstance(error, Exception):
                raise translated(error, self._url, "be asked where namespaces are") from error
            raise

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = self._connection = connect(self._url, timeout=self._timeout, application="sievemq placement")
            where = without_password(self._url)
            check(connection, where)
            check_cluster(connection, where, "", in_cluster=True)
        return self._connection


def _found(rows: Iterable[tuple[Any, ...]]) -> dict[str, str]:
    return {_text(name): shard for name, shard in rows}


def _key(name: str) -> bytes:
    """The key of the definition that says that a shard has a namespace."""
    return pack_value(b"", (name,))[4:]


def _text(name: bytes) -> str:
    return bytes(name).decode("utf-8", "surrogatepass")
