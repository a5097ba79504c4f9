"""STOMP over WebSocket: the page at which a connection begins, and a link's transport once it has.

    client ── WebSocket messages ──> WebSocket ── bytes ──> Link ──> StompConnection
    client <── a message per frame ── WebSocket <── bytes ── Link <── StompConnection

The request passes `access.py` like any other. From the answer 101 on, a :class:`Link` has the connection: turns,
back-pressure, limits and the store are those of the wire port. WebSocket frames are decoded in the time that the turn
grants, as commands are: a frame of six bytes without content costs as much as a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import h11
from starlette.requests import Request
from starlette.responses import Response
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    TextMessage,
)
from wsproto.events import Request as Handshake
from wsproto.utilities import ProtocolError

from sievemq_broker import logs
from sievemq_broker.protocols.stomp.frames import split
from sievemq_broker.server.http.access import caller
from sievemq_broker.server.http.errors import ApiError, bad_request, not_found
from sievemq_broker.server.net.link import BRIEF, HIGH_WATER, Link
from sievemq_broker.server.net.turn import Turn
from sievemq_broker.server.server import Phase, Server
from sievemq_core.errors import ErrorCode

#: Names of STOMP's versions in Sec-WebSocket-Protocol, the newest first.
SUBPROTOCOLS: Final = ("v12.stomp", "v11.stomp", "v10.stomp")

#: The first byte of a message in one frame.
_TEXT: Final = 0x81
_BYTES: Final = 0x82

log = logs.get("http")


async def open_websocket(request: Request, server: Server) -> Response | None:
    """Answer the request that begins a WebSocket.

    Returns:
        None: the connection is a WebSocket now.

    Raises:
        ApiError: it is none, or cannot become one.
    """
    try:
        server.port_of("stomp")
    except RuntimeError as error:
        raise not_found(str(error)) from None
    if request.headers.get("upgrade", "").lower() != "websocket":
        text = "WebSocket clients of STOMP connect here; a page shows nothing"
        raise ApiError(426, "UPGRADE_REQUIRED", text, headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    if server.phase is not Phase.READY:
        raise ApiError(503, "SHUTTING_DOWN", "the broker is shutting down")
    frames = WSConnection(ConnectionType.SERVER)
    try:
        frames.initiate_upgrade_connection(request.scope["headers"], request.url.path)
        [handshake] = [event for event in frames.events() if isinstance(event, Handshake)]
    except (ProtocolError, h11.ProtocolError, ValueError) as error:
        raise bad_request(f"this is no handshake of a WebSocket: {error}") from None
    wanted = handshake.subprotocols
    subprotocol = next((name for name in SUBPROTOCOLS if name in wanted), None)
    if wanted and subprotocol is None:
        raise bad_request(f"none of the sub-protocols is spoken here; {', '.join(SUBPROTOCOLS)} are")
    hand_over: Callable[[], tuple[asyncio.Transport, bytes]] = request.state.hand_over
    transport, data = hand_over()
    signed_in: Callable[[], bool] | None = getattr(request.state, "signed_in", None)
    websocket = WebSocket(transport, frames, server.new_link("stomp"), server.turn, server.clock.now, signed_in)
    websocket.begin(frames.send(AcceptConnection(subprotocol=subprotocol)))
    identity = caller(request)
    if identity.user is not None:  # CONNECT need not name it again
        websocket.link.connection.peer.entitle(identity)
    if signed_in is not None:
        server.ticks.at_each_round(websocket.look)
    if data:
        websocket.data_received(data)
    return None


class WebSocket(asyncio.Transport, asyncio.BufferedProtocol):
    """One connection: the protocol of its socket, and the transport of its link.

    Args:
        transport: of the socket.
        frames: WebSocket's, past the handshake.
        link: takes the bytes of messages and writes those of STOMP frames.
        turn: of the loop, which grants the time to decode.
        now: the broker's time, ms since 1970.
        signed_in: False once the sign-in that the handshake came with has ended; None if it came without one.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        frames: WSConnection,
        link: Link,
        turn: Turn,
        now: Callable[[], int],
        signed_in: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._frames = frames
        self.link = link
        self._turn = turn
        self._now = now
        self._signed_in = signed_in
        #: Something that was read is not decoded yet; and the turn will call :meth:`catch_up`.
        self._late = self._queued = False
        #: Bytes received since everything was decoded.
        self._undecoded = 0
        #: That of all links; what was read into it last is copied out at once.
        self._buffer = memoryview(b"")
        #: The link wants nothing more for now; the socket is not read from.
        self._paused = False
        self._resting = True
        #: Close was sent; and nothing more is decoded.
        self._closed = self._over = False

    def begin(self, accept: bytes) -> None:
        """Answer the handshake, and hand the connection to the link.

        Args:
            accept: the answer.
        """
        self._transport.set_protocol(self)
        self._transport.write(accept)
        self.link.connection_made(self)
        self._read(not self._paused)

    def look(self) -> bool:
        """End the connection if its sign-in has ended. False once it has ended."""
        return not self._closed and self._may_go_on()

    def _may_go_on(self) -> bool:
        if self._signed_in is None or self._signed_in():
            return True
        text = "the session in which this connection was opened has ended; sign in again"
        self.link.connection.close(ErrorCode.AUTHENTICATION, text, self._now())
        self.link.flush()
        return False

    # -- what the socket's transport calls ----------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer into which the loop reads."""
        self._buffer = self.link.get_buffer(sizehint)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """This many bytes have arrived in the buffer."""
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Bytes of frames have arrived."""
        if self._over:
            return
        self._undecoded += len(data)
        self._frames.receive_data(data)
        if self._late or self._paused:
            self._late = True
        elif self._turn.grant():
            self._go_on()
        else:
            self._put_off()

    def catch_up(self) -> None:
        """It is its turn again: decode what was put off, or some of it."""
        self._queued = False
        if not (self._paused or self._over):  # otherwise it continues once the link wants more
            self._go_on()

    def _go_on(self) -> None:
        """Decode, as far as there is time."""
        content: list[bytes] = []
        self._late = over = False
        try:
            for event in self._frames.events():
                over = self._decode(event, content)
                self._late = not over and self._turn.spent()
                if over or self._late:
                    break
        except ProtocolError as error:
            log.info("websocket.malformed", peer=self.link.peer, text=str(error))
            over = True
        if not self._late:
            self._undecoded = 0
        if content and self._may_go_on():
            self.link.data_received(b"".join(content))
        if over:
            self._end()
        elif self._late and not self._paused:
            self._put_off()
        else:
            self._read(not self._paused)

    def _put_off(self) -> None:
        """Decode the rest in a later turn; nothing more is read before that."""
        self._late = True
        self._read(False)
        if not self._queued:
            self._queued = True
            self._turn.put_off(self, brief=self._undecoded < BRIEF)

    def _read(self, on: bool) -> None:
        """Read from the socket, or do not."""
        if self._resting is on and not self._transport.is_closing():
            self._resting = not on
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _decode(self, event: Event, content: list[bytes]) -> bool:
        """Take the content of a frame, or answer it; True if the client has closed."""
        match event:
            case TextMessage():
                content.append(event.data.encode())
            case BytesMessage():
                content.append(bytes(event.data))
            case Ping():
                if not self._closed and self._transport.get_write_buffer_size() <= HIGH_WATER:
                    self._transport.write(self._frames.send(event.response()))
            case CloseConnection():
                if not self._closed:
                    self._closed = True
                    self._transport.write(self._frames.send(event.response()))
                return True
        return False

    def _end(self) -> None:
        """No more input follows."""
        self._closed = self._over = True
        self.link.eof_received()
        self._transport.close()

    def eof_received(self) -> None:
        """The client closed its side without a word."""
        self._closed = True
        self.link.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._closed = self._over = True
        self.link.connection_lost(exc)

    def pause_writing(self) -> None:
        """The socket holds more than it likes."""
        self.link.pause_writing()

    def resume_writing(self) -> None:
        """Resume writing: the socket has room again."""
        self.link.resume_writing()

    # -- what the link calls: a transport -----------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send STOMP frames, each as a message: of text where it is UTF-8."""
        if not self._closed:
            self._transport.write(b"".join([part for frame in split(data) for part in (_head_of(frame), frame)]))

    def close(self) -> None:
        """Send Close. The client answers, or the link aborts in the end."""
        if not self._closed:
            self._closed = True
            self._transport.write(self._frames.send(CloseConnection(code=1000)))
            if self._paused:
                self.resume_reading()

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """True once nothing is to be written any more."""
        return self._closed or self._transport.is_closing()

    def can_write_eof(self) -> bool:
        """A WebSocket sends Close instead."""
        return False

    def pause_reading(self) -> None:
        """The link wants nothing more for now."""
        self._paused = True
        self._read(False)

    def resume_reading(self) -> None:
        """Resume reading."""
        self._paused = False
        if self._late:
            self._put_off()
        else:
            self._read(True)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When :meth:`pause_writing` is called."""
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that are not sent."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return extra information about the socket."""
        return self._transport.get_extra_info(name, default)


def _head_of(frame: bytes) -> bytes:
    """The head of a WebSocket message in one frame (RFC 6455, section 5.2). By wsproto it would cost a tenth of a
    delivery."""
    first = _TEXT if frame.isascii() or _is_utf8(frame) else _BYTES
    size = len(frame)
    if size < 126:
        return bytes((first, size))
    if size < 65_536:
        return bytes((first, 126)) + size.to_bytes(2)
    return bytes((first, 127)) + size.to_bytes(8)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
