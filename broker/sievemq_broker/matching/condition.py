"""A compiled selector as matching needs it."""

from __future__ import annotations

from typing import Any, TypeAlias

from sievemq_core.errors import SieveError
from sievemq_core.limits import MAX_PROPERTY_CHARS
from sievemq_core.message.envelope import CORRELATION_ID, MESSAGE_ID, PROPERTIES, TYPE, Envelope
from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.cache import MAX_CHARS
from sievemq_core.selector.names import HEADERS as _HEADERS
from sievemq_core.selector.names import MODES

Condition: TypeAlias = CompiledSelector

#: The headers that a selector may name (SEL-05), and their fields in the envelope.
HEADERS: dict[str, int] = {name: position for name, (position, _) in _HEADERS.items()}

_MODE_NUMBERS = {name: number for number, name in MODES.items()}

_NO_PROPERTIES: dict[str, Any] = {}


def group_key(condition: Condition | None) -> str | None:
    """The key that consumers share if one evaluation serves them; None for no selector. Long selectors share it only
    if their texts are equal, because their canonical form takes milliseconds."""
    if condition is None:
        return None
    text = condition.text
    return condition.canonical if len(text) <= MAX_CHARS else f"{condition.dialect}: {text}"


def indexable(condition: Condition) -> list[tuple[str, frozenset[Any]]]:
    """The facts of a condition that a hash lookup answers: names, and the keys (``bucket_key``) one of which a matching
    message has there. JMSDeliveryMode is given as the number that stands in the envelope (D-13)."""
    return [(name, mode_keys(name, keys)) for name, keys in condition.facts.equalities]


def mode_keys(name: str, keys: frozenset[Any]) -> frozenset[Any]:
    """Keys as in the envelope: a delivery mode is a number there (D-13, D-16), everything else is unchanged."""
    return frozenset([_MODE_NUMBERS.get(key, key) for key in keys]) if name == "JMSDeliveryMode" else keys


def is_true(condition: Condition, envelope: Envelope) -> bool:
    """Is the condition TRUE for a message? Properties are decoded only if it names one.

    Raises:
        ProtocolError: they cannot be decoded.
    """
    properties = envelope.properties if condition.facts.uses_properties else _NO_PROPERTIES
    return condition.function(properties, envelope.fields)


def units(condition: Condition, envelope: Envelope) -> int:
    """The cost of evaluating a condition on a message, in units of some 3 µs: a message of a few properties and a
    selector of a few terms cost one."""
    if len(envelope.packed) < 256 and condition.effort[0] < 16 and not condition.effort[1]:
        return 1
    decoding = decoding_units(envelope) if condition.facts.uses_properties else 0
    return (
        body_units(envelope)
        + decoding
        + units_of(condition.effort, longest_text(envelope) if condition.effort[1] else 0)
    )


def body_units(envelope: Envelope) -> int:
    return len(envelope.packed) >> 12


def decoding_units(envelope: Envelope) -> int:
    try:
        return len(envelope.properties) >> 2
    except SieveError:  # it may hold anything, of a byte each
        return len(envelope.packed) >> 5


def units_of(effort: tuple[int, int], text: int) -> int:
    """The same without decoding.

    Args:
        effort: of a selector.
        text: characters of the longest text that it may search.
    """
    parts, searches = effort
    return 1 + (parts >> 4) + (searches * text >> 10)


def longest_text(envelope: Envelope) -> int:
    """Characters of the longest text of a message that a selector may search, at most."""
    fields = envelope.fields
    packed = fields[PROPERTIES]
    longest = 0 if packed is None else min(len(packed), MAX_PROPERTY_CHARS)
    for position in (MESSAGE_ID, CORRELATION_ID, TYPE):
        value = fields[position]
        if value is not None and len(value) > longest:
            longest = len(value)
    return longest
