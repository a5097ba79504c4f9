"""The envelope in which a message travels, without a producer."""

from __future__ import annotations

import copy
from typing import Any

from sievemq import Destination, Message, Queue
from sievemq.messages.base import NEW_FIELDS
from sievemq_core.limits import MAX_BODY_BYTES
from sievemq_core.wire.codec import pack_fields, send_start, unpack_value


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
    headers = (message_id, timestamp, priority, delivery_mode, expiration, delivery_time)
    number, session, sequence, address, fields = unpack_value(send(copy.copy(message), *headers, Queue("q")))
    assert (number, session, sequence, address) == (24, 1, 1, "queue:q")
    return fields  # type: ignore[no-any-return]


def send(
    message: Message,
    message_id: str | None,
    timestamp: int,
    priority: int,
    delivery_mode: int,
    expiration: int,
    delivery_time: int,
    destination: Destination,
) -> bytes:
    """The SEND of a message, which then shows what was decided."""
    decided = (timestamp, priority, delivery_mode, expiration, delivery_time)
    return message._to_send(
        send_start(1, str(destination), message_id, 1),
        1,
        "" if message_id is None else message_id[-1],
        pack_fields(decided),
        MAX_BODY_BYTES,
        message_id,
        (*decided, *NEW_FIELDS[6:]),
        destination,
    )
