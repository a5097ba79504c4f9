"""Connection (§6.1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar, overload

from sievemq._engine import (
    AUTO_ACKNOWLEDGE,
    SESSION_TRANSACTED,
    Blocked,
    ClientConnection,
    Completion,
)
from sievemq._front import ConnectionMetaData, is_unclosed, unclosed, weakly
from sievemq.aio.closing import Closing
from sievemq.aio.listeners import ExceptionListener
from sievemq.aio.opening import Opening, opening
from sievemq.aio.reports import Reports
from sievemq.aio.session import Session
from sievemq.aio.transport import Transport
from sievemq.aio.waiting import Once
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq.session_mode import SessionModeLike

S = TypeVar("S", bound=Session)


class Connection(Closing):
    """A connection to a broker, made by a :class:`ConnectionFactory`. Starts stopped.

    Safe to share between the tasks of its loop (THR-01); it cannot be used from another loop.
    """

    def __init__(self, engine: ClientConnection, transport: Transport) -> None:
        self._engine = engine
        self._transport = transport
        self._reports = Reports(transport)
        self._listener: ExceptionListener | Callable[[JMSException], Any] | None = None
        self._sessions: set[Session] = set()
        self._contexts: set[int] = set()  # open contexts; the last one closes the connection (CTX-08)
        self._numbers = count()
        self._closing = Once(transport)
        reports = self._reports
        engine.listen(weakly(reports.add), weakly(reports.lost), weakly(reports.restored))
        engine.flow.listen(weakly(reports.blocked), weakly(reports.unblocked))

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if is_unclosed(self._engine):
            text = unclosed(self, self._engine)
            self._transport.abandon()
            _warn(text, ResourceWarning, source=self)

    def __repr__(self) -> str:
        engine = self._engine
        state = "closed" if engine.closed else "lost" if engine.failure else "started" if engine.started else "stopped"
        return f"<Connection {engine.terms.connection_id} {state}>"

    # -- sessions -----------------------------------------------------------------------------------------------------

    @overload
    def create_session(self, session_mode: SessionModeLike = AUTO_ACKNOWLEDGE, /) -> Opening[Session]: ...

    @overload
    def create_session(
        self, transacted: bool, acknowledge_mode: SessionModeLike = AUTO_ACKNOWLEDGE
    ) -> Opening[Session]: ...

    @overload
    def create_session(self, *, session_mode: SessionModeLike) -> Opening[Session]: ...

    @opening
    async def create_session(
        self,
        transacted: bool | SessionModeLike = False,
        acknowledge_mode: SessionModeLike | None = None,
        *,
        session_mode: SessionModeLike | None = None,
    ) -> Session:
        """A session (CON-01 … CON-03): ``create_session()``, ``create_session(mode)``,
        ``create_session(transacted, acknowledge_mode)``.

        Args:
            transacted: True for a transacted session, whatever the mode; or, alone, the session mode.
            acknowledge_mode: mode of a session that is not transacted.
            session_mode: one of the four modes.

        Raises:
            JMSException: another mode.
            IllegalStateException: the connection is closed.
        """
        return await self._create_session(session_mode_of(transacted, acknowledge_mode, session_mode))

    async def _create_session(self, mode: object, is_action: bool = True) -> Session:
        return await self._open_session(Session, mode, is_action)

    async def _open_session(self, kind: type[S], mode: object, is_action: bool = True) -> S:
        made: list[S] = []

        def open_session() -> Completion[Any]:
            engine = self._engine.open_session(mode, is_action)
            made.append(kind(self, engine))
            return engine.opened

        await self._transport.ask(open_session)
        with self._transport.lock:
            self._sessions.add(made[0])
        return made[0]

    def _forget(self, session: Session) -> None:
        with self._transport.lock:
            self._sessions.discard(session)

    def _all(self) -> tuple[Session, ...]:
        with self._transport.lock:
            return tuple(self._sessions)

    def _context_opened(self) -> int:
        with self._transport.lock:
            number = next(self._numbers)
            self._contexts.add(number)
        return number

    def _has_context(self, number: int) -> bool:
        return number in self._contexts

    def _context_closed(self, number: int) -> bool:
        """Count out a context; True if none is left."""
        with self._transport.lock:
            self._contexts.discard(number)
            return not self._contexts

    # -- what it is ---------------------------------------------------------------------------------------------------

    def get_client_id(self) -> str | None:
        """The client id; None if there is none (CON-04)."""
        self._engine.check_open()
        return self._engine.terms.client_id

    async def set_client_id(self, client_id: str | None) -> None:
        """Claim a client id, before anything else is done with the connection (CON-05).

        Raises:
            InvalidClientIDException: not a valid id, or another live connection has it.
            IllegalStateException: administered (CON-06), set before (CON-07), or too late (CON-08).
        """
        await self._transport.undone()  # a call of this one that no longer waited for its answer
        await self._transport.ask(lambda: self._engine.set_client_id(client_id))

    def get_meta_data(self) -> ConnectionMetaData:
        """Versions and features (CON-12)."""
        self._engine.check_open()
        return ConnectionMetaData(self._engine.terms.broker, self._engine.terms.features)

    def get_exception_listener(self) -> ExceptionListener | Callable[[JMSException], Any] | None:
        """The listener that was set (CON-13)."""
        self._engine.check_open()
        return self._listener

    def set_exception_listener(self, listener: ExceptionListener | Callable[[JMSException], Any] | None) -> None:
        """Set the listener for problems of the connection (CON-14); None removes it.

        Args:
            listener: an object with ``on_exception(exception)``, or a callable; may be coroutine functions.
                A lost connection is reported only when it could not be repaired (EXL-04). An object that also has
                ``on_connection_lost(exception)`` or ``on_connection_restored()`` gets these calls; one with
                ``on_blocked(destination, reason)`` or ``on_unblocked(destination)`` of sends that wait for room.
        """
        self._engine.check_open()
        self._reports.listen(listener)
        self._listener = listener
        self._engine.mark_used()

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """The destinations at which sends wait for room now, each with the reason. An extension."""
        self._engine.check_open()
        with self._transport.lock:
            return self._engine.flow.blocked

    # -- start, stop, close -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start delivery (CON-15)."""
        with self._transport.lock:
            started = self._engine.started
            self._engine.start()
            if not started:  # every consumer of a context comes here (CTX-07)
                self._transport.flush_soon()

    async def stop(self) -> None:
        """Pause delivery; returns when no listener is running any more (CON-16), or when a listener has waited for the
        broker for the option `close_timeout`.

        Cancelled while it waits for a listener, delivery is paused all the same.

        Raises:
            IllegalStateException: in a message listener of this connection (CON-19).
        """
        self._engine.check_open()
        if any(session._control.delivery.mine for session in self._all()):
            raise IllegalStateException("the connection cannot be stopped by a message listener that it would wait for")
        with self._transport.lock:
            self._engine.stop()
        for session in self._all():
            await session._control.paused()

    async def close(self) -> None:
        """Close the connection and everything made by it (CLO-02). Idempotent.

        Waits for running listeners and asynchronous sends; receives that wait in other tasks return None. Once begun
        it is carried out, cancelled or not.

        On a lost connection it does not wait for the broker; else no longer than the option `close_timeout`. Calls that
        wait for the broker raise then, and the exception listener and the log get the number of messages that were sent
        without waiting and are not confirmed.

        Raises:
            IllegalStateException: in a message listener (CLO-09) or completion callback (CLO-13) of this connection.
        """
        if self._closing.done:
            return
        for session in self._all():
            session._control.check_may_close("the connection")
        await self._closing.run(self._close)

    async def _close(self) -> None:
        with self._transport.lock:
            self._engine.leave()
            for session in self._sessions:
                session._engine.shut_gate()
        # What lingers leaves some of the time for an orderly end.
        lingers, until = self._transport.close_by(0.8), self._transport.close_by()
        try:
            for session in self._all():
                await session._control.leave(lingers)
            if not await self._transport.end(self._engine.close, until):
                error = TimeoutError("the broker has not answered within the option close_timeout")
                self._transport.call(lambda: self._engine.lost(error))
        finally:
            with self._transport.lock:
                self._sessions.clear()
            await self._transport.close(until)


def session_mode_of(transacted: object, acknowledge_mode: object, session_mode: object = None) -> Any:
    """The session mode that the arguments of a create_session mean (CON-01 … CON-03)."""
    if session_mode is not None:
        if transacted or acknowledge_mode is not None:
            raise TypeError("create_session() takes a session_mode, or transacted and acknowledge_mode")
        return session_mode
    if transacted is True:
        return SESSION_TRANSACTED
    if transacted is False:
        mode = AUTO_ACKNOWLEDGE if acknowledge_mode is None else acknowledge_mode
        if mode == SESSION_TRANSACTED:
            raise JMSException("a session that is not transacted acknowledges by mode 1, 2 or 3 (CON-03)")
        return mode
    if acknowledge_mode is not None:
        raise JMSException(f"transacted is True or False, not {transacted!r}")
    return transacted
