"""Several observers of one queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.domain.ports import Observed, Observer, Taker

if TYPE_CHECKING:
    from sievemq_broker.domain.entry import Entry
    from sievemq_core.message.envelope import Envelope

__all__ = ["Both", "joined", "without"]


def joined(first: Observer | None, second: Observer) -> Observer:
    """One observer that tells two, in this order."""
    return second if first is None else Both(first, second)


def without(observer: Observer | None, gone: Observer) -> Observer | None:
    """What is left when one of those that are joined goes."""
    if observer is gone:
        return None
    if isinstance(observer, Both):
        first, second = without(observer.first, gone), without(observer.second, gone)
        return first if second is None else joined(first, second)
    return observer


class Both:
    """Two observers, told one after the other."""

    __slots__ = ("first", "second")

    def __init__(self, first: Observer, second: Observer) -> None:
        self.first = first
        self.second = second

    def accepted(self, queue: Observed, entry: Entry) -> None:
        self.first.accepted(queue, entry)
        self.second.accepted(queue, entry)

    def handed(self, queue: Observed, entry: Entry) -> None:
        self.first.handed(queue, entry)
        self.second.handed(queue, entry)

    def released(self, queue: Observed, entry: Entry) -> None:
        self.first.released(queue, entry)
        self.second.released(queue, entry)

    def acknowledged(self, queue: Observed, entry: Entry, consumer: Taker | None) -> None:
        self.first.acknowledged(queue, entry, consumer)
        self.second.acknowledged(queue, entry, consumer)

    def returned(self, queue: Observed, entry: Entry) -> None:
        self.first.returned(queue, entry)
        self.second.returned(queue, entry)

    def expired(self, queue: Observed, entry: Entry) -> None:
        self.first.expired(queue, entry)
        self.second.expired(queue, entry)

    def dead_lettered(self, queue: Observed, entry: Entry, reason: str) -> None:
        self.first.dead_lettered(queue, entry, reason)
        self.second.dead_lettered(queue, entry, reason)

    def removed(self, queue: Observed, entry: Entry, reason: str) -> None:
        self.first.removed(queue, entry, reason)
        self.second.removed(queue, entry, reason)

    def refused(self, queue: Observed, envelope: Envelope) -> None:
        self.first.refused(queue, envelope)
        self.second.refused(queue, envelope)

    def unreadable(self, queue: Observed, entry: Entry, error: Exception) -> None:
        self.first.unreadable(queue, entry, error)
        self.second.unreadable(queue, entry, error)
