"""Client and broker of one process, joined by memory: no port, no network, no socket between them.

A :class:`Lane` carries bytes one way, from the thread that writes to the thread that reads; two of them are a
connection. Each end looks to its owner like what it has over TCP, so that everything above is the same code:
:class:`LoopEnd` is the transport of an event loop, the broker's or an asyncio client's; :class:`SocketEnd` has the
methods of a socket that the blocking client uses. Decision 0019 says why, and what it costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

import sievemq
import sievemq.aio
from sievemq.aio.transport import Reach as AioReach
from sievemq.aio.transport import Transport as AioTransport
from sievemq.blocking.repair import Reach
from sievemq.exceptions import JMSException

if TYPE_CHECKING:
    from sievemq_broker.server.net.link import Link
    from sievemq_testing.broker import TestBroker

__all__ = ["AioMemoryFactory", "Lane", "LoopEnd", "MemoryFactory", "SocketEnd"]

#: Unread bytes that count as written: what the buffers of a socket would have taken.
_ROOM: Final = 256 * 1024
_HIGH_WATER: Final = 64 * 1024


class Lane:
    """Bytes one way. Written by one thread, read by another.

    Attributes:
        size: bytes that were written and not read.
        on_data: called, with the lane's lock held, when the first byte or the end comes after all was read.
        on_room: called after a read.
    """

    __slots__ = ("_chunks", "_ended", "_lock", "_shut", "_told", "on_data", "on_room", "size")

    def __init__(self) -> None:
        self._lock = Lock()
        self._chunks: deque[bytes] = deque()
        self._ended = self._shut = self._told = False
        self.size = 0
        self.on_data: Callable[[], None] = _nothing
        self.on_room: Callable[[], None] = _nothing

    def put(self, data: bytes) -> None:
        """Write; what nobody will read is dropped."""
        with self._lock:
            if not self._ended and not self._shut:
                self._chunks.append(data)
                self.size += len(data)
                self._tell()

    def end(self) -> None:
        """Nothing follows what was written."""
        with self._lock:
            if not self._ended:
                self._ended = True
                if not self._shut:
                    self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self.on_data()

    def take(self, limit: int = -1, emptied: Callable[[], None] = lambda: None) -> tuple[bytes, bool]:
        """Read.

        Args:
            limit: bytes at most; -1 for all.
            emptied: called, with the lane's lock held, if nothing is left and `on_data` will tell of more.

        Returns:
            The bytes, and whether the end comes behind them.
        """
        with self._lock:
            data = b"".join(self._chunks) if len(self._chunks) != 1 else self._chunks[0]
            self._chunks.clear()
            if 0 <= limit < len(data):
                self._chunks.append(data[limit:])
                data = data[:limit]
            self.size -= len(data)
            left = self.size > 0
            if not left and not self._ended and self._told:
                self._told = False
                emptied()
        self.on_room()
        return data, self._ended and not left

    def shut(self) -> None:
        """Nobody reads any more: neither `on_data` nor `on_room` is called from here on."""
        with self._lock:
            self._shut = True
            self._chunks.clear()
            self.size = 0
        self.on_room()
        self.on_data = self.on_room = _nothing


def _nothing() -> None:
    pass


class LoopEnd(asyncio.Transport):
    """One end as an event loop's transport.

    Args:
        loop: whose thread this is used in.
        protocol: what it is for; :meth:`begin` introduces them.
        incoming: read here.
        outgoing: written here.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol | Link, incoming: Lane, outgoing: Lane
    ) -> None:
        super().__init__({"peername": "memory"})
        self._loop = loop
        self._protocol = protocol
        self._incoming, self._outgoing = incoming, outgoing
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._closing = self._choked = self._paused = False

    def begin(self) -> None:
        """The connection is made; what the other end says is read from now on."""
        self._protocol.connection_made(self)
        self._outgoing.on_room = self._has_room
        self._incoming.on_data = partial(self._call, self._read)
        self._call(self._read)  # it may have spoken first

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed: nobody is there to hear it
            pass

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        if self._paused or self._closing:
            return
        data, ended = self._incoming.take()
        if data:
            self._protocol.data_received(data)
        if ended and not self._closing and not self._protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._paused = True

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._paused = False
        self._call(self._read)

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """See asyncio.WriteTransport."""
        if self._closing:
            return
        self._outgoing.put(bytes(data))
        if not self._choked and self.get_write_buffer_size() > self._high:
            self._choked = True
            self._protocol.pause_writing()
            self._has_room()  # it may have been read meanwhile

    def _has_room(self) -> None:
        """In any thread: something was read."""
        if self._choked and self.get_write_buffer_size() <= self._low:
            self._call(self._go_on)

    def _go_on(self) -> None:
        if self._choked and not self._closing and self.get_write_buffer_size() <= self._low:
            self._choked = False
            self._protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio.WriteTransport."""
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport. Not counted is what a socket's buffers would hold."""
        return max(0, self._outgoing.size - _ROOM)

    def can_write_eof(self) -> bool:
        """See asyncio.WriteTransport."""
        return True

    def write_eof(self) -> None:
        """See asyncio.WriteTransport."""
        self._outgoing.end()

    # -- the end ------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return self._closing

    def close(self) -> None:
        """See asyncio.BaseTransport. What was written can still be read."""
        if not self._closing:
            self._closing = True
            self._incoming.shut()
            self._outgoing.end()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        """See asyncio.WriteTransport."""
        self.close()


class SocketEnd:
    """One end as the blocking client's I/O thread uses a socket. A pipe tells its selector that there is something to
    read; the bytes do not go through it.

    Args:
        incoming: read here.
        outgoing: written here.
    """

    def __init__(self, incoming: Lane, outgoing: Lane) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._sign, self._signal = os.pipe()
        os.set_blocking(self._sign, False)
        os.set_blocking(self._signal, False)
        incoming.on_data = lambda: _mute(os.write(self._signal, b"\0"))

    def fileno(self) -> int:
        """What a selector waits for; -1 once it is closed."""
        return self._sign

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def send(self, data: memoryview) -> int:
        """Takes everything: the window of unconfirmed sends bounds what can gather."""
        if self._sign < 0:
            raise OSError("this end is closed")
        self._outgoing.put(bytes(data))
        return len(data)

    def recv(self, limit: int) -> bytes:
        """See socket.recv: empty at the end.

        Raises:
            BlockingIOError: there is nothing.
        """
        data, ended = self._incoming.take(limit, lambda: _mute(os.read(self._sign, 1)))
        if not data and not ended:
            raise BlockingIOError
        if not data and self._sign >= 0:  # the end is told once: who waits for something else is not woken for it
            with contextlib.suppress(BlockingIOError):
                os.read(self._sign, 1)
        return data

    def close(self) -> None:
        """Idempotent. What was sent can still be read."""
        sign, signal = self._sign, self._signal
        if sign >= 0:
            self._outgoing.end()
            self._incoming.shut()
            self._sign = self._signal = -1
            os.close(sign)
            os.close(signal)

    def detach(self) -> int:
        """In a child made by fork: whatever is done with the descriptor, the parent's end stays as it is."""
        sign, self._sign = self._sign, -1
        os.close(self._signal)
        return sign


def _mute(_: object) -> None:
    pass


class MemoryFactory(sievemq.ConnectionFactory):
    """A blocking ConnectionFactory whose connections never leave the process.

    Args:
        broker: where they lead.
        url: says namespace and options; its host is not used.
    """

    __slots__ = ("_broker",)

    def __init__(self, broker: TestBroker, url: str) -> None:
        super().__init__(url)
        self._broker = broker

    def _way(self) -> Reach:
        return self._reach

    def _reach(self, hosts: Sequence[tuple[int, tuple[str, int]]], _: float) -> tuple[int, socket.socket]:
        incoming, outgoing = Lane(), Lane()
        end = SocketEnd(incoming, outgoing)
        try:
            self._broker.take_memory(outgoing, incoming).result()
        except BaseException as error:
            end.close()
            raise _refusal(error) from error
        return hosts[0][0], cast("socket.socket", end)


class AioMemoryFactory(sievemq.aio.ConnectionFactory):
    """The same for asyncio.

    Args:
        broker: where the connections lead.
        url: says namespace and options; its host is not used.
    """

    __slots__ = ("_broker",)

    def __init__(self, broker: TestBroker, url: str) -> None:
        super().__init__(url)
        self._broker = broker

    def _way(self) -> AioReach:
        return self._reach

    async def _reach(self, transport: AioTransport, hosts: Sequence[tuple[int, tuple[str, int]]], _: float) -> int:
        incoming, outgoing = Lane(), Lane()
        end = LoopEnd(transport.loop, transport, incoming, outgoing)
        try:
            await asyncio.wrap_future(self._broker.take_memory(outgoing, incoming))
        except Exception as error:
            raise _refusal(error) from error
        end.begin()
        return hosts[0][0]


def _refusal(error: BaseException) -> BaseException:
    """What a client is told that finds no broker."""
    if isinstance(error, Exception):
        return JMSException(f"no broker could be reached: {str(error) or 'it has stopped'}", "CONNECTION_FAILED", error)
    return error
