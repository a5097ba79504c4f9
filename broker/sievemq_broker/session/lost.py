"""Lost connections that may come back: what the broker remembers of them, and for how long.

A client that reconnects names the connection it has lost. The broker answers, for each session, which of its sends had
arrived and which commit was carried out, so that the client repeats what was lost and nothing else. The client reports
which messages its application has not seen, so that these lose their mark again (D-32).

The memory is plain data (:meth:`Memory.to_mapping`), so that a store can keep it across restarts, see
docs/decisions/0009."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Held, Source
from sievemq_broker.domain.failure import PLAIN, Party
from sievemq_broker.domain.shares import Shares

#: The most connections remembered. The user with most of them loses the oldest. Some hundred bytes each.
MAX_LOST: Final = 10_000
#: The most messages remembered to lose their mark again, over all connections, a reference each. The user with most of
#: them loses those of its oldest connection first; they stay marked.
MAX_RETURNED: Final = 200_000
#: The most refused sends remembered of one connection: as many as a client may have unconfirmed in a session.
MAX_REFUSED: Final = 10_000

Refusal = tuple[int, int, int, str]
"""Session, sequence, error code, text of a send that was refused."""


class Report(NamedTuple):
    """What a client that comes back states of the messages that were delivered to it, by consumer.

    Attributes:
        handed: the last tag that the application may have seen; what lies behind loses its mark.
        done: up to this tag everything was acknowledged; the acknowledgement may have been lost.
        failed: behind the first tag, up to the second one, the application has failed: its listener raised, or it
            rolled back or recovered.
    """

    handed: Mapping[int, int] = {}
    done: Mapping[int, int] = {}
    failed: Mapping[int, tuple[int, int]] = {}


class Returned(NamedTuple):
    """The messages of a consumer when its connection was lost: its queue; the returned messages; whether they were
    received in a transaction; the number of all; and its client."""

    source: Source
    held: list[Held]
    transacted: bool
    messages: int
    party: Party


class Survived(NamedTuple):
    """A message at its last attempt whose connection was lost, and whose client came back without a statement about it.

    Attributes:
        source: its queue.
        held: what it was on the lost connection.
        last: the last tag there that the application may have seen.
        party: the client, as it was there.
    """

    source: Source
    held: Held
    last: int
    party: Party


class Memory:
    """The memory of one lost connection.

    Args:
        user: who it was; None for anonymous.
        sessions: session id -> sequence of the last SEND that arrived, request of the last COMMIT or ACKNOWLEDGE_ALL
            that was carried out (0 for none).
        refused: sends that were refused, as many as a client may not have heard of.
        returned: consumer id -> what went back of it.
        restored: a store has kept it over a restart, and nothing has kept its temporary destinations.
        attempt: the number of the attempt by which the client had continued it before; 0 if it had not.

    Attributes:
        until: ms since 1970, without the offset of a test's clock: when it is forgotten.
    """

    __slots__ = ("attempt", "connection", "namespace", "refused", "restored", "returned", "sessions", "until", "user")

    def __init__(
        self,
        connection: str,
        user: str | None,
        namespace: str,
        sessions: dict[int, tuple[int, int]],
        refused: tuple[Refusal, ...] = (),
        returned: dict[int, Returned] | None = None,
        restored: bool = False,
        attempt: int = 0,
    ) -> None:
        self.connection = connection
        self.user = user
        self.namespace = namespace
        self.sessions = sessions
        self.refused = refused
        self.returned = returned or {}
        self.until = 0
        self.attempt = attempt
        self.restored = restored

    # -- as plain data, for a store -------------------------------------------------------------------------------

    def to_mapping(self) -> dict[str, Any]:
        """The state that must survive a restart, as plain data."""
        return {
            "connection": self.connection,
            "user": self.user,
            "namespace": self.namespace,
            "sessions": [[number, *progress] for number, progress in self.sessions.items()],
            "refused": [list(refusal) for refusal in self.refused],
        }

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Memory:
        """The reverse of :meth:`to_mapping`."""
        return cls(
            data["connection"],
            data["user"],
            data["namespace"],
            {number: (sent, settled) for number, sent, settled in data["sessions"]},
            tuple((session, sequence, code, text) for session, sequence, code, text in data["refused"]),
            restored=True,
        )

    # -- for the client -------------------------------------------------------------------------------------------

    def settle(self, report: Report, now: int) -> dict[int, Survived]:
        """The client has come back, and reports on the messages that were delivered to it. A message that waits for it
        and of which it states nothing returns without an attempt: the client has survived it.

        Args:
            now: ms since 1970.

        Returns:
            Messages that waited and returned so, by consumer.
        """
        survived: dict[int, Survived] = {}
        for consumer_id, (source, held, transacted, _, party) in self.returned.items():
            seen, acknowledged = report.handed.get(consumer_id), 0 if transacted else report.done.get(consumer_id, 0)
            after, failed = report.failed.get(consumer_id, (0, 0))
            source.settle_returned([each for each in held if each.tag <= acknowledged])
            if failed:
                after = max(after, acknowledged)
                back = [each for each in held if after < each.tag <= failed]
                source.fail_returned(back, now, PLAIN.by(party, consumer_id))
            if seen is not None:
                source.unmark([each for each in held if each.tag > max(seen, acknowledged)], now)
            for each in source.end_wait(held, now):
                if seen is not None:
                    survived[consumer_id] = Survived(source, each._replace(attempted=False), seen, party)
        self.returned = {}
        return survived

    def forget_returned(self) -> None:
        """Messages that were delivered to it keep their marks, but for those that wait for it: one of each consumer at
        the most."""
        for consumer_id, each in tuple(self.returned.items()):
            held = [one for one in each.held if one.attempted and each.source.awaits(one.entry)]
            self.returned[consumer_id] = each._replace(held=held)

    # -- for how long ---------------------------------------------------------------------------------------------

    def keep_until(self, until: int) -> None:
        self.until = until


class LostConnections:
    """All remembered connections."""

    __slots__ = ("_by_id", "_lost", "_returned")

    def __init__(self) -> None:
        self._by_id: dict[str, Memory] = {}
        self._lost: Shares[str] = Shares()
        self._returned: Shares[str] = Shares()  # connections with messages, by their number

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, connection_id: str) -> bool:
        return connection_id in self._by_id

    def number_in(self, namespace: str) -> int:
        """How many are of this namespace."""
        return sum([memory.namespace == namespace for memory in self._by_id.values()])

    def get(self, connection_id: str) -> Memory | None:
        """The memory of a lost connection; None if there is none. It is kept."""
        return self._by_id.get(connection_id)

    def remember(self, memory: Memory, until: int, broker: Broker) -> None:
        """Remember a lost connection.

        Args:
            until: when it may be forgotten; ms since 1970 without the offset of a test's clock.
            broker: where the temporary destinations of those are that are forgotten for it.
        """
        memory.keep_until(until)
        self._by_id[memory.connection] = memory
        self._lost.add(memory.user, memory.connection)
        held = sum(returned.messages for returned in memory.returned.values())
        if held:
            self._returned.add(memory.user, memory.connection, held)
        while self._returned.total > MAX_RETURNED:
            user, connection_id = self._returned.first_to_go()
            self._returned.discard(user, connection_id)
            self._by_id[connection_id].forget_returned()
        while self._lost.total > MAX_LOST:
            self._forget(self._lost.first_to_go()[1], broker)

    def restore(self, records: Iterable[Mapping[str, Any]], until: int, broker: Broker) -> None:
        """Restore what a store has kept across a restart."""
        for record in records:
            self.remember(Memory.from_mapping(record), until, broker)

    def take(self, connection_id: str, user: str | None, namespace: str) -> Memory | None:
        """Take the memory of a client that comes back. None if there is none, or only of another user or in another
        namespace."""
        memory = self._by_id.get(connection_id)
        if memory is None or memory.user != user or memory.namespace != namespace:
            return None
        self._drop(memory)
        return memory

    def expire(self, broker: Broker, real: int) -> None:
        """Forget connections whose time is over, and delete their temporary destinations (TMP-06).

        Args:
            real: ms since 1970 without the offset of a test's clock.
        """
        for connection_id in [i for i, memory in self._by_id.items() if memory.until <= real]:
            self._forget(connection_id, broker)

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms: the times for which connections are remembered keep their
        length."""
        for memory in self._by_id.values():
            memory.keep_until(memory.until + by)

    def _forget(self, connection_id: str, broker: Broker) -> None:
        memory = self._by_id[connection_id]
        self._drop(memory)
        namespace = broker.namespaces.get(memory.namespace)
        if namespace is not None:
            broker.scheduler.start(
                connection_id, partial(namespace.temporaries.delete_all, connection_id), 0, later=True
            )

    def _drop(self, memory: Memory) -> None:
        del self._by_id[memory.connection]
        self._lost.discard(memory.user, memory.connection)
        self._returned.discard(memory.user, memory.connection)
