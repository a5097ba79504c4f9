"""Decides which connections may receive a large frame now: the memory of incomplete frames has a limit.

A connection whose frame does not fit is not read until other frames are complete, first come, first served. One large
frame is received whatever its size, so that every connection gets its turn. The size of a frame may not be known in
advance: an AMQP delivery in several transfers, a STOMP frame without a content-length. It counts with what arrived, and
is held back as soon as it no longer fits."""

from __future__ import annotations

from typing import Final, Protocol

from sievemq_core.limits import MAX_FRAME_BYTES

#: Memory of incomplete large frames, as a part of max_memory_bytes.
_SHARE: Final = 8


def share_of(memory: int) -> int:
    """Bytes that incomplete large frames may have together: one of any size, at least.

    Args:
        memory: max_memory_bytes.
    """
    return max(MAX_FRAME_BYTES, memory // _SHARE)


class _Reader(Protocol):
    def read_on(self) -> None:
        """The frame that had to wait is received now."""


class LargeFrames:
    """The large frames that are not complete.

    Attributes:
        limit: bytes that they may have together; 0 for no limit.
    """

    __slots__ = ("_bytes", "_reading", "_waiting", "limit")

    def __init__(self) -> None:
        self.limit = 0
        #: Of those that are received, and of what those that wait have received before.
        self._bytes = 0
        self._reading: dict[_Reader, int] = {}
        #: Size, and the part of it that is counted.
        self._waiting: dict[_Reader, tuple[int, int]] = {}

    def set_limit(self, limit: int) -> None:
        """Set the limit of all of them together."""
        self.limit = limit
        self._go_on()

    def admit(self, link: _Reader, size: int) -> bool:
        """True if `link` may receive a frame that has begun. Otherwise :meth:`_Reader.read_on` is called later.

        Args:
            link: whose frame; none of its earlier ones is known here any more.
            size: all its bytes, or those that arrived if its size is not known in advance.
        """
        if self._waiting or not self._fits(size):
            self._waiting[link] = size, 0
            return False
        self._reading[link] = size
        self._bytes += size
        return True

    def grow(self, link: _Reader, size: int) -> bool:
        """True if `link` may go on with a frame that was admitted and has so many bytes by now. Otherwise
        :meth:`_Reader.read_on` is called later. One of those that have begun always goes on."""
        known = self._reading[link]
        if size <= known:
            return True
        if self.limit and len(self._reading) > 1 and self._bytes - known + size > self.limit:
            del self._reading[link]
            self._waiting[link] = size, known
            return False
        self._reading[link] = size
        self._bytes += size - known
        return True

    def discard(self, link: _Reader) -> None:
        """The frame is complete, or its connection has ended."""
        self._bytes -= self._reading.pop(link, 0) + self._waiting.pop(link, (0, 0))[1]
        self._go_on()

    def _fits(self, size: int) -> bool:
        return not self.limit or not self._reading or self._bytes + size <= self.limit

    def _go_on(self) -> None:
        while self._waiting:
            link, (size, counted) = next(iter(self._waiting.items()))
            if not self._fits(size - counted):
                return
            del self._waiting[link]
            self._reading[link] = size
            self._bytes += size - counted
            link.read_on()
