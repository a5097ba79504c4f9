"""The end of a connection: lost, to be repaired; lost for good; closed on purpose."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from sievemq._engine.completion import Completion
from sievemq._engine.outgoing import gather, pack_acknowledgements
from sievemq._engine.repair import for_how_long
from sievemq._engine.restore import MAX_HANDED
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

if TYPE_CHECKING:
    from sievemq._engine.connection import ClientConnection

__all__ = ["end", "fail", "goodbye", "lose", "loss", "unrepaired"]

_log = logging.getLogger("sievemq")

_OF_SESSIONS: Final = frozenset({Command.COMMIT, Command.STAGE, Command.RECOVER, Command.ROLLBACK})


def loss(connection: ClientConnection, error: BaseException | None, code: str = "CONNECTION_LOST") -> JMSException:
    """What whoever waits is told of it.

    Args:
        connection: the connection.
        error: what happened; None if the broker just ended the stream.
        code: the exception's error code.
    """
    if connection.shutdown_notice is not None:
        reason = f"the broker has shut down: {connection.shutdown_notice}"
    elif error is None:
        reason = "the broker closed the connection"
        if not connection.welcomed:
            reason += " before it answered: it may have ended; or it takes TLS, and its URL begins with sievemqs://"
    elif code == "FRAME_TOO_LARGE" and not connection.welcomed and connection.peer is not None:
        host, port = connection.peer  # its first bytes are no frame: HTTP, TLS, another broker
        reason = (
            f"what answers at {host}:{port} does not speak SieveMQ's protocol (its management port, or TLS, for which "
            f"the URL begins with sievemqs://?): {error}"
        )
    else:
        reason = f"the connection to the broker is lost: {error}"
    return JMSException(reason, code, error)


def unrepaired(connection: ClientConnection) -> JMSException:
    """What whoever waits is told when the time is over that a repair may take."""
    text = (
        f"the connection to the broker is lost for good: it was not repaired within {connection.options.reconnect} ms "
        f"({connection.cause}). Create a new connection or context; a service sets the option reconnect=forever"
    )
    return JMSException(text, "CONNECTION_LOST", connection.cause)


def lose(connection: ClientConnection, error: JMSException, repairable: bool) -> None:
    """The connection is lost, or an attempt to repair it has failed."""
    if not repairable or connection.leaving or not connection.options.reconnect or not connection.welcomed:
        fail(connection, error)
        return
    connection.cause = error
    connection.reopened = False
    connection.wire = WireConnection("client")  # what the old one wanted to say is void
    if not connection.repairing:
        _freeze(connection, error)


def _freeze(connection: ClientConnection, error: JMSException) -> None:
    """Nothing is delivered until the connection is restored; what is said waits."""
    connection.repairing = True
    connection.outages += 1
    _log.warning("%s; trying to reconnect %s", error, for_how_long(connection.options.reconnect))
    connection.routes.clear()
    connection.requests.doubt()
    pending = connection.requests.pending.values()
    said = {(command[0], command[2]) for _, command in pending if command[0] in _OF_SESSIONS}
    handed: list[int] = []
    for session in tuple(connection.sessions.values()):
        committing = (Command.COMMIT, session.id) in said or (Command.STAGE, session.id) in said
        recovering = (Command.RECOVER, session.id) in said or (Command.ROLLBACK, session.id) in said
        for pair in session.freeze(committing, recovering):
            handed += pair
    connection.handed_when_lost = handed[: 2 * MAX_HANDED]
    connection.flow.broker_blocked = None
    connection.flow.changed()
    if connection.on_lost is not None:
        connection.on_lost(error)


def fail(connection: ClientConnection, error: JMSException, tell: bool = True) -> None:
    """Everything that waits fails: sends before requests, each kind in the order of its calls."""
    connection.failure = error
    connection.repairing = connection.reopened = False
    opened = connection.opened.done
    connection.outbox.clear()
    connection.unsettled.clear()
    connection.opened.fail(error)
    for session in tuple(connection.sessions.values()):
        session.sends.fail(error)
    connection.requests.end(error)
    connection.routes.clear()
    consumers, connection.consumers = connection.consumers, {}
    for consumer in consumers.values():
        consumer.flowing = False
        consumer.wake()
    if opened and tell:
        connection.report(error)


def goodbye(connection: ClientConnection) -> Completion[Any]:
    """Close on purpose: everything that waits to be said, then GOODBYE; as :meth:`ClientConnection.close`."""
    done: Completion[Any] = Completion()
    connection.leave()
    if connection.closed or connection.closing or connection.failure is not None or not connection.opened.done:
        end(connection)
        done.succeed(None)
        return done
    for session in connection.sessions.values():
        session.mark_closed()
    pack_acknowledgements(connection)  # D-26: sends and acknowledgements go first
    gather(connection)
    handed = tuple(field for session in connection.sessions.values() for field in session.handed())
    connection.goodbye = number = connection.requests.next_number()
    connection.requests.pending[number] = done, (Command.GOODBYE, number, handed)
    connection.wire.send(Command.GOODBYE, number, handed)
    connection.closing = True

    def ended(_: Completion[Any]) -> None:
        if not connection.closed:  # the answer has come: what is not confirmed was not taken
            for session in tuple(connection.sessions.values()):
                session.sends.give_up()
        end(connection)

    done.add_callback(ended)
    return done


def end(connection: ClientConnection) -> None:
    """Closed on purpose. What still waits will get no answer."""
    if connection.closed:
        return
    connection.closed = True
    error = IllegalStateException("the connection is closed")
    connection.opened.fail(error)
    connection.outbox.clear()
    for session in tuple(connection.sessions.values()):
        session.mark_closed()
        session.sends.fail(error)
    connection.requests.end(error, connection.goodbye)
    connection.routes.clear()
    connection.consumers.clear()
    connection.sessions.clear()
