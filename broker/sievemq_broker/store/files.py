"""Files beside the database: the owner of the directory, how far it is known to be written, room for a full disk."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import sys
import zlib
from pathlib import Path
from typing import Final

from sievemq_broker.domain.store import DamagedError, LockedError, StoreError

if sys.platform != "win32":  # there the database's own lock must do
    import fcntl

#: Modes of the files of a store: they contain message bodies, so only the broker's user may read them, whatever the
#: umask is.
PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE_FILE: Final = 0o600

#: The process's id in the lock's file. Always as many bytes: overwriting them needs no room on the disk.
_OWNER_BYTES: Final = 32

#: A symbolic link planted in place of one of the files is not followed. Windows has neither flag, and one for bytes.
_FLAGS: Final = (
    os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)


def open_private(path: Path) -> int:
    """Open a file to read and write it. A new file is readable by the broker's user alone.

    Raises:
        OSError: it cannot be opened, or is a symbolic link.
    """
    return os.open(path, _FLAGS, _PRIVATE_FILE)


def _write_at(descriptor: int, data: bytes, at: int = 0) -> None:
    if sys.platform == "win32":
        os.lseek(descriptor, at, os.SEEK_SET)
        os.write(descriptor, data)
    else:
        os.pwrite(descriptor, data, at)


def make_private(path: Path) -> None:
    """Make a file of an earlier version readable by the broker's user alone, if it is there."""
    if sys.platform == "win32":
        return
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            path.chmod(_PRIVATE_FILE)
    except OSError:  # it is not there, or belongs to another user
        pass


def sync_directory(path: Path) -> None:
    """Ensure that a new file in a directory survives a power cut."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _whose(directory: Path) -> str:
    """The advice for a directory of another user, such as one that a container engine mounts."""
    if sys.platform == "win32":
        return ""
    uid, owner = os.geteuid(), directory.stat().st_uid
    if owner == uid:
        return ""
    return f". The broker runs as uid {uid}, and {directory} belongs to uid {owner}: chown -R {uid} that directory"


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
            self._descriptor = open_private(path)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror or error}{_whose(path.parent)}") from error
        try:
            if sys.platform != "win32":
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(self._descriptor, _OWNER_BYTES).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise LockedError(
                f"the data directory {path.parent} is in use by another broker (process {owner}); "
                "stop that one, or give this one its own directory"
            ) from error
        with contextlib.suppress(OSError):  # only for people; on a full disk a new file has no room for it
            _write_at(self._descriptor, f"{os.getpid():<{_OWNER_BYTES - 1}}\n".encode())

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Witness:
    """How many writes are known to be on disk, beside the database: its log ends at the first frame that is damaged,
    and would end there in silence. Written after each write and not synced: it may be behind, never ahead.
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
        self._descriptor = open_private(self.path)
        self.write(sequence)
        os.fsync(self._descriptor)
        sync_directory(self.path.parent)

    def write(self, sequence: int) -> None:
        """Record the number of writes on disk."""
        data = sequence.to_bytes(8, "little")
        _write_at(self._descriptor, self._FORM.pack(sequence, zlib.crc32(data)))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Reserve:
    """A file that only takes room, given up when the disk is full: so what is acknowledged can still be noted, which is
    what makes room again.

    Args:
        size: bytes; 0 for none.

    Attributes:
        held: bytes that it takes now.
    """

    __slots__ = ("_path", "held", "size")

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size
        try:
            self.held = path.stat().st_size  # of the last run
        except OSError:
            self.held = 0

    def take(self, free: int) -> None:
        """Take the room, or as much of it as there is.

        Args:
            free: bytes on the disk.
        """
        size = min(self.size, self.held + free - free // 8)
        if size == self.held or size < min(self.size, self.held + self.size // 8):
            return  # it has all, or there is hardly more
        try:
            descriptor = open_private(self._path)
        except OSError:
            return
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size)
            else:
                for at in range(0, size, 65_536):
                    _write_at(descriptor, bytes(min(65_536, size - at)), at)
            os.fsync(descriptor)
        except OSError:
            self.give()
        else:
            self.held = size
        finally:
            os.close(descriptor)

    def give(self) -> bool:
        """Give up the room. False if there was none."""
        self.held = 0
        try:
            self._path.unlink()
        except OSError:  # it is not there, or nothing can be changed
            return False
        return True
