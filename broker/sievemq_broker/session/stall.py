"""A session that has sent past a limit where senders wait: it hears of its sends, and commits, when there is room.

Only this session waits. Others of its connection, those that consume included, go on: the room may come from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sievemq_broker.domain.room import Limited
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_broker.session.session import Session

__all__ = ["Stall"]


class Stall:
    """Why a session waits, and what it waits for.

    Args:
        connection: the session's.
        session: that waits; its :attr:`~Session.stall` is this as long as it does.
    """

    __slots__ = ("_commit", "_connection", "_places", "_session")

    def __init__(self, connection: BrokerConnection, session: Session) -> None:
        self._connection = connection
        self._session = session
        self._places: dict[Limited, None] = {}
        self._commit: tuple[Any, ...] | None = None
        session.stall = self
        connection.stalls[session.id] = self

    @classmethod
    def begin(
        cls,
        connection: BrokerConnection,
        session: Session,
        places: Iterable[Limited],
        commit: tuple[Any, ...] | None = None,
    ) -> None:
        """The session waits for room in all of `places`, or for more room than it did.

        Args:
            connection: its connection.
            session: that has sent there.
            places: where it passed a limit.
            commit: the COMMIT that is to be carried out then.
        """
        first = not connection.stalls
        stall = session.stall or cls(connection, session)
        if commit is not None:
            stall._commit = commit
        rooms = connection.broker.rooms
        for place in places:
            stall._places[place] = None
            rooms.wait(place, stall)
        if first:
            connection.flow_changed()

    @property
    def text(self) -> str:
        """Which limit it waits at, for people."""
        return next(iter(self._places)).limit_text

    def room(self, place: Limited, now: int) -> None:
        """One of the places has room again."""
        self._places.pop(place, None)
        if self._places:
            return
        connection, session, commit = self._connection, self._session, self._commit
        self._forget()
        if session.sent > session.confirmed and not session.unconfirmed:
            session.unconfirmed = True
            connection.unconfirmed.append(session)
        connection.flow_changed()
        if commit is not None:
            connection.carry_out(commit, now)
        connection.nudge()

    def end(self) -> None:
        """The session is about to be closed or rolled back: a COMMIT that waits is not carried out."""
        rooms = self._connection.broker.rooms
        for place in self._places:
            rooms.leave(place, self)
        self._forget()
        if self._connection.closing:
            return
        if self._commit is not None:
            text = f"this was rolled back while its commit waited for room: {self.text}"
            code = int(ErrorCode.TRANSACTION_ROLLED_BACK)
            self._connection.outbox.send(Command.ERROR, self._commit[1], code, text, {})
        self._connection.flow_changed()

    def _forget(self) -> None:
        self._session.stall = None
        del self._connection.stalls[self._session.id]
