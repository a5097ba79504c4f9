"""Decides which connections may receive a large frame now: the memory of incomplete frames has a limit.

A connection whose frame does not fit is not read until other frames are complete, first come, first served. One large
frame is received whatever its size, so that every connection gets its turn."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["FRAMES_SHARE", "LargeFrames"]

#: Memory of incomplete large frames, as a part of max_memory_bytes.
FRAMES_SHARE: Final = 8


class _Reader(Protocol):
    def read_on(self) -> None:
        """The frame that had to wait is received now."""


class LargeFrames:
    """The large frames that are not complete.

    Attributes:
        limit: bytes that they may have together; 0 for no limit.
    """

    __slots__ = ("_admitted", "_bytes", "_waiting", "limit")

    def __init__(self) -> None:
        self.limit = 0
        self._bytes = 0
        self._admitted: dict[_Reader, int] = {}
        self._waiting: dict[_Reader, int] = {}

    def set_limit(self, limit: int) -> None:
        """Set the limit of all of them together."""
        self.limit = limit

    def admit(self, link: _Reader, size: int) -> bool:
        """True if `link` may receive a frame that has begun. Otherwise :meth:`_Reader.read_on` is called later.

        Args:
            link: whose frame; none of its earlier ones is known here any more.
            size: all its bytes.
        """
        if self.limit and (self._waiting or not self._fits(size)):
            self._waiting[link] = size
            return False
        self._admitted[link] = size
        self._bytes += size
        return True

    def discard(self, link: _Reader) -> None:
        """The frame is complete, or its connection has ended."""
        self._bytes -= self._admitted.pop(link, 0)
        self._waiting.pop(link, None)
        self._go_on()

    def _fits(self, size: int) -> bool:
        return not self._admitted or self._bytes + size <= self.limit

    def _go_on(self) -> None:
        while self._waiting:
            link, size = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            del self._waiting[link]
            self._admitted[link] = size
            self._bytes += size
            link.read_on()
