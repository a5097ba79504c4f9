"""The handler of each verb, and the right that it needs.

A client without limits (every client, if security is off) has the plain handlers, at no cost. A limited user's have a
check in front. A SEND then costs one look-up in the set of destinations that were allowed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sievemq_broker.session.checks import require_there
from sievemq_broker.session.handlers.consumers import (
    on_close_consumer,
    on_credit,
    on_open_consumer,
    on_release,
    on_want,
)
from sievemq_broker.session.handlers.destinations import (
    on_browse,
    on_create_temporary,
    on_declare,
    on_delete_temporary,
    on_unsubscribe,
)
from sievemq_broker.session.handlers.handshake import (
    on_clock_seen,
    on_goodbye,
    on_heartbeat,
    on_hello,
    on_ping,
    on_set_client_id,
)
from sievemq_broker.session.handlers.messages import (
    on_acknowledge,
    on_acknowledge_all,
    on_acknowledge_several,
    on_close_session,
    on_commit,
    on_open_session,
    on_recover,
    on_rollback,
    on_send,
    on_settle,
    on_withdraw,
)
from sievemq_broker.session.handlers.taps import (
    on_acknowledge_tap,
    on_delete_tap,
    on_discard,
    on_fetch_tap,
    on_look_tap,
    on_open_tap,
    on_publish,
    on_stage,
)
from sievemq_broker.session.peer import Handler, Peer, SendHandler, Table, Verbs
from sievemq_broker.session.rights import Verb, forbidden
from sievemq_broker.session.sends import refuse
from sievemq_core.errors import AddressError, RequestError
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import Command

Check = Callable[[Peer, CommandTuple], None]

_C = Command
#: All verbs except SEND, which is :func:`on_send`.
HANDLERS: dict[int, Handler] = {
    _C.HEARTBEAT: on_heartbeat,
    _C.HELLO: on_hello,
    _C.SET_CLIENT_ID: on_set_client_id,
    _C.GOODBYE: on_goodbye,
    _C.PING: on_ping,
    _C.OPEN_SESSION: on_open_session,
    _C.CLOSE_SESSION: on_close_session,
    _C.OPEN_CONSUMER: on_open_consumer,
    _C.CLOSE_CONSUMER: on_close_consumer,
    _C.DECLARE: on_declare,
    _C.CREATE_TEMPORARY: on_create_temporary,
    _C.DELETE_TEMPORARY: on_delete_temporary,
    _C.UNSUBSCRIBE: on_unsubscribe,
    _C.BROWSE: on_browse,
    _C.ACKNOWLEDGE: on_acknowledge,
    _C.ACKNOWLEDGE_ALL: on_acknowledge_all,
    _C.CREDIT: on_credit,
    _C.WANT: on_want,
    _C.RELEASE: on_release,
    _C.RECOVER: on_recover,
    _C.COMMIT: on_commit,
    _C.ROLLBACK: on_rollback,
    _C.CLOCK_SEEN: on_clock_seen,
    _C.ACKNOWLEDGE_SEVERAL: on_acknowledge_several,
    _C.WITHDRAW: on_withdraw,
    _C.SETTLE: on_settle,
    _C.OPEN_TAP: on_open_tap,
    _C.LOOK_TAP: on_look_tap,
    _C.FETCH_TAP: on_fetch_tap,
    _C.ACKNOWLEDGE_TAP: on_acknowledge_tap,
    _C.DELETE_TAP: on_delete_tap,
    _C.STAGE: on_stage,
    _C.PUBLISH: on_publish,
    _C.DISCARD: on_discard,
}

#: Verbs that need no right: they concern the connection itself, or what it was allowed to open or has created.
OPEN = frozenset(
    {
        Command.HEARTBEAT,
        Command.HELLO,  # checks the user, and for any right in the namespace
        Command.SET_CLIENT_ID,
        Command.GOODBYE,
        Command.PING,
        Command.OPEN_SESSION,
        Command.CLOSE_SESSION,
        Command.CLOSE_CONSUMER,
        Command.CREATE_TEMPORARY,  # belongs to the connection, and ends with it (TMP-05)
        Command.DELETE_TEMPORARY,  # the domain allows only its owner
        Command.ACKNOWLEDGE,
        Command.ACKNOWLEDGE_ALL,
        Command.ACKNOWLEDGE_SEVERAL,
        Command.CREDIT,
        Command.WANT,
        Command.RELEASE,
        Command.RECOVER,
        Command.COMMIT,  # staged sends were checked when they were sent
        Command.ROLLBACK,
        Command.CLOCK_SEEN,
        Command.WITHDRAW,
        Command.SETTLE,
        # The right that a tap needs depends on its mode: handlers/taps.py checks it.
        Command.OPEN_TAP,
        Command.LOOK_TAP,
        Command.FETCH_TAP,
        Command.ACKNOWLEDGE_TAP,
        Command.DELETE_TAP,
        Command.STAGE,  # staged sends were checked when they were sent
        Command.PUBLISH,  # and are checked there again
        Command.DISCARD,
    }
)


def _require(peer: Peer, verb: Verb, text: str) -> None:
    """Raise unless the client's user may do it there. The handler refuses names that are no destination."""
    try:
        own = peer.is_own(text)
    except AddressError:
        return
    if not own:
        peer.identity.require(verb, peer.namespace.name, text)


def _declare(peer: Peer, command: CommandTuple) -> None:
    # DECLARE checks whether it exists, and clients use it to ask where they may send. Any right will do, but a user who
    # may only view it may not create it.
    text = command[2]
    try:
        _require(peer, Verb.VIEW, text)
    except RequestError:  # worded as what the client was about to do
        raise forbidden(peer.identity, Verb.SEND, peer.namespace.name, text) from None
    require_there(peer.identity, peer.namespace, text)


def _open_consumer(peer: Peer, command: CommandTuple) -> None:
    _require(peer, Verb.CONSUME, command[4])
    if command[8] is not None:
        # Opening a subscription on another topic ends the old one (SUB-22): that needs the right on both.
        _subscription(peer, command[8])


def _unsubscribe(peer: Peer, command: CommandTuple) -> None:
    _subscription(peer, command[2])


def _subscription(peer: Peer, name: str) -> None:
    subscriptions, key = peer.namespace.subscriptions, (peer.client_id, name)
    for found in (subscriptions.durable.get(key), subscriptions.shared.get(key)):
        if found is not None:
            _require(peer, Verb.CONSUME, found.topic.label)


def _browse(peer: Peer, command: CommandTuple) -> None:
    _require(peer, Verb.BROWSE, command[2])


#: The check before each command. SEND is not here: its refusal is an answer of its own.
CHECKS: Mapping[int, Check] = {
    Command.OPEN_CONSUMER: _open_consumer,
    Command.DECLARE: _declare,
    Command.UNSUBSCRIBE: _unsubscribe,
    Command.BROWSE: _browse,
}


def make_table(send: SendHandler, others: Mapping[int, Handler]) -> Table:
    """Make a table of these handlers.

    Args:
        send: for SEND.
        others: for the other verbs.
    """
    limited = {
        number: _behind(CHECKS[number], handler) if number in CHECKS else handler for number, handler in others.items()
    }
    return Table(Verbs(send, others), Verbs(_send_behind(send), limited))


def _behind(check: Check, handler: Handler) -> Handler:
    def handle(peer: Peer, command: CommandTuple, now: int) -> None:
        check(peer, command)
        handler(peer, command, now)

    return handle


def _send_behind(handler: SendHandler) -> SendHandler:
    def handle(peer: Peer, commands: list[CommandTuple], at: int, now: int) -> int:
        _, session_id, sequence, text, _ = commands[at]
        if text not in peer.allowed:
            try:
                _require(peer, Verb.SEND, text)
            except RequestError as error:
                session = peer.sessions.get(session_id)
                if session is not None and session.is_next(sequence):
                    refuse(peer, session, error)
                    return 1
                # a closed session, or a send out of order: the handler refuses it
            else:
                peer.allow(text)
        return handler(peer, commands, at, now)

    return handle


TABLE = make_table(on_send, HANDLERS)
"""The handlers of all verbs, for every protocol."""
