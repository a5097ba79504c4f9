"""What ``sievemq store`` does with a database: makes its tables, reads the rows of a shard, writes a new shard."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sievemq_broker.domain.store import HistoryLine, LockedError, StoreError
from sievemq_broker.store.postgres_connection import check, connect, translated
from sievemq_broker.store.postgres_rows import PostgresRows, encoded
from sievemq_broker.store.postgres_tables import ADDED, FORMAT, PIECE_BYTES, STATEMENTS
from sievemq_broker.store.rows import Found, Head, Kinds
from sievemq_broker.store_url import without_password

#: Seconds that one statement may take.
_TIMEOUT: Final = 300.0

#: Rows that are written together.
_ROWS: Final = 64

#: Seconds for which the beat of an owner is watched, and between two looks at it.
_WATCHED, _PAUSE = 5.0, 0.25

#: What the broker's role may do. It makes no tables.
_GRANTS: Final = (
    "GRANT USAGE ON SCHEMA sievemq TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sievemq TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sievemq TO {role}",
)

#: The tables of a database, their columns and indexes.
_THERE: Final = (
    "SELECT c.relname, c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
    "WHERE c.relnamespace = to_regnamespace('sievemq') AND c.relkind IN ('r', 'i')"
)

#: What roles beside the owner may do with the tables.
_GRANTED: Final = (
    "SELECT g.privilege_type, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END "
    "FROM pg_class c, aclexplode(c.relacl) g WHERE c.oid = 'sievemq.head'::regclass AND g.grantee <> c.relowner"
)


class _Database:
    """A connection for one command.

    Raises:
        StoreError: the database cannot be reached.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.where = without_password(url)
        self.connection = connect(url, timeout=_TIMEOUT, application="sievemq store")

    def run(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Execute a statement; returns its rows."""
        try:
            cursor = self.connection.execute(statement, values or None, binary=True)
            return [] if cursor.description is None else cursor.fetchall()
        except Exception as error:
            raise self.translated(error) from error

    def write(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        """Execute a statement for each row."""
        try:
            with self.connection.cursor() as cursor:
                cursor.executemany(statement, rows)
        except Exception as error:
            raise self.translated(error) from error

    def translated(self, error: Exception) -> Exception:
        return translated(error, self._url, "carry out what was asked")

    def expect_tables(self) -> None:
        """Raise if there are no tables, or others than those of this version.

        Raises:
            StoreError: it says what to do.
        """
        try:
            check(self.connection, self.where)
        except Exception as error:
            raise self.translated(error) from error

    def lacks(self) -> list[str]:
        """What was added to the tables since they were made."""
        there = {name for row in self.run(_THERE) for name in row}
        return [name for name in ADDED if name not in there]

    @property
    def has_tables(self) -> bool:
        return bool(self.run("SELECT to_regclass('sievemq.format') IS NOT NULL")[0][0])

    def close(self) -> None:
        """Close the connection; what was begun and not committed is undone."""
        self.connection.close()


def statements(role: str | None = None) -> list[str]:
    """The SQL that makes the tables.

    Args:
        role: of the broker, if it is not the one that runs this.
    """
    return [*STATEMENTS, *(grant.format(role='"' + role.replace('"', '""') + '"') for grant in _GRANTS if role)]


def make_tables(url: str, role: str | None = None) -> list[str] | None:
    """Make the tables.

    Returns:
        None; if they were there already, what :func:`migrate` would add.

    Raises:
        StoreError: they cannot be made.
    """
    database = _Database(url)
    try:
        if database.has_tables:
            database.expect_tables()
            return database.lacks()
        database.run("BEGIN")
        for statement in statements(role):
            database.run(statement)
        database.run("COMMIT")
        return None
    finally:
        database.close()


def finalize(url: str) -> int:
    """Refuse brokers of versions before this one: none is left.

    Returns:
        The format of the tables from now on.

    Raises:
        StoreError: there are no tables, or they must be migrated first.
    """
    database = _Database(url)
    try:
        database.expect_tables()
        database.run("BEGIN")
        database.run("UPDATE sievemq.format SET oldest = greatest(oldest, %s)", (FORMAT,))
        database.run("COMMIT")
        return FORMAT
    finally:
        database.close()


def migrate(url: str) -> list[str]:
    """Add what this version has in the tables beside those that there are.

    Returns:
        What was added.

    Raises:
        StoreError: there are no tables, or they are newer, or they cannot be changed.
    """
    database = _Database(url)
    try:
        database.expect_tables()
        added = database.lacks()
        if added:
            database.run("BEGIN")
            database.run("SET LOCAL lock_timeout = '5s'")  # a column waits for all who use its table, and they for it
            for name in added:
                database.run(ADDED[name])
            for right, role in database.run(_GRANTED):
                for table in [name for name in added if ADDED[name].startswith("CREATE TABLE")]:
                    database.run(f"GRANT {right} ON sievemq.{table} TO {role}")
            database.run("COMMIT")
        return added
    finally:
        database.close()


class ShardRows:
    """A snapshot of a shard. Its broker may go on meanwhile.

    Args:
        unused: refuse a shard whose owner lives. This takes some seconds, unless the owner has released it.

    Raises:
        LockedError: its owner lives.
        StoreError: there is none.
    """

    def __init__(self, url: str, shard: str, *, unused: bool = False) -> None:
        self._shard = shard
        self._database = _Database(url)
        try:
            self._database.expect_tables()
            if unused:
                self._watch()
            self._database.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            heads = self._database.run("SELECT epoch, incarnation FROM sievemq.head WHERE shard = %s", (shard,))
            if not heads:
                raise StoreError(f"{self._database.where} contains no shard {shard}")
            self._epoch, self._incarnation = heads[0]
        except BaseException:
            self._database.close()
            raise

    def _watch(self) -> None:
        """Raise if the beat of an owner grows."""
        end, before = time.monotonic() + _WATCHED, None
        while True:
            rows = self._database.run(
                "SELECT token, beat, name FROM sievemq.lease WHERE shard = %s AND NOT released", (self._shard,)
            )
            if not rows:
                return
            token, beat, name = rows[0]
            if before not in (None, (token, beat)):
                raise LockedError(f"{self._database.where}: the shard {self._shard} is in use by {name}; stop it first")
            if time.monotonic() >= end:
                return
            before = token, beat
            time.sleep(_PAUSE)

    def close(self) -> None:
        self._database.close()

    def head(self, found: Found) -> Head:
        rows = self._database.run("SELECT n, next_batch FROM sievemq.written WHERE shard = %s", (self._shard,))
        if len(rows) > 1:
            found(f"the shard {self._shard} has {len(rows)} last writes", None)
        writes, next_batch = max(rows, default=(0, 1))
        return Head(self._epoch, writes, next_batch, self._incarnation)

    def definitions(self, found: Found) -> Iterator[tuple[str, bytes, bytes]]:
        for kind, key, data in self._database.run(
            "SELECT kind, key, data FROM sievemq.definition WHERE shard = %s ORDER BY kind, key", (self._shard,)
        ):
            try:
                yield kind.decode("utf-8", "surrogatepass"), key, data
            except UnicodeDecodeError as error:
                found(f"the definition of {kind!r} {key!r}: {error}", data)

    def history(self) -> Kinds:
        found: dict[str, list[HistoryLine]] = {}
        if "history" in self._database.lacks():
            return found
        for kind, number, text in self._database.run(
            "SELECT kind, id, data FROM sievemq.history WHERE shard = %s ORDER BY kind, id", (self._shard,)
        ):
            found.setdefault(kind, []).append(HistoryLine(number, text.encode()))
        return found

    def batches(self, found: Found) -> Iterator[tuple[int, bytes, bytes | Exception | None]]:
        rows = PostgresRows(self._database.connection, self._shard)
        try:
            for batch_id, row, state in rows.batches():
                assert isinstance(row, bytes)  # read from the table: there is no follower
                yield batch_id, row, state
            orphan = rows.orphan()
        except Exception as error:
            raise self._database.translated(error) from error
        if orphan is not None:
            found(f"batch {orphan} is missing, although its state exists", None)


class NewShard:
    """A shard that does not exist yet; see :class:`~sievemq_broker.store.rows.NewStore`.

    Raises:
        StoreError: it exists.
    """

    def __init__(self, url: str, shard: str) -> None:
        self._shard = shard
        self._database = _Database(url)
        self._definitions: list[tuple[object, ...]] = []
        self._pieces: list[tuple[object, ...]] = []
        self._states: list[tuple[object, ...]] = []
        try:
            self._database.expect_tables()
            self._database.run("BEGIN")
            # Its primary key keeps a broker out until all is there.
            made = self._database.run(
                "INSERT INTO sievemq.head (shard, token, epoch, incarnation) VALUES (%s, '', 0, '') "
                "ON CONFLICT DO NOTHING RETURNING 1",
                (shard,),
            )
            if not made:
                raise StoreError(f"{self._database.where} has a shard {shard} already; name another one with --shard")
        except BaseException:
            self._database.close()
            raise

    def define(self, kind: str, key: bytes, data: bytes) -> None:
        self._definitions.append((self._shard, encoded(kind), key, data))
        if len(self._definitions) == _ROWS:
            self._flush()

    def add(self, batch_id: int, data: bytes, state: bytes | None) -> None:
        for piece, at in enumerate(range(0, len(data), PIECE_BYTES)):
            self._pieces.append((self._shard, batch_id, piece, data[at : at + PIECE_BYTES]))
        if state is not None:
            self._states.append((self._shard, batch_id, state))
        if len(self._pieces) >= _ROWS:
            self._flush()

    def keep(self, history: Kinds) -> None:
        self._database.write(
            "INSERT INTO sievemq.history (shard, kind, id, data) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [(self._shard, kind, line.id, line.text.decode()) for kind, lines in history.items() for line in lines],
        )

    def _flush(self) -> None:
        for statement, rows in (
            ("INSERT INTO sievemq.definition (shard, kind, key, data) VALUES (%s, %b, %b, %b)", self._definitions),
            ("INSERT INTO sievemq.batch (shard, id, piece, data) VALUES (%s, %s, %s, %b)", self._pieces),
            ("INSERT INTO sievemq.state (shard, id, data) VALUES (%s, %s, %b)", self._states),
        ):
            if rows:
                self._database.write(statement, rows)
                rows.clear()

    def finish(self, head: Head) -> None:
        self._flush()
        self._database.run(
            "UPDATE sievemq.head SET epoch = %s, incarnation = %s WHERE shard = %s",
            (head.epoch or 0, head.incarnation, self._shard),
        )
        self._database.run(
            "INSERT INTO sievemq.written (shard, n, next_batch, time) VALUES (%s, %s, %s, 0)",
            (self._shard, head.writes, head.next_batch),
        )
        self._database.run("COMMIT")

    def close(self) -> None:
        self._database.close()
