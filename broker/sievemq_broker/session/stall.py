"""A session that waits for room: its next send, or its COMMIT, is kept here and not carried out before there is some.

What the session sends behind a message that waits is passed over: its client has kept it, and says it again when it is
told to (FLOW). So a limit is never passed, and all that waits in the broker is one message a session.

Only this session waits. Others of its connection, those that consume included, go on: the room may come from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sievemq_broker.domain.gate import MESSAGE_BYTES
from sievemq_broker.domain.room import Limited
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_broker.session.session import Session

__all__ = ["Stall"]


class Stall:
    """What a session waits with, and for what.

    Args:
        connection: the session's.
        session: that waits; its :attr:`~Session.stall` is this as long as it does.
        full: where there is no room.
        destination: that it sends to, for people; None for several.

    Attributes:
        envelope: the message that waits; None where that is a COMMIT.
        since: when it began to, ms since 1970.
    """

    __slots__ = ("_address", "_commit", "_connection", "_places", "_session", "envelope", "since")

    def __init__(
        self, connection: BrokerConnection, session: Session, full: list[Limited], destination: str | None
    ) -> None:
        self._connection = connection
        self._session = session
        self._places: dict[Limited, None] = {}
        self._commit: tuple[Any, ...] | None = None
        self._address = ""
        self.envelope: Envelope | None = None
        self.since = connection.services.now()
        session.stall = self
        connection.stalls[session.id] = self
        self._wait_in(full)
        sequence = session.sent + 1 if session.transaction is None else 0
        connection.outbox.send(Command.FLOW, True, self.text, session.id, sequence, destination)

    @classmethod
    def hold_send(
        cls, connection: BrokerConnection, session: Session, full: list[Limited], address: str, envelope: Envelope
    ) -> None:
        """The send that comes after the session's last one waits.

        Args:
            connection: its connection.
            session: that has sent it.
            full: where there is no room for it.
            address: where it goes.
            envelope: the message.
        """
        stall = cls(connection, session, full, address)
        stall._address, stall.envelope = address, envelope
        connection.broker.rooms.bytes += len(envelope.packed)

    @classmethod
    def hold_commit(
        cls, connection: BrokerConnection, session: Session, full: list[Limited], command: tuple[Any, ...]
    ) -> None:
        """The session's COMMIT waits, or goes on waiting; with it all that it has staged.

        Args:
            connection: its connection.
            session: the transacted one.
            full: where there is no room for what it has sent.
            command: the COMMIT.
        """
        stall = session.stall
        if stall is not None:
            stall._wait_in(full)
        else:
            destination = getattr(full[0], "label", None) if len(full) == 1 else None
            cls(connection, session, full, destination)._commit = command

    @property
    def places(self) -> tuple[Limited, ...]:
        """Where there is no room for it."""
        return tuple(self._places)

    @property
    def text(self) -> str:
        """Which limit it waits at, for people."""
        return next(iter(self._places)).limit_text

    @property
    def load(self) -> tuple[int, int]:
        """See :class:`~sievemq_broker.domain.room.Waiter`."""
        if self.envelope is not None:
            return 1, len(self.envelope.packed) + MESSAGE_BYTES
        transaction = self._session.transaction
        assert transaction is not None
        messages = len(transaction.staged)
        return messages, transaction.bytes + MESSAGE_BYTES * messages

    def room(self, place: Limited, now: int) -> bool:
        """One of the places has room again: see :class:`~sievemq_broker.domain.room.Waiter`."""
        if self._commit is not None:
            self._connection.carry_out_late(self._commit, now)
        else:
            self._connection.guarded(Command.SEND, self._try_send, now)
        return place not in self._places

    def _try_send(self, now: int) -> None:
        connection, envelope = self._connection, self.envelope
        assert envelope is not None
        try:
            full = connection.namespace.send(self._address, envelope, now, connection.id, waited=True)
            if full is not None:
                self._wait_in(full)
                return
        except SieveError as error:
            self.go_on(error)
        else:
            self.go_on(None)

    def go_on(self, error: SieveError | None) -> None:
        """The send that waited is done with: the client hears how, and where to go on.

        Args:
            error: it is refused, or was withdrawn; None if it was taken.
        """
        connection, session = self._connection, self._session
        self.finish()
        session.sent += 1
        session.again = session.sent + 1
        if error is not None:
            connection.refuse_send(session, session.sent, error)
        else:
            connection.confirm(session, session.sent)
        connection.outbox.send(Command.FLOW, False, "", session.id, session.again, None)
        connection.acted()

    def committed(self) -> None:
        """The COMMIT that waited has been carried out, or refused: the client need not be told but by the answer."""
        self.finish()
        self._connection.outbox.send(Command.FLOW, False, "", self._session.id, 0, None)
        self._connection.acted()

    def withdraw_commit(self, now: int) -> None:
        """The client does not want to wait any longer with its COMMIT, if it is that: it ends as a rollback."""
        if self._commit is None:
            return
        assert self._session.transaction is not None
        self._session.transaction.fail(RequestError(f"waited for room: {self.text}", ErrorCode.RESOURCE_ALLOCATION))
        self._connection.carry_out_late(self._commit, now)

    def end(self) -> None:
        """The session is about to be closed or rolled back: what waits is not carried out."""
        text, commit = self.text, self._commit
        self.finish()
        if self._connection.closing or commit is None:
            return
        text = f"this was rolled back while its commit waited for room: {text}"
        self._connection.outbox.send(Command.ERROR, commit[1], int(ErrorCode.TRANSACTION_ROLLED_BACK), text, {})
        self._connection.outbox.send(Command.FLOW, False, "", self._session.id, 0, None)

    def finish(self) -> None:
        """The session waits no longer."""
        self._wait_in([])
        self._session.stall = None
        del self._connection.stalls[self._session.id]
        if self.envelope is not None:
            self._connection.broker.rooms.bytes -= len(self.envelope.packed)

    def _wait_in(self, full: list[Limited]) -> None:
        """Wait in these places and no others; where it waits already it keeps its turn."""
        rooms = self._connection.broker.rooms
        for place in tuple(self._places):
            if place not in full:
                del self._places[place]
                rooms.leave(place, self)
        for place in full:
            if place not in self._places:
                self._places[place] = None
                rooms.wait(place, self)
