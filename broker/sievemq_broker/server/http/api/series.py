"""Figures over time, for charts: how deep every destination is and how fast it goes, a few minutes back.

Nothing is counted on the data path. About once a second this goes through all destinations, in slices, and notes what
has changed. Only destinations at which something happened are remembered, the latest MAX_TRACKS of them; the others
have not changed, which is all there is to say about them.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sievemq_broker import logs
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.server.http.api.slices import SLICE_SECONDS

if TYPE_CHECKING:
    from sievemq_broker.server.server import Server

__all__ = ["MAX_TRACKS", "SAMPLES", "STEP_SECONDS", "Sampler", "Sums", "Track"]

STEP_SECONDS: Final = 1.0

#: Samples kept: five minutes at a second each.
SAMPLES: Final = 300

_SPARE: Final = 60

#: Destinations whose samples are kept, the latest active ones: 12 bytes a sample, so 18 MB at most.
MAX_TRACKS: Final = 4_000

#: The longest share of the time that going through all destinations may take; with very many it is done less often,
#: but at least every LONGEST_STEP_SECONDS.
_COST: Final = 0.02
LONGEST_STEP_SECONDS: Final = 5.0

log = logs.get("http")


class Track:
    """The samples of one destination; as many as the sampler has times, counted from the end.

    Attributes:
        depth, in_rate, out_rate: rings of samples, oldest first.
    """

    __slots__ = ("depth", "in_rate", "out_rate")

    def __init__(self) -> None:
        self.depth: array[int] = array("I")
        self.in_rate: array[float] = array("f")
        self.out_rate: array[float] = array("f")

    def add(self, depth: int, in_rate: float, out_rate: float) -> None:
        """Note a sample."""
        for ring, value in ((self.depth, depth), (self.in_rate, in_rate), (self.out_rate, out_rate)):
            ring.append(value)  # type: ignore[arg-type]
            if len(ring) > SAMPLES + _SPARE:
                del ring[:_SPARE]  # now and then, instead of moving all of it each time


@dataclass(slots=True)
class Sums:
    """All destinations together at one look."""

    time: int = 0
    destinations: int = 0
    consumers: int = 0
    depth: int = 0
    in_flight: int = 0
    scheduled: int = 0
    bytes: int = 0
    taken: int = 0
    given: int = 0
    dead_lettered: int = 0
    expired: int = 0
    in_rate: float = 0.0
    out_rate: float = 0.0


class Sampler:
    """Looks at everything about once a second.

    Args:
        server: the broker.

    Attributes:
        times: of the looks, ms since 1970 by the broker's clock.
        sums: of all destinations, by look.
        tracks: samples by destination, longest idle first.
        latest: of the last look.
        paused: destinations that were, at the last look.
        dead: messages that were dead-lettered from a destination, where there were some.
        on_look: called after each look.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._last = 0.0
        #: What had come in and gone out at the last look. Two tables of numbers, kept: twenty thousand pairs made anew
        #: each second would wake the garbage collector.
        self._taken: dict[Queue | Topic, int] = {}
        self._given: dict[Queue | Topic, int] = {}
        self.paused: set[Queue | Topic] = set()
        self.dead: dict[Queue | Topic, int] = {}
        self.times: deque[int] = deque(maxlen=SAMPLES)
        self.sums: deque[Sums] = deque(maxlen=SAMPLES)
        self.tracks: OrderedDict[Queue | Topic, Track] = OrderedDict()
        self.latest = Sums()
        self.on_look: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def rates(self, destination: Queue | Topic) -> tuple[float, float]:
        """What came in and went out per second at the last look."""
        track = self.tracks.get(destination)
        return (track.in_rate[-1], track.out_rate[-1]) if track is not None and len(track.depth) else (0.0, 0.0)

    async def _run(self) -> None:
        while True:
            begin = perf_counter()
            try:
                busy = await self.look()
                self.on_look()
            except Exception as error:  # a fault of ours: charts stand still, the broker goes on
                log.fault("series.failed", error)
                busy = 0.0
            pause = max(STEP_SECONDS - (perf_counter() - begin), busy / _COST, 0.01)
            await asyncio.sleep(min(pause, LONGEST_STEP_SECONDS))

    async def look(self) -> float:
        """Look at every destination once.

        Returns:
            Seconds of the loop's time that this took.
        """
        begin = perf_counter()
        elapsed = begin - self._last if self._last else STEP_SECONDS
        self._last = begin
        sums = Sums(time=self._server.clock.now())
        self.paused, self.dead = set(), {}
        busy = 0.0
        destinations = self._destinations()
        slice_begin = begin
        for count, destination in enumerate(destinations):
            if count % 32 == 0 and perf_counter() - slice_begin > SLICE_SECONDS:
                busy += perf_counter() - slice_begin
                await asyncio.sleep(0)
                slice_begin = perf_counter()
            self._sample(destination, sums, elapsed)
        if len(self._taken) > len(destinations):
            self._forget(self._taken.keys() - set(destinations))
        while len(self.tracks) > MAX_TRACKS:
            self.tracks.popitem(last=False)
        for counts in self._server.ended.counts.values():
            sums.taken += counts.published if counts.published else counts.enqueued
            sums.given += counts.acknowledged
            sums.dead_lettered += counts.dead_lettered
            sums.expired += counts.expired
        before = self.sums[-1] if self.sums else sums
        sums.in_rate = max(0, sums.taken - before.taken) / elapsed
        sums.out_rate = max(0, sums.given - before.given) / elapsed
        self.times.append(sums.time)
        self.sums.append(sums)
        self.latest = sums
        return busy + perf_counter() - slice_begin

    def _destinations(self) -> list[Queue | Topic]:
        return [
            destination
            for space in self._server.broker.namespaces.values()
            for destination in space.destinations.values()
        ]

    def _sample(self, destination: Queue | Topic, sums: Sums, elapsed: float) -> None:
        dead = sums.dead_lettered
        if isinstance(destination, Topic):
            taken, given, depth = destination.published, 0, 0
            for subscription in destination.subscriptions:
                queue = subscription.queue
                given += queue.acknowledged
                depth += queue.depth
                _hold(sums, queue)
        else:
            taken, given, depth = destination.enqueued, destination.acknowledged, destination.depth
            _hold(sums, destination)
        if destination.paused:
            self.paused.add(destination)
        if sums.dead_lettered > dead:
            self.dead[destination] = sums.dead_lettered - dead
        sums.destinations += 1
        sums.taken += taken
        sums.given += given
        first_look = not self.times
        taken_before = self._taken.get(destination, taken if first_look else 0)
        given_before = self._given.get(destination, given if first_look else 0)
        self._taken[destination], self._given[destination] = taken, given
        moved = taken != taken_before or given != given_before
        track = self.tracks.get(destination)
        if track is None:
            if not moved:
                return
            track = self.tracks[destination] = Track()
        track.add(depth, max(0, taken - taken_before) / elapsed, max(0, given - given_before) / elapsed)
        if moved:
            self.tracks.move_to_end(destination)

    def _forget(self, gone: Iterable[Queue | Topic]) -> None:
        """Those that are deleted."""
        for destination in gone:
            del self._taken[destination], self._given[destination]
            self.tracks.pop(destination, None)


def _hold(sums: Sums, queue: Queue) -> None:
    sums.depth += queue.depth
    sums.bytes += queue.bytes
    sums.scheduled += len(queue.scheduled)
    sums.dead_lettered += queue.dead_lettered
    sums.expired += queue.expired
    if queue.consumers or queue.holders:
        sums.consumers += len(queue.consumers)
        sums.in_flight += queue.in_flight
