"""Small batches that are on disk and not in the database yet: a file of their own, appended to and synced.

A transaction of one message costs half as much again as its sync does. So a small batch is one record here, over zeros
that are there already, and some hundred of them become rows in one transaction (:meth:`SqliteStore.write`).

    file     what it is | salt | records, with zeros or older ones behind them; each begins at a block (block_file.py)
    record   crc32 | length | number of the write | msgpack [batch, now, envelopes, accepted, held, states, gone,
             failures, definitions]

Writes are numbered one after the other, those of the database too. What is in the database is not cleared here: the
next records are written over it from the beginning, and the file is read as long as each record has the number that
follows.

What lies behind the last record is what clients sent in an earlier round, and a body may look like a record: the
checksum begins with the file's salt, which nobody outside knows.

Each owner begins with a file of its own, under a name that nobody else gives, in the directory ``tail``. Who takes over
moves that directory out of its place before it reads: a former owner looks after each sync whether its file is where it
was. What an earlier version left is a file ``tail``, of records one behind the other.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgpack

from sievemq_broker.domain.journal import Batch
from sievemq_broker.store.batches import ascending
from sievemq_broker.store.block_file import BLOCK, BlockFile, blocks
from sievemq_broker.store.errors import DamagedError, StoreError
from sievemq_broker.store.files import PRIVATE_DIRECTORY, sync_directory

__all__ = ["FORMER", "TAIL", "TAIL_BYTES", "SupersededError", "Tail", "read_tail", "unpack_record"]

TAIL: Final = "tail"
FORMER: Final = "tail.former"

#: Bytes of a record at most.
_LARGEST: Final = 128 * 1024

#: Records, which become rows in one go: some milliseconds.
_RECORDS: Final = 256

#: Bytes of the file: the beginning, so many records of a block, and room for one of any size.
TAIL_BYTES: Final = BLOCK * (1 + _RECORDS) + _LARGEST

_HEAD = struct.Struct("<IIQ")
_MAGIC: Final = b"SieveMQ\x02"
_SALTED: Final = len(_MAGIC) + 8
_packer = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass")

#: What files of earlier versions begin with: nothing, with neither salt nor room behind it, or this.
_EARLIER_MAGIC: Final = b"SieveMQ\x01"


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
        "_directory",
        "_file",
        "_name",
        "_seed",
        "_size",
        "next_batch",
        "records",
    )

    def __init__(self, directory: Path, size: int = TAIL_BYTES) -> None:
        self._directory = directory
        self._size = size
        self._file: BlockFile | None = None
        self._name = ""
        self._at = BLOCK
        self._seed = 0
        self.records: list[bytes] = []
        #: Behind the last batch in them.
        self.next_batch = 0

    def take_over(self, sequence: int) -> None:
        """Take the last owner's file out of its place, so that it confirms no more, and read it. Nobody else must take
        over meanwhile, or begin.

        Args:
            sequence: writes that are in the database.

        Raises:
            StoreError: it cannot be read.
            OSError: it cannot be moved.
        """
        own, former = self._directory / TAIL, self._directory / FORMER
        if own.exists():
            # One that is there still was read, and what it had is in the database: this one was made afterwards.
            _remove(former)
            own.replace(former)
            sync_directory(self._directory)
        self.records = list(read_tail(former, sequence))
        if self.records:
            self.next_batch = unpack_record(self.records[-1])[0].id + 1

    def begin(self) -> None:
        """What there was is in the database: begin with a file of this owner's, or without one if it cannot be made.
        Nobody else must have taken over since, or do so meanwhile."""
        self.records = []
        _remove(self._directory / FORMER)
        if not self._size:
            return
        own = self._directory / TAIL
        path = own / os.urandom(8).hex()
        start = _MAGIC + os.urandom(_SALTED - len(_MAGIC))
        try:
            own.mkdir(PRIVATE_DIRECTORY)
            self._file = BlockFile(path, self._size, _LARGEST, start)
            sync_directory(own)
            sync_directory(self._directory)
        except OSError:
            self.close()
            shutil.rmtree(own, ignore_errors=True)
            return
        self._name = str(path)
        self._seed = zlib.crc32(start)

    @property
    def used(self) -> int:
        """Bytes that the database will need, at most."""
        return self._at

    def has_room(self) -> bool:
        """True if a record can be appended."""
        return self._file is not None and len(self.records) < _RECORDS and self._at + _LARGEST <= self._size

    def append(self, batch: Batch, now: int, sequence: int) -> bool:
        """Append a batch and sync it. There must be room.

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
        file = self._file
        assert file is not None
        body = _pack(batch, now)
        size = _HEAD.size + len(body)
        if size > _LARGEST:
            return False
        record = _sealed(sequence, body, self._seed)
        try:
            file.write(record, self._at)
            # Nothing that asks for the file's state: the next write would have to note the exact time (Linux 6.13).
            if not os.access(self._name, os.F_OK):
                self._look()
        except OSError:
            self.close()
            raise
        self._at += blocks(size)
        self.records.append(body)
        self.next_batch = batch.id + 1
        return True

    def _look(self) -> None:
        """The file seems to have been moved. Was it, or could that only not be seen?"""
        try:
            os.stat(self._name)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            self.close()
            raise SupersededError from None

    def restart(self) -> None:
        """All records are in the database: write over them."""
        self.records = []
        self._at = BLOCK

    def remove(self) -> None:
        """All records are in the database, and nothing will follow: leave nothing that an earlier version could not
        read. Another owner's file is left alone, wherever it is."""
        self.close()
        if self._name:
            try:
                os.unlink(self._name)  # noqa: PTH108
                (self._directory / TAIL).rmdir()
            except OSError:  # it is not there any more, or the directory is not empty
                pass

    def close(self) -> None:
        """Append no more."""
        if self._file is not None:
            self._file.close()
            self._file = None


class SupersededError(StoreError):
    """Another owner has taken the file."""


def read_tail(path: Path, sequence: int | None) -> Iterator[bytes]:
    """The records of a tail that follow what is in the database.

    Args:
        path: of an owner's directory, or of an earlier version's file; there may be none.
        sequence: writes that are in the database; None if that is not known: all that follow one another.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        # One file, or none if its owner was killed while it began. Where one directory was copied over another there
        # may be more: an owner's numbers begin behind its own start's, so the others have none that could follow.
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            for body in _read_records(file.read_bytes(), sequence):
                yield body
                if sequence is not None:
                    sequence += 1
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error


def _read_records(data: bytes, sequence: int | None) -> Iterator[bytes]:
    at, step, seed = 0, 1, 0
    if data.startswith((_MAGIC, _EARLIER_MAGIC)):
        at, seed = _SALTED, zlib.crc32(data[:_SALTED])
    if data.startswith(_MAGIC):
        at = step = BLOCK
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
        at = -(-end // step) * step


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


def _remove(path: Path) -> None:
    """An owner's directory, or an earlier version's file; there may be none."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
