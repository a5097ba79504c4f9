"""What the broker does for the commands that settle what a session was handed and sent: acknowledgement, recovery,
transactions; one function each, as in commands.py."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sievemq_broker.domain.publishing import Publishing, begin, is_large
from sievemq_broker.session.checks import handed_to, the_session, too_much_credit
from sievemq_broker.session.pending import Pending
from sievemq_broker.session.session import Session
from sievemq_broker.session.stall import Stall
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError
from sievemq_core.limits import MAX_CREDIT
from sievemq_core.wire.codec import CommandTuple

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.room import Limited
    from sievemq_broker.session.connection import BrokerConnection

__all__ = ["on_acknowledge", "on_acknowledge_all", "on_acknowledge_several", "on_commit", "on_recover", "on_rollback"]


def on_acknowledge(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
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


def on_acknowledge_several(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """The same for several consumers, without credit: a topic's subscribers may be many, with a message each."""
    numbers = command[1]
    if len(numbers) & 1:
        raise ProtocolError(f"ACKNOWLEDGE_SEVERAL lists pairs of consumer and tag, not {len(numbers)} numbers")
    consumers, owners, retired = connection.consumers, connection.owners, connection.retired
    flat = iter(numbers)
    for consumer_id, tag in zip(flat, flat, strict=True):
        consumer = consumers.get(consumer_id)
        if consumer is None:
            connection.check_once_open(consumer_id)
        elif tag and owners[consumer_id].transaction is None and consumer_id not in retired:
            consumer.acknowledge(tag, now)
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


def on_acknowledge_all(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Everything that the session's consumers were handed is consumed (ACK-05)."""
    _, request, session_id, handed = command
    session = the_session(connection, session_id)
    if session.transaction is not None:
        raise RequestError("a transacted session acknowledges by commit (TXN-13)", ErrorCode.ILLEGAL_STATE)
    session.acknowledge(handed_to(connection, session, handed), now)
    session.settled = request
    connection.forget_settled(session)
    connection.answer(request)


def on_recover(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """What was handed and not acknowledged comes again (ACK-08)."""
    _, request, session_id, handed = command
    session = the_session(connection, session_id)
    if session.transaction is not None:
        raise RequestError("a transacted session has rollback, not recover (ACK-12)", ErrorCode.ILLEGAL_STATE)
    session.recover(handed_to(connection, session, handed), now)
    connection.forget_settled(session)
    connection.answer(request)


def on_commit(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Publish and acknowledge, all or nothing (TXN-10). A large one takes some turns; whether it can be done is decided
    in the first of them, and the answer comes when all can see it."""
    session = the_session(connection, command[2])
    transaction = session.transaction
    if transaction is None:
        raise RequestError("this session is not transacted: there is nothing to commit (TXN-08)",
                           ErrorCode.ILLEGAL_STATE)  # fmt: skip
    if transaction.staged and transaction.doom is None and session.stall is None and not session.committing:
        examining = connection.namespace.examining(transaction.staged, together=True)
        if examining is not None:
            publish = partial(connection.carry_out_late, command, handler=_publish)
            connection.go_on_with(Pending(examining, command, publish, 0), now)
            return
    _publish(connection, command, now)


def _publish(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """The rest of a COMMIT: selectors have been asked about its messages."""
    _, request, session_id, handed = command
    session = the_session(connection, session_id)
    transaction = session.transaction
    assert transaction is not None
    large = is_large(connection.namespace, transaction.staged)
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
    connection: BrokerConnection, session: Session, command: CommandTuple, publishing: Publishing, now: int
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


def on_rollback(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
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
