"""Batches that are too large for one turn of the loop: added in slices, and visible all at once.

    begin ─► hold the queues of the batch ─► slice ─► … ─► release them, slice ─► … ─► call the waiting senders

The broker decides once, at the beginning, whether the batch may be sent. It reserves the room that the batch needs
below the limits of its destinations, so that only a fault of the broker can stop the batch later. A held queue delivers
nothing, and a browser of it waits or shows the messages that were there before: no client sees a part of the batch.
Messages that other clients send meanwhile may stand between those of the batch. A journal writes the whole batch
together, so that a broker that is killed has kept all of it or nothing; what others do meanwhile is written before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import TypeAlias, TypeVar

from sievemq_broker.domain import capacity
from sievemq_broker.domain.fan_out import Deliverer
from sievemq_broker.domain.journal import Journal, Share
from sievemq_broker.domain.overrides import overridden
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Job, Listener, Scheduler, Task, event
from sievemq_core.message.envelope import Envelope

#: Messages that are added within one turn: each counts once for every subscription that it goes to, or for every
#: selector that is evaluated if these are more. Two or three milliseconds.
AT_ONCE = 1_000

_Goal = TypeVar("_Goal")

#: Messages that are freed for one unit.
FREED = 16

Total: TypeAlias = tuple[int, int, int]
"""How many messages, their bytes, and the size of the largest."""

_NOTHING: Total = (0, 0, 0)


def add_to(totals: dict[_Goal, Total], goal: _Goal, messages: int, size: int, largest: int) -> None:
    messages_before, size_before, largest_before = totals.get(goal, _NOTHING)
    totals[goal] = messages_before + messages, size_before + size, max(largest_before, largest)


class Sends:
    """A batch: messages with their addresses. One turn decides about all of it, so it is added up as it is gathered.

    Attributes:
        each: address and message, in order.
        totals: of each address.
        bytes: packed, of all messages.
    """

    __slots__ = ("bytes", "each", "totals")

    def __init__(self, sends: Iterable[tuple[str, Envelope]] = ()) -> None:
        self.each: list[tuple[str, Envelope]] = []
        self.totals: dict[str, Total] = {}
        self.bytes = 0
        for address, envelope in sends:
            self.add(address, [envelope])

    def __len__(self) -> int:
        return len(self.each)

    def __iter__(self) -> Iterator[tuple[str, Envelope]]:
        return iter(self.each)

    def add(self, address: str, envelopes: list[Envelope]) -> None:
        sizes = [len(envelope.packed) for envelope in envelopes]
        size = sum(sizes)
        self.each += [(address, envelope) for envelope in envelopes]
        self.bytes += size
        add_to(self.totals, address, len(sizes), size, max(sizes))

    def withdraw(self, addresses: Set[str]) -> None:
        """Remove all messages to these addresses, each of which has some."""
        self.each = [send for send in self.each if send[0] not in addresses]
        for address in addresses:
            _, size, _ = self.totals.pop(address)
            self.bytes -= size

    def drop(self, now: int, budget: Budget) -> Task[None]:
        """Free all messages: it is used no more."""
        each = self.each
        while each:
            if budget.spent:
                yield
            else:
                budget.spend(1)
                del each[-FREED:]

    def join(self, other: Sends) -> None:
        """Add the messages of another batch."""
        self.each += other.each
        self.bytes += other.bytes
        for address, total in other.totals.items():
            add_to(self.totals, address, *total)


def _is_for_now(envelope: Envelope, now: int) -> bool:
    """True if a message may stand in a row (:meth:`Queue.accept`)."""
    return not envelope.expiration and envelope.delivery_time <= now


def is_large(sends: Sends, destinations: Mapping[str, Queue | Topic]) -> bool:
    """True if a batch must be added in slices.

    Args:
        destinations: where addresses lead, as far as they are known.
    """
    if len(sends) > AT_ONCE:
        return True
    places = 0
    for address, (messages, _, _) in sends.totals.items():
        destination = destinations.get(address)
        if destination is not None:
            if destination.large:
                return True
            places += messages * max(destination.fan_out, destination.index.most)
    return places > AT_ONCE


Load: TypeAlias = dict[Queue, Total]
"""What goes to each queue."""


class Weighing:
    """Counts, in slices, how much of a batch each subscription of a selective topic gets. The broker compares the
    counts with the room of the subscriptions when the batch begins.

    Args:
        connection: id of the sender's connection, for no_local.
    """

    __slots__ = ("_connection", "_left", "_load", "_next", "_size", "_topic", "_weighed")

    def __init__(self, topic: Topic, connection: str | None) -> None:
        self._topic = topic
        self._connection = connection
        self._load: Load = {}
        #: The counted messages, each with the number of the topic's next subscription at that time.
        self._weighed: list[tuple[Envelope, int]] = []
        self._next: Envelope | None = None
        self._left: list[Queue] = []
        self._size = 0

    def take(self, envelope: Envelope) -> None:
        self._next = envelope

    def work(self, budget: int) -> int:
        """Count the message for further subscriptions.

        Args:
            budget: subscriptions at most.

        Returns:
            How many that were; fewer than `budget` when the message is done.
        """
        envelope, load = self._next, self._load
        if envelope is not None:
            self._next = None
            self._weighed.append((envelope, self._topic.next_number))
            self._left = self._topic.matching(envelope, self._connection, counted=False).copy()
            self._size = len(envelope.packed)
        part = self._left[-budget:]
        del self._left[-budget:]
        for queue in part:
            add_to(load, queue, 1, self._size, self._size)
        return len(part)

    def result(self) -> Load:
        """The load of each subscription. Subscriptions created meanwhile are counted now."""
        topic, load = self._topic, self._load
        for place, (envelope, number) in enumerate(self._weighed):
            if number == topic.next_number:
                break  # those behind it were counted later
            size = len(envelope.packed)
            for queue in topic.matching_since(number, envelope, self._connection):
                add_to(load, queue, 1, size, size)
            self._weighed[place] = envelope, topic.next_number
        return {queue: gets for queue, gets in load.items() if not queue.deleted}


def to_weigh(sends: Sends, destinations: Mapping[str, Queue | Topic], contested: bool, gated: bool) -> dict[str, Topic]:
    """The topics, by address, for which :class:`Weighing` must count: their subscriptions are many, and one may lack
    room for the whole batch, or all that arrives is counted.

    Args:
        destinations: where addresses lead, as far as they are known.
        contested: other senders wait, or another batch is published first, so that room may be gone by then.
        gated: the namespace or the broker counts what arrives.
    """
    found = {}
    for address, total in sends.totals.items():
        topic = destinations.get(address)
        if (
            isinstance(topic, Topic)
            and (topic.policy.limited or gated)
            and not topic.takes_all
            and total[0] * len(topic.subscriptions) > AT_ONCE
            and (contested or gated or topic.index.costly or capacity.scarce(topic, *total))
        ):
            found[address] = topic
    return found


def load_of(
    sends: Sends,
    destinations: dict[str, Queue | Topic],
    connection: str | None,
    waited_for: bool,
    weighed: Mapping[str, Weighing],
) -> tuple[dict[Queue | Topic, Total], set[Queue | Topic]]:
    """The load that a batch adds to destinations with limits, and those that certainly have room for it. A topic stands
    for all of its subscriptions where each gets all messages, or has room for all.

    Args:
        connection: id of the sender's connection, for no_local.
        waited_for: senders wait for room somewhere, so that it matters which subscriptions get something.
        weighed: what was found out before, by address.
    """
    roomy: set[Queue | Topic] = set()
    load: dict[Queue | Topic, Total] = {}
    for address, total in sends.totals.items():
        destination = destinations[address]
        if not destination.policy.limited:
            continue
        if not isinstance(destination, Topic) or destination.takes_all:
            add_to(load, destination, *total)
            continue
        scarce = set(capacity.scarce(destination, *total))
        if not scarce and (destination.large or not waited_for):
            load[destination] = total
            roomy.add(destination)
            continue
        weighing = weighed.get(address)
        if weighing is None:
            weighing = Weighing(destination, connection)
            for to, envelope in sends:
                if to == address:
                    weighing.take(envelope)
                    weighing.work(destination.next_number)
        gets = weighing.result()
        load.update(gets.items())
        roomy.update([queue for queue in gets if queue not in scarce])
    return load, roomy


class Publishing:
    """Publishes one batch. There is at most one in a namespace: the next one waits until it is done.

    Args:
        sends: its messages.
        destinations: where each address leads.
        reserved: messages and bytes reserved for it below limits, by queue; by topic for each subscription.
        connection: id of the sender's connection, for no_local.
        deliverer: the broker; it adds no message to a topic with very many subscriptions while it delivers another.

    Attributes:
        error: a fault of the broker that ended it early.
        reserving: reserves room in all of very many subscriptions: until that is over, nothing else is sent to them.
            None if that is not needed.
        share: what it does, if that is stored.
    """

    __slots__ = (
        "_connection", "_deliverer", "_destinations", "_held", "_journal", "_left", "_limited", "_listeners", "_queues",
        "_reserved", "_row", "_unheld", "error", "reserving", "share",
    )  # fmt: skip

    def __init__(
        self,
        sends: Sends,
        destinations: dict[str, Queue | Topic],
        reserved: dict[Queue | Topic, tuple[int, int]],
        connection: str | None,
        deliverer: Deliverer,
    ) -> None:
        self._deliverer = deliverer
        #: The next one last: entries taken from the end are freed one by one, not all in one turn.
        self._left = sends.each[::-1]
        self._destinations = destinations
        self._connection = connection
        self._listeners: list[Listener] = []
        self.error: Exception | None = None
        self.reserving: Job[None] | None = None
        self.share: Share | None = None
        self._journal: Journal | None = None
        #: Its queues, while they deliver nothing of it. Later subscriptions get nothing of the batch.
        self._held: dict[Queue, None] = {}
        #: Messages and bytes that are still reserved, by queue.
        self._reserved: dict[Queue, tuple[int, int]] = {}
        #: Queues that are not held yet, the next one last, with what is reserved in each as it is held. If there are
        #: very many, they are held before the first message.
        self._unheld: list[tuple[list[Queue], tuple[int, int] | None]] = []
        for destination in dict.fromkeys(destinations.values()):
            queues = destination.queues
            queues.reverse()
            self._unheld.append((queues, reserved.pop(destination, None) if destination.large else None))
        self._unheld.reverse()
        for goal, reservation in reserved.items():
            for queue in goal.queues:
                self._reserve(queue, reservation)
        if not self._has_many:
            self._hold(AT_ONCE)
        #: The messages that are being added, whether there are limits, and the queues they still go to, the next one
        #: last.
        self._row: list[Envelope] = []
        self._limited = False
        self._queues: list[Queue] = []

    @property
    def _has_many(self) -> bool:
        """True if room must be reserved in very many subscriptions."""
        return any(reservation is not None for _, reservation in self._unheld)

    def begin(self, scheduler: Scheduler, key: Hashable, now: int) -> None:
        """Begin to add it.

        Args:
            now: ms epoch.
        """
        self._journal = scheduler.journal
        self.share = None if self._journal is None else Share()
        if self._unheld:
            many = self._has_many
            holding = scheduler.start(key, self._hold_all, now, "a large batch is being published", later=True)
            holding.then(partial(self._end_holding, holding))
            self.reserving = holding if many else None
        job = scheduler.start(key, self._add, now, share=self.share, later=True)
        job.then(partial(self._release_all, scheduler, key, job))

    def together(self, act: Callable[[], None]) -> None:
        """Do something that is stored together with the batch, or not at all."""
        if self._journal is None or self.share is None:
            act()
        else:
            self._journal.together(self.share, act)

    def then(self, listener: Listener) -> None:
        """Call this when the whole batch is visible, and delivered to consumers that can take it, after listeners that
        were registered before."""
        self._listeners.append(listener)

    def _add(self, now: int, budget: Budget) -> Task[None]:
        """Add the messages. Each costs a unit for every queue that it goes to."""
        while self.error is None:
            if budget.spent:
                now = yield
            elif self._queues:
                budget.spend(self._add_next(budget.left, now))
            elif not self._left:
                written = self._lagging(now)
                if written is None:
                    return
                now = yield written
            elif (fan_out := self._deliverer.fan_out) is not None and self._destinations[self._left[-1][0]].large:
                now = yield fan_out  # the topic delivers another message before
            else:
                budget.spend(self._take_next(budget.left, now))

    def _lagging(self, now: int) -> Job[None] | None:
        """The next write, if it must come before the end: the write that ends the batch must be small."""
        journal, share = self._journal, self.share
        if journal is None or share is None or not journal.lags(share):
            return None
        written = event()
        journal.await_write(partial(written.end, now))
        return written

    def _end_holding(self, job: Job[None], now: int) -> None:
        self.reserving = None
        self.error = job.error

    def _hold_all(self, now: int, budget: Budget) -> Task[None]:
        while self._unheld:
            if budget.spent:
                yield
            else:
                budget.spend(self._hold(budget.left))

    def _hold(self, budget: int) -> int:
        """Hold up to `budget` further queues. Returns how many were held."""
        done = 0
        while self._unheld and done < budget:
            queues, reservation = self._unheld[-1]
            start = max(0, len(queues) - budget + done)
            for queue in reversed(queues[start:]):
                self._held[queue] = None
                queue.hide()
                if reservation is not None:
                    self._reserve(queue, reservation)
                done += 1
            del queues[start:]
            if not queues:
                self._unheld.pop()
        return done

    def _reserve(self, queue: Queue, reservation: tuple[int, int]) -> None:
        self._reserved[queue] = reservation
        queue.reserve(*reservation)

    def _take_next(self, budget: int, now: int) -> int:
        """Choose the next message and its queues; of a queue without limits as many as `budget` allows. Returns the
        cost."""
        address, envelope = self._left.pop()
        destination = self._destinations[address]
        self._limited = destination.policy.limited
        if destination.policy.overrides:
            envelope = overridden(destination.policy, envelope, now)
        self._row = [envelope]
        if isinstance(destination, Queue):
            self._queues = [destination]
            if not destination.policy.special and _is_for_now(envelope, now):
                self._extend_row(address, budget // max(1, destination.fan_out, destination.index.most), now)
            return 0
        destination.take(envelope, now)
        self._queues = destination.matching(envelope, self._connection)[::-1]
        envelope.remember(None)  # the receivers are known: selectors are not evaluated again
        if not self._queues:
            envelope.compact()
        return max(1, destination.index.most) + destination.asked_by_taps

    def _extend_row(self, address: str, most: int, now: int) -> None:
        left, row = self._left, self._row
        while left and len(row) < most:
            to, envelope = left[-1]
            if to != address or not _is_for_now(envelope, now):
                return
            row.append(envelope)
            left.pop()

    def _add_next(self, budget: int, now: int) -> int:
        """Add the messages to up to `budget` of their queues. Returns how many that were."""
        queues, held, row, limited, added = self._queues, self._held, self._row, self._limited, 0
        while queues and added < budget:
            queue = queues.pop()
            if queue in held and not queue.deleted:
                if limited:
                    for envelope in row:
                        self._redeem(queue, len(envelope.packed))
                        capacity.admit(queue, envelope, now)
                else:
                    queue.accept(row, now)
            added += len(row) * max(queue.fan_out, queue.index.most)
        if not queues:
            for envelope in row:
                envelope.compact()
            self._row = []
        return added

    def _redeem(self, queue: Queue, size: int) -> None:
        """A message uses the room that was reserved for it."""
        left = self._reserved.get(queue)
        if left is not None:
            messages, total = left
            if messages > 1:
                self._reserved[queue] = messages - 1, total - size
            else:
                del self._reserved[queue]
            queue.reserve(-1, -size)

    def _release_all(self, scheduler: Scheduler, key: Hashable, job: Job[None], now: int) -> None:
        """All of it is in its place, or there was a fault: then the queues must be served even so."""
        self.error = self.error or job.error
        self._left.clear()
        for queue, (messages, size) in self._reserved.items():
            queue.reserve(-messages, -size)  # reserved for subscriptions that have ended, or after a fault
        releasing = scheduler.start(key, self._release, now, later=True)
        releasing.then(self._end)

    def _release(self, now: int, budget: Budget) -> Task[None]:
        """Let consumers receive it. Browsers wait for the end."""
        for queue in tuple(self._held):
            if budget.spent:
                now = yield
            try:
                budget.spend(1 + queue.show(now, budget.left))
                while queue.standstill.unserved:
                    if budget.spent:
                        now = yield
                    budget.spend(queue.go_on(now, budget.left))
            except Exception as error:  # the other queues must be served even so
                self.error = error
        self._held = {}

    def _end(self, now: int) -> None:
        for listener in self._listeners:
            listener(now)
