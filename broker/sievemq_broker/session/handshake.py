"""The first command of a connection: who is it, which version, which namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sievemq_broker.session.checks import check_identifier, pairs
from sievemq_broker.session.services import AuthenticationError
from sievemq_core.errors import ErrorCode, ProtocolError, SieveError
from sievemq_core.harmless import harmless
from sievemq_core.limits import MAX_PROPERTIES_BYTES, MIN_HEARTBEAT_MS
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_broker.session.resume import Memory
    from sievemq_broker.session.rights import Identity

__all__ = ["OLDEST_VERSION", "on_hello", "welcome"]

OLDEST_VERSION = 1

_MAX_ID_CHARS = 64
_ID_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def on_hello(connection: BrokerConnection, command: tuple[Any, ...], now: int) -> None:
    """Find out who it is; WELCOME follows at once, or when the rim knows (:meth:`BrokerConnection.identified`).

    Raises:
        ProtocolError: the connection is refused; the code says why.
        AuthenticationError: the credentials are wrong, or there is no right in that namespace.
    """
    _, version, _, user, password, *_ = command
    if version < OLDEST_VERSION:
        raise ProtocolError(
            f"protocol version {version} is not spoken here; versions {OLDEST_VERSION} to {PROTOCOL_VERSION} are",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    identity = connection.services.authenticate(connection, user, password)
    if identity is None:
        connection.hello = (*command[:4], None, *command[5:])  # the password is needed no more
    else:
        welcome(connection, identity, command, now)


def welcome(connection: BrokerConnection, identity: Identity, command: tuple[Any, ...], now: int) -> None:
    """Answer the HELLO of somebody who is known now.

    Raises:
        ProtocolError, AuthenticationError: as :func:`on_hello`.
    """
    _, version, namespace, _, _, client_id, heartbeat, agent, resume, options = command
    services, settings = connection.services, connection.settings
    try:
        if namespace:
            check_identifier("a namespace", namespace)
        if not identity.rights.enters(namespace):
            raise AuthenticationError(
                f"user {identity.user!r} has no right in namespace {namespace or 'default'!r}; "
                "an administrator can grant one"
            )
        connection.entitle(identity)
        connection.namespace = connection.broker.namespace(namespace or "default")
        connection.agent = harmless(agent[:200])
        connection.keep = min(_number(options.get("keep")), settings.keep_ms)
        connection.outbox.several = options.get("deliver_several") is True
        memory = None
        if resume is None:
            connection.id = services.connection_id()
        else:
            memory = take_place(connection, resume, options, now)
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
            "properties_bytes": MAX_PROPERTIES_BYTES,
            "sessions": settings.max_sessions,
            "consumers": settings.max_consumers,
            "temporaries": settings.max_temporaries,
            "staged_bytes": settings.staged_bytes,
            "subscriptions": connection.broker.settings.max_subscriptions,
            "connections": settings.max_connections,
        },
        {
            "durable": settings.durable,
            "dialect": settings.dialect,
            "clock_offset": services.clock_offset,
            "resumed": False if memory is None else memory.as_feature(),
            "acknowledge_several": True,
        },
    )
    connection.welcomed(now)


def take_place(connection: BrokerConnection, resume: str, options: dict[str, Any], now: int) -> Memory | None:
    """Let a connection go on where another one was lost: with its id, and with what is remembered of it.

    If the broker still believes that one alive, it is ended first, so that its client id and its messages are free.
    Only for the same user in the same namespace; anybody else's wish is passed over.

    Args:
        connection: the new one; it is given its id here.
        resume: id of the lost one.
        options: of HELLO; `handed` and `done` tell of its deliveries, `ids` the last session and consumer id it used.
        now: ms since 1970.

    Returns:
        What was remembered; None if nothing was.
    """
    services = connection.services
    user, namespace = connection.identity.user, connection.namespace
    handed, done = _pairs(options.get("handed")), _pairs(options.get("done"))
    lost = services.connections.get(resume)
    if lost is not None and lost.identity.user == user and lost.namespace is namespace:
        lost.take_acknowledgements(done, now)
        lost.handed = handed
        lost.keep = max(lost.keep, 1)
        lost.close(ErrorCode.HEARTBEAT_MISSED, "its client has come back on another connection", now)
    connection.broker.finish_leaving(now, resume)
    memory = services.lost.take(resume, user, namespace.name)
    if memory is not None or _may_be_kept(connection, resume):
        connection.id = resume
    else:
        connection.id = services.connection_id()
    connection.resumed = True
    # Commands for what it had there may still be on their way here: they are passed over.
    ids = options.get("ids")
    if type(ids) is tuple and len(ids) == 2:
        connection.highest_session, connection.highest_consumer = map(_number, ids)
    if memory is not None:
        memory.settle(handed, done, now)
        connection.before, connection.refused_before = memory.sessions, memory.refused
        connection.temporaries = namespace.temporaries.count(resume)
    return memory


def _may_be_kept(connection: BrokerConnection, resume: str) -> bool:
    """True if a connection that this broker does not remember may keep its id: it was given by another incarnation, so
    nobody else can have it, and its messages and temporary destinations go by it.

    Not for a user who is limited: ids are no secret, every message carries one, and whoever took that of somebody else
    would be sent the replies to their requests.
    """
    services = connection.services
    return (
        connection.identity.rights.unlimited
        and 0 < len(resume) <= _MAX_ID_CHARS
        and _ID_CHARS.issuperset(resume)
        and not resume.startswith(services.settings.incarnation)
        and resume not in services.connections
        and resume not in services.lost
    )


def _number(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _pairs(flat: object) -> dict[int, int]:
    """consumer -> tag, from what a HELLO says; nothing if that is no list of pairs."""
    if type(flat) is not tuple or len(flat) % 2 or any(type(number) is not int for number in flat):
        return {}
    return pairs(flat)
