"""Verbs that take several turns of the loop: generators that pause after each slice.

``yield`` ends a slice; the driver sends the time (ms epoch) at which the next one begins. State may have changed in
between: a verb keeps entries and examines their state again, and never keeps positions in a list."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, int, T]
"""Yields between slices, is sent `now`, returns the result."""

#: Messages examined in one slice: at two to four microseconds each, one or two milliseconds.
SLICE = 500


class Meter:
    """Measures how much fits into a slice of a verb.

    Args:
        most: messages that fit into one.
    """

    __slots__ = ("_left", "_most")

    def __init__(self, most: int = SLICE) -> None:
        self._left = self._most = most

    def room(self) -> int:
        """How much still fits; 0 if the slice is full and the verb must yield."""
        left = self._left
        if left <= 0:
            self._left = self._most
            return 0
        return left

    def spend(self, cost: int) -> None:
        """Count work that was done in this slice."""
        self._left -= cost


def finish(steps: Steps[T], now: int) -> T:
    """Run a verb to its end at once, for small queues and tests.

    Args:
        steps: the verb.
        now: ms epoch.
    """
    try:
        next(steps)
        while True:
            steps.send(now)
    except StopIteration as end:
        result: T = end.value
        return result
