"""Rounds over everything of one kind, such as all queues, that are repeated as often as their cost allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sievemq_broker.domain.work import Budget, Make, Scheduler, Task

#: The longest share of the time that rounds of one kind may take.
COST: Final = 0.02

#: What a unit of work takes at most; see :data:`~sievemq_broker.domain.work.TURN`.
_UNIT_SECONDS: Final = 4e-6


class Round:
    """A task that is repeated.

    Args:
        scheduler: carries it out.
        make: makes the task, which returns how many units it took.
        clock: seconds.

    Attributes:
        next: when the next one may begin, in seconds of the clock.
    """

    __slots__ = ("_clock", "_make", "_scheduler", "next")

    def __init__(self, scheduler: Scheduler, make: Make[int], clock: Callable[[], float] = time.perf_counter) -> None:
        self._scheduler = scheduler
        self._make = make
        self._clock = clock
        self.next = 0.0

    @property
    def under_way(self) -> bool:
        return self._scheduler.is_busy(self)

    def look(self) -> None:
        """Begin another one, unless one is under way or was over just now. A short one is over when this returns."""
        if not self.under_way and self._clock() >= self.next:
            job = self._scheduler.start(self, self._timed, 0)
            if job.error is not None:
                raise job.error

    def soon(self) -> None:
        """Begin another one in the next turn, if none is under way."""
        if not self.under_way:
            self._scheduler.start(self, self._timed, 0, later=True)

    def _timed(self, now: int, budget: Budget) -> Task[None]:
        units = yield from self._make(now, budget)
        self.next = self._clock() + units * _UNIT_SECONDS / COST
