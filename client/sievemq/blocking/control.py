"""The thread of control of a session: one thread at a time receives in it, or calls its listeners (THR-02)."""

from __future__ import annotations

import threading
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from sievemq._engine import PATIENCE, EngineConsumer, EngineSession
from sievemq.blocking.callbacks import CompletionCalls
from sievemq.blocking.delivery import Delivery
from sievemq.blocking.transport import Transport
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq.messages import Message

__all__ = ["Control"]

T = TypeVar("T")

#: Seconds between looks at whether a receive or listener that is to be waited for has come to its end.
_LOOK: Final = 0.002
#: Milliseconds; a receive with a shorter timeout tells the broker at once that it waits.
_SHORT: Final = 20


class Control:
    """Knows which thread is inside a session, and waits for messages in it; owns the delivery thread and the
    completion calls.

    Args:
        engine: of the session.
        transport: of its connection.
        owner: the session, which lives, and its connection with it, as long as anything that it made.

    Attributes:
        guard: held by whoever receives or calls a listener: one at a time, and close waits for it.
        blocked: the thread of a receive that waits for a message, or 0.
        sending: two threads sending is wrong, but must not mix up their sequence (THR-06).
        delivery: calls the listeners.
        calls: calls the callbacks of asynchronous sends.
    """

    __slots__ = (
        "_current",
        "_owner",
        "_woken",
        "blocked",
        "calls",
        "delivery",
        "engine",
        "guard",
        "sending",
        "transport",
    )

    def __init__(self, engine: EngineSession, transport: Transport, owner: object) -> None:
        self._owner = owner
        self.engine = engine
        self.transport = transport
        self.guard = allocate_lock()
        self.blocked = 0
        self._current: EngineConsumer | None = None  # whose receive or listener it is, for close and stop
        # Held except between being woken and noticing it.
        self._woken = allocate_lock()
        self._woken.acquire()
        self.sending = threading.Lock()
        self.delivery = Delivery(engine, transport, self._lend, self.recover)
        self.calls = CompletionCalls(engine.sends)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def enter(self, consumer: EngineConsumer) -> None:
        """Take the guard. A thread that stops or closes something holds it for a moment: that is waited for.

        Raises:
            IllegalStateException: another thread is blocked in a receive of the session (MCO-13), or it has a listener
                (MCO-12).
        """
        while not self.guard.acquire(timeout=_LOOK):
            self.check_receivable(consumer)
            if self.delivery.mine:
                raise IllegalStateException("a message listener cannot receive: its message is not done with yet")
            if self.blocked:
                self._refuse()

    def check_receivable(self, consumer: EngineConsumer) -> None:
        """Raise unless a receive at the consumer is allowed."""
        self.check_open(consumer)
        if not self.delivery.idle:
            raise IllegalStateException(
                "the session has a message listener: it receives either by listeners or by receive (MCO-12)"
            )

    def check_open(self, consumer: EngineConsumer) -> None:
        """Raise unless the consumer and the session can be used."""
        if consumer.closed:
            gone = consumer.gone
            raise IllegalStateException(f"the consumer is closed{f': {gone}' if gone else ''}", None, gone)
        self.engine.check_open()

    def receive(
        self, consumer: EngineConsumer, take: Callable[[], Message | None], timeout: int | None
    ) -> Message | None:
        """Receive with all checks, waiting if need be. The guard is held.

        Args:
            consumer: where.
            take: takes a message from its buffer.
            timeout: in ms; 0 or None waits without limit.
        """
        self.check_receivable(consumer)
        transport, woken = self.transport, self._woken
        outbox, terms = self.engine.outbox, self.engine.terms
        end = time.monotonic() + terms.skipped + timeout / 1000.0 if timeout else None
        # With a short time to wait there is none to lose before the broker is told (PATIENCE).
        patient = not timeout or timeout >= _SHORT
        self._current = consumer
        try:
            while True:
                with transport.lock:
                    if consumer.shut:
                        return None  # CLO-06
                    message = take() if consumer.flowing else None
                    if message is None:
                        if outbox.failure is not None:
                            outbox.check_open()
                        left = -1.0 if end is None else end - time.monotonic() - terms.skipped
                        if end is not None and left <= 0.0:
                            return None
                        patient = patient and consumer.flowing and not consumer.expect() and not consumer.lone
                        if not patient:
                            consumer.want()
                        consumer.waits(self._wake)
                        self.blocked = get_ident()
                        transport.write_urgent()
                        transport.lead.begin(woken)
                if message is not None:
                    self._after_take(consumer)
                    return message
                # A limit far beyond what the platform can wait for is as good as none.
                seconds = PATIENCE if patient else min(left, 1e6)
                transport.lead.wait(woken, seconds)
                patient = False
                with transport.lock:
                    self._stop_waiting(consumer)
        finally:
            if self.blocked:  # interrupted, by a signal
                with transport.lock:
                    self._stop_waiting(consumer)
            self._current = None

    def receive_no_wait(self, consumer: EngineConsumer, take: Callable[[], Message | None]) -> Message | None:
        """Receive what is there now, in the buffer or at the broker. The guard is held."""
        self.check_receivable(consumer)
        transport = self.transport
        with transport.lock:
            message = take() if consumer.flowing else None
            completion = consumer.want(answered=True) if message is None else None
        if message is not None:
            self._after_take(consumer)
            return message
        if completion is None:  # MCO-06: stopped
            return None
        try:
            transport.wait(completion)
        except JMSException:
            if consumer.shut:
                return None
            raise
        with transport.lock:
            message = take() if consumer.flowing else None
        if message is not None:
            self._after_take(consumer)
        return message

    def _wake(self) -> None:
        """Called by the engine, once, with its lock held."""
        self._woken.release()
        self.transport.lead.rouse()

    def _stop_waiting(self, consumer: EngineConsumer) -> None:
        """Nobody waits any more. The engine lock is held, so from here on nobody is woken either."""
        self.blocked = 0
        self.transport.lead.end(self._woken)
        if consumer.waker is None:
            self._woken.acquire(False)  # woken, noticed or not
        consumer.waits(None)

    def _after_take(self, consumer: EngineConsumer) -> None:
        if consumer.taken >= consumer.mark:
            self.top_up(consumer)
        if self.transport.asleep:
            self.transport.nudge()

    def top_up(self, consumer: EngineConsumer) -> None:
        """Ask for more messages of a consumer."""
        with self.transport.lock:
            consumer.top_up()
            self.transport.write()

    # -- who may be inside --------------------------------------------------------------------------------------------

    def _lend(self, work: Callable[[EngineConsumer], None], consumer: EngineConsumer) -> None:
        """Let the delivery thread work on a consumer, alone."""
        with self.guard:
            self._current = consumer
            try:
                work(consumer)
            finally:
                self._current = None

    def exclusively(self, work: Callable[[], T]) -> T:
        """Do what must not happen while a listener or a receive is under way; waits for a listener."""
        if self.delivery.mine:
            return work()
        while not self.guard.acquire(timeout=_LOOK):
            if self.blocked:
                self._refuse()
        try:
            return work()
        finally:
            self.guard.release()

    def _refuse(self) -> NoReturn:
        """Raise for a use of the session while another thread is inside."""
        self.engine.check_open()
        raise IllegalStateException(
            "another thread is receiving in this session: a session is used by one thread at a time "
            "(MCO-13); create_context() and create_session() make more of them"
        )

    def wait_until_left(self, consumer: EngineConsumer | None = None) -> None:
        """Return once no receive and no listener is under way, of one consumer or of any. Their gate is shut."""
        if self.delivery.mine or self.blocked == get_ident():
            return  # the latter: a signal handler in the middle of a receive, which returns None after it
        while not self.guard.acquire(timeout=_LOOK):
            if consumer is not None and self._current is not consumer:
                return
        self.guard.release()

    def wait_until_paused(self) -> None:
        """Return once nobody is between taking a message and being done with it (CON-16): a blocked receive stays."""
        if self.delivery.mine:
            return
        while not self.guard.acquire(timeout=_LOOK):
            if self.blocked:
                return
        self.guard.release()

    def recover(self) -> None:
        """Have what was received and not acknowledged come again."""
        self.transport.ask(self.engine.recover)

    # -- closing ------------------------------------------------------------------------------------------------------

    def settle_sends(self) -> None:
        """Wait for the callbacks of the asynchronous sends made so far (CPL-09, CPL-10).

        The others need no wait: what comes next on the connection comes behind them.
        """
        if self.calls.pending:
            self.transport.flush()
            self.calls.wait()

    def leave(self, until: float | None) -> None:
        """The gate is shut: wait for everybody inside, then end the delivery thread.

        Args:
            until: by the monotonic clock, how long what was sent may wait for room (D-26); None for ever.
        """
        self.wait_until_left()
        engine, transport = self.engine, self.transport
        if engine.sends.linger:
            with transport.lock:
                settled = engine.sends.settled()
            if until is None:
                transport.wait_without_limit(settled)
            else:
                transport.wait_until(settled, until)
        self.settle_sends()
        self.delivery.stop()

    def check_may_close(self, what: str) -> None:
        """Raise in a listener or callback that closing would wait for."""
        if self.delivery.mine:
            raise IllegalStateException(f"{what} cannot be closed by a message listener that it would wait for")
        if self.calls.mine:
            raise IllegalStateException(f"{what} cannot be closed in a completion callback that it would wait for")
