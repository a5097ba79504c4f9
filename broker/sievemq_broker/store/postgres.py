"""The store of a shard in PostgreSQL (docs/decisions/0011). Brokers share the database; one at a time owns a shard.

    take (postgres_leases.py) ─► open with the token ─► definitions, batches: restore ─► write, write, … ─► close

A write is one call of a function in the server (postgres_tables.py): fence, number and rows go there at once, and one
round trip later they are on stable storage. A large write is several calls in a transaction. What became of a call that
was not answered is read behind the lock of the shard's head, from the number of the last write.

The database has room, or says that it has none; nothing is kept in reserve. Rows that were deleted leave holes, which
the owner vacuums in a thread of its own, by the bytes that it has deleted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg
from psycopg.types.numeric import Int8

from sievemq_broker import logs
from sievemq_broker.domain.admission import UNLIMITED
from sievemq_broker.domain.journal import Key, Write
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.domain.store import FencedError, LostWritesError, StoreError
from sievemq_broker.store.batches import Batches, Change
from sievemq_broker.store.blob import unpack_value
from sievemq_broker.store.database import definition_id
from sievemq_broker.store.follower import Follower
from sievemq_broker.store.postgres_connection import (
    Connection,
    check,
    confirm,
    connect,
    end_writer,
    transaction,
    translated,
)
from sievemq_broker.store.postgres_rows import Call, PostgresRows, Step, calls_of, definitions_of, encoded
from sievemq_broker.store.postgres_tables import PIECE_BYTES
from sievemq_broker.store.postgres_vacuum import Vacuum
from sievemq_broker.store_url import without_password

#: Seconds between two times at which sparse batches are rewritten.
_REWRITE_SECONDS: Final = 1.0

_WRITE: Final = "SELECT sievemq.write(%s, %s, %b, %s, %s, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b)"

log = logs.get("store")


class PostgresStore:
    """See :class:`~sievemq_broker.domain.store.Store`.

    Args:
        url: of the database, as libpq knows it.
        shard: name of the shard.
        token: by which this process owns it.
        incarnation: the broker's name, if the shard is new.
        timeout: seconds for which a call waits for its answer.
        follower: of the shard until now; messages that it has built need not be read.

    Raises:
        FencedError: another process owns the shard.
        AwayError: the database does not answer now.
        StoreError: it cannot be used.

    Attributes:
        where: the URL without password.
        epoch: how many owners there have been.
        incarnation: the broker's name, the same as long as the shard exists.
        next_batch: see :class:`~sievemq_broker.domain.store.Saved`.
        batch_bytes: see there.
        time: of the last write, ms epoch; 0 if there was none.
    """

    room = free = UNLIMITED
    full_below = total = reserve = 0

    def __init__(
        self,
        url: str,
        shard: str,
        token: str,
        incarnation: str = "",
        *,
        timeout: float = 5.0,
        follower: Follower | None = None,
    ) -> None:
        self.where = without_password(url)
        self._url, self._shard, self._token, self._timeout = url, shard, token, timeout
        self.incarnation = incarnation
        self.batch_bytes = PIECE_BYTES
        self.epoch = self.time = 0
        self.next_batch = 1
        #: Which database it is, and the number of the last write.
        self._database = ""
        self._sequence = 0
        self._connection: Connection | None = None
        self._follower = follower
        self._left: list[int] = []
        self._rewritten = time.monotonic()
        self._vacuum = Vacuum(url)
        self._open("be opened")
        self._first_batch = self.next_batch

    # -- the connection -------------------------------------------------------------------------------------------

    def _open(self, doing: str) -> None:
        """Connect, and read how far the shard is, behind the lock of its head: no write of this process is under way
        then.

        Raises:
            StoreError: it cannot be used; the text says that it cannot do so.
        """
        self._close()
        connection = connect(self._url, timeout=self._timeout, application=f"sievemq {self._shard}")
        try:
            self._load(connection)
            self._vacuum.measure(connection)
        except BaseException as error:
            connection.close()
            raise self._translated(error, doing) from error
        self._connection = connection
        self._rows = PostgresRows(connection, self._shard, self._follower)
        self._batches = Batches(self._rows)

    def _load(self, connection: Connection) -> None:
        database = check(connection, self.where)
        if self._database not in ("", database):
            raise StoreError(f"{self.where} is another database than before")
        self._database = database
        try:
            with transaction(connection):
                self._load_head(connection)
        except psycopg.errors.LockNotAvailable:
            end_writer(connection, self._shard)  # what this process has sent over a connection that it has given up
            raise

    def _load_head(self, connection: Connection) -> None:
        # Behind PgBouncer the number that the client is given is not that of a backend.
        (backend,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        named = backend if backend == connection.info.backend_pid else 0
        owner = (self._shard, self._token)
        # It changes a row, so that its COMMIT waits for a standby as those before it had to.
        lease = connection.execute(
            "UPDATE sievemq.lease SET backend = %s WHERE shard = %s AND token = %s", (named, *owner)
        )
        head = connection.execute(
            "SELECT epoch, incarnation FROM sievemq.head WHERE shard = %s AND token = %s FOR UPDATE", owner
        ).fetchone()
        if not lease.rowcount or head is None:
            raise FencedError(f"{self.where}: another broker owns the shard {self._shard}")
        self.epoch, incarnation = head
        if not incarnation:
            connection.execute(
                "UPDATE sievemq.head SET incarnation = %s WHERE shard = %s", (self.incarnation, self._shard)
            )
        self.incarnation = incarnation or self.incarnation
        last = connection.execute(
            "SELECT n, next_batch, time FROM sievemq.written WHERE shard = %s ORDER BY n DESC LIMIT 1", (self._shard,)
        ).fetchone()
        sequence, next_batch, written = last or (0, 1, 0)
        if sequence < self._sequence:
            lost = self._sequence - sequence
            raise LostWritesError(
                f"{self.where} has lost its last {lost} writes: a replica without them was promoted", lost
            )
        self._sequence, self.next_batch, self.time = sequence, next_batch, written

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._open("be reached")
        assert self._connection is not None
        return self._connection

    def reopen(self) -> None:
        """Begin again with what is there, after an error. What was written is there or it raises.

        Raises:
            StoreError: the store cannot be used.
        """
        self._open("be opened again")

    def close(self) -> None:
        """Close the connection. The lease is released apart from that."""
        self._close()
        self._vacuum.end()

    abandon = close

    # -- reading --------------------------------------------------------------------------------------------------

    def definitions(self, kind: str) -> Mapping[Key, tuple[Any, ...]]:
        """All definitions of a kind.

        Raises:
            DamagedError: one of them is not what was written.
        """
        found: dict[Key, tuple[Any, ...]] = {}
        try:
            for key, data in self._connected().execute(
                "SELECT key, data FROM sievemq.definition WHERE shard = %s AND kind = %b ORDER BY key",
                (self._shard, encoded(kind)),
                binary=True,
            ):
                known, value = unpack_value(f"the definition of {kind} {key!r}", definition_id(kind, key), data)
                found[known] = value
        except Exception as error:
            raise self._translated(error, "be read") from error
        return found

    def batches(self) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        """All messages; see :meth:`Saved.batches`.

        Raises:
            DamagedError: something is not what was written.
        """
        empty: list[int] = []
        self._connected()
        try:
            yield from self._batches.saved(empty)
        except Exception as error:
            raise self._translated(error, "be read") from error
        self._left = [batch_id for batch_id in empty if batch_id < self._first_batch]
        self._follower = None

    # -- writing --------------------------------------------------------------------------------------------------

    @property
    def next_write(self) -> int:
        return self._sequence + 1

    def write(self, write: Write, now: int) -> None:
        """Write batches; see :meth:`Store.write`. What is stored although its write reported an error is not written
        again."""
        if not write:
            return
        try:
            connection = self._connected()
            if write.number <= self._sequence:
                return
            change = self._batches.change(write, now)
            calls = calls_of(change, definitions_of(write))
            fresh = self._send(connection, calls, Step(write.number, True, write.next_batch, now))
        except BaseException as error:
            self._failed()
            raise self._translated(error, "be written") from error
        if not fresh:
            self._batches.forget()  # it was there, and what it changes was applied twice
        self._sequence, self.time = write.number, now
        self.next_batch = max(self.next_batch, write.next_batch)
        self._vacuum.freed(change.freed + sum([call.replaced for call in calls]))

    def _send(self, connection: Connection, calls: list[Call], step: Step) -> bool:
        """Carry out calls, all or none of them. False if nothing was done: the write is there already, or there was one
        since."""
        if len(calls) == 1:
            connection.warnings.clear()
            fresh = self._call(connection, calls[0], step, is_last=True)
            confirm(connection)
            return fresh
        with transaction(connection):
            return all(self._call(connection, call, step, is_last=call is calls[-1]) for call in calls)

    def _call(self, connection: Connection, call: Call, step: Step, *, is_last: bool) -> bool:
        values = (
            self._shard, self._token, Int8(step.number), step.is_write, is_last, Int8(step.next_batch), Int8(step.now),
            call.gone_batches or None, call.gone_states or None, call.state_ids or None, call.state_rows or None,
            call.batch_ids or None, call.batch_pieces or None, call.batch_rows or None,
            call.gone_kinds or None, call.gone_keys or None,
            call.kinds or None, call.keys or None, call.definitions or None,
        )  # fmt: skip
        row = connection.execute(_WRITE, values).fetchone()
        return row is not None and bool(row[0])

    def _failed(self) -> None:
        """A write failed: what is cached of it may be wrong, and so may be the connection."""
        connection = self._connection
        if connection is None:
            return
        self._batches.forget()
        if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._close()

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def relieve(self) -> None:
        """Nothing is kept in reserve."""

    def tidy(self) -> int:
        """After a write: rewrite sparse batches, a few each second, and vacuum what was deleted. After reading: delete
        what never came to its end.

        Returns:
            The :attr:`room` since.
        """
        try:
            if self._left:
                self._change(Change(gone=self._left))
                self._left = []
            if self._connection is not None and self._batches.sparse:
                now = time.monotonic()
                if now >= self._rewritten + _REWRITE_SECONDS:
                    self._rewritten = now
                    self._change(self._batches.rewrite(UNLIMITED))
        except Exception as error:  # the next write reports it, too
            self._failed()
            log.debug("store.tidy_failed", reason=str(self._translated(error, "be tidied")))
        self._vacuum.begin()
        return self.room

    def _change(self, change: Change) -> None:
        """Change rows in a way that changes nothing that anyone reads."""
        if change:
            if not self._send(self._connected(), calls_of(change, {}), Step(self._sequence)):
                self._batches.forget()
            self._vacuum.freed(change.freed)

    def size(self) -> int:
        """Bytes of the tables, of all shards, when they were measured last. In any thread."""
        return self._vacuum.size

    def _translated(self, error: BaseException, doing: str) -> BaseException:
        return translated(error, self._url, doing) if isinstance(error, Exception) else error
