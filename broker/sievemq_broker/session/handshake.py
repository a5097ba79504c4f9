"""The first command of a connection: who is it, which version, which namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sievemq_broker.session.checks import check_identifier
from sievemq_broker.session.services import AuthenticationError
from sievemq_core.errors import ErrorCode, ProtocolError, SieveError
from sievemq_core.limits import MIN_HEARTBEAT_MS
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection

__all__ = ["OLDEST_VERSION", "on_hello"]

OLDEST_VERSION = 1


def on_hello(connection: BrokerConnection, command: tuple[Any, ...], now: int) -> None:
    """Answer HELLO with WELCOME.

    Raises:
        ProtocolError: the connection is refused; the code says why.
    """
    _, version, namespace, user, password, client_id, heartbeat, agent, resume, _options = command
    services, settings = connection.services, connection.settings
    if version < OLDEST_VERSION:
        raise ProtocolError(
            f"protocol version {version} is not spoken here; versions {OLDEST_VERSION} to {PROTOCOL_VERSION} are",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    try:
        connection.identity = services.authenticate(user, password)
        if namespace:
            check_identifier("a namespace", namespace)
        connection.namespace = connection.broker.namespace(namespace or "default")
        connection.id = services.connection_id()
        connection.agent = agent[:200]
        resumed = resume is not None and take_place(connection, resume, now)
        if client_id is not None:
            connection.claim_client_id(client_id)
    except AuthenticationError:
        raise
    except SieveError as error:
        # There is no request to refuse: whatever is wrong with a HELLO ends the connection.
        raise ProtocolError(error.text, error.code, error.details) from error
    services.connections[connection.id] = connection
    if heartbeat:
        heartbeat = max(heartbeat, MIN_HEARTBEAT_MS)
    connection.wire.set_heartbeat(settings.heartbeat_ms, heartbeat)
    connection.outbox.send(
        Command.WELCOME,
        # A newer client is answered in the newest version known here, and decides whether it can speak that.
        min(version, PROTOCOL_VERSION),
        settings.broker,
        settings.incarnation,
        connection.id,
        settings.heartbeat_ms,
        {
            "frame_bytes": settings.frame_bytes,
            "body_bytes": settings.body_bytes,
            "window_messages": settings.window_messages,
            "window_bytes": settings.window_bytes,
        },
        {
            "durable": settings.durable,
            "dialect": settings.dialect,
            "clock_offset": services.clock_offset,
            "resumed": resumed,
        },
    )
    connection.welcomed(now)


def take_place(connection: BrokerConnection, resume: str, now: int) -> bool:
    """End the half-dead connection that the client has lost, so that its client id and its messages are free at once.

    Only for the same user in the same namespace; anybody else's wish is passed over.
    """
    lost = connection.services.connections.get(resume)
    if lost is None or lost.identity != connection.identity or lost.namespace is not connection.namespace:
        return False
    lost.close(ErrorCode.HEARTBEAT_MISSED, "its client has come back on another connection", now)
    return True
