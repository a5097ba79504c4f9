"""Asking the selectors of an index about one message a piece at a time, where that takes long.

The answers stay with the message: a later match by the same index gets them, and only selectors that were
added in the meantime are evaluated. So a message that is sent, counted, delivered and redelivered is examined once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from sievemq_broker.matching.condition import longest_text, units_of
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector.to_python import Matcher

__all__ = ["AT_ONCE", "Answers"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

#: Units (condition.units) that are spent on one message without further ado: one or two milliseconds.
AT_ONCE = 500


class Index(Protocol[T_contra]):
    """An owner of a selector."""

    def count(self) -> None:
        """A selector was asked."""

    def has(self, target: T_contra) -> bool:
        """True if it is filed."""

    def effort(self, target: T_contra) -> tuple[int, int]:
        """What asking it takes at most."""

    def serial(self, target: T_contra) -> int:
        """Its number in the order in which they were added."""


class Answers(Generic[T]):
    """What selectors say of a message, as far as they have been asked.

    Args:
        index: whose selectors.
        envelope: the message.
        properties: its properties, decoded.
        candidates: targets to evaluate, with the function; None if it matches.
        serial: of the selector that was added last.
        known: the answers of those that were asked before.

    Attributes:
        found: who matches.
        error: what went wrong with one of them, or None (D-14).
        left: targets still to evaluate, the next one last.
    """

    __slots__ = ("_envelope", "_properties", "_text", "error", "found", "index", "left", "serial")

    def __init__(
        self,
        index: Index[T],
        envelope: Envelope,
        properties: Mapping[str, Any],
        candidates: list[tuple[T, Matcher | None]],
        serial: int,
        known: Answers[T] | None = None,
    ) -> None:
        self.index = index
        self.serial = serial
        self.found: list[T] = [] if known is None else known.found.copy()
        self.error: Exception | None = None if known is None else known.error
        self.left = candidates[::-1]
        self._envelope: Envelope | None = envelope  # until all are evaluated: then the message refers to this
        self._properties = properties
        self._text = longest_text(envelope)

    @property
    def cost(self) -> int:
        """Units that the remaining targets cost."""
        index, text = self.index, self._text
        return sum([units_of(index.effort(target), text) for target, _ in self.left])

    def ask(self, budget: int) -> int:
        """Ask as many as the budget is for, and at least one.

        Args:
            budget: units.

        Returns:
            What it took.
        """
        index, left, text, properties, envelope = self.index, self.left, self._text, self._properties, self._envelope
        if envelope is None:
            return 0
        fields = envelope.fields
        spent = 0
        while left:
            target, function = left[-1]
            if not index.has(target):
                left.pop()
                continue
            cost = units_of(index.effort(target), text)
            if spent and spent + cost > budget:
                return spent
            left.pop()
            spent += cost
            index.count()
            try:
                if function is None or function(properties, fields):
                    self.found.append(target)
            except Exception as error:  # whatever a hostile sender managed, it concerns this message alone
                self.error = error
        envelope.remember(self)
        self._envelope, self._properties = None, {}
        return spent

    def of(self, target: T) -> bool | None:
        """What one of them has said; None if it has not been asked."""
        index = self.index
        if not index.has(target) or index.serial(target) > self.serial:
            return None
        return target in self.found

    def fail(self, error: Exception) -> None:
        """One of them could not say (D-14)."""
        self.error = error

    def reach(self, serial: int) -> None:
        """All selectors up to this one have been asked."""
        self.serial = serial

    def drop(self) -> None:
        """Forget targets that were removed after their evaluation."""
        has = self.index.has
        self.found = [target for target in self.found if has(target)]
