"""What clients need from the I/O layer: ids, credentials, the time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.domain.broker import Broker
from sievemq_broker.server.credentials.authenticator import Authenticator
from sievemq_broker.server.credentials.sign_ins import NO_RIGHT, Door
from sievemq_broker.session.lost import LostConnections
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.ports import Services, SignIn
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.settings import AuthenticationError, SessionSettings
from sievemq_core.errors import SieveError
from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.cache import MAX_CHARS

if TYPE_CHECKING:  # in memory there is no database
    from sievemq_broker.server.placement import Placement

log = logs.get("server")

#: Selectors remembered, so that their warnings are logged once.
_MAX_ADVISED = 1_024

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # nothing that people confuse; 32 letters, 5 bits each


def new_incarnation() -> str:
    """A name for one run of a broker. 50 random bits: two brokers of a test run never share message ids."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(10))


class ServerServices(Services[Peer]):
    """Services of a broker with sockets.

    Args:
        settings: what connections announce; its `incarnation` begins every connection id.
        clock: the broker's time.
        authenticator: knows the users that may connect.
        spent: True once a client has had its time in this turn of the loop.
        run: which run of a broker that keeps its name this is.
        placement: where namespaces are; None if all are here.
    """

    def __init__(
        self,
        settings: SessionSettings,
        clock: Clock,
        authenticator: Authenticator,
        spent: Callable[[], bool],
        broker: Broker,
        lost: LostConnections,
        run: str = "",
        placement: Placement | None = None,
    ) -> None:
        super().__init__(settings)
        self.broker = broker
        self.lost = lost
        self.clock_offset = clock.offset  # a clock that was moved before: the first client must learn it, too
        self._clock = clock
        self._authenticator = authenticator
        self.spent = spent
        #: Stores the progress of a client with the next write, where the broker is durable.
        self._on_progress: Callable[[Peer], None] = lambda peer: None
        self._run = run
        self._placement = placement
        self._last_id = 0
        self._late: set[str] = set()  # connections with a dropped reply that was logged
        self._advised: set[str] = set()  # canonical selectors whose warnings were logged

    def connection_id(self) -> str:
        """Incarnation, run and a counter: short, since every message id carries it."""
        self._last_id += 1
        return f"{self.settings.incarnation}{self._run}-{self._last_id}"

    def authenticate(
        self,
        peer: Peer,
        user: str | None,
        password: str | None,
        later: Callable[[Identity | AuthenticationError, int], None],
    ) -> Identity | None:
        """Who this is; see :class:`~sievemq_broker.server.credentials.authenticator.Authenticator`."""
        known = peer.member.identity.user  # it has signed in before its first frame
        if not user and known is not None and (certified := self._authenticator.certified(known, _door(peer))):
            return certified
        found = self._authenticator.begin(user, password, _door(peer))
        if isinstance(found, Identity):
            return found

        def identified(done: asyncio.Future[Identity]) -> None:
            if done.cancelled():  # the broker stops; so does the connection
                return
            error = done.exception()
            if error is not None and not isinstance(error, AuthenticationError):
                self.report(peer, "checking a password", error)
                error = AuthenticationError("the password could not be checked; the broker's log has the reason")
            later(done.result() if error is None else error, self.now())

        found.add_done_callback(identified)
        return None

    def place(
        self, peer: Peer, namespace: str, instead: str, later: Callable[[str | SieveError, int], None]
    ) -> str | None:
        """See :class:`~sievemq_broker.server.placement.Placement`."""
        placement = self._placement
        if placement is None:
            return super().place(peer, namespace, instead, later)
        return placement.enter(namespace, instead, peer.out.protocol, peer.port, lambda found: later(found, self.now()))

    def scram(self, peer: Peer) -> SignIn | None:
        """A sign-in by SCRAM-SHA-256."""
        return self._authenticator.scram(_door(peer))

    def not_entitled(self, peer: Peer, user: str | None) -> None:
        self._authenticator.sign_ins.note(NO_RIGHT, _door(peer), user)

    def now(self) -> int:
        return self._clock.now()

    @property
    def frozen_at(self) -> int | None:
        return self._clock.frozen_at

    def note_with(self, on_progress: Callable[[Peer], None]) -> None:
        self._on_progress = on_progress

    def note_progress(self, client: Peer) -> None:
        self._on_progress(client)

    def report(self, peer: Peer, doing: str, error: BaseException) -> None:
        log.fault("connection.failed", error, peer=peer.address or "unknown", doing=doing)

    def advise(self, peer: Peer, destination: str, selector: CompiledSelector) -> None:
        """Log the warnings of a selector, once. Its text stays out of the log: it may hold confidential data.

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
        for warning in warnings:
            log.warning(
                "selector.doubtful",
                destination=destination,
                peer=peer.address or "unknown",
                warning=warning.code,
                text=warning.message,
                names=",".join(sorted(selector.facts.names)),
            )

    def drop_replies(self, peer: Peer, destination: str, messages: int) -> None:
        """Log messages to a temporary destination that is gone, once for each connection; the metric counts all."""
        super().drop_replies(peer, destination, messages)
        if peer.member.id not in self._late:
            if len(self._late) >= _MAX_ADVISED:
                self._late.clear()
            self._late.add(peer.member.id)
            log.info(
                "reply.dropped",
                destination=destination,
                peer=peer.address or "unknown",
                note="the temporary destination is gone; further ones of this connection are only counted",
            )

    def drifted(self, milliseconds: int) -> None:
        """While the clock is frozen, clients' clocks run on: record this time as a difference of which they are not
        informed yet.

        So a message stamped by a client is corrected to the time at which the broker's clock is frozen."""
        self.clock_offset += milliseconds
        for peer in self.connections.values():
            peer.clock_drifted(milliseconds)


def _door(peer: Peer) -> Door:
    return Door(peer.out.protocol, peer.port, peer.host)
