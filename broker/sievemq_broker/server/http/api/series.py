"""Figures over time, for charts: depth and rates of every destination, for the last minutes, hour, day and week.

Nothing is counted on the data path. Each second the sampler visits the destinations with recent changes, and the next
SWEEP of the others, as a task. Totals are kept by difference: a visit adds what has changed since the
last one. So a sample costs the same with a hundred destinations and with a hundred thousand. Only changes of one that
was idle are found later, after one round through all of them.

Only destinations with activity have samples, the latest MAX_TRACKS of them. The others have not changed.

When a step of a longer range is over (ranges.py), the samples of the range before become one of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from operator import add
from time import perf_counter
from typing import Final, TypeAlias

from sievemq_broker import logs
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api.ranges import LONGER, SAMPLES, STEP_SECONDS, Ring, Sample, Steps, Track, condensed
from sievemq_broker.server.http.tasks import run
from sievemq_broker.server.server import Server
from sievemq_broker.server.watch.counts import queues_at

#: Destinations whose samples are kept, the latest active ones: some 15 KB each, so 60 MB at most.
MAX_TRACKS: Final = 4_000

#: Other destinations that one look visits, at a microsecond or two each: some 2 % of a second.
SWEEP: Final = 10_000

#: Units of visiting a destination. With very many, what is read of them is not in the processor's cache.
_VISIT_UNITS: Final = 2

#: Units of making one sample of several.
_CONDENSED: Final = 8

#: The shortest pause between two samples, as a share of a step: if the loop is busy, sampling does not use the rest.
_LEAST_PAUSE: Final = 0.1

log = logs.get("http")

Destination: TypeAlias = Queue | Topic

#: What one queue or topic has counted and holds, in the order of the fields of Sums from `taken`.
Figures: TypeAlias = tuple[int, ...]
_NONE: Final[Figures] = (0,) * 10
_TAKEN, _GIVEN, _DEPTH, _IN_FLIGHT, _DEAD, _PAUSED = 0, 1, 2, 3, 7, 9


@dataclass(frozen=True, slots=True)
class Sums:
    """All destinations together at one look."""

    time: int = 0
    taken: int = 0
    given: int = 0
    depth: int = 0
    in_flight: int = 0
    scheduled: int = 0
    bytes: int = 0
    consumers: int = 0
    dead_lettered: int = 0
    expired: int = 0
    paused: int = 0
    destinations: int = 0
    in_rate: float = 0.0
    out_rate: float = 0.0


@dataclass(slots=True)
class Changes:
    """The changes between two samples.

    Attributes:
        created, deleted, paused, resumed: destinations.
        dead: messages that were dead-lettered from a destination, where there were some.
    """

    created: list[Destination] = field(default_factory=list)
    deleted: list[Destination] = field(default_factory=list)
    paused: list[Destination] = field(default_factory=list)
    resumed: list[Destination] = field(default_factory=list)
    dead: dict[Destination, int] = field(default_factory=dict)


class Sampler:
    """Samples the destinations each second.

    Args:
        server: the broker.

    Attributes:
        times: of the looks, ms since 1970 by the broker's clock.
        total: the samples of all destinations together.
        longer: the steps of each of LONGER.
        tracks: samples by destination, longest idle first.
        latest: of the last look.
        changes: that the last look found.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._last = 0.0
        #: Figures at the last visit, of queues (those of subscriptions included) and of topics; and their sums.
        self._seen: dict[Destination, Figures] = {}
        self._totals = list(_NONE)
        #: The current round through all destinations: those still to visit, last first, and when it began.
        self._round: list[Destination] = []
        self._round_began = 0.0
        self._round_seconds = STEP_SECONDS
        self._next = Changes()
        self.changes = Changes()
        self.times: deque[int] = deque(maxlen=SAMPLES)
        self.total = Track()
        self.longer = tuple(Steps(longer, server.history.rows(longer.rows, longer.samples)) for longer in LONGER)
        self.tracks: OrderedDict[Destination, Track] = OrderedDict()
        self.latest = Sums()
        server.shard.ended.follow(self._forget)
        server.history.when_loaded(self._restore)

    def start(self, on_look: Callable[[], Awaitable[None]]) -> None:
        """Begin.

        Args:
            on_look: awaited after each look.
        """
        self._task = asyncio.create_task(self._run(on_look))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def rates(self, destination: Destination) -> tuple[float, float]:
        """Arrivals and deliveries per second at the last sample."""
        track = self.tracks.get(destination)
        return (track.in_rate[-1], track.out_rate[-1]) if track is not None and len(track.depth) else (0.0, 0.0)

    def recent(self, destination: Destination, samples: int, depth: int) -> list[int]:
        """The latest samples of depth, oldest first.

        Args:
            samples: how many at most.
            depth: now, of one without samples: it has not changed.
        """
        track = self.tracks.get(destination)
        if track is None:
            return [depth] * min(samples, len(self.times))
        return track.depth[-samples:].tolist() if samples else []

    async def _run(self, on_look: Callable[[], Awaitable[None]]) -> None:
        while True:
            begin = perf_counter()
            try:
                await self.look()
                await on_look()
            except Exception as error:  # a defect of the broker's: charts stop, the broker continues
                log.fault("series.failed", error)
            await asyncio.sleep(pause(perf_counter() - begin))

    def samples(self, track: Track, level: int) -> tuple[list[int], Ring]:
        """The samples of one of LONGER, the step that is not over included; with times, oldest first."""
        times, ring = list(self.longer[level].times), track.longer[level]
        ongoing = self._ongoing(track, level)
        if ongoing is not None:
            times.append(self.latest.time)
            ring = ring.extended(ongoing)
        return times, ring

    def _ongoing(self, track: Track, level: int) -> Sample | None:
        """The step of one of LONGER that is not over."""
        samples = track.before(level).latest(self.longer[level].count)
        if level and (finer := self._ongoing(track, level - 1)) is not None:
            samples.append(finer)
        return condensed(samples)

    def _end_steps(self, budget: Budget) -> Task[None]:
        """End the steps of longer ranges that are over."""
        now = self._server.clock.now()
        for level, steps in enumerate(self.longer):
            if not steps.is_over(now):
                continue
            for track in list(self.tracks.values()):
                if budget.spent:
                    yield
                budget.spend(_CONDENSED)
                track.condense(level, steps.count)
            steps.end(self.total.condense(level, steps.count))
            if level + 1 < len(self.longer):
                self.longer[level + 1].note()

    def _restore(self) -> None:
        """Take over what an earlier process has kept of all destinations together."""
        for steps, ring in zip(self.longer, self.total.longer, strict=True):
            steps.restore(ring)

    async def look(self) -> None:
        """Take a sample."""
        await run(self._server, self.sample)

    def sample(self, now: int, budget: Budget) -> Task[None]:
        """Visit the destinations that moved lately, new ones, and the next ones of the round; note the sums."""
        begin = perf_counter()
        elapsed = begin - self._last if self._last else STEP_SECONDS
        self._last = begin
        yield from self._end_steps(budget)
        for space in list(self._server.shard.broker.namespaces.values()):
            for destination in self._new_in(space.destinations):
                yield from self._visit(destination, elapsed, budget)
        for destination in list(self.tracks):
            yield from self._visit(destination, elapsed, budget)
        for destination in self._due():
            if destination not in self.tracks:
                yield from self._visit(destination, max(elapsed, self._round_seconds), budget)
        while len(self.tracks) > MAX_TRACKS:
            self.tracks.popitem(last=False)
        sums = self._sums(elapsed)
        self.times.append(sums.time)
        self.total.add(sums.depth, sums.in_flight, sums.in_rate, sums.out_rate)
        self.longer[0].note()
        self.latest = sums
        self.changes, self._next = self._next, Changes()

    def _new_in(self, destinations: dict[str, Destination]) -> list[Destination]:
        """The destinations created since the last sample: a dict keeps its order, so they are at its end."""
        new: list[Destination] = []
        for destination in reversed(destinations.values()):
            if destination in self._seen:
                break
            new.append(destination)
        return new

    def _due(self) -> list[Destination]:
        """The next destinations of the round."""
        if not self._round:
            now = perf_counter()
            if self._round_began:
                self._round_seconds = now - self._round_began
            self._round_began = now
            for space in self._server.shard.broker.namespaces.values():
                self._round += space.destinations.values()
        due = self._round[-SWEEP:]
        del self._round[-SWEEP:]
        return due

    def _visit(self, destination: Destination, elapsed: float, budget: Budget) -> Task[None]:
        """Note what has changed at a destination since the last visit, this many seconds ago. One that was deleted
        meanwhile is left out."""
        if budget.spent:
            yield
        before = self._known(destination)
        if before is None:
            return
        budget.spend(_VISIT_UNITS)
        figures = _figures(destination)
        moved = self._note(destination, figures)
        for queue in queues_at(destination):
            if budget.spent:
                yield
            if queue is destination or queue.deleted:
                continue
            budget.spend(_VISIT_UNITS)
            known, there = self._seen.get(queue, _NONE), _figures(queue)
            moved |= self._note(queue, there)
            before, figures = _added(before, known), _added(figures, there)
        if destination in self._seen and self.times:
            self._compare(destination, before, figures, moved, elapsed)

    def _known(self, destination: Destination) -> Figures | None:
        """What was found at the last visit; None if it was deleted."""
        known = self._seen.get(destination)
        if known is None:
            space = self._server.shard.broker.namespaces.get(destination.place.namespace)
            if space is None or space.destinations.get(destination.label) is not destination:
                return None
            known = self._seen[destination] = _NONE
            if self.times:
                self._next.created.append(destination)
        return known

    def _compare(
        self, destination: Destination, before: Figures, figures: Figures, moved: bool, elapsed: float
    ) -> None:
        """Note the differences of two visits, and the sample of a destination that has samples, or moved."""
        dead = figures[_DEAD] - before[_DEAD]
        if dead > 0:
            self._next.dead[destination] = dead
        if figures[_PAUSED] != before[_PAUSED]:
            (self._next.paused if figures[_PAUSED] else self._next.resumed).append(destination)
        track = self.tracks.get(destination)
        if track is None:
            if not moved:
                return
            track = self.tracks[destination] = Track()
        took, gave = figures[_TAKEN] - before[_TAKEN], figures[_GIVEN] - before[_GIVEN]
        track.add(figures[_DEPTH], figures[_IN_FLIGHT], max(0, took) / elapsed, max(0, gave) / elapsed)
        if moved:
            self.tracks.move_to_end(destination)

    def _note(self, of: Destination, figures: Figures) -> bool:
        """Keep what was found there.

        Returns:
            True if messages moved, or wait elsewhere than before.
        """
        known = self._seen.get(of, _NONE)
        if figures == known:
            self._seen[of] = known
            return False
        self._seen[of] = figures
        self._totals = [total + new - old for total, new, old in zip(self._totals, figures, known, strict=True)]
        return figures[: _IN_FLIGHT + 1] != known[: _IN_FLIGHT + 1]

    def _forget(self, of: Destination) -> None:
        """Forget a destination before its deletion: its counts are kept elsewhere, its messages are dropped."""
        known = self._seen.pop(of, None)
        if known is None:
            return
        self._totals = [total - old for total, old in zip(self._totals, known, strict=True)]
        if isinstance(of, Topic) or of.place.topic is None:
            self.tracks.pop(of, None)
            self._next.deleted.append(of)

    def _sums(self, elapsed: float) -> Sums:
        """The present totals, this many seconds after the last ones. The counts of deleted destinations stay in
        them."""
        server = self._server
        taken, given, depth, in_flight, scheduled, size, consumers, dead_lettered, expired, paused = self._totals
        for (_, kind), counts in server.shard.ended.counts.items():
            taken += {"topic": counts.published, "queue": counts.enqueued}.get(kind, 0)
            given += counts.acknowledged
            dead_lettered += counts.dead_lettered
            expired += counts.expired
        before = self.latest if self.times else None
        return Sums(
            time=server.clock.now(),
            taken=taken,
            given=given,
            depth=depth,
            in_flight=in_flight,
            scheduled=scheduled,
            bytes=size,
            consumers=consumers,
            dead_lettered=dead_lettered,
            expired=expired,
            paused=paused,
            destinations=sum(len(space.destinations) for space in server.shard.broker.namespaces.values()),
            in_rate=0.0 if before is None else max(0, taken - before.taken) / elapsed,
            out_rate=0.0 if before is None else max(0, given - before.given) / elapsed,
        )


def pause(spent: float) -> float:
    """Seconds from the end of a sample that took this long to the next one."""
    return max(STEP_SECONDS - spent, STEP_SECONDS * _LEAST_PAUSE)


def _added(some: Figures, others: Figures) -> Figures:
    return tuple(map(add, some, others))


def _figures(of: Destination) -> Figures:
    """Counters and contents of a destination; for a topic without those of its subscriptions."""
    if isinstance(of, Topic):
        return (of.published, 0, 0, 0, 0, 0, 0, 0, 0, of.paused)
    consumers, own = of.consumers, of.place.topic is None
    return (
        of.enqueued if own else 0,  # messages to a topic were counted there
        of.acknowledged,
        of.depth,
        of.in_flight if consumers or of.holders else 0,
        len(of.scheduled),
        of.bytes,
        len(consumers),
        of.counts.dead_lettered,
        of.counts.expired,
        of.paused if own else 0,
    )
