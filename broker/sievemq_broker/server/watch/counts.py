"""What has happened, added up; and kept when what it happened to is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic

__all__ = ["Counts", "Ended", "held_bytes", "kind_of", "queues_at", "queues_in", "queues_of"]


@dataclass(slots=True)
class Counts:
    """What has happened in queues, topics or both, added up."""

    enqueued: int = 0
    delivered: int = 0
    acknowledged: int = 0
    redelivered: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dead_expired: int = 0
    dead_refused: int = 0
    removed: int = 0
    dropped_oldest: int = 0
    dropped_newest: int = 0
    unreadable: int = 0
    evaluations: int = 0
    matches: int = 0
    published: int = 0

    def add(self, of: Queue | Topic) -> None:
        """Add what one queue or topic counted."""
        self.unreadable += of.unreadable
        self.evaluations += of.index.evaluations
        self.matches += of.index.matches
        if isinstance(of, Topic):
            self.published += of.published
            return
        self.enqueued += of.enqueued
        self.delivered += of.delivered
        self.acknowledged += of.acknowledged
        self.redelivered += of.redelivered
        self.expired += of.expired
        self.dead_lettered += of.dead_lettered
        self.dead_expired += of.dead_expired
        self.dead_refused += of.dead_refused
        self.removed += of.removed
        self.dropped_oldest += of.dropped_oldest
        self.dropped_newest += of.dropped_newest


class Ended:
    """What destinations had counted when they were deleted. A counter must not fall when a temporary queue goes.

    Attributes:
        counts: by namespace and kind.
        on_end: called with each queue, subscription's queue or topic before it is deleted.
    """

    __slots__ = ("counts", "on_end")

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], Counts] = {}
        self.on_end: Callable[[Queue | Topic], None] | None = None

    def add(self, destination: Queue | Topic) -> None:
        """A queue, subscription or topic is about to go."""
        key = destination.place.namespace, kind_of(destination)
        self.counts.setdefault(key, Counts()).add(destination)
        if self.on_end is not None:
            self.on_end(destination)


def kind_of(destination: Queue | Topic) -> str:
    """The label of a destination's kind."""
    if isinstance(destination, Topic):
        return "topic"
    return "queue" if destination.place.topic is None else "subscription"


def queues_at(destination: Queue | Topic) -> list[Queue]:
    """A queue, or those of a topic's subscriptions."""
    return [destination] if isinstance(destination, Queue) else [s.queue for s in destination.subscriptions]


def queues_of(broker: Broker) -> Iterator[Queue]:
    """Every queue of the broker, those of subscriptions included."""
    for space in broker.namespaces.values():
        yield from queues_in(space)


def queues_in(space: Namespace) -> Iterator[Queue]:
    """Every queue of a namespace, those of subscriptions included."""
    for destination in space.destinations.values():
        if isinstance(destination, Topic):
            for subscription in destination.subscriptions:
                yield subscription.queue
        else:
            yield destination


def held_bytes(broker: Broker) -> int:
    """What the broker holds beside its queues: taps, what is staged for a publisher, sends that wait for room."""
    return broker.rooms.bytes + sum(space.taps.held_bytes + space.stages.bytes for space in broker.namespaces.values())
