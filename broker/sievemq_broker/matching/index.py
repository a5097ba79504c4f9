"""Which of many distinct selectors match a message, without asking each of them.

A selector that can only be TRUE if ``name`` has one of some values is filed under (name, value); a message then costs
one lookup per name in use plus one evaluation per selector in the buckets it hits. Selectors without such a fact are
asked one by one. Buckets may hold too many, never too few: the selector's own function decides.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from sievemq_broker.matching.condition import HEADERS, Condition, Predicate, indexable
from sievemq_core.message.envelope import Envelope

__all__ = ["SelectorIndex"]

T = TypeVar("T")


class SelectorIndex(Generic[T]):
    """Targets by selector. A target is added once, with one selector.

    Attributes:
        evaluations: selectors asked so far.
        matches: those that were TRUE.
        error: what went wrong in the last :meth:`match`, or None (D-14). Whoever reads it resets it.
    """

    __slots__ = ("_filed", "_names", "_rest", "error", "evaluations", "matches")

    def __init__(self) -> None:
        # name -> (position in the envelope or None for a property, value -> target -> function)
        self._names: dict[str, tuple[int | None, dict[Any, dict[T, Predicate]]]] = {}
        self._rest: dict[T, Predicate] = {}
        self._filed: dict[T, tuple[str, frozenset[Any]] | None] = {}
        self.evaluations = 0
        self.matches = 0
        self.error: Exception | None = None

    def __len__(self) -> int:
        return len(self._filed)

    def add(self, condition: Condition, target: T) -> None:
        """File `target` under the fact that will have it asked least often."""
        chosen = self._choose(condition)
        self._filed[target] = chosen
        if chosen is None:
            self._rest[target] = condition.function
            return
        name, values = chosen
        if name not in self._names:
            self._names[name] = (HEADERS.get(name), {})
        buckets = self._names[name][1]
        for value in values:
            buckets.setdefault(value, {})[target] = condition.function

    def remove(self, target: T) -> None:
        """Forget `target`."""
        filed = self._filed.pop(target)
        if filed is None:
            del self._rest[target]
            return
        name, values = filed
        buckets = self._names[name][1]
        for value in values:
            bucket = buckets[value]
            del bucket[target]
            if not bucket:
                del buckets[value]
        if not buckets:
            del self._names[name]

    def match(self, envelope: Envelope) -> list[T]:
        """The targets whose selector is TRUE for this message, each asked at most once.

        Never raises: where properties cannot be decoded nobody matches, and :attr:`error` says why (D-14).
        """
        found: list[T] = []
        asked = 0
        try:
            properties = envelope.properties
            fields = envelope.fields
            for name, (position, buckets) in self._names.items():
                bucket = buckets.get(properties.get(name) if position is None else fields[position])
                if bucket is not None:
                    asked += len(bucket)
                    for target, function in bucket.items():
                        if function(properties, fields):
                            found.append(target)
            if self._rest:
                asked += len(self._rest)
                for target, function in self._rest.items():
                    if function(properties, fields):
                        found.append(target)
        except Exception as error:
            self.error = error
            return self._match_carefully(envelope)
        self.evaluations += asked
        self.matches += len(found)
        return found

    def _match_carefully(self, envelope: Envelope) -> list[T]:
        """As :meth:`match`, but a selector that fails does not keep the others from matching."""
        found: list[T] = []
        try:
            properties, fields = envelope.properties, envelope.fields
            candidates = dict(self._rest)
            for name, (position, buckets) in self._names.items():
                candidates.update(buckets.get(properties.get(name) if position is None else fields[position], {}))
        except Exception:
            return found
        for target, function in candidates.items():
            self.evaluations += 1
            try:
                if function(properties, fields):
                    found.append(target)
            except Exception as error:
                self.error = error
        self.matches += len(found)
        return found

    def _choose(self, condition: Condition) -> tuple[str, frozenset[Any]] | None:
        """The fact whose buckets are emptiest; among equals a name that messages are asked for anyway, then the fewest
        values. So `region = 'EU' AND customer = 17` ends up under the customer, whoever else asks for the region."""

        def cost(fact: tuple[str, frozenset[Any]]) -> tuple[int, bool, int]:
            name, values = fact
            known = self._names.get(name)
            fullest = max((len(known[1].get(value, ())) for value in values), default=0) if known else 0
            return fullest, known is None, len(values)

        return min(indexable(condition), key=cost, default=None)
