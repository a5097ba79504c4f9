"""What the broker is told at the next write: acknowledgements that have gathered, then the outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
    """Move the outbox to the wire, which makes frames of it."""
    outbox, wire = connection.outbox, connection.wire
    connection.outbox_bytes = 0
    take = outbox.popleft
    packed = [take() for _ in range(len(outbox))]
    wire.out += packed
    wire.pending_bytes += sum(map(len, packed))
