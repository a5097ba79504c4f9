"""The thread of control of a session: one thread at a time receives in it, or calls its listeners (THR-02)."""

from __future__ import annotations

import logging
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from sievemq._engine import (
    CLOSED,
    PATIENCE,
    SHUT,
    Callbacks,
    Completion,
    EngineConsumer,
    EngineProducer,
    EngineSession,
    TimeLimit,
)
from sievemq._front import SHORT_TIMEOUT, sending, settling
from sievemq.blocking.callbacks import CompletionCalls
from sievemq.blocking.delivery import Delivery
from sievemq.blocking.transport import Transport
from sievemq.destinations import Destination
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq.messages import Message

_log = logging.getLogger("sievemq")

T = TypeVar("T")

#: Seconds between two checks whether a receive or listener has ended.
_LOOK: Final = 0.002
#: Seconds between two looks, while callbacks are awaited, at whether they still can be.
_WATCH: Final = 0.02


class Control:
    """Knows which thread is inside a session, and waits for messages in it; owns the delivery thread and the
    completion calls.

    The locks are held by `with` statements alone: an exception that a signal handler raises cannot come between
    acquiring one and the block that releases it.

    Args:
        owner: the session, which lives, and its connection with it, as long as anything that it made.

    Attributes:
        guard: held while a message is taken out of a buffer, and by a thread that calls a listener, recovers or ends a
            transaction; not by a receive that waits.
        receiving: the consumer at which some thread receives, unless its message was there already; None if none does.
        sending: two threads sending is wrong, but must not mix up their sequence (THR-06).
        delivery: calls the listeners.
        calls: calls the callbacks of asynchronous sends.
    """

    __slots__ = (
        "__weakref__", "_doubts", "_owner", "_receiver", "_turn", "_waiting", "_woken", "calls", "delivery", "engine",
        "guard", "receiving", "sending", "transport",
    )  # fmt: skip

    def __init__(self, engine: EngineSession, transport: Transport, owner: object) -> None:
        self._owner = owner
        self.engine = engine
        self._doubts = engine.outcomes.doubts
        self.transport = transport
        self.guard = allocate_lock()
        self.receiving: EngineConsumer | None = None
        self._receiver = 0  # the thread that receives
        self._turn: object = None  # the call that does
        self._waiting = False  # it is registered with its consumer and with the transport's lead
        # Held except between being woken and noticing it.
        self._woken = allocate_lock()
        self._woken.acquire()
        self.sending = allocate_lock()
        self.delivery = Delivery(engine, transport, self.guard, self.recover)
        self.calls = CompletionCalls(engine.sends)
        transport.serve(self)

    def forget_threads(self) -> None:
        """In a child made by fork: no other thread receives, sends or calls listeners."""
        self.guard, self.sending, self._woken = allocate_lock(), allocate_lock(), allocate_lock()
        self._woken.acquire()
        self.receiving = self._turn = None
        self._waiting = False
        self.delivery.forget_threads(self.guard)
        self.calls.forget_threads()

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, consumer: EngineConsumer, timeout: int | None) -> Message | None:
        """Receive a message that is in the buffer, or wait as :meth:`receive_by`."""
        if consumer.buffer and self.delivery.idle and not self._doubts:
            taken = consumer.taken
            try:
                with self.guard:  # take() needs no other lock
                    if not consumer.stops and self.receiving is None and (message := consumer.take(True)) is not None:
                        if consumer.taken >= consumer.credit.mark or self.transport.asleep:
                            self._after_take(consumer)
                        return message
            except BaseException as error:
                self.interrupted(consumer, taken, error)
                raise
        return self.receive_by(consumer, consumer.take_for_good, timeout)

    def receive_by(
        self, consumer: EngineConsumer, take: Callable[[], Message | None], timeout: int | None
    ) -> Message | None:
        """Receive with all checks, waiting if need be.

        Args:
            timeout: in ms; 0 or None waits without limit.
        """
        self._check_receivable(consumer)
        transport, guard, woken = self.transport, self.guard, self._woken
        outbox = self.engine.outbox
        limit = TimeLimit(self.engine.terms, time.monotonic(), timeout)
        # With a short time to wait there is none to lose before WANT (PATIENCE).
        patient = not timeout or timeout >= SHORT_TIMEOUT
        turn, taking, taken = object(), False, consumer.taken
        try:
            with guard:
                self._check_receivable(consumer)
                self._turn, self._receiver, self.receiving = turn, get_ident(), consumer
            while True:
                if self._doubts and consumer.stops < SHUT and self.engine.outcomes.known:
                    self.raise_doubts()
                with guard:
                    with transport.lock:
                        if consumer.stops >= SHUT:
                            return None  # CLO-06
                        taking = True
                        message = take() if consumer.buffer and not consumer.stops else None
                        if message is None:
                            if outbox.failure is not None:
                                outbox.check_open()
                            left = limit.left(time.monotonic())
                            if left <= 0.0:
                                break
                            patient = patient and not consumer.stops and not consumer.expect()
                            if not patient:
                                consumer.want()
                            self._waiting = True
                            consumer.waits(self._wake)
                            transport.write_urgent()
                            transport.lead.begin(woken)
                    if message is not None:
                        self._after_take(consumer)
                        return message
                taking = False
                # A limit far beyond what the platform can wait for is as good as none.
                seconds = PATIENCE if patient and not consumer.lone else -1.0 if not timeout else min(left, 1e6)
                transport.lead.wait(woken, seconds)
                patient = False
                with transport.lock:
                    self._stop_waiting(consumer)
        except BaseException as error:
            if taking:
                self.interrupted(consumer, taken, error)
            raise
        finally:
            if self._turn is turn:
                if self._waiting:  # interrupted, by a signal
                    with transport.lock:
                        self._stop_waiting(consumer)
                self._turn = self.receiving = None
        return self.receive_no_wait(consumer, take) if limit.must_look and consumer.stops < SHUT else None

    def receive_no_wait(self, consumer: EngineConsumer, take: Callable[[], Message | None]) -> Message | None:
        """Receive a message that is available now, in the buffer or at the broker."""
        self._check_receivable(consumer)
        transport, message, taken = self.transport, None, consumer.taken
        try:
            with self.guard:
                self._check_receivable(consumer)
                self.raise_doubts()
                message, completion = transport.call(lambda: self._take_or_request(consumer, take))
                if message is None:
                    if completion is None:  # MCO-06: stopped
                        return None
                    try:
                        transport.ask(lambda: completion)
                    except JMSException:
                        if consumer.stops >= SHUT:
                            return None
                        raise
                    message = transport.call(lambda: take() if not consumer.stops else None)
                if message is not None:
                    self._after_take(consumer)
                return message
        except BaseException as error:
            if message is not None:
                self.interrupted(consumer, taken, error)
            raise

    def _take_or_request(
        self, consumer: EngineConsumer, take: Callable[[], Message | None]
    ) -> tuple[Message | None, Completion[object] | None]:
        message = take() if not consumer.stops else None
        return message, consumer.want(answered=True) if message is None else None

    def _check_receivable(self, consumer: EngineConsumer) -> None:
        """Raise unless this thread may receive at the consumer now."""
        if consumer.stops:  # else nothing is closed
            self.check_open(consumer)
        delivery = self.delivery
        if not delivery.idle:
            if delivery.wanted:
                raise IllegalStateException(
                    "the session has a message listener: it receives either by listeners or by receive (MCO-12)"
                )
            if delivery.mine:
                raise IllegalStateException("a message listener cannot receive: its message is not done with yet")
        if self.receiving is not None:
            self._refuse()

    def check_open(self, consumer: EngineConsumer) -> None:
        """Raise unless the consumer and the session can be used."""
        if consumer.stops >= CLOSED:
            gone = consumer.gone
            raise IllegalStateException(f"the consumer is closed{f': {gone}' if gone else ''}", None, gone)
        self.engine.check_open()

    def _wake(self) -> None:
        """Called by the engine, with its lock held; twice where an interrupt broke into it."""
        if self._woken.locked():
            self._woken.release()
        self.transport.lead.rouse()

    def _stop_waiting(self, consumer: EngineConsumer) -> None:
        """The receive does not wait any more. The engine lock is held, so from here on nothing wakes it either. Called
        again where it was interrupted."""
        self.transport.lead.end(self._woken)
        consumer.waits(None)
        self._woken.acquire(False)  # woken, noticed or not
        self._waiting = False

    def _after_take(self, consumer: EngineConsumer) -> None:
        if consumer.taken >= consumer.credit.mark:
            self.top_up(consumer)
        if self.transport.asleep:
            self.transport.nudge()

    def top_up(self, consumer: EngineConsumer) -> None:
        """Grant credit for more messages of a consumer."""
        with self.transport.lock:
            consumer.top_up()
            self.transport.write()

    def interrupted(self, consumer: EngineConsumer, taken: int, error: BaseException) -> None:
        """A signal handler raised while a message was taken: the connection is lost, and the message is redelivered."""
        if not isinstance(error, Exception):
            if consumer.taken != taken:
                consumer.unsettle()
            self.transport.broken(error)

    # -- what must be alone -------------------------------------------------------------------------------------------

    def exclusively(self, work: Callable[[], T]) -> T:
        """Do what must not happen while a listener or a receive is under way; waits for a listener."""
        if self.delivery.mine:
            return work()
        if self.receiving is not None:
            self._refuse()
        with self.guard:
            if self.receiving is not None:
                self._refuse()
            return work()

    def _refuse(self) -> NoReturn:
        """Raise for a use of the session while another thread is inside."""
        self.engine.check_open()
        raise IllegalStateException(
            "another thread is receiving in this session: a session is used by one thread at a time "
            "(MCO-13); create_context() and create_session() make more of them"
        )

    def after(self, consumer: EngineConsumer, until: float, work: Callable[[], None]) -> None:
        """Do something once no receive and no listener of a consumer is under way. Its gate is shut."""
        self._wait_until_left(until, consumer)
        work()

    def _wait_until_left(self, until: float, consumer: EngineConsumer | None = None) -> None:
        """Return once no receive and no listener is under way, of one consumer or of any. Their gate is shut.

        Args:
            until: by the monotonic clock, until when a listener is awaited that itself waits for the broker, and that
                only while there is a connection. One that runs is awaited without a limit (CLO-08).
            consumer: which; None for any.
        """
        delivery = self.delivery
        if delivery.mine:
            return
        logged = False
        while (found := self.receiving or delivery.calling) is not None and consumer in (None, found):
            if delivery.abandoned:
                return
            if self.receiving is not None:
                if self._receiver == get_ident():
                    return  # in a signal handler in the middle of a receive, which returns None after it
            elif self._lost or time.monotonic() >= until:
                if self.engine.awaits_broker:
                    return
                if not logged:
                    logged = True
                    _log.warning("closing or stopping waits for a message listener that has not returned")
            time.sleep(_LOOK)

    @property
    def _lost(self) -> bool:
        outbox = self.engine.outbox
        return outbox.repairing or not outbox.usable

    def check_alone(self) -> None:
        """Raise for a use of the session while another thread receives in it."""
        if self.receiving is not None and not self.delivery.mine:
            self._refuse()

    def settle_doubts(self) -> None:
        """Before a request about what the session has sent and received: wait for the outcome of calls that were
        broken off. The caller ends with :meth:`Outcomes.hear`.

        Raises:
            JMSException: one of them has failed; what the session has sent and received since is rolled back, if it is
                transacted. Or the broker has not answered within the option `request_timeout`.
        """
        if self._doubts:
            self.transport.ask(self.engine.resolve)
            self.engine.outcomes.tell()

    def raise_doubts(self) -> None:
        """The same for a caller that raises the error as it is."""
        try:
            self.settle_doubts()
        except JMSException as error:
            self.engine.outcomes.hear(error)
            raise

    def paused(self, until: float | None = None) -> None:
        """Return once nothing is between taking a message and being done with it (CON-16). Messages flow no more; a
        receive that waits stays, and so does a call that waits for the broker: it takes nothing.

        Args:
            until: as of :meth:`_wait_until_left`; None for the option `close_timeout` from now.
        """
        if self.delivery.mine:
            return
        if until is None:
            until = self.transport.close_by()
        while self.guard.locked() and not self.delivery.abandoned:
            if self.engine.awaits_answer and (self.delivery.calling is None or self._lost or time.monotonic() >= until):
                return
            time.sleep(_LOOK)

    def recover(self, failure: Mapping[str, object] | None = None) -> None:
        """Redeliver the messages that were received and not acknowledged.

        Args:
            failure: as of :meth:`EngineSession.recover`.
        """
        self.conclude(lambda: self.engine.recover(failure))

    def conclude(self, request: Callable[[], Completion[Any]]) -> Any:
        """Make a request about what the session has sent and received, and hear its outcome."""
        outcomes = self.engine.outcomes
        try:
            answer = self.transport.ask(request)
        except JMSException as error:
            outcomes.hear(error)
            raise
        outcomes.hear()
        return answer

    def acknowledge(self) -> None:
        """Implements message.acknowledge() (MSG-01)."""
        with settling("acknowledge", self.engine.terms):
            if not self.engine.transacted:
                self.raise_doubts()
            self.conclude(self.engine.acknowledge)

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(
        self,
        engine: EngineProducer,
        message: object,
        destination: Destination,
        callbacks: Callbacks | None,
        delivery_mode: object = None,
        priority: object = None,
        time_to_live: object = None,
    ) -> Completion[None] | None:
        """Hand a message over, once the window has room. Arguments and result as of :meth:`EngineProducer.send`."""
        transport, sends = self.transport, engine.sends
        with self.sending:
            before = sends.sequence
            if before >= sends.sequence_limit or sends.sent_bytes >= sends.byte_limit:
                self._wait_for_window(engine)
            begun = self.calls.begun
            try:
                if callbacks is not None:
                    self.calls.begin()
                completion = engine.send(message, destination, callbacks, delivery_mode, priority, time_to_live)
                if engine.send_timeout and (completion is not None or callbacks is not None):
                    transport.expect(sends, completion, engine.send_timeout, sends.sequence)
            except BaseException as error:
                if callbacks is not None and sends.sequence == before:
                    self.calls.cancel(begun)  # CPL-03
                if sends.torn:
                    transport.broken(error, sends)
                raise
        if completion is None:
            transport.queued(callbacks is not None)
        return completion

    def send_observed(
        self,
        engine: EngineProducer,
        message: Message,
        destination: Destination,
        callbacks: Callbacks | None,
        delivery_mode: object = None,
        priority: object = None,
        time_to_live: object = None,
    ) -> None:
        """Send, and notify observers. Arguments as of :meth:`EngineProducer.send`."""
        with sending(self.engine.terms, message, destination):
            completion = self.send(engine, message, destination, callbacks, delivery_mode, priority, time_to_live)
            if completion is not None:
                self.transport.wait(completion)

    def _wait_for_window(self, engine: EngineProducer) -> None:
        """Wait until the broker has taken enough of what the session sent.

        Raises:
            IllegalStateException: the producer or its session is closed.
            JMSException: the connection failed, or there was no room within the producer's `send_timeout`.
        """
        engine.check_open()
        sends = engine.sends
        opened = self.transport.call(sends.window_opens)
        if engine.send_timeout:
            self.transport.expect(sends, opened, engine.send_timeout)
        self.transport.wait_for_room(opened)

    # -- closing ------------------------------------------------------------------------------------------------------

    def settle_sends(self) -> None:
        """Wait for the callbacks of the asynchronous sends made so far (CPL-09, CPL-10).

        The others need no wait: what comes next on the connection comes behind them.
        """
        if self.calls.pending:
            self.transport.flush()
            self.calls.wait()

    def called_back(self, until: float | None = None) -> None:
        """As :meth:`settle_sends`, of what closes: it does not wait for the repair of a lost connection.

        Args:
            until: by the monotonic clock, how long the broker's confirms are awaited; None for the option
                `close_timeout` from now. Callbacks that run are awaited without a limit.
        """
        if not self.calls.pending:
            return
        if until is None:
            until = self.transport.close_by()
        self.transport.flush()
        while not self.calls.wait(_WATCH):
            if (self._lost or time.monotonic() >= until) and (
                not self.calls.calling or self.engine.sends.awaits_broker
            ):
                return

    def leave(self, until: float) -> None:
        """The gate is shut: wait for everybody inside, then end the delivery thread. On a lost connection only for
        listeners and callbacks that are running.

        Args:
            until: by the monotonic clock, how long what was sent may wait for room (D-26), and calls for the broker.
        """
        self._wait_until_left(until)
        self.paused(until)
        engine, transport = self.engine, self.transport
        if engine.sends.unheard:
            transport.wait_until(transport.until_lost(transport.call(engine.sends.settled)), until)
        self.called_back(until)
        self.delivery.stop(lambda: engine.awaits_broker)

    def check_may_close(self, what: str) -> None:
        """Raise in a listener or callback that closing would wait for."""
        if self.delivery.mine:
            raise IllegalStateException(f"{what} cannot be closed by a message listener that it would wait for")
        if self.calls.mine:
            raise IllegalStateException(f"{what} cannot be closed in a completion callback that it would wait for")
