"""Ports of the domain: the receiver of deliveries, and observers of events."""

from __future__ import annotations

from typing import Protocol

from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.failure import Party
from sievemq_broker.domain.place import Place
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import Envelope


class Stored(Protocol):
    """Changes that a store writes together."""

    @property
    def stored(self) -> bool:
        """True once they are on disk."""


@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveryPort(Protocol):
    """The connection of a consumer. None of its methods may call back into the domain before it returns.

    Attributes:
        writable: False while the connection has more to write than its high-water mark allows: its consumers then count
            as having no credit, until :meth:`Consumer.resume` says otherwise.
        needs: what must be on disk before anything goes out that was sent since it was taken last.
    """

    __slots__ = ()

    writable: bool
    needs: list[Stored]

    @property
    def party(self) -> Party:
        """The client, for the dead letters of what it fails. Known also after its connection has ended."""

    def hold_back(self, consumer_id: int) -> None:
        """The consumer has credit and might have got a message, but this was not :attr:`writable`: it is resumed
        then."""

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """Send a message: `tag` 1, 2, 3, … of the consumer, `count` 1 for a first delivery (JSX-12)."""

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        """Send several messages, each for the first time, while this is writable; it is.

        Args:
            consumer_id: whose.
            tag: of the first; those behind it have the following ones.
            row: packed messages, at least one.

        Returns:
            How many it has taken; the others must be delivered again, later.
        """

    def recall(self, consumer_id: int, tags: list[int]) -> None:
        """Ask for buffered messages back; answered by :meth:`Consumer.release`."""

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The consumer was closed: its destination was deleted, or an administrator closed it."""

    def settled(self, consumer_id: int) -> None:
        """An open WANT is answered: everything that could be delivered has been."""


def deliver_each(port: DeliveryPort, consumer_id: int, tag: int, row: list[bytes]) -> int:
    """:meth:`DeliveryPort.deliver_row` for a port without a faster way."""
    taken = 0
    for packed in row:
        port.deliver(consumer_id, tag + taken, 1, packed)
        taken += 1
        if not port.writable:
            break
    return taken


class Observed(Protocol):
    """A queue."""

    @property
    def place(self) -> Place:
        """Its name."""


class Taker(Protocol):
    """A consumer."""

    @property
    def selector(self) -> str | None:
        """Its selector as text, None for none."""

    @property
    def port(self) -> DeliveryPort:
        """Its connection."""


class Observer(Protocol):
    """Receives the events of messages: a journal, a tap, a log. Without observers there is no cost. An entry is
    identified by its queue and ``entry.sequence``; its envelope still exists when a method is called."""

    def accepted(self, queue: Observed, entry: Entry) -> None:
        """A message entered a queue; it may be scheduled for later (``entry.state``)."""

    def handed(self, queue: Observed, entry: Entry, consumer: Taker) -> None:
        """The message is being delivered to a consumer."""

    def released(self, queue: Observed, entry: Entry) -> None:
        """The message was returned unseen and unmarked."""

    def acknowledged(self, queue: Observed, entry: Entry, consumer: Taker | None) -> None:
        """The message was acknowledged and removed; the consumer is passed if it still exists."""

    def returned(self, queue: Observed, entry: Entry) -> None:
        """The message was returned, marked as redelivered; ``entry.count`` and ``entry.attempts`` are up to date."""

    def failed(self, queue: Observed, entry: Entry) -> None:
        """An attempt was counted for a message that a consumer has: a client has come back, and states that it failed
        before."""

    def expired(self, queue: Observed, entry: Entry) -> None:
        """The message expired and was removed (EXP-05)."""

    def dead_lettered(self, queue: Observed, entry: Entry, reason: str) -> None:
        """The message was moved to a dead-letter queue (D-22)."""

    def removed(self, queue: Observed, entry: Entry, reason: str) -> None:
        """The message was dropped at a limit (``oldest``), removed by an operator (``purged``, ``moved``, ``retried``),
        or its queue was deleted (``deleted``)."""

    def refused(self, queue: Observed, envelope: Envelope) -> None:
        """A message was dropped at a limit before it entered the queue."""

    def unreadable(self, queue: Observed, entry: Entry, error: Exception) -> None:
        """Its properties cannot be decoded, so no selector was evaluated: it stays on the queue (D-14)."""
