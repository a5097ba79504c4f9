"""The journal of one namespace: a bounded list of events, and the outcome of every message.

Written on the broker's thread, by the domain's observer and by watched connections; read from any other thread through
:meth:`~sievemq_testing.broker.TestBroker.call`, so an event is never seen half written.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.entry import DELAYED, GONE, HELD, Entry
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.ports import Observed, Taker
from sievemq_broker.domain.queue import Queue
from sievemq_broker.matching.condition import is_true
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import MESSAGE_ID, Envelope
from sievemq_core.selector import CompiledSelector
from sievemq_testing.reasons import due_in, idle, name_of

#: Events that a journal keeps; the oldest go first. A message costs three to six of them.
EVENTS: Final = 20_000

#: Kinds of a message's last event after which it is removed, and not lost.
SETTLED: Final = frozenset({"acknowledged", "dead-lettered"})


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        number: 1, 2, 3, … in the namespace.
        at: the broker's time, ms since 1970.
        kind: ``sent``, ``published`` (a topic has taken it), ``refused``, ``accepted``, ``not matched``, ``delivered``,
            ``acknowledged``, ``returned``, ``redelivered``, ``expired``, ``dead-lettered``, ``removed``,
            ``unreadable``, ``lost``, ``consumer opened``, ``consumer closed``, ``connected``, ``disconnected``,
            ``committed``, ``rolled back``, ``fault``.
        where: address of the destination; empty where it concerns none.
        envelope: the message; None where it concerns none.
        by: id of the connection; empty if it was the broker itself.
        detail: further facts as text.
        selectors: of ``not matched``: the selectors that did not match.
        topic: the destination, where that is a topic and `where` one of its subscriptions; empty otherwise.
    """

    number: int
    at: int
    kind: str
    where: str = ""
    envelope: Envelope | None = None
    by: str = ""
    detail: str = ""
    selectors: tuple[CompiledSelector, ...] = ()
    topic: str = ""

    @property
    def message_id(self) -> str:
        """JMSMessageID; empty if the event concerns no message, or one without id."""
        return (self.envelope.fields[MESSAGE_ID] or "") if self.envelope is not None else ""


@dataclass(slots=True)
class Fate:
    """The outcome of one message on one queue.

    Attributes:
        queue: the queue, or the one of a subscription.
        where: its label.
        destination: address that it was sent to.
        envelope: the message.
        last: kind of the last event.
        deliveries: how often it was delivered.
        refused_by: selectors of consumers that did not want it, by what to call them.
        passed_by: why other consumers, closed by now, did not take it, by what to call them.
    """

    queue: Queue
    where: str
    destination: str
    envelope: Envelope
    last: str = "accepted"
    deliveries: int = 0
    refused_by: dict[str, CompiledSelector] = field(default_factory=dict)
    passed_by: dict[str, str] = field(default_factory=dict)

    def become(self, kind: str) -> None:
        """This was the last event."""
        self.last = kind

    def deliver(self) -> None:
        self.deliveries += 1

    def release(self, last: str) -> None:
        """The last delivery does not count: the message was returned unseen, in its earlier state."""
        self.deliveries -= 1
        self.last = last


class Journal:
    """The events of a namespace.

    Args:
        namespace: its name.
        limit: events to keep.
    """

    __slots__ = (
        "_events", "_fates", "_forgotten", "_limit", "_number", "namespace", "open_dropped", "touched",
    )  # fmt: skip

    def __init__(self, namespace: str, limit: int = EVENTS) -> None:
        self.namespace = namespace
        self._limit = limit
        self._number = 0
        self._events: deque[Event] = deque(maxlen=limit)
        self._fates: dict[Entry, Fate] = {}
        self._forgotten: Counter[tuple[str, str]] = Counter()
        #: Messages that were forgotten to stay within the limit, and were neither acknowledged nor dead-lettered:
        #: whether they got lost is unknown.
        self.open_dropped = 0
        #: When the last event was written, by the machine's monotonic clock.
        self.touched = 0.0

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._events))

    @property
    def dropped(self) -> int:
        """Events that were forgotten to stay within the limit."""
        return self._number - len(self._events)

    @property
    def fates(self) -> Mapping[Entry, Fate]:
        """The outcome of each message, by its entry in the broker."""
        return self._fates

    def of(self, *kinds: str, where: str | None = None) -> list[Event]:
        """Events of these kinds, at one destination if `where` names it: a topic's are those of its subscriptions
        too."""
        return [
            event for event in self if event.kind in kinds and (where is None or where in (event.where, event.topic))
        ]

    def forgotten(self, kind: str, where: str) -> int:
        """Events of a kind at a destination that :meth:`of` no longer has."""
        return self._forgotten[kind, where]

    def clear(self) -> None:
        """Forget everything."""
        self._events.clear()
        self._fates.clear()
        self._forgotten.clear()
        self._number = self.open_dropped = 0

    def note(
        self,
        at: int,
        kind: str,
        where: str = "",
        envelope: Envelope | None = None,
        by: str = "",
        detail: str = "",
        selectors: tuple[CompiledSelector, ...] = (),
        topic: str = "",
    ) -> None:
        """Write down one event; for the arguments see :class:`Event`."""
        self._number += 1
        self.touched = monotonic()
        events = self._events
        if len(events) == self._limit:
            oldest = events[0]
            self._forgotten[oldest.kind, oldest.topic or oldest.where] += 1
        events.append(Event(self._number, at, kind, where, envelope, by, detail, selectors, topic))

    def begin(self, queue: Queue, entry: Entry) -> Fate:
        """A message is on a queue from now on."""
        if len(self._fates) >= self._limit:
            self._forget()
        fate = self._fates[entry] = Fate(queue, queue.label, queue.place.destination, entry.envelope)
        return fate

    def _forget(self) -> None:
        """Make room for a quarter: first messages with a normal outcome are dropped, then the oldest."""
        room = max(1, self._limit // 4)
        well = [entry for entry, fate in self._fates.items() if entry.state == GONE and fate.last in SETTLED]
        forgotten = set(well)
        others = [entry for entry in self._fates if entry not in forgotten][: max(0, room - len(well))]
        for entry in (*well, *others):
            del self._fates[entry]
        self.open_dropped += len(others)

    def go_on_with(self, found: Iterable[tuple[Queue, Entry]]) -> list[Fate]:
        """The broker was restarted from its data directory: messages that it has recovered continue as before.

        Args:
            found: the destinations that exist.

        Returns:
            The destinations that do not exist.
        """
        known: dict[tuple[str, object], deque[Entry]] = {}  # several by one key: producers may give no ids
        for entry, fate in self._fates.items():
            if entry.state != GONE:
                known.setdefault((fate.where, fate.envelope.fields[MESSAGE_ID]), deque()).append(entry)
        for queue, entry in found:
            same = known.get((queue.label, entry.envelope.fields[MESSAGE_ID]))
            if same:
                self._fates[entry] = self._fates.pop(same.popleft())
            else:
                self.begin(queue, entry)
        return [self._fates[entry] for missing in known.values() for entry in missing]

    def undelivered(self) -> list[Fate]:
        """Messages that were never delivered and are still there."""
        return [
            fate
            for entry, fate in self._fates.items()
            if entry.state != GONE and not fate.deliveries and entry.state not in (HELD, DELAYED)
        ]

    def delayed(self) -> list[tuple[Fate, int]]:
        """Messages that wait for their time, each with that time in ms since 1970."""
        return [(fate, entry.due) for entry, fate in self._fates.items() if entry.state == DELAYED]


class Recorder:
    """The domain's observer: writes the domain's events into the journal of the namespace concerned.

    Args:
        now: the broker's time.
        limit: events that each journal keeps.
        changed: called after each event: a thread may wait for it.
    """

    def __init__(self, now: Callable[[], int], limit: int, changed: Callable[[], None]) -> None:
        self._now = now
        self._limit = limit
        self._changed = changed
        self.journals: dict[str, Journal] = {}

    def of(self, namespace: str) -> Journal:
        name = namespace or "default"
        journal = self.journals.get(name)
        if journal is None:
            journal = self.journals[name] = Journal(name, self._limit)
        return journal

    def note(
        self,
        namespace: str,
        kind: str,
        where: str = "",
        envelope: Envelope | None = None,
        by: str = "",
        detail: str = "",
        selectors: tuple[CompiledSelector, ...] = (),
    ) -> None:
        """Write down one event; for the arguments see :class:`Event`."""
        self.of(namespace).note(self._now(), kind, where, envelope, by, detail, selectors)
        self._changed()

    def lost(self, namespace: str, fate: Fate, detail: str) -> None:
        """A message was removed without an outcome."""
        fate.become("lost")
        self.note(namespace, "lost", fate.where, fate.envelope, detail=detail)

    # -- events of the domain ---------------------------------------------------------------------------------------

    def accepted(self, queue: Observed, entry: Entry) -> None:
        assert isinstance(queue, Queue)
        fate = self.of(queue.place.namespace).begin(queue, entry)
        refusing = _refusing(queue, entry.envelope)
        fate.refused_by.update(refusing)
        detail = due_in(entry.envelope.delivery_time - self._now()) if entry.state == DELAYED else ""
        self._tell(queue.place, entry, "accepted", detail, tuple(refusing.values()))

    def handed(self, queue: Observed, entry: Entry, consumer: Taker) -> None:
        """Watched connections report it, with the consumer's name."""

    def released(self, queue: Observed, entry: Entry) -> None:
        """The message was returned unseen: it has no outcome."""
        fate = self.of(queue.place.namespace).fates.get(entry)
        if fate is not None:
            fate.release("redelivered" if entry.count else "accepted")

    def acknowledged(self, queue: Observed, entry: Entry, consumer: Taker | None) -> None:
        self._tell(queue.place, entry, "acknowledged")

    def returned(self, queue: Observed, entry: Entry) -> None:
        """The message was returned and will be redelivered with JMSRedelivered set."""
        self._tell(queue.place, entry, "redelivered", f"delivery {entry.count}, failed attempts {entry.attempts}")

    def failed(self, queue: Observed, entry: Entry) -> None:
        """The message has its outcome when its consumer settles it."""

    def expired(self, queue: Observed, entry: Entry) -> None:
        assert isinstance(queue, Queue)
        if entry not in self.of(queue.place.namespace).fates:
            self.of(queue.place.namespace).begin(queue, entry)  # it had expired on arrival
        self._tell(queue.place, entry, "expired")

    def dead_lettered(self, queue: Observed, entry: Entry, reason: str) -> None:
        self._tell(queue.place, entry, "dead-lettered", f"reason: {reason}, after {entry.attempts} failed attempts")

    def removed(self, queue: Observed, entry: Entry, reason: str) -> None:
        """The message was removed unconsumed: by an operator, or with its queue."""
        self._tell(queue.place, entry, "removed", f"reason: {reason}")

    def refused(self, queue: Observed, envelope: Envelope) -> None:
        """The message was dropped at the queue's limit: it gets no outcome."""
        self.note(
            queue.place.namespace, "refused", queue.place.label, envelope, detail="dropped: the queue is at its limit"
        )

    def unreadable(self, queue: Observed, entry: Entry, error: Exception) -> None:
        self._tell(queue.place, entry, "unreadable", str(error))

    # -- events of watched connections --------------------------------------------------------------------------------

    def delivered(self, place: Place, entry: Entry, by: str, detail: str) -> None:
        fate = self.of(place.namespace).fates.get(entry)
        if fate is not None:
            fate.deliver()
        self._tell(place, entry, "delivered", detail, by=by)

    def opened(self, place: Place, name: str, selector: CompiledSelector) -> None:
        """A consumer with a selector was opened: note waiting messages that do not match it."""
        for entry, fate in self.of(place.namespace).fates.items():
            if fate.where == place.label and entry.state != GONE and not matches(selector, fate.envelope):
                fate.refused_by[name] = selector

    def closing(self, consumer: Consumer) -> None:
        """A consumer closes. If it could take nothing, the messages that wait remember that."""
        reason = idle(consumer)
        if reason:
            for entry, fate in self.of(consumer.source.place.namespace).fates.items():
                if fate.queue is consumer.source and entry.state != GONE and not fate.deliveries:
                    fate.passed_by.setdefault(name_of(consumer), reason)

    def _tell(
        self,
        place: Place,
        entry: Entry,
        kind: str,
        detail: str = "",
        selectors: tuple[CompiledSelector, ...] = (),
        by: str = "",
    ) -> None:
        journal = self.of(place.namespace)
        fate = journal.fates.get(entry)
        if fate is not None:
            fate.become(kind)
        journal.note(self._now(), kind, place.label, entry.envelope, by, detail, selectors, place.topic or "")
        self._changed()


def _refusing(queue: Queue, envelope: Envelope) -> dict[str, CompiledSelector]:
    refusing: dict[str, CompiledSelector] = {}
    for consumer in queue.consumers:
        condition = consumer.view.condition
        if isinstance(condition, CompiledSelector) and not matches(condition, envelope):
            refusing[name_of(consumer)] = condition
    return refusing


def matches(selector: CompiledSelector, envelope: Envelope) -> bool:
    try:
        return is_true(selector, envelope)
    except SieveError:
        return False  # unreadable properties: no selector was evaluated (D-14)


def connection_of(port: object) -> str:
    """Id of the connection behind a consumer's port."""
    return str(getattr(port, "connection_id", "?"))
