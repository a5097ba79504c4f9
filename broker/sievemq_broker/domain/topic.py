"""A topic and its subscriptions: every message goes to each one whose selector matches, as one copy that shares its
bytes. A subscription owns a queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sievemq_broker.domain.client_ids import ClientIds
from sievemq_broker.domain.fan_out import LARGE, LARGE_IN_ALL, Admit, Deliverer, deliver
from sievemq_broker.domain.origin import Origin
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.ports import Observer
from sievemq_broker.domain.queue import Copier, Queue
from sievemq_broker.matching.asking import Answers
from sievemq_broker.matching.condition import Condition, group_key, is_true
from sievemq_broker.matching.index import SelectorIndex
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import Envelope

#: The most subscriptions of a topic with limits. A message, or a whole transaction, goes to all matching subscriptions
#: or to none, so one turn checks the limits of all. That takes a millisecond, or six if each gets other messages of the
#: transaction and may lack room.
MOST_LIMITED: Final = 2_000


class Subscription:
    """A subscription: it gets a copy of each matching message.

        durable  shared
        no       no       SUB-01: one consumer, dies with it; has no name
        no       yes      SUB-02: many consumers, dies with the last
        yes      no       SUB-03: one consumer at a time, lives until unsubscribe
        yes      yes      SUB-04: many consumers, lives until unsubscribe

    Attributes:
        topic: its topic.
        name: None for an unshared non-durable one.
        client_id: with the name, its identity (SUB-18); may be None for shared ones.
        condition: its selector, None for none. Applied at publication (SUB-23).
        no_local: excludes messages that `connection` publishes; for a durable one, messages of any connection with its
            client id.
        connection: of the consumer, for no_local of a non-durable one.
        origin: the request that created it.
        queue: its messages and consumers.
        number: its place in the order in which the topic's subscriptions were created.
        since: messages that had been published before it was created.
    """

    __slots__ = (
        "_drop", "client_id", "condition", "connection", "durable", "name", "no_local", "number", "origin", "queue",
        "shared", "since", "topic",
    )  # fmt: skip

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
        origin: Origin,
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
        self.origin = origin
        self.since = topic.published
        self.number = topic.next_number
        label = topic.label if name is None else f"{topic.label}/{name}"
        place = Place(topic.place.namespace, label, topic.label, name, client_id)
        self.queue = topic.make_queue(place, topic.policy, self.consumer_left)

    @property
    def active(self) -> bool:
        """True if it has a consumer."""
        return bool(self.queue.consumers)

    def is_for(self, topic: Topic, condition: Condition | None, no_local: bool) -> bool:
        """True if it was made with these arguments, so that a consumer may resume it (SUB-12, SUB-14, SUB-19)."""
        return self.topic is topic and group_key(self.condition) == group_key(condition) and self.no_local == no_local

    def follow(self, connection: str) -> None:
        """Its consumer has another connection now, which no_local applies to (SUB-21)."""
        self.connection = connection

    def blocks(self, connection: str, client_id: str | None) -> bool:
        """True if no_local excludes messages that this connection publishes (SUB-20, SUB-21)."""
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
    """Collects the queues of the subscriptions that get a message, from groups, in slices.

    Args:
        queues: of subscriptions without a selector; the others are added.

    Attributes:
        queues, number: as above.
    """

    __slots__ = ("_left", "number", "queues")

    def __init__(self, groups: list[Group], queues: list[Queue], number: int) -> None:
        self._left = groups[::-1]
        self.queues = queues
        self.number = number

    def reach(self, number: int) -> None:
        """Include subscriptions up to this number."""
        self.number = number

    def work(self, budget: int) -> int:
        """Go on for at most `budget` groups. Returns how many were done; all are done if that is less."""
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
        policy: for each subscription's queue.
        make_queue: creates the queue of a subscription; the third argument is called when a consumer has closed.
        client_ids: of the connections that publish, for no_local.
        deliverer: delivers messages in slices to a large number of subscriptions.

    Attributes:
        place: its name.
        label: its name in logs and errors, such as ``topic:prices``.
        policy: for each subscription's queue.
        subscriptions: all of them.
        next_number: the number of the next subscription.
        large: it has so many subscriptions that a message may be delivered in slices.
        paused: an administrator stopped deliveries.
        published: messages accepted.
        asked_by_taps: the most that evaluating the selectors of taps on a message can cost, in units (condition.units).
        unreadable: messages whose properties could not be decoded (D-14); only subscriptions without selector got them.
    """

    __slots__ = (
        "_client_ids", "_deliverer", "_groups", "_local", "_plain", "_subscription_of", "asked_by_taps", "index",
        "label", "large", "make_queue", "next_number", "observers", "paused", "place", "policy", "published",
        "subscriptions", "taps", "unreadable",
    )  # fmt: skip

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
        #: The taps that copy what is published.
        self.taps: tuple[Copier, ...] = ()
        self.asked_by_taps = 0
        #: The observers of the outcome of messages in the subscriptions.
        self.observers: tuple[Observer, ...] = ()
        self._local = 0  # subscriptions with no_local; without any, the publisher does not matter

    def configure(self, policy: DestinationPolicy) -> None:
        """Have other rules from now on, as the queues of subscriptions that are made. Those that exist are configured
        one by one: there may be very many."""
        self.policy = policy

    def __repr__(self) -> str:
        return f"<Topic {self.label} subscriptions={len(self.subscriptions)}>"

    def refuse_if_full(self) -> None:
        """Raise unless there may be one subscription more.

        Raises:
            RequestError: RESOURCE_ALLOCATION, it has limits and very many subscriptions.
        """
        if self.policy.limited and len(self.subscriptions) >= MOST_LIMITED:
            raise RequestError(
                f"{self.label} has limits and {len(self.subscriptions)} subscriptions, as many as are allowed then; "
                f"end some, or set max_messages and max_bytes to 0 in {self.policy.where}, and limit its namespace",
                ErrorCode.RESOURCE_ALLOCATION,
                {"destination": self.label, "limit": "limited_subscriptions", "rule": self.policy.pattern},
            )

    def add(self, subscription: Subscription) -> None:
        """Add a subscription. It gets what is published from now on (SUB-35)."""
        self.subscriptions[subscription] = None
        self.next_number += 1
        self._subscription_of[subscription.queue] = subscription
        if self.paused:
            subscription.queue.pause()
        for observer in self.observers:
            subscription.queue.observe(observer)
        self._local += subscription.no_local
        condition = subscription.condition
        if condition is None:
            self._plain.append(subscription.queue)
        else:
            key = group_key(condition)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = Group()
                self.index.add(condition, group)
            group.queues.append(subscription.queue)
        self._weigh()

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        del self.subscriptions[subscription]
        del self._subscription_of[subscription.queue]
        self._local -= subscription.no_local
        condition = subscription.condition
        if condition is None:
            self._plain.remove(subscription.queue)
        else:
            key = group_key(condition)
            group = self._groups[key]
            group.queues.remove(subscription.queue)
            if not group.queues:
                del self._groups[key]
                self.index.remove(group)
        self._weigh()

    def _weigh(self) -> None:
        if not self.large or self._deliverer.fan_out is None:  # otherwise messages sent now might overtake that one
            self.large = self._alike > LARGE or len(self.subscriptions) > LARGE_IN_ALL

    def subscription_of(self, queue: object) -> Subscription | None:
        """The subscription that owns a queue; None if it is one of another topic."""
        return self._subscription_of.get(queue) if isinstance(queue, Queue) else None

    def add_tap(self, tap: Copier) -> None:
        self.taps = (*self.taps, tap)
        self.asked_by_taps += tap.effort

    def remove_tap(self, tap: Copier) -> None:
        """Let a tap copy nothing more."""
        self.taps = tuple(each for each in self.taps if each is not tap)
        self.asked_by_taps = sum([each.effort for each in self.taps])

    def observe(self, observer: Observer) -> None:
        """Add an observer of the outcome of messages, for all present and later subscriptions."""
        self.observers = (*self.observers, observer)
        for subscription in self.subscriptions:
            subscription.queue.observe(observer)

    def unobserve(self, observer: Observer) -> None:
        self.observers = tuple(each for each in self.observers if each is not observer)
        for subscription in self.subscriptions:
            subscription.queue.unobserve(observer)

    def pause(self) -> None:
        """Stop deliveries to all present and later consumers. Publishing continues."""
        self.paused = True
        for subscription in self.subscriptions:
            subscription.queue.pause()

    def unpause(self, now: int) -> None:
        self.paused = False
        for subscription in list(self.subscriptions):
            subscription.queue.unpause(now)

    def matching(self, envelope: Envelope, connection: str | None, counted: bool = True) -> list[Queue]:
        """The queues of the subscriptions that get a message (SUB-05), according to selector and no_local now (SUB-22).

        Args:
            connection: id of the sender's connection, for no_local.
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
        """:meth:`matching` for subscriptions added since :attr:`next_number` had that value. Nothing is counted."""
        queues, _ = self._matching_since(number, envelope)
        return queues if connection is None else self._not_blocked(queues, connection)

    def _not_blocked(self, queues: list[Queue], connection: str) -> list[Queue]:
        """Leave out the subscriptions whose no_local excludes the message."""
        client_id = self._client_ids.of(connection)
        there = self._subscription_of
        return [queue for queue in queues if queue in there and not there[queue].blocks(connection, client_id)]

    def _matching_since(self, number: int, envelope: Envelope) -> tuple[list[Queue], Exception | None]:
        """The matching subscriptions, youngest first, and the error of a selector if there was one (D-14)."""
        queues, wrong = [], None
        for subscription in reversed(self.subscriptions):
            if subscription.number < number:
                break
            condition = subscription.condition
            try:
                if condition is None or is_true(condition, envelope):
                    queues.append(subscription.queue)
            except Exception as error:  # only this message is concerned (D-14)
                wrong = error
        return queues, wrong

    def gathering(self, answers: Answers[Group]) -> Gathering | None:
        """Begin to collect the receivers of a message whose selectors are evaluated. None if there are few."""
        if not self.large:
            return None
        gathering = Gathering(answers.found, self._plain.copy(), self.next_number)
        answers.gather(gathering)
        return gathering

    def _gathered(self, answers: Answers[Group], envelope: Envelope, counted: bool) -> list[Queue]:
        """The collected queues, without those removed since and with those added since."""
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
        """How many subscriptions get a message. Nothing is counted."""
        return len(self.matching(envelope, connection, counted=False))

    def take(self, envelope: Envelope, now: int) -> None:
        """Count a message, and give it to the taps."""
        self.published += 1
        for tap in self.taps:
            tap.copy(envelope, now)

    def publish(self, envelopes: list[Envelope], now: int, connection: str | None, *, moved: bool = False) -> None:
        """Give messages, in order, to the matching subscriptions. Cannot fail. A delayed message goes to the
        subscriptions that exist now (EXP-08), and waits in their queues.

        Args:
            envelopes: one; or several, none of which expires, or is for later, unless the topic is large.
            now: ms epoch.
            connection: id of the sender's connection, for no_local.
            moved: they come from another place, see :meth:`Deliverer.begin_fan_out`.
        """
        if self.large:
            for envelope in envelopes:
                self.spread(self.matching(envelope, connection), envelope, now, _accept, moved=moved)
            return
        self.published += len(envelopes)
        for tap in self.taps:
            for envelope in envelopes:
                tap.copy(envelope, now)
        if self.takes_all:
            for queue in self._plain:
                queue.accept(envelopes, now)
        else:
            for envelope in envelopes:
                row = [envelope]
                for queue in self.matching(envelope, connection):
                    queue.accept(row, now)

    def spread(self, queues: list[Queue], envelope: Envelope, now: int, admit: Admit, *, moved: bool) -> None:
        """Deliver a message to a large number of subscriptions: in slices if that is possible, and after earlier
        messages that are being delivered in slices.

        Args:
            queues: of the subscriptions; some may have gone.
            now: ms epoch.
            moved: it comes from another place.
        """
        broker = self._deliverer
        envelope.remember(None)  # the receivers are known: selectors are not evaluated again
        if broker.fan_out is not None:
            broker.finish_fan_out(now)  # this sender cannot wait
        elif len(queues) > LARGE:
            take = partial(self.take, envelope, now)
            broker.begin_fan_out(partial(deliver, queues.copy(), envelope, admit), take, moved=moved)
            return
        self.take(envelope, now)
        for queue in queues:
            if not queue.deleted:
                admit(queue, envelope, now)

    @property
    def fan_out(self) -> int:
        """The cost of a message: the number of subscriptions it usually goes to, and the selectors of taps."""
        return self._alike + self.asked_by_taps

    @property
    def _alike(self) -> int:
        """How many subscriptions a message goes to, at most, if it matches one of several selectors."""
        return len(self.subscriptions) - max(0, len(self._groups) - 1)

    @property
    def queues(self) -> list[Queue]:
        return list(self._subscription_of)

    @property
    def takes_all(self) -> bool:
        """True if all subscriptions get all messages."""
        return not (self._groups or self._local)


def _accept(queue: Queue, envelope: Envelope, now: int) -> None:
    queue.accept([envelope], now)
