"""A connection's commands one after the other, in their order, as far as there is time (decision 0026)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sievemq_broker.session.commands import HANDLERS
from sievemq_broker.session.pending import Pending
from sievemq_broker.session.sends import take_row
from sievemq_core.errors import ProtocolError, SieveError
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection

__all__ = ["dispatch"]

_SEND: Final = int(Command.SEND)


def dispatch(connection: BrokerConnection, commands: list[CommandTuple], now: int) -> None:
    """Carry out what a connection has said. Never raises: what is wrong ends this connection at most.

    Args:
        connection: whose; what there is no time for (:attr:`Services.spent`) is its `late`.
        commands: all of them; consumed.
        now: milliseconds since 1970.
    """
    if connection.closing:
        return
    outbox = connection.outbox
    outbox.awake = True  # the rim looks for output after this call anyway
    handlers = connection.table
    spent = connection.services.spent
    count = len(commands)
    pending = connection.pending
    if pending is not None and (not _go_on(connection, pending, now) or connection.closing):
        if not connection.closing:
            connection.late = commands
        commands = []
    try:
        while len(commands) > 1 and commands[0][0] == commands[1][0] == _SEND and _in_rows(connection, commands[0][3]):
            taken = take_row(connection, commands, now)
            del commands[:taken]
            if taken < 2:
                break
            if commands and spent():
                _put_off(connection, commands, count)
                commands = []
    except Exception as error:
        connection.crash(commands[0], error, now)
        commands = []
    left = len(commands)
    for command in commands:
        left -= 1
        try:
            handlers[command[0]](connection, command, now)
        except ProtocolError as error:
            connection.fail(error, now)
            break
        except SieveError as error:
            if not connection.refuse(command, error, now):
                break
        except Exception as error:  # the broker's own fault: it must not take other connections along
            connection.crash(command, error, now)
            break
        if connection.pending is not None or (left and spent()):
            _put_off(connection, commands[-left:] if left else [], count)
            break
    if connection.unconfirmed and (connection.hurry or connection.many_unconfirmed()):
        connection.flush_confirms()
    if not connection.closing:
        outbox.awake = connection.wire.pending_bytes > 0


def _go_on(connection: BrokerConnection, pending: Pending, now: int) -> bool:
    """Go on with the command that has begun; True if it is over, and what follows may be carried out."""
    try:
        if not pending.go_on(connection.services.spent, now):
            return False
        connection.pending = None
        pending.act(now)
    except Exception as error:
        connection.crash(pending.command, error, now)
    return connection.pending is None


def _put_off(connection: BrokerConnection, commands: list[CommandTuple], count: int) -> None:
    """These are left of so many; there is no time for them, or the one before them takes some."""
    connection.late = commands
    connection.late_bytes = connection.late_bytes * len(commands) // count


def _in_rows(connection: BrokerConnection, address: str) -> bool:
    """True if messages may be sent there, and nobody looks at each command."""
    table = connection.table
    return connection.handlers is HANDLERS and (table is HANDLERS or address in connection.allowed)
