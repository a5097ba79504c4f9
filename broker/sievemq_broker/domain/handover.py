"""What only memory holds, stored when a broker ends in order, for the next owner of a shared store.

    connections are closed, tasks are over ─► carry ─► the last write ─► … ─► restore (domain/restore.py)

These are messages that are not PERSISTENT, staged sends, and the temporary destinations of connections that may come
back, with their messages. The next owner holds stages and temporary destinations in memory again, and deletes what was
stored of them. Messages on other destinations stay stored until they are gone, as PERSISTENT ones do.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Final, NamedTuple

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.journal import STAGE, TEMPORARY, Journal, Ledger
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.stages import Stage

#: Bytes of messages that are carried at most: the others wait for this write, and for its restore.
CARRIED_BYTES: Final = 64 * 1024 * 1024


class Carried(NamedTuple):
    """How many messages were stored, and how many were too many."""

    stored: int
    left: int


class _Carrier:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.bytes = self.stored = self.left = 0

    def carry(self, queue: Queue, ledger: Ledger) -> None:
        """Store the messages of a queue that are not stored."""
        for consumer in (*queue.consumers, *queue.holders):  # of taps: all connections are closed
            for entry in consumer.window:
                if entry is not None and self._store(entry, ledger):
                    ledger.handed(queue, entry, consumer)
        for entry in (*queue.main.waits(-1, queue.depth), *queue.scheduled.values()):
            if self._store(entry, ledger) and entry.count:
                ledger.returned(queue, entry)

    def carry_stage(self, namespace: str, stage: Stage) -> None:
        """Store a stage, all of it or nothing."""
        if self.bytes + stage.sends.bytes > CARRIED_BYTES:
            self.left += len(stage.sends)
            return
        self.bytes += stage.sends.bytes
        self.stored += len(stage.sends)
        number = self.journal.take_number()
        runs = [(address, len(list(run))) for address, run in groupby(address for address, _ in stage.sends)]
        value = number, stage.key, stage.batch, stage.owner, stage.lease, runs
        self.journal.define(STAGE, (namespace, stage.id), value)
        for _, envelope in stage.sends:
            self.journal.keep(number, envelope.packed)

    def _store(self, entry: Entry, ledger: Ledger) -> bool:
        """True if it was not stored, and is now."""
        if getattr(entry, "stored", 0):
            return False
        size = len(entry.envelope.packed)
        if self.bytes + size > CARRIED_BYTES:
            self.left += 1
            return False
        self.bytes += size
        self.stored += 1
        entry.keep(self.journal.keep(ledger.number, entry.envelope.packed))
        return True


def carry(broker: Broker, may_return: Callable[[str], bool]) -> Carried:
    """Have the journal store it with the next write. Nothing is delivered any more, and no task is at work.

    Args:
        broker: it has a journal.
        may_return: True for the id of a connection that may come back.
    """
    journal = broker.journal
    assert journal is not None
    carrier = _Carrier(journal)
    for namespace in broker.namespaces.values():
        for label, destination in namespace.destinations.items():
            owner = namespace.temporaries.owner_of(label)
            ledger = _ledger_of(destination) if isinstance(destination, Queue) else None
            if owner is not None:
                if not may_return(owner):
                    continue
                ledger = journal.ledger(journal.take_number())
                journal.define(TEMPORARY, (namespace.name, label), (ledger.number, owner))
            if ledger is not None and isinstance(destination, Queue):
                carrier.carry(destination, ledger)
        for subscription in namespace.subscriptions.durable.values():
            if (ledger := _ledger_of(subscription.queue)) is not None:
                carrier.carry(subscription.queue, ledger)
        for stage in namespace.stages.all:
            carrier.carry_stage(namespace.name, stage)
    return Carried(carrier.stored, carrier.left)


def _ledger_of(queue: Queue) -> Ledger | None:
    """Writes the events of a queue to the journal; None if nothing does."""
    return next((observer for observer in queue.observers if isinstance(observer, Ledger)), None)
