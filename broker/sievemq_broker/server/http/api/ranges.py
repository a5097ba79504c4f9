"""Samples of the last minutes, hour, day and week, in rings of fixed sizes.

A sample of a longer range is made of those of the range before: the highest depth and the average rate of its step. So
a peak shows in each, and a week takes little more memory than five minutes. Samples of all destinations together are
kept over a restart, those of single ones are not."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from sievemq_broker.server.watch.history import Rows

STEP_SECONDS: Final = 1.0

#: Samples kept: five minutes at a second each.
SAMPLES: Final = 300

#: A ring may have this part of its samples more.
_SPARE: Final = 8

Name: TypeAlias = Literal["5m", "1h", "1d", "1w"]

Sample: TypeAlias = tuple[int, int, float, float]
"""Depth, messages in flight, arrivals and deliveries per second."""


class Longer(NamedTuple):
    """A range of more than some minutes.

    Attributes:
        name: as callers write it.
        step: seconds.
        samples: how many there are.
        rows: kind of the rows that keep them.
    """

    name: Name
    step: int
    samples: int
    rows: str


#: Each step is a multiple of the one before.
LONGER: Final = (
    Longer("1h", 30, 120, "charthour"),
    Longer("1d", 600, 144, "chartday"),
    Longer("1w", 3_600, 168, "chartweek"),
)


class Ring:
    """Samples at equal steps; as many as there are times, counted from the end.

    Args:
        size: how many are kept at least.

    Attributes:
        depth, in_flight, in_rate, out_rate: the samples, oldest first.
    """

    __slots__ = ("_size", "depth", "in_flight", "in_rate", "out_rate")

    def __init__(self, size: int) -> None:
        self._size = size
        self.depth: array[int] = array("I")
        self.in_flight: array[int] = array("I")
        self.in_rate: array[float] = array("f")
        self.out_rate: array[float] = array("f")

    def add(self, depth: int, in_flight: int, in_rate: float, out_rate: float) -> None:
        """Note a sample."""
        self.depth.append(depth)
        self.in_flight.append(in_flight)
        self.in_rate.append(in_rate)
        self.out_rate.append(out_rate)
        spare = self._size // _SPARE
        if len(self.depth) > self._size + spare:
            self._forget(spare)  # now and then, instead of moving all of it each time

    def latest(self, count: int) -> list[Sample]:
        """The latest samples, oldest first; fewer if there are fewer."""
        if not count:
            return []
        rings = self.depth[-count:], self.in_flight[-count:], self.in_rate[-count:], self.out_rate[-count:]
        return list(zip(*rings, strict=True))

    def extended(self, sample: Sample) -> Ring:
        """A copy with one more sample."""
        ring = Ring(self._size)
        for each in (*self.latest(self._size), sample):
            ring.add(*each)
        return ring

    def clear(self) -> None:
        self._forget(len(self.depth))

    def _forget(self, count: int) -> None:
        del self.depth[:count], self.in_flight[:count], self.in_rate[:count], self.out_rate[:count]


class Track(Ring):
    """The samples of one destination, or of all.

    Attributes:
        longer: those of each of LONGER.
    """

    __slots__ = ("longer",)

    def __init__(self) -> None:
        super().__init__(SAMPLES)
        self.longer = tuple(Ring(longer.samples) for longer in LONGER)

    def before(self, level: int) -> Ring:
        """The range that one of LONGER is made of."""
        return self.longer[level - 1] if level else self

    def condense(self, level: int, count: int) -> Sample | None:
        """Make one sample of the latest of the range before."""
        sample = condensed(self.before(level).latest(count))
        if sample is not None:
            self.longer[level].add(*sample)
        return sample


class Steps:
    """The times of the samples of one of LONGER.

    Args:
        longer: the range.
        rows: keep those of all destinations together.

    Attributes:
        times: when each step was over, ms since 1970.
        count: samples of the range before that are in none of this one yet.
    """

    __slots__ = ("_number", "_rows", "_step", "count", "times")

    def __init__(self, longer: Longer, rows: Rows) -> None:
        self._step = longer.step * 1_000
        self._rows = rows
        self._number = 0
        self.times: deque[int] = deque(maxlen=longer.samples)
        self.count = 0

    def note(self) -> None:
        """There is one more sample of the range before."""
        self.count += 1

    def is_over(self, now: int) -> bool:
        """True if the step has ended, and has samples. Another one begins then."""
        number = now // self._step
        if number == self._number:
            return False
        self._number = number
        return self.count > 0

    def end(self, sample: Sample | None) -> None:
        """Keep what the step that has ended was for all destinations together."""
        self.count = 0
        time = self._number * self._step
        self.times.append(time)
        if sample is not None:
            depth, in_flight, in_rate, out_rate = sample
            self._rows.add({"time": time, "held": [depth, in_flight], "rates": [round(in_rate, 2), round(out_rate, 2)]})

    def restore(self, ring: Ring) -> None:
        """Begin with what is kept, that of an earlier process included."""
        self.times.clear()
        ring.clear()
        for row in self._rows:
            self.times.append(row["time"])
            ring.add(*row["held"], *row["rates"])


def condensed(samples: Sequence[Sample]) -> Sample | None:
    """Several samples as one; None if there are none."""
    if not samples:
        return None
    depth, in_flight, in_rate, out_rate = zip(*samples, strict=True)
    count = len(samples)
    return max(depth), max(in_flight), sum(in_rate) / count, sum(out_rate) / count
