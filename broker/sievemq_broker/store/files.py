"""The files beside the database: who owns the directory, how far it is known to be written, room for a full disk."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from sievemq_broker.store.errors import DamagedError, LockedError, StoreError

try:
    import fcntl
except ImportError:  # Windows: the database's own lock has to do
    fcntl = None  # type: ignore[assignment]

__all__ = ["Lock", "Reserve", "Witness", "sync_directory"]


def sync_directory(path: Path) -> None:
    """See to it that a file made in a directory is found there after a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """One process per data directory.

    Args:
        path: the file; it stays, the lock goes with the process.

    Raises:
        LockedError: another process has it.
        StoreError: the file cannot be made.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o640)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror or error}") from error
        try:
            if fcntl is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(self._descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise LockedError(
                f"the data directory {path.parent} is in use by another broker (process {owner}); "
                "stop that one, or give this one a directory of its own"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Witness:
    """How many writes are known to be on disk, beside the database: its log ends at the first frame that is damaged,
    and would end there in silence. Written after each write and not synced: it may be behind, never ahead.

    Args:
        path: the file.
    """

    __slots__ = ("_descriptor", "path")

    _FORM = struct.Struct("<QI")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def read(self) -> int | None:
        """The number of the last known write; None if there is no file.

        Raises:
            DamagedError: the file is not what was written.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if len(data) == self._FORM.size:
            sequence, crc = self._FORM.unpack(data)
            if crc == zlib.crc32(data[:8]):
                return int(sequence)
        raise DamagedError(f"{self.path}: the checksum is wrong")

    def open(self, sequence: int) -> None:
        """Begin to write.

        Raises:
            OSError: the file cannot be written.
        """
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o640)
        self.write(sequence)
        os.fsync(self._descriptor)
        sync_directory(self.path.parent)

    def write(self, sequence: int) -> None:
        """So many writes are on disk."""
        data = sequence.to_bytes(8, "little")
        os.pwrite(self._descriptor, self._FORM.pack(sequence, zlib.crc32(data)), 0)

    def close(self) -> None:
        """No more writes."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Reserve:
    """A file that only takes room, given up when the disk is full: so what is acknowledged can still be noted, which is
    what makes room again.

    Args:
        path: the file.
        size: bytes; 0 for none.
    """

    __slots__ = ("_path", "size")

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size

    def take(self) -> bool:
        """Take the room; False if there is not enough."""
        if not self.size:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o640)
        except OSError:
            return False
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, self.size)
            else:
                for at in range(0, self.size, 65_536):
                    os.pwrite(descriptor, bytes(min(65_536, self.size - at)), at)
            os.fsync(descriptor)
        except OSError:
            self._path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
        return True

    def give(self) -> bool:
        """Give the room up; False if there was none."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True
