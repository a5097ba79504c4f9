"""Measures how long selectors take, by samples: there is no clock in the path of every message."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from time import perf_counter
from typing import Any

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.server.histogram import Histogram
from sievemq_core.message.envelope import Envelope

#: Destinations that are prepared at a time; more of them take turns.
DESTINATIONS = 100

#: Seconds; bounds of the histogram.
BOUNDS = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2)


class SelectorTimes:
    """Times the next match of each index of selectors, a few destinations at each look.

    An index that is to be timed has its next match watched from here, so the matching itself needs no clock.

    Args:
        clock: seconds.

    Attributes:
        times: what it took to find all selectors that match one message, properties decoded.
    """

    __slots__ = ("_broker", "_clock", "_left", "times")

    def __init__(self, broker: Broker, clock: Callable[[], float] = perf_counter) -> None:
        self._broker = broker
        self._clock = clock
        self._left: list[Queue | Topic] = []
        self.times = Histogram(BOUNDS)

    def look(self) -> None:
        """Time the next message of the next destinations."""
        if not self._left:
            for space in self._broker.namespaces.values():
                self._left += space.destinations.values()
        batch = list(islice(reversed(self._left), DESTINATIONS))
        del self._left[len(self._left) - len(batch) :]
        for destination in batch:
            if len(destination.index):
                destination.index.watch_next(self._time)

    def _time(self, match: Callable[[Envelope], list[Any]], envelope: Envelope) -> list[Any]:
        begin = self._clock()
        found = match(envelope)
        self.times.observe(self._clock() - begin)
        return found
