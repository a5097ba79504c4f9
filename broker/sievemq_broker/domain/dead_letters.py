"""Messages that nobody could handle: they end in ``DLQ.<destination>``, with the reason as properties (D-22)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.domain.entry import Entry
from sievemq_core.errors import FormatError, ProtocolError, SieveError
from sievemq_core.limits import MAX_DESTINATION_CHARS
from sievemq_core.message.destination import Address, Kind, parse_address
from sievemq_core.message.envelope import (
    DELIVERY_TIME,
    EXPIRATION,
    PROPERTIES,
    PROPERTY_TYPES,
    Envelope,
    pack_properties,
)
from sievemq_core.message.values import Long

if TYPE_CHECKING:
    from sievemq_broker.domain.namespace import Namespace
    from sievemq_broker.domain.queue import Queue

__all__ = [
    "ATTEMPTS",
    "FIRST_FAILURE",
    "LAST_FAILURE",
    "ORIGIN",
    "PREFIX",
    "REASON",
    "bury",
    "dead_letter_address",
    "risen",
]

PREFIX = "DLQ."

REASON = "JMS_SieveMQ_DeadLetterReason"
"""``attempts`` or ``expired``."""
ORIGIN = "JMS_SieveMQ_DeadLetterOrigin"
"""Address of the destination; for a topic followed by ``/`` and the subscription's name."""
ATTEMPTS = "JMS_SieveMQ_DeadLetterAttempts"
"""Deliveries that were made."""
FIRST_FAILURE = "JMS_SieveMQ_DeadLetterFirstFailure"
LAST_FAILURE = "JMS_SieveMQ_DeadLetterLastFailure"
"""Ms epoch."""

_OWN = (REASON, ORIGIN, ATTEMPTS, FIRST_FAILURE, LAST_FAILURE)


def dead_letter_address(origin: str) -> str | None:
    """Where the dead letters of a destination go; None for a dead-letter queue itself.

    All temporary destinations of a kind share one: their names end with a connection, a queue each would pile up.
    """
    address = parse_address(origin)
    if address.kind.is_temporary:
        return str(Address(Kind.QUEUE, PREFIX + address.kind.value))
    if address.name.startswith(PREFIX):
        return None
    return str(Address(Kind.QUEUE, (PREFIX + address.name)[:MAX_DESTINATION_CHARS].rstrip()))


def bury(namespace: Namespace, queue: Queue, entry: Entry, reason: str, now: int) -> bool:
    """See Namespace.bury."""
    subscription = queue.subscription
    target = dead_letter_address(queue.label if subscription is None else subscription.topic.label)
    if target is None:
        return False
    envelope = _marked(entry, queue.label, reason, now)
    try:
        namespace.send(target, envelope, now)
    except SieveError:
        return False  # it is full, or may not be made: better delivered once more than lost
    if queue.observer is not None:
        queue.observer.dead_lettered(queue, entry, reason)
    return True


def _marked(entry: Entry, origin: str, reason: str, now: int) -> Envelope:
    fields = list(entry.envelope.fields)
    fields[EXPIRATION] = fields[DELIVERY_TIME] = 0  # it stays until somebody has looked at it
    try:
        properties = dict(entry.envelope.properties)
        properties[REASON] = reason
        properties[ORIGIN] = origin
        properties[ATTEMPTS] = entry.count
        if entry.count:
            properties[FIRST_FAILURE] = Long(entry.failed)
            properties[LAST_FAILURE] = Long(now)
        fields[PROPERTIES], fields[PROPERTY_TYPES] = pack_properties(properties)
    except (ProtocolError, FormatError):
        pass  # undecodable or full: kept as they are rather than lost
    return Envelope(tuple(fields))


def risen(envelope: Envelope) -> tuple[str | None, Envelope]:
    """A dead letter as it was before: the address it came from, None if it does not say, and the message without the
    properties that :func:`bury` added."""
    try:
        properties = dict(envelope.properties)
    except ProtocolError:
        return None, envelope
    origin = properties.get(ORIGIN)
    if not isinstance(origin, str):
        return None, envelope
    for name in _OWN:
        properties.pop(name, None)
    fields = list(envelope.fields)
    fields[PROPERTIES], fields[PROPERTY_TYPES] = pack_properties(properties)
    return origin, Envelope(tuple(fields))
