"""A connection or session that ends gives back what it holds: a little at once, very much in slices, a turn of the loop
each.

Until the last of it has come back its client id is not free and its GOODBYE not answered. Whoever cannot wait for that
(its own client that comes back, another one that wants its client id) has it finished: :meth:`Broker.finish_leaving`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sievemq_broker.domain.steps import Steps

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_broker.session.session import Session

__all__ = ["AT_ONCE", "Meter", "closing", "leaving"]

#: Consumers and messages that are given back in one slice: at 10 to 20 microseconds each, some milliseconds.
AT_ONCE = 250


class Meter:
    """Says when a slice is full."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = AT_ONCE

    def spent(self, cost: int) -> bool:
        """So much is about to be done; True if the slice was full before."""
        full = self._left <= 0
        self._left = (AT_ONCE if full else self._left) - cost
        return full


def closing(
    connection: BrokerConnection, session: Session, now: int, handed: Mapping[int, int], command: tuple[Any, ...]
) -> Steps[None]:
    """Give back what a session holds that its connection has let go.

    Args:
        connection: that goes on.
        session: that is over; an open transaction of it is rolled back.
        now: ms since 1970.
        handed: what the application has seen, by consumer.
        command: the CLOSE_SESSION that is answered then.
    """
    try:
        yield from session.leave(handed, {}, now, Meter())
    except Exception as error:
        if connection.closing:
            connection.services.report(connection, "giving back messages", error)
        else:
            connection.crash(command, error, now)
    if not connection.closing:
        connection.answer(command[1])
        connection.acted()


def leaving(
    connection: BrokerConnection, now: int, handed: Mapping[int, int] | None, kept: bool, request: int | None
) -> Steps[None]:
    """Give back what a connection holds.

    Args:
        connection: that is over.
        now: ms since 1970.
        handed: what the application has seen, by consumer; None if nobody can say (ACK-18).
        kept: it may come back; until then its temporary destinations stay.
        request: the GOODBYE that is answered then.
    """
    report = connection.services.report
    meter = Meter()
    for session in tuple(connection.sessions.values()):
        try:
            now = yield from session.leave(handed, connection.handed, now, meter)
        except Exception as error:  # the remaining steps must still be done
            report(connection, "giving back messages", error)
    if not kept:
        try:
            yield from connection.namespace.temporaries.delete_all(connection.id)
        except Exception as error:
            report(connection, "deleting temporary destinations", error)
    if connection.client_id is not None:
        try:
            connection.namespace.client_ids.free(connection.client_id, connection.id)
        except Exception as error:
            report(connection, "freeing the client id", error)
    if request is not None and not connection.closing:
        connection.answer(request)
        connection.closing = True
        connection.services.wake(connection)
