"""The store in a directory: a SQLite database in WAL mode, one row per batch (docs/decisions/0010).

    store.db       batch       id, envelopes of a batch (blob.py)
                   state       id, what became of them; only where the batch's row says something else
                   definition  kind, key, value; without a name the head: epoch, writes, next batch, name
    store.db-wal   its log; synced at each write, copied into store.db now and then
    witness        the number of writes that are known to be on disk
    reserve        room for when the disk is full
    lock           held by the process that owns the directory

A batch whose messages are all gone is deleted; one that has lost half of its bytes is written anew without them.
"""

from __future__ import annotations

import shutil
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sievemq_broker.domain.journal import GONE_STATE, HELD_FLAG, PLACE_BITS, Batch, Key, SavedEntry
from sievemq_broker.store.blob import State, pack_batch, pack_value, unpack_batch, unpack_value
from sievemq_broker.store.errors import DamagedError, FencedError, StoreError, StoreFullError
from sievemq_broker.store.files import Lock, Reserve, Runway, Witness, sync_directory

__all__ = ["DATABASE", "FORMAT", "HEAD", "PAGE_BYTES", "SCHEMA", "SqliteStore", "connect", "definition_id", "stamp"]

#: Version of everything in the directory. A newer one is refused; older ones would be converted here.
FORMAT: Final = 1

DATABASE: Final = "store.db"

#: "SvMQ": how file(1) and this module tell the database from another one.
APPLICATION_ID: Final = 0x53764D51

#: A single message writes two or three pages, and what a sync takes grows with their bytes: with 4 KiB half as long
#: again. Large batches hardly notice.
PAGE_BYTES: Final = 2_048

#: Pages of log after which it is copied into the database: 16 MiB, so that most of what passes through is never copied.
_CHECKPOINT_PAGES: Final = 8_192

#: Bytes by which the log is made longer ahead of its writes: some two hundred messages that are sent one at a time.
_RUNWAY_BYTES: Final = 1024 * 1024

#: Messages of a batch for which that is done: with more a sync takes long enough, and writing the zeros would, too.
_FEW: Final = 16

#: Of a frame of the log, before its page.
_FRAME_HEADER: Final = 24

_RESERVE_BYTES: Final = 16 * 1024 * 1024

#: Batches whose state is kept at hand. What is acknowledged was mostly kept a moment ago.
_STATES: Final = 4_096

#: A row that is smaller is not worth writing anew.
_SPARSE_BYTES: Final = 16_384

#: Bytes of rows that one write goes through for that.
_REWRITE_BYTES: Final = 4 * 1024 * 1024

#: A database of which most is empty is made smaller at the start, if that is at least so much.
_SHRINK_BYTES: Final = 256 * 1024 * 1024

SCHEMA: Final = (
    "CREATE TABLE batch (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE state (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE definition (kind TEXT, key BLOB, data BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID",
)

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL_EXTENDED = (sqlite3.SQLITE_IOERR_SHMSIZE,)

HEAD: Final = b"head"
_READ_HEAD = "SELECT data FROM definition WHERE kind = '' AND key = x''"
_WRITE_HEAD = "UPDATE definition SET data = ? WHERE kind = '' AND key = x''"

_REPAIR = (
    "Look with `sievemq store check`, save what can be read with `sievemq store export`, "
    "and set aside what is damaged with `sievemq store repair`"
)


def _ascending(numbers: list[int]) -> list[int]:
    """Each number once, in order; they mostly are."""
    distinct = set(numbers)
    if len(distinct) < len(numbers):
        return sorted(distinct)
    numbers.sort()
    return numbers


def _set(states: array[int], numbers: list[int], first: int, end: int, value: int) -> None:
    """Give messages their state.

    Args:
        states: by place.
        numbers: ascending; those from `first` to before `end` are meant.
        first: number of the message at place 0.
        end: behind the last.
        value: the state.
    """
    low = bisect_left(numbers, first)
    high = bisect_left(numbers, end, low)
    if low == high:
        return
    start = numbers[low] - first
    if numbers[high - 1] - numbers[low] == high - low - 1:  # one after the other
        states[start : start + high - low] = array("H", (value,)) * (high - low)
        return
    for number in numbers[low:high]:
        states[number - first] = value


def connect(path: Path, *, read_only: bool = False) -> Any:
    """A connection to the database, which says itself when a transaction begins and ends.

    Args:
        path: of the database.
        read_only: leave all files as they are, the log too.
    """
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}",
        uri=True, isolation_level=None, check_same_thread=False, timeout=1.0, cached_statements=64,
    )  # fmt: skip
    database.text_factory = lambda data: data.decode("utf-8", "surrogatepass")
    return database


def stamp(database: Any) -> None:
    """Say in the file what it is."""
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {FORMAT}")


def definition_id(kind: str, key: bytes) -> bytes:
    """What a definition's checksum covers beside its value."""
    return kind.encode("utf-8", "surrogatepass") + b"\0" + key


class SqliteStore:
    """See :class:`~sievemq_broker.domain.journal.Store`. One thread at a time.

    Args:
        directory: made if it does not exist.
        incarnation: the broker's name, if the store is new.
        reserve: bytes kept for when the disk is full.
        opener: makes the connection to the database.

    Raises:
        LockedError: another process uses the directory.
        DamagedError: something in it is not what was written.
        StoreError: it cannot be used for another reason.

    Attributes:
        epoch: how many owners there have been.
        incarnation: the broker's name, the same as long as the store exists.
    """

    def __init__(
        self,
        directory: Path | str,
        incarnation: str = "",
        *,
        reserve: int = _RESERVE_BYTES,
        opener: Callable[[Path], Any] = connect,
    ) -> None:
        self.directory = Path(directory)
        self.incarnation = incarnation
        self.epoch = 0
        self._sequence = 0
        self._next_batch = 1
        self._states: dict[int, State] = {}
        self._sparse: dict[int, None] = {}
        self._db: Any = None
        self._opener = opener
        self._witness = Witness(self.directory / "witness")
        self._reserve = Reserve(self.directory / "reserve", reserve)
        self._runway = Runway(self.directory / f"{DATABASE}-wal", _RUNWAY_BYTES)
        self._lock: Lock | None = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the data directory {directory} cannot be made: {error.strerror or error}") from error
        self._lock = Lock(self.directory / "lock")
        try:
            self._open()
        except BaseException:
            self.abandon()
            raise

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        path = self.directory / DATABASE
        witnessed = self._witness.read()
        if witnessed is not None and not path.exists():
            raise DamagedError(f"{path} is missing, though {witnessed} writes to it are known. {_REPAIR}")
        try:
            self._db = self._opener(path)
            self._execute(f"PRAGMA page_size = {PAGE_BYTES}")
            mode = self._execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreError(f"{path}: the file system does not allow a write-ahead log ({mode}); use a local one")
            self._execute("PRAGMA synchronous = FULL")
            self._execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            self._execute("PRAGMA cache_size = -32768")
            if self._execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                self._create()
            self._verify(path)
            self._read_head(path, witnessed)
            self._shrink()
            self._take_over()
            self._open_runway()
        except Exception as error:
            raise self._translated(error, "be opened") from error
        self.has_reserve = self._reserve.take()

    def _create(self) -> None:
        self._execute("BEGIN IMMEDIATE")
        for statement in SCHEMA:
            self._execute(statement)
        self._execute("INSERT INTO definition VALUES ('', x'', ?)", (self._head(),))
        stamp(self._db)
        self._execute("COMMIT")
        sync_directory(self.directory)

    def _verify(self, path: Path) -> None:
        if self._execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreError(f"{path} is a database of something else; choose another data directory")
        version = self._execute("PRAGMA user_version").fetchone()[0]
        if version > FORMAT:
            raise StoreError(f"{path} has format {version}; this version of SieveMQ knows {FORMAT} and older")
        schema = self._execute("SELECT name, tbl_name, sql FROM sqlite_master ORDER BY rowid").fetchall()
        if [row[2] for row in schema] != list(SCHEMA) or any(
            f"TABLE {n} " not in sql or n != of for n, of, sql in schema
        ):
            raise DamagedError(f"{path} is damaged: its tables are not those that were made. {_REPAIR}")
        found = [row[0] for row in self._execute("PRAGMA quick_check(20)")]
        if found != ["ok"]:
            raise DamagedError(f"{path} is damaged: {found[0]}. {_REPAIR}", found)

    def _read_head(self, path: Path, witnessed: int | None) -> None:
        self._load_head()
        if witnessed is None and self._sequence > 1:
            raise DamagedError(f"{self._witness.path} is missing. {_REPAIR}")
        if witnessed is not None and witnessed > self._sequence:
            log = path.with_name(f"{path.name}-wal")
            if log.exists():  # closing the database removes it
                shutil.copyfile(log, log.with_name(f"{log.name}.damaged"))
            raise DamagedError(
                f"{path} ends with write {self._sequence}, though {witnessed} are known to have been made: "
                f"its log {log.name} has lost the last {witnessed - self._sequence}. {_REPAIR}"
            )

    def _load_head(self) -> None:
        row = self._execute(_READ_HEAD).fetchone()
        if row is None:
            raise DamagedError("the head of the store is missing")
        head = unpack_value("the head of the store", HEAD, row[0])
        self.epoch, self._sequence, self._next_batch, self.incarnation = head[:4]

    def _take_over(self) -> None:
        """Begin a new epoch: whoever wrote here before cannot any more."""
        self._execute("BEGIN IMMEDIATE")
        self._load_head()  # under the lock of the transaction
        self.epoch += 1
        self._sequence += 1
        self._execute(_WRITE_HEAD, (self._head(),))
        self._execute("COMMIT")
        self._witness.open(self._sequence)

    def _shrink(self) -> None:
        pages = self._execute("PRAGMA page_count").fetchone()[0]
        free = self._execute("PRAGMA freelist_count").fetchone()[0]
        size = self._execute("PRAGMA page_size").fetchone()[0]
        if free * 2 > pages and free * size >= _SHRINK_BYTES:
            self._execute("VACUUM")

    def _open_runway(self) -> None:
        self._runway.open(_FRAME_HEADER + self._execute("PRAGMA page_size").fetchone()[0])

    def _head(self) -> bytes:
        return pack_value(HEAD, (self.epoch, self._sequence, self._next_batch, self.incarnation))

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def next_batch(self) -> int:
        """Id of the first batch to come."""
        return self._next_batch

    def definitions(self, kind: str) -> Mapping[Key, tuple[Any, ...]]:
        """All definitions of a kind.

        Raises:
            DamagedError: one of them is not what was written.
        """
        found: dict[Key, tuple[Any, ...]] = {}
        try:
            # All of them, so that one whose kind is damaged is not passed over.
            for name, key, data in self._execute(
                "SELECT kind, key, data FROM definition WHERE NOT (kind = '' AND key = x'') ORDER BY kind, key"
            ):
                if type(name) is not str or type(key) is not bytes:
                    raise DamagedError(f"the name of the definition of {name!r} {key!r} is damaged")
                known, value = unpack_value(f"the definition of {name} {key!r}", definition_id(name, key), data)
                if name == kind:
                    found[known] = value
        except Exception as error:
            raise self._translated(error, "be read") from error
        return found

    def entries(self) -> Iterator[SavedEntry]:
        """All messages that are not gone, by ascending number.

        Raises:
            DamagedError: something is not what was written.
        """
        query = "SELECT batch.id, batch.data, state.data FROM batch LEFT JOIN state USING (id) ORDER BY id"
        try:
            for batch_id, data, changed in self._execute(query):
                kept = unpack_batch(batch_id, data)
                yield from kept.entries(kept.state() if changed is None else State.unpack(batch_id, changed))
            orphan = self._execute("SELECT id FROM state WHERE id NOT IN (SELECT id FROM batch) LIMIT 1").fetchone()
            if orphan is not None:
                raise DamagedError(f"batch {orphan[0]} is missing, though there is a state of it")
        except Exception as error:
            raise self._translated(error, "be read") from error

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, batch: Batch, now: int) -> None:
        """Keep a batch; see :meth:`Store.write`. One that is kept already, though an error was answered, is passed
        over."""
        if batch.id < self._next_batch:
            return
        execute = self._execute
        begun = False
        try:
            execute("BEGIN IMMEDIATE")
            begun = True
            self._check_owner()
            batch.held = _ascending(batch.held)
            batch.gone = _ascending(batch.gone)
            if batch.accepted:
                self._append(batch, now)
            if batch.held or batch.gone or batch.states:
                self._settle(batch)
            for (kind, key), value in batch.definitions.items():
                self._define(kind, key, value)
            if self._sparse:
                self._rewrite()
            self._sequence += 1
            self._next_batch = batch.id + 1
            execute(_WRITE_HEAD, (self._head(),))
            execute("COMMIT")
        except Exception as error:
            self._forget(begun)
            raise self._translated(error, "be written") from error
        self._witness.write(self._sequence)
        if len(batch.accepted) <= _FEW:
            self._runway.advance()

    def _check_owner(self) -> None:
        row = self._execute(_READ_HEAD).fetchone()
        if row is None or row[0] != self._head():
            epoch = None if row is None else unpack_value("the head of the store", HEAD, row[0])[0]
            raise FencedError(
                f"the data directory {self.directory} was opened by another broker (epoch {epoch}, this one is "
                f"{self.epoch}): this one stops and has kept nothing more"
            )

    def _append(self, batch: Batch, now: int) -> None:
        """The batch's own row, with what became of its messages before it was written."""
        own = batch.id
        count = len(batch.accepted)
        states = array("H", bytes(2 * count))
        state = State(count, count, 0, states, {})
        self._apply(batch, batch.base, batch.base + count, state)
        if not state.live:
            return  # came and went between two writes
        data = pack_batch(own, now, batch.accepted, states)
        state.size = len(data)
        self._execute("INSERT INTO batch VALUES (?, ?)", (own, data))
        if state.failures:
            self._execute("INSERT INTO state VALUES (?, ?)", (own, state.pack(own)))
        self._remember(own, state)

    def _settle(self, batch: Batch) -> None:
        """What became of messages of earlier batches: mostly a handful of them, and all that follow one another."""
        base = batch.base
        touched = {number >> PLACE_BITS for number in batch.states if number < base}
        for numbers in (batch.held, batch.gone):
            at, end = 0, bisect_left(numbers, base)
            while at < end:
                batch_id = numbers[at] >> PLACE_BITS
                touched.add(batch_id)
                at = bisect_left(numbers, (batch_id + 1) << PLACE_BITS, at, end)
        for batch_id in touched:
            state = self._state_of(batch_id)
            if state is None:
                continue  # all of it was gone before
            first = batch_id << PLACE_BITS
            self._apply(batch, first, first + len(state.states), state)
            if not state.live:
                self._drop(batch_id)
                continue
            self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (batch_id, state.pack(batch_id)))
            if state.size >= _SPARSE_BYTES and state.live * 2 < state.kept:
                self._sparse[batch_id] = None

    @staticmethod
    def _apply(batch: Batch, first: int, end: int, state: State) -> None:
        """Note in a state what a batch says of the messages from number `first` to before `end`."""
        states = state.states
        _set(states, batch.held, first, end, HELD_FLAG)
        if batch.states:
            failures = batch.failures
            for number, value in batch.states.items():
                if first <= number < end and states[number - first] != GONE_STATE:
                    states[number - first] = value
                    if number in failures:
                        state.failures[number - first] = failures[number]
        _set(states, batch.gone, first, end, GONE_STATE)
        state.live = len(states) - states.count(GONE_STATE)
        if state.failures:
            state.failures = {place: when for place, when in state.failures.items() if states[place] != GONE_STATE}

    def _state_of(self, batch_id: int) -> State | None:
        state = self._states.get(batch_id)
        if state is not None:
            return state
        row = self._execute("SELECT data FROM state WHERE id = ?", (batch_id,)).fetchone()
        if row is not None:
            state = State.unpack(batch_id, row[0])
        else:
            row = self._execute("SELECT data FROM batch WHERE id = ?", (batch_id,)).fetchone()
            if row is None:
                return None  # all of it was gone before
            state = unpack_batch(batch_id, row[0]).state()
        self._remember(batch_id, state)
        return state

    def _remember(self, batch_id: int, state: State) -> None:
        self._states[batch_id] = state
        if len(self._states) > _STATES:
            # Not the oldest use but the oldest entry: near enough, and free.
            for old in list(self._states)[: _STATES // 4]:
                if old != batch_id:
                    del self._states[old]

    def _drop(self, batch_id: int) -> None:
        self._execute("DELETE FROM batch WHERE id = ?", (batch_id,))
        self._execute("DELETE FROM state WHERE id = ?", (batch_id,))
        self._states.pop(batch_id, None)
        self._sparse.pop(batch_id, None)

    def _rewrite(self) -> None:
        """Write sparse batches anew without what is gone, a few at a time."""
        budget = _REWRITE_BYTES
        while self._sparse and budget > 0:
            batch_id = next(iter(self._sparse))
            del self._sparse[batch_id]
            row = self._execute("SELECT data FROM batch WHERE id = ?", (batch_id,)).fetchone()
            state = self._state_of(batch_id)
            if row is None or state is None:
                continue
            budget -= len(row[0])
            data = unpack_batch(batch_id, row[0]).without_gone(state)
            self._execute("UPDATE batch SET data = ? WHERE id = ?", (data, batch_id))
            self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (batch_id, state.pack(batch_id)))

    def _define(self, kind: str, key: Key, value: tuple[Any, ...] | None) -> None:
        packed = pack_value(b"", key)[4:]  # the plain form of the key
        if value is None:
            self._execute("DELETE FROM definition WHERE kind = ? AND key = ?", (kind, packed))
        else:
            data = pack_value(definition_id(kind, packed), (key, value))
            self._execute("INSERT OR REPLACE INTO definition VALUES (?, ?, ?)", (kind, packed, data))

    def _forget(self, begun: bool) -> None:
        """A write failed: what memory knew of it is not so."""
        self._states.clear()
        self._sparse.clear()
        if not begun:
            return
        try:
            self._execute("ROLLBACK")
        except Exception:  # noqa: S110  the database did that itself, or will when it is opened again
            pass
        try:
            self._reload()
        except Exception:  # noqa: S110  the next write says so
            pass

    def _reload(self) -> None:
        epoch = self.epoch
        row = self._execute(_READ_HEAD).fetchone()
        _, self._sequence, self._next_batch, _ = unpack_value("the head of the store", HEAD, row[0])[:4]
        self.epoch = epoch

    # -- a full or failing disk ---------------------------------------------------------------------------------

    def relieve(self) -> None:
        """The disk is full: give up the reserve, so that what frees messages can be written."""
        self._reserve.give()
        self.has_reserve = False

    def restock(self) -> bool:
        """True if there is room again: the reserve fits, or half more than it in the disk and in the database, which
        does not get smaller when messages leave it."""
        if not self.has_reserve:
            self.has_reserve = self._reserve.take()
        return self.has_reserve or self._room() >= self._reserve.size * 3 // 2

    @property
    def low(self) -> bool:
        """True if there is no reserve, nor as much room otherwise: refuse what would need more."""
        return not self.has_reserve and self._room() < self._reserve.size

    def _room(self) -> int:
        try:
            pages = self._execute("PRAGMA freelist_count").fetchone()[0]
            size = self._execute("PRAGMA page_size").fetchone()[0]
            return int(pages * size) + shutil.disk_usage(self.directory).free
        except Exception:
            return 0

    def reopen(self) -> None:
        """Begin again with the files as they are, after an error. What was kept is there or it raises.

        Raises:
            StoreError: they cannot be used.
        """
        sequence, epoch = self._sequence, self.epoch
        self._close_database()
        self._states.clear()
        self._sparse.clear()
        path = self.directory / DATABASE
        try:
            self._db = self._opener(path)
            self._execute("PRAGMA synchronous = FULL")
            self._execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            self._load_head()
            # What was written when the sync failed may be in the log, and on no disk: written anew it is, or it fails.
            busy, *_ = self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(f"{path}: its log cannot be copied, another process uses it")
            self._open_runway()
        except Exception as error:
            raise self._translated(error, "be opened again") from error
        if self.epoch != epoch:
            raise FencedError(f"the data directory {self.directory} was opened by another broker meanwhile")
        if self._sequence < sequence:
            raise DamagedError(f"{path} has lost its last {sequence - self._sequence} writes. {_REPAIR}")

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Copy the log into the database and give the directory up."""
        if self._db is not None:
            try:
                self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except Exception:  # noqa: S110  everything is in the log, and synced
                pass
        self.abandon()

    def abandon(self) -> None:
        """Give everything up as it is."""
        self._close_database()
        self._witness.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close_database(self) -> None:
        self._runway.close()
        database, self._db = self._db, None
        if database is not None:
            try:
                database.close()
            except Exception:  # noqa: S110  nothing more can be done with it
                pass

    def size(self) -> int:
        """Bytes of the database and its log."""
        total = 0
        for suffix in ("", "-wal"):
            try:
                total += (self.directory / (DATABASE + suffix)).stat().st_size
            except OSError:
                pass
        return total

    # -- inside -------------------------------------------------------------------------------------------------

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> Any:
        return self._db.execute(statement, values)

    def _translated(self, error: Exception, doing: str) -> Exception:
        """What a caller is told."""
        if isinstance(error, DamagedError) and _REPAIR not in str(error):
            return DamagedError(f"the store in {self.directory} is damaged: {error}. {_REPAIR}", error.findings)
        if isinstance(error, StoreError):
            return error
        path = self.directory / DATABASE
        if isinstance(error, UnicodeDecodeError):  # of a name or a message about one
            return DamagedError(f"{path} is damaged: {error}. {_REPAIR}")
        code = getattr(error, "sqlite_errorcode", None)
        if code is None and not isinstance(error, (sqlite3.Error, OSError)):
            return error  # a mistake of this module
        primary = (code or 0) & 0xFF
        if primary == sqlite3.SQLITE_FULL or code in _FULL_EXTENDED:
            return StoreFullError(f"{path} cannot {doing}: the disk is full")
        if primary in _DAMAGED:
            return DamagedError(f"{path} is damaged: {error}. {_REPAIR}")
        if primary == sqlite3.SQLITE_BUSY:
            return StoreError(f"{path} cannot {doing}: another process uses it")
        return StoreError(
            f"{path} cannot {doing}: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
        )
