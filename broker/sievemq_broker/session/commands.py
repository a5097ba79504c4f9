"""What the broker does for each command of a client: one function per command, one table. Those about consumers,
destinations, sends, settlement and taps are in modules of those names.

Each takes the connection, the command tuple exactly as long as its row in ``wire/commands.py`` says, and `now`.
Whatever leaves a handler decides what happens to the connection:

- ``ProtocolError``: the client broke the protocol; a fatal ERROR, the connection ends;
- any other ``SieveError``: this request is refused, nothing was changed, the connection goes on;
- anything else is the broker's own fault: reported, answered INTERNAL, and only this connection ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from sievemq_broker.session.checks import handed_to, pairs, the_session
from sievemq_broker.session.consumers import on_close_consumer, on_credit, on_open_consumer, on_release, on_want
from sievemq_broker.session.destinations import (
    on_browse,
    on_create_temporary,
    on_declare,
    on_delete_temporary,
    on_unsubscribe,
)
from sievemq_broker.session.handshake import on_hello
from sievemq_broker.session.leaving import closing
from sievemq_broker.session.sends import on_send, on_withdraw
from sievemq_broker.session.session import Session, SessionMode
from sievemq_broker.session.settlement import (
    on_acknowledge,
    on_acknowledge_all,
    on_acknowledge_several,
    on_commit,
    on_recover,
    on_rollback,
)
from sievemq_broker.session.taps import (
    on_acknowledge_tap,
    on_delete_tap,
    on_discard,
    on_fetch_tap,
    on_look_tap,
    on_open_tap,
    on_publish,
    on_stage,
)
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, shown
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection

__all__ = ["HANDLERS", "Handler"]

Handler: TypeAlias = Callable[["BrokerConnection", CommandTuple, int], None]


# -- the connection ---------------------------------------------------------------------------------------------------


def on_heartbeat(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Hearing it was all it was for."""


def on_set_client_id(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Claim a client id; one live connection holds it (CON-05, SUB-31). A refused claim leaves none (CON-10)."""
    _, request, client_id = command
    if connection.client_id is not None:
        raise RequestError(
            f"this connection has the client id {connection.client_id!r} already (CON-07)", ErrorCode.ILLEGAL_STATE
        )
    connection.claim_client_id(client_id)
    connection.answer(request)


def on_goodbye(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Close everything in order, answer, end (CLO-02)."""
    _, request, handed = command
    if any(session.committing for session in connection.sessions.values()):
        connection.wait_for_publishing(command)  # what was said before is answered before
    else:
        connection.end(now, pairs(handed), request)


def on_ping(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Answered after everything before it."""
    connection.flush_confirms()
    connection.answer(command[1])


def on_clock_seen(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Times in envelopes from here on include this offset (test clocks only)."""
    offset = command[1]
    if type(offset) is not int:
        raise ProtocolError(f"CLOCK_SEEN.offset must be an integer, not {shown(offset)}")
    connection.clock_seen = offset
    connection.clock_lag = connection.services.clock_offset - offset


# -- sessions and consumers -------------------------------------------------------------------------------------------


def on_open_session(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Open a session (CON-02)."""
    _, request, session_id, mode, sent = command
    if session_id in connection.sessions:
        raise RequestError(f"session {session_id} is open already; ids are not reused", ErrorCode.ILLEGAL_STATE)
    connection.highest_session = max(connection.highest_session, session_id)
    if mode > 3:
        raise RequestError(f"session mode {mode} is none of 0, 1, 2, 3", ErrorCode.ILLEGAL_STATE)
    limit = connection.settings.max_sessions
    if len(connection.sessions) >= limit:
        raise RequestError(
            f"a connection may have {limit} sessions; close those that are done", ErrorCode.RESOURCE_ALLOCATION
        )
    session = connection.sessions[session_id] = Session(session_id, SessionMode(mode), connection.staged)
    if connection.resumed:  # it may have had a life on the connection that was lost
        known, session.settled = connection.before.pop(session_id, (0, 0))
        session.sent = max(sent, known)
        if session.sent:
            session.unconfirmed = True
            connection.unconfirmed.append(session)
    connection.answer(request)


def on_close_session(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Close a session and its consumers; an open transaction is rolled back (TXN-05). Answered when all that it held
    has come back, which takes some turns where that is very much."""
    _, _, session_id, handed = command
    session = the_session(connection, session_id)
    if session.committing and connection.wait_for_publishing(command):
        return
    seen = handed_to(connection, session, handed)
    if session.stall is not None:
        session.stall.end()
    connection.confirm(session, session.sent)
    connection.let_go(session)
    connection.broker.begin_leaving(connection.id, closing(connection, session, now, seen, command))


_C = Command
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
    _C.SEND: on_send,
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
    _C.OPEN_TAP: on_open_tap,
    _C.LOOK_TAP: on_look_tap,
    _C.FETCH_TAP: on_fetch_tap,
    _C.ACKNOWLEDGE_TAP: on_acknowledge_tap,
    _C.DELETE_TAP: on_delete_tap,
    _C.STAGE: on_stage,
    _C.PUBLISH: on_publish,
    _C.DISCARD: on_discard,
}
