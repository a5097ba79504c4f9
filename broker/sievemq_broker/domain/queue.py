"""A queue: messages come in, wait in order, go to consumers, and are acknowledged or come back.

    send ─► accept ─┬─ a consumer can take it ──────────► window of the consumer ─► acknowledge
                    ├─ nobody can: place ─► views ─ serve ─┘        │
                    └─ not yet: scheduled ─ on_deadline ─► arrive   └─► give_back ─► arrive | scheduled | dead letter

A subscription owns one of these as well; only what happens before :meth:`Queue.accept` differs. Limits are the matter
of :mod:`capacity`, whose turn it is of :mod:`choice`, what comes back of :mod:`returns`, what waits for a moment of
:mod:`delays`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sievemq_broker.domain import delays, recall
from sievemq_broker.domain.choice import choose
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.dead_letters import EXPIRED
from sievemq_broker.domain.entry import DELAYED, GONE, HELD, READY, STRAY, Entry
from sievemq_broker.domain.groups import Groups, group_of
from sievemq_broker.domain.observers import joined, without
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.ports import DeliveryPort, Observer
from sievemq_broker.domain.rows import serve_row
from sievemq_broker.domain.upkeep import Upkeep
from sievemq_broker.domain.view import View
from sievemq_broker.matching.condition import Condition, group_key
from sievemq_broker.matching.index import SelectorIndex
from sievemq_broker.matching.lookup import ValueIndex
from sievemq_core.counted import counted
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.namespace import Namespace
    from sievemq_broker.domain.subscription import Subscription
    from sievemq_broker.domain.tap import CopyTap

__all__ = ["Queue"]


class Queue:
    """Messages in order, and who gets them.

    Attributes:
        place: what it is called.
        label: how it is named in logs and errors, such as ``queue:orders``.
        policy: limits, redelivery, overrides.
        depth: messages waiting (not those in flight, not scheduled ones).
        bytes: their packed size.
        scheduled: messages that wait for a moment, by sequence.
        paused: an administrator stopped deliveries; sending goes on.
        held: batches that are being published here; until they are complete nothing is delivered.
        shut: one of the two: nothing is delivered.
        acknowledged, redelivered, expired, dead_lettered, removed, unreadable: what became of messages, as counts;
            dead_expired: dead letters that were too old, not tried too often; dead_refused: what should have become
            one, and its dead-letter queue did not take it.
        dropped_oldest, dropped_newest: dropped at a limit, by rule; the latter never entered the queue.
        sequence: of the latest arrival.
        again: sequences given a second time, to messages that were scheduled.
        turn: deliveries that were somebody's turn: who was served longest ago has the lowest.
    """

    __slots__ = (
        "_delivered_before",
        "acknowledged",
        "again",
        "before",
        "bytes",
        "consumers",
        "dead_expired",
        "dead_lettered",
        "dead_refused",
        "deleted",
        "depth",
        "direct",
        "dropped_newest",
        "dropped_oldest",
        "examined",
        "expired",
        "held",
        "holders",
        "index",
        "label",
        "lookups",
        "main",
        "namespace",
        "observer",
        "paused",
        "place",
        "policy",
        "promised_bytes",
        "promised_messages",
        "redelivered",
        "removed",
        "scheduled",
        "sequence",
        "shut",
        "sole",
        "subscription",
        "taps",
        "turn",
        "unreadable",
        "upkeep",
        "views",
    )

    #: As of a topic: a message has one place here, and is never delivered in slices.
    fan_out: Final = 1
    large: Final = False

    def __init__(self, place: Place, policy: DestinationPolicy, namespace: Namespace) -> None:
        self.place = place
        self.label = place.label
        self.policy = policy
        self.namespace = namespace
        self.observer: Observer | None = namespace.broker.observer
        self.subscription: Subscription | None = None
        self.main = View(None)
        self.views: dict[object, View] = {}
        self.index: SelectorIndex[View] = SelectorIndex()
        self.lookups: dict[str, ValueIndex[Entry]] = {}
        self.upkeep = Upkeep()
        self.consumers: list[Consumer] = []
        #: closed consumers whose session still holds messages (MCO-09).
        self.holders: set[Consumer] = set()
        self.scheduled: dict[int, Entry] = {}
        self.paused = False
        self.held = self.before = 0
        self.promised_messages = self.promised_bytes = 0
        self.shut = False
        self.deleted = False
        #: Those that keep a copy of what arrives.
        self.taps: tuple[CopyTap, ...] = ()
        self.depth = 0
        self.bytes = 0
        self.sequence = 0
        self.again = 0
        self.acknowledged = 0
        self.redelivered = 0
        self.expired = 0
        self.dead_lettered = 0
        self.dead_expired = 0
        self.dead_refused = 0
        self.removed = 0
        self.dropped_oldest = 0
        self.dropped_newest = 0
        self.unreadable = 0
        #: Messages that selectors were asked about on arrival; only counted while there are some.
        self.examined = 0
        self._delivered_before = 0
        self.turn = 0
        #: Nobody has a selector, nobody is told what arrives: it may go to the next consumer with credit as it is.
        self.direct = self.observer is None
        #: The only consumer, where that gets everything in order of arrival: most subscriptions have one.
        self.sole: Consumer | None = None

    def __lt__(self, other: Queue) -> bool:
        return self.label < other.label  # two deadlines in the same millisecond: any order will do

    def __hash__(self) -> int:
        return id(self) >> 4  # as without this method; compiled, what can be compared is not hashed otherwise

    def __repr__(self) -> str:
        return f"<Queue {self.label} depth={self.depth} in_flight={self.in_flight} consumers={len(self.consumers)}>"

    @property
    def takes_rows(self) -> bool:
        """What arrives together may be delivered together: nobody looks at one message before the next one comes."""
        return self.direct

    @property
    def enqueued(self) -> int:
        """Messages accepted so far."""
        return self.sequence - self.again

    @property
    def delivered(self) -> int:
        """Deliveries made so far, repeated ones included."""
        return self._delivered_before + sum(consumer.tag for consumer in self.consumers)

    @property
    def in_flight(self) -> int:
        """Messages delivered and not acknowledged."""
        held = sum(consumer.unacknowledged for consumer in self.consumers)
        return held + sum(consumer.unacknowledged for consumer in self.holders)

    # -- in -----------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """True if senders that wait may go on: a sixteenth below the limits, not to stop again at once."""
        policy = self.policy
        messages, size = policy.max_messages, policy.max_bytes
        return self.deleted or not (
            (messages and self.depth + len(self.scheduled) + self.promised_messages >= messages - messages // 16)
            or (size and self.bytes + self.promised_bytes >= size - size // 16)
        )

    @property
    def at_limit(self) -> bool:
        """True if a limit of its policy leaves no room for a message."""
        policy = self.policy
        messages, size = policy.max_messages, policy.max_bytes
        return bool(
            (messages and self.depth + len(self.scheduled) + self.promised_messages >= messages)
            or (size and self.bytes + self.promised_bytes >= size)
        )

    @property
    def limit_text(self) -> str:
        """Its limits, for people."""
        policy = self.policy
        limits = [counted(n, what) for n, what in ((policy.max_messages, "message"), (policy.max_bytes, "byte")) if n]
        return f"{self.label} is full; it may hold {' and '.join(limits)}"

    def accept(self, envelope: Envelope, now: int) -> None:
        """Add a message, and deliver it if somebody can take it. Cannot fail: limits were checked before."""
        if envelope.delivery_time > now and envelope.delayed:
            delays.delay_new(self, envelope, now)
            return
        sequence = self.sequence = self.sequence + 1
        expiration = envelope.expiration
        if expiration and expiration <= now:
            self._expire_new(Entry(sequence, envelope), now)
            return
        entry = Entry(sequence, envelope, HELD)
        if self.direct:
            # Nobody has a selector: the next consumer with credit takes it, and no structure needs to know.
            consumer = self.sole
            if (
                consumer is not None
                and consumer.credit > 0
                and not self.depth  # else what waits goes first
                and consumer.port.writable
                and not consumer.waiting
            ):
                tag = consumer.tag = consumer.tag + 1
                consumer.credit -= 1
                consumer.newest = sequence
                consumer.window.append(entry)
                consumer.port.deliver(consumer.id, tag, 1, envelope.packed)
                return
            main = self.main
            if not main.waiting and (main.groups is None or group_of(envelope) is None):
                ready = main.ready
                while ready:
                    consumer = ready[0]
                    if consumer.credit > 0 and consumer.port.writable:
                        tag = consumer.tag = consumer.tag + 1
                        consumer.credit -= 1
                        consumer.newest = sequence
                        consumer.window.append(entry)
                        consumer.port.deliver(consumer.id, tag, 1, envelope.packed)
                        if len(ready) > 1:
                            ready.rotate(-1)
                        return
                    ready.popleft()
                    consumer.listed = False
                entry.state = READY
                self._place(entry, ())
                return
        else:
            observer = self.observer
            if observer is not None:
                observer.accepted(self, entry)
            if self.taps:
                for tap in self.taps:
                    tap.copy(envelope, now)
            consumer = self.sole
            if (
                observer is not None
                and consumer is not None
                and consumer.credit > 0
                and not self.depth
                and consumer.port.writable
                and not consumer.waiting
            ):  # as above: a durable queue is mostly such a one
                tag = consumer.tag = consumer.tag + 1
                consumer.credit -= 1
                consumer.newest = sequence
                consumer.window.append(entry)
                observer.handed(self, entry)
                consumer.port.deliver(consumer.id, tag, 1, envelope.packed)
                return
        entry.state = READY
        self.arrive(entry)

    def _expire_new(self, entry: Entry, now: int) -> None:
        if self.observer is not None:
            self.observer.accepted(self, entry)
        for tap in self.taps:
            tap.copy(entry.envelope, now)
        self.expire(entry, now)

    def on_jump(self, entry: Entry, by: int) -> None:
        """The clock was set while an entry waits for the end of its redelivery delay."""
        entry.due += by

    def on_deadline(self, entry: Entry, when: int, now: int) -> None:
        """The moment of an entry has come: it expires, or stops being delayed."""
        if entry.state == DELAYED:
            delays.end(self, entry, now)
        elif 0 < entry.envelope.expiration <= now:
            self._unplace(entry)
            self.expire(entry, now)

    # -- who gets it --------------------------------------------------------------------------------------------

    def arrive(self, entry: Entry) -> None:
        """Deliver an entry to a consumer that can take it, or let it wait (READY or STRAY)."""
        matched = self._match(entry) if self.views else ()
        if not self.shut:
            consumer = choose(self.main, entry, matched)
            if consumer is not None:
                self._hand(consumer, entry)
                return
        self._place(entry, matched)

    def _match(self, entry: Entry) -> list[View]:
        index = self.index
        matched = index.match(entry.envelope)
        self.examined += 1
        for view in matched:
            view.matched += 1
        if index.error is not None:
            error, index.error = index.error, None
            self.unreadable += 1
            if self.observer is not None:
                self.observer.unreadable(self, entry, error)
        return matched

    def _hand(self, consumer: Consumer, entry: Entry) -> None:
        """Deliver. The consumer is the next one of its view, unless it owns the message's group."""
        entry.state = HELD
        tag = consumer.tag = consumer.tag + 1
        consumer.credit -= 1
        if entry.sequence > consumer.newest:
            consumer.newest = entry.sequence
        consumer.window.append(entry)
        self.turn = consumer.turn = self.turn + 1
        if self.observer is not None:
            self.observer.handed(self, entry)
        consumer.port.deliver(consumer.id, tag, entry.count + 1, entry.envelope.packed)
        view = consumer.view
        if view.groups is not None and (group := group_of(entry.envelope)) is not None:
            view.groups.delivered(group, consumer)
        if consumer.waiting:
            consumer.waiting = False
            if view.waiting and view.waiting[0] is consumer:
                view.waiting.popleft()
            if consumer.asked:
                consumer.asked = False
                consumer.port.settled(consumer.id)
        ready = view.ready
        if len(ready) > 1 and ready[0] is consumer:
            ready.rotate(-1)

    def serve(self, view: View, now: int) -> None:
        """Deliver what waits in a view, as far as its consumers can take it."""
        if self.shut:
            return
        if view.groups is not None:
            view.groups.serve(self, now)
            return
        while (consumer := view.next_consumer()) is not None:
            if (
                len(view.ready) == 1
                and not view.waiting
                and not consumer.waiting
                and view.mask
                and not view.heap
                and serve_row(self, view, consumer, now)
            ):
                continue
            entry = view.first()
            if entry is None:
                return
            view.take(entry)
            self.hand_waiting(consumer, entry, now)

    def hand_waiting(self, consumer: Consumer, entry: Entry, now: int) -> None:
        """Deliver what waited, unless it has expired unnoticed (EXP-05: the timer may not have reached it yet)."""
        self._unplace(entry)
        expiration = entry.envelope.expiration
        if expiration and expiration <= now:
            self.expire(entry, now)
        else:
            self._hand(consumer, entry)

    def arrive_again(self, entries: list[Entry]) -> None:
        """Waiting entries that were put aside for a consumer may now go to anybody: their view is to be served, so that
        they do not overtake what waits there."""
        for entry in entries:
            self._unplace(entry)
            entry.state = STRAY
            self._place(entry, self._match(entry) if self.views else ())

    # -- waiting ------------------------------------------------------------------------------------------------

    def _place(self, entry: Entry, matched: list[View] | tuple[()]) -> None:
        """Let an entry wait in all views that show it."""
        envelope = entry.envelope
        if entry.state == READY:
            priority = envelope.priority
            self.main.push(entry, priority)
            for view in matched:
                if view.scanning < priority:
                    view.push(entry, priority)
        else:
            priority = 10  # known to every scan: it goes to the heaps
            self.main.push_back(entry)
            for view in matched:
                view.push_back(entry)
        for lookup in self.lookups.values():
            if lookup.scanning < priority and lookup.add(entry):
                entry.places += 1
        self.depth += 1
        self.bytes += len(envelope.packed)
        if envelope.expiration:
            self.namespace.broker.deadlines.push(envelope.expiration, self, entry)
        envelope.compact()

    def _unplace(self, entry: Entry) -> None:
        """An entry stops waiting. Its places in other views become tombstones."""
        self.depth -= 1
        envelope = entry.envelope
        self.bytes -= len(envelope.packed)
        entry.state = HELD
        if envelope.expiration:
            self.namespace.broker.deadlines.void()
        if entry.places:
            self.upkeep.note_dead(self, entry.places)
            entry.places = 0

    def expire(self, entry: Entry, now: int) -> None:
        """EXP-05. The entry is in no view any more, or a tombstone there."""
        self.expired += 1
        if self.observer is not None:
            self.observer.expired(self, entry)
        if self.policy.dead_letter_expired:
            self.namespace.bury(self, entry, EXPIRED, now)
        entry.state = GONE
        del entry.envelope

    def take_out(self, entry: Entry) -> bool:
        """Take a waiting or scheduled entry out of its place; False if it is in none."""
        if entry.state == DELAYED:
            del self.scheduled[entry.sequence]
            self.bytes -= len(entry.envelope.packed)
            self.namespace.broker.deadlines.void()
        elif entry.state in (READY, STRAY):
            self._unplace(entry)
        else:
            return False
        return True

    def count_from(self, tag: int) -> None:
        """A consumer of this queue begins to count behind `tag`: those were not delivered by it."""
        self._delivered_before -= tag

    # -- consumers ----------------------------------------------------------------------------------------------

    def open_consumer(
        self,
        port: DeliveryPort,
        consumer_id: int,
        condition: Condition | None,
        credit: int,
        now: int,
        subscription: Subscription | None = None,
    ) -> Consumer:
        """Add a consumer; what waits for it is delivered at once, up to `credit` messages."""
        view = self.main if condition is None else self._view(condition)
        consumer = Consumer(consumer_id, port, self, view, subscription)
        view.consumers.append(consumer)
        self.consumers.append(consumer)
        if len(view.consumers) == 2:
            view.groups = Groups(view)
        self._set_direct()
        if credit:
            consumer.grant(credit, now)
        return consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer stops being served. What it holds stays with it."""
        consumer.open = False
        consumer.credit = 0
        self._delivered_before += consumer.tag
        view = consumer.view
        view.consumers.remove(consumer)
        if consumer.listed:
            consumer.listed = False
            view.ready.remove(consumer)
        if consumer.waiting and consumer in view.waiting:
            view.waiting.remove(consumer)
        self.consumers.remove(consumer)
        self.holders.add(consumer)
        if view.condition is not None and not view.consumers:
            del self.views[group_key(view.condition)]
            self.index.remove(view)
            self.upkeep.forget(view)
        self._set_direct()

    def forget_if_done(self, consumer: Consumer) -> None:
        """Forget a closed consumer that holds nothing any more."""
        if not consumer.window:
            self.holders.discard(consumer)

    def add_tap(self, tap: CopyTap) -> None:
        """From now on it is told what arrives."""
        self.taps = (*self.taps, tap)
        self._set_direct()

    def remove_tap(self, tap: CopyTap) -> None:
        """It is told nothing any more."""
        self.taps = tuple(each for each in self.taps if each is not tap)
        self._set_direct()

    def observe(self, observer: Observer) -> None:
        """From now on it is told what becomes of messages, behind those that are told already."""
        self.observer = joined(self.observer, observer)
        self._set_direct()

    def unobserve(self, observer: Observer) -> None:
        """It is told nothing any more."""
        self.observer = without(self.observer, observer)
        self._set_direct()

    def _set_direct(self) -> None:
        self.shut = self.paused or self.held > 0
        plain = not self.views and not self.shut
        self.direct = plain and self.observer is None and not self.taps
        alone = plain and len(self.consumers) == 1 and self.main.groups is None
        self.sole = self.consumers[0] if alone else None

    def _view(self, condition: Condition) -> View:
        """The view of a selector; made, and filled from the backlog, if nobody used it before."""
        key = group_key(condition)
        view = self.views.get(key)
        if view is not None:
            return view
        view = self.views[key] = View(condition)
        view.since = self.examined - self.depth
        self.index.add(condition, view)
        self.upkeep.fill(self, view)
        return view

    # -- administration -----------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop deliveries; what is delivered stays delivered, sending goes on."""
        self.paused = True
        self._set_direct()

    def unpause(self, now: int) -> None:
        """Deliver again."""
        self.paused = False
        self._set_direct()
        for view in (self.main, *self.views.values()):
            self.serve(view, now)

    def hold(self) -> None:
        """Deliver nothing while a batch is being published, and let who asks for a message wait for the answer."""
        if not self.held:
            self.before = self.sequence
        self.held += 1
        self._set_direct()

    def release(self, now: int) -> None:
        """The batch is complete: it is there for all at once."""
        self.held -= 1
        self._set_direct()
        if not self.held:
            for view in (self.main, *self.views.values()):
                self.serve(view, now)
                recall.scanned(view, now)

    @property
    def complete(self) -> int:
        """Sequence of the last message that may be looked at: of all, or before a batch that is being published."""
        return self.before if self.held else self.sequence

    def promise(self, messages: int, size: int) -> None:
        """Keep so much free below the limits for a batch that is being published; less where negative."""
        self.promised_messages += messages
        self.promised_bytes += size

    def clear(self, reason: str = "purged") -> int:
        """Drop everything that waits or is scheduled; what is in flight stays.

        Args:
            reason: for observers.

        Returns:
            How many messages that were.
        """
        entries = self.main.waits(-1, self.depth) + list(self.scheduled.values())
        deadlines = self.namespace.broker.deadlines
        for entry in entries:
            if self.observer is not None:
                self.observer.removed(self, entry, reason)
            if entry.state == DELAYED or entry.envelope.expiration:
                deadlines.void()
            entry.state = GONE
            del entry.envelope
        for view in (self.main, *self.views.values()):
            view.clear()
        for lookup in self.lookups.values():
            lookup.clear()
        self.scheduled.clear()
        self.depth = self.bytes = 0
        self.removed += len(entries)
        return len(entries)

    def remove(self, entry: Entry, reason: str = "purged") -> None:
        """Take one waiting or scheduled entry out for good; the reason is for observers."""
        self.take_out(entry)
        self.removed += 1
        if self.observer is not None:
            self.observer.removed(self, entry, reason)
        entry.state = GONE
        del entry.envelope

    def delete(self, code: ErrorCode, text: str) -> None:
        """Drop all messages and close all consumers, telling their ports."""
        on_deleted = self.namespace.broker.on_deleted
        if on_deleted is not None and not self.deleted:
            on_deleted(self)
        for consumer in list(self.consumers):
            consumer.stop(code, text)
        self.clear("deleted")
        self.deleted = True
