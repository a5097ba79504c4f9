"""A file of fixed size, written in whole blocks that are on disk when the write returns.

Where the file system allows it, blocks go around the page cache: one call and one request to the disk (O_DIRECT and
O_DSYNC) in place of a write, a sync and what the page cache does for both. Elsewhere they are written and synced. What
is in the file is the same in either case.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sievemq_broker.store.files import open_private

__all__ = ["BLOCK", "BlockFile", "blocks"]

#: Bytes. A block is rewritten as a whole, so a record begins at one: a write that is torn harms no record but its own.
BLOCK: Final = 4_096

#: Nothing where the system cannot do it.
_AROUND: int = getattr(os, "O_DIRECT", 0) and os.O_DIRECT | os.O_DSYNC

_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)

_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def blocks(size: int) -> int:
    """So many bytes and what is missing to the end of a block."""
    return -(-size // BLOCK) * BLOCK


class BlockFile:
    """A new file: `begin`, and zeros. A sync of a file that grows writes the file system's journal as well; over zeros
    it does not.

    Args:
        path: where there is no file yet.
        size: bytes.
        largest: bytes of one write at most.
        begin: what it begins with.

    Raises:
        OSError: it cannot be made.
    """

    __slots__ = ("_buffer", "_descriptor", "_view", "is_direct")

    def __init__(self, path: Path, size: int, largest: int, begin: bytes) -> None:
        # Anonymous memory begins at a page, as what goes around the page cache must.
        self._buffer = mmap.mmap(-1, blocks(max(largest, len(begin))))
        self._view = memoryview(self._buffer)
        #: Whether writes go around the page cache.
        self.is_direct = False
        self._descriptor = open_private(path, os.O_EXCL)
        try:
            _write_all(self._descriptor, memoryview(bytes(size)), 0)
            _sync(self._descriptor)
            if not self._goes_around(path, begin):
                self.write(begin, 0)
        except OSError:
            self.close()
            raise

    def _goes_around(self, path: Path, begin: bytes) -> bool:
        """Write the beginning around the page cache, and see whether those who read find it: some file systems refuse
        when they are asked for it, some when they are written to."""
        if not _AROUND:
            return False
        try:
            descriptor = os.open(path, os.O_RDWR | _AROUND | _CLOEXEC)
        except OSError:
            return False
        ordinary, self._descriptor, self.is_direct = self._descriptor, descriptor, True
        try:
            self.write(begin, 0)
            if os.pread(ordinary, len(begin), 0) == begin:
                os.close(ordinary)
                return True
        except OSError:
            pass
        os.close(descriptor)
        self._descriptor, self.is_direct = ordinary, False
        return False

    def write(self, data: bytes, at: int) -> None:
        """Write at the beginning of a block. It is on disk when this returns, and zeros behind it to the block's end.

        Args:
            data: no more than `largest` bytes.
            at: place in the file.

        Raises:
            OSError: it cannot be written. What is there now is not known.
        """
        size = len(data)
        end = blocks(size)
        view = self._view
        view[:size] = data
        view[size:end] = bytes(end - size)
        _write_all(self._descriptor, view[:end], at)
        if not self.is_direct:
            _sync(self._descriptor)

    def close(self) -> None:
        """Write no more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_all(descriptor: int, data: memoryview, at: int) -> None:
    written = os.pwrite(descriptor, data, at)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], at + written)
