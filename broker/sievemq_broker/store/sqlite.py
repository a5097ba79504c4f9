"""The store in a directory: a SQLite database in WAL mode, one row per batch (docs/decisions/0010).

    store.db       its tables are drawn in database.py; how the rows of batches come and go is in batches.py
    store.db-wal   its log; synced at each transaction, copied into store.db now and then
    witness        the number of writes that are known to be on disk
    reserve        room for when the disk is full
    lock           held by the process that owns the directory

A write is one transaction: its batches, those that it has ahead of their share's end, the definitions that it brings,
and the head, which names the store's owner.

What a message takes on the disk, it takes twice: in the log, and in the database once the log is copied. A log that is
not copied cannot be used again, and on a full disk it cannot be copied. So :meth:`SqliteStore.tidy` keeps what is left
to copy small, and :attr:`SqliteStore.room` leaves enough for the copy and for acknowledgements, which make room.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sievemq_broker.domain.journal import BATCH_BYTES, Key, Write
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.domain.store import (
    AbandonedError,
    DamagedError,
    FencedError,
    StoreError,
    StoreFullError,
)
from sievemq_broker.store.batches import Batches, Change
from sievemq_broker.store.blob import pack_value, unpack_value
from sievemq_broker.store.database import (
    APPLICATION_ID,
    DATABASE,
    FORMAT,
    HEAD,
    PAGE_BYTES,
    SCHEMA,
    SqliteRows,
    connect,
    create_tables,
    definition_id,
)
from sievemq_broker.store.errors import HOW_TO_REPAIR, translated
from sievemq_broker.store.files import (
    PRIVATE_DIRECTORY,
    Lock,
    Reserve,
    Witness,
    make_private,
    open_private,
    sync_directory,
)

#: Pages of log after which it is copied into the database: 16 MiB, so that most of what passes through is never copied.
_CHECKPOINT_PAGES: Final = 8_192

#: Bytes of log that stay when it is used again: a backup makes it grow, and a large transaction.
_LOG_BYTES: Final = 64 * 1024 * 1024

_RESERVE_BYTES: Final = 16 * 1024 * 1024

#: Bytes by which copying the log may make the database larger, where there is no reserve; otherwise an eighth of it.
_GROWTH_BYTES: Final = 2 * 1024 * 1024

#: Free bytes on the disk, as a multiple of the reserve, below which the log is copied after each write.
_TIGHT: Final = 4

#: Bytes of pages that a write may need beside its messages.
_WRITE_BYTES: Final = 8 * PAGE_BYTES

#: Free bytes on the disk below which SQLite may be unable to make its files.
_LITTLE_BYTES: Final = 256 * 1024

#: A database that is mostly empty is made smaller at the start, if it is at least this large.
_SHRINK_BYTES: Final = 256 * 1024 * 1024

#: Instructions of SQLite between two looks at whether the start was given up: far less than a millisecond.
_WANTED_INSTRUCTIONS: Final = 1_000

_READ_HEAD = "SELECT data FROM definition WHERE kind = '' AND key = x''"
_WRITE_HEAD = "UPDATE definition SET data = ? WHERE kind = '' AND key = x''"


class SqliteStore:
    """See :class:`~sievemq_broker.domain.store.Store`.

    Args:
        directory: made if it does not exist.
        incarnation: the broker's name, if the store is new.
        reserve: bytes kept for when the disk is full.
        opener: makes the connection to the database.
        is_wanted: False once the caller has given up opening it.

    Raises:
        AbandonedError: the caller has given up.
        LockedError: another process uses the directory.
        DamagedError: something in it is not what was written.
        StoreError: it cannot be used for another reason.

    Attributes:
        epoch: how many owners there have been.
        incarnation: the broker's name, the same as long as the store exists.
        next_batch: see :class:`~sievemq_broker.domain.store.Saved`.
        batch_bytes: see there.
    """

    def __init__(
        self,
        directory: Path | str,
        incarnation: str = "",
        *,
        reserve: int = _RESERVE_BYTES,
        opener: Callable[[Path], Any] = connect,
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self._folder = str(directory)
        self.incarnation = incarnation
        self.batch_bytes = BATCH_BYTES
        self.time = 0  # it has one machine, whose clock is watched
        self.epoch = 0
        #: Writes that are on disk: the number of the last one. Taking over the store is one.
        self._sequence = 0
        self.next_batch = 1
        #: The first batch of this owner; and those that a former one has written ahead of an end that never came.
        self._first_batch = 1
        self._left: list[int] = []
        self._db: Any = None
        self._opener = opener
        self._is_wanted = is_wanted
        self._witness = Witness(self.directory / "witness")
        self._reserve = Reserve(self.directory / "reserve", reserve)
        #: Bytes by which the database grows when the log is copied; unused bytes in it, and in the log.
        self._growth = self._unused = self._log_unused = 0
        self._lock: Lock | None = None
        try:
            self.directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the data directory {directory} cannot be created: {error.strerror or error}") from error
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
            raise DamagedError(f"{path} is missing, although {witnessed} writes to it were made. {HOW_TO_REPAIR}")
        for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", "lock", "witness", "reserve"):
            make_private(self.directory / name)
        try:
            self._open_database(path, witnessed)
        except Exception as error:
            # Even to read a database, SQLite makes files beside it.
            refused = self._translated(error, "be opened")
            if isinstance(refused, (AbandonedError, DamagedError, FencedError)) or not self._is_full(refused):
                raise refused from error
            self._close_database()  # this copies the log and makes room if it can
            self._reserve.give()
            try:
                self._open_database(path, witnessed)
            except Exception as again:
                refused = self._translated(again, "be opened")
                if isinstance(refused, DamagedError) or not self._is_full(refused):
                    raise refused from again
                raise StoreFullError(f"{path} cannot be opened: the disk is full") from again
        self.tidy()

    def _open_database(self, path: Path, witnessed: int | None) -> None:
        if not path.exists():
            os.close(open_private(path))  # SQLite gives the log beside it the same mode
        self._connect(path)
        if (is_wanted := self._is_wanted) is not None:
            self._db.set_progress_handler(lambda: not is_wanted(), _WANTED_INSTRUCTIONS)
        self._execute(f"PRAGMA page_size = {PAGE_BYTES}")
        mode = self._execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(f"{path}: the file system does not allow a write-ahead log ({mode}); use a local one")
        if self._execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            self._create()
        self._verify(path)
        self._load_head()
        self._take_over(path, witnessed)
        self._shrink()
        if is_wanted is not None:
            self._db.set_progress_handler(None, 0)

    def _is_full(self, error: Exception) -> bool:
        """True if the store cannot be opened because the disk is full: SQLite does not always say so."""
        if isinstance(error, StoreFullError):
            return True
        try:
            return isinstance(error, StoreError) and shutil.disk_usage(self.directory).free < _LITTLE_BYTES
        except OSError:
            return False

    def _connect(self, path: Path) -> None:
        self._db = self._opener(path)
        self._rows = SqliteRows(self._db)
        self._batches = Batches(self._rows)
        self._execute("PRAGMA synchronous = FULL")
        self._execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        self._execute("PRAGMA cache_size = -32768")
        self._execute("PRAGMA temp_store = MEMORY")
        # Some builds of SQLite write over what is deleted: an acknowledgement would need as much room as its message.
        self._execute("PRAGMA secure_delete = FAST")

    def _create(self) -> None:
        self._execute("BEGIN IMMEDIATE")
        create_tables(self._db)
        self._execute("INSERT INTO definition VALUES ('', x'', ?)", (self._head(),))
        self._execute("COMMIT")
        sync_directory(self.directory)

    def _verify(self, path: Path) -> None:
        if self._execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreError(f"{path} is a database of another program; choose another data directory")
        version = self._execute("PRAGMA user_version").fetchone()[0]
        if version > FORMAT:
            raise StoreError(f"{path} has format {version}; this version of SieveMQ reads {FORMAT} and older")
        schema = self._execute("SELECT name, tbl_name, sql FROM sqlite_master ORDER BY rowid").fetchall()
        if [row[2] for row in schema] != list(SCHEMA) or any(
            f"TABLE {n} " not in sql or n != of for n, of, sql in schema
        ):
            raise DamagedError(f"{path} is damaged: its tables are not those that SieveMQ creates. {HOW_TO_REPAIR}")
        found = [row[0] for row in self._execute("PRAGMA quick_check(20)")]
        if found != ["ok"]:
            raise DamagedError(f"{path} is damaged: {found[0]}. {HOW_TO_REPAIR}", found)

    def _look_for_losses(self, path: Path, witnessed: int | None) -> None:
        if witnessed is None and self._sequence > 1:
            raise DamagedError(f"{self._witness.path} is missing. {HOW_TO_REPAIR}")
        if witnessed is not None and witnessed > self._sequence:
            log = path.with_name(f"{path.name}-wal")
            if log.exists():  # closing the database removes it
                shutil.copy(log, log.with_name(f"{log.name}.damaged"))
            raise DamagedError(
                f"{path} ends with write {self._sequence}, although {witnessed} were made: "
                f"its log {log.name} has lost the last {witnessed - self._sequence}. {HOW_TO_REPAIR}"
            )

    def _load_head(self) -> None:
        self.epoch, self._sequence, self.next_batch, self.incarnation = self._read_head()

    def _read_head(self) -> tuple[int, int, int, str]:
        """Read epoch, sequence, next batch and incarnation from the database."""
        row = self._execute(_READ_HEAD).fetchone()
        if row is None:
            raise DamagedError("the head of the store is missing")
        epoch, sequence, next_batch, incarnation, *_ = unpack_value("the head of the store", HEAD, row[0])
        return epoch, sequence, next_batch, incarnation

    def _take_over(self, path: Path, witnessed: int | None) -> None:
        """Begin a new epoch: a former owner can no longer write."""
        self._execute("BEGIN IMMEDIATE")
        sequence = self._sequence
        self._load_head()  # under the lock of the transaction
        if self._sequence != sequence:
            raise StoreError(f"{self.directory / DATABASE} was written to by another process while it was opened")
        self._look_for_losses(path, witnessed)
        before = self.epoch, self._sequence
        self.epoch += 1
        self._sequence += 1
        try:
            self._execute(_WRITE_HEAD, (self._head(),))
            self._execute("COMMIT")
        except BaseException:
            self.epoch, self._sequence = before
            raise
        self._first_batch = self.next_batch
        self._witness.open(self._sequence)

    def _shrink(self) -> None:
        pages = self._execute("PRAGMA page_count").fetchone()[0]
        free = self._execute("PRAGMA freelist_count").fetchone()[0]
        size = self._execute("PRAGMA page_size").fetchone()[0]
        if free * 2 > pages and free * size >= _SHRINK_BYTES:
            try:
                self._execute("VACUUM")
            except Exception as error:
                if not isinstance(self._translated(error, "be made smaller"), StoreFullError):
                    raise

    def _head(self) -> bytes:
        return pack_value(HEAD, (self.epoch, self._sequence, self.next_batch, self.incarnation))

    # -- reading ------------------------------------------------------------------------------------------------

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

    def batches(self) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        """All messages; see :meth:`Saved.batches`.

        Raises:
            DamagedError: something is not what was written.
        """
        empty: list[int] = []
        try:
            yield from self._batches.saved(empty)
        except Exception as error:
            raise self._translated(error, "be read") from error
        self._left = [batch_id for batch_id in empty if batch_id < self._first_batch]

    # -- writing ------------------------------------------------------------------------------------------------

    @property
    def next_write(self) -> int:
        return self._sequence + 1

    def write(self, write: Write, now: int) -> None:
        """Write batches; see :meth:`Store.write`. What is stored although its write reported an error is not written
        again."""
        if not write:
            return
        if write.number > self._sequence:
            try:
                self._transact(write, now)
            except Exception as error:
                raise self._translated(error, "be written") from error
            # At most, until it is measured.
            written = write.bytes + write.bytes // 16 + _WRITE_BYTES
            self._growth += written
            self._unused = max(0, self._unused - written)
            self._log_unused = 0
        self._witness.write(self._sequence)

    def _transact(self, write: Write, now: int) -> None:
        before = self._sequence, self.next_batch
        begun = False
        try:
            self._execute("BEGIN IMMEDIATE")
            begun = True
            self._reload()
            before = self._sequence, self.next_batch
            if write.number > self._sequence:
                if write.number > self._sequence + 1:
                    raise StoreError(f"write {write.number} was given to {self.directory / DATABASE}, which ends with "
                                     f"write {self._sequence}")  # fmt: skip
                self._rows.apply(self._batches.change(write, now))
                if self._batches.sparse:
                    self._rows.apply(self._batches.rewrite(self._spare()))
                for part in write.parts:
                    for (kind, key), value in part.definitions.items():
                        self._define(kind, key, value)
                self._sequence = write.number
                self.next_batch = max(self.next_batch, write.next_batch)
                self._execute(_WRITE_HEAD, (self._head(),))
            self._execute("COMMIT")
        except BaseException:
            self._sequence, self.next_batch = before  # unless the database differs
            self._forget(begun)
            raise

    def _define(self, kind: str, key: Key, value: tuple[Any, ...] | None) -> None:
        packed = pack_value(b"", key)[4:]  # the plain form of the key
        if value is None:
            self._execute("DELETE FROM definition WHERE kind = ? AND key = ?", (kind, packed))
        else:
            data = pack_value(definition_id(kind, packed), (key, value))
            self._execute("INSERT OR REPLACE INTO definition VALUES (?, ?, ?)", (kind, packed, data))

    def _forget(self, begun: bool) -> None:
        """A write failed: what is cached of it may be wrong."""
        self._batches.forget()
        if not begun:
            return
        try:
            self._execute("ROLLBACK")
        except Exception:  # noqa: S110  the database did that itself, or will when it is opened again
            pass
        try:
            self._reload()
        except Exception:  # noqa: S110  the next write raises the same
            pass

    def _reload(self) -> None:
        """Read how many writes the database has: the last one may be there although it raised an error.

        Raises:
            FencedError: another broker owns the directory; what the database has is not of this one.
            DamagedError: it has fewer than this one has made.
        """
        epoch, sequence, next_batch, _ = self._read_head()
        if epoch != self.epoch:
            raise FencedError(
                f"the data directory {self.directory} was opened by another broker (epoch {epoch}, this one is "
                f"{self.epoch}): this one stops and stores nothing more"
            )
        if sequence < self._sequence:
            lost = self._sequence - sequence
            raise DamagedError(f"{self.directory / DATABASE} has lost its last {lost} writes. {HOW_TO_REPAIR}")
        self._sequence, self.next_batch = sequence, next_batch

    # -- a full or failing disk ---------------------------------------------------------------------------------

    def relieve(self) -> None:
        """The disk is full: give up the reserve, and copy the log, so that acknowledgements can be written."""
        self._reserve.give()
        self._copy_log()
        self._measure()

    def tidy(self) -> int:
        """After a write: copy the log if the database will grow by it, or always if the disk has little room; and take
        as much of the reserve as there is room for. After reading: delete what never came to its end.

        Returns:
            The :attr:`room` since.
        """
        if self._left and not self._delete_left():
            self.relieve()  # on a full disk that takes a little room before it makes some
            self._delete_left()
        size, free = self._reserve.size, self.free
        limit, tight = size // 8 or _GROWTH_BYTES, free < size * _TIGHT
        if not tight and self._growth <= limit and self._reserve.held >= size:
            return self._room(free)  # most often
        self._measure()
        if self._growth > limit or (tight and not self._log_unused):
            if not self._copy_log() and self._reserve.give():
                self._copy_log()
            self._measure()
        self._reserve.take(self.free)
        return self._room(self.free)

    def _delete_left(self) -> bool:
        """False if that failed; the next call tries again."""
        begun = False
        try:
            self._execute("BEGIN IMMEDIATE")
            begun = True
            self._reload()
            self._rows.apply(Change(gone=self._left))
            self._execute("COMMIT")
        except Exception:
            self._forget(begun)
            return False
        self._left = []
        self._log_unused = 0
        self._measure()
        return True

    @property
    def room(self) -> int:
        """Bytes of new messages that can be written, with enough left to acknowledge them. In any thread."""
        return self._room(self.free)

    def _room(self, on_disk: int) -> int:
        size, log, unused = self._reserve.size, self._log_unused, self._unused
        free = on_disk + self._reserve.held - self._growth
        inside = log + free - size // 8
        if inside <= unused:  # the database need not grow
            found = inside
        else:
            found = max(unused, min(unused + free - size // 8, (log + free + unused - size // 2) // 2))
        return max(0, found - found // 16)  # heads of frames and rows

    @property
    def full_below(self) -> int:
        """The :attr:`room` below which the disk counts as full."""
        return self._reserve.size // 4

    @property
    def free(self) -> int:
        """Bytes that are free on the disk. In any thread."""
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return 0

    @property
    def total(self) -> int:
        """Bytes of the disk. In any thread."""
        try:
            return shutil.disk_usage(self._folder).total
        except OSError:
            return 0

    @property
    def reserve(self) -> int:
        """Bytes that are kept for when the disk is full; fewer than wanted, or 0, while it is. In any thread."""
        return self._reserve.held

    def _spare(self) -> int:
        """Bytes that rows which are rewritten may take, before they make room."""
        return self.room // 2

    def _copy_log(self) -> bool:
        """Copy the log into the database; the next write uses it again from its beginning, unless a backup reads it.
        False if it cannot be copied."""
        self._log_unused = 0
        try:
            busy, frames, copied = self._execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if busy or copied < frames:
                return True  # more room would not help
            self._log_unused = (self.directory / f"{DATABASE}-wal").stat().st_size
        except Exception:
            return False
        return True

    def _measure(self) -> None:
        """Read how large the database is, and will be."""
        try:
            pages = self._execute("PRAGMA page_count").fetchone()[0]
            unused = self._execute("PRAGMA freelist_count").fetchone()[0]
            length = (self.directory / DATABASE).stat().st_size
        except Exception:
            self._unused = self._log_unused = 0  # the next write reports it
            return
        self._growth = max(0, pages * PAGE_BYTES - length)
        self._unused = unused * PAGE_BYTES

    def reopen(self) -> None:
        """Begin again with the files as they are, after an error. What was kept is there or it raises.

        Raises:
            StoreError: they cannot be used.
        """
        self._close_database()
        path = self.directory / DATABASE
        try:
            self._connect(path)
            self._reload()
            # What was written when the sync failed may be in the log but not on disk: write it again.
            busy, *_ = self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(f"{path}: its log cannot be copied, another process uses it")
        except Exception as error:
            raise self._translated(error, "be opened again") from error

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Copy the log into the database, and release the directory."""
        if self._db is not None:
            try:
                self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except Exception:  # noqa: S110  everything is in the log, and synced
                pass
        self.abandon()

    def abandon(self) -> None:
        """Release everything as it is."""
        self._close_database()
        self._witness.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close_database(self) -> None:
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
        return translated(error, self.directory / DATABASE, doing)
