"""The answer to BROWSE, around envelopes that are packed already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

__all__ = ["pack_page"]


def pack_page(request: int, cursor: object, messages: list[tuple[Any, ...]]) -> bytes:
    """``[OK, request, [cursor, [count, envelope], …]]`` packed; in a page of a part ``[count, envelope, place]``.

    Args:
        request: of the BROWSE.
        cursor: where the next page begins; None at the end.
        messages: count of the next delivery and envelope, in delivery order; with the place there of a part's messages.
    """
    parts: list[bytes] = [
        b"\x93",
        pack(Command.OK),
        pack(request),
        b"\xdd",
        (len(messages) + 1).to_bytes(4, "big"),
        pack(cursor),
        *_rows(messages),
    ]
    return b"".join(parts)


def _rows(messages: Iterable[tuple[Any, ...]]) -> Iterable[bytes]:
    for count, envelope, *place in messages:
        yield b"\x93" if place else b"\x92"
        yield pack(count)
        yield envelope.packed
        if place:
            yield pack(place[0])
