"""What the session layer needs from the rim around it: ids, credentials, a clock, a nudge to write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sievemq_broker.session.resume import LostConnections
from sievemq_broker.session.rights import Identity
from sievemq_core.errors import ErrorCode, SieveError
from sievemq_core.limits import (
    FRAME_TIMEOUT_MS,
    HANDSHAKE_TIMEOUT_MS,
    HEARTBEAT_MS,
    MAX_BODY_BYTES,
    MAX_CONSUMERS,
    MAX_FRAME_BYTES,
    MAX_SESSIONS,
)

if TYPE_CHECKING:
    from sievemq_broker.domain.broker import Broker
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_core.selector import CompiledSelector

__all__ = ["AuthenticationError", "Identity", "Services", "SessionSettings"]


class AuthenticationError(SieveError):
    """The credentials of a HELLO are not accepted; the connection ends (D-38)."""

    code = ErrorCode.AUTHENTICATION


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Limits and names that one broker announces and enforces; none goes past :mod:`sievemq_core.limits`.

    Args:
        broker: name and version, for WELCOME.
        incarnation: changes with every start of a broker that kept nothing.
        durable: PERSISTENT messages survive a restart (D-18).
        dialect: selector dialect of consumers that name none.
        frame_bytes: largest frame accepted.
        body_bytes: largest body accepted.
        window_messages: sends that a client may have unconfirmed.
        window_bytes: the same in bytes.
        heartbeat_ms: after which the broker wants to hear something; 0 for never.
        handshake_ms: a peer may take for its HELLO.
        frame_ms: a peer may take for one frame; 0 for any time.
        max_connections: of the broker; the rim keeps it.
        max_sessions: sessions of one connection.
        max_consumers: consumers of one session.
        max_temporaries: temporary destinations of one connection.
        staged_bytes: the open transactions of one connection may hold (packed envelopes).
        page_messages: most messages in one page of BROWSE, whatever the client asks for.
        outbox_high: waiting output above which the connection's consumers count as having no credit.
        keep_ms: the longest that a lost connection is remembered, if its client wants it to be.
    """

    broker: str = "SieveMQ"
    incarnation: str = ""
    durable: bool = False
    dialect: str = "jakarta"
    frame_bytes: int = MAX_FRAME_BYTES
    body_bytes: int = MAX_BODY_BYTES
    window_messages: int = 10_000
    window_bytes: int = 32 * 1024 * 1024
    heartbeat_ms: int = HEARTBEAT_MS
    handshake_ms: int = HANDSHAKE_TIMEOUT_MS
    frame_ms: int = FRAME_TIMEOUT_MS
    max_connections: int = 10_000
    max_sessions: int = MAX_SESSIONS
    max_consumers: int = MAX_CONSUMERS
    max_temporaries: int = 10_000
    staged_bytes: int = 256 * 1024 * 1024
    page_messages: int = 1_000
    outbox_high: int = 1024 * 1024
    keep_ms: int = 10 * 60 * 1000


def _never() -> bool:
    """There is time for everything."""
    return False


class Services(ABC):
    """One per broker; the rim implements it, a test implements it in a few lines.

    Args:
        settings: what every connection announces and enforces.
    """

    def __init__(self, settings: SessionSettings | None = None) -> None:
        self.settings = settings or SessionSettings()
        #: Open connections (past HELLO) by id. The session layer keeps it; rims and management read it.
        self.connections: dict[str, BrokerConnection] = {}
        #: Those that were lost and may come back.
        self.lost = LostConnections()
        #: Milliseconds by which a test moved the clock; part of every `now`. Change it with :meth:`move_clock`.
        self.clock_offset = 0
        #: When that was, on the machine's clock: milliseconds since 1970 without the offset.
        self.moved_at = 0
        #: Which limit keeps the broker from taking sends; None while there is none. Change it with :meth:`flow`.
        self.blocked: str | None = None
        #: Where senders wait then; set by whoever makes both.
        self.broker: Broker | None = None
        #: Asked after each command of several: True if the others are to wait, since the connection has had its time
        #: (:attr:`BrokerConnection.behind`). A rim may set it.
        self.spent: Callable[[], bool] = _never

    @abstractmethod
    def connection_id(self) -> str:
        """A new id, unique over all incarnations of the broker, without ``.`` and ``:`` (it is part of addresses)."""

    @abstractmethod
    def authenticate(self, connection: BrokerConnection, user: str | None, password: str | None) -> Identity | None:
        """Who this is.

        Args:
            connection: that has said HELLO.
            user: as whom.
            password: in clear.

        Returns:
            None if that takes a while: :meth:`BrokerConnection.identified` is told then, from the same thread.

        Raises:
            AuthenticationError: the credentials are not accepted.
        """

    @abstractmethod
    def now(self) -> int:
        """Milliseconds since 1970, the clock's offset included: the same clock that `now` arguments come from."""

    @abstractmethod
    def wake(self, connection: BrokerConnection) -> None:
        """Output appeared for a connection that is not being fed: call its ``data_to_send`` soon, not from here."""

    @abstractmethod
    def report(self, connection: BrokerConnection, doing: str, error: BaseException) -> None:
        """An error that is the broker's own fault ended `connection`. Log it with its traceback.

        Args:
            connection: the one that ends; all others go on.
            doing: what was being done, for people.
            error: the exception.
        """

    def advise(  # noqa: B027  # nothing has to be done
        self, connection: BrokerConnection, destination: str, selector: CompiledSelector
    ) -> None:
        """A consumer was opened whose selector is legal and hardly meant. A rim may log that.

        Args:
            connection: whose consumer it is.
            destination: the address.
            selector: with warnings.
        """

    @property
    def standing(self) -> bool:
        """True while time stands still (test clocks only): no deadline comes by itself."""
        return False

    def move_clock(self, offset: int) -> None:
        """Tell every client that the clock now runs `offset` milliseconds ahead (test clocks only)."""
        self.clock_offset = offset
        self.moved_at = self.now() - offset
        for connection in tuple(self.connections.values()):
            connection.clock_moved()

    def flow(self, blocked: str | None) -> None:
        """Take no sends anywhere, or go on.

        Args:
            blocked: for people, which limit is reached; None to go on.
        """
        if blocked == self.blocked:
            return
        self.blocked = blocked
        if self.broker is not None:
            self.broker.set_over(blocked)
        for connection in tuple(self.connections.values()):
            connection.flow_changed()
