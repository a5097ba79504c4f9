"""The limits and names that one broker announces to every client and enforces, whatever protocol it speaks."""

from __future__ import annotations

from dataclasses import dataclass

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
        incomplete_bytes: messages of one connection whose end has not arrived may have together; a single one may
            have any size. 0 for no limit.
        window_messages: sends that a client may have unconfirmed.
        window_bytes: the same in bytes.
        heartbeat_ms: after which the broker expects a frame; 0 for never.
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
        shard: name of the group of namespaces that the broker serves.
        peers: ``host:port`` of the brokers of which one owns the shard at a time, as clients reach them.
    """

    broker: str = "SieveMQ"
    incarnation: str = ""
    durable: bool = False
    dialect: str = "jakarta"
    frame_bytes: int = MAX_FRAME_BYTES
    body_bytes: int = MAX_BODY_BYTES
    incomplete_bytes: int = MAX_FRAME_BYTES
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
    shard: str = "main"
    peers: tuple[str, ...] = ()
