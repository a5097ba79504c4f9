"""The socket of a connection on an event loop, and when bytes are written.

Everything happens on the loop's thread; there is no other. What the engine has to say is written once per loop turn:
whoever queues something calls :meth:`Transport.flush_soon`, and the write comes after the tasks that were ready in this
turn, so that what they add goes out with it. Acknowledgements alone wait a few milliseconds for company (D-25).

While the peer does not read fast enough (`pause_writing`), nothing is handed to the loop's transport: it stays in the
engine, and producers wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from functools import partial
from types import coroutine
from typing import Final, TypeVar, cast

from sievemq._engine import ClientConnection, Completion
from sievemq.exceptions import IllegalStateException, JMSException

__all__ = ["GATHER", "Transport", "release", "turn", "wake", "wall_clock"]

T = TypeVar("T")

#: Bytes of sends after which a producer lets the loop turn: so that they are written, answers are read, others run.
GATHER: Final = 64 * 1024
#: Seconds that acknowledgements alone may wait for company.
_ACKNOWLEDGE_DELAY: Final = 0.005
#: Bytes that the loop's transport may hold before it says that the peer is slow.
_HIGH_WATER: Final = 256 * 1024


def wall_clock(_time: Callable[[], float] = time.time) -> int:
    """Milliseconds since 1970-01-01 UTC."""
    return int(_time() * 1000.0)


@coroutine
def turn() -> Generator[None, None, None]:
    """Let the loop turn once: what is ready runs, sockets are read and written."""
    yield


def wake(future: asyncio.Future[bool], expired: bool = False) -> None:
    """Let whoever waits for the future go on; it may have been cancelled meanwhile.

    Args:
        future: what somebody awaits.
        expired: what the wait results in: True if it was for too long.
    """
    if not future.done():
        future.set_result(expired)


def release(waiters: list[asyncio.Future[bool]]) -> None:
    """Wake everybody who waits in a list."""
    for future in waiters:
        wake(future)
    waiters.clear()


class Transport(asyncio.Protocol):
    """Moves bytes between an engine and the loop's transport, and lets tasks wait for the engine.

    Args:
        engine: the engine.
        loop: the running loop; the connection belongs to it.
        patience: milliseconds that a request may take; 0 for no limit.

    Attributes:
        armed: a write is due in this turn of the loop; whoever queues something need not say so.
        paused: the peer does not read as fast as we write.
        ended: done once the loop's transport is closed.
    """

    __slots__ = (
        "_acknowledging",
        "_beat",
        "_drained",
        "_patience",
        "_transport",
        "armed",
        "ended",
        "engine",
        "loop",
        "paused",
    )

    def __init__(self, engine: ClientConnection, loop: asyncio.AbstractEventLoop, patience: int) -> None:
        self.engine = engine
        self.loop = loop
        self.armed = False
        self.paused = False
        self.ended: asyncio.Future[bool] = loop.create_future()
        self._patience = patience
        self._acknowledging = False
        self._beat: asyncio.TimerHandle | None = None
        self._drained: list[asyncio.Future[bool]] = []
        self._transport: asyncio.Transport | None = None

    # -- what the loop says -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop has a connected socket."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        """Bytes from the broker. The write is queued behind the tasks they wake: what these say goes with it."""
        engine = self.engine
        engine.receive_data(data)
        if engine.failure is not None:
            self.abort()
        elif engine.urgent and not self.armed:
            self.flush_soon()

    def eof_received(self) -> bool:
        """The broker has ended its stream: the loop's transport closes too."""
        self.engine.receive_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self.engine.lost(exc)
        if self._beat is not None:
            self._beat.cancel()
        self.paused = False
        release(self._drained)
        wake(self.ended)

    def pause_writing(self) -> None:
        """The loop's transport holds enough."""
        self.paused = True

    def resume_writing(self) -> None:
        """It has room again."""
        self.paused = False
        self.write()
        if not self.paused:
            release(self._drained)

    # -- writing ------------------------------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Write in this turn of the loop, after what is ready to run."""
        if not self.armed:
            self.armed = True
            self.loop.call_soon(self._flush)

    def acknowledge_soon(self) -> None:
        """Something is to be acknowledged: with the next write, in a few milliseconds at the latest."""
        if not self._acknowledging:
            self._acknowledging = True
            self.loop.call_later(_ACKNOWLEDGE_DELAY, self._acknowledge)

    def _flush(self) -> None:
        self.armed = False
        self.write()

    def _acknowledge(self) -> None:
        self._acknowledging = False
        if self.engine.has_output:
            self.write()

    def write(self) -> None:
        """Write what the engine has to say."""
        transport = self._transport
        if transport is not None and not self.paused:
            data = self.engine.data_to_send()
            if data:
                transport.write(data)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def check_loop(self) -> None:
        """Raise unless this is the connection's loop (THR-06).

        Raises:
            IllegalStateException: another loop runs, or none.
        """
        if asyncio._get_running_loop() is not self.loop:
            raise IllegalStateException(
                "the connection belongs to another event loop: use it from the loop that it was created on"
            )

    async def wait(self, completion: Completion[T]) -> T:
        """Write, wait until the completion is settled, return its value or raise its error.

        Cancelling the wait takes nothing back of what was asked for.
        """
        if not completion.done:
            future: asyncio.Future[bool] = self.loop.create_future()
            completion.add_callback(lambda _: wake(future))
            if not self.armed:
                self.flush_soon()
            await future
        return completion.result()

    async def ask(self, request: Callable[[], Completion[T]], undo: Callable[[T], object] | None = None) -> T:
        """Make a request and wait for its answer, which comes at once from a broker that answers at all.

        Args:
            request: makes it.
            undo: what takes back its effect; called if the wait is cancelled and the request succeeds after all, so
                that nothing is left behind that nobody knows of.

        Raises:
            IllegalStateException: another loop than the connection's.
            JMSException: no answer within the option `request_timeout`; what the broker answered; the connection is
                lost.
        """
        self.check_loop()
        completion = request()
        try:
            return await self.wait_at_most(
                completion, self._patience, "the broker has not answered within the option request_timeout"
            )
        except asyncio.CancelledError:
            if undo is not None:
                completion.add_callback(partial(self._undo, undo))
            raise

    async def wait_at_most(self, completion: Completion[T], milliseconds: int, failure: str) -> T:
        """As :meth:`wait`, with a limit and a text for when it is passed; 0 for none."""
        if completion.done or not milliseconds:
            return await self.wait(completion)
        error = JMSException(f"{failure} ({milliseconds} ms)", "TIMEOUT")
        timer = self.loop.call_later(milliseconds / 1000.0, completion.fail, error)
        try:
            return await self.wait(completion)
        finally:
            timer.cancel()

    def _undo(self, undo: Callable[[T], object], completion: Completion[T]) -> None:
        if completion.error is None and self.engine.failure is None and not self.engine.closing:
            undo(completion.result())
            self.flush_soon()

    async def drained(self) -> None:
        """Wait until the peer has read enough for more to be written."""
        while self.paused:
            await self.park(self._drained)

    async def park(self, waiters: list[asyncio.Future[bool]]) -> None:
        """Wait in a list until :func:`release` empties it."""
        future: asyncio.Future[bool] = self.loop.create_future()
        waiters.append(future)
        await future

    # -- heartbeats, the end ------------------------------------------------------------------------------------------

    def keep_alive(self) -> None:
        """Keep the heartbeats from now on."""
        wait = self.engine.tick(int(self.loop.time() * 1000.0))
        if self.engine.failure is not None:
            self.abort()
            return
        if self.engine.has_output:
            self.write()
        self._beat = None if wait is None else self.loop.call_later(wait / 1000.0, self.keep_alive)

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Write what is left, close the socket, wait until it is closed."""
        if self._transport is None:
            return
        self.write()
        self._transport.close()
        if not self.ended.done():
            await asyncio.shield(self.ended)
