"""Sums of what queues and topics hold and have counted; the counts of deleted ones are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from sievemq_broker.domain.admission import MESSAGE_BYTES
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.policy import NamespacePolicy, share_used
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.tap import CopyTap, DrainTap
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_core.message.envelope import TIMESTAMP
from sievemq_core.selector import cache

#: Bytes that a selector with long lists takes for each character, compiled and in an index: 18 to 45.
SELECTOR_BYTES: Final = 24

#: Units of adding the counts of a queue, topic or tap to the totals.
_TOTALLED: Final = 2


@dataclass(slots=True)
class Counts:
    """Counts of queues, topics or both, added up."""

    enqueued: int = 0
    delivered: int = 0
    acknowledged: int = 0
    redelivered: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dead_expired: int = 0
    dead_rejected: int = 0
    dead_refused: int = 0
    removed: int = 0
    dropped_oldest: int = 0
    dropped_newest: int = 0
    refused: int = 0
    unreadable: int = 0
    evaluations: int = 0
    matches: int = 0
    published: int = 0

    def include(self, other: Counts) -> None:
        for name in Counts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add(self, of: Queue | Topic) -> None:
        """Add the counts of one queue or topic."""
        self.evaluations += of.index.evaluations
        self.matches += of.index.matches
        if isinstance(of, Topic):
            self.published += of.published
            self.unreadable += of.unreadable
            return
        self.enqueued += of.enqueued
        self.delivered += of.delivered
        self.acknowledged += of.acknowledged
        counts = of.counts
        self.redelivered += counts.redelivered
        self.expired += counts.expired
        self.dead_lettered += counts.dead_lettered
        self.dead_expired += counts.dead_expired
        self.dead_rejected += counts.dead_rejected
        self.dead_refused += counts.dead_refused
        self.removed += counts.removed
        self.dropped_oldest += counts.dropped_oldest
        self.dropped_newest += counts.dropped_newest
        self.refused += counts.refused
        self.unreadable += counts.unreadable


class Ended:
    """The counts of deleted destinations. A counter must not fall when a temporary queue is deleted.

    Attributes:
        counts: by namespace and kind.
    """

    __slots__ = ("_on_end", "counts")

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], Counts] = {}
        self._on_end: Callable[[Queue | Topic], None] | None = None

    def follow(self, on_end: Callable[[Queue | Topic], None]) -> None:
        """Call back with each queue, subscription's queue or topic before it is deleted."""
        self._on_end = on_end

    def add(self, destination: Queue | Topic) -> None:
        """A queue, subscription or topic is about to be deleted."""
        key = destination.place.namespace, kind_of(destination)
        self.counts.setdefault(key, Counts()).add(destination)
        if self._on_end is not None:
            self._on_end(destination)


def kind_of(destination: Queue | Topic) -> str:
    if isinstance(destination, Topic):
        return "topic"
    return "queue" if destination.place.topic is None else "subscription"


def queues_at(destination: Queue | Topic) -> list[Queue]:
    """A queue, or the queues of a topic's subscriptions."""
    return [destination] if isinstance(destination, Queue) else [s.queue for s in destination.subscriptions]


def queues_in(space: Namespace) -> Iterator[Queue]:
    """Every queue of a namespace, those of subscriptions included."""
    for destination in space.destinations.values():
        if isinstance(destination, Topic):
            for subscription in destination.subscriptions:
                yield subscription.queue
        else:
            yield destination


def held_bytes(broker: Broker) -> int:
    """Bytes that the broker holds beside its queues: taps, staged sends, sends that wait for room, long selectors."""
    held = broker.rooms.bytes + SELECTOR_BYTES * cache.long_chars
    return held + sum(space.taps.held_bytes + space.stages.bytes for space in broker.namespaces.values())


@dataclass(slots=True)
class Holdings:
    """The contents of queues, added up."""

    queues: int = 0
    ready: int = 0
    in_flight: int = 0
    scheduled: int = 0
    bytes: int = 0
    consumers: int = 0

    def add(self, queue: Queue) -> None:
        self.queues += 1
        self.ready += queue.depth
        self.in_flight += queue.in_flight
        self.scheduled += len(queue.scheduled)
        self.bytes += queue.bytes
        self.consumers += len(queue.consumers)


@dataclass(slots=True)
class Gauges(Holdings):
    """The contents of queues of one kind, and how long they wait."""

    at_limit: int = 0
    held_back: int = 0
    """Of these, those whose senders wait or are refused."""
    paused: int = 0
    blocked: int = 0
    """Senders that wait for room."""
    since: int = 0
    """Since when the oldest message waits; ms since 1970, 0 if none waits."""
    held_since: int = 0
    """Since when a consumer holds the oldest message in flight; as above."""
    fill: float = 0.0
    """The largest share of a limit that is in use."""

    def add(self, queue: Queue) -> None:
        Holdings.add(self, queue)
        if queue.depth:
            self.since = _earlier(self.since, waits_since(queue))
        if queue.consumers or queue.holders:
            self.held_since = _earlier(self.held_since, queue.held_since)
        if queue.policy.limited:
            is_full = queue.at_limit
            self.at_limit += is_full
            self.held_back += is_full and queue.policy.holds_back
            self.fill = max(self.fill, queue.fill)
        self.paused += queue.paused
        self.blocked += queue.blocked_senders


def figures_of(destination: Queue | Topic, now: int, budget: Budget) -> Task[tuple[Counts, Gauges]]:
    """The counts and contents of a destination, those of its subscriptions included."""
    counts, held = Counts(), Gauges()
    yield from add_figures(destination, counts, held, budget)
    return counts, held


def add_figures(destination: Queue | Topic, counts: Counts, held: Holdings, budget: Budget) -> Task[None]:
    """Add them to sums."""
    counts.add(destination)
    for queue in queues_at(destination):
        if budget.spent:
            yield
        budget.spend(_TOTALLED)
        held.add(queue)
        if queue is not destination:
            counts.add(queue)


@dataclass(slots=True)
class Tapped:
    """The contents of taps of one mode."""

    taps: int = 0
    messages: int = 0
    bytes: int = 0
    since: int = 0

    def add(self, tap: CopyTap | DrainTap) -> None:
        self.taps += 1
        self.messages += tap.lag
        self.bytes += tap.held_bytes
        self.since = _earlier(self.since, tap.log.oldest or 0)


def fill_of(policy: NamespacePolicy, holdings: Iterable[Holdings]) -> float:
    """The share of the limits of a namespace that is in use.

    Args:
        holdings: all that it holds.
    """
    messages = size = 0
    for held in holdings:
        messages += held.ready + held.scheduled
        size += held.bytes
    return share_used(policy, messages, size + MESSAGE_BYTES * messages)


def waits_since(queue: Queue) -> int:
    """The time at which the oldest waiting message of a queue was sent, or was due; ms since 1970, 0 if none waits or
    has a time."""
    since = 0
    for entry in queue.main.heads():
        envelope = entry.envelope
        since = _earlier(since, envelope.delivery_time or envelope.fields[TIMESTAMP])
        envelope.compact()
    return since


def age_of(since: int, now: int) -> int:
    """Milliseconds since a time, 0 where there is none. A sender's clock may be ahead."""
    return max(0, now - since) if since else 0


def _earlier(time: int, other: int) -> int:
    return min(time, other) if time and other else time or other


class Totals:
    """Sums by namespace and kind. Complete once :meth:`add_up` has ended.

    Destinations that are deleted while it continues are counted as well, and never twice: counters must not fall.

    Args:
        ended: what destinations had counted that are gone.
    """

    def __init__(self, broker: Broker, ended: Ended) -> None:
        self.counts = {key: replace(counts) for key, counts in ended.counts.items()}
        self.holdings: defaultdict[tuple[str, str], Gauges] = defaultdict(Gauges)
        self.topics: defaultdict[str, int] = defaultdict(int)
        self.taps: defaultdict[tuple[str, str], Tapped] = defaultdict(Tapped)
        #: Messages that taps have lost, by namespace.
        self.missed: defaultdict[str, int] = defaultdict(int)
        self._taps: list[CopyTap | DrainTap] = []
        self._of: list[Queue | Topic] = []
        for space in broker.namespaces.values():
            if space.taps.made:
                self._taps += space.taps
                self.missed[space.name] += space.taps.missed
            destinations = list(space.destinations.values())
            self._of += destinations
            for topic in [of for of in destinations if isinstance(of, Topic)]:
                self._of += [subscription.queue for subscription in topic.subscriptions]

    def add_up(self, now: int, budget: Budget) -> Task[None]:
        """Compute the sums."""
        for of in self._of:
            if budget.spent:
                yield
            budget.spend(_TOTALLED)
            key = of.place.namespace, kind_of(of)
            counts = self.counts.get(key)
            if counts is None:
                counts = self.counts[key] = Counts()
            counts.add(of)
            if isinstance(of, Topic):
                self.topics[key[0]] += 1
            else:
                self.holdings[key].add(of)
        for tap in self._taps:
            if budget.spent:
                yield
            budget.spend(_TOTALLED)
            space = tap.destination.place.namespace
            self.taps[space, tap.mode].add(tap)
            self.missed[space] += tap.missed
