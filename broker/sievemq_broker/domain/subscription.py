"""A subscription to a topic: the four kinds of section 29, each owning a queue of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.domain.place import Place
from sievemq_broker.domain.queue import Queue
from sievemq_broker.matching.condition import Condition, group_key

if TYPE_CHECKING:
    from sievemq_broker.domain.topic import Topic

__all__ = ["Subscription"]


class Subscription:
    """Who gets a copy of what is published.

        durable  shared
        no       no       SUB-01: one consumer, dies with it; has no name
        no       yes      SUB-02: many consumers, dies with the last
        yes      no       SUB-03: one consumer at a time, lives until unsubscribe
        yes      yes      SUB-04: many consumers, lives until unsubscribe

    Attributes:
        topic: to what.
        name: None for an unshared non-durable one.
        client_id: with the name, its identity (SUB-18); may be None for shared ones.
        condition: its selector, None for none. Applied at publication (SUB-23).
        no_local: not what `connection` publishes; for a durable one, what any connection with its client id publishes.
        connection: of the consumer, for no_local of a non-durable one.
        queue: what it has collected, and its consumers.
        since: messages that had been published before it was made.
    """

    __slots__ = (
        "client_id",
        "condition",
        "connection",
        "durable",
        "name",
        "no_local",
        "queue",
        "shared",
        "since",
        "topic",
    )

    def __init__(
        self,
        topic: Topic,
        name: str | None,
        client_id: str | None,
        condition: Condition | None,
        *,
        durable: bool,
        shared: bool,
        no_local: bool,
        connection: str | None,
    ) -> None:
        self.topic = topic
        self.name = name
        self.client_id = client_id
        self.condition = condition
        self.durable = durable
        self.shared = shared
        self.no_local = no_local
        self.connection = connection
        self.since = topic.published
        label = topic.label if name is None else f"{topic.label}/{name}"
        place = Place(topic.place.namespace, label, topic.label, name, client_id)
        self.queue = Queue(place, topic.policy, topic.namespace, self.consumer_left)

    @property
    def active(self) -> bool:
        """True while it has a consumer."""
        return bool(self.queue.consumers)

    def is_for(self, topic: Topic, condition: Condition | None, no_local: bool) -> bool:
        """True if it was made with these arguments, so that a consumer may resume it (SUB-12, SUB-14, SUB-19)."""
        return self.topic is topic and group_key(self.condition) == group_key(condition) and self.no_local == no_local

    def blocks(self, connection: str, client_id: str | None) -> bool:
        """True if no_local keeps out what this connection publishes (SUB-20, SUB-21)."""
        if not self.no_local:
            return False
        return connection == self.connection or (self.durable and client_id is not None and client_id == self.client_id)

    def consumer_left(self) -> None:
        """A consumer has closed: a non-durable subscription ends with its last one."""
        if not self.durable and not self.active:
            self.topic.namespace.subscriptions.drop(self)
