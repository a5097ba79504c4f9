"""Which of many distinct selectors match a message, without asking each of them.

A selector that can only be TRUE if ``name`` has one of some values is filed under (name, value); a message then costs
one lookup per name in use plus one evaluation per selector in the buckets it hits. Selectors without such a fact are
asked one by one. Buckets may hold too many, never too few: the selector's own function decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from sievemq_broker.matching.condition import HEADERS, Condition, indexable
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector.to_python import Matcher

__all__ = ["SelectorIndex"]

T = TypeVar("T")

Bucket: TypeAlias = dict[T, Matcher]

_NO_PROPERTIES: dict[str, Any] = {}


class SelectorIndex(Generic[T]):
    """Targets by selector. A target is added once, with one selector.

    Attributes:
        evaluations: selectors asked so far.
        matches: those that were TRUE.
        error: what went wrong in the last :meth:`match`, or None (D-14). Whoever reads it resets it.
    """

    __slots__ = ("_filed", "_names", "_needing", "_rest", "error", "evaluations", "matches")

    def __init__(self) -> None:
        # name -> (position in the envelope or None for a property, key -> target -> function)
        self._names: dict[str, tuple[int | None, dict[Any, Bucket[T]]]] = {}
        self._rest: Bucket[T] = {}
        self._filed: dict[T, tuple[Condition, tuple[str, frozenset[Any]] | None]] = {}
        self._needing = 0  # selectors that name a property: while there are none, properties need not be decoded
        self.evaluations = 0
        self.matches = 0
        self.error: Exception | None = None

    def __len__(self) -> int:
        return len(self._filed)

    def add(self, condition: Condition, target: T) -> None:
        """File `target` under the fact that will have it asked least often."""
        chosen = self._choose(condition)
        self._filed[target] = (condition, chosen)
        self._needing += condition.facts.uses_properties
        if chosen is None:
            self._rest[target] = condition.function
            return
        name, keys = chosen
        if not keys:
            return  # it can never match
        if name not in self._names:
            self._names[name] = (HEADERS.get(name), {})
        buckets = self._names[name][1]
        for key in keys:
            buckets.setdefault(key, {})[target] = condition.function

    def remove(self, target: T) -> None:
        """Forget `target`."""
        condition, filed = self._filed.pop(target)
        self._needing -= condition.facts.uses_properties
        if filed is None:
            del self._rest[target]
            return
        name, keys = filed
        if not keys:
            return
        buckets = self._names[name][1]
        for key in keys:
            bucket = buckets[key]
            del bucket[target]
            if not bucket:
                del buckets[key]
        if not buckets:
            del self._names[name]

    def match(self, envelope: Envelope) -> list[T]:
        """The targets whose selector is TRUE for this message, each asked at most once.

        Never raises: where properties cannot be decoded nobody that names one matches, and :attr:`error` says why
        (D-14).
        """
        found: list[T] = []
        try:
            properties = envelope.properties if self._needing else _NO_PROPERTIES
            fields = envelope.fields
            for name, (position, buckets) in self._names.items():
                value = properties.get(name) if position is None else fields[position]
                if value.__class__ is bool:  # equal to 1 or 0 as a key in Python, but not to a selector
                    value = ("boolean", value)
                bucket = buckets.get(value)
                if bucket is not None:
                    self.evaluations += len(bucket)
                    for target, function in bucket.items():
                        if function(properties, fields):
                            found.append(target)
            if self._rest:
                self.evaluations += len(self._rest)
                for target, function in self._rest.items():
                    if function(properties, fields):
                        found.append(target)
        except Exception as error:  # whatever a hostile sender managed, it concerns this message alone
            self.error = error
            found = list(self._asked_alone(envelope))
        self.matches += len(found)
        return found

    def _asked_alone(self, envelope: Envelope) -> Iterator[T]:
        """As :meth:`match`, but one that fails does not keep the others from matching. Rare: nothing is looked up."""
        for target, (condition, _) in self._filed.items():
            try:
                properties = envelope.properties if condition.facts.uses_properties else _NO_PROPERTIES
                if condition.function(properties, envelope.fields):
                    yield target
            except Exception as error:  # as above
                self.error = error

    def _choose(self, condition: Condition) -> tuple[str, frozenset[Any]] | None:
        """The fact whose buckets are emptiest; among equals a name that messages are asked for anyway, then the fewest
        keys. So `region = 'EU' AND customer = 17` ends up under the customer, whoever else asks for the region."""

        def cost(fact: tuple[str, frozenset[Any]]) -> tuple[int, bool, int]:
            name, keys = fact
            known = self._names.get(name)
            fullest = max((len(known[1].get(key, ())) for key in keys), default=0) if known else 0
            return fullest, known is None, len(keys)

        if condition.facts.never:
            return "", frozenset()
        return min(indexable(condition), key=cost, default=None)
