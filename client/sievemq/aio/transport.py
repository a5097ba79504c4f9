"""The socket of a connection on an event loop, and when bytes are written.

Everything happens on the loop's thread; there is no other. What the engine has to say is written once per loop turn:
whoever queues something calls :meth:`Transport.flush_soon`, and the write comes after the tasks that were ready in this
turn, so that what they add goes out with it. Input schedules a write as well, behind the tasks that it wakes: what they
send needs no further turn of the loop. Acknowledgements alone wait a few milliseconds for company (D-25).

Where the option `busy_poll` says so, the loop polls for an answer before it blocks (decision 0022).

While the peer does not read fast enough (`pause_writing`), nothing is handed to the loop's transport: it stays in the
engine, and producers wait.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context
from types import coroutine
from typing import Any, Final, NamedTuple, TypeVar, cast

from sievemq._engine import ACKNOWLEDGE_DELAY, ClientConnection, Completion, Race, Repair, Sends
from sievemq.aio.repair import Candidate, Greet, Reach, attempt
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq_core.limits import GATHER_BYTES

T = TypeVar("T")
#: Bytes that the loop's transport may hold before the peer counts as slow.
_HIGH_WATER: Final = 256 * 1024


#: Yields the processor; where that is impossible there is no polling.
_give_way: Final = getattr(os, "sched_yield", None)

_running_loop: Final = asyncio._get_running_loop


def wall_clock(_time: Callable[[], int] = time.time_ns) -> int:
    """Milliseconds since 1970-01-01 UTC, never one that has not begun: the broker counts them in the same way."""
    return _time() // 1_000_000


@coroutine
def turn() -> Generator[None, None, None]:
    """Yield to the loop once: ready callbacks run, sockets are read and written."""
    yield


def own_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task of the client's own. Its context is empty: what it calls later, for any message, is not part of the
    request or span in which the application happened to cause its start."""
    return loop.create_task(work, name=name, context=Context())


def wake(future: asyncio.Future[bool], expired: bool = False) -> None:
    """Resume the task that awaits the future; it may have been cancelled.

    Args:
        expired: what the wait results in: True if it was for too long.
    """
    if not future.done():
        future.set_result(expired)


def release(waiters: list[asyncio.Future[bool]]) -> None:
    for future in waiters:
        wake(future)
    waiters.clear()


class LoopGuard:
    """In the place of the blocking API's lock: it excludes nothing, since everything is on one thread, but it refuses
    other loops (THR-06).
    """

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def check(self) -> None:
        """Raise unless the connection's loop runs.

        Raises:
            IllegalStateException: another loop runs, or none.
        """
        if _running_loop() is not self._loop:
            raise IllegalStateException(
                "the connection belongs to another event loop: use it from the loop that it was created on"
            )

    __enter__ = check

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""


class _Limit(NamedTuple):
    """When a caller has waited long enough, and what it waits for."""

    end: float
    future: asyncio.Future[bool]


class Transport(asyncio.Protocol):
    """Moves bytes between an engine and the loop's transport, and lets tasks wait for the engine. Has the loop connect
    another one when that is lost.

    Args:
        engine: the engine.
        loop: the running loop; the connection belongs to it.
        patience: milliseconds that a request may take; 0 for no limit.
        hosts: where a broker may be found again.
        secure: over TLS.
        repair: when to reconnect; None for never.
        reach: how to connect.
        greet: makes a HELLO for a host.
        connect_timeout: milliseconds for one round over the hosts.

    Attributes:
        asked: the broker may answer something that was sent, and nothing has arrived since.
        asleep: no write was asked for in this turn of the loop.
        busy_poll: seconds for which the loop polls for an answer before it blocks; 0 for never.
        paused: the peer does not read as fast as we write.
        ended: done once the loop's transport is closed, for good.
        lock: raises on other loops.
    """

    __slots__ = (
        "_acknowledging", "_beat", "_connect_timeout", "_drained", "_flushing", "_greet", "_hosts",
        "_limiting", "_limits", "_looks", "_lost", "_opened", "_outages", "_patience", "_reach", "_repair",
        "_repairing", "_secure", "_transport", "_waits_since", "asked", "asleep", "busy_poll", "ended", "engine",
        "lock", "loop", "paused",
    )  # fmt: skip

    def __init__(
        self,
        engine: ClientConnection,
        loop: asyncio.AbstractEventLoop,
        patience: int,
        *,
        hosts: Sequence[tuple[str, int]] = (),
        secure: bool = False,
        repair: Repair | None = None,
        reach: Reach | None = None,
        greet: Greet | None = None,
        connect_timeout: int = 10_000,
    ) -> None:
        self.busy_poll = engine.options.busy_poll / 1e6 if _give_way is not None else 0.0
        self._waits_since = 0.0
        self._looks = self.asked = False
        self._hosts, self._secure = hosts, secure
        self._repair, self._reach, self._greet = repair, reach, greet
        self._connect_timeout = connect_timeout
        self._repairing: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[bool] | None = None  # during a repair: done when the socket is closed
        self._outages = 0
        self._opened = int(loop.time() * 1000.0)
        self.engine = engine
        self.loop = loop
        self.lock = LoopGuard(loop)
        self.asleep = True
        self._flushing = False  # a write is scheduled
        self.paused = False
        self.ended: asyncio.Future[bool] = loop.create_future()
        self._patience = patience
        self._limits: deque[_Limit] = deque()
        self._limiting: asyncio.TimerHandle | None = None
        self._acknowledging = False
        self._beat: asyncio.Handle | None = None
        self._drained: list[asyncio.Future[bool]] = []
        self._transport: asyncio.Transport | None = None

    # -- what the loop says -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop has a connected socket."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        """Bytes from the broker. A write is scheduled behind the tasks that they wake."""
        engine, skipped = self.engine, self.engine.terms.skipped
        try:
            self.asked = False
            self._waits_since = 0.0
            engine.receive_data(data)
        except BaseException as error:
            self.broken(error)
            raise
        if engine.terms.skipped != skipped and engine.next_deadline is not None:
            self._beat_again()
        if engine.down:
            self.abort()
            return
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def eof_received(self) -> bool:
        """The broker has ended its stream: the loop's transport closes too."""
        self.engine.receive_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        engine = self.engine
        engine.lost(exc)
        self._transport = None
        if self._beat is not None:
            self._beat.cancel()
            if engine.repairing:
                self._beat_again()
        self.paused = False
        if self._limiting is not None and not engine.usable:  # everything has failed
            self._limiting.cancel()
            self._limits.clear()
        if self._lost is not None:
            wake(self._lost)
        if not engine.repairing:
            release(self._drained)
            wake(self.ended)
        elif self._repairing is None:
            self._repairing = own_task(self.loop, self._find_another(), "sievemq-reconnect")

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

    def admits(self, sends: Sends) -> bool:
        """A send may be queued now; it is written in this turn of the loop."""
        if (
            sends.sequence >= sends.sequence_limit
            or sends.sent_bytes >= sends.byte_limit
            or self.engine.outbox.queued_bytes >= GATHER_BYTES
        ):
            return False
        if self.asleep:
            self.lock.check()
            self.flush_soon()
        return True

    def flush_soon(self) -> None:
        """Write in this turn of the loop, after what is ready to run."""
        self.asleep = False
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def flush_later(self) -> None:
        """Something was queued that no call waits for."""
        self.flush_soon()

    def nudge(self) -> None:
        """Something is to be acknowledged, and no write is due: see that it is written within a few milliseconds."""
        if not self._acknowledging:
            self._acknowledging = True
            self.loop.call_later(ACKNOWLEDGE_DELAY, self._acknowledge)

    def _flush(self) -> None:
        for_input, self.asleep, self._flushing = self.asleep, True, False
        outbox = self.engine.outbox
        if outbox.queue or outbox.hurried or outbox.wire.pending_bytes:
            self.asked = True
        elif for_input:
            return  # acknowledgements alone wait
        self.write()

    def _acknowledge(self) -> None:
        self._acknowledging = False
        if self.engine.has_output:
            self.write()

    def write(self) -> None:
        """Write the engine's output."""
        transport = self._transport
        if transport is not None and not self.paused:
            try:
                data = self.engine.outbox.data_to_send()
                if data:
                    transport.write(data)
            except BaseException as error:
                self.broken(error)
                raise

    # -- looking for an answer ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """A task waits for the broker's next bytes: have the loop poll for them. Only if :attr:`busy_poll` is set."""
        self._waits_since = time.monotonic()
        if not self._looks:
            self._looks = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        """Once more: as long as something is to be called the loop does not sleep."""
        assert _give_way is not None
        if self._waits_since and time.monotonic() - self._waits_since < self.busy_poll:
            _give_way()
            self.loop.call_soon(self._look)
        else:
            self._looks = False

    # -- waiting ------------------------------------------------------------------------------------------------------

    def check_loop(self) -> None:
        """Raise unless this is the connection's loop (THR-06)."""
        self.lock.check()

    def call(self, work: Callable[[], T]) -> T:
        """Call the engine; a request that it makes is not awaited."""
        self.lock.check()
        outbox = self.engine.outbox
        last = outbox.requests.last
        try:
            return work()
        except BaseException as error:
            if not isinstance(error, Exception):  # KeyboardInterrupt, for example
                outbox.abandon_since(last)
                self.broken(error)
            raise

    def broken(self, error: BaseException, sends: Sends | None = None) -> None:
        """An exception of a signal handler broke into the engine: the connection is lost (decision 0029).

        Args:
            error: the exception.
            sends: it broke into a send of these.
        """
        if sends is not None:
            sends.mend()
        self.engine.interrupted(error)
        self.abort()

    async def wait(self, completion: Completion[T]) -> T:
        """Write, wait until the completion is settled, return its value or raise its error.

        Cancelling the wait takes nothing back of what was asked for.
        """
        if not completion.done:
            future: asyncio.Future[bool] = self.loop.create_future()
            completion.add_callback(lambda _: wake(future))
            if self.asleep:
                self.flush_soon()
            if self.busy_poll:
                self.look()
            await future
        return completion.result()

    async def ask(self, request: Callable[[], Completion[T]]) -> T:
        """Send a request and wait for its answer. If the wait is cancelled or its time is over, what the request makes
        is undone when it is answered (:meth:`Outbox.abandon`).

        Args:
            request: makes it.

        Raises:
            IllegalStateException: another loop than the connection's.
            JMSException: no answer within the option `request_timeout`; what the broker answered; the connection is
                lost.
        """
        completion = self.call(request)
        if completion.done:
            return completion.result()
        # wait(), written out: every consumer that is opened and closed comes here.
        future: asyncio.Future[bool] = self.loop.create_future()
        completion.add_callback(lambda _: wake(future))
        if self.asleep:
            self.flush_soon()
        if self.busy_poll:
            self.look()
        if self._patience:
            self._limit(future)
        try:
            expired = await future
        except BaseException:
            self._abandon(completion)
            raise
        if expired and not completion.done:
            self._abandon(completion)
            text = f"the broker has not answered within the option request_timeout ({self._patience} ms)"
            raise JMSException(text, "TIMEOUT")
        return completion.result()

    def _abandon(self, completion: Completion[Any]) -> None:
        """The caller of a request no longer waits."""
        self.engine.outbox.abandon(completion)
        self.flush_soon()

    def _limit(self, future: asyncio.Future[bool]) -> None:
        """Let a wait end when its time is over. All have the same time, so they are in order, and one timer does for
        all."""
        limits = self._limits
        while limits and limits[0].future.done():
            limits.popleft()
        limit = _Limit(self.loop.time() + self._patience / 1000.0, future)
        limits.append(limit)
        if self._limiting is None:
            self._limiting = self.loop.call_at(limit.end, self._end_limits)

    def _end_limits(self) -> None:
        self._limiting = None
        limits, now = self._limits, self.loop.time()
        while limits:
            limit = limits[0]
            if limit.end > now and not limit.future.done():
                self._limiting = self.loop.call_at(limit.end, self._end_limits)
                return
            wake(limit.future, True)
            limits.popleft()

    async def wait_until(self, completion: Completion[T], until: float | None) -> None:
        """Write, and wait for a completion, at most until that time by the loop's clock; None for no limit."""
        expired: Completion[Any] = Completion()
        completion.add_callback(lambda _: expired.succeed(None))
        timer = None if until is None else self.loop.call_at(until, expired.succeed, None)
        try:
            await self.wait(expired)
        finally:
            if timer is not None:
                timer.cancel()

    def close_by(self, share: float = 1.0) -> float:
        """By the loop's clock: until when what closes now may wait for the broker (D-43).

        Args:
            share: of the option `close_timeout`.
        """
        return self.loop.time() + share * self.engine.options.close_timeout / 1000.0

    async def end(self, request: Callable[[], Completion[Any]], until: float) -> bool:
        """Send a request that closes something, and wait for its answer if it has one: until then, and no longer than
        there is a connection.

        Args:
            request: makes it.
            until: by the loop's clock.

        Returns:
            False if there was no answer.

        Raises:
            JMSException: what the broker answered.
        """
        completion = self.call(request)
        if completion.done:
            self.flush_later()
        else:
            await self.wait_until(self.engine.until_lost(completion), until)
        if completion.done:
            completion.result()
        return completion.done

    async def undone(self) -> None:
        """Wait until abandoned requests are undone.

        Raises:
            JMSException: they are not within the option `request_timeout`.
        """
        if self.engine.outbox.requests.abandoned:
            await self.ask(self.engine.outbox.undone)

    @property
    def is_full(self) -> bool:
        """A caller waits until the peer reads."""
        return bool(self._drained)

    async def drained(self, until: float | None = None) -> bool:
        """Wait until the peer has read enough for more to be written; False if it has not until then, by the loop's
        clock."""
        while self.paused or self.engine.repairing:
            if until is not None and self.loop.time() >= until:
                return False
            await self.park(self._drained, until)
        return True

    async def park(self, waiters: list[asyncio.Future[bool]], until: float | None = None) -> None:
        """Wait in a list until :func:`release` empties it, or until that time by the loop's clock."""
        future: asyncio.Future[bool] = self.loop.create_future()
        waiters.append(future)
        timer = None if until is None else self.loop.call_at(until, wake, future)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
                if future in waiters:
                    waiters.remove(future)

    def expect(self, sends: Sends, completion: Completion[Any] | None, timeout: int, sequence: int = 0) -> None:
        """Something may wait for room so long and no longer: arguments as of :meth:`ClientConnection.expect`."""
        engine, before = self.engine, self.engine.next_deadline
        engine.expect(sends, completion, int(self.loop.time() * 1000.0), timeout, sequence)
        if engine.next_deadline != before:  # it is the first
            self._beat_again()

    def expect_commit(self, sends: Sends, answer: Completion[Any], timeout: int) -> Completion[None]:
        """A commit may take only so long: arguments and value as of :meth:`ClientConnection.expect_commit`."""
        wait = self.engine.expect_commit(sends, answer, int(self.loop.time() * 1000.0), timeout)
        self._beat_again()
        return wait

    # -- heartbeats, the end ------------------------------------------------------------------------------------------

    def take(self, found: Candidate) -> None:
        """Continue on the socket of a host that has welcomed the client."""
        socket, handshake = found.transport, found.handshake
        assert handshake is not None
        self._opened = int(self.loop.time() * 1000.0)
        try:
            self.engine.welcomed(handshake)
        except BaseException as error:  # of a signal handler
            found.leave()
            self.broken(error)
            raise
        if socket is None:  # it was closed since
            self.engine.lost(handshake.error)
            return
        socket.set_protocol(self)
        self.connection_made(socket)
        if socket.is_closing():  # its end is reported here
            self.engine.lost(None)
        self.write()

    def keep_alive(self) -> None:
        """Keep the heartbeats from now on, and the timeouts of calls, also while there is no connection."""
        if self._beat is not None:
            self._beat.cancel()
        wait = self.engine.tick(int(self.loop.time() * 1000.0))
        if self.engine.down:
            self.abort()
        elif self.engine.has_output:
            self.write()
        self._beat = None if wait is None else self.loop.call_later(wait / 1000.0, self.keep_alive)

    def _beat_again(self) -> None:
        """When :meth:`keep_alive` is due has changed."""
        if self._beat is not None:
            self._beat.cancel()
        self._beat = self.loop.call_soon(self.keep_alive)

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Close the connection, which nothing refers to any more. The garbage collector calls it, in any thread."""
        try:
            self.loop.call_soon_threadsafe(self._leave)
        except RuntimeError:  # the loop is closed, and its socket with it
            pass

    def _leave(self) -> None:
        def left(_: object) -> None:
            if self._repairing is not None:
                self._repairing.cancel()
            if self._transport is not None:
                self._transport.close()

        completion = self.engine.close()
        self.write()
        completion.add_callback(left)
        self.loop.call_at(self.close_by(), self.abort)

    async def close(self, until: float) -> None:
        """Write the remaining output, close the socket, wait until it is closed. A peer that does not read gets no more
        than the time until then, by the loop's clock."""
        if self._repairing is not None:
            self._repairing.cancel()
        if self._transport is None:
            return
        self.write()
        self._transport.close()
        if not self.ended.done():
            timer = self.loop.call_at(until, self.abort)
            try:
                await asyncio.shield(self.ended)
            finally:
                timer.cancel()

    # -- another connection -------------------------------------------------------------------------------------------

    async def _find_another(self) -> None:
        """The loop's transport is lost: have another one connected, and the engine send HELLO on it."""
        engine, loop = self.engine, self.loop
        try:
            while engine.repairing:
                await self._attempt()
        except Exception as error:  # a defect: no caller may wait for a repair that has ended
            engine.give_up(error)
        finally:
            self._repairing = None
            self._lost = None
            release(self._drained)
            if not engine.usable:
                self.abort()
                if self._transport is None:
                    wake(self.ended)
            elif self._transport is not None:
                self.flush_soon()
                self.keep_alive()
            elif engine.repairing:  # lost again in the moment in which it was restored
                self._repairing = own_task(loop, self._find_another(), "sievemq-reconnect")

    async def _attempt(self) -> None:
        engine, loop, repair, reach, greet = self.engine, self.loop, self._repair, self._reach, self._greet
        assert repair is not None
        assert reach is not None
        assert greet is not None
        while self._transport is not None:  # its end was not reported yet
            self._lost = loop.create_future()
            await self._lost
        if self._outages != engine.outages:
            self._outages = engine.outages
            repair.begin(int(loop.time() * 1000.0), self._opened)
        await asyncio.sleep(repair.pause(int(loop.time() * 1000.0), random.random()) / 1000.0)  # noqa: S311  no secret
        now = int(loop.time() * 1000.0)
        left = repair.left(now)
        if left <= 0:
            engine.give_up()
            return
        race = Race(
            repair.order(*engine.terms.hosts(self._hosts)),
            now,
            now + min(left, self._connect_timeout),
            secure=self._secure,
        )
        found = await attempt(race, reach, greet)
        if found is None:
            if race.refusal is not None:
                engine.give_up(race.refusal)
            else:
                engine.attempt_failed(race.error())
        elif engine.repairing:
            self.take(found)
        else:  # closed meanwhile
            found.leave()
