"""A namespace at one moment, to be restored: the same beginning for many tests, without sending it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sievemq_broker.domain.namespace import Destination, Namespace
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Subscription, Topic
from sievemq_broker.matching.condition import Condition
from sievemq_core.message.destination import parse_address
from sievemq_core.message.envelope import DELIVERY_TIME, EXPIRATION, TIMESTAMP, Envelope


@dataclass(frozen=True, slots=True)
class KeptSubscription:
    """A durable subscription and its messages."""

    name: str
    client_id: str | None
    condition: Condition | None
    shared: bool
    no_local: bool
    messages: tuple[Envelope, ...]


@dataclass(frozen=True, slots=True)
class KeptDestination:
    """A queue with its messages, or a topic with its durable subscriptions."""

    address: str
    policy: DestinationPolicy
    paused: bool
    messages: tuple[Envelope, ...] = ()
    subscriptions: tuple[KeptSubscription, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The destinations, durable subscriptions and messages of a namespace; see
    :meth:`~sievemq_testing.TestNamespace.snapshot`.

    Attributes:
        at: when it was taken, by the broker's clock, ms since 1970.
        destinations: without temporary ones.
    """

    at: int
    destinations: tuple[KeptDestination, ...]

    @property
    def messages(self) -> int:
        """How many it holds, those of subscriptions included."""
        return sum(
            len(kept.messages) + sum(len(subscription.messages) for subscription in kept.subscriptions)
            for kept in self.destinations
        )


def take(namespace: Namespace | None, now: int) -> Snapshot:
    """The state of a namespace. Runs on the broker's thread."""
    destinations = () if namespace is None else tuple(namespace.destinations.values())
    return Snapshot(now, tuple(_keep(each) for each in destinations if not parse_address(each.label).kind.is_temporary))


def _keep(destination: Destination) -> KeptDestination:
    if isinstance(destination, Topic):
        durable = tuple(map(_keep_subscription, (each for each in destination.subscriptions if each.durable)))
        return KeptDestination(destination.label, destination.policy, destination.paused, subscriptions=durable)
    return KeptDestination(destination.label, destination.policy, destination.paused, tuple(_messages(destination)))


def _keep_subscription(subscription: Subscription) -> KeptSubscription:
    assert subscription.name is not None
    return KeptSubscription(
        subscription.name,
        subscription.client_id,
        subscription.condition,
        subscription.shared,
        subscription.no_local,
        tuple(_messages(subscription.queue)),
    )


def _messages(queue: Queue) -> Iterator[Envelope]:
    """All messages of a queue, those in flight included, in the order of arrival."""
    entries = [*queue.main.waits(-1, queue.depth), *queue.scheduled.values()]
    for consumer in dict.fromkeys((*queue.consumers, *queue.holders)):
        entries += [entry for entry in consumer.window if entry is not None]
    yield from (entry.envelope for entry in sorted(entries, key=lambda entry: entry.sequence))


def put(namespace: Namespace, snapshot: Snapshot, now: int) -> None:
    """Add what a snapshot holds to an empty namespace. Runs on the broker's thread."""
    by = now - snapshot.at
    for kept in snapshot.destinations:
        destination = namespace.create(kept.address)
        destination.configure(kept.policy)
        if kept.paused:
            namespace.pause(destination)
        else:
            namespace.unpause(destination, now)
        if isinstance(destination, Queue):
            _fill(destination, kept.messages, by, now)
            continue
        for subscription in kept.subscriptions:
            _fill(_subscribed(namespace, destination, subscription), subscription.messages, by, now)


def _subscribed(namespace: Namespace, topic: Topic, kept: KeptSubscription) -> Queue:
    found = namespace.subscriptions.durable.get((kept.client_id, kept.name))
    if found is not None and found.active:
        return found.queue  # its consumer stays
    made = namespace.subscriptions.subscribe(
        topic,
        kept.name,
        kept.client_id,
        kept.condition,
        durable=True,
        shared=kept.shared,
        no_local=kept.no_local,
        connection="",
        temporary=False,
    )
    return made.queue


def _fill(queue: Queue, messages: Iterable[Envelope], by: int, now: int) -> None:
    for envelope in messages:
        queue.accept([shifted(envelope, by)], now)


def shifted(envelope: Envelope, by: int) -> Envelope:
    """The message with its times moved: what had a minute to live has a minute again.

    Args:
        by: milliseconds.
    """
    fields = list(envelope.fields)
    for position in (TIMESTAMP, EXPIRATION, DELIVERY_TIME):
        if fields[position]:
            fields[position] += by
    return Envelope(tuple(fields))
