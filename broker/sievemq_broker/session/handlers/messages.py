"""The handlers of the verbs about messages: SEND and WITHDRAW, acknowledgement, recovery, transactions."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Final

from sievemq_broker.domain.admission import Limited
from sievemq_broker.domain.broker_properties import without_broker_properties
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.publishing import Publishing
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.session.checks import (
    check_message,
    failure_of,
    shift_times,
    too_much_credit,
    unknown,
    with_readable_properties,
)
from sievemq_broker.session.deliveries import Deliveries
from sievemq_broker.session.life import CLOSING
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.sends import Send, end_commit_wait, refuse, wait_to_commit
from sievemq_broker.session.session import Session
from sievemq_broker.session.transaction import Transaction
from sievemq_broker.session.verbs import (
    AcknowledgeAll,
    AcknowledgeSeveral,
    CloseSession,
    Commit,
    OpenSession,
    Recover,
    Rollback,
    Settle,
    Withdraw,
)
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError
from sievemq_core.limits import MAX_CREDIT, MAX_HEADER_CHARS
from sievemq_core.message import envelope as envelopes
from sievemq_core.message.dead_letters import MAX_ERROR_CHARS
from sievemq_core.message.destination import parse_address
from sievemq_core.message.envelope import (
    BODY_KIND,
    DELIVERY_MODE,
    DELIVERY_TIME,
    PROPERTIES,
    TIMESTAMP,
    BodyKind,
    Envelope,
    EnvelopeFields,
)
from sievemq_core.message.headers import PERSISTENT
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import Command

_SEND: Final = int(Command.SEND)
_LAST_KIND: Final = int(max(BodyKind))
_OUTCOMES: Final = frozenset(map(int, (Outcome.ACKNOWLEDGED, Outcome.FAILED, Outcome.REJECTED, Outcome.LEFT)))

#: The most deliveries of messages that are sent together: a millisecond. They may all be of one message. More at a time
#: are slower to many subscribers, whose queues leave the caches meanwhile.
_DELIVERIES: Final = 1_600

#: The cost of matching a message with selectors, for each unit (condition.units), in deliveries.
_MATCHING: Final = 8


# -- sessions ---------------------------------------------------------------------------------------------------------


def on_open_session(peer: Peer, command: OpenSession, now: int) -> None:
    """Open a session (CON-02)."""
    peer.open_session(command.session, command.mode, command.sent)
    peer.out.answer(command.request)


def on_close_session(peer: Peer, command: CloseSession, now: int) -> None:
    """Close a session and its consumers; an open transaction is rolled back (TXN-05). Answered when all of its messages
    have come back, which takes several turns if they are very many."""
    session = peer.session(command.session)
    if peer.wait_for_commit(session, command, on_close_session):
        return
    if peer.wait_for_delivery((session,), command, on_close_session, now):
        return
    peer.close_session(session, peer.deliveries.handed_to(session, command.handed), command, now)


# -- sends ------------------------------------------------------------------------------------------------------------


def on_send(peer: Peer, commands: list[CommandTuple], at: int, now: int) -> int:
    """Send messages to their destination, or stage them in a transaction (TXN-02).

    Args:
        now: ms epoch.

    Returns:
        How many commands that were: a batch, see :func:`_take_batch`.
    """
    session_id: int  # the types of fields were checked with the form of the command
    sequence: int
    text: str
    _, session_id, sequence, text, _ = commands[at]
    session = peer.sessions.get(session_id)
    if session is None:
        _refuse_closed(peer, session_id, sequence)
        return 1
    if (sequence != session.sent + 1 or session.blocked_sender is not None) and _is_skipped(peer, session, sequence):
        return 1
    transaction = session.transaction
    destination = peer.namespace.route(text)
    if transaction is None and destination is not None and (destination.index.costly or destination.large):
        destination = None
    most = 1
    if destination is not None and at + 1 < len(commands) and commands[at + 1][0] == _SEND:
        if transaction is None:
            most = max(1, _DELIVERIES // (destination.fan_out + _MATCHING * destination.index.units or 1))
        else:
            most = _DELIVERIES
    batch, urgent = _take_batch(peer, session, commands, at, most)
    if not batch:
        return 1
    if transaction is not None:
        return _stage(peer, session, transaction, text, batch, urgent)
    if peer.watcher is not None:
        for envelope in batch:
            peer.watcher.sending(peer, text, envelope, False)
    if destination is None:
        Send(peer, session, text, batch[0], urgent).begin(now)
        return 1
    peer.namespace.send_row(destination, batch, now, peer.member.id)
    peer.took(session, len(batch), urgent)  # not before: after a fault of the broker the accepted ones are confirmed
    if peer.watcher is not None:
        peer.watcher.sent(peer, text, batch, now)
    return len(batch)


def _is_skipped(peer: Peer, session: Session, sequence: int) -> bool:
    """True if a send is not the session's next one, or must wait behind one that does.

    Raises:
        ProtocolError: its client had no reason to send it.
    """
    if peer.member.resumed and sequence <= session.sent:
        return True  # a repeat of a send that was carried out, on the lost connection or this one
    if session.passes_over(sequence):
        return True  # its client repeats it
    if sequence != session.sent + 1:
        raise ProtocolError(
            f"SEND {sequence} in session {session.id} where {session.sent + 1} is due", ErrorCode.UNEXPECTED_COMMAND
        )
    return False


def _take_batch(
    peer: Peer, session: Session, commands: list[CommandTuple], at: int, most: int
) -> tuple[list[Envelope], bool]:
    """The messages of consecutive sends of one session to one destination, checked, up to one that is sent alone or is
    not valid. A single message is a batch of one.

    Args:
        at: where the first SEND stands.

    Returns:
        The messages: none if the first one was refused. And whether the client may wait for the confirm.
    """
    verb: int
    number: int
    sequence: int
    text: str
    fields: EnvelopeFields
    _, session_id, due, address, fields = commands[at]
    batch: list[Envelope] = []
    urgent = False
    read = envelopes.read_properties
    try:
        for command in islice(commands, at, at + most):
            if batch:
                verb = command[0]
                if verb != _SEND:
                    break
                _, number, sequence, text, fields = command
                if sequence != due or number != session_id or text != address:
                    break
            due += 1
            if peer.clock_lag and peer.sent_after_move(fields[TIMESTAMP]):
                fields = shift_times(fields, peer.lag_of(fields[TIMESTAMP]))
            properties = fields[PROPERTIES]
            if properties is not None and b"JMS" in properties:
                fields = without_broker_properties(fields)
            envelope = Envelope(fields)
            kind: int = fields[BODY_KIND]
            size = len(envelope.packed)
            # Short ones need no check, and their kind is known.
            if size > MAX_HEADER_CHARS or size > peer.settings.body_bytes or not 0 <= kind <= _LAST_KIND:
                urgent = True  # few of these fill a window of bytes
                check_message(fields, peer.settings.body_bytes)
            if properties is not None:
                try:
                    read(properties)
                except (ValueError, ProtocolError, RecursionError):
                    envelope = Envelope(with_readable_properties(fields))
            alone = envelope.expiration or fields[DELIVERY_TIME]
            if alone and batch:
                break
            mode: int = fields[DELIVERY_MODE]
            if mode == PERSISTENT:
                urgent = True
            batch.append(envelope)
            if alone:
                break
    except SieveError as error:
        if not batch:
            _refuse_invalid(peer, session, address, Envelope(fields), error)
    return batch, urgent


def _refuse_invalid(peer: Peer, session: Session, text: str, envelope: Envelope, error: SieveError) -> None:
    if peer.watcher is not None:
        peer.watcher.sending(peer, text, envelope, session.transaction is not None)
    refuse(peer, session, error, text)


def _stage(
    peer: Peer, session: Session, transaction: Transaction, text: str, batch: list[Envelope], urgent: bool
) -> int:
    """Stage messages, as many as there is room for. Returns how many were handled: the first is refused if it has
    none."""
    del batch[transaction.room(batch) :]
    if peer.watcher is not None:
        for envelope in batch:
            peer.watcher.sending(peer, text, envelope, True)
    try:
        if transaction.doom is None:
            peer.namespace.declare(text)
            transaction.stage(text, batch)
    except SieveError as error:  # there is one: several have room, and their destination is known
        refuse(peer, session, error, text)
    else:
        peer.took(session, len(batch), urgent)
    return len(batch)


def _refuse_closed(peer: Peer, session_id: int, sequence: int) -> None:
    """Refuse a send for a session that is not open."""
    if session_id > peer.highest_session:
        raise unknown("session", session_id)
    error = RequestError(f"session {session_id} is closed", ErrorCode.ILLEGAL_STATE)
    peer.out.refuse_send(session_id, sequence, error)


def on_withdraw(peer: Peer, command: Withdraw, now: int) -> None:
    """Withdraw a send or COMMIT that waits for room. The answer is final: the send has been confirmed by then, or is
    never accepted, even if it is repeated."""
    session_id, sequence = command.session, command.sequence
    session = peer.sessions.get(session_id)
    if session is not None and peer.wait_for_delivery((session,), command, on_withdraw, now):
        return
    if session is None:
        if session_id > peer.highest_session:
            raise unknown("session", session_id)
    elif not sequence:
        _withdraw_commit(peer, session, now)
    elif sequence == session.sent + 1:
        error = RequestError("its sender has withdrawn it", ErrorCode.RESOURCE_ALLOCATION)
        refuse(peer, session, error, reason="withdrawn")
    elif sequence <= session.sent:
        peer.confirm(session, session.sent)
    elif not session.passes_over(sequence):
        raise ProtocolError(
            f"WITHDRAW {sequence} in session {session_id} where {session.sent + 1} is due", ErrorCode.UNEXPECTED_COMMAND
        )
    if command.request:
        peer.out.answer(command.request)


def _withdraw_commit(peer: Peer, session: Session, now: int) -> None:
    """End a COMMIT that waits for room, if one does: it is rolled back."""
    sender = session.blocked_sender
    if sender is None or sender.envelope is not None:
        return
    assert session.transaction is not None
    error = RequestError(f"waited for room: {sender.text}", ErrorCode.RESOURCE_ALLOCATION)
    peer.count_refusal(error, reason="withdrawn", messages=len(session.transaction.staged))
    session.transaction.fail(error)
    sender.go_on(now)


# -- acknowledgement and transactions ---------------------------------------------------------------------------------


def on_acknowledge(peer: Peer, command: CommandTuple, now: int) -> None:
    """Acknowledge everything up to a tag (ACK-01, ACK-03), and grant credit."""
    _, consumer_id, tag, credit = command
    deliveries = peer.deliveries
    consumer = deliveries.consumers.get(consumer_id)
    if consumer is None:
        deliveries.check_once_open(consumer_id)
        return
    if credit > MAX_CREDIT:
        raise too_much_credit(consumer_id, credit)
    if tag:
        _acknowledge(deliveries, consumer, tag, credit, now)
    else:
        consumer.grant(credit, now)


def on_acknowledge_several(peer: Peer, command: AcknowledgeSeveral, now: int) -> None:
    """The same for several consumers, without credit: a topic may have many subscribers with a message each."""
    numbers = command.acknowledged
    if len(numbers) & 1:
        raise ProtocolError(f"ACKNOWLEDGE_SEVERAL lists pairs of consumer and tag, not {len(numbers)} numbers")
    deliveries = peer.deliveries
    consumers, owners, retired = deliveries.consumers, deliveries.owners, deliveries.retired
    flat = iter(numbers)
    for consumer_id, tag in zip(flat, flat, strict=True):
        consumer = consumers.get(consumer_id)
        if consumer is None:
            deliveries.check_once_open(consumer_id)
        elif tag and owners[consumer_id].transaction is None and consumer_id not in retired:
            consumer.acknowledge(tag, now)
        elif tag:
            _acknowledge(deliveries, consumer, tag, 0, now)


def _acknowledge(deliveries: Deliveries, consumer: Consumer, tag: int, credit: int, now: int) -> None:
    consumer_id = consumer.id
    if deliveries.owners[consumer_id].transaction is not None:
        raise ProtocolError(
            f"ACKNOWLEDGE for consumer {consumer_id} of a transacted session; only COMMIT acknowledges there",
            ErrorCode.UNEXPECTED_COMMAND,
        )
    consumer.acknowledge(tag, now, credit)
    if consumer_id in deliveries.retired and not consumer.unacknowledged:
        deliveries.forget(consumer_id)


def on_settle(peer: Peer, command: Settle, now: int) -> None:
    """Settle individual messages: acknowledged, failed, rejected, or left."""
    consumer_id, tags, outcome, credit = command.consumer, command.tags, command.outcome, command.credit
    deliveries = peer.deliveries
    consumer = deliveries.consumers.get(consumer_id)
    if consumer is None:
        deliveries.check_once_open(consumer_id)
        return
    if deliveries.owners[consumer_id].transaction is not None:
        raise ProtocolError(
            f"SETTLE for consumer {consumer_id} of a transacted session; only COMMIT acknowledges there",
            ErrorCode.UNEXPECTED_COMMAND,
        )
    if outcome not in _OUTCOMES:
        raise ProtocolError(f"SETTLE has the outcome {outcome}; there are 0 to 3", ErrorCode.UNEXPECTED_COMMAND)
    if credit > MAX_CREDIT:
        raise too_much_credit(consumer_id, credit)
    settle = partial(consumer.settle, tags, Outcome(outcome))
    peer.give_back(settle, command, partial(_settled, deliveries, consumer, credit), now)


def _settled(deliveries: Deliveries, consumer: Consumer, credit: int, now: int) -> None:
    """Individual messages are settled: grant the credit of the same command."""
    if consumer.id in deliveries.retired:
        if not consumer.unacknowledged:
            deliveries.forget(consumer.id)
    elif credit:
        consumer.grant(credit, now)


def on_acknowledge_all(peer: Peer, command: AcknowledgeAll, now: int) -> None:
    """Acknowledge everything that the session's consumers were handed (ACK-05)."""
    session = peer.session(command.session)
    if session.transaction is not None:
        raise RequestError("a transacted session acknowledges by commit (TXN-13)", ErrorCode.ILLEGAL_STATE)
    session.acknowledge(peer.deliveries.handed_to(session, command.handed), now)
    session.settle(command.request)
    peer.deliveries.forget_settled(session)
    peer.out.answer(command.request)


def on_recover(peer: Peer, command: Recover, now: int) -> None:
    """Redeliver messages that were handed out and not acknowledged (ACK-08)."""
    session = peer.session(command.session)
    if session.transaction is not None:
        raise RequestError("a transacted session has rollback, not recover (ACK-12)", ErrorCode.ILLEGAL_STATE)
    seen = peer.deliveries.handed_to(session, command.handed)
    failure = failure_of(command.failure)
    recover = partial(session.recover, seen, failure=failure)
    peer.member.fail_survived(command.handed, now, failure)
    peer.give_back(recover, command, partial(_recovered, peer, session, command.request), now)


def _recovered(peer: Peer, session: Session, request: int, now: int) -> None:
    """All messages of the session have come back."""
    peer.deliveries.forget_settled(session)
    peer.out.answer(request)


def on_commit(peer: Peer, command: Commit, now: int) -> None:
    """Publish and acknowledge, all or nothing (TXN-10). The first turn decides whether it can be done. A large COMMIT
    takes several turns, and is answered when it is visible."""
    session = peer.session(command.session)
    transaction = session.transaction
    if transaction is None:
        raise RequestError("this session is not transacted: there is nothing to commit (TXN-08)",
                           ErrorCode.ILLEGAL_STATE)  # fmt: skip
    if command.failure:
        failure_of(command.failure)  # refuses what is wrong before anything is done
    if session.blocked_sender is None and peer.wait_for_commit(session, command, on_commit):
        return
    if transaction.staged and transaction.doom is None and session.blocked_sender is None and not session.committing:
        transaction.weigh(peer.namespace.weighing(transaction.staged, peer.member.id))
        examining = peer.namespace.examining(transaction.staged, transaction.weighed)
        if examining is not None:
            peer.agenda.examine(examining, command, partial(_publish, peer, command), now)
            return
    _publish(peer, command, now)


def _publish(peer: Peer, command: Commit, now: int) -> None:
    """The rest of a COMMIT, once the selectors for its messages are evaluated."""
    session = peer.session(command.session)
    transaction = session.transaction
    assert transaction is not None
    if peer.out.drops_replies:
        _drop_late_replies(peer, transaction)
    large = peer.namespace.is_large(transaction.staged)
    if large and session.blocked_sender is None:
        if peer.wait_for_publishing(command, on_commit, session, first=True):
            session.begin_commit()
            return
    elif large and peer.namespace.publishing is not None:
        return  # it is tried again as long as it waits for room
    seen = peer.deliveries.handed_to(session, command.handed)
    peer.confirm(session, session.sent)  # the answer settles them all (TXN-15)
    doom = transaction.doom
    is_begun = doom is not None or session.is_begun(seen)
    publishing: Publishing | None = None
    session.end_commit()
    if doom is None:
        try:
            waited, name = session.blocked_sender is not None, peer.member.id
            full: list[Limited] | None
            how = {"patient": True, "waited": waited, "acknowledges": any(seen.values())}
            if large:
                begun = peer.namespace.begin(transaction.staged, now, name, weighed=transaction.weighed, **how)
                publishing, full = (begun, None) if isinstance(begun, Publishing) else (None, begun)
            else:
                full = peer.namespace.commit(transaction.staged, now, name, **how)
            if full is not None:
                wait_to_commit(peer, session, full, command, on_commit)
                return
        except SieveError as error:  # nothing was published
            doom = error
            peer.count_refusal(error, messages=len(transaction.staged))
    end_commit_wait(peer, session)
    if peer.watcher is not None:
        peer.watcher.committed(peer, transaction.staged.each, doom, now)
    transaction.clear()
    if is_begun:
        peer.count_transaction(committed=doom is None, refused=doom is not None)
    if doom is not None:
        # The effect of a failed commit is a rollback (TXN-09).
        failure = failure_of(command.failure)._replace(text=doom.text[:MAX_ERROR_CHARS])
        recover = partial(session.recover, seen, failure=failure)
        peer.give_back(recover, command, partial(_rolled_back, peer, session, doom), now)
        return
    # Nothing can stop it from here on: it is settled even if the connection is lost.
    if publishing is None:
        session.acknowledge(seen, now)
    else:
        publishing.together(partial(session.acknowledge, seen, now))
        if publishing.share is not None:
            key = peer.member.id, session.id
            peer.services.begin_storing(peer, key, session.sent, session.settled, publishing.share)
    session.settle(command.request)
    peer.deliveries.forget_settled(session)
    if publishing is None:
        peer.out.answer(command.request)
    else:
        session.begin_commit()
        publishing.then(partial(_committed, peer, session, command, publishing))


def _drop_late_replies(peer: Peer, transaction: Transaction) -> None:
    """Drop what is staged for temporary destinations that have gone since."""
    destinations = peer.namespace.destinations
    gone = {
        address: messages
        for address, (messages, _, _) in transaction.staged.totals.items()
        if address not in destinations and parse_address(address).kind.is_temporary
    }
    if gone:
        transaction.drop(gone.keys())
    for address, messages in gone.items():
        peer.services.drop_replies(peer, address, messages)


def _rolled_back(peer: Peer, session: Session, doom: SieveError, now: int) -> None:
    """All messages of the session have come back, since its COMMIT was refused."""
    peer.deliveries.forget_settled(session)
    raise RequestError(
        f"the transaction was rolled back: {doom.text}",
        ErrorCode.TRANSACTION_ROLLED_BACK,
        {**doom.details, "code": int(doom.code)},
    )


def _committed(peer: Peer, session: Session, command: Commit, publishing: Publishing, now: int) -> None:
    """A large COMMIT has been published."""
    session.end_commit()
    if peer.life.state >= CLOSING:
        return
    if publishing.error is not None:
        peer.crash(command, publishing.error, now)
    else:
        peer.out.answer(command.request)
    peer.late_output()


def on_rollback(peer: Peer, command: Rollback, now: int) -> None:
    """Drop staged messages, and redeliver the others with JMSRedelivered set (TXN-04)."""
    session = peer.session(command.session)
    if session.transaction is None:
        raise RequestError("this session is not transacted: there is nothing to roll back (TXN-08)",
                           ErrorCode.ILLEGAL_STATE)  # fmt: skip
    if peer.wait_for_commit(session, command, on_rollback):
        return
    seen = peer.deliveries.handed_to(session, command.handed)
    failure = failure_of(command.failure)
    recover = partial(session.recover, seen, failure=failure)
    peer.member.fail_survived(command.handed, now, failure)
    peer.end_blocked_sender(session)
    peer.confirm(session, session.sent)  # the answer settles them all (TXN-15)
    if session.transaction.doom is not None or session.is_begun(seen):
        peer.count_transaction(committed=False)
    session.transaction.clear()
    peer.give_back(recover, command, partial(_recovered, peer, session, command.request), now)
