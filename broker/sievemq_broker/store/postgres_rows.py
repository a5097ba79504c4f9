"""The rows of a shard in PostgreSQL: how they are read, and the calls that carry a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from psycopg.types.numeric import Int4, Int8

from sievemq_broker.domain.journal import Write
from sievemq_broker.domain.saved import SavedBatch
from sievemq_broker.domain.store import FencedError
from sievemq_broker.store.batches import Change
from sievemq_broker.store.blob import pack_value
from sievemq_broker.store.database import definition_id
from sievemq_broker.store.follower import Follower, Seal
from sievemq_broker.store.postgres_connection import Connection
from sievemq_broker.store.postgres_tables import PIECE_BYTES

Found: TypeAlias = tuple[int, bytes | SavedBatch, bytes | None]
"""Id, row or messages, and state of a batch."""

#: Bytes of rows that one call carries. More would be held by client and server several times over.
_CALL_BYTES: Final = 4 * 1024 * 1024

#: Bytes of rows that are read at once, about; and batches that are listed at once.
_READ_BYTES: Final = 8 * 1024 * 1024
_LISTED: Final = 1_024


class PostgresRows:
    """The rows of batches and of their states, to read.

    Args:
        connection: each statement is a transaction of its own.
        shard: whose rows.
        follower: of which messages are built.
    """

    def __init__(self, connection: Connection, shard: str, follower: Follower | None = None) -> None:
        self._connection = connection
        self._shard = shard
        self._follower = follower

    def batches(self) -> Iterator[Found]:
        """By pages: no statement is open while the caller works on one."""
        after = -1
        while page := self._connection.execute(
            "SELECT b.id, octet_length(b.data), substr(b.data, 1, 4), s.data FROM sievemq.batch b "
            "LEFT JOIN sievemq.state s ON s.shard = b.shard AND s.id = b.id "
            "WHERE b.shard = %s AND b.piece = 0 AND b.id > %b ORDER BY b.id LIMIT %b",
            (self._shard, Int8(after), Int8(_LISTED)),
            binary=True,
        ).fetchall():
            after = page[-1][0]
            yield from self._found(page)
        self._follower = None  # what is left of it is gone or was rewritten

    def _found(self, page: list[tuple[int, int, bytes, bytes | None]]) -> Iterator[Found]:
        """These batches: those that are built, and the rows of the others."""
        found: list[tuple[int, SavedBatch | None, bytes | None]] = []
        size = 0
        for batch_id, length, checksum, state in page:
            built = None if self._follower is None else self._follower.take(batch_id, Seal(length, checksum))
            found.append((batch_id, built, state))
            if built is None:
                size += length
                if size >= _READ_BYTES or length == PIECE_BYTES:  # it may be much larger than that
                    yield from self._read(found)
                    found, size = [], 0
        yield from self._read(found)

    def _read(self, found: list[tuple[int, SavedBatch | None, bytes | None]]) -> Iterator[Found]:
        rows = {own: row for own, _, row in self.rows([own for own, built, _ in found if built is None])}
        for batch_id, built, state in found:
            if built is None and batch_id not in rows:
                raise FencedError(f"batch {batch_id} is gone: another broker writes to the shard")
            yield batch_id, built or rows[batch_id], state

    def last_write(self) -> int:
        """See :class:`~sievemq_broker.store.follower.Listing`."""
        row = self._connection.execute(
            "SELECT n FROM sievemq.written WHERE shard = %s ORDER BY n DESC LIMIT 1", (self._shard,)
        ).fetchone()
        return 0 if row is None else row[0]

    def listed(self, after: int, count: int) -> list[tuple[int, int]]:
        return self._connection.execute(
            "SELECT id, octet_length(data) FROM sievemq.batch WHERE shard = %s AND piece = 0 AND id > %b "
            "ORDER BY id LIMIT %b",
            (self._shard, Int8(after), Int8(count)),
            binary=True,
        ).fetchall()

    def rows(self, ids: Sequence[int]) -> Iterator[tuple[int, Seal, bytes]]:
        if not ids:
            return
        pieces = self._connection.execute(
            "SELECT id, data FROM sievemq.batch WHERE shard = %s AND id = ANY (%b) ORDER BY id, piece",
            (self._shard, [Int8(batch_id) for batch_id in ids]),
            binary=True,
        ).fetchall()
        for batch_id, group in groupby(pieces, itemgetter(0)):
            parts = [data for _, data in group]
            yield batch_id, Seal(len(parts[0]), parts[0][:4]), parts[0] if len(parts) == 1 else b"".join(parts)

    def orphan(self) -> int | None:
        row = self._connection.execute(
            "SELECT s.id FROM sievemq.state s WHERE s.shard = %s AND NOT EXISTS (SELECT 1 FROM sievemq.batch b "
            "WHERE b.shard = s.shard AND b.id = s.id) LIMIT 1",
            (self._shard,),
        ).fetchone()
        return None if row is None else row[0]

    def batch(self, batch_id: int) -> bytes | None:
        pieces = self._data("SELECT data FROM sievemq.batch WHERE shard = %s AND id = %b ORDER BY piece", batch_id)
        return b"".join(pieces) if pieces else None

    def state(self, batch_id: int) -> bytes | None:
        found = self._data("SELECT data FROM sievemq.state WHERE shard = %s AND id = %b", batch_id)
        return found[0] if found else None

    def _data(self, statement: str, batch_id: int) -> list[bytes]:
        rows = self._connection.execute(statement, (self._shard, Int8(batch_id)), binary=True).fetchall()
        return [row[0] for row in rows]


class Step(NamedTuple):
    """What calls are for.

    Attributes:
        number: of the write, or of the last one before upkeep.
        is_write: False for upkeep, which changes nothing that anyone reads.
        next_batch: of the write.
        now: ms epoch.
    """

    number: int
    is_write: bool = False
    next_batch: int = 0
    now: int = 0


@dataclass(slots=True)
class Call:
    """The arrays of one call of the function.

    Attributes:
        size: bytes in them.
        replaced: bytes in rows that may take the place of others.
    """

    gone_batches: list[int] = field(default_factory=list)
    gone_states: list[int] = field(default_factory=list)
    state_ids: list[int] = field(default_factory=list)
    state_rows: list[bytes] = field(default_factory=list)
    batch_ids: list[int] = field(default_factory=list)
    batch_pieces: list[int] = field(default_factory=list)
    batch_rows: list[bytes] = field(default_factory=list)
    gone_kinds: list[bytes] = field(default_factory=list)
    gone_keys: list[bytes] = field(default_factory=list)
    kinds: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    definitions: list[bytes] = field(default_factory=list)
    size: int = 0

    def count(self, data: bytes) -> None:
        self.size += len(data)

    @property
    def replaced(self) -> int:
        return sum(map(len, self.state_rows)) + sum(map(len, self.definitions))


def calls_of(change: Change, definitions: Mapping[tuple[bytes, bytes], bytes | None]) -> list[Call]:
    """The calls that make a change, in this order, with about so many bytes each."""
    rows_gone = [*change.gone, *[own for own, _ in change.rewritten]]
    states_gone = [*change.gone, *change.plain]
    calls = [Call(gone_batches=[Int8(own) for own in rows_gone], gone_states=[Int8(own) for own in states_gone])]

    def call_for(data: bytes) -> Call:
        if calls[-1].size >= _CALL_BYTES:
            calls.append(Call())
        calls[-1].count(data)
        return calls[-1]

    for own, row in change.states:
        call = call_for(row)
        call.state_ids.append(Int8(own))
        call.state_rows.append(row)
    for own, row in (*change.batches, *change.rewritten):
        for piece, at in enumerate(range(0, len(row), PIECE_BYTES)):
            data = row[at : at + PIECE_BYTES]
            call = call_for(data)
            call.batch_ids.append(Int8(own))
            call.batch_pieces.append(Int4(piece))
            call.batch_rows.append(data)
    for (kind, key), value in definitions.items():
        if value is None:
            call = call_for(key)
            call.gone_kinds.append(kind)
            call.gone_keys.append(key)
        else:
            call = call_for(value)
            call.kinds.append(kind)
            call.keys.append(key)
            call.definitions.append(value)
    return calls


def definitions_of(write: Write) -> dict[tuple[bytes, bytes], bytes | None]:
    """The rows of a write's definitions, the last one of each; None for those that are deleted."""
    rows: dict[tuple[bytes, bytes], bytes | None] = {}
    for part in write.parts:
        for (kind, key), value in part.definitions.items():
            packed = pack_value(b"", key)[4:]  # the plain form of the key
            data = None if value is None else pack_value(definition_id(kind, packed), (key, value))
            rows[encoded(kind), packed] = data
    return rows


def encoded(kind: str) -> bytes:
    return kind.encode("utf-8", "surrogatepass")
