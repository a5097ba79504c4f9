"""Asking the selectors of an index about one message a piece at a time, where that takes long.

The answers stay with the message: a later match by the same index gets them, and only selectors that were
added in the meantime are evaluated. So a message that is sent, counted, delivered and redelivered is examined once.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Generic, Protocol, TypeVar

from sievemq_broker.matching.condition import longest_text, units_of
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector.to_python import Matcher

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

#: Units (condition.units) spent on one message at once: one or two milliseconds.
AT_ONCE = 500

#: Selectors that are listed for the cost of one unit.
LISTED = 64


class Index(Protocol[T_contra]):
    """An owner of a selector."""

    def count(self) -> None:
        """A selector was evaluated."""

    @property
    def filed(self) -> Container[object]:
        """The targets."""

    def effort(self, target: T_contra) -> tuple[int, int]:
        """The most that evaluating it can cost."""

    def serial(self, target: T_contra) -> int:
        """Its number in the order in which they were added."""


class Answers(Generic[T]):
    """Results of selectors for a message, as far as they were evaluated.

    Args:
        index: whose selectors.
        envelope: the message.
        properties: its properties, decoded.
        buckets: of targets to evaluate, with the function; None if it matches. They are the index's own, and are looked
            into one after the other: a target may have gone by then. One that is in several is asked once.
        serial: of the selector that was added last.
        known: the results of those that were evaluated before.

    Attributes:
        found: who matches; nobody once what those stand for is gathered.
        gathered: what those stand for, kept by the owner of the index; None until it is.
        error: what went wrong with one of them, or None (D-14).
    """

    __slots__ = (
        "_asked", "_buckets", "_envelope", "_functions", "_left", "_properties", "_text", "error", "found", "gathered",
        "index", "serial",
    )  # fmt: skip

    def __init__(
        self,
        index: Index[T],
        envelope: Envelope,
        properties: Mapping[str, Any],
        buckets: list[dict[T, Matcher | None]],
        serial: int,
        known: Answers[T] | None = None,
    ) -> None:
        self.index = index
        self.serial = serial
        self.found: list[T] = [] if known is None else known.found.copy()
        self.gathered: object = None
        self.error: Exception | None = None if known is None else known.error
        #: Buckets, and targets of the last one with their functions, that are still to be evaluated; the next one last.
        #: Two lists, since a pair for each of very many takes ten times as long.
        self._buckets = buckets
        self._left: list[T] = []
        self._functions: list[Matcher | None] = []
        self._asked: set[T] = set()
        self._envelope: Envelope | None = envelope  # until all are evaluated: then the message refers to this
        self._properties = properties
        self._text = longest_text(envelope)

    @property
    def left(self) -> bool:
        return bool(self._left or self._buckets)

    def costs_more_than(self, units: int) -> bool:
        """True if evaluating all costs more than so many units."""
        index, text = self.index, self._text
        for bucket in self._buckets:
            for target in bucket:
                units -= units_of(index.effort(target), text)
                if units < 0:
                    return True
        return False

    def ask(self, budget: int) -> int:
        """Evaluate as many as the budget allows, at least one.

        Args:
            budget: units.

        Returns:
            What it took.
        """
        index, left, text, properties, envelope = self.index, self._left, self._text, self._properties, self._envelope
        if envelope is None:
            return 0
        fields, filed, asked, buckets, functions = (
            envelope.fields, index.filed, self._asked, self._buckets, self._functions
        )  # fmt: skip
        spent = 0
        while left or buckets:
            if not left:
                bucket = buckets.pop()
                left += reversed(bucket)
                functions += reversed(bucket.values())
                spent += 1 + len(left) // LISTED
                continue
            target = left[-1]
            if target not in filed or index.serial(target) > self.serial or target in asked:
                left.pop()
                functions.pop()
                continue
            cost = units_of(index.effort(target), text)
            if spent and spent + cost > budget:
                return spent
            left.pop()
            function = functions.pop()
            spent += cost
            index.count()
            asked.add(target)
            try:
                if function is None or function(properties, fields):
                    self.found.append(target)
            except Exception as error:  # whatever a hostile sender sent: only this message is concerned
                self.error = error
        envelope.remember(self)
        self._envelope, self._properties, self._asked = None, {}, set()
        return spent

    def of(self, target: T) -> bool | None:
        """The result of one selector; None if it has not been evaluated."""
        index = self.index
        if target not in index.filed or index.serial(target) > self.serial:
            return None
        return target in self.found

    def gather(self, gathered: object) -> None:
        self.gathered = gathered
        self.found = []

    def fail(self, error: Exception) -> None:
        """One of them could not be evaluated (D-14)."""
        self.error = error

    def reach(self, serial: int) -> None:
        self.serial = serial

    def drop(self) -> None:
        """Forget targets that were removed after their evaluation."""
        filed = self.index.filed
        self.found = [target for target in self.found if target in filed]
