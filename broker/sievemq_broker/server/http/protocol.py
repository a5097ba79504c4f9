"""uvicorn's connection with limits for slow peers, and with the result of TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from sievemq_broker.server.http.errors import bad_request
from sievemq_broker.server.net.link import BRIEF, Links
from sievemq_broker.server.net.turn import Turn

#: Bytes of a request's line and headers. A selector of MAX_QUERY_SELECTOR characters fits, however it is encoded.
HEAD_BYTES: Final = 64 * 1024

#: Seconds that a request's head may take from the connection's start or its first byte on, and its body after that.
#: uvicorn itself waits for ever: some hundred connections that send a byte a minute would block the port.
HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 60.0

#: Connections at a time. One more takes the place of the oldest that is not being answered: a probe has to get through
#: clients that hold the port, or the broker would be taken for dead and restarted.
MAX_CONNECTIONS: Final = 256


def _no_turn() -> Turn | None:
    return None


class PatientProtocol(H11Protocol):
    """One connection to the management port, with time limits for its peer. While the peer does not read an answer, its
    next request is not begun: uvicorn itself would prepare one answer more, which waits beside those in the buffers.
    Requests are parsed in the time that the turn of the loop grants, as commands of clients are carried out.

    Args:
        config, server_state, app_state: uvicorn's.
        order: all connections of the port, the oldest first.
        turn: returns the turn of the loop; None before the broker serves clients.

    Its requests carry in their state whether the peer has shown a certificate that was found good, functions that say
    whether it has gone meanwhile and whether it has sent much behind the request, and one that gives the connection
    away (:meth:`hand_over`).
    """

    _gone = False
    #: The last answer is complete, and its end is in the transport's buffer.
    _unread = False
    _deadline: asyncio.TimerHandle | None = None
    _reading: object = None
    #: Input that the turn had no time for, and whether the turn will call :meth:`catch_up`.
    _unparsed = b""
    _queued = False

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        order: dict[PatientProtocol, None],
        turn: Callable[[], Turn | None] = _no_turn,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._order = order
        self._turn = turn

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is open; behind TLS, its handshake is done."""
        super().connection_made(transport)
        self._order[self] = None
        if len(self._order) > MAX_CONNECTIONS:
            next((other for other in self._order if not other.busy), self).transport.abort()
        certificate = bool(transport.get_extra_info("peercert"))
        self.app_state = {
            **self.app_state,
            "client_certificate": certificate,
            "gone": lambda: self._gone,
            "floods": lambda: len(self.conn.trailing_data[0]) + len(self._unparsed) >= BRIEF,
            "hand_over": self.hand_over,
        }
        self._await(h11.IDLE, HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived: parse them, or put them off."""
        turn = self._turn()
        if turn is None or (not self._unparsed and turn.grant()):
            self._parse(data)
            return
        self._unparsed += data
        self.flow.pause_reading()
        if not self._queued:
            self._queued = True
            turn.put_off(self, brief=len(self._unparsed) < BRIEF)

    def catch_up(self) -> None:
        """Parse the input that was put off."""
        self._queued = False
        data, self._unparsed = self._unparsed, b""
        if data:
            self.flow.resume_reading()  # unless a request is complete
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse input, which begins complete requests; then give the peer time for the rest of an incomplete one."""
        while data and not self.transport.is_closing():
            # h11 checks the size of a head that is not complete, so it is never given more than fits into one.
            reads_head = self.conn.their_state is h11.IDLE
            size = max(HEAD_BYTES + 1 - len(self.conn.trailing_data[0]), 1) if reads_head else len(data)
            super().data_received(data[:size])
            data = data[size:]
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._await(state, BODY_SECONDS)
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            self._await(state, HEAD_SECONDS)
        else:
            self._await(None, 0.0)

    def on_response_complete(self) -> None:
        """An answer was written. Another request may follow once the peer has read most of it."""
        if self.flow.write_paused and not self.transport.is_closing():
            self._unread = True
        else:
            super().on_response_complete()

    def resume_writing(self) -> None:
        """The transport has room again."""
        super().resume_writing()
        if self._unread:
            self._unread = False
            super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """The input is not HTTP. uvicorn answers in plain text itself."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # the body of a request that has its answer
            self.transport.close()
            return
        error = bad_request(msg)
        length = str(len(error.content)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]
        head = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=error.content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def busy(self) -> bool:
        """True while a request that has come as a whole is being answered."""
        return self._reading is None and self.cycle is not None and not self.cycle.response_complete

    def _should_upgrade(self) -> bool:
        """Requests that begin a WebSocket are answered like all others, by `websocket.py`."""
        return False

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """Give the connection away: the present request was the last.

        Returns:
            The transport, and what came behind the request.
        """
        self._leave()
        self._unset_keepalive_if_required()
        super().connection_lost(EOFError("handed over"))  # to uvicorn it is: nothing is answered here
        data, self._unparsed = self.conn.trailing_data[0] + self._unparsed, b""
        return self.transport, data

    def _leave(self) -> None:
        self._order.pop(self, None)
        self._await(None, 0.0)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._gone = True
        self._unparsed = b""
        self._leave()
        super().connection_lost(exc)

    def _await(self, state: object, seconds: float) -> None:
        """Give the peer time for the rest of its request; more bytes of the same request do not renew it."""
        if state is self._reading and self._deadline is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._reading = state
        if state is not None:
            self._deadline = self.loop.call_later(seconds, self.transport.abort)


class BufferedReads(asyncio.BufferedProtocol):
    """Between a transport and :class:`PatientProtocol`: reads into the buffer that all links share, as much as the turn
    has time for. Without it the loop would read 256 KiB at a time.

    Args:
        protocol: receives the input.
        links: own the buffer.
        turn: as of :class:`PatientProtocol`.
    """

    def __init__(self, protocol: PatientProtocol, links: Links, turn: Callable[[], Turn | None]) -> None:
        self._protocol = protocol
        self._links = links
        self._turn = turn
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(cast("asyncio.Transport", transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        turn = self._turn()
        return self._links.short_buffer if turn is not None and turn.exhausted else self._links.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._links.buffer[:nbytes]))
