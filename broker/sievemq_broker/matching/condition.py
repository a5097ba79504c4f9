"""What matching takes from a compiled selector."""

from __future__ import annotations

from typing import Any, TypeAlias

from sievemq_core.message.envelope import Envelope
from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.names import HEADERS as _HEADERS
from sievemq_core.selector.names import MODES
from sievemq_core.selector.printer import print_literal

__all__ = ["HEADERS", "Condition", "group_key", "indexable", "is_lookup", "is_true", "mode_keys"]

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


def is_lookup(condition: Condition) -> bool:
    """True if a selector says no more than that one name has one of some texts: whoever finds a message's value among
    its keys need not ask its function. Only texts: they are equal as keys exactly if they are to a selector."""
    equalities = condition.facts.equalities
    if len(equalities) != 1:
        return False
    name, keys = equalities[0]
    texts = sorted(print_literal(key) for key in keys if isinstance(key, str))
    if len(texts) < len(keys) or name == "JMSDeliveryMode":  # the mode is a number in the envelope
        return False
    whole = f"{name} = {texts[0]}" if len(texts) == 1 else f"{name} IN ({', '.join(texts)})"
    return condition.canonical == whole


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
