"""The rows of a shard in PostgreSQL: how they are read, and the calls that carry a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from psycopg.types.numeric import Int4, Int8

from sievemq_broker.domain.journal import Write
from sievemq_broker.store.batches import Change
from sievemq_broker.store.blob import pack_value
from sievemq_broker.store.database import definition_id
from sievemq_broker.store.postgres_connection import Connection
from sievemq_broker.store.postgres_tables import PIECE_BYTES

#: Bytes of rows that one call carries. More would be held by client and server several times over.
_CALL_BYTES: Final = 4 * 1024 * 1024

#: Bytes of rows that are read at once, about; and rows, before their size is known.
_READ_BYTES: Final = 8 * 1024 * 1024
_READ_ROWS: Final = 64
_MOST_ROWS: Final = 4_096


class PostgresRows:
    """The rows of batches and of their states, to read.

    Args:
        connection: each statement is a transaction of its own.
        shard: whose rows.
    """

    def __init__(self, connection: Connection, shard: str) -> None:
        self._connection = connection
        self._shard = shard

    def batches(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        own, pieces, state = 0, list[bytes](), None
        for batch_id, piece, data, changed in self._pieces():
            if piece == 0:
                if pieces:
                    yield own, b"".join(pieces), state
                own, pieces, state = batch_id, [], changed
            pieces.append(data)
        if pieces:
            yield own, b"".join(pieces), state

    def _pieces(self) -> Iterator[tuple[int, int, bytes, bytes | None]]:
        """All rows, by pages. No statement is open while the caller works on one."""
        after, count = (-1, 0), _READ_ROWS
        while True:
            page = self._connection.execute(
                "SELECT b.id, b.piece, b.data, s.data FROM sievemq.batch b LEFT JOIN sievemq.state s "
                "ON s.shard = b.shard AND s.id = b.id AND b.piece = 0 "
                "WHERE b.shard = %s AND (b.id, b.piece) > (%b, %b) ORDER BY b.id, b.piece LIMIT %b",
                (self._shard, Int8(after[0]), Int4(after[1]), Int8(count)),
                binary=True,
            ).fetchall()
            yield from page
            if len(page) < count:
                return
            after = page[-1][:2]
            size = sum([len(row[2]) for row in page])
            count = min(max(_READ_BYTES * len(page) // size, 8), _MOST_ROWS)

    def orphan(self) -> int | None:
        row = self._connection.execute(
            "SELECT s.id FROM sievemq.state s WHERE s.shard = %s AND NOT EXISTS (SELECT 1 FROM sievemq.batch b "
            "WHERE b.shard = s.shard AND b.id = s.id) LIMIT 1",
            (self._shard,),
        ).fetchone()
        return None if row is None else row[0]

    def batch(self, batch_id: int) -> bytes | None:
        rows = self._connection.execute(
            "SELECT data FROM sievemq.batch WHERE shard = %s AND id = %b ORDER BY piece",
            (self._shard, Int8(batch_id)),
            binary=True,
        ).fetchall()
        return b"".join([row[0] for row in rows]) if rows else None

    def state(self, batch_id: int) -> bytes | None:
        row = self._connection.execute(
            "SELECT data FROM sievemq.state WHERE shard = %s AND id = %b",
            (self._shard, Int8(batch_id)),
            binary=True,
        ).fetchone()
        return None if row is None else row[0]


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
