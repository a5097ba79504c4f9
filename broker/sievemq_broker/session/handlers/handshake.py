"""The handlers of the verbs about the connection itself: user, version, namespace; the clock, and the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from sievemq_broker.session.checks import check_identifier, pairs
from sievemq_broker.session.life import CLOSING
from sievemq_broker.session.lost import Report
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.settings import AuthenticationError
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError, shown
from sievemq_core.harmless import harmless
from sievemq_core.limits import MAX_PROPERTIES_BYTES, MIN_HEARTBEAT_MS
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import PROTOCOL_VERSION

OLDEST_VERSION = 1


def on_hello(peer: Peer, command: CommandTuple, now: int) -> None:
    """Authenticate the client. WELCOME follows at once, or when the I/O layer has the result.

    Raises:
        ProtocolError: the connection is refused; the code says why.
        AuthenticationError: the credentials are wrong, or there is no right in that namespace.
    """
    _, version, _, user, password, *_ = command
    if version < OLDEST_VERSION:
        raise ProtocolError(
            f"protocol version {version} is not supported; this broker supports {OLDEST_VERSION} to {PROTOCOL_VERSION}",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    peer.life.sign_in()
    hello = (*command[:4], None, *command[5:])  # the password is not needed any more

    def later(found: Identity | AuthenticationError, now: int) -> None:
        if peer.life.state < CLOSING:
            _identified(peer, found, hello, now)

    identity = peer.services.authenticate(peer, user, password, later)
    if identity is not None:
        _welcome(peer, identity, hello, now)


def _identified(peer: Peer, found: Identity | AuthenticationError, hello: CommandTuple, now: int) -> None:
    """The result of an authentication that took a while. Never raises: no command of the client is being carried
    out."""
    try:
        if isinstance(found, AuthenticationError):
            raise found
        _welcome(peer, found, hello, now)
    except SieveError as error:
        peer.fail(error, now)
    except Exception as error:  # the broker's own fault: other connections must go on
        peer.crash(hello, error, now)
    peer.out.wake()


def _welcome(peer: Peer, identity: Identity, hello: CommandTuple, now: int) -> None:
    """Answer the HELLO of an authenticated user.

    Raises:
        ProtocolError, AuthenticationError: as :func:`on_hello`.
    """
    _, _, namespace, _, _, _, _, agent, resume, options = hello
    with _fatal():
        if namespace:
            check_identifier("a namespace", namespace)
        peer.enter(
            identity,
            namespace,
            harmless(agent[:200]),
            _number(options.get("keep")),
            _number(options.get("attempt")),
        )
        if resume is not None:
            peer.end_lost(resume, _report(options), now)
    _begin(peer, hello, now)


def _begin(peer: Peer, hello: CommandTuple, now: int) -> None:
    """Complete the handshake, once the connections whose id and client id it takes have returned their messages."""
    _, version, _, _, _, client_id, heartbeat, _, resume, options = hello
    services, settings = peer.services, peer.settings
    holder = None if client_id is None else peer.namespace.client_ids.holder(client_id)
    for leaving in (resume, holder):
        if leaving is not None and peer.broker.is_leaving(leaving):
            peer.when_returned(leaving, hello, partial(_begin, peer, hello), now)
            return
    memory = None
    with _fatal():
        if resume is None:
            peer.begin()
        else:
            ids = options.get("ids")
            session, consumer = map(_number, ids) if type(ids) is tuple and len(ids) == 2 else (0, 0)
            memory = peer.take_place(resume, _report(options), (session, consumer), now)
        if client_id is not None:
            peer.claim_client_id(client_id)
    services.connections[peer.id] = peer
    limits = {
        "frame_bytes": settings.frame_bytes,
        "body_bytes": settings.body_bytes,
        "window_messages": settings.window_messages,
        "window_bytes": settings.window_bytes,
        "properties_bytes": MAX_PROPERTIES_BYTES,
        "sessions": settings.max_sessions,
        "consumers": settings.max_consumers,
        "temporaries": settings.max_temporaries,
        "staged_bytes": settings.staged_bytes,
        "subscriptions": peer.broker.settings.max_subscriptions,
        "connections": settings.max_connections,
    }
    features = {
        "durable": settings.durable,
        "dialect": settings.dialect,
        "time": now - services.clock_offset,
        "clock_offset": services.clock_offset,
        "frozen_at": services.frozen_at,
        "moved_at": services.moved_at,
        "resumed": False if memory is None else memory.as_feature(),
        "acknowledge_several": True,
    }
    heartbeat = max(heartbeat, MIN_HEARTBEAT_MS) if heartbeat else 0
    # A newer client is answered in the newest version known here, and decides whether it can speak that.
    peer.out.welcome(peer.id, min(version, PROTOCOL_VERSION), heartbeat, options, limits, features, now)
    peer.welcomed()


@contextmanager
def _fatal() -> Iterator[None]:
    """Make an error fatal: any error of a HELLO ends the connection, since there is no request to refuse."""
    try:
        yield
    except AuthenticationError:
        raise
    except SieveError as error:
        raise ProtocolError(error.text, error.code, error.details) from error


def on_heartbeat(peer: Peer, command: CommandTuple, now: int) -> None:
    """Do nothing: receiving it was enough."""


def on_set_client_id(peer: Peer, command: CommandTuple, now: int) -> None:
    """Claim a client id; one live connection holds it (CON-05, SUB-31). A refused claim leaves none (CON-10)."""
    _, request, client_id = command
    if peer.client_id is not None:
        raise RequestError(
            f"this connection has the client id {peer.client_id!r} already (CON-07)", ErrorCode.ILLEGAL_STATE
        )
    peer.claim_client_id(client_id)
    peer.answer(request)


def on_goodbye(peer: Peer, command: CommandTuple, now: int) -> None:
    """Close everything in order, answer, end (CLO-02)."""
    _, request, handed = command
    if any(session.committing for session in peer.sessions.values()):
        peer.wait_for_publishing(command, on_goodbye)  # earlier commands are answered first
    elif not peer.wait_for_delivery(peer.sessions.values(), command, on_goodbye, now):
        peer.leave(now, pairs(handed), request)


def on_ping(peer: Peer, command: CommandTuple, now: int) -> None:
    """Answered after everything before it, by the time of the machine."""
    peer.flush_confirms()
    peer.answer(command[1], now - peer.services.clock_offset)


def on_clock_seen(peer: Peer, command: CommandTuple, now: int) -> None:
    """Times in envelopes from here on include this offset (test clocks only)."""
    offset = command[1]
    if type(offset) is not int:
        raise ProtocolError(f"CLOCK_SEEN.offset must be an integer, not {shown(offset)}")
    peer.see_clock(offset, True)


def _number(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _report(options: Mapping[str, Any]) -> Report:
    """What a HELLO states of messages that were delivered to a lost connection."""
    flat = options.get("failed")
    failed: dict[int, tuple[int, int]] = {}
    if type(flat) is tuple and len(flat) % 3 == 0 and all(type(number) is int for number in flat):
        numbers = iter(flat)
        failed = {number: (after, last) for number, after, last in zip(numbers, numbers, numbers, strict=True)}
    return Report(_pairs(options.get("handed")), _pairs(options.get("done")), failed)


def _pairs(flat: Any) -> dict[int, int]:
    """Pairs of consumer and tag from a HELLO; empty if it has no list of pairs."""
    if type(flat) is not tuple or len(flat) % 2 or any(type(number) is not int for number in flat):
        return {}
    return pairs(flat)
