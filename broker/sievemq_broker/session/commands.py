"""What the broker does for each command of a client: one function per command, one table.

Each takes the connection, the command tuple exactly as long as its row in ``wire/commands.py`` says, and `now`.
Whatever leaves a handler decides what happens to the connection:

- ``ProtocolError``: the client broke the protocol; a fatal ERROR, the connection ends;
- any other ``SieveError``: this request is refused, nothing was changed, the connection goes on;
- anything else is the broker's own fault: reported, answered INTERNAL, and only this connection ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from sievemq_broker.domain.publishing import AT_ONCE, Publishing, begin
from sievemq_broker.session.checks import (
    check_identifier,
    check_message,
    handed_to,
    pairs,
    shift_times,
    the_selector,
    the_session,
    too_much_credit,
    undelivered,
    unknown,
)
from sievemq_broker.session.handshake import on_hello
from sievemq_broker.session.leaving import closing
from sievemq_broker.session.page import pack_page
from sievemq_broker.session.session import Session, SessionMode
from sievemq_broker.session.stall import Stall
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
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError
from sievemq_core.limits import MAX_CREDIT, MAX_HEADER_CHARS
from sievemq_core.message.envelope import BODY_KIND, DELIVERY_MODE, TIMESTAMP, BodyKind, Envelope
from sievemq_core.message.headers import PERSISTENT
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.room import Limited
    from sievemq_broker.session.connection import BrokerConnection

__all__ = ["HANDLERS", "Handler"]

CommandFields: TypeAlias = tuple[Any, ...]
Handler: TypeAlias = Callable[["BrokerConnection", CommandFields, int], None]

_LAST_KIND = int(max(BodyKind))
_MAX_CONSUMER_ID = 2**32 - 1  # as wide as the head of a DELIVER is
_LAST_FIRST_TAG = 2**62  # leaves more than can ever be delivered

# A few bytes of BROWSE ask for half a MiB: thousands of them in one read must not be answered from memory all at once.
_UNREAD_PAGES = 64 * 1024 * 1024
_MAX_WANTS = 100  # a client waits once per consumer and thread; who asks more often has lost count

# -- the connection ---------------------------------------------------------------------------------------------------


def on_heartbeat(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Hearing it was all it was for."""


def on_set_client_id(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Claim a client id; one live connection holds it (CON-05, SUB-31). A refused claim leaves none (CON-10)."""
    _, request, client_id = command
    if connection.client_id is not None:
        raise RequestError(
            f"this connection has the client id {connection.client_id!r} already (CON-07)", ErrorCode.ILLEGAL_STATE
        )
    connection.claim_client_id(client_id)
    connection.answer(request)


def on_goodbye(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Close everything in order, answer, end (CLO-02)."""
    _, request, handed = command
    if any(session.committing for session in connection.sessions.values()):
        connection.wait_for_publishing(command)  # what was said before is answered before
    else:
        connection.end(now, pairs(handed), request)


def on_ping(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Answered after everything before it."""
    connection.flush_confirms()
    connection.answer(command[1])


def on_clock_seen(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Times in envelopes from here on include this offset (test clocks only)."""
    offset = command[1]
    if type(offset) is not int:
        raise ProtocolError(f"CLOCK_SEEN.offset must be an integer, not {offset!r}")
    connection.clock_seen = offset
    connection.clock_lag = connection.services.clock_offset - offset


# -- sessions and consumers -------------------------------------------------------------------------------------------


def on_open_session(connection: BrokerConnection, command: CommandFields, now: int) -> None:
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


def on_close_session(connection: BrokerConnection, command: CommandFields, now: int) -> None:
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


def on_open_consumer(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Open a consumer: everything is verified before anything is made (SES-20, SES-34)."""
    (_, request, session_id, consumer_id, destination, selector, dialect, no_local, subscription, durable, shared,
     credit, tag) = command  # fmt: skip
    if consumer_id > _MAX_CONSUMER_ID:
        raise RequestError(f"a consumer's id has 32 bits; {consumer_id} does not fit", ErrorCode.ILLEGAL_STATE)
    connection.highest_consumer = max(connection.highest_consumer, consumer_id)
    session = the_session(connection, session_id)
    if consumer_id in connection.consumers:
        raise RequestError(f"consumer {consumer_id} is open already; ids are not reused", ErrorCode.ILLEGAL_STATE)
    limit = connection.settings.max_consumers
    if len(session.consumers) >= limit:
        raise RequestError(
            f"a session may have {limit} consumers; close those that are done", ErrorCode.RESOURCE_ALLOCATION
        )
    if credit > MAX_CREDIT:
        raise RequestError(f"a consumer may have a credit of {MAX_CREDIT}, not {credit}", ErrorCode.RESOURCE_ALLOCATION)
    if tag > _LAST_FIRST_TAG:
        raise RequestError(f"tags cannot begin behind {tag}: they have 64 bits", ErrorCode.ILLEGAL_STATE)
    compiled = the_selector(connection, selector, dialect)
    if subscription is not None:
        check_identifier("a subscription's name", subscription)
    elif durable or shared:
        raise RequestError("a durable or shared consumer needs a subscription name", ErrorCode.ILLEGAL_STATE)
    consumer = connection.namespace.open_consumer(
        connection.outbox,
        consumer_id,
        destination,
        compiled,
        connection=connection.id,
        client_id=connection.client_id,
        no_local=no_local,
        subscription=subscription,
        durable=durable,
        shared=shared,
        credit=0,
        now=now,
    )
    if tag:
        consumer.go_on_behind(tag)
    session.consumers[consumer_id] = connection.consumers[consumer_id] = consumer
    connection.owners[consumer_id] = session
    connection.answer(request)
    if compiled is not None:
        connection.services.advise(connection, destination, compiled)
    # After the answer, so that no client meets a delivery for a consumer it does not know to exist.
    if credit:
        consumer.grant(credit, now)


def on_close_consumer(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Close a consumer. What the application has seen stays the session's (MCO-09), the rest goes back (MCO-10)."""
    _, request, consumer_id, handed = command
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer_id in connection.retired:
        if consumer_id > connection.highest_consumer:
            raise unknown("consumer", consumer_id)
        connection.answer(request)  # the broker closed it first (CLO-01)
        return
    if handed > consumer.tag:
        raise undelivered(consumer_id, handed, consumer.tag)
    connection.want_settled(consumer_id)
    consumer.close(handed, now)
    if consumer.unacknowledged:
        connection.retired.add(consumer_id)
    else:
        connection.forget_consumers((consumer_id,))
    connection.answer(request)


def on_credit(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Grant credit."""
    _, consumer_id, credit = command
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        connection.check_once_open(consumer_id)
    elif credit:
        if credit > MAX_CREDIT:
            raise too_much_credit(consumer_id, credit)
        consumer.grant(credit, now)


def on_want(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Somebody waits at an empty buffer (D-23). Answered now, or when the domain says settled."""
    _, request, consumer_id = command
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer_id in connection.retired:
        connection.check_once_open(consumer_id)
        if request:
            connection.answer(request)  # nothing will come: the same answer as from an empty queue
        return
    waiting = connection.wants.get(consumer_id)
    if waiting is not None and len(waiting) >= _MAX_WANTS:
        raise RequestError(
            f"consumer {consumer_id} has {_MAX_WANTS} WANTs that are not answered yet", ErrorCode.RESOURCE_ALLOCATION
        )
    # Without an answer to wait for it may be patient; not while time stands still, which patience is measured by.
    patient = not request and not connection.services.standing
    settled = consumer.want(now, patient, brief=request != 0)
    if request:
        if settled:
            connection.answer(request)
        else:
            connection.wants.setdefault(consumer_id, []).append(request)


def on_release(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Buffered messages come back to their old place, unmarked; also the answer to a RECALL."""
    _, consumer_id, tags = command
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        connection.check_once_open(consumer_id)
    else:
        consumer.release(tags, now)


# -- destinations -----------------------------------------------------------------------------------------------------


def on_declare(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Can this be sent to? (SES-18)"""
    _, request, destination = command
    connection.namespace.declare(destination, connection.id)
    connection.answer(request)


def on_create_temporary(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Make a temporary destination of this connection (TMP-01, TMP-05)."""
    _, request, topic, again = command
    limit = connection.settings.max_temporaries
    if connection.temporaries >= limit:
        raise RequestError(
            f"a connection may have {limit} temporary destinations; delete those that are done",
            ErrorCode.RESOURCE_ALLOCATION,
        )
    address = connection.namespace.temporaries.create(connection.id, topic, again)
    connection.temporaries = connection.namespace.temporaries.count(connection.id)
    connection.answer(request, str(address))


def on_delete_temporary(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Delete a temporary destination of this connection (TMP-07)."""
    _, request, destination = command
    connection.namespace.temporaries.delete(destination, connection.id)
    connection.temporaries -= 1
    connection.answer(request)


def on_unsubscribe(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Delete a durable subscription (SES-27)."""
    _, request, name = command
    connection.namespace.unsubscribe(connection.client_id, name)
    connection.answer(request)


def on_browse(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """A page of a queue (BRW-03); with a limit of 0 only queue and selector are verified."""
    _, request, destination, selector, dialect, cursor, limit = command
    if connection.wait_for_publishing(command):
        return
    if connection.wire.pending_bytes > _UNREAD_PAGES:
        raise RequestError(
            f"{connection.wire.pending_bytes} bytes of answers wait to be written to this connection; "
            "read them before browsing on",
            ErrorCode.RESOURCE_ALLOCATION,
        )
    compiled = the_selector(connection, selector, dialect)
    limit = min(limit, connection.settings.page_messages)
    cursor, page = connection.namespace.browse(destination, compiled, cursor, limit, now)
    connection.send_packed(pack_page(request, cursor, page))


# -- messages ---------------------------------------------------------------------------------------------------------


def on_send(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Take a message: on to its destination, or staged in a transaction (TXN-02)."""
    _, session_id, sequence, text, fields = command
    session = connection.sessions.get(session_id)
    if session is None:
        connection.send_to_closed(session_id, sequence)
        return
    if sequence != session.sent + 1 or session.stall is not None:
        if connection.resumed and sequence <= session.sent:
            return  # said on the lost connection or on its way to this one twice: it has been carried out
        if session.passes_over(sequence):
            return  # its client says it again
        if sequence != session.sent + 1:
            raise ProtocolError(
                f"SEND {sequence} in session {session_id} where {session.sent + 1} is due", ErrorCode.UNEXPECTED_COMMAND
            )
    session.sent = sequence
    full = None
    try:
        if connection.clock_lag and connection.sent_after_move(fields[TIMESTAMP]):
            fields = shift_times(fields, connection.clock_lag)
        envelope = Envelope(fields)
        if len(envelope.packed) > MAX_HEADER_CHARS or fields[BODY_KIND] > _LAST_KIND:  # else nothing can be too long
            check_message(fields, connection.settings.body_bytes)
            connection.hurry = True  # few of these fill a window of bytes
        transaction = session.transaction
        if transaction is None:
            full = connection.namespace.send(text, envelope, now, connection.id)
        elif transaction.doom is None:
            connection.namespace.declare(text, connection.id)
            transaction.stage(text, envelope)
    except SieveError as error:
        connection.refuse_send(session, sequence, error)
    else:
        if not session.unconfirmed:
            session.unconfirmed = True
            connection.unconfirmed.append(session)
        if fields[DELIVERY_MODE] == PERSISTENT:
            connection.hurry = True
        if full is not None:
            session.sent = sequence - 1
            connection.confirm(session, session.sent)
            Stall.hold_send(connection, session, full, text, envelope)


def on_withdraw(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Take back what waits for room. Answered when it is known: a send has been confirmed by then, or is not taken any
    more, whenever it is said again."""
    _, request, session_id, sequence = command
    session = connection.sessions.get(session_id)
    if session is None:
        if session_id > connection.highest_session:
            raise unknown("session", session_id)
    elif not sequence:
        if session.stall is not None:
            session.stall.withdraw_commit(now)
    elif sequence == session.sent + 1:
        error = RequestError("its sender has withdrawn it", ErrorCode.RESOURCE_ALLOCATION)
        if session.stall is not None and session.stall.envelope is not None:
            session.stall.go_on(error)
        else:
            session.sent = sequence
            connection.refuse_send(session, sequence, error)
    elif sequence <= session.sent:
        connection.confirm(session, session.sent)
    elif not session.passes_over(sequence):
        raise ProtocolError(
            f"WITHDRAW {sequence} in session {session_id} where {session.sent + 1} is due", ErrorCode.UNEXPECTED_COMMAND
        )
    if request:
        connection.answer(request)


def on_acknowledge(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Everything up to a tag is consumed (ACK-01, ACK-03), and credit comes with it."""
    _, consumer_id, tag, credit = command
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        connection.check_once_open(consumer_id)
        return
    if tag:
        _acknowledge(connection, consumer, tag, now)
    if credit:
        if credit > MAX_CREDIT:
            raise too_much_credit(consumer_id, credit)
        consumer.grant(credit, now)


def on_acknowledge_several(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """The same for several consumers, without credit: a topic's subscribers may be many, with a message each."""
    numbers = command[1]
    if len(numbers) & 1:
        raise ProtocolError(f"ACKNOWLEDGE_SEVERAL lists pairs of consumer and tag, not {len(numbers)} numbers")
    consumers = connection.consumers
    flat = iter(numbers)
    for consumer_id, tag in zip(flat, flat, strict=True):
        consumer = consumers.get(consumer_id)
        if consumer is None:
            connection.check_once_open(consumer_id)
        elif tag:
            _acknowledge(connection, consumer, tag, now)


def _acknowledge(connection: BrokerConnection, consumer: Consumer, tag: int, now: int) -> None:
    consumer_id = consumer.id
    if connection.owners[consumer_id].transaction is not None:
        raise ProtocolError(
            f"ACKNOWLEDGE for consumer {consumer_id} of a transacted session; only COMMIT acknowledges there",
            ErrorCode.UNEXPECTED_COMMAND,
        )
    consumer.acknowledge(tag, now)
    if consumer_id in connection.retired and not consumer.unacknowledged:
        connection.forget_consumers((consumer_id,))


def on_acknowledge_all(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Everything that the session's consumers were handed is consumed (ACK-05)."""
    _, request, session_id, handed = command
    session = the_session(connection, session_id)
    if session.transaction is not None:
        raise RequestError("a transacted session acknowledges by commit (TXN-13)", ErrorCode.ILLEGAL_STATE)
    session.acknowledge(handed_to(connection, session, handed), now)
    session.settled = request
    connection.forget_settled(session)
    connection.answer(request)


def on_recover(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """What was handed and not acknowledged comes again (ACK-08)."""
    _, request, session_id, handed = command
    session = the_session(connection, session_id)
    if session.transaction is not None:
        raise RequestError("a transacted session has rollback, not recover (ACK-12)", ErrorCode.ILLEGAL_STATE)
    session.recover(handed_to(connection, session, handed), now)
    connection.forget_settled(session)
    connection.answer(request)


def on_commit(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Publish and acknowledge, all or nothing (TXN-10). A large one takes some turns; whether it can be done is decided
    in the first of them, and the answer comes when all can see it."""
    _, request, session_id, handed = command
    session = the_session(connection, session_id)
    transaction = session.transaction
    if transaction is None:
        raise RequestError("this session is not transacted: there is nothing to commit (TXN-08)",
                           ErrorCode.ILLEGAL_STATE)  # fmt: skip
    large = len(transaction.staged) > AT_ONCE
    if (large or session.committing) and connection.namespace.publishing is not None:
        if session.stall is None:  # else it is asked again as long as it waits for room
            session.committing = connection.wait_for_publishing(command)
        return
    seen = handed_to(connection, session, handed)
    connection.confirm(session, session.sent)  # the answer settles them all (TXN-15)
    doom = transaction.doom
    publishing: Publishing | None = None
    session.committing = False
    if doom is None:
        try:
            waited = session.stall is not None
            full: list[Limited] | None
            how = {"patient": True, "waited": waited, "acknowledges": any(seen.values())}
            if large:
                begun = begin(connection.namespace, transaction.staged, now, connection.id, **how)
                publishing, full = (begun, None) if isinstance(begun, Publishing) else (None, begun)
            else:
                full = connection.namespace.commit(transaction.staged, now, connection.id, **how)
            if full is not None:
                Stall.hold_commit(connection, session, full, command)
                return
        except SieveError as error:  # nothing was published
            doom = error
    if session.stall is not None:
        session.stall.committed()
    transaction.clear()
    if doom is not None:
        session.recover(seen, now)  # the effect of a failed commit is a rollback (TXN-09)
        connection.forget_settled(session)
        raise RequestError(
            f"the transaction was rolled back: {doom.text}",
            ErrorCode.TRANSACTION_ROLLED_BACK,
            {**doom.details, "code": int(doom.code)},
        )
    # Nothing can stop it from here on, so it is settled: whatever becomes of the connection, and where it is asked.
    session.acknowledge(seen, now)
    session.settled = request
    connection.forget_settled(session)
    if publishing is None:
        connection.answer(request)
    else:
        session.committing = True
        publishing.then(partial(_committed, connection, session, command, publishing))


def _committed(
    connection: BrokerConnection, session: Session, command: CommandFields, publishing: Publishing, now: int
) -> None:
    """All can see what a large COMMIT has published."""
    session.committing = False
    if connection.closing:
        return
    if publishing.error is not None:
        connection.crash(command, publishing.error, now)
    else:
        connection.answer(command[1])
    connection.acted()


def on_rollback(connection: BrokerConnection, command: CommandFields, now: int) -> None:
    """Forget what was sent; what was handed comes again, marked (TXN-04)."""
    _, request, session_id, handed = command
    session = the_session(connection, session_id)
    if session.transaction is None:
        raise RequestError("this session is not transacted: there is nothing to roll back (TXN-08)",
                           ErrorCode.ILLEGAL_STATE)  # fmt: skip
    if session.committing and connection.wait_for_publishing(command):
        return
    seen = handed_to(connection, session, handed)
    if session.stall is not None:
        session.stall.end()
    connection.confirm(session, session.sent)  # the answer settles them all (TXN-15)
    session.transaction.clear()
    session.recover(seen, now)
    connection.forget_settled(session)
    connection.answer(request)


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
