"""Rights of a connection whose user is limited: one check in front of each command that names a destination.

A connection of somebody who may do everything (all of them, where security is off) has the plain table of handlers and
pays nothing. That of a limited user has :func:`guarded` handlers; a SEND then costs one look-up in a set of the
destinations that were allowed before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sievemq_broker.session.rights import Identity, Verb, forbidden
from sievemq_core.errors import AddressError, RequestError
from sievemq_core.message.destination import parse_address
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq_broker.domain.namespace import Namespace
    from sievemq_broker.session.commands import Handler
    from sievemq_broker.session.connection import BrokerConnection

__all__ = ["CHECKS", "OPEN", "guarded", "is_own", "require_there"]

Check = Callable[["BrokerConnection", tuple[Any, ...]], None]

#: Rights with which a destination is made on first use.
_USES = (Verb.SEND, Verb.CONSUME, Verb.MANAGE)

#: Destinations remembered as allowed, per connection.
_MAX_ALLOWED = 4_096

#: Commands that need no right: they concern the connection itself, or what it was allowed to open or made itself.
OPEN = frozenset(
    {
        Command.HEARTBEAT,
        Command.HELLO,  # who comes in is decided there, and whether there is any right in the namespace
        Command.SET_CLIENT_ID,
        Command.GOODBYE,
        Command.PING,
        Command.OPEN_SESSION,
        Command.CLOSE_SESSION,
        Command.CLOSE_CONSUMER,
        Command.CREATE_TEMPORARY,  # belongs to the connection, and ends with it (TMP-05)
        Command.DELETE_TEMPORARY,  # the domain lets only its owner
        Command.ACKNOWLEDGE,
        Command.ACKNOWLEDGE_ALL,
        Command.ACKNOWLEDGE_SEVERAL,
        Command.CREDIT,
        Command.WANT,
        Command.RELEASE,
        Command.RECOVER,
        Command.COMMIT,  # what is staged was checked when it was sent
        Command.ROLLBACK,
        Command.CLOCK_SEEN,
        Command.WITHDRAW,
        # Which right a tap needs depends on its mode: session/taps.py asks.
        Command.OPEN_TAP,
        Command.LOOK_TAP,
        Command.FETCH_TAP,
        Command.ACKNOWLEDGE_TAP,
        Command.DELETE_TAP,
        Command.STAGE,  # what is staged was checked when it was sent
        Command.PUBLISH,  # and is checked again there
        Command.DISCARD,
    }
)


_TABLES: dict[int, tuple[Mapping[int, Handler], dict[int, Handler]]] = {}


def guarded(handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
    """A table of handlers with the checks in front; the same one for the same handlers.

    Args:
        handlers: what is done once a command is allowed.
    """
    made = _TABLES.get(id(handlers))
    if made is None:
        table = dict(handlers)
        for number, check in CHECKS.items():
            if number in table:
                table[number] = _behind(check, table[number])
        table[Command.SEND] = _send_behind(table[Command.SEND])
        made = _TABLES[id(handlers)] = handlers, table  # holds the handlers, so that their id stays theirs
    return made[1]


def is_own(connection: BrokerConnection, text: str) -> bool:
    """True for a temporary destination of this connection: it may do anything with that."""
    return parse_address(text).owner == connection.id


def _behind(check: Check, handler: Handler) -> Handler:
    def handle(connection: BrokerConnection, command: tuple[Any, ...], now: int) -> None:
        check(connection, command)
        handler(connection, command, now)

    return handle


def _send_behind(handler: Handler) -> Handler:
    def handle(connection: BrokerConnection, command: tuple[Any, ...], now: int) -> None:
        text = command[3]
        allowed = connection.allowed
        if text not in allowed:
            try:
                _require(connection, Verb.SEND, text)
            except RequestError as error:
                session = connection.sessions.get(command[1])
                if session is not None and command[2] == session.sent + 1 and session.stall is None:
                    session.sent = command[2]
                    connection.refuse_send(session, command[2], error)
                    return
                # a closed session, or a send out of turn: the handler says so
            else:
                if len(allowed) >= _MAX_ALLOWED:
                    allowed.clear()
                allowed.add(text)
        handler(connection, command, now)

    return handle


def _require(connection: BrokerConnection, verb: Verb, text: str) -> None:
    """Raise unless the connection's user may do it there. What names no destination is the handler's to refuse."""
    try:
        own = is_own(connection, text)
    except AddressError:
        return
    if not own:
        connection.identity.require(verb, connection.namespace.name, text)


def _declare(connection: BrokerConnection, command: tuple[Any, ...]) -> None:
    # A look at whether it is there; it is also how a client asks where it may send. Any right on it will do, except
    # that who may only look does not have it made.
    text = command[2]
    try:
        _require(connection, Verb.VIEW, text)
    except RequestError:  # said as what the client was about to do
        raise forbidden(connection.identity, Verb.SEND, connection.namespace.name, text) from None
    require_there(connection.identity, connection.namespace, text)


def require_there(identity: Identity, namespace: Namespace, text: str) -> None:
    """Go on only if a destination is there, or may be made by this user: who may only look does not have it made.

    Raises:
        RequestError: SECURITY.
    """
    if not any(identity.may(verb, namespace.name, text) for verb in _USES):
        try:
            missing = namespace.find(text) is None
        except AddressError:
            return
        if missing:
            raise forbidden(identity, Verb.SEND, namespace.name, text)


def _open_consumer(connection: BrokerConnection, command: tuple[Any, ...]) -> None:
    _require(connection, Verb.CONSUME, command[4])
    if command[8] is not None:
        # Opening a subscription on another topic ends the one it was (SUB-22): that takes the right on both.
        _subscription(connection, command[8])


def _unsubscribe(connection: BrokerConnection, command: tuple[Any, ...]) -> None:
    _subscription(connection, command[2])


def _subscription(connection: BrokerConnection, name: str) -> None:
    subscriptions, key = connection.namespace.subscriptions, (connection.client_id, name)
    for found in (subscriptions.durable.get(key), subscriptions.shared.get(key)):
        if found is not None:
            _require(connection, Verb.CONSUME, found.topic.label)


def _browse(connection: BrokerConnection, command: tuple[Any, ...]) -> None:
    _require(connection, Verb.BROWSE, command[2])


#: What is asked before a command is carried out. SEND is not here: its refusal is an answer of its own.
CHECKS: Mapping[int, Check] = {
    Command.OPEN_CONSUMER: _open_consumer,
    Command.DECLARE: _declare,
    Command.UNSUBSCRIBE: _unsubscribe,
    Command.BROWSE: _browse,
}
