"""What the session layer asks of the rim: ids, credentials, the time, and a nudge to write."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from sievemq_broker import logs
from sievemq_broker.session.services import AuthenticationError, Identity, Services, SessionSettings
from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.cache import MAX_CHARS

if TYPE_CHECKING:
    from sievemq_broker.clock import Clock
    from sievemq_broker.domain.broker import Broker
    from sievemq_broker.server.credentials.authenticator import Authenticator
    from sievemq_broker.server.net.link import Links
    from sievemq_broker.server.net.turn import Turn
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_broker.session.resume import LostConnections

__all__ = ["ServerServices", "new_incarnation"]

log = logs.get("server")

#: Selectors remembered, so that their warnings are logged once.
_MAX_ADVISED = 1_024

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # nothing that people confuse; 32 letters, 5 bits each


def new_incarnation() -> str:
    """A name for one run of a broker. 50 random bits: two brokers of a test run never share message ids."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(10))


class ServerServices(Services):
    """Services of a broker with sockets.

    Args:
        settings: what connections announce; its `incarnation` begins every connection id.
        clock: the broker's time.
        authenticator: knows who may come in.
        links: the open links.
        turn: ends the loop's turn.
        broker: the domain.
        lost: connections that may come back.
        run: which run of a broker that keeps its name this is.
    """

    def __init__(
        self,
        settings: SessionSettings,
        clock: Clock,
        authenticator: Authenticator,
        links: Links,
        turn: Turn,
        broker: Broker,
        lost: LostConnections,
        run: str = "",
    ) -> None:
        super().__init__(settings)
        self.broker = broker
        self.lost = lost
        self.clock_offset = clock.offset  # a clock that was moved before: the first client must learn it, too
        self._clock = clock
        self._authenticator = authenticator
        self._links = links
        self._turn = turn
        self.spent = turn.spent
        self._last_id = 0
        self._run = run
        self._advised: set[str] = set()  # canonical selectors whose warnings were logged

    def connection_id(self) -> str:
        """Incarnation, run and a counter: short, since every message id carries it."""
        self._last_id += 1
        return f"{self.settings.incarnation}{self._run}-{self._last_id}"

    def authenticate(self, connection: BrokerConnection, user: str | None, password: str | None) -> Identity | None:
        """Who this is; see :class:`~sievemq_broker.server.credentials.authenticator.Authenticator`."""
        found = self._authenticator.begin(user, password, connection.peer.rpartition(":")[0].strip("[]"))
        if isinstance(found, Identity):
            return found
        found.add_done_callback(lambda done: self._identified(connection, done))
        return None

    def _identified(self, connection: BrokerConnection, done: asyncio.Future[Identity]) -> None:
        if done.cancelled():  # the broker stops; so does the connection
            return
        error = done.exception()
        if error is not None and not isinstance(error, AuthenticationError):
            self.report(connection, "checking a password", error)
            error = AuthenticationError("the password could not be checked; the broker's log says why")
        connection.identified(done.result() if error is None else error, self.now())

    def now(self) -> int:
        """The broker's time."""
        return self._clock.now()

    @property
    def standing(self) -> bool:
        return self._clock.frozen_at is not None

    def wake(self, connection: BrokerConnection) -> None:
        """Write for this connection at the end of the turn."""
        link = self._links.of(connection)
        if link is not None:
            self._turn.mark(link)

    def report(self, connection: BrokerConnection, doing: str, error: BaseException) -> None:
        """Log a fault of the broker."""
        link = self._links.of(connection)
        log.fault("connection.failed", error, peer=link.peer if link else "unknown", doing=doing)

    def advise(self, connection: BrokerConnection, destination: str, selector: CompiledSelector) -> None:
        """Log the warnings of a selector, once. Its text stays out of the log: it may hold what nobody should read.

        Those of a very long one are left to `sievemq selector check`: finding them takes longer than a turn may.
        """
        if len(selector.text) > MAX_CHARS:
            return
        warnings = selector.warnings
        if not warnings or selector.canonical in self._advised:
            return
        if len(self._advised) >= _MAX_ADVISED:
            self._advised.clear()
        self._advised.add(selector.canonical)
        link = self._links.of(connection)
        for warning in warnings:
            log.warning(
                "selector.doubtful",
                destination=destination,
                peer=link.peer if link else "unknown",
                warning=warning.code,
                text=warning.message,
                names=",".join(sorted(selector.facts.names)),
            )

    def drifted(self, milliseconds: int) -> None:
        """While the clock stands still, clients' clocks run on: count that as time they have not seen yet.

        So a message stamped by a client is corrected to the moment at which the broker's clock stands.
        """
        self.clock_offset += milliseconds
        for connection in self.connections.values():
            connection.clock_drifted(milliseconds)
