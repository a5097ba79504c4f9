"""What the broker says, but for deliveries: a function for each kind of command."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sievemq._engine.completion import when_settled
from sievemq._engine.ending import end, lose, loss
from sievemq._engine.flow import Blocked
from sievemq._engine.heartbeat import Heartbeat
from sievemq._engine.restore import restore
from sievemq.exceptions import exception_for
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.harmless import harmless
from sievemq_core.limits import MAX_BODY_BYTES
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command

if TYPE_CHECKING:
    from sievemq._engine.connection import ClientConnection

__all__ = ["HANDLERS", "WINDOW_BYTES", "WINDOW_MESSAGES"]

_log = logging.getLogger("sievemq")

#: Unconfirmed sends of a session where the broker's WELCOME says nothing.
WINDOW_MESSAGES: Final = 1_000
WINDOW_BYTES: Final = 8 * 1024 * 1024
#: Of a broker's text these stay: the lines of a selector with a caret below its mistake.
_LINES: Final = "\n\t"
_REPAIRABLE: Final = frozenset(code for code in ErrorCode if code.repairable)


def _on_welcome(connection: ClientConnection, command: CommandTuple) -> None:
    if not 1 <= command[1] <= PROTOCOL_VERSION:  # HELLO said what this client speaks
        older = "client" if command[1] > PROTOCOL_VERSION else "broker"
        text = (
            f"the broker answered in protocol version {command[1]}; this client speaks {PROTOCOL_VERSION}: "
            f"upgrade the {older}"
        )
        error = ProtocolError(text, ErrorCode.UNSUPPORTED_VERSION)
        lose(connection, loss(connection, error, error.code.name), repairable=False)
        return
    renewed = command[3] != connection.incarnation
    _, _, connection.broker, connection.incarnation, connection.connection_id, outgoing, limits, features, *_ = command
    connection.id_prefix = f"ID:{connection.connection_id}:"
    connection.features = features
    connection.busy_poll.begin(connection.options.busy_poll)
    connection.acknowledges_several = features.get("acknowledge_several") is True
    connection.window_messages = _positive(limits.get("window_messages"), WINDOW_MESSAGES)
    connection.window_bytes = _positive(limits.get("window_bytes"), WINDOW_BYTES)
    connection.max_body = min(_positive(limits.get("body_bytes"), MAX_BODY_BYTES), MAX_BODY_BYTES)
    connection.limits = limits
    offset = features.get("clock_offset")
    _move_clock(connection, offset if type(offset) is int else 0)
    connection.heartbeat = Heartbeat(connection.options.heartbeat, outgoing)
    connection.wire.set_heartbeat(connection.options.heartbeat, outgoing)
    if connection.repairing:
        try:
            _restore(connection, renewed)
        except ProtocolError as error:
            lose(connection, loss(connection, error, error.code.name), repairable=False)
    else:
        connection.welcomed = True
        connection.opened.succeed(None)


def _restore(connection: ClientConnection, renewed: bool) -> None:
    """The connection is repaired: say what there was, and let everything go on. It is told when all that was open is
    open again: who is told may publish, and the subscribers are there."""
    answers = restore(connection, connection.features.get("resumed"), renewed)
    connection.repairing = connection.reopened = False
    _log.info("the connection to the broker is restored as %s", connection.connection_id)
    for session in tuple(connection.sessions.values()):
        session.set_flowing(connection.started)
    outage = connection.outages

    def tell() -> None:
        if connection.on_restored is not None and connection.usable and connection.outages == outage:
            connection.on_restored()

    when_settled(answers, tell)


def _on_ok(connection: ClientConnection, command: CommandTuple) -> None:
    try:
        connection.requests.succeed(command[1], command[2])
    except ProtocolError as error:
        lose(connection, loss(connection, error, error.code.name), repairable=False)


def _on_error(connection: ClientConnection, command: CommandTuple) -> None:
    _, request, code, text, details, *_ = command
    error = exception_for(code, harmless(text, _LINES), details)
    if request == 0:  # fatal: the connection ends
        if connection.closing:
            end(connection)
        else:
            lose(connection, error, repairable=code in _REPAIRABLE)
        return
    connection.requests.fail(request, code, error)


def _on_confirm(connection: ClientConnection, command: CommandTuple) -> None:
    session = connection.sessions.get(command[1])
    if session is not None:
        session.sends.confirm(command[2])


def _on_send_failed(connection: ClientConnection, command: CommandTuple) -> None:
    session = connection.sessions.get(command[1])
    if session is not None:
        session.sends.failed(command[2], command[3], harmless(command[4], _LINES))


def _on_deliver_several(connection: ClientConnection, command: CommandTuple) -> None:
    _, number, tag, envelopes = command
    connection.received_more(len(envelopes) - 1)
    consumer = connection.routes.get(number)
    if consumer is not None:  # each as the DELIVER, 80, that it stands for
        consumer.buffer.extend([(80, number, at, 1, fields) for at, fields in enumerate(envelopes, tag)])
        waker = consumer.waker
        if waker is not None:
            consumer.waker = None
            waker()


def _on_recall(connection: ClientConnection, command: CommandTuple) -> None:
    consumer = connection.consumers.get(command[1])
    if consumer is not None:  # a closed one has given everything back
        consumer.recall(command[2])


def _on_consumer_closed(connection: ClientConnection, command: CommandTuple) -> None:
    _, number, code, text, *_ = command
    consumer = connection.consumers.get(number)
    if consumer is not None:
        error = exception_for(code, harmless(text, _LINES))
        consumer.session.consumer_is_gone(consumer, error)
        connection.report(error)


def _on_flow(connection: ClientConnection, command: CommandTuple) -> None:
    _, blocked, text, number, sequence, destination, *_ = command
    text = harmless(text)
    if not number:
        connection.flow.broker_blocked = text if blocked else None
    else:
        session = connection.sessions.get(number)
        if session is None:
            return
        if blocked:
            session.sends.wait_for_room(Blocked(destination, text), sequence)
        else:
            session.sends.go_on(sequence)
    connection.flow.changed()


def _on_clock(connection: ClientConnection, command: CommandTuple) -> None:
    offset = command[1]
    if type(offset) is int:
        _move_clock(connection, offset)
        connection.append((Command.CLOCK_SEEN, offset))


def _move_clock(connection: ClientConnection, offset: int) -> None:
    forward, connection.clock_offset = offset - connection.clock_offset, offset
    if forward > 0:
        connection.skipped += forward / 1000.0
        for consumer in connection.consumers.values():  # whose time may be over
            consumer.wake()


def _on_shutdown(connection: ClientConnection, command: CommandTuple) -> None:
    connection.shutdown_notice = harmless(command[2])


def _positive(value: object, default: int) -> int:
    return value if type(value) is int and value > 0 else default


HANDLERS: Final[Mapping[int, Callable[[ClientConnection, CommandTuple], None]]] = {
    Command.HEARTBEAT: lambda connection, command: None,
    Command.WELCOME: _on_welcome,
    Command.OK: _on_ok,
    Command.ERROR: _on_error,
    Command.CONFIRM: _on_confirm,
    Command.SEND_FAILED: _on_send_failed,
    Command.DELIVER_SEVERAL: _on_deliver_several,
    Command.RECALL: _on_recall,
    Command.CONSUMER_CLOSED: _on_consumer_closed,
    Command.FLOW: _on_flow,
    Command.CLOCK: _on_clock,
    Command.SHUTDOWN: _on_shutdown,
}
"""By the number of the command. DELIVER is taken apart where it arrives."""
