"""A topic: every message goes to each subscription whose selector matches, as one copy that shares its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.domain.fan_out import LARGE, Admit, FanOut
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.subscription import Subscription
from sievemq_broker.matching.condition import group_key
from sievemq_broker.matching.index import SelectorIndex
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.namespace import Namespace
    from sievemq_broker.domain.ports import Observer
    from sievemq_broker.domain.tap import CopyTap

__all__ = ["Topic"]


class Group:
    """Subscriptions with the same selector: one evaluation serves all."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: list[Queue] = []


class Topic:
    """Fans messages out to subscriptions.

    Attributes:
        place: what it is called.
        label: how it is named in logs and errors, such as ``topic:prices``.
        policy: for each subscription's queue.
        subscriptions: all of them.
        large: they are so many that a message may be delivered in slices.
        paused: an administrator stopped deliveries.
        published: messages accepted.
        unreadable: messages whose properties could not be decoded (D-14); only subscriptions without selector got them.
    """

    __slots__ = (
        "_groups",
        "_local",
        "_plain",
        "_subscription_of",
        "index",
        "label",
        "large",
        "namespace",
        "observers",
        "paused",
        "place",
        "policy",
        "published",
        "subscriptions",
        "taps",
        "unreadable",
    )

    def __init__(self, place: Place, policy: DestinationPolicy, namespace: Namespace) -> None:
        self.place = place
        self.label = place.label
        self.policy = policy
        self.namespace = namespace
        self.subscriptions: dict[Subscription, None] = {}
        self.large = False
        self.index: SelectorIndex[Group] = SelectorIndex()
        self.published = 0
        self.unreadable = 0
        self._plain: list[Queue] = []
        self._subscription_of: dict[object, Subscription] = {}
        self._groups: dict[object, Group] = {}
        self.paused = False
        #: Those that keep a copy of what is published.
        self.taps: tuple[CopyTap, ...] = ()
        #: Those that are told what becomes of messages in the subscriptions.
        self.observers: tuple[Observer, ...] = ()
        self._local = 0  # subscriptions with no_local: while there are none, nobody asks who published

    def configure(self, policy: DestinationPolicy) -> None:
        """Apply another policy from now on, to its subscriptions too."""
        self.policy = policy
        for subscription in self.subscriptions:
            subscription.queue.configure(policy)

    def __repr__(self) -> str:
        return f"<Topic {self.label} subscriptions={len(self.subscriptions)}>"

    def add(self, subscription: Subscription) -> None:
        """From now on it gets what is published (SUB-35)."""
        self.subscriptions[subscription] = None
        self._weigh()
        self._subscription_of[subscription.queue] = subscription
        if self.paused:
            subscription.queue.pause()
        for observer in self.observers:
            subscription.queue.observe(observer)
        self._local += subscription.no_local
        condition = subscription.condition
        if condition is None:
            self._plain.append(subscription.queue)
            return
        key = group_key(condition)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group()
            self.index.add(condition, group)
        group.queues.append(subscription.queue)

    def remove(self, subscription: Subscription) -> None:
        """It gets nothing any more."""
        del self.subscriptions[subscription]
        self._weigh()
        del self._subscription_of[subscription.queue]
        self._local -= subscription.no_local
        condition = subscription.condition
        if condition is None:
            self._plain.remove(subscription.queue)
            return
        key = group_key(condition)
        group = self._groups[key]
        group.queues.remove(subscription.queue)
        if not group.queues:
            del self._groups[key]
            self.index.remove(group)

    def _weigh(self) -> None:
        if not self.large or self.namespace.broker.fan_out is None:  # else what is sent now might overtake that
            self.large = len(self.subscriptions) > LARGE

    def subscription_of(self, queue: object) -> Subscription | None:
        """The subscription that a queue belongs to, None for one of another topic."""
        return self._subscription_of.get(queue)

    def add_tap(self, tap: CopyTap) -> None:
        """From now on it is told what is published."""
        self.taps = (*self.taps, tap)

    def remove_tap(self, tap: CopyTap) -> None:
        """It is told nothing any more."""
        self.taps = tuple(each for each in self.taps if each is not tap)

    def observe(self, observer: Observer) -> None:
        """From now on it is told what becomes of messages in each subscription, those to come included."""
        self.observers = (*self.observers, observer)
        for subscription in self.subscriptions:
            subscription.queue.observe(observer)

    def unobserve(self, observer: Observer) -> None:
        """It is told nothing any more."""
        self.observers = tuple(each for each in self.observers if each is not observer)
        for subscription in self.subscriptions:
            subscription.queue.unobserve(observer)

    def pause(self) -> None:
        """Stop deliveries to all consumers, those to come included; publishing goes on."""
        self.paused = True
        for subscription in self.subscriptions:
            subscription.queue.pause()

    def unpause(self, now: int) -> None:
        """Deliver again."""
        self.paused = False
        for subscription in list(self.subscriptions):
            subscription.queue.unpause(now)

    def matching(self, envelope: Envelope, connection: str | None) -> list[Queue]:
        """The queues of the subscriptions that get a message (SUB-05); selector and no_local decide now (SUB-22)."""
        if self._groups:
            index = self.index
            groups = index.match(envelope)
            if len(groups) == 1 and not self._plain:
                queues = groups[0].queues
            else:
                queues = self._plain.copy()
                for group in groups:
                    queues += group.queues
            if index.error is not None:
                index.take_error()
                self.unreadable += 1
        else:
            queues = self._plain
        if self._local and connection is not None:
            client_id = self.namespace.client_ids.of(connection)
            queues = [queue for queue in queues if not self._subscription_of[queue].blocks(connection, client_id)]
        return queues

    def take(self, envelope: Envelope, now: int) -> None:
        """Count a message, and let taps have it."""
        self.published += 1
        for tap in self.taps:
            tap.copy(envelope, now)

    def publish(self, envelope: Envelope, now: int, connection: str | None) -> None:
        """Give a message to the subscriptions that match. Cannot fail. A delayed message goes to those that exist now
        (EXP-08): it waits in their queues."""
        self.published += 1
        if self.taps:
            for tap in self.taps:
                tap.copy(envelope, now)
        queues = self.matching(envelope, connection)
        if self.large:
            self.spread(queues, envelope, now, _accept)
            return
        for queue in queues:
            queue.accept([envelope], now)

    def spread(self, queues: list[Queue], envelope: Envelope, now: int, admit: Admit) -> None:
        """Give a message to very many subscriptions: in slices if that is possible, and behind what is delivered in
        slices already.

        Args:
            queues: of the subscriptions.
            envelope: the message.
            now: ms epoch.
            admit: adds it to one of the queues.
        """
        broker = self.namespace.broker
        journal = broker.journal
        before = broker.fan_out
        if before is not None:
            before.finish(now)  # whoever sends this cannot wait
        elif len(queues) > LARGE and (journal is None or not journal.holds):
            broker.begin_fan_out(FanOut(queues.copy(), envelope, admit, journal))
            return
        for queue in queues:
            admit(queue, envelope, now)

    @property
    def fan_out(self) -> int:
        """To how many subscriptions a message goes, where all have the same selector or none."""
        return len(self.subscriptions) - max(0, len(self._groups) - 1)

    @property
    def takes_rows(self) -> bool:
        """All subscriptions get all messages, and nobody else does."""
        return not (self._groups or self._local or self.taps)

    def publish_row(self, envelopes: list[Envelope], now: int) -> None:
        """:meth:`publish` for several messages, while :attr:`takes_rows`.

        Args:
            envelopes: at least one; none of them expires, or is for later.
            now: ms epoch.
        """
        self.published += len(envelopes)
        for queue in self._plain:
            queue.accept(envelopes, now)


def _accept(queue: Queue, envelope: Envelope, now: int) -> None:
    queue.accept([envelope], now)
