"""The handler of each verb, and the right that it needs.

A client without limits (every client, if security is off) has the plain handlers, at no cost. A limited user's have a
check in front. A SEND then costs one look-up in the set of destinations that were allowed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from sievemq_broker.session import verbs
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
    on_find_destinations,
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

Check: TypeAlias = Callable[[Peer, Any], None]
CommandT = TypeVar("CommandT", bound=verbs.NamedCommand)


def _row(verb: type[CommandT], handler: Callable[[Peer, CommandT, int], None]) -> tuple[int, Handler]:
    return verb.number, handler


#: All verbs except SEND, which is :func:`on_send`.
HANDLERS: dict[int, Handler] = {
    Command.ACKNOWLEDGE: on_acknowledge,
    Command.CREDIT: on_credit,
    **dict(
        [
            _row(verbs.Heartbeat, on_heartbeat),
            _row(verbs.Hello, on_hello),
            _row(verbs.SetClientId, on_set_client_id),
            _row(verbs.Goodbye, on_goodbye),
            _row(verbs.Ping, on_ping),
            _row(verbs.OpenSession, on_open_session),
            _row(verbs.CloseSession, on_close_session),
            _row(verbs.OpenConsumer, on_open_consumer),
            _row(verbs.CloseConsumer, on_close_consumer),
            _row(verbs.Declare, on_declare),
            _row(verbs.CreateTemporary, on_create_temporary),
            _row(verbs.DeleteTemporary, on_delete_temporary),
            _row(verbs.Unsubscribe, on_unsubscribe),
            _row(verbs.Browse, on_browse),
            _row(verbs.AcknowledgeAll, on_acknowledge_all),
            _row(verbs.Want, on_want),
            _row(verbs.Release, on_release),
            _row(verbs.Recover, on_recover),
            _row(verbs.Commit, on_commit),
            _row(verbs.Rollback, on_rollback),
            _row(verbs.ClockSeen, on_clock_seen),
            _row(verbs.AcknowledgeSeveral, on_acknowledge_several),
            _row(verbs.Withdraw, on_withdraw),
            _row(verbs.Settle, on_settle),
            _row(verbs.OpenTap, on_open_tap),
            _row(verbs.LookTap, on_look_tap),
            _row(verbs.FetchTap, on_fetch_tap),
            _row(verbs.AcknowledgeTap, on_acknowledge_tap),
            _row(verbs.DeleteTap, on_delete_tap),
            _row(verbs.Stage, on_stage),
            _row(verbs.Publish, on_publish),
            _row(verbs.Discard, on_discard),
            _row(verbs.FindDestinations, on_find_destinations),
        ]
    ),
}

#: Verbs that need no right: they concern the connection itself, or what it was allowed to open or has created.
UNRESTRICTED = frozenset(
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
        Command.FIND_DESTINATIONS,  # the answer has what the user may browse or consume
    }
)


def _require(peer: Peer, verb: Verb, text: str) -> None:
    """Raise unless the client's user may do it there. The handler refuses names that are no destination."""
    try:
        own = peer.member.is_own(text)
    except AddressError:
        return
    if not own:
        peer.member.identity.require(verb, peer.namespace.name, text)


def _declare(peer: Peer, command: verbs.Declare) -> None:
    # DECLARE checks whether it exists, and clients use it to ask where they may send. Any right will do, but a user who
    # may only view it may not create it.
    text = command.destination
    try:
        _require(peer, Verb.VIEW, text)
    except RequestError:  # worded as what the client was about to do
        raise forbidden(peer.member.identity, Verb.SEND, peer.namespace.name, text) from None
    require_there(peer.member.identity, peer.namespace, text)


def _open_consumer(peer: Peer, command: verbs.OpenConsumer) -> None:
    _require(peer, Verb.CONSUME, command.destination)
    if command.subscription is not None:
        # Opening a subscription on another topic ends the old one (SUB-22): that needs the right on both.
        _subscription(peer, command.subscription)


def _unsubscribe(peer: Peer, command: verbs.Unsubscribe) -> None:
    _subscription(peer, command.subscription)


def _subscription(peer: Peer, name: str) -> None:
    subscriptions, key = peer.namespace.subscriptions, (peer.member.client_id, name)
    for found in (subscriptions.durable.get(key), subscriptions.shared.get(key)):
        if found is not None:
            _require(peer, Verb.CONSUME, found.topic.label)


def _browse(peer: Peer, command: verbs.Browse) -> None:
    _require(peer, Verb.BROWSE, command.destination)


#: The check before each command. SEND is not here: its refusal is an answer of its own.
CHECKS: Mapping[int, Check] = {
    Command.OPEN_CONSUMER: _open_consumer,
    Command.DECLARE: _declare,
    Command.UNSUBSCRIBE: _unsubscribe,
    Command.BROWSE: _browse,
}


def make_table(send: SendHandler, others: Mapping[int, Handler]) -> Table:
    limited = {
        number: _behind(CHECKS[number], handler) if number in CHECKS else handler for number, handler in others.items()
    }
    return Table(Verbs(send, others), Verbs(_send_behind(send), limited))


def _behind(check: Check, handler: Handler) -> Handler:
    def handle(peer: Peer, command: Any, now: int) -> None:
        check(peer, command)
        handler(peer, command, now)

    return handle


def _send_behind(handler: SendHandler) -> SendHandler:
    def handle(peer: Peer, commands: list[CommandTuple], at: int, now: int) -> int:
        _, session_id, sequence, text, _ = commands[at]
        if text not in peer.member.allowed:
            try:
                _require(peer, Verb.SEND, text)
            except RequestError as error:
                session = peer.sessions.get(session_id)
                if session is not None and session.is_next(sequence):
                    refuse(peer, session, error, text)
                    return 1
                # a closed session, or a send out of order: the handler refuses it
            else:
                peer.member.allow(text)
        return handler(peer, commands, at, now)

    return handle


TABLE: Table = make_table(on_send, HANDLERS)
"""The handlers of all verbs, for every protocol."""
