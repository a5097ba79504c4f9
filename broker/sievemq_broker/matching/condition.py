"""What matching needs to know of a compiled selector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from sievemq_core.message.envelope import CORRELATION_ID, DELIVERY_MODE, MESSAGE_ID, PRIORITY, TIMESTAMP, TYPE

__all__ = ["HEADERS", "Condition", "Facts", "Predicate", "group_key", "indexable"]

Predicate: TypeAlias = Callable[[dict[str, Any], tuple[Any, ...]], object]
"""Properties and envelope fields in, a true value if and only if the selector is TRUE."""


class Facts(Protocol):
    """Necessary conditions of a selector."""

    @property
    def equalities(self) -> tuple[tuple[str, frozenset[Any]], ...]:
        """Each says: the selector can only be TRUE if the property or header has one of these values."""


class Condition(Protocol):
    """A compiled selector, as ``sievemq_core.selector.CompiledSelector`` is one."""

    @property
    def canonical(self) -> str:
        """Text that is equal for selectors that mean the same."""

    @property
    def function(self) -> Predicate:
        """The test itself."""

    @property
    def facts(self) -> Facts:
        """Its necessary conditions."""


#: The headers that a selector may name (SEL-05) and where the envelope has them.
HEADERS = {
    "JMSMessageID": MESSAGE_ID,
    "JMSTimestamp": TIMESTAMP,
    "JMSPriority": PRIORITY,
    "JMSDeliveryMode": DELIVERY_MODE,
    "JMSCorrelationID": CORRELATION_ID,
    "JMSType": TYPE,
}

_MODES = {"NON_PERSISTENT": 1, "PERSISTENT": 2}

# From here on a long and a double that JMS calls equal may be unequal in Python, which compares exactly.
_EXACT = 2**53


def group_key(condition: Condition | None) -> tuple[str, str] | None:
    """What two consumers share if one evaluation serves both; None for no selector."""
    if condition is None:
        return None
    return str(getattr(condition, "dialect", "")), condition.canonical


def indexable(condition: Condition) -> list[tuple[str, frozenset[Any]]]:
    """Those equalities of a condition that a hash lookup answers, with values as they stand in messages."""
    usable: list[tuple[str, frozenset[Any]]] = []
    for name, values in condition.facts.equalities:
        if name == "JMSDeliveryMode":
            values = frozenset(_MODES.get(value, value) for value in values)  # D-13
        if all(isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) < _EXACT) for value in values):
            usable.append((name, values))
    return usable
