"""What the broker does for SEND and WITHDRAW."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sievemq_broker.domain.broker_properties import may_set_broker_properties, without_broker_properties
from sievemq_broker.matching.index import SelectorIndex
from sievemq_broker.session.checks import check_message, shift_times, unknown
from sievemq_broker.session.pending import Pending
from sievemq_broker.session.stall import Stall
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError
from sievemq_core.limits import MAX_HEADER_CHARS
from sievemq_core.message.envelope import BODY_KIND, DELIVERY_MODE, PROPERTIES, TIMESTAMP, BodyKind, Envelope
from sievemq_core.message.headers import PERSISTENT
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq_broker.domain.fan_out import FanOut
    from sievemq_broker.domain.room import Limited
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_broker.session.session import Session

__all__ = ["on_send", "on_withdraw", "take_row"]

_LAST_KIND: Final = int(max(BodyKind))

#: Deliveries, at most, of messages that are taken together: a millisecond or two. They may all be of one message.
_DELIVERIES: Final = 3_000


def on_send(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
    """Take a message: on to its destination, or staged in a transaction (TXN-02)."""
    _, session_id, sequence, text, fields = command
    session = connection.sessions.get(session_id)
    if session is None:
        _refuse_closed(connection, session_id, sequence)
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
        envelope = Envelope(without_broker_properties(fields))
        persistent = fields[DELIVERY_MODE] == PERSISTENT
        if len(envelope.packed) > MAX_HEADER_CHARS or fields[BODY_KIND] > _LAST_KIND:  # else nothing can be too long
            check_message(fields, connection.settings.body_bytes)
            connection.hurry = True  # few of these fill a window of bytes
        transaction = session.transaction
        if transaction is None:
            sends = [(text, envelope)]
            examining = connection.namespace.examining(sends)
            if examining is not None:
                session.sent = sequence - 1
                act = partial(_send_examined, connection, session, command, sends)
                connection.go_on_with(Pending(examining, command, act, len(envelope.packed)), now)
                return
            full = connection.namespace.send(text, envelope, now, connection.id)
        elif transaction.doom is None:
            connection.namespace.declare(text)
            transaction.stage(text, envelope)
    except SieveError as error:
        connection.refuse_send(session, sequence, error)
    else:
        _taken(connection, session, text, envelope, full, persistent)


def _send_examined(
    connection: BrokerConnection, session: Session, command: CommandTuple, sends: list[tuple[str, Envelope]], now: int
) -> None:
    """Carry out a send that selectors have been asked about, or that may go to very many subscriptions."""
    sequence: int = command[2]
    persistent: bool = command[4][DELIVERY_MODE] == PERSISTENT  # as it was sent, whatever is prescribed there
    text, envelope = sends[0]
    connection.flush_confirms()  # of those before it: this one may take some turns
    session.sent = sequence  # from here on it happens, whatever becomes of the connection
    before = connection.broker.fan_out
    try:
        full = connection.namespace.send(text, envelope, now, connection.id)
    except SieveError as error:
        connection.refuse_send(session, sequence, error)
        return
    fan_out = connection.broker.fan_out
    if fan_out is None or fan_out is before:
        _taken(connection, session, text, envelope, full, persistent)
        return
    delivered = partial(_delivered, connection, session, text, envelope, persistent, fan_out)
    connection.go_on_with(Pending(fan_out, command, delivered, 0), now)


def _delivered(
    connection: BrokerConnection,
    session: Session,
    text: str,
    envelope: Envelope,
    persistent: bool,
    fan_out: FanOut,
    now: int,
) -> None:
    """Every subscription has what was sent."""
    if fan_out.error is not None:
        raise fan_out.error
    _taken(connection, session, text, envelope, None, persistent)


def _taken(
    connection: BrokerConnection,
    session: Session,
    text: str,
    envelope: Envelope,
    full: list[Limited] | None,
    persistent: bool,
) -> None:
    """The session's last send has been taken, or has to wait for room.

    A message that waits is compact: reading its fields would decode them anew and keep them.
    """
    if not session.unconfirmed:
        session.unconfirmed = True
        connection.unconfirmed.append(session)
    if persistent:
        connection.hurry = True
    if full is not None:
        session.sent -= 1
        connection.confirm(session, session.sent)
        Stall.hold_send(connection, session, full, text, envelope)


def take_row(connection: BrokerConnection, commands: list[CommandTuple], now: int) -> int:
    """Take the messages with which `commands` begin, as far as they go the same way, nothing is to be said of any of
    them alone, and there is time: what :func:`on_send` does, for all of them.

    Returns:
        How many commands that were; with less than two, the next one is for :func:`on_send`.
    """
    _, session_id, sequence, text, _ = commands[0]
    session = connection.sessions.get(session_id)
    destination = connection.namespace.route(text)
    if (
        destination is None
        or session is None
        or destination.large
        or session.transaction is not None
        or session.stall is not None
        or connection.clock_lag
        or sequence != session.sent + 1
    ):
        return 0
    costly = destination.index if destination.index.costly else None
    row = _row(connection, commands, now, None if destination.takes_rows else connection.services.spent, costly)
    if destination.takes_rows:  # all of them at once
        row = islice(row, max(1, _DELIVERIES // (destination.fan_out or 1)))
    taken = connection.namespace.send_row(destination, row, now, connection.id)
    if taken:
        session.sent += taken  # not before: after a fault of the broker what was accepted so far is confirmed
        if not session.unconfirmed:
            session.unconfirmed = True
            connection.unconfirmed.append(session)
    return taken


def _row(
    connection: BrokerConnection,
    commands: list[CommandTuple],
    now: int,
    spent: Callable[[], bool] | None,
    costly: SelectorIndex[Any] | None,
) -> Iterator[Envelope]:
    """The messages that :func:`take_row` takes.

    Args:
        connection: whose.
        commands: where they stand.
        now: ms epoch.
        spent: is there no more time? Asked when a message is on its way; None where they go together.
        costly: the selectors there, if they may take long.
    """
    _, session_id, sequence, text, _ = commands[0]
    for command in commands:
        if command[0] != Command.SEND:
            break
        _, number, following, where, fields = command
        properties = fields[PROPERTIES]
        if (
            following != sequence
            or number != session_id
            or where != text
            or fields[BODY_KIND] > _LAST_KIND
            or (properties is not None and b"JMS" in properties and may_set_broker_properties(properties))
        ):
            break
        envelope = Envelope(fields)
        if (
            envelope.expiration
            or (envelope.delivery_time > now and envelope.delayed)
            or len(envelope.packed) > MAX_HEADER_CHARS
            or (costly is not None and costly.asking(envelope) is not None)
        ):
            break
        if fields[DELIVERY_MODE] == PERSISTENT:
            connection.hurry = True
        sequence += 1
        yield envelope
        if spent is not None and spent():
            break


def on_withdraw(connection: BrokerConnection, command: CommandTuple, now: int) -> None:
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


def _refuse_closed(connection: BrokerConnection, session_id: int, sequence: int) -> None:
    """A send for a session that is not open."""
    if session_id > connection.highest_session:
        raise unknown("session", session_id)
    connection.outbox.send(
        Command.SEND_FAILED, session_id, sequence, int(ErrorCode.ILLEGAL_STATE), f"session {session_id} is closed"
    )
