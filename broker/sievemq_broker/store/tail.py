"""Small batches that are on disk and not in the database yet: a file of their own, appended to and synced.

A transaction of one message costs half as much again as its sync does. So a small batch is one record here, over zeros
that are there already, and some hundred of them become rows in one transaction (:meth:`SqliteStore.write`).

    file     what it is | salt | records, with zeros or older ones behind them
    record   crc32 | length | number of the write | msgpack [batch, now, envelopes, accepted, held, states, gone,
             failures, definitions]

Writes are numbered one after the other, those of the database too. What is in the database is not cleared here: the
next records are written over it from the beginning, and the file is read as long as each record has the number that
follows. A sync of a file that grows writes the file system's journal as well; over zeros it does not.

What lies behind the last record is what clients sent in an earlier round, and a body may look like a record: the
checksum begins with the file's salt, which nobody outside knows.

Each owner begins with a file of its own, and reads the last one's after it has taken it out of its place: a former
owner looks after each sync whether its file is where it was.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgpack

from sievemq_broker.domain.journal import Batch
from sievemq_broker.store.batches import ascending
from sievemq_broker.store.errors import DamagedError, StoreError
from sievemq_broker.store.files import sync_directory

__all__ = ["FORMER", "TAIL", "TAIL_BYTES", "SupersededError", "Tail", "read_tail", "unpack_record"]

TAIL: Final = "tail"
FORMER: Final = "tail.former"

#: Bytes of the file, and of it what a record may take that is begun.
TAIL_BYTES: Final = 512 * 1024
_LARGEST: Final = 128 * 1024

#: Records, which become rows in one go: some milliseconds.
_RECORDS: Final = 256

_HEAD = struct.Struct("<IIQ")
_MAGIC: Final = b"SieveMQ\x01"
_BEGIN: Final = len(_MAGIC) + 8
_packer = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass")

_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class Tail:
    """The file that is appended to.

    Args:
        directory: of the store.
        size: bytes; 0 for none: every batch goes into the database.

    Attributes:
        records: that are not in the database, packed as in the file.
    """

    __slots__ = (
        "_at",
        "_descriptor",
        "_directory",
        "_inode",
        "_name",
        "_path",
        "_seed",
        "_size",
        "next_batch",
        "records",
    )

    def __init__(self, directory: Path, size: int = TAIL_BYTES) -> None:
        self._directory = directory
        self._path = directory / TAIL
        self._name = str(self._path)
        self._size = size
        self._descriptor = -1
        self._inode = -1
        self._at = _BEGIN
        self._seed = 0
        self.records: list[bytes] = []
        #: Behind the last batch in them.
        self.next_batch = 0

    def take_over(self, sequence: int) -> None:
        """Take the last owner's file out of its place, so that it writes no more, and read it.

        Args:
            sequence: writes that are in the database.

        Raises:
            StoreError: it cannot be read.
        """
        former = self._directory / FORMER
        if self._path.exists():
            # One that is there still was read, and what it had is in the database: this one was made afterwards.
            self._path.replace(former)
            sync_directory(self._directory)
        self.records = list(read_tail(former, sequence))
        if self.records:
            self.next_batch = unpack_record(self.records[-1])[0].id + 1

    def begin(self) -> None:
        """What there was is in the database: begin with a file of this owner's, or without one if it cannot be made."""
        self.records = []
        (self._directory / FORMER).unlink(missing_ok=True)
        if not self._size:
            return
        try:
            self._descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o640
            )
            start = _MAGIC + os.urandom(_BEGIN - len(_MAGIC))
            self._seed = zlib.crc32(start)
            self._write(start + bytes(self._size - _BEGIN), 0)
            self._sync()
            self._inode = os.fstat(self._descriptor).st_ino
            sync_directory(self._directory)
        except OSError:
            self.close()
            self._path.unlink(missing_ok=True)

    @property
    def used(self) -> int:
        """Bytes that the database will need."""
        return self._at

    def has_room(self) -> bool:
        """True if a record can be appended."""
        return self._descriptor >= 0 and len(self.records) < _RECORDS and self._at + _LARGEST <= self._size

    def append(self, batch: Batch, now: int, sequence: int) -> bool:
        """Append a batch and sync it.

        Args:
            batch: a single one.
            now: ms epoch.
            sequence: number of the write.

        Returns:
            False if it is too large; nothing was written.

        Raises:
            OSError: it cannot be written, or synced. There is no tail any more.
            SupersededError: there is another owner.
        """
        body = _pack(batch, now)
        size = _HEAD.size + len(body)
        if size > _LARGEST:
            return False
        record = _sealed(sequence, body, self._seed)
        try:
            self._write(record, self._at)
            self._sync()
            found = os.stat(self._name).st_ino  # noqa: PTH116  half of what Path.stat takes
        except FileNotFoundError:
            found = -1
        except OSError:
            self.close()
            raise
        if found != self._inode:
            self.close()
            raise SupersededError
        self._at += size
        self.records.append(body)
        self.next_batch = batch.id + 1
        return True

    def restart(self) -> None:
        """All records are in the database: write over them."""
        self.records = []
        self._at = _BEGIN

    def close(self) -> None:
        """Append no more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, data: bytes, at: int) -> None:
        written = os.pwrite(self._descriptor, data, at)
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], at + written)

    def _sync(self) -> None:
        _sync(self._descriptor)


class SupersededError(StoreError):
    """Another owner has taken the file."""


def read_tail(path: Path, sequence: int | None) -> Iterator[bytes]:
    """The records of a file that follow what is in the database.

    Args:
        path: of the file; there may be none.
        sequence: writes that are in the database; None if that is not known: all that follow one another.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    # A file that an earlier version made has no beginning, and no salt.
    at, seed = (_BEGIN, zlib.crc32(data[:_BEGIN])) if data.startswith(_MAGIC) else (0, 0)
    expected: int | None = None
    while at + _HEAD.size <= len(data):
        crc, size, number = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + size
        if not size or end > len(data) or crc != zlib.crc32(memoryview(data)[at + 4 : end], seed):
            return
        if expected is not None and number != expected:
            return
        if sequence is None:
            yield data[at + _HEAD.size : end]
        elif number > sequence:
            if expected is None and number != sequence + 1:
                return
            yield data[at + _HEAD.size : end]
        expected = number + 1
        at = end


def unpack_record(body: bytes) -> tuple[Batch, int]:
    """A batch and when it was kept.

    Raises:
        DamagedError: it is no record.
    """
    try:
        fields = msgpack.unpackb(body, use_list=False, strict_map_key=False, unicode_errors="surrogatepass")
        batch_id, now, envelopes, accepted, held, states, gone, failures, definitions = fields[:9]
        batch = Batch(batch_id)
        batch.accepted = [(owner, envelopes[message]) for owner, message in accepted]
        batch.held, batch.gone = ascending(list(held)), ascending(list(gone))
        batch.states, batch.failures = states, failures
        batch.definitions = {(kind, key): value for kind, key, value in definitions}
    except Exception as error:  # whatever msgpack raises for what the checksum lets pass
        raise DamagedError(f"a record of {TAIL} cannot be decoded: {error}") from error
    return batch, now


def _pack(batch: Batch, now: int) -> bytes:
    envelopes: list[bytes] = []
    accepted: list[tuple[int, int]] = []
    last: bytes | None = None
    for owner, packed in batch.accepted:
        if packed is not last:  # the same object several times in a row is one message
            envelopes.append(packed)
            last = packed
        accepted.append((owner, len(envelopes) - 1))
    definitions = [(kind, key, value) for (kind, key), value in batch.definitions.items()]
    body: bytes = _packer.pack(
        (batch.id, now, envelopes, accepted, batch.held, batch.states, batch.gone, batch.failures, definitions)
    )
    return body


def _sealed(sequence: int, body: bytes, seed: int) -> bytes:
    rest = _HEAD.pack(0, len(body), sequence)[4:] + body
    return zlib.crc32(rest, seed).to_bytes(4, "little") + rest
