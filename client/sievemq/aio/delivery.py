"""The delivery task of a session that has listeners: one call at a time over all its consumers (LIS-02)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import CoroutineType
from typing import Any, Final

from sievemq._engine import SHUT, Completion, EngineConsumer, EngineSession
from sievemq._front import LISTENER_TURN, awaiting_listener, failure_of, log_raised
from sievemq.aio.transport import Transport, own_task, release, turn
from sievemq.aio.waiting import LOOK_SECONDS, ends_its_task
from sievemq.exceptions import JMSException
from sievemq.messages import Message
from sievemq.observers import OBSERVERS

_log = logging.getLogger("sievemq")

#: Seconds without a message after which a consumer informs the broker that it waits.
_PATIENCE: Final = 0.003


class Delivery:
    """Hands messages of a session's consumers to their listeners. Its task starts with the first listener.

    Args:
        recover: redelivers the messages that were received and not acknowledged, and states why.

    Attributes:
        idle: no consumer has a listener, and none is running.
        calling: the consumer whose listener is running; None if none is.
        abandoned: nothing waits for the listener that runs: it has had its time, and its message goes back.
    """

    __slots__ = (
        "_engine", "_feeding", "_holders", "_hungry", "_listeners", "_ready", "_recover", "_rest", "_signal",
        "_stopping", "_task", "_transport", "_waiters", "_wakers", "abandoned", "calling", "idle",
    )  # fmt: skip

    def __init__(
        self,
        engine: EngineSession,
        transport: Transport,
        recover: Callable[[Mapping[str, object]], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._recover = recover
        self.idle = True
        self.calling: EngineConsumer | None = None
        self.abandoned = False
        self._listeners: dict[EngineConsumer, Callable[[Message], Any]] = {}
        self._wakers: dict[EngineConsumer, Callable[[], None]] = {}
        # Consumers that may have messages. Each is here at most once: its waker puts it in and is then gone.
        self._ready: deque[EngineConsumer] = deque()
        self._hungry: set[EngineConsumer] = set()
        # Of a listener that is not done: its message, the recoveries before it, what it returned, what it raised.
        self._rest: tuple[Message, int, Awaitable[object] | None, BaseException | None] | None = None
        self._feeding = False
        self._signal: asyncio.Future[bool] | None = None
        self._waiters: list[asyncio.Future[bool]] = []
        self._holders = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    @property
    def wanted(self) -> bool:
        return bool(self._listeners)

    @property
    def mine(self) -> bool:
        return self._task is not None and asyncio.current_task() is self._task

    def set_listener(self, consumer: EngineConsumer, listener: Callable[[Message], Any] | None) -> None:
        """Set or remove the listener of a consumer."""
        if listener is None:
            if self._listeners.pop(consumer, None) is not None:
                del self._wakers[consumer]
                consumer.waits(None)
                self.idle = not self._listeners and self.calling is None
            return
        known = consumer in self._listeners
        self._listeners[consumer] = listener
        self.idle = False
        if not known:
            self._wakers[consumer] = partial(self._put, consumer)
            self._put(consumer)
        if self._task is None:
            self._task = own_task(self._transport.loop, self._run(), "sievemq-session")

    # -- for callers that wait for a listener --------------------------------------------------------------------------

    async def left(self, consumer: EngineConsumer | None = None, until: float | None = None) -> None:
        """Return once no listener is running, of one consumer or of any; at once in a listener.

        Args:
            consumer: the one whose listener is awaited; None for any.
            until: by the loop's clock, until when a listener is awaited that itself waits for the broker, and that only
                while there is a connection; None for no limit. One that runs is awaited without a limit (CLO-08).
        """
        transport, waiters = self._transport, self._waiters
        lost: Completion[None] = Completion()
        if until is not None and self.calling is not None:
            lost = transport.engine.until_lost(Completion())
            lost.add_callback(lambda _: release(waiters))
        logged = False
        try:
            while self.calling is not None and (consumer is None or self.calling is consumer) and not self.mine:
                if self.abandoned:
                    return
                end = until
                if until is not None:
                    time = transport.loop.time()
                    if lost.done or time >= until:
                        if self._engine.awaits_broker or transport.is_full:
                            return
                        if not logged:
                            logged = True
                            _log.warning("closing or stopping waits for a message listener that has not returned")
                        end = time + LOOK_SECONDS
                await transport.park(waiters, end)
        finally:
            lost.succeed(None)

    def hold(self) -> None:
        """Call no listener until :meth:`release`; one that runs continues."""
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._wake()

    def abandon(self) -> None:
        """Cancel a listener that does not return; if it goes on all the same, nothing waits for it."""
        self.abandoned = self._stopping = True
        if self._task is not None:
            self._task.cancel()
        release(self._waiters)

    def stop(self) -> None:
        self._stopping = True
        self._wake()

    # -- the task -----------------------------------------------------------------------------------------------------

    def _put(self, consumer: EngineConsumer) -> None:
        self._ready.append(consumer)
        if self._signal is not None:
            self._wake()

    def _wake(self) -> None:
        signal, self._signal = self._signal, None
        if signal is not None and not signal.done():
            signal.set_result(False)

    async def _run(self) -> None:
        ready = self._ready
        loop = self._transport.loop
        left = LISTENER_TURN
        while not self._stopping:
            if not ready or self._holders:
                if self._hungry and not self._feeding:
                    self._feeding = True
                    loop.call_later(_PATIENCE, self._feed)
                self._signal = loop.create_future()
                await self._signal
                continue
            consumer = ready.popleft()
            budget = LISTENER_TURN
            while True:
                count = self._turn(consumer, budget)
                left -= count
                budget -= count
                if self._rest is None:
                    break
                (message, recoveries, result, error), self._rest = self._rest, None
                try:
                    if result is not None:
                        try:
                            await result
                        except BaseException as raised:
                            if ends_its_task(raised):
                                raise
                            error = raised
                    if error is None:
                        self._done(consumer, recoveries)
                    else:
                        await self._failed(message, recoveries, error)
                finally:
                    self._end_call()
                    del message, recoveries, result, error  # the task lives on
                if consumer.taken >= consumer.credit.mark:
                    self._top_up(consumer)
            if left <= 0:
                left = LISTENER_TURN
                await turn()

    def _turn(self, consumer: EngineConsumer, budget: int) -> int:  # noqa: C901
        """Deliver some messages of one consumer, until there is something to await; returns how many."""
        engine, transport = self._engine, self._transport
        for number in range(budget):
            listener = self._listeners.get(consumer)
            if listener is None or consumer.stops >= SHUT or self._stopping:
                return number
            if self._holders:
                self._put(consumer)
                return budget
            message = consumer.take() if not consumer.stops and consumer.buffer else None
            if message is None:
                if engine.outbox.failure is None:
                    consumer.waits(self._wakers[consumer])
                    if not consumer.stops:
                        if consumer.rests():
                            transport.flush_soon()
                        if not consumer.lone:
                            self._hungry.add(consumer)
                return number
            self.calling = consumer
            recoveries = engine.recoveries
            if OBSERVERS:
                listener = awaiting_listener(consumer, listener)
            try:
                result = listener(message)
                if result is not None and (type(result) is CoroutineType or inspect.isawaitable(result)):
                    self._rest = message, recoveries, result, None
                    return number + 1
            except BaseException as error:
                if ends_its_task(error):
                    self._end_call()
                    raise
                self._rest = message, recoveries, None, error
                return number + 1
            # _done and _end_call, written out: most listeners are plain functions, and each message comes here.
            if engine.acknowledges_itself and recoveries == engine.recoveries:
                consumer.settle()
                if transport.asleep:
                    transport.nudge()
            self.calling = None
            if self._waiters or not self._listeners:
                self._end_call()
            if consumer.taken >= consumer.credit.mark:
                self._top_up(consumer)
        self._put(consumer)
        return budget

    def _done(self, consumer: EngineConsumer, recoveries: int) -> None:
        engine, transport = self._engine, self._transport
        if engine.acknowledges_itself and recoveries == engine.recoveries:  # else recover() was called: LIS-07
            consumer.settle()
            if transport.asleep:
                transport.nudge()

    async def _failed(self, message: Message, recoveries: int, error: BaseException) -> None:
        log_raised(message, error)
        engine = self._engine
        # LIS-05, LIS-06: in other sessions the next message follows, and this one stays unacknowledged.
        if engine.acknowledges_itself and recoveries == engine.recoveries:
            await self._redeliver(error)  # LIS-04

    def _end_call(self) -> None:
        self.calling = None
        if not self._listeners:
            self.idle = True
        if self._waiters:
            release(self._waiters)

    def _top_up(self, consumer: EngineConsumer) -> None:
        consumer.top_up()
        self._transport.flush_soon()

    async def _redeliver(self, error: BaseException) -> None:
        try:
            await self._recover(failure_of(error, self._engine.retry_rule))
        except JMSException:
            _log.debug("the message is redelivered when its connection ends", exc_info=error)

    def _feed(self) -> None:
        """A listener waits too: messages in the idle buffer of another consumer may not starve it (MCO-14)."""
        self._feeding = False
        hungry, self._hungry = self._hungry, set()
        for consumer in hungry:
            if consumer.waker is not None and not consumer.stops and consumer in self._listeners:
                consumer.want()
        self._transport.flush_soon()
