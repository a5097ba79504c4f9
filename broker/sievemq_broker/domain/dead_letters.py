"""Dead letters: messages that no consumer could process. They go to ``DLQ.<destination>``, with the reason as
properties (D-22)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from itertools import islice

from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.failure import Failure
from sievemq_broker.domain.place import Place
from sievemq_core.errors import FormatError, ProtocolError, SieveError
from sievemq_core.limits import MAX_DESTINATION_CHARS, MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from sievemq_core.message.dead_letters import (
    ATTEMPTS,
    CLIENT_ID,
    ERROR,
    FAILED_BY_ADDRESS,
    FAILED_BY_CLIENT_ID,
    FAILED_BY_CONSUMER,
    FAILED_BY_USER,
    FIRST_FAILURE,
    LAST_FAILURE,
    ORIGIN,
    PREFIX,
    REASON,
    SUBSCRIPTION,
)
from sievemq_core.message.destination import Address, Kind, parse_address
from sievemq_core.message.envelope import (
    DELIVERY_TIME,
    EXPIRATION,
    PROPERTIES,
    PROPERTY_TYPES,
    Envelope,
    pack_properties,
)
from sievemq_core.message.values import Long, PropertyValue

REFUSED_DELAY_MS = 1_000
"""The least time in ms before a message is delivered again if its dead-letter queue refused it. It has failed too often
already, and without a delay it would go round as fast as consumers can fail."""

#: The cost of creating a dead letter without its properties, in messages that come back.
_MAKING = 30


class DeadLettering(Enum):
    """The result of an attempt to dead-letter a message."""

    DONE = auto()
    NOWHERE = auto()
    """The message is in a dead-letter queue already."""
    REFUSED = auto()
    """The dead-letter queue is full, or cannot be created."""


_OWN = (
    REASON, ORIGIN, SUBSCRIPTION, CLIENT_ID, ATTEMPTS, FIRST_FAILURE, LAST_FAILURE, ERROR,
    FAILED_BY_CLIENT_ID, FAILED_BY_USER, FAILED_BY_ADDRESS, FAILED_BY_CONSUMER,
)  # fmt: skip


def dead_letter_address(origin: str) -> str | None:
    """The address of the dead letters of a destination; None for a dead-letter queue itself. All temporary destinations
    of a kind share one, since their names end with the connection and their queues would pile up."""
    address = parse_address(origin)
    if address.kind.is_temporary:
        return str(Address(Kind.QUEUE, PREFIX + address.kind.value))
    if address.name.startswith(PREFIX):
        return None
    return str(Address(Kind.QUEUE, (PREFIX + address.name)[:MAX_DESTINATION_CHARS].rstrip()))


def origins_of(address: Address) -> tuple[Address, ...]:
    """The destinations whose dead letters go to this queue, if it is a dead-letter queue."""
    if address.kind is not Kind.QUEUE or not address.name.startswith(PREFIX):
        return ()
    name = address.name.removeprefix(PREFIX)
    return Address(Kind.QUEUE, name), Address(Kind.TOPIC, name)


def effort_of(entry: Entry) -> int:
    """The cost of creating a dead letter, in deadlines, or messages that come back: some 2 µs each."""
    return _MAKING + (len(entry.envelope.packed) >> 7)


def dead_letter(
    transfer: Callable[[str, Envelope, int], None], place: Place, entry: Entry, reason: str, failure: Failure, now: int
) -> DeadLettering:
    """Move a message to its dead-letter queue (D-22), if that is possible.

    Args:
        transfer: sends a message, which has been in the broker before, to an address, at a time (ms epoch).
        failure: what is known of the last one.
        now: ms epoch.
    """
    target = dead_letter_address(place.destination)
    if target is None:
        return DeadLettering.NOWHERE
    try:
        transfer(target, _marked(entry, place, reason, failure, now), now)
    except SieveError:
        return DeadLettering.REFUSED  # better delivered once more than lost
    return DeadLettering.DONE


def _marked(entry: Entry, place: Place, reason: str, failure: Failure, now: int) -> Envelope:
    fields = list(entry.envelope.fields)
    fields[EXPIRATION] = fields[DELIVERY_TIME] = 0  # it stays until an operator handles it
    notes: dict[str, PropertyValue] = {REASON: reason, ORIGIN: place.destination}
    if place.subscription is not None:
        notes[SUBSCRIPTION] = place.subscription
        if place.client_id is not None:
            notes[CLIENT_ID] = place.client_id
    notes[ATTEMPTS] = entry.attempts
    if entry.attempts:
        notes[FIRST_FAILURE] = Long(entry.failed)
        notes[LAST_FAILURE] = Long(now)
    if failure.text:
        notes[ERROR] = failure.text
    notes.update(_failed_by(failure))
    try:
        properties = {name: value for name, value in entry.envelope.properties.items() if name not in _OWN}
    except ProtocolError:  # undecodable: kept as they are, not lost
        return Envelope(tuple(fields))
    try:
        fields[PROPERTIES], fields[PROPERTY_TYPES] = pack_properties({**properties, **notes})
    except FormatError:
        fields[PROPERTIES], fields[PROPERTY_TYPES] = pack_properties({**dict(_fitting(properties, notes)), **notes})
    return Envelope(tuple(fields))


def _failed_by(failure: Failure) -> Iterator[tuple[str, PropertyValue]]:
    party = failure.party
    names = (FAILED_BY_CLIENT_ID, party.client_id), (FAILED_BY_USER, party.user), (FAILED_BY_ADDRESS, party.address)
    for name, value in names:
        if value:
            yield name, value
    if party.connection:
        yield FAILED_BY_CONSUMER, f"{party.connection}.{failure.consumer}" if failure.consumer else party.connection


def _fitting(
    properties: dict[str, PropertyValue], notes: dict[str, PropertyValue]
) -> Iterator[tuple[str, PropertyValue]]:
    """The first of these properties, as many as a message can have beside `notes`."""
    room = MAX_PROPERTIES_BYTES - _packed_size(notes)
    for name, value in islice(properties.items(), MAX_PROPERTIES - len(notes)):
        room -= _packed_size({name: value})
        if room < 0:
            return
        yield name, value


def _packed_size(properties: dict[str, PropertyValue]) -> int:
    packed, _ = pack_properties(properties)
    return 0 if packed is None else len(packed)


def restored(envelope: Envelope) -> tuple[str | None, Envelope]:
    """A dead letter restored: the address of its origin (None if it does not name one), and the message without
    the properties that :func:`dead_letter` added."""
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


def origin_of(envelope: Envelope, name: str = ORIGIN) -> str | None:
    """The origin in a dead letter's properties: the address, SUBSCRIPTION or CLIENT_ID; None if absent."""
    try:
        value = envelope.properties.get(name)
    except ProtocolError:
        return None
    return value if isinstance(value, str) else None
