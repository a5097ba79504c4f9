"""What matching takes from a compiled selector."""

from __future__ import annotations

from typing import Any, TypeAlias

from sievemq_core.message.envelope import Envelope
from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.names import HEADERS as _HEADERS
from sievemq_core.selector.names import MODES

__all__ = ["HEADERS", "Condition", "group_key", "indexable", "is_true", "mode_keys"]

Condition: TypeAlias = CompiledSelector

#: The headers that a selector may name (SEL-05) and where the envelope has them.
HEADERS: dict[str, int] = {name: position for name, (position, _) in _HEADERS.items()}

_MODE_NUMBERS = {name: number for number, name in MODES.items()}

_NO_PROPERTIES: dict[str, Any] = {}


def group_key(condition: Condition | None) -> str | None:
    """What two consumers share if one evaluation serves both; None for no selector."""
    return None if condition is None else condition.canonical


def indexable(condition: Condition) -> list[tuple[str, frozenset[Any]]]:
    """The facts of a condition that a hash lookup answers: names, and the keys (``bucket_key``) one of which a matching
    message has there. JMSDeliveryMode is given as the number that stands in the envelope (D-13)."""
    return [(name, mode_keys(name, keys)) for name, keys in condition.facts.equalities]


def mode_keys(name: str, keys: frozenset[Any]) -> frozenset[Any]:
    """Keys as the envelope has them: a delivery mode is a number there (D-13), everything else is as it is."""
    return frozenset(map(_MODE_NUMBERS.get, keys)) if name == "JMSDeliveryMode" else keys


def is_true(condition: Condition, envelope: Envelope) -> bool:
    """Is the condition TRUE for a message? Properties are decoded only if it names one.

    Raises:
        ProtocolError: they cannot be decoded.
    """
    properties = envelope.properties if condition.facts.uses_properties else _NO_PROPERTIES
    return condition.function(properties, envelope.fields)
