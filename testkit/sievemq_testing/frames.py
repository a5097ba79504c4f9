"""Where frames of each protocol end in a stream of bytes, and where a fault cuts that stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_LENGTH: Final = re.compile(rb"\ncontent-length:\s*(\d+)\r?\n", re.IGNORECASE)
_HEADERS_END: Final = re.compile(rb"\r?\n\r?\n")
_AMQP_HEADER: Final = 8


def _sieve(data: bytes) -> int | None:
    return 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else None


def _amqp(data: bytes) -> int | None:
    if data.startswith(b"AMQP"):
        return _AMQP_HEADER
    return int.from_bytes(data[:4], "big") if len(data) >= 4 else None


def _stomp(data: bytes) -> int | None:
    begins = len(data) - len(data.lstrip(b"\r\n"))
    headers = _HEADERS_END.search(data, begins)
    if headers is None:
        return None
    length = _LENGTH.search(data, begins, headers.end())
    if length is not None:
        return headers.end() + int(length[1]) + 1
    end = data.find(b"\0", headers.end())
    return None if end < 0 else end + 1


#: The length of the frame that bytes begin with; None if they do not tell yet.
_LENGTHS: Final[Mapping[str, Callable[[bytes], int | None]]] = {"sieve": _sieve, "amqp": _amqp, "stomp": _stomp}


class Cut:
    """Where a stream ends. It begins at a frame.

    Args:
        protocol: ``sieve``, ``amqp`` or ``stomp``.
        skip: frames that pass whole.
        between: the stream ends behind them; otherwise in the middle of the frame that follows.
    """

    def __init__(self, protocol: str, skip: int, between: bool) -> None:
        self._length_of = _LENGTHS[protocol]
        #: What may stand between two frames.
        self._blanks = b"\r\n" if protocol == "stomp" else b""
        self._left = skip
        self._between = between
        #: The beginning of a frame whose end has not come.
        self._begun = b""

    def at(self, data: bytes) -> int | None:
        """How many of these bytes pass, and none after them; None if all do and more may."""
        stream, known = self._begun + data, len(self._begun)
        start = 0
        while True:
            if not self._left and self._between:
                return max(0, start - known)
            length = self._length_of(stream[start:])
            if not self._left and stream[start:].lstrip(self._blanks):
                whole = len(stream) - start if length is None else min(length, len(stream) - start)
                return max(0, start + max(1, whole // 2) - known)
            if length is None or start + length > len(stream):
                self._begun = stream[start:]
                return None
            start += length
            self._left -= 1
