"""The answer to BROWSE, around envelopes that are packed already."""

from __future__ import annotations

from collections.abc import Iterable

from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

__all__ = ["pack_page"]


def pack_page(request: int, cursor: object, messages: list[tuple[int, Envelope]]) -> bytes:
    """``[OK, request, [cursor, [count, envelope], …]]`` packed.

    Args:
        request: of the BROWSE.
        cursor: where the next page begins; None at the end.
        messages: count of the next delivery and envelope, in delivery order.
    """
    parts: list[bytes] = [
        b"\x93",
        pack(Command.OK),
        pack(request),
        b"\xdd",
        (len(messages) + 1).to_bytes(4, "big"),
        pack(cursor),
        *_pairs(messages),
    ]
    return b"".join(parts)


def _pairs(messages: Iterable[tuple[int, Envelope]]) -> Iterable[bytes]:
    for count, envelope in messages:
        yield b"\x92"
        yield pack(count)
        yield envelope.packed
