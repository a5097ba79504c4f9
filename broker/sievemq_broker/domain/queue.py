"""A queue: messages come in, wait in order, go to consumers, and are acknowledged or come back.

    accept ─┬─ a consumer can take it ──► deliver ──► window of the consumer ─► settle
            ├─ none can: place ─► backlog ─ serve ─┘        │
            └─ not yet: scheduled ─ on_deadline ─► arrive   └─► take_back ─► arrive | scheduled | dead letter

Messages that wait are kept by :mod:`backlog`. :mod:`turns` chooses the next consumer, :mod:`consumer` keeps what was
delivered to one, and :mod:`recall` takes buffered messages back for one that waits. A subscription owns a queue as
well; only what happens before :meth:`Queue.accept` differs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

from sievemq_broker.domain.backlog import Backlog
from sievemq_broker.domain.consumer import Consumer, Held, Source
from sievemq_broker.domain.counts import QueueCounts
from sievemq_broker.domain.dead_letters import REFUSED_DELAY_MS, DeadLettering, dead_letter_address, effort_of
from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.entry import DELAYED, GONE, HELD, READY, STRAY, Entry, key_of
from sievemq_broker.domain.failure import PLAIN, Failure
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.policy import BLOCK, DestinationPolicy, share_used
from sievemq_broker.domain.ports import DeliveryPort, Observer
from sievemq_broker.domain.recall import Recall
from sievemq_broker.domain.settlement import ALL
from sievemq_broker.domain.standstill import Standstill
from sievemq_broker.domain.turns import Turns
from sievemq_broker.domain.view import View
from sievemq_broker.domain.work import TURN, Budget, Task
from sievemq_broker.matching.asking import AT_ONCE, Answers
from sievemq_broker.matching.condition import Condition
from sievemq_broker.matching.index import SelectorIndex
from sievemq_core.counted import counted
from sievemq_core.errors import ErrorCode
from sievemq_core.message.dead_letters import EXPIRED, FAILED, REJECTED
from sievemq_core.message.envelope import DELIVERY_TIME, Envelope

#: Waiting messages that are offered to a consumer's port together: the port may take only some of them.
ROW: Final = 512

#: Messages that are delivered at once; the rest is pending work. ROW_SHARE messages of a row take as long as one that
#: is examined, unless observers record each.
SERVED: Final = TURN
ROW_SHARE: Final = 8

#: The cost of an observer, in units of the cost of placing a message.
OBSERVER: Final = 2


#: How long a message waits that a consumer has given back more than once, unasked.
HELD_BACK_MS: Final = 1_000


class Host(Protocol):
    """What a queue needs from the broker."""

    @property
    def deadlines(self) -> Deadlines:
        """The broker's deadlines: queues schedule delays and expiry here."""

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers of the outcome of each message."""

    def blocked_senders(self, queue: Queue) -> int:
        """Count the senders that wait for room in the queue."""

    def dead_letter(self, place: Place, entry: Entry, reason: str, failure: Failure, now: int) -> DeadLettering:
        """Move a message to its dead-letter queue, if that is possible."""

    def add_work(self, queue: Queue) -> None:
        """The queue has pending work: :meth:`Queue.work`."""

    def queue_deleted(self, queue: Queue) -> None:
        """The queue is about to be deleted."""


class Copier(Protocol):
    """Gets a copy of each message that arrives."""

    @property
    def kept(self) -> bool:
        """True if the journal stores its copies."""

    @property
    def effort(self) -> int:
        """The most that evaluating its selector on a message can cost, in units (condition.units)."""

    def copy(self, envelope: Envelope, now: int) -> None:
        """Record a copy of a message that has arrived."""


class Unmatched:
    """Arrivals, scheduled messages included, for which costly selectors are not evaluated yet.

    Attributes:
        entries: each with its earlier state.
    """

    __slots__ = ("_asking", "entries")

    def __init__(self) -> None:
        self.entries: deque[tuple[Entry, int]] = deque()
        #: The results for the first of them.
        self._asking: Answers[View] | None = None

    def ask(self, index: SelectorIndex[View], envelope: Envelope, budget: int) -> int:
        """Go on evaluating selectors on the first one. Returns the cost, in units (condition.units); 0 if that is
        done."""
        asking = self._asking or index.asking(envelope)
        if asking is None:
            return 0
        cost = 1 + asking.ask(budget)
        self._asking = asking if asking.left else None
        return cost

    def end_first(self) -> None:
        self._asking = None
        self.entries.popleft()


class Queue(Source):
    """Messages in order, and the consumers that get them.

    Args:
        policy: limits, redelivery, overrides.
        on_left: called when a consumer has closed; None for nothing.

    Attributes:
        place, policy: as above.
        label: its name in logs and errors, such as ``queue:orders``.
        backlog: what waits.
        main, index: its view of everything, and its selectors.
        consumers: those that are open.
        holders: closed consumers whose session still holds messages (MCO-09).
        scheduled, scheduled_bytes: messages that are delivered later, by sequence; their packed size.
        standstill: whether it delivers.
        deleted: it is gone.
        acknowledged: messages that are gone because a consumer has acknowledged them.
        counts: of messages by other outcomes.
        reserved_messages, reserved_bytes: reserved below the limits for batches that are being published.
        sequence: of the latest arrival.
        delivered: deliveries made so far, redeliveries included.
        observers: are told the outcome of each message, in this order.
        taps: each keeps a copy of what arrives.
        fan_out: the cost of accepting a message: one place, the observers, the selectors of taps.
    """

    __slots__ = (
        "_awaiting", "_deadlines", "_host", "_on_left", "_recall", "_sole", "_turns", "_unmatched", "acknowledged",
        "backlog", "consumers", "counts", "deleted", "delivered", "fan_out", "holders", "index", "label", "main",
        "observers", "place", "policy", "reserved_bytes", "reserved_messages", "scheduled", "scheduled_bytes",
        "sequence", "standstill", "taps",
    )  # fmt: skip

    #: As of a topic: a message is never delivered in slices.
    large: Final = False

    def __init__(
        self, place: Place, policy: DestinationPolicy, host: Host, on_left: Callable[[], None] | None = None
    ) -> None:
        self.place = place
        self.label = place.label
        self.policy = policy
        self._host = host
        self._deadlines = host.deadlines
        self._on_left = on_left
        self.observers: tuple[Observer, ...] = host.observers
        self.taps: tuple[Copier, ...] = ()
        self.fan_out = 1 + OBSERVER * len(self.observers)
        self.backlog = Backlog(self._add_work)
        self.main = self.backlog.main
        self.index = self.backlog.index
        self.consumers: list[Consumer] = []
        self.holders: set[Consumer] = set()
        self._turns: dict[View, Turns] = {self.main: Turns(self.main)}
        self._recall = Recall(self.consumers, self._turns, self._deadlines, self._add_work)
        self.scheduled: dict[int, Entry] = {}
        self.scheduled_bytes = 0
        #: Scheduled messages that wait for their client: the end of the wait is their last attempt, failed so.
        self._awaiting: dict[Entry, Failure] = {}
        self._unmatched = Unmatched()
        self.standstill = Standstill()
        self.deleted = False
        self.reserved_messages = self.reserved_bytes = 0
        self.sequence = 0
        self.delivered = 0
        self.acknowledged = 0
        self.counts = QueueCounts()
        #: The only consumer, if it gets everything in order of arrival, as the consumer of most subscriptions does.
        self._sole: Consumer | None = None

    def __lt__(self, other: Queue) -> bool:
        return self.label < other.label  # two deadlines in the same millisecond: any order will do

    def __hash__(self) -> int:
        return id(self) >> 4  # the default; a compiled class with an order has no hash otherwise

    def __repr__(self) -> str:
        return f"<Queue {self.label} depth={self.depth} in_flight={self.in_flight} consumers={len(self.consumers)}>"

    # -- figures --------------------------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """True while an administrator has stopped deliveries; sending goes on. Topics have the same attribute."""
        return self.standstill.paused

    @property
    def depth(self) -> int:
        """Messages that wait; those in flight or scheduled are not counted."""
        return self.backlog.depth

    @property
    def bytes(self) -> int:
        """Packed size of what waits or is scheduled."""
        return self.backlog.bytes + self.scheduled_bytes

    @property
    def examined(self) -> int:
        """Messages on which selectors were evaluated as they arrived; counted only while there are selectors."""
        return self.backlog.arrivals

    def gathering(self, answers: object) -> None:
        """None: a queue does not collect the receivers of a message. Topics have the same method."""

    def matched(self, view: View) -> tuple[int, int]:
        """How many messages a view's selector has matched since the view was opened, and out of how many."""
        return self.backlog.matched(view)

    @property
    def queues(self) -> list[Queue]:
        """The queues that hold its messages: itself. Topics have the same property."""
        return [self]

    @property
    def enqueued(self) -> int:
        """Messages accepted so far in this run of the broker."""
        return self.sequence - self.counts.uncounted

    @property
    def in_flight(self) -> int:
        held = sum(consumer.unacknowledged for consumer in self.consumers)
        return held + sum(consumer.unacknowledged for consumer in self.holders)

    @property
    def held_since(self) -> int:
        """Since when a consumer holds the oldest message in flight, at the latest; ms epoch, 0 if none is."""
        return min([time for holder in (*self.consumers, *self.holders) if (time := holder.held_since)], default=0)

    @property
    def complete(self) -> int:
        """Sequence of the last message that may be delivered: the newest, or the last one before a batch that is being
        published."""
        return self.standstill.before if self.standstill.hidden else self.sequence

    # -- limits ---------------------------------------------------------------------------------------------------

    def configure(self, policy: DestinationPolicy) -> None:
        self.policy = policy

    @property
    def has_room(self) -> bool:
        """True if blocked senders may go on. The mark is a sixteenth below the limits, so that they do not block again
        at once."""
        policy = self.policy
        if policy.at_limit != BLOCK:
            return True  # the rule was changed: they are refused, or others are dropped for them
        messages, size = policy.max_messages, policy.max_bytes
        return self.deleted or not (
            (messages and self.depth + len(self.scheduled) + self.reserved_messages >= messages - messages // 16)
            or (size and self.bytes + self.reserved_bytes >= size - size // 16)
        )

    @property
    def at_limit(self) -> bool:
        policy = self.policy
        messages, size = policy.max_messages, policy.max_bytes
        return bool(
            (messages and self.depth + len(self.scheduled) + self.reserved_messages >= messages)
            or (size and self.bytes + self.reserved_bytes >= size)
        )

    @property
    def fill(self) -> float:
        """The share of its limit that is in use; of two the larger one. 0 without limits."""
        messages = self.depth + len(self.scheduled) + self.reserved_messages
        return share_used(self.policy, messages, self.bytes + self.reserved_bytes)

    @property
    def limit_text(self) -> str:
        policy = self.policy
        limits = [counted(n, what) for n, what in ((policy.max_messages, "message"), (policy.max_bytes, "byte")) if n]
        rule = f" (rule {policy.pattern})" if policy.pattern else ""
        return f"{self.label} is full; it may hold {' and '.join(limits)}{rule}"

    @property
    def blocked_senders(self) -> int:
        return self._host.blocked_senders(self)

    def reserve(self, messages: int, size: int) -> None:
        """Reserve room below the limits for a batch that is being published; negative numbers release it."""
        self.reserved_messages += messages
        self.reserved_bytes += size

    def drop_new(self, envelope: Envelope) -> None:
        self.counts.drop_newest()
        for observer in self.observers:
            observer.refused(self, envelope)

    def drop_oldest(self) -> None:
        """Make room by dropping the message that has waited longest among those of the lowest priority; if none waits,
        one that is scheduled."""
        entry = self.backlog.oldest() or next(iter(self.scheduled.values()))
        self.take_out(entry)
        self.counts.drop_oldest()
        for observer in self.observers:
            observer.removed(self, entry, "oldest")
        entry.end()

    # -- in -------------------------------------------------------------------------------------------------------

    def accept(self, envelopes: list[Envelope], now: int) -> None:
        """Add messages in order, and deliver what consumers can take. Cannot fail: limits were checked before.

        Args:
            envelopes: one; or several, none of which expires, or is for later.
            now: ms epoch.
        """
        count, before, state = len(envelopes), self.sequence, HELD
        self.sequence = before + count
        if count == 1:
            envelope = envelopes[0]
            fields = envelope._fields  # it has usually just arrived; no property is called
            if (fields[DELIVERY_TIME] if type(fields) is tuple else envelope.delivery_time) > now:
                state = DELAYED
            entries = [Entry(before + 1, envelope, state)]
        else:
            entries = [Entry(number, envelope, HELD) for number, envelope in enumerate(envelopes, before + 1)]
        if self.observers or self.taps:
            self._note_arrivals(entries, now)
        if count == 1:
            if state == DELAYED:
                self._schedule(entries[0], envelope.delivery_time)
                return
            if 0 < envelope.expiration <= now:
                self.expire(entries[0], now)
                return
        sole = self._sole
        if sole is not None and sole.credit > 0 and sole.port.writable and not self.backlog.depth:
            # The only consumer gets them; otherwise older messages wait.
            waited, taken = sole.waiting, 1
            if count == 1:
                sole.hand(entries[0], self.delivered)
            else:
                taken = sole.hand_row(entries, self.delivered)
            self.delivered += taken
            if waited or self.observers:
                self._delivered(sole, entries[:taken], waited)
            if taken == count:
                return
            del entries[:taken]
        self._arrive(entries)

    def _note_arrivals(self, entries: list[Entry], now: int) -> None:
        for entry in entries:
            for observer in self.observers:
                observer.accepted(self, entry)
            for tap in self.taps:
                tap.copy(entry.envelope, now)

    def restore_all(self, entries: list[Entry], now: int, *, scheduled: bool = True) -> None:
        """Add messages that were stored, in order, behind those before them. There are no consumers yet.

        Args:
            scheduled: False if no message has a delivery time. That is known without decoding them again.
        """
        arrived: list[Entry] = []
        for number, entry in enumerate(entries, self.sequence + 1):
            entry.arrive(number)
            if entry.count:
                entry.come_back()
            elif scheduled and (due := entry.envelope.delivery_time) > now:
                self._schedule(entry, due)
                continue
            arrived.append(entry)
        self.sequence += len(entries)
        self.counts.skip(len(entries))
        for entry in arrived:
            self._wait(entry, ())

    def restore_row(
        self, entries: list[Entry], by_priority: Mapping[int, list[Entry]], expiring: list[Entry], size: int
    ) -> None:
        """As :meth:`restore_all`, for messages that were never delivered and have no delivery time.

        Args:
            by_priority: the same.
            expiring: those that expire.
            size: their packed bytes.
        """
        Entry.arrive_all(entries, self.sequence)
        self.sequence += len(entries)
        self.counts.skip(len(entries))
        self.backlog.place_row(by_priority, len(entries), size)
        for entry in expiring:
            self._deadlines.push(entry.envelope.expiration, self, entry)

    def _arrive(self, entries: list[Entry], asked: bool = False) -> None:
        """Deliver entries, in order, to consumers that can take them; the others wait.

        Args:
            entries: in no view. HELD if they have just come; READY or STRAY if they have waited before.
            asked: their selectors have been evaluated in slices.
        """
        backlog, index, all_turns = self.backlog, self.index, self._turns
        main = all_turns[self.main]
        for entry in entries:
            if not asked and (
                self._unmatched.entries or (index.costly and backlog.views and index.asking(entry.envelope) is not None)
            ):
                self._put_off(entry)
                continue
            matched: list[View] | tuple[()] = ()
            if backlog.views:
                matched = backlog.match(entry)
                if index.error is not None:
                    self._note_unreadable(entry)
            if not self.standstill.shut:
                best, its_turns = main.next_for(entry) if main.ready or main.waiting else None, main
                for view in matched:
                    # First consumers that wait in receive(), longest first; then the one served longest ago.
                    turns = all_turns[view]
                    other = turns.next_for(entry)
                    if other is not None and (
                        best is None or (other.waiting, -other.served) > (best.waiting, -best.served)
                    ):
                        best, its_turns = other, turns
                if best is not None:
                    if entry.state != HELD:
                        entry.hold()
                    self._hand(its_turns, best, entry)
                    continue
            self._wait(entry, matched)

    def _arrive_among_many(self, entry: Entry) -> None:
        """:meth:`_arrive` where a turn may have many arrivals: costly selectors are always evaluated later."""
        if self.index.costly and self.backlog.views and not self.index.has_asked(entry.envelope):
            self._put_off(entry)
        else:
            self._arrive([entry])

    def _put_off(self, entry: Entry) -> None:
        """Evaluate costly selectors on an entry as pending work, and let it arrive after that. The queue delivers
        nothing in the meantime, and later messages arrive behind it, so the order is kept."""
        if not self._unmatched.entries:
            self.hold()
            self._add_work()
        self._unmatched.entries.append((entry, entry.state))
        envelope = entry.envelope
        entry.delay(envelope.delivery_time)
        self.scheduled[entry.sequence] = entry
        self.scheduled_bytes += len(envelope.packed)
        if envelope.expiration:
            self._deadlines.push(envelope.expiration, self, entry)

    def _ask(self, budget: int, now: int) -> int:
        """Go on evaluating selectors on postponed arrivals. Returns the cost, in units (condition.units)."""
        unmatched, index, done = self._unmatched, self.index, 0
        while unmatched.entries and done < budget:
            entry, state = unmatched.entries[0]
            if entry.state == DELAYED and self.scheduled.get(entry.sequence) is entry:
                cost = unmatched.ask(index, entry.envelope, budget - done)
                if cost:
                    done += cost
                    continue
                done += 1 + min(index.most, AT_ONCE)
                del self.scheduled[entry.sequence]
                self.scheduled_bytes -= len(entry.envelope.packed)
                entry.end_delay(state)
                self._arrive([entry], asked=True)
            unmatched.end_first()
        if not unmatched.entries:
            done += self.release(now, max(0, budget - done))
        return done

    def _wait(self, entry: Entry, matched: list[View] | tuple[()]) -> None:
        self.backlog.place(entry, matched)
        if entry.envelope.expiration:
            self._deadlines.push(entry.envelope.expiration, self, entry)

    def _note_unreadable(self, entry: Entry) -> None:
        error = self.index.take_error()
        self.counts.fail_to_read()
        for observer in self.observers:
            observer.unreadable(self, entry, error)

    def _unplace(self, entry: Entry) -> None:
        self.backlog.unplace(entry)
        if entry.envelope.expiration:
            self._deadlines.void()

    # -- out ------------------------------------------------------------------------------------------------------

    def _delivered(self, consumer: Consumer, entries: list[Entry], waited: bool) -> None:
        """Update the state of the queue after a delivery to a consumer, which may have waited for one."""
        for observer in self.observers:
            for entry in entries:
                observer.handed(self, entry, consumer)
        if waited:
            self._turns[consumer.view].stop_waiting(consumer)
            if consumer in self._recall.awaiting:
                self._recall.answer_with_message(consumer)

    def _hand(self, turns: Turns, consumer: Consumer, entry: Entry) -> None:
        """Deliver an entry that is in no view any more to the consumer, one of these, whose turn it is."""
        waited = consumer.waiting
        consumer.hand(entry, self.delivered)
        self.delivered += 1
        if waited or self.observers:
            self._delivered(consumer, [entry], waited)
        if turns.groups is not None or len(turns.ready) > 1:
            turns.served(consumer, entry)

    def _hand_waiting(self, turns: Turns, consumer: Consumer, entry: Entry, now: int) -> None:
        """Deliver an entry that waited, unless it has expired; the timer may not have reached it yet (EXP-05)."""
        self._unplace(entry)
        if 0 < entry.envelope.expiration <= now:
            self.expire(entry, now)
        else:
            self._hand(turns, consumer, entry)

    def _serve(self, turns: Turns, now: int, budget: int = SERVED) -> int:
        """Deliver what waits in a view, as far as its consumers can take it. Beyond the budget this becomes pending
        work; the queue delivers nothing else until that is done, so the order is kept.

        A consumer is chosen only for a message. One without credit loses its turn then, not before, so messages that
        arrive one by one go to the same consumers as all together.

        Args:
            now: ms epoch.
            budget: messages to deliver at once.

        Returns:
            What is left of the budget.
        """
        if self.standstill.shut:
            return budget
        groups, view = turns.groups, turns.view
        if groups is not None or turns.freed:
            budget = self._sort_groups(turns, budget)
            if self.standstill.shut:
                return 0
        while view.mask or view.heap:  # otherwise it is empty
            single = turns.single if budget > 0 else None
            if single is not None and (row := view.row(min(single.credit, ROW, budget), now)):
                taken = self._hand_row(view, single, row)
                budget -= 1 + (taken if self.observers else taken // ROW_SHARE)
                continue
            if (entry := view.first()) is None or (consumer := turns.next()) is None:
                break
            if budget <= 0:
                self._serve_later()
                return 0
            if groups is None:
                view.take(entry)
            else:
                its_own = groups.take(consumer, budget)
                budget -= groups.passed
                if its_own is None:
                    continue
                entry = its_own
            self._hand_waiting(turns, consumer, entry, now)
            budget -= 1
        if groups is not None:
            for consumer, entry in groups.take_aside():
                self._hand_waiting(turns, consumer, entry, now)
                budget -= 1
                if budget <= 0:
                    self._serve_later()
                    return 0
        return budget

    def _sort_groups(self, turns: Turns, budget: int) -> int:
        """Find out which groups have owners, and let messages go to any consumer that were set aside for one that has
        left. Returns what is left of the budget. If that is not done by then, it is pending work."""
        groups = turns.groups
        if groups is not None:
            if not groups.learnt:
                budget -= groups.learn(budget)
                if not groups.learnt:
                    self._serve_later()
                    return 0
            turns.free_idle()
        if turns.freed:
            freed = turns.take_freed(max(budget, 1))
            self._arrive_again(freed)
            budget -= len(freed)
            if turns.freed:
                self._serve_later()
        return budget

    def _hand_row(self, view: View, consumer: Consumer, row: list[Entry]) -> int:
        """Deliver entries that have waited together. Returns how many: the port may take only some of them."""
        taken = consumer.hand_row(row, self.delivered)
        self.delivered += taken
        del row[taken:]
        if self.observers:
            self._delivered(consumer, row, False)
        for entry in row:
            if entry.envelope.expiration:
                self._deadlines.void()
        self.backlog.unplace_row(view, row)
        return taken

    def _serve_later(self) -> None:
        self.standstill.put_off()
        self._stop()
        self._add_work()

    def _arrive_again(self, entries: list[Entry]) -> None:
        """Let waiting entries that were set aside for one consumer go to any. Their view must be served next, so that
        they do not overtake older messages."""
        for entry in entries:
            self._unplace(entry)
            entry.come_back()
            self._wait(entry, self.backlog.match(entry) if self.backlog.views else ())
            if self.index.error is not None:
                self._note_unreadable(entry)

    # -- moments --------------------------------------------------------------------------------------------------

    def _schedule(self, entry: Entry, when: int, *, span: bool = False) -> None:
        """Schedule an entry for its delivery time (EXP-07) or for the end of its redelivery delay (D-22). It may expire
        earlier (EXP-10).

        Args:
            when: ms epoch.
            span: it is to wait so long, whatever the machine's clock is set to meanwhile.
        """
        entry.delay(when)
        envelope = entry.envelope
        envelope.compact()
        self.scheduled[entry.sequence] = entry
        self.scheduled_bytes += len(envelope.packed)
        deadlines = self._deadlines
        expiration = envelope.expiration
        if span:
            deadlines.push_span(when, self, entry)
            if expiration:
                deadlines.push(expiration, self, entry)
        else:
            deadlines.push(min(when, expiration) if expiration else when, self, entry)

    def on_jump(self, entry: Entry, by: int) -> None:
        """The machine's clock was set while an entry waits for the end of its redelivery delay: move the deadline with
        it."""
        entry.shift(by)

    def on_deadline(self, entry: Entry, when: int, now: int) -> None:
        """The deadline of an entry has come: it expires, or its delay is over."""
        if self.deleted:
            return  # it is about to be removed
        expiration = entry.envelope.expiration
        expired = 0 < expiration <= now
        if entry.state == DELAYED:
            if now < entry.due and not expired:  # the deadline of an earlier delay, which was cancelled
                self._deadlines.push_span(entry.due, self, entry)
                return
            if self.scheduled.pop(entry.sequence, None) is None:
                return
            self.scheduled_bytes -= len(entry.envelope.packed)
            awaited = self._awaiting.pop(entry, None)
            if expired:
                self.expire(entry, now)
                return
            if awaited is not None:
                self._return([entry] if self._fail(entry, now, awaited) else [], now)
                return
            if entry.count or entry.due > entry.envelope.delivery_time:
                entry.come_back()  # end of a redelivery delay: to the front (ORD-07); or it was held back
            else:
                # It arrives now, behind earlier arrivals (ORD-05).
                self.counts.skip(1)
                self.sequence += 1
                entry.arrive(self.sequence)
            self._arrive_among_many(entry)
        elif expired:
            self.backlog.unplace(entry)
            self.expire(entry, now)

    def expire(self, entry: Entry, now: int) -> None:
        """Expire an entry that is in no view any more, or a tombstone there (EXP-05)."""
        self.counts.expire()
        for observer in self.observers:
            observer.expired(self, entry)
        if self.policy.dead_letter_expired:
            self._dead_letter(entry, EXPIRED, now)
        entry.end()

    # -- settlement -----------------------------------------------------------------------------------------------

    def settle(self, consumer: Consumer, entries: list[Entry], now: int, granted: bool) -> None:
        """Remove messages that a consumer has acknowledged; it may have been granted credit in the same command."""
        for observer in self.observers:
            for entry in entries:
                observer.acknowledged(self, entry, consumer)
        Entry.end_all(entries)
        self.acknowledged += len(entries)
        if not consumer.open:
            self._forget_if_done(consumer)
        elif granted or self.backlog.depth:
            turns = self._turns[consumer.view]
            if granted and consumer not in turns.listed:
                turns.list_ready(consumer)
            if self.backlog.depth and (granted or turns.groups is not None):
                self._serve(turns, now)  # other consumers may go on with its message groups

    @property
    def recalling(self) -> bool:
        """True while a consumer has not answered a request to return buffered messages."""
        return self._recall.is_open

    @property
    def effort(self) -> int:
        """The cost of taking back a message, relative to a message on which no selector is evaluated."""
        return 1 + self.index.most if self.backlog.views and not self.index.costly else 1

    def dead_letter_cost(self, entry: Entry, failure: Failure) -> int:
        """The extra cost if a message comes back as an attempt and becomes a dead letter by that; 0 if it does not."""
        return effort_of(entry) if failure.reject or self._is_last(entry, failure) else 0

    def taken_back(self, consumer: Consumer, tags: Sequence[int] | None, now: int) -> None:
        """A consumer has returned messages, perhaps because they were recalled.

        Args:
            tags: what it gave back; None if everything.
            now: ms epoch.
        """
        if not consumer.open:
            self._forget_if_done(consumer)
        if tags is not None or consumer.open:
            self._recall.answer(consumer, tags, now)

    def take_back(
        self,
        unmarked: list[Entry],
        now: int,
        marked: Iterable[Entry] = (),
        attempts: int = ALL,
        failure: Failure = PLAIN,
        until: int = 0,
    ) -> None:
        """Take back what a consumer held, in the original order.

        Args:
            unmarked: no application has seen these; count and place are as before (MCO-10).
            now: ms epoch.
            marked: these may have been seen: count + 1, redelivered (ACK-08).
            attempts: for how many of `marked`, the first ones, this is an attempt.
            failure: what is known of it.
            until: ms epoch; a message for which this would be the last attempt waits until then for its client. 0: it
                is the last attempt.
        """
        back: list[Entry] = []
        for entry in unmarked:
            entry.come_back()
            back.append(entry)
            for observer in self.observers:
                observer.released(self, entry)
        for number, entry in enumerate(marked):
            if self._mark(entry, now, number < attempts, failure, until):
                back.append(entry)
        self._return(back, now)

    def _return(self, entries: list[Entry], now: int) -> None:
        """Let messages wait again, in the original order."""
        back = [(key_of(entry), entry) for entry in entries]
        back.sort()
        for _, entry in back:
            if not self._is_over(entry, now):
                self._arrive_among_many(entry)

    def hold_back(self, entries: list[Entry], now: int) -> None:
        """Take messages back that no application has seen, and deliver them, to any consumer, after a moment."""
        for entry in entries:
            for observer in self.observers:
                observer.released(self, entry)
            if not self._is_over(entry, now):
                self._schedule(entry, now + HELD_BACK_MS, span=True)

    def _is_over(self, entry: Entry, now: int) -> bool:
        """True if a message that comes back ends by that: its queue is deleted, or it has expired."""
        if self.deleted:
            for observer in self.observers:
                observer.removed(self, entry, "deleted")
            entry.end()
            return True
        if 0 < entry.envelope.expiration <= now:
            self.expire(entry, now)
            return True
        return False

    def _mark(self, entry: Entry, now: int, attempted: bool, failure: Failure, until: int) -> bool:
        """Count a delivery of a message that comes back, and an attempt if it was one. False if the message does not
        return to the queue now."""
        entry.mark()
        self.counts.redeliver(1)
        if self.deleted:
            return True
        if attempted and until and self._is_last(entry) and dead_letter_address(self.place.destination) is not None:
            for observer in self.observers:
                observer.returned(self, entry)
            self._awaiting[entry] = failure
            self._schedule(entry, until, span=True)
            return False
        if attempted:
            return self._fail(entry, now, failure)
        for observer in self.observers:
            observer.returned(self, entry)
        return True

    def _is_last(self, entry: Entry, failure: Failure = PLAIN) -> bool:
        return 0 < failure.limit(self.policy.max_attempts) <= entry.attempts + 1

    def _fail(self, entry: Entry, now: int, failure: Failure = PLAIN) -> bool:
        """Count an attempt of a message that has come back. False if the message does not return to the queue now."""
        entry.fail(now)
        for observer in self.observers:
            observer.returned(self, entry)
        policy = self.policy
        if 0 < entry.envelope.expiration <= now:
            entry.come_back()
            return True  # it has expired, whatever its consumer says of it
        delay = failure.delay_after(entry.attempts, policy.redelivery_delay_after(entry.attempts))
        if failure.reject or 0 < failure.limit(policy.max_attempts) <= entry.attempts:
            outcome = self._dead_letter(entry, REJECTED if failure.reject else FAILED, now, failure)
            if outcome is DeadLettering.DONE:
                entry.end()
                return False
            if outcome is DeadLettering.REFUSED or failure.reject:
                delay = max(delay, REFUSED_DELAY_MS)
        if delay:
            self._schedule(entry, now + delay, span=True)
            return False
        entry.come_back()
        return True

    def _dead_letter(self, entry: Entry, reason: str, now: int, failure: Failure = PLAIN) -> DeadLettering:
        """Move a message to its dead-letter queue (D-22), if that is possible, and count it."""
        outcome = self._host.dead_letter(self.place, entry, reason, failure, now)
        if outcome is DeadLettering.REFUSED:
            self.counts.refuse_dead_letter()
        elif outcome is DeadLettering.DONE:
            for observer in self.observers:
                observer.dead_lettered(self, entry, reason)
            self.counts.dead_letter(reason)
        return outcome

    def unmark(self, held: list[Held], now: int) -> None:
        """Undo the counts of messages that came back although no application had seen them (D-32). One that was
        delivered since then keeps them."""
        back: list[Entry] = []
        for _, entry, count, attempted in held:
            awaiting = entry in self._awaiting
            if entry.count == count and self.take_out(entry):
                entry.unmark(attempted and not awaiting)
                self.counts.redeliver(-1)
                back.append(entry)
        self.take_back(back, now)

    def fail_returned(self, held: list[Held], now: int, failure: Failure = PLAIN) -> None:
        """Count an attempt for messages that came back and, as their client states, had failed. Of one that was
        delivered since then it shows when it returns."""
        back: list[Entry] = []
        for _, entry, count, attempted in held:
            if entry.count != count or entry.state == GONE or (attempted and entry not in self._awaiting):
                continue
            if not self.take_out(entry):
                entry.fail(now)
                for observer in self.observers:
                    observer.failed(self, entry)
            elif self.deleted or self._fail(entry, now, failure):
                back.append(entry)
        self._return(back, now)

    def awaits(self, entry: Entry) -> bool:
        """True if a message waits for its client, since the loss would be its last attempt."""
        return entry in self._awaiting

    def end_wait(self, held: list[Held], now: int) -> list[Held]:
        """Let messages return that waited for their client, which is back: the loss was not an attempt.

        Returns:
            These messages.
        """
        back = [each for each in held if each.entry in self._awaiting]
        for each in back:
            self.take_out(each.entry)
            each.entry.come_back()
        self._return([each.entry for each in back], now)
        return back

    def settle_returned(self, held: list[Held]) -> None:
        """Remove messages that came back although they had been acknowledged, if they still wait."""
        for _, entry, count, _ in held:
            if entry.count == count and self.take_out(entry):
                self.acknowledged += 1
                for observer in self.observers:
                    observer.acknowledged(self, entry, None)
                entry.end()

    # -- consumers ------------------------------------------------------------------------------------------------

    def open_consumer(
        self, port: DeliveryPort, consumer_id: int, condition: Condition | None, credit: int, now: int
    ) -> Consumer:
        """Add a consumer, and deliver what waits for it at once, up to `credit` messages."""
        view = self.main if condition is None else self.backlog.open_view(condition)
        consumer = Consumer(consumer_id, port, self, view)
        turns = self._turns.get(view)
        if turns is None:
            turns = self._turns[view] = Turns(view)
        turns.add(consumer)
        self.consumers.append(consumer)
        self._find_sole()
        groups = turns.groups
        if (
            groups is not None and not groups.learnt and not self.standstill.shut
        ):  # served when the queue delivers again
            groups.learn(SERVED)
            if not groups.learnt:
                self._serve_later()
        if credit:
            consumer.grant(credit, now)
        return consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        """Stop serving a closed consumer. It keeps the messages that it holds."""
        self.consumers.remove(consumer)
        self.holders.add(consumer)
        view = consumer.view
        turns = self._turns[view]
        turns.remove(consumer)
        if view is not self.main and not turns.consumers:
            self.backlog.close_view(view)
            del self._turns[view]
        self._find_sole()

    def part_with(self, consumer: Consumer, now: int) -> None:
        """A removed consumer has returned everything it had to return: release its groups, and expect no more answers
        from it."""
        self._forget_if_done(consumer)
        turns = self._turns.get(consumer.view)
        if turns is not None and turns.groups is not None:
            turns.leave(consumer)
            if self.backlog.depth:
                self._serve(turns, now)
        self._recall.leave(consumer, now)
        if self._on_left is not None:
            self._on_left()

    def _forget_if_done(self, consumer: Consumer) -> None:
        if not consumer.window:
            self.holders.discard(consumer)

    def serve(self, consumer: Consumer, now: int) -> None:
        turns = self._turns[consumer.view]
        if consumer not in turns.listed:
            turns.list_ready(consumer)
        if self.backlog.depth:
            self._serve(turns, now)

    def resume(self, consumer: Consumer, now: int) -> None:
        """As :meth:`serve`, for a consumer whose port was not writable."""
        turns = self._turns[consumer.view]
        if consumer.waiting and consumer not in turns.waiting:
            turns.wait(consumer)
        self.serve(consumer, now)
        self._recall.resumed(consumer, now)

    def want(self, consumer: Consumer, now: int, patient: bool, brief: bool) -> bool:
        """See :meth:`Consumer.want`."""
        recall = self._recall
        if not recall.begin(consumer, patient, brief):
            return False
        if self.backlog.depth:
            self._serve(self._turns[consumer.view], now)
            if not consumer.waiting:
                return True
        return recall.want(consumer, now)

    def add_tap(self, tap: Copier) -> None:
        self.taps = (*self.taps, tap)
        self._count_fan_out()

    def remove_tap(self, tap: Copier) -> None:
        self.taps = tuple(each for each in self.taps if each is not tap)
        self._count_fan_out()

    def observe(self, observer: Observer) -> None:
        """Add an observer of the outcome of messages, behind the present ones."""
        self.observers = (*self.observers, observer)
        self._count_fan_out()

    def unobserve(self, observer: Observer) -> None:
        self.observers = tuple(each for each in self.observers if each is not observer)
        self._count_fan_out()

    def _count_fan_out(self) -> None:
        self.fan_out = 1 + OBSERVER * len(self.observers) + sum([tap.effort for tap in self.taps])

    def _find_sole(self) -> None:
        alone = len(self.consumers) == 1 and not self.backlog.views and not self.standstill.shut
        self._sole = self.consumers[0] if alone else None

    # -- looking --------------------------------------------------------------------------------------------------

    def locate(self, ids: Iterable[int | str], held: bool, now: int, budget: Budget) -> Task[list[Entry]]:
        """The entries with these sequences or JMSMessageIDs that are here, in order of delivery.

        Args:
            held: look among those in flight, too.
            now: ms epoch.
        """
        in_flight = self._held_entries() if held else ()
        return self.backlog.locate(ids, self.scheduled, in_flight, self.complete, now, budget)

    def _held_entries(self) -> Iterator[Entry]:
        for consumer in (*self.consumers, *self.holders):
            yield from [entry for entry in consumer.window if entry is not None]

    # -- administration -------------------------------------------------------------------------------------------

    def work(self, now: int, budget: Budget) -> Task[None]:
        """Do pending work: evaluating selectors, searching the backlog, delivering, dropping tombstones; if it is
        deleted, removing its messages."""
        while self.pending and not self.deleted:
            before = budget.left
            if budget.left > 0:
                self._work(now, budget)
            if budget.spent or budget.left == before:
                now = yield
        yield from self.emptying(now, budget)

    def emptying(self, now: int, budget: Budget) -> Task[int]:
        """Remove what a deleted queue still holds. Returns the time."""
        while self.deleted and not self.empty:
            if budget.spent:
                now = yield
            else:
                budget.spend(max(1, self._drop_some(budget.left)))
        return now

    @property
    def empty(self) -> bool:
        """True if nothing waits or is scheduled."""
        return not (self.depth or self.scheduled)

    def _drop_some(self, budget: int) -> int:
        """Remove messages of a deleted queue. Returns the cost."""
        each = 1 + len(self.observers)
        count = max(1, budget // each)
        entries = self.backlog.take(count)
        for entry in entries:
            if entry.envelope.expiration:
                self._deadlines.void()
        if not entries:
            entries = list(islice(self.scheduled.values(), count))
            for entry in entries:
                self.take_out(entry)
        self._end_removed(entries, "deleted")
        if self.empty:
            self.backlog.detach()
        return len(entries) * each

    def _work(self, now: int, budget: Budget) -> None:
        if self._unmatched.entries:
            budget.spend(self._ask(budget.left, now))
        if budget.left > 0:
            budget.spend(self.go_on(now, budget.left))
        # Half of what is left, so that matches are delivered in the turn that has found them.
        while budget.left > 0 and (scanned := self.backlog.scan((budget.left + 1) // 2)) is not None:
            view, finished, cost = scanned
            budget.spend(cost)
            turns = self._turns.get(view)
            if turns is not None:
                left = max(budget.left, 0)
                budget.spend(left - self._serve(turns, now, left))
                if finished:
                    self._recall.scanned(turns, now)
        if budget.left > 0 and self._recall.searching:
            budget.spend(self._recall.work(budget.left, now))
        if budget.left > 0:
            budget.spend(self.backlog.drop_tombstones(budget.left))

    @property
    def pending(self) -> bool:
        return (
            bool(self._unmatched.entries) or self.standstill.unserved or self._recall.searching or self.backlog.pending
        )

    def pause(self) -> None:
        """Stop deliveries. Messages in flight stay with their consumers, and producers can still send."""
        self.standstill.pause(True)
        self._find_sole()

    def unpause(self, now: int) -> None:
        self.standstill.pause(False)
        self._find_sole()
        budget = SERVED
        for turns in list(self._turns.values()):
            budget = self._serve(turns, now, budget)

    def hide(self) -> None:
        """A batch is being published: deliver nothing that arrives from now on until it is complete."""
        self.standstill.hide(self.sequence)
        self._stop()

    def show(self, now: int, budget: int = SERVED) -> int:
        """The batch is complete: deliver it.

        Args:
            now: ms epoch.
            budget: messages to deliver at once; the rest is pending work.

        Returns:
            What was spent of the budget.
        """
        self.standstill.show()
        return self._deliver(now, budget)

    def hold(self) -> None:
        """Deliver nothing while a task changes what waits; a WANT waits for the answer meanwhile."""
        self.standstill.hold()
        self._stop()

    def _stop(self) -> None:
        self._recall.hold()
        self._find_sole()

    def release(self, now: int, budget: int = SERVED) -> int:
        """The task is over: deliver what waits. Arguments and result are those of :meth:`show`."""
        self.standstill.release()
        return self._deliver(now, budget)

    def go_on(self, now: int, budget: int) -> int:
        """Deliver what there was no time for. Arguments and result are those of :meth:`show`; 0 if that is nothing."""
        return 1 + self.release(now, budget) if self.standstill.take_up() else 0

    def _deliver(self, now: int, budget: int) -> int:
        self._find_sole()
        left = budget
        if not self.standstill.held:
            self._recall.release()
            for turns in sorted(self._turns.values(), key=_has_no_waiting):
                left = self._serve(turns, now, left)
                if self.standstill.held:
                    break
                self._recall.scanned(turns, now)
        return budget - left

    def take_out(self, entry: Entry) -> bool:
        """Remove a waiting or scheduled entry from its place. False if it is not there."""
        if entry.state == DELAYED:
            del self.scheduled[entry.sequence]
            self.scheduled_bytes -= len(entry.envelope.packed)
            self._awaiting.pop(entry, None)
            self._deadlines.void()
        elif entry.state in (READY, STRAY):
            self._unplace(entry)
        else:
            return False
        return True

    def remove(self, entry: Entry, reason: str = "purged") -> None:
        """Remove one waiting or scheduled entry for good. Observers get the reason."""
        self.take_out(entry)
        self.counts.remove(1)
        for observer in self.observers:
            observer.removed(self, entry, reason)
        entry.end()

    def clear(self, reason: str = "purged") -> int:
        """Remove all waiting and scheduled messages; messages in flight stay.

        Returns:
            How many messages that were.
        """
        entries = self.backlog.clear() + list(self.scheduled.values())
        self.scheduled.clear()
        self.scheduled_bytes = 0
        self._awaiting.clear()
        for entry in entries:
            if entry.state == DELAYED or entry.envelope.expiration:
                self._deadlines.void()
        self._end_removed(entries, reason)
        return len(entries)

    def _end_removed(self, entries: list[Entry], reason: str) -> None:
        """Entries that are in no place any more are removed."""
        self.counts.remove(len(entries))
        for entry in entries:
            for observer in self.observers:
                observer.removed(self, entry, reason)
            entry.end()

    def delete(self, code: ErrorCode, text: str) -> None:
        """Close all consumers with a notice to their ports, and remove all messages: many of them as pending work
        (:attr:`empty`)."""
        if not self.deleted:
            self._host.queue_deleted(self)
        for consumer in list(self.consumers):
            consumer.stop(code, text)
        self.deleted = True
        self._recall.clear()
        self._on_left = None
        if self.depth + len(self.scheduled) > TURN:
            self._add_work()
            return
        self.clear("deleted")
        # Without a reference cycle it is freed at once, not by the garbage collector.
        self.backlog.detach()

    def _add_work(self) -> None:
        self._host.add_work(self)


def _has_no_waiting(turns: Turns) -> bool:
    return not turns.waiting
