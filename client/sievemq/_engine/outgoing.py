"""What the broker is told at the next write: acknowledgements that have gathered, then the outbox, in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sievemq_core.limits import GATHER_BYTES
from sievemq_core.wire.codec import pack

if TYPE_CHECKING:
    from sievemq._engine.connection import ClientConnection

__all__ = ["gather", "pack_acknowledgements"]

#: Numbers in one ACKNOWLEDGE_SEVERAL: consumers and tags in turn. Far below the limit of an array.
_SEVERAL: Final = 2_000


def pack_acknowledgements(connection: ClientConnection) -> None:
    """Put into the outbox what the consumers of a connection have to acknowledge."""
    unsettled = connection.unsettled
    pairs: list[int] = []
    while unsettled:
        consumer = unsettled.popleft()
        if consumer.unsettled:
            # In this order: whoever settles meanwhile either sees False and comes again, or is covered by `done`.
            consumer.unsettled = False
            pairs += (consumer.id, consumer.done)
    if connection.failure is not None or connection.closing or connection.repairing:
        return
    append, count = connection.outbox.append, len(pairs)
    if count > 2 and connection.acknowledges_several:
        for start in range(0, count, _SEVERAL):
            append(pack((34, pairs[start : start + _SEVERAL])))  # ACKNOWLEDGE_SEVERAL
    else:
        for at in range(0, count, 2):
            append(pack((25, pairs[at], pairs[at + 1], 0)))  # ACKNOWLEDGE


def gather(connection: ClientConnection) -> None:
    """Move the outbox to the wire, in pieces that fill a frame each: one call per piece, not per message."""
    outbox, send_packed = connection.outbox, connection.wire.send_packed
    connection.outbox_bytes = 0
    piece: list[bytes] = []
    size = 0
    for _ in range(len(outbox)):
        packed = outbox.popleft()
        piece.append(packed)
        size += len(packed)
        if size >= GATHER_BYTES:
            send_packed(b"".join(piece))
            piece.clear()
            size = 0
    if piece:
        send_packed(b"".join(piece))
