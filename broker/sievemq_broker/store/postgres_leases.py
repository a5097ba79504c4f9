"""The lease of a shard, as a row in PostgreSQL; see :class:`~sievemq_broker.store.lease.Leases`.

The row has no time in it, and no two clocks are compared. A follower counts for how long the row stands still by its
own clock, over one connection to one server: a server that was restarted or promoted may lack the last beats, so it
begins the count again. Behind PgBouncer a connection may lead to another server without notice; so the server's start
and time line are read with the row.
"""

from __future__ import annotations

import time
from typing import Any, Final

import psycopg

from sievemq_broker.domain.store import AwayError, StoreError
from sievemq_broker.store.lease import Owner, ShardSight, Sight
from sievemq_broker.store.postgres_connection import (
    Connection,
    check,
    check_cluster,
    connect,
    end_writer,
    transaction,
    translated,
)
from sievemq_broker.store_url import without_password

#: How often a taker that meets the lock of a write ends it.
_ATTEMPTS: Final = 3

_SERVER: Final = (
    "extract(epoch FROM pg_postmaster_start_time())::text, "
    "CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
)

#: Other processes that keep an eye on the lease: their connections have this name, of which the server keeps 63
#: characters, and are used twice in a beat. The server keeps a connection whose machine has lost power or its network,
#: for two hours as servers are set usually.
_FOLLOWERS: Final = (
    "(SELECT count(*) FROM pg_stat_activity a WHERE a.application_name = left('sievemq ' || l.shard || ' lease', 63) "
    "AND a.pid <> pg_backend_pid() AND a.datname = current_database() "
    "AND coalesce(a.state_change > clock_timestamp() - %(seconds)s * interval '1 second', true))"
)

#: Seconds without a look after which a process follows no more; the lease, if that is longer.
_SILENT_SECONDS: Final = 10.0

#: What an owner has written about itself, as :class:`Owner`.
_OWNER: Final = "l.name, l.url, l.address, l.settings, l.http_url, l.ports"

_LOOK: Final = (
    f"SELECT l.token, l.beat, l.released, l.heir, h.epoch, {_OWNER}, "  # noqa: S608
    "coalesce((SELECT w.n FROM sievemq.written w WHERE w.shard = l.shard ORDER BY w.n DESC LIMIT 1), 0), "
    f"extract(epoch FROM clock_timestamp())::float8, pg_backend_pid(), {_FOLLOWERS}, {_SERVER} "
    "FROM sievemq.lease l JOIN sievemq.head h ON h.shard = l.shard WHERE l.shard = %(shard)s"
)

_ALL: Final = (
    f"SELECT l.shard, l.token <> '' AND NOT l.released, h.epoch, pg_backend_pid(), {_FOLLOWERS}, {_OWNER} "  # noqa: S608
    "FROM sievemq.lease l JOIN sievemq.head h ON h.shard = l.shard ORDER BY l.shard"
)

#: A beat that a crash of the server loses is as good as none, since followers begin to count anew. So it need not be on
#: stable storage.
_BEAT: Final = (
    "WITH s AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)) "
    "UPDATE sievemq.lease SET beat = beat + 1 FROM s WHERE shard = %s AND token = %s AND NOT released RETURNING heir"
)

_TAKE: Final = (
    "UPDATE sievemq.lease SET token = %(token)s, beat = beat + 1, released = false, name = %(name)s, url = %(url)s, "
    "address = %(address)s, settings = %(settings)s, http_url = %(http_url)s, ports = %(ports)s, backend = 0, "
    "heir = '' WHERE shard = %(shard)s "
    "AND (token = %(token)s OR token = %(seen)s AND beat = %(beat)s AND released = %(released)s)"
)


def all_leases(connection: Connection, lease: float) -> list[ShardSight]:
    """The shards of a database, by name, in one look that does not count as one of a follower.

    Args:
        lease: its seconds.
    """
    found = []
    rows = connection.execute(_ALL, {"seconds": max(_SILENT_SECONDS, lease)}).fetchall()
    for shard, is_owned, epoch, backend, watching, *of_owner in rows:
        # The owner's connection is one of them. Behind PgBouncer those of clients are not those of the server.
        counted = watching if backend == connection.info.backend_pid else None
        owner = Owner(*of_owner) if is_owned and counted != 0 else None
        followers = counted if counted is None or owner is None else counted - 1
        found.append(ShardSight(shard, owner, epoch, followers))
    return found


class PostgresLeases:
    """See :class:`~sievemq_broker.store.lease.Leases`.

    Args:
        url: of the database, as libpq knows it.
        shard: name of the shard.
        timeout: seconds for which a call waits for an answer, half of the lease. It connects, too, if it must.
        in_cluster: whether the broker knows of several shards, which must fit the database; None to not check that.
    """

    def __init__(self, url: str, shard: str, *, timeout: float = 2.0, in_cluster: bool | None = None) -> None:
        self._url, self._shard, self._timeout = url, shard, timeout
        self._in_cluster = in_cluster
        self.where = without_password(url)
        self._name = f"sievemq {shard} lease"
        self._silent = max(_SILENT_SECONDS, 2 * timeout)
        self._connection: Connection | None = None
        self._view = 0
        #: Start and time line of the server that the view is of; the database, and the highest time line of it.
        self._server: tuple[str, str] = ("", "")
        self._database = self._line = ""

    def look(self) -> Sight:
        """Read the row. It is made if there is none."""
        try:
            connection = self._connected()
            before = time.time()
            wanted = {"shard": self._shard, "seconds": self._silent}
            row = connection.execute(_LOOK, wanted).fetchone()
            if row is None:
                self._make(connection)
                before = time.time()
                row = connection.execute(_LOOK, wanted).fetchone()
            after = time.time()
            assert row is not None
            token, beat, released, heir, epoch, *of_owner, writes, clock, backend, followers, started, line = row
            # Behind PgBouncer the connections of clients are not those of the server.
            counted = followers if backend == connection.info.backend_pid else None
            self._check_server((started, line))
            owner = Owner(*of_owner) if token else None
            offset = (before + after) / 2 - clock
            return Sight(token, beat, released, epoch, owner, writes, self._view, offset, heir, counted)
        except BaseException as error:
            raise self._failed(error, "be read") from error

    def take(self, seen: Sight, token: str, owner: Owner) -> bool:
        """Become the owner, if the row is as it was seen, over the connection that showed it."""
        connection = self._connection
        if connection is None or connection.closed or seen.view != self._view:
            return False
        try:
            for _ in range(_ATTEMPTS):
                try:
                    with transaction(connection):
                        return self._take(connection, seen, token, owner)
                except psycopg.errors.LockNotAvailable:
                    end_writer(connection, self._shard)
            raise AwayError(f"{self.where}: a write of the former owner of the shard {self._shard} does not end")
        except BaseException as error:
            raise self._failed(error, "be taken over") from error

    def _take(self, connection: Connection, seen: Sight, token: str, owner: Owner) -> bool:
        server = connection.execute(f"SELECT {_SERVER}").fetchone()
        if server != self._server:
            return False
        row = {"shard": self._shard, "token": token, "seen": seen.token, "beat": seen.beat, "released": seen.released}
        if not connection.execute(_TAKE, row | owner._asdict()).rowcount:
            return False
        # A repeated attempt, whose answer was lost, counts once.
        connection.execute(
            "UPDATE sievemq.head SET token = %s, epoch = epoch + (token <> %s)::int WHERE shard = %s",
            (token, token, self._shard),
        )
        return True

    def ask(self, seen: Sight, token: str) -> bool:
        """Ask the owner to hand the shard over. False: another owner has it by now, or it was released."""
        statement = "UPDATE sievemq.lease SET heir = %s WHERE shard = %s AND token = %s AND NOT released RETURNING 1"
        return bool(self._update(statement, (token, self._shard, seen.token), "be written"))

    def beat(self, token: str) -> str | None:
        """Raise the beat. Returns the follower that has asked for the shard; None if another token owns the row."""
        rows = self._update(_BEAT, (self._shard, token), "be written")
        return rows[0][0] if rows else None

    def release(self, token: str) -> None:
        """Give the shard up, unless another token owns it by now."""
        statement = (
            "UPDATE sievemq.lease SET released = true, beat = beat + 1 WHERE shard = %s AND token = %s RETURNING 1"
        )
        self._update(statement, (self._shard, token), "be released")

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _update(self, statement: str, values: tuple[Any, ...], doing: str) -> list[Any]:
        try:
            return self._connected().execute(statement, values).fetchall()
        except BaseException as error:
            raise self._failed(error, doing) from error

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = connect(self._url, timeout=self._timeout, application=self._name)
            try:
                database = check(connection, self.where)
                if self._in_cluster is not None:
                    check_cluster(connection, self.where, self._shard, self._in_cluster)
                if self._database not in ("", database):
                    raise StoreError(f"{self.where} is another database than before")
            except BaseException:
                connection.close()
                raise
            self._connection, self._database = connection, database
            self._view += 1
        return self._connection

    def _check_server(self, server: tuple[str, str]) -> None:
        """Another server, or another start of it, is another view.

        Raises:
            AwayError: it is a replica, or a primary of the past.
        """
        line = server[1]
        if not line:
            raise AwayError(f"{self.where} is a replica")
        if line < self._line:
            raise AwayError(f"{self.where} is a primary of the past: time line {line}, after {self._line}")
        if server != self._server:
            self._view += 1
        self._server, self._line = server, line

    def _make(self, connection: Connection) -> None:
        """Make the rows of a new shard. They are those of a shard that was released: it can be taken at once."""
        with transaction(connection):
            connection.execute(
                "INSERT INTO sievemq.lease VALUES (%s, '', 0, true, '', '', '', '', 0) ON CONFLICT DO NOTHING",
                (self._shard,),
            )
            connection.execute("INSERT INTO sievemq.head VALUES (%s, '', 0, '') ON CONFLICT DO NOTHING", (self._shard,))

    def _failed(self, error: BaseException, doing: str) -> BaseException:
        self.close()
        return translated(error, self._url, doing) if isinstance(error, Exception) else error
