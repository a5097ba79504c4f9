"""One accepted connection: bytes from the socket into the session layer, and its output back, in one write per turn.

A durable broker holds output back until the messages that it confirms are on disk (commits.py).

The input of a flooding connection is processed in pieces, one a turn, so that others are served in between. If a piece
takes too long, such as messages with a thousand subscribers, the rest is put off (turn.py). Nothing is read from the
connection until it has caught up.

Back-pressure, in this order: above HIGH_WATER unsent bytes the session layer stops delivering (`pause`), which stops
all output that the peer has not requested. A peer that sends requests without reading the answers is no longer read
above READ_PAUSE. So the memory of a connection is bounded by READ_PAUSE plus the answers to one read, and by the frame
that it receives. The frames of all connections have a common limit (large_frames.py)."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.base import BaseConnection
from sievemq_broker.server.net.large_frames import LargeFrames
from sievemq_broker.server.net.services import ServerServices
from sievemq_broker.server.net.turn import Turn
from sievemq_broker.session.life import CLOSING, GONE, Life
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Identity
from sievemq_core.limits import GATHER_BYTES

if TYPE_CHECKING:  # in memory there is no database
    from sievemq_broker.server.durability.commits import Commits

#: Unsent bytes above which nothing is delivered to a connection, and below which it continues. Some two reads of a fast
#: consumer: enough to keep it busy, little enough that ten thousand slow ones do not hurt.
HIGH_WATER = 256 * 1024
LOW_WATER = 64 * 1024

#: Unsent bytes above which a connection is not read from. Far above HIGH_WATER: a client that writes without reading
#: for a moment must not find both directions closed, since confirms are small and deliveries have stopped already.
READ_PAUSE = 4 * 1024 * 1024

#: The bytes of a read. A read that fills them is the connection's last in this turn, because there may be more: the
#: loop would read up to 32 times, thousands of messages, while other clients and the consumers of the first messages
#: wait. It takes half a millisecond for a queue. Four times as much cost a topic with ten subscribers a fifth of its
#: rate, because its output is in no cache any more when it is written; half as much gained nothing.
READ_BYTES = 64 * 1024

#: The bytes of a read once the turn has no time left to process input: hundreds of connections may send at once.
SHORT_READ_BYTES = 16 * 1024

#: Bytes not carried out below which a connection has sent little: a dozen commands of the usual kind.
BRIEF = 4 * 1024

#: Bytes held back for the disk above which nothing is delivered to a connection: the input during a sync of 5 ms.
HELD_HIGH = 1024 * 1024

#: Reasons for which nothing is read from a connection.
UNREAD: Final = 1  # the client does not read what it is sent
NEXT_TURN: Final = 2  # what was read is not carried out yet, or was enough for this turn of the loop
MEMORY: Final = 4  # there is no memory for a large frame
SILENCE: Final = 8  # the broker is silent: another one may own its store

#: Seconds that a peer may take to close its side after ours is closed.
LINGER_SECONDS = 5.0

log = logs.get("server")


Connection: TypeAlias = BaseConnection[Any]
"""The broker's end of one connection, for any protocol: bytes in, bytes out."""


class ShardPort(Protocol):
    """What a link needs of its shard; see :class:`~sievemq_broker.server.shard.Shard`."""

    @property
    def broker(self) -> Broker:
        """The domain."""

    @property
    def services(self) -> ServerServices:
        """What its connections share."""

    @property
    def commits(self) -> Commits | None:
        """Holds output back until what it confirms is on disk; None in memory."""


Connect: TypeAlias = Callable[[ShardPort, str, Callable[[], None]], Connection]
"""Makes the broker's end of a connection: given the shard, the peer's address, and what is called when output
appears."""

Choose: TypeAlias = Callable[[bytes], Connect | None]
"""Detects another protocol by the first bytes of a connection; None if it is the assumed one."""

#: Bytes that determine the protocol.
FIRST_BYTES = 4


class Links:
    """All open links, and what is counted about them."""

    __slots__ = (
        "_by_peer", "_bytes_out", "_closed", "_empty", "_rejected", "_unwelcomed", "accepted", "buffer", "bytes_in",
        "large_frames", "limit", "look_at", "on_look_at", "open", "refused", "short_buffer", "silent",
    )  # fmt: skip

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: The loop reads from every connection into this, and into its beginning once the turn has no time left.
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.short_buffer = self.buffer[:SHORT_READ_BYTES]
        self.open: set[Link] = set()
        self._by_peer: dict[Peer, Link] = {}
        #: In the order of their arrival; those welcomed since then are removed when their turn comes.
        self._unwelcomed: dict[Link, None] = {}
        #: Links that were refused. They stay open until the client has the error, and do not count for the limit.
        self._rejected: set[Link] = set()
        self._empty: asyncio.Future[None] | None = None
        self._closed = False
        #: Nothing is read from any of them.
        self.silent = False
        self.large_frames = LargeFrames()
        self.accepted = self.refused = self.bytes_in = self._bytes_out = 0
        #: The value of :attr:`bytes_in` at which the memory is measured again.
        self.look_at = sys.maxsize
        self.on_look_at: Callable[[], None] = lambda: None

    def limit_connections(self, limit: int) -> None:
        """Accept so many from now on. Those that are more stay."""
        self.limit = limit

    def limit_memory(self, large_frames: int, on_look_at: Callable[[], None]) -> None:
        """Mind what is read from now on.

        Args:
            large_frames: bytes that large frames may have together.
            on_look_at: called before bytes are handled with which :attr:`bytes_in` passes :attr:`look_at`.
        """
        self.large_frames.set_limit(large_frames)
        self.on_look_at = on_look_at

    def allow(self, bytes_in: int = sys.maxsize) -> None:
        """Read until :attr:`bytes_in` passes this."""
        self.look_at = bytes_in

    def came(self, size: int) -> None:
        """This many bytes have arrived, and are not processed yet."""
        self.bytes_in += size
        if self.bytes_in > self.look_at:
            self.on_look_at()

    @property
    def taken(self) -> int:
        """The number of links that count for :attr:`limit`: all open ones but those that were refused."""
        return len(self.open) - len(self._rejected)

    @property
    def bytes_out(self) -> int:
        return self._bytes_out + sum([link.bytes_out for link in self.open])

    def add(self, link: Link) -> bool:
        """Take in a link. At the limit the oldest one that is not welcomed makes room for it.

        Returns:
            False if all others are welcomed: this is one too many. It is accepted all the same, to get the error.
        """
        self.accepted += 1
        if self._closed:
            link.abort()
        self.open.add(link)
        self._by_peer[link.connection.peer] = link
        if self.taken > self.limit:
            self.refused += 1
            if not self._evict():
                self._rejected.add(link)
                return False
        self._unwelcomed[link] = None
        return True

    def _evict(self) -> bool:
        """End the oldest link whose connection is not welcomed; False if there is none."""
        while self._unwelcomed:
            link = next(iter(self._unwelcomed))
            del self._unwelcomed[link]
            if not link.connection.peer.member.id:  # one that is closing without a welcome, too
                link.evict()
                self.discard(link)
                return True
        return False

    def replace(self, peer: Peer, link: Link) -> None:
        """The client of a link turned out to speak another protocol."""
        self._by_peer.pop(peer, None)
        self._by_peer[link.connection.peer] = link

    def discard(self, link: Link) -> None:
        """A link is gone."""
        if link in self.open:
            self.open.discard(link)
            self._bytes_out += link.bytes_out
        self._unwelcomed.pop(link, None)
        self._rejected.discard(link)
        self._by_peer.pop(link.connection.peer, None)
        if not self.open and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def when_empty(self) -> asyncio.Future[None]:
        self._empty = asyncio.get_running_loop().create_future()
        if not self.open:
            self._empty.set_result(None)
        return self._empty

    def of(self, peer: Peer) -> Link | None:
        """The link of a client; None once it is gone."""
        return self._by_peer.get(peer)

    def silence(self, silent: bool) -> None:
        """Read nothing from any of them from now on, or read again."""
        self.silent = silent
        for link in tuple(self.open):
            link.silence(silent)

    def beat(self, now: int) -> None:
        """Send the heartbeats that are due while nothing else is sent."""
        for link in tuple(self.open):
            link.beat(now)

    def abort_all(self) -> int:
        """Cut every connection without a word, as a failing network does. Returns how many there were."""
        links = list(self.open)
        for link in links:
            link.abort()
        return len(links)

    def close(self) -> None:
        """Cut every connection, and each that is made from now on."""
        self._closed = True
        self.abort_all()


class Link(asyncio.BufferedProtocol):
    """The transport's side of one connection.

    Args:
        links: where all links are kept.
        turn: ends the loop's turn.
        clock: the broker's time.
        shard: that its client is of.
        connect: makes the broker's end.
        refuse: gives the last words for one connection too many.
        choose: finds another protocol by the first bytes; None if there is no other.
        identify: whose certificate a client has shown; None if that is not looked at.
    """

    __slots__ = (
        "_beat_at", "_choose", "_clock", "_connect", "_cut", "_ended", "_identify", "_large", "_linger", "_links",
        "_paused_by_disk", "_pauses", "_queued", "_refuse", "_shard", "_turn", "bytes_in", "bytes_out", "commits",
        "connection", "held", "late", "life", "peer", "transport", "unheard",
    )  # fmt: skip

    transport: asyncio.Transport
    connection: Connection
    life: Life

    def __init__(
        self,
        links: Links,
        turn: Turn,
        clock: Clock,
        shard: ShardPort,
        connect: Connect,
        refuse: Callable[[Connection, int], None],
        choose: Choose | None = None,
        identify: Callable[[asyncio.Transport], Identity | None] | None = None,
    ) -> None:
        self._choose = choose
        self._identify = identify
        self._links = links
        self._turn = turn
        self._clock = clock
        self._shard = shard
        self.commits = shard.commits
        self._connect = connect
        self._refuse = refuse
        self._linger: asyncio.TimerHandle | None = None
        #: Why nothing is read: the sum of UNREAD, NEXT_TURN, MEMORY and SILENCE, 0 while there is no reason.
        self._pauses = 0
        #: When the next heartbeat is sent past what is held back.
        self._beat_at = 0
        self._queued = False
        #: Number of the large frame that has begun, 0 if there is none.
        self._large = 0
        self._paused_by_disk = False
        #: The client has sent its last byte; and the socket is gone. What was read before is carried out even so.
        self._ended = self._cut = False
        #: Input that was read when the turn had no time left for it.
        self.unheard = b""
        #: Not all that was read has been carried out: it is its turn again later.
        self.late = False
        #: Bytes that wait for the disk.
        self.held = 0
        self.peer = ""
        self.bytes_in = self.bytes_out = 0

    # -- what the loop calls --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection was accepted; behind TLS, its handshake is done."""
        self.transport = transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        if (sock := transport.get_extra_info("socket")) is not None and sock.family in (
            socket.AF_INET,
            socket.AF_INET6,
        ):
            # Writes are gathered already; holding one back for an acknowledgement would only add a round trip.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer = _show_peer(transport.get_extra_info("peername"))
        self._take_on(self._connect)
        if self._identify is not None and (identity := self._identify(transport)) is not None:
            self.connection.peer.entitle(identity)
        if not self._links.add(self):
            self._refuse(self.connection, self._clock.now())
            log.warning("connection.refused", peer=self.peer, limit=self._links.limit)
            self._turn.mark(self)
        if self._links.silent:
            self.silence(True)

    def _take_on(self, connect: Connect) -> None:
        """Make the broker's end of the connection."""
        self.connection = connect(self._shard, self.peer, self._wake)
        peer, name = self.connection.peer, self.transport.get_extra_info("sockname")
        if isinstance(name, tuple):
            peer.come_by(name[1])
        self.life = peer.life

    def _wake(self) -> None:
        self._turn.mark(self)
        if not self.late and self.connection.behind:  # by a command that was carried out late
            self._put_off()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer into which the loop reads. All links share it: its content is copied out before the next read."""
        return self._links.short_buffer if self._turn.exhausted else self._links.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """This many bytes have arrived in the buffer."""
        self.data_received(bytes(self._links.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        size = len(data)
        self.bytes_in += size
        self._links.came(size)
        if self.life.state == GONE:
            return
        if self._choose is not None:
            data = self._begin(data)
            if not data:
                return
        if self.late or not self._turn.grant():
            self.unheard += data
            self._put_off()
            return
        if self.commits is not None:
            self.commits.begin()
        try:
            self.connection.receive_data(data, self._clock.now())
        except Exception as error:
            self.fail(error)
            return
        self._turn.fed(self)
        if size >= READ_BYTES or self._large or not self.connection.caught_up:
            self._look_after(size)

    def _look_after(self, size: int) -> None:
        """Not all that was read is carried out, or more is to be expected."""
        if self.connection.behind:
            self._put_off()
        elif size >= READ_BYTES or self.connection.full:
            self._pause_reading(NEXT_TURN)
        if self.connection.frame_bytes > GATHER_BYTES or self._large:
            self._follow_frame()

    def _begin(self, data: bytes) -> bytes:
        """Find the protocol by the first bytes; returns what is to be carried out now."""
        assert self._choose is not None
        self.unheard += data
        if len(self.unheard) < FIRST_BYTES:
            return b""
        data, self.unheard = self.unheard, b""
        connect = self._choose(data)
        self._choose = None
        if connect is not None and self.life.state < CLOSING:
            before = self.connection.peer
            self._take_on(connect)
            if before.member.identity.user is not None:  # by its certificate
                self.connection.peer.entitle(before.member.identity)
            self._links.replace(before, self)
        return data

    def catch_up(self) -> None:
        """It is its turn again: carry out what was put off, or some of it."""
        self._queued = False
        if not self._pauses & UNREAD:  # otherwise its turn comes once it reads the answers to its requests
            self._go_on()
        self.late = False
        if self.behind:
            self._put_off()
        elif self._ended and self.life.state < CLOSING:
            self._end()
        self._turn.fed(self)

    @property
    def behind(self) -> bool:
        """Something that was read is not carried out yet, and will be."""
        return self.life.state < GONE and ((bool(self.unheard) and self._choose is None) or self.connection.behind)

    def _go_on(self) -> None:
        if self.life.state == GONE:
            return
        now = self._clock.now()
        if self.commits is not None:
            self.commits.begin()
        try:
            if self.connection.behind:
                self.connection.catch_up(now)
            else:
                data, self.unheard = self.unheard, b""
                self.connection.receive_data(data, now)
        except Exception as error:
            self.fail(error)
            return
        self._follow_frame()

    def _follow_frame(self) -> None:
        """Read on from the connection only if there is memory for the large frame that has begun, or for more of it."""
        connection, large_frames = self.connection, self._links.large_frames
        size = 0 if self.life.state == GONE else connection.frame_bytes
        number = connection.frame_number if size > GATHER_BYTES else 0
        if number == self._large:
            if not number or self._pauses & MEMORY or large_frames.grow(self, size):
                return
        else:
            if self._large:
                large_frames.discard(self)
                if self.life.state < GONE:
                    self.read_on()
            self._large = number
            if not number or large_frames.admit(self, size):
                return
        connection.hold_back(True)
        self._pause_reading(MEMORY)

    def read_on(self) -> None:
        """There is memory for the large frame that has begun."""
        if self._pauses & MEMORY:
            self.connection.hold_back(bool(self._pauses & SILENCE))
            self._resume_reading(MEMORY)

    def silence(self, silent: bool) -> None:
        """Read nothing from now on, however long the client waits, or read again."""
        if silent and not self._cut:
            self.connection.hold_back(True)
            self._pause_reading(SILENCE)
        elif self._pauses & SILENCE:
            self.connection.hold_back(bool(self._pauses & MEMORY))
            self._resume_reading(SILENCE)

    def _pause_reading(self, reason: int) -> None:
        if not self._pauses:
            self.transport.pause_reading()
        self._pauses |= reason

    def _resume_reading(self, reasons: int) -> None:
        """These reasons are gone. Read if no other one is left."""
        if self._pauses & reasons:
            self._pauses &= ~reasons
            if not self._pauses and not self.transport.is_closing():
                self.transport.resume_reading()

    @property
    def input_bytes(self) -> int:
        """Bytes that were read and are no messages yet."""
        return self.connection.unpublished + len(self.unheard)

    @property
    def output_bytes(self) -> int:
        """Bytes that are written and not sent: the client does not read, or the disk is not done."""
        return self.transport.get_write_buffer_size() + self.held

    def _put_off(self) -> None:
        self.late = True
        self._pause_reading(NEXT_TURN)
        if not self._pauses & UNREAD and not self._queued:
            self._queued = True
            transactions = self.connection.peer.staged.used  # carried out, as far as they came
            self._turn.put_off(self, brief=self.input_bytes - transactions < BRIEF)

    def eof_received(self) -> None:
        """The peer sends no more. Once all that it has sent is carried out, remaining output is written, then the
        transport closes."""
        self._ended = True
        if self.behind:  # in TLS or a WebSocket, where the end is read although nothing is to be read
            self._put_off()
        else:
            self._end()

    def _end(self) -> None:
        if self.commits is not None:
            self.commits.begin()
        try:
            self.connection.receive_eof(self._clock.now())
        except Exception as error:
            self.fail(error)
            return
        self._turn.fed(self)
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed or broken."""
        self._cut = True
        if self._linger is not None:
            self._linger.cancel()
        if self._ended and self.life.state < CLOSING and self.behind:
            self.connection.end_output()
            self._pauses &= ~UNREAD
            self._put_off()
        else:
            self._leave()

    def _leave(self) -> None:
        self._lose()
        self._links.discard(self)
        self._turn.worked()  # what was given back may have a deadline, or another consumer

    def pause_writing(self) -> None:
        """More than HIGH_WATER bytes are unsent."""
        self.connection.pause()

    def resume_writing(self) -> None:
        """Less than LOW_WATER bytes are unsent."""
        if self._pauses & UNREAD:
            self._resume_reading(UNREAD)
            if self.late:
                self._put_off()
        if self._paused_by_disk:  # by the disk, which resumes it itself
            return
        try:
            self.connection.resume(self._clock.now())
        except Exception as error:
            self.fail(error)
            return
        self._turn.mark(self)

    # -- what the broker calls ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write all output in one call; close if it was the last."""
        transport = self.transport
        if self._pauses & NEXT_TURN and not self.late and not self.connection.full:
            self._resume_reading(NEXT_TURN)
        if self.life.state == GONE:
            return
        connection = self.connection
        if connection.has_data:
            try:
                data = connection.data_to_send()
            except Exception as error:
                self.fail(error)
                return
            if data and not self._cut:
                size = len(data)
                self.bytes_out += size
                commits, needs = self.commits, connection.peer.out.needs
                if commits is None or not commits.hold(self, data, needs):
                    transport.write(data)
                else:
                    self.held += size
                    if self.held > HELD_HIGH and not self._paused_by_disk:
                        self._paused_by_disk = True
                        connection.pause()
            if not (self._pauses & UNREAD or self._cut) and transport.get_write_buffer_size() + self.held > READ_PAUSE:
                self._pause_reading(UNREAD)
        if self.life.state == CLOSING and (self._cut or not self.held):
            self._close()

    def send_blocked(self, text: str) -> None:
        """Send FLOW past what waits for the disk: it refers to nothing that must be on disk first.

        Args:
            text: why nothing is answered, for people.
        """
        if self.life.state == GONE or self._cut or self.bytes_out == self.held:
            return  # WELCOME is the first that a client gets
        self._write_past(self.connection.urgent_flow(text))

    def beat(self, now: int) -> None:
        """While the broker is silent: send a heartbeat if one is due, or the client would leave.

        Args:
            now: ms epoch.
        """
        interval = self.connection.heartbeats[1]
        if not interval or 0 < self._beat_at - now <= interval:
            return
        self._beat_at = now + interval // 2
        if self.life.state == GONE or self._cut or self.bytes_out == self.held:
            return
        if not self.transport.get_write_buffer_size():
            self._write_past(self.connection.urgent_heartbeat())

    def _write_past(self, data: bytes) -> None:
        """Write ahead of what is held back."""
        if data:
            self.bytes_out += len(data)
            self.transport.write(data)

    def release(self, data: bytes) -> None:
        """Write output that was held back for the disk."""
        self.held -= len(data)
        if self.life.state == GONE or self._cut:
            return
        transport = self.transport
        transport.write(data)
        if self.life.state == CLOSING:
            if not self.held:
                self._close()
            return
        unsent = transport.get_write_buffer_size()
        if unsent > HIGH_WATER:  # resume_writing follows
            self._paused_by_disk = self._paused_by_disk and self.held > HELD_HIGH
        elif (self._paused_by_disk or self._pauses & UNREAD) and self.held <= HELD_HIGH:
            self._paused_by_disk = False
            self.resume_writing()

    def _close(self) -> None:
        """End in order. Only this side is closed; further input is read and dropped. Closing the socket over unread
        bytes would reset the connection, and the peer might never read why it ended."""
        if self._cut:
            self._leave()
            return
        self._lose()
        transport = self.transport
        if transport.can_write_eof():
            transport.write_eof()
            self._resume_reading(UNREAD | MEMORY)
        else:  # TLS closes its session by itself
            transport.close()
        self._linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)

    def evict(self) -> None:
        """End a connection that is not welcomed, at once: a newer one needs its place."""
        self._refuse(self.connection, self._clock.now())
        log.warning("connection.evicted", peer=self.peer, limit=self._links.limit)
        self.flush()
        self.abort()

    def abort(self) -> None:
        """Cut the connection without a word, and carry out nothing more."""
        self._ended = False
        if self._cut:
            self._leave()
        else:
            self.transport.abort()

    def fail(self, error: Exception) -> None:
        """A layer below raised what it must not raise: a fault of the broker, which ends only this connection."""
        log.fault("connection.failed", error, peer=self.peer)
        self._lose()
        self.abort()

    def _lose(self) -> None:
        """Write and carry out nothing more."""
        try:
            self.connection.lost(self._clock.now())
        except Exception as error:
            log.fault("connection.failed", error, peer=self.peer)
        self.unheard = b""
        self._follow_frame()


def _show_peer(address: object) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "unknown")
