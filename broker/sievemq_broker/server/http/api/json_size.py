"""How many values a piece of JSON has, found out before it is decoded: millions of them would hold the loop."""

from __future__ import annotations

import re
from typing import Final

from sievemq_broker.server.http.api.slices import in_slices

__all__ = ["MAX_JSON_VALUES", "has_at_most"]

#: Of a request, counted as its commas and brackets outside of strings: some milliseconds of decoding.
MAX_JSON_VALUES: Final = 20_000

#: Bytes that are looked at in one slice.
_PIECE: Final = 65_536

_MARKS: Final = b",", b"[", b"{"
_without_escapes: Final = re.compile(rb"\\.", re.DOTALL).sub


async def has_at_most(data: bytes, limit: int) -> bool:
    """True if there are at most so many commas and opening brackets outside of strings; in slices.

    Args:
        data: JSON, or anything else.
        limit: how many may be.
    """
    if sum(map(data.count, _MARKS)) <= limit:
        return True
    found, inside, rest = 0, False, b""
    async for start in in_slices(range(0, len(data), _PIECE), every=1):
        piece = rest + data[start : start + _PIECE]
        rest = b""
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # an escape that goes on in the next piece
            piece, rest = piece[:-1], b"\\"
        parts = _without_escapes(b"", piece).split(b'"')
        found += sum(part.count(mark) for part in parts[inside::2] for mark in _MARKS)
        if found > limit:
            return False
        inside ^= len(parts) % 2 == 0
    return True
