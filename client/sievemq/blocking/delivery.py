"""The delivery thread of a session that has listeners: one call at a time over all its consumers (LIS-02)."""

from __future__ import annotations

import logging
import threading
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sievemq._engine import PATIENCE, SHUT, EngineConsumer, EngineSession
from sievemq._front import LISTENER_TURN, failure_of, log_raised, observed_listener, refuse_awaitable
from sievemq.blocking.transport import Transport
from sievemq.exceptions import JMSException
from sievemq.messages import Message
from sievemq.observers import OBSERVERS

_log = logging.getLogger("sievemq")

#: Seconds between two looks at whether the thread can end.
_JOIN = 0.02


class Delivery:
    """Hands messages of a session's consumers to their listeners. Its thread starts with the first listener.

    Args:
        guard: held while listeners are called.
        recover: redelivers the messages that were received and not acknowledged, and states why.

    Attributes:
        idle: no consumer has a listener, and none is running.
        calling: the consumer whose listeners are called; None if none are.
        abandoned: nothing waits for the listener that runs: it has had its time, and its message goes back.
    """

    __slots__ = (
        "_engine", "_guard", "_idle", "_listeners", "_ready", "_recover", "_signal", "_stopping", "_thread",
        "_transport", "_wakers", "abandoned", "calling", "idle",
    )  # fmt: skip

    def __init__(
        self,
        engine: EngineSession,
        transport: Transport,
        guard: LockType,
        recover: Callable[[Mapping[str, object]], None],
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._guard = guard
        self._recover = recover
        self.idle = True
        self.calling: EngineConsumer | None = None
        self.abandoned = False
        self._listeners: dict[EngineConsumer, Callable[[Message], Any]] = {}
        self._wakers: dict[EngineConsumer, Callable[[], None]] = {}
        # Consumers that may have messages. Each is here at most once: its waker puts it in and is then gone.
        self._ready: deque[EngineConsumer] = deque()
        # Consumers that were found empty and have not asked for more.
        self._idle: set[EngineConsumer] = set()
        self._signal = allocate_lock()
        self._signal.acquire()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="sievemq-session", daemon=True)

    def forget_threads(self, guard: LockType) -> None:
        """In a child made by fork: no listener is running, and none will be called."""
        self._guard = guard
        self._signal = allocate_lock()
        self._signal.acquire()
        self._stopping = True
        self.calling = None

    @property
    def wanted(self) -> bool:
        return bool(self._listeners)

    @property
    def mine(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def busy(self) -> bool:
        """A listener runs, and does not wait for a connection that is lost."""
        return self.calling is not None and not self._engine.stranded

    def set_listener(self, consumer: EngineConsumer, listener: Callable[[Message], Any] | None) -> None:
        """Set or remove the listener of a consumer. The engine lock is held."""
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
        if self._thread.ident is None:
            self._thread.start()

    def abandon(self) -> None:
        """Give up a listener that does not return. Its thread ends with the listener, or with the process."""
        self.abandoned = self._stopping = True

    def stop(self, stays: Callable[[], bool]) -> None:
        """End the thread; returns when it has ended, at once if this is it.

        Args:
            stays: True while a call in it, or another that it waits for, waits for the broker: then the thread ends
                after that.
        """
        self._stopping = True
        with self._transport.lock:
            self._wake()
        if self._thread.ident is not None and not self.mine:
            while self._thread.is_alive() and not self.abandoned and not stays():
                self._thread.join(_JOIN)

    def _put(self, consumer: EngineConsumer) -> None:
        self._ready.append(consumer)
        self._wake()

    def _wake(self) -> None:
        lead = self._transport.lead
        try:
            if self._signal.locked():
                self._signal.release()
        except RuntimeError:
            pass  # another thread released it before: the thread is awake or about to be
        if lead.thread is not None and lead.thread == self._thread.ident:  # it rests, so the caller has the lock
            lead.rouse()

    def _run(self) -> None:
        ready = self._ready
        while True:
            try:
                consumer = ready.popleft()
            except IndexError:
                if self._stopping:
                    return
                self._rest()
                continue
            if self._stopping:
                return
            with self._guard:
                self.calling = consumer
                try:
                    self._turn(consumer)
                finally:
                    with self._transport.lock:
                        self.calling = None
                        self.idle = not self._listeners

    def _rest(self) -> None:
        """Nothing is ready: wait for something. Consumers at which nothing came for a while ask for it (MCO-14)."""
        transport, signal = self._transport, self._signal
        lead = transport.lead
        try:
            with transport.lock:
                transport.write_urgent()
                lead.begin(signal)
            if self._idle:
                if lead.wait(signal, PATIENCE):
                    return
                with transport.lock:
                    for consumer in self._idle:
                        if consumer.waker is not None and not consumer.stops:
                            consumer.want()
                    self._idle.clear()
                    transport.write_urgent()
            lead.wait(signal, -1.0)
        finally:
            with transport.lock:
                lead.end(signal)

    def _turn(self, consumer: EngineConsumer) -> None:
        """Deliver some messages of one consumer. The session's guard is held by this thread."""
        engine, transport = self._engine, self._transport
        for _ in range(LISTENER_TURN):
            listener = self._listeners.get(consumer)
            if listener is None or consumer.stops >= SHUT or self._stopping:
                return
            message = consumer.take() if not consumer.stops and consumer.buffer else None
            if message is None:
                with transport.lock:
                    if engine.outbox.failure is not None:
                        return
                    if consumer.stops or not consumer.buffer:
                        consumer.waits(self._wakers.get(consumer))  # none any more: it has just lost its listener
                        if not consumer.stops:
                            consumer.rests()
                        if not consumer.lone:
                            self._idle.add(consumer)
                        return
                continue
            self._deliver(consumer, listener, message)
            if consumer.taken >= consumer.credit.mark:
                with transport.lock:
                    consumer.top_up()
                    transport.write()
        self._put(consumer)

    def _deliver(self, consumer: EngineConsumer, listener: Callable[[Message], Any], message: Message) -> None:
        engine, transport = self._engine, self._transport
        recoveries = engine.recoveries
        if OBSERVERS:
            listener = observed_listener(consumer, listener)
        try:
            result = listener(message)
            if result is not None:
                refuse_awaitable(result)
        except BaseException as error:  # SystemExit and pytest.fail() too: the next message is to come
            log_raised(message, error)
            if engine.acknowledges_itself and recoveries == engine.recoveries:
                self._redeliver(error)  # LIS-04
            return  # LIS-05, LIS-06: the next message; this one stays unacknowledged
        if engine.acknowledges_itself and recoveries == engine.recoveries:  # else recover() was called: LIS-07
            consumer.settle()
            if transport.asleep:
                transport.nudge()

    def _redeliver(self, error: BaseException) -> None:
        try:
            self._recover(failure_of(error, self._engine.retry_rule))
        except JMSException:
            _log.debug("the message is redelivered when its connection ends", exc_info=error)
