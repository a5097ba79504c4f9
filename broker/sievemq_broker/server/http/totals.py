"""What all queues and topics hold and have counted, added up for a scrape a slice at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.tap import CopyTap, DrainTap
from sievemq_broker.domain.topic import Topic
from sievemq_broker.server.watch.counts import Counts, kind_of
from sievemq_core.message.envelope import TIMESTAMP

if TYPE_CHECKING:
    from sievemq_broker.server.server import Server

__all__ = ["SLICE", "Holdings", "Tapped", "Totals", "waits_since"]

#: Queues and topics in one slice: at three to six microseconds each some 2 ms.
SLICE = 400


@dataclass(slots=True)
class Holdings:
    """What queues of one kind hold now."""

    queues: int = 0
    ready: int = 0
    in_flight: int = 0
    scheduled: int = 0
    bytes: int = 0
    consumers: int = 0
    at_limit: int = 0
    paused: int = 0
    blocked: int = 0
    """Senders that wait for room."""
    since: int = 0
    """When what has waited longest began to; ms since 1970, 0 if nothing waits."""

    def add(self, queue: Queue) -> None:
        """Add what one queue holds."""
        if queue.depth:
            self.since = _earlier(self.since, waits_since(queue))
        self.queues += 1
        self.ready += queue.depth
        self.in_flight += queue.in_flight
        self.scheduled += len(queue.scheduled)
        self.bytes += queue.bytes
        self.consumers += len(queue.consumers)
        self.at_limit += queue.at_limit
        self.paused += queue.paused
        self.blocked += queue.blocked_senders


@dataclass(slots=True)
class Tapped:
    """What taps of one mode hold now."""

    taps: int = 0
    messages: int = 0
    bytes: int = 0
    since: int = 0

    def add(self, tap: CopyTap | DrainTap) -> None:
        """Add what one tap holds."""
        self.taps += 1
        self.messages += tap.lag
        self.bytes += tap.held_bytes
        self.since = _earlier(self.since, tap.log.oldest or 0)


def waits_since(queue: Queue) -> int:
    """When what has waited longest in a queue was sent, or was due; ms since 1970, 0 if nothing waits or says so."""
    since = 0
    for entry in queue.main.heads():
        envelope = entry.envelope
        time = envelope.delivery_time  # the same as the timestamp where there is no delay
        if not time:  # as other clients may say it
            time = envelope.fields[TIMESTAMP]
            envelope.compact()
        since = _earlier(since, time)
    return since


def _earlier(time: int, other: int) -> int:
    return min(time, other) if time and other else time or other


class Totals:
    """Sums by namespace and kind. Complete once :meth:`steps` has ended.

    What is deleted while the steps go on is counted all the same, and what it counted is not counted twice: counters
    must not fall.

    Args:
        server: whose.
    """

    def __init__(self, server: Server) -> None:
        self.counts = {key: replace(ended) for key, ended in server.ended.counts.items()}
        self.holdings: defaultdict[tuple[str, str], Holdings] = defaultdict(Holdings)
        self.topics: defaultdict[str, int] = defaultdict(int)
        self.taps: defaultdict[tuple[str, str], Tapped] = defaultdict(Tapped)
        #: Messages that taps lost, by namespace.
        self.missed: defaultdict[str, int] = defaultdict(int)
        self._taps: list[CopyTap | DrainTap] = []
        self._of: list[Queue | Topic] = []
        for space in server.broker.namespaces.values():
            if space.taps.made:
                self._taps += space.taps
                self.missed[space.name] += space.taps.missed
            for destination in space.destinations.values():
                self._of.append(destination)
                if isinstance(destination, Topic):
                    self._of += [subscription.queue for subscription in destination.subscriptions]

    def steps(self) -> Iterator[None]:
        """Add up; every SLICE of them there is a moment for others."""
        for number, of in enumerate(self._of, 1):
            key = of.place.namespace, kind_of(of)
            counts = self.counts.get(key)
            if counts is None:
                counts = self.counts[key] = Counts()
            counts.add(of)
            if isinstance(of, Topic):
                self.topics[key[0]] += 1
            else:
                self.holdings[key].add(of)
            if not number % SLICE:
                yield
        for number, tap in enumerate(self._taps, 1):
            space = tap.destination.place.namespace
            self.taps[space, tap.mode].add(tap)
            self.missed[space] += tap.missed
            if not number % SLICE:
                yield
