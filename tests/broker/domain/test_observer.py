"""What an observer receives, and that it changes nothing."""

from __future__ import annotations

from tests.broker.at_once import recover

from sievemq_broker.domain import Broker, Consumer, DestinationPolicy, DomainSettings, Queue
from sievemq_broker.domain.entry import Entry
from sievemq_core.message.envelope import Envelope

from .support import NOW, Port, message, name_of, selector


class Notes:
    """Writes down every event with the message's name: the envelope must still be there."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def note(self, what: str, queue: Queue, entry: Entry) -> None:
        self.events.append((what, queue.label, name_of(entry.envelope.packed)))

    def accepted(self, queue: Queue, entry: Entry) -> None:
        self.note("accepted", queue, entry)

    def handed(self, queue: Queue, entry: Entry, consumer: Consumer) -> None:
        self.note("handed", queue, entry)

    def released(self, queue: Queue, entry: Entry) -> None:
        self.note("released", queue, entry)

    def acknowledged(self, queue: Queue, entry: Entry, consumer: Consumer | None) -> None:
        self.note("acknowledged", queue, entry)

    def returned(self, queue: Queue, entry: Entry) -> None:
        self.note(f"returned {entry.count}", queue, entry)

    def failed(self, queue: Queue, entry: Entry) -> None:
        self.note(f"failed {entry.attempts}", queue, entry)

    def expired(self, queue: Queue, entry: Entry) -> None:
        self.note("expired", queue, entry)

    def dead_lettered(self, queue: Queue, entry: Entry, reason: str) -> None:
        self.note(f"dead_lettered {reason}", queue, entry)

    def removed(self, queue: Queue, entry: Entry, reason: str) -> None:
        self.note(f"removed {reason}", queue, entry)

    def refused(self, queue: Queue, envelope: Envelope) -> None:
        self.events.append(("refused", queue.label, name_of(envelope.packed)))

    def unreadable(self, queue: Queue, entry: Entry, error: Exception) -> None:
        self.note("unreadable", queue, entry)


def test_an_observer_sees_the_life_of_every_message() -> None:
    notes = Notes()
    policy = DestinationPolicy(max_attempts=2)
    broker = Broker(DomainSettings(policies=(("queue:q", policy),)), observer=notes)
    namespace = broker.namespace("")
    for name, how in (("a", {}), ("x", {"expires": NOW + 5}), ("d", {"at": NOW + 9})):
        namespace.send("queue:q", message(name, **how), NOW)
    assert [event[::2] for event in notes.events] == [("accepted", "a"), ("accepted", "x"), ("accepted", "d")]
    notes.events.clear()
    broker.due(NOW + 10)
    assert notes.events == [("expired", "queue:q", "x")]
    notes.events.clear()
    consumer = namespace.open_consumer(Port(), 1, "queue:q", connection="c", credit=9, now=NOW + 10)
    recover(consumer, 1, NOW + 10)
    consumer.grant(9, NOW + 10)
    recover(consumer, 3, NOW + 10)
    consumer.grant(9, NOW + 10)
    consumer.acknowledge(consumer.tag, NOW + 10)
    assert notes.events == [
        ("handed", "queue:q", "a"),
        ("handed", "queue:q", "d"),
        ("released", "queue:q", "d"),
        ("returned 1", "queue:q", "a"),
        ("handed", "queue:q", "a"),
        ("handed", "queue:q", "d"),
        ("released", "queue:q", "d"),
        ("returned 2", "queue:q", "a"),
        ("accepted", "queue:DLQ.q", "a"),
        ("dead_lettered attempts", "queue:q", "a"),
        ("handed", "queue:q", "d"),
        ("acknowledged", "queue:q", "d"),
    ]
    notes.events.clear()
    namespace.open_consumer(Port(), 2, "queue:r", selector("n = 1"), connection="c", credit=0, now=NOW)
    namespace.send("queue:r", message("bad", properties=(b"\xc1", None)), NOW)
    namespace.queue("queue:r").clear()
    assert notes.events == [
        ("accepted", "queue:r", "bad"),
        ("unreadable", "queue:r", "bad"),
        ("removed purged", "queue:r", "bad"),
    ]
