"""A topic and its subscriptions: every message goes to each one whose selector matches, as one copy that shares its
bytes. A subscription owns a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sievemq_broker.domain.fan_out import LARGE, Admit, Deliverer, FanOut
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.queue import Copier, Queue
from sievemq_broker.matching.asking import Answers
from sievemq_broker.matching.condition import Condition, group_key, is_true
from sievemq_broker.matching.index import SelectorIndex
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.client_ids import ClientIds
    from sievemq_broker.domain.ports import Observer

__all__ = ["MOST_LIMITED", "Subscription", "Topic"]

#: Subscriptions of a topic that has limits: a message, or all of a transaction, goes to all that match or to none, so
#: the limits of all are checked in one turn. It takes a millisecond; where each gets something else of a transaction
#: and may lack room for it, six.
MOST_LIMITED: Final = 2_000


class Subscription:
    """A subscription: it gets a copy of each matching message.

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
        number: in the order in which the topic's were made.
        since: messages that had been published before it was made.

    Args:
        drop: ends it, in its namespace.
    """

    __slots__ = (
        "_drop",
        "client_id",
        "condition",
        "connection",
        "durable",
        "name",
        "no_local",
        "number",
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
        drop: Callable[[Subscription], None],
    ) -> None:
        self._drop = drop
        self.topic = topic
        self.name = name
        self.client_id = client_id
        self.condition = condition
        self.durable = durable
        self.shared = shared
        self.no_local = no_local
        self.connection = connection
        self.since = topic.published
        self.number = topic.next_number
        label = topic.label if name is None else f"{topic.label}/{name}"
        place = Place(topic.place.namespace, label, topic.label, name, client_id)
        self.queue = topic.make_queue(place, topic.policy, self.consumer_left)

    @property
    def active(self) -> bool:
        """True while it has a consumer."""
        return bool(self.queue.consumers)

    def is_for(self, topic: Topic, condition: Condition | None, no_local: bool) -> bool:
        """True if it was made with these arguments, so that a consumer may resume it (SUB-12, SUB-14, SUB-19)."""
        return self.topic is topic and group_key(self.condition) == group_key(condition) and self.no_local == no_local

    def follow(self, connection: str) -> None:
        """Its consumer is on another connection now: no_local goes by that one (SUB-21)."""
        self.connection = connection

    def blocks(self, connection: str, client_id: str | None) -> bool:
        """True if no_local keeps out what this connection publishes (SUB-20, SUB-21)."""
        if not self.no_local:
            return False
        return connection == self.connection or (self.durable and client_id is not None and client_id == self.client_id)

    def consumer_left(self) -> None:
        """A consumer has closed: a non-durable subscription ends with its last one."""
        if not self.durable and not self.active:
            self._drop(self)


class Group:
    """Subscriptions with the same selector: one evaluation serves all."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: list[Queue] = []


class Gathering:
    """The queues of the subscriptions that get a message, gathered from groups in slices.

    Args:
        groups: those whose selector matches.
        queues: of subscriptions without a selector; the others are added.
        number: of the subscription that was made last.

    Attributes:
        queues, number: as above.
    """

    __slots__ = ("_left", "number", "queues")

    def __init__(self, groups: list[Group], queues: list[Queue], number: int) -> None:
        self._left = groups[::-1]
        self.queues = queues
        self.number = number

    def reach(self, number: int) -> None:
        """Those that were made before the one with this number are there."""
        self.number = number

    def work(self, budget: int) -> int:
        """Go on, for so many groups; how many that were. None is left when that is less."""
        left, queues = self._left, self.queues
        start = max(0, len(left) - budget)
        part = left[start:]
        del left[start:]
        for group in reversed(part):
            queues += group.queues
        return len(part)


class Topic:
    """Fans messages out to subscriptions.

    Args:
        place: what it is called.
        policy: for each subscription's queue.
        make_queue: makes the queue of a subscription; it calls the third when a consumer has closed.
        client_ids: of the connections that publish, for no_local.
        deliverer: delivers a message for very many subscriptions in slices.

    Attributes:
        place: what it is called.
        label: how it is named in logs and errors, such as ``topic:prices``.
        policy: for each subscription's queue.
        subscriptions: all of them.
        next_number: of the next one.
        large: they are so many that a message may be delivered in slices.
        paused: an administrator stopped deliveries.
        published: messages accepted.
        asked_by_taps: units (condition.units) that it takes to ask the selectors of taps about a message, at most.
        unreadable: messages whose properties could not be decoded (D-14); only subscriptions without selector got them.
    """

    __slots__ = (
        "_client_ids",
        "_deliverer",
        "_groups",
        "_local",
        "_plain",
        "_subscription_of",
        "asked_by_taps",
        "index",
        "label",
        "large",
        "make_queue",
        "next_number",
        "observers",
        "paused",
        "place",
        "policy",
        "published",
        "subscriptions",
        "taps",
        "unreadable",
    )

    def __init__(
        self,
        place: Place,
        policy: DestinationPolicy,
        make_queue: Callable[[Place, DestinationPolicy, Callable[[], None]], Queue],
        client_ids: ClientIds,
        deliverer: Deliverer,
    ) -> None:
        self.place = place
        self.label = place.label
        self.policy = policy
        self.make_queue = make_queue
        self._client_ids = client_ids
        self._deliverer = deliverer
        self.subscriptions: dict[Subscription, None] = {}
        self.next_number = 1
        self.large = False
        self.index: SelectorIndex[Group] = SelectorIndex()
        self.published = 0
        self.unreadable = 0
        self._plain: list[Queue] = []
        self._subscription_of: dict[Queue, Subscription] = {}
        self._groups: dict[object, Group] = {}
        self.paused = False
        #: Those that keep a copy of what is published.
        self.taps: tuple[Copier, ...] = ()
        self.asked_by_taps = 0
        #: Observers of the outcome of messages in the subscriptions.
        self.observers: tuple[Observer, ...] = ()
        self._local = 0  # subscriptions with no_local: while there are none, the publisher does not matter

    def configure(self, policy: DestinationPolicy) -> None:
        """Apply another policy from now on, to its subscriptions too."""
        self.policy = policy
        for subscription in self.subscriptions:
            subscription.queue.configure(policy)

    def __repr__(self) -> str:
        return f"<Topic {self.label} subscriptions={len(self.subscriptions)}>"

    def refuse_if_full(self) -> None:
        """Raise unless one more subscription may be made.

        Raises:
            RequestError: RESOURCE_ALLOCATION, it has limits and very many subscriptions.
        """
        if self.policy.limited and len(self.subscriptions) >= MOST_LIMITED:
            raise RequestError(
                f"{self.label} has limits and {len(self.subscriptions)} subscriptions, as many as are allowed then; "
                "end some, or set max_messages and max_bytes of its policy to 0 and limit its namespace instead",
                ErrorCode.RESOURCE_ALLOCATION,
                {"destination": self.label, "limit": "limited_subscriptions"},
            )

    def add(self, subscription: Subscription) -> None:
        """From now on it gets what is published (SUB-35)."""
        self.subscriptions[subscription] = None
        self.next_number += 1
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
        if not self.large or self._deliverer.fan_out is None:  # else what is sent now might overtake that
            self.large = len(self.subscriptions) > LARGE

    def subscription_of(self, queue: object) -> Subscription | None:
        """The subscription that a queue belongs to, None for one of another topic."""
        return self._subscription_of.get(queue) if isinstance(queue, Queue) else None

    def add_tap(self, tap: Copier) -> None:
        """Let a tap keep a copy of what is published from now on."""
        self.taps = (*self.taps, tap)
        self.asked_by_taps += tap.effort

    def remove_tap(self, tap: Copier) -> None:
        """End that."""
        self.taps = tuple(each for each in self.taps if each is not tap)
        self.asked_by_taps = sum([each.effort for each in self.taps])

    def observe(self, observer: Observer) -> None:
        """From now on it observes the outcome of messages in each subscription, later ones included."""
        self.observers = (*self.observers, observer)
        for subscription in self.subscriptions:
            subscription.queue.observe(observer)

    def unobserve(self, observer: Observer) -> None:
        """It observes no further outcomes."""
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

    def matching(self, envelope: Envelope, connection: str | None, counted: bool = True) -> list[Queue]:
        """The queues of the subscriptions that get a message (SUB-05); selector and no_local decide now (SUB-22).

        Args:
            envelope: the message.
            connection: id of the sender's connection, for no_local.
            counted: count what selectors were asked.
        """
        answers = envelope.answers
        if answers is not None and answers.gathered is not None and answers.index is self.index:
            queues = self._gathered(answers, envelope, counted)
        elif self._groups:
            index = self.index
            groups = index.match(envelope) if counted else index.look(envelope)
            if len(groups) == 1 and not self._plain:
                queues = groups[0].queues
            else:
                queues = self._plain.copy()
                for group in groups:
                    queues += group.queues
            if index.error is not None:
                index.take_error()
                self.unreadable += counted
        else:
            queues = self._plain
        if self._local and connection is not None:
            queues = self._not_blocked(queues, connection)
        return queues

    def matching_since(self, number: int, envelope: Envelope, connection: str | None) -> list[Queue]:
        """:meth:`matching`, of the subscriptions that have come since :attr:`next_number` had that value; uncounted."""
        queues, _ = self._matching_since(number, envelope)
        return queues if connection is None else self._not_blocked(queues, connection)

    def _not_blocked(self, queues: list[Queue], connection: str) -> list[Queue]:
        """Those of the subscriptions that no_local does not keep a message from."""
        client_id = self._client_ids.of(connection)
        there = self._subscription_of
        return [queue for queue in queues if queue in there and not there[queue].blocks(connection, client_id)]

    def _matching_since(self, number: int, envelope: Envelope) -> tuple[list[Queue], Exception | None]:
        """The youngest first; and what was wrong with one of the selectors (D-14)."""
        queues, wrong = [], None
        for subscription in reversed(self.subscriptions):
            if subscription.number < number:
                break
            condition = subscription.condition
            try:
                if condition is None or is_true(condition, envelope):
                    queues.append(subscription.queue)
            except Exception as error:  # it concerns this message alone (D-14)
                wrong = error
        return queues, wrong

    def gathering(self, answers: Answers[Group]) -> Gathering | None:
        """Begin to gather who gets a message, once all selectors have been asked about it; None if those are few."""
        if not self.large:
            return None
        gathering = Gathering(answers.found, self._plain.copy(), self.next_number)
        answers.gather(gathering)
        return gathering

    def _gathered(self, answers: Answers[Group], envelope: Envelope, counted: bool) -> list[Queue]:
        """What was gathered, without those that have gone since and with those that have come."""
        gathering = answers.gathered
        assert isinstance(gathering, Gathering)
        queues = gathering.queues
        came, error = self._matching_since(gathering.number, envelope)
        queues += came
        if error is not None:
            answers.fail(error)
        gathering.reach(self.next_number)
        if counted:
            self.index.count_known(answers, len(queues))
            if self.index.error is not None:
                self.index.take_error()
                self.unreadable += 1
        return queues

    def copies(self, envelope: Envelope, connection: str | None) -> int:
        """How many subscriptions get a message; that it was looked at is counted nowhere."""
        return len(self.matching(envelope, connection, counted=False))

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
        row = [envelope]
        for queue in queues:
            queue.accept(row, now)

    def spread(self, queues: list[Queue], envelope: Envelope, now: int, admit: Admit) -> None:
        """Give a message to very many subscriptions: in slices if that is possible, and behind what is delivered in
        slices already.

        Args:
            queues: of the subscriptions; some may have gone.
            envelope: the message.
            now: ms epoch.
            admit: adds it to one of the queues.
        """
        broker = self._deliverer
        journal = broker.journal
        envelope.remember(None)  # it is asked no more who gets it
        before = broker.fan_out
        if before is not None:
            before.finish(now)  # this sender cannot wait
        elif len(queues) > LARGE and (journal is None or not journal.holds):
            broker.begin_fan_out(FanOut(queues.copy(), envelope, admit, journal))
            return
        for queue in queues:
            if not queue.deleted:
                admit(queue, envelope, now)

    @property
    def fan_out(self) -> int:
        """To how many subscriptions a message goes, where all have the same selector or none; and what taps ask."""
        return len(self.subscriptions) - max(0, len(self._groups) - 1) + self.asked_by_taps

    @property
    def queues(self) -> list[Queue]:
        """Those of all subscriptions."""
        return list(self._subscription_of)

    @property
    def takes_all(self) -> bool:
        """All subscriptions get all messages."""
        return not (self._groups or self._local)

    @property
    def takes_rows(self) -> bool:
        """All subscriptions get all messages, and no tap does."""
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
