"""The progress of each connection, stored with the messages, so that a send that is repeated after a restart is not
doubled.

A client that may come back (HELLO's `keep`) is remembered while its connection is lost (session/lost.py). A durable
broker remembers it across restarts as well: each batch contains the progress of the connections that had input since
the last one. Both are cut at the same moment, so a message is in the store exactly if its sequence is counted there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.journal import CONNECTION, Journal
from sievemq_broker.domain.store import Saved
from sievemq_broker.session.lost import Memory
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.ports import Services


class Progress:
    """Stores the progress of connections in the journal.

    Args:
        journal: of the broker.
        services: knows which connections there are, and which are remembered.
    """

    __slots__ = ("_journal", "_noted", "_services")

    def __init__(self, journal: Journal, services: Services[Peer]) -> None:
        self._journal = journal
        self._services = services
        #: The latest stored progress, in short.
        self._noted: dict[str, tuple[object, ...]] = {}

    def restore(self, saved: Saved, until: int, broker: Broker) -> int:
        """Remember the connections of the last run as lost ones.

        Args:
            saved: of the store.
            until: when they may be forgotten; ms since 1970 without the offset of a test's clock.
            broker: the domain.

        Returns:
            How many there are.
        """
        records: list[Mapping[str, Any]] = [value[0] for value in saved.definitions(CONNECTION).values()]
        self._services.lost.restore(records, until, broker)
        for record in records:
            self._noted[record["connection"]] = ()
        return len(records)

    def note(self, connections: Iterable[Peer]) -> None:
        """Store the progress of these connections in the present batch, just before it is cut.

        For a connection that was lost since then, the remembered progress is stored, since its sends are in this batch
        as well. For one that came back since then, the present progress counts: both share the id."""
        services = self._services
        for name in dict.fromkeys([connection.member.id for connection in connections]):
            connection = services.connections.get(name)
            memory = services.lost.get(name) if connection is None else None
            if memory is not None:
                self._define(memory, ())
            elif connection is not None and connection.member.keep:
                brief = (*connection.member.progress(), *services.unstored_of(name))
                if brief != self._noted.get(name):
                    self._define(connection.member.remembers(), brief)
            elif name in self._noted:  # it has ended for good, or is not to be remembered any more
                self._forget(name)

    def _define(self, memory: Memory, brief: tuple[object, ...]) -> None:
        self._noted[memory.connection] = brief
        record = memory.to_mapping()
        for each in record["sessions"]:
            before = self._services.unstored.get((memory.connection, each[0]))
            if before is not None:
                each[1:] = before[:2]
        self._journal.define(CONNECTION, (memory.connection,), (record,))

    def sweep(self) -> None:
        """Forget connections that cannot be resumed any more."""
        services = self._services
        for name in [n for n in self._noted if n not in services.connections and n not in services.lost]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        del self._noted[name]
        self._journal.define(CONNECTION, (name,), None)
