"""Verbs that take longer than a turn of the loop should: generators that stop after each slice.

``yield`` ends a slice; whoever drives sends the time (ms epoch) with which the next begins. What a verb looks at may
have changed in between: it holds on to entries and asks them how they stand, never to places in a list.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

__all__ = ["SLICE", "Meter", "Steps", "finish"]

T = TypeVar("T")

Steps: TypeAlias = Generator[None, int, T]
"""Yields between slices, is sent `now`, returns the result."""

#: Messages looked at in one slice: at two to four microseconds each, one or two milliseconds.
SLICE = 500


class Meter:
    """How much fits into a slice of a verb that takes several.

    Args:
        most: messages that fit into one.
    """

    __slots__ = ("_left", "_most")

    def __init__(self, most: int = SLICE) -> None:
        self._left = self._most = most

    def room(self) -> int:
        """How much still fits; 0 if the slice is full: it ends, and the next one begins."""
        left = self._left
        if left <= 0:
            self._left = self._most
            return 0
        return left

    def spend(self, cost: int) -> None:
        """So much is done in this slice."""
        self._left -= cost


def finish(steps: Steps[T], now: int) -> T:
    """Carry a verb to its end at once; for small queues and tests.

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
