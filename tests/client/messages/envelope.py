"""The envelope in which a message travels, without anybody who sends it."""

from __future__ import annotations

from typing import Any

from sievemq import Message
from sievemq_core.limits import MAX_BODY_BYTES
from sievemq_core.wire.codec import NIL, pack, unpack_value

__all__ = ["fields_of"]


def fields_of(
    message: Message,
    message_id: str | None = "ID:c:1",
    timestamp: int = 1,
    priority: int = 4,
    delivery_mode: int = 2,
    expiration: int = 0,
    delivery_time: int = 1,
) -> tuple[Any, ...]:
    """The fields of the envelope, as whoever receives the message has them."""
    decided = b"".join(map(pack, (timestamp, priority, delivery_mode, expiration, delivery_time)))
    head = b"\x95\x18\x01\xcf", (1).to_bytes(8), pack("queue:q") + b"\x9d"
    packed = message._to_send(*head, NIL if message_id is None else pack(message_id), decided, MAX_BODY_BYTES)
    number, session, sequence, address, fields = unpack_value(packed)
    assert (number, session, sequence, address) == (24, 1, 1, "queue:q")
    return fields  # type: ignore[no-any-return]
