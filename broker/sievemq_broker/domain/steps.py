"""Verbs that take longer than a turn of the loop should: generators that stop after each slice.

``yield`` ends a slice; whoever drives sends the time (ms epoch) with which the next begins. What a verb looks at may
have changed in between: it holds on to entries and asks them how they stand, never to places in a list.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

__all__ = ["SLICE", "Steps", "finish"]

T = TypeVar("T")

Steps: TypeAlias = Generator[None, int, T]
"""Yields between slices, is sent `now`, returns the result."""

#: Messages looked at in one slice: at two to four microseconds each, one or two milliseconds.
SLICE = 500


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
