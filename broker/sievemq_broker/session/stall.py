"""A session that has sent past a limit where senders wait: it hears of its sends, and commits, when there is room.

Only this session waits. Others of its connection, those that consume included, go on: the room may come from them.

Where a message cannot even be taken (a full disk) it waits here, with all that the session sends behind it, and
:attr:`Session.sent` stays at the last that was carried out. Whoever asks what has become of the others (a connection
that was lost, a session that is closed) finds them not to have come; the client keeps them, and says them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sievemq_broker.domain.room import GO_ON, Limited
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError
from sievemq_core.message.envelope import BODY, PROPERTIES
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_broker.session.session import Session

__all__ = ["Stall"]

_SEQUENCE = 2
_FIELDS = 4


def _bytes_of(command: tuple[Any, ...]) -> int:
    """Of the properties and the body of a SEND; the rest is small."""
    fields = command[_FIELDS]
    return len(fields[PROPERTIES] or b"") + len(fields[BODY] or b"")


class Stall:
    """Why a session waits, and what it waits for.

    Args:
        connection: the session's.
        session: that waits; its :attr:`~Session.stall` is this as long as it does.
    """

    __slots__ = ("_commit", "_connection", "_last_text", "_parked", "_parked_bytes", "_places", "_session")

    def __init__(self, connection: BrokerConnection, session: Session) -> None:
        self._connection = connection
        self._session = session
        self._places: dict[Limited, None] = {}
        self._commit: tuple[Any, ...] | None = None
        #: SENDs that were not taken, in order, and about how many bytes they are.
        self._parked: deque[tuple[Any, ...]] = deque()
        self._parked_bytes = 0
        self._last_text = ""
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

    @classmethod
    def hold(cls, connection: BrokerConnection, session: Session, place: Limited, command: tuple[Any, ...]) -> None:
        """A SEND was not taken: it waits, and the session with it, for room in `place`.

        Args:
            connection: its connection.
            session: that has sent it; all that it sent before was carried out.
            place: that has no room.
            command: the SEND.
        """
        if session.stall is None:
            connection.confirm(session, session.sent)
        cls.begin(connection, session, (place,))
        assert session.stall is not None
        session.stall._park(command, first=True)

    def follow(self, command: tuple[Any, ...]) -> bool:
        """A SEND came: it waits behind those that do. False if none does, or it is not the next one.

        Raises:
            ProtocolError: the client has more sends unconfirmed than it may.
        """
        parked = self._parked
        if not parked or command[_SEQUENCE] != parked[-1][_SEQUENCE] + 1:
            return False
        settings = self._connection.settings
        # Twice, since what a message takes is counted in another way here.
        if len(parked) >= settings.window_messages or self._parked_bytes > 2 * settings.window_bytes:
            raise ProtocolError(
                f"session {self._session.id} has more sends unconfirmed than {settings.window_messages}, or more bytes "
                f"than {settings.window_bytes}",
                ErrorCode.UNEXPECTED_COMMAND,
            )
        self._park(command)
        return True

    def _park(self, command: tuple[Any, ...], *, first: bool = False) -> None:
        if first:
            self._parked.appendleft(command)
        else:
            self._parked.append(command)
        self._parked_bytes += _bytes_of(command)

    @property
    def text(self) -> str:
        """Which limit it waits at, or has waited at, for people."""
        for place in self._places:
            self._last_text = place.limit_text
            break
        return self._last_text

    def room(self, place: Limited, now: int) -> int:
        """One of the places has room again. Returns how many sends were carried out now."""
        self._last_text = place.limit_text
        self._places.pop(place, None)
        if self._places:
            return 0
        done = self._go_on(place, now)
        if self._places or self._connection.closing:
            return done
        connection, session, commit = self._connection, self._session, self._commit
        self._forget()
        if session.sent > session.confirmed and not session.unconfirmed:
            session.unconfirmed = True
            connection.unconfirmed.append(session)
        connection.flow_changed()
        if commit is not None:
            connection.carry_out(commit, now)
        connection.nudge()
        return done

    def _go_on(self, place: Limited, now: int) -> int:
        """Carry out some of the SENDs that wait; if there are more, wait on, though `place` has room."""
        connection, session, parked = self._connection, self._session, self._parked
        done = 0
        while parked and done < GO_ON and not connection.closing:
            command = parked.popleft()
            self._parked_bytes -= _bytes_of(command)
            connection.carry_out(command, now)
            if session.sent < command[_SEQUENCE]:  # there is no room after all, and it waits again
                break
            done += 1
        if parked and not self._places and not connection.closing:
            self._places[place] = None
            connection.broker.rooms.wait(place, self)
            if connection.services.blocked is None:
                connection.confirm(session, session.sent)
            connection.nudge()
        return done

    def end(self) -> None:
        """The session is about to be closed or rolled back: a COMMIT that waits is not carried out, nor is a SEND."""
        rooms = self._connection.broker.rooms
        for place in self._places:
            rooms.leave(place, self)
        self._forget()
        if self._connection.closing:
            return
        for command in self._parked:
            self._session.sent = command[_SEQUENCE]
            error = RequestError(f"the session was closed before: {self.text}", ErrorCode.RESOURCE_ALLOCATION)
            self._connection.refuse_send(self._session, command[_SEQUENCE], error)
        if self._commit is not None:
            text = f"this was rolled back while its commit waited for room: {self.text}"
            code = int(ErrorCode.TRANSACTION_ROLLED_BACK)
            self._connection.outbox.send(Command.ERROR, self._commit[1], code, text, {})
        self._connection.flow_changed()

    def _forget(self) -> None:
        self._session.stall = None
        del self._connection.stalls[self._session.id]
