# Generated from sievemq/aio/listening.py by client/generate_blocking.py; change that file, then run `make format`.
"""Listeners as functions: an application registers them, starts, and stops in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias, Unpack

from sievemq._engine import AUTO_ACKNOWLEDGE, SESSION_TRANSACTED, EngineConsumer
from sievemq._front import refuse_awaitable
from sievemq.blocking.context import JMSContext
from sievemq.blocking.factory import ConnectionFactory
from sievemq.blocking.jms_consumer import JMSConsumer
from sievemq.blocking.serving import Ending, finished, serve
from sievemq.blocking.session import Session
from sievemq.blocking.waiting import Once
from sievemq.delivery_mode import DeliveryMode
from sievemq.destinations import Destination, Topic
from sievemq.exceptions import InvalidDestinationException, JMSException
from sievemq.listening.registry import Registration, Registry
from sievemq.listening.replies import is_temporary, reply_of, reply_to
from sievemq.messages import Message
from sievemq.url import BrokerURL, Options
from sievemq_core.counted import counted
from sievemq_core.durations import Milliseconds

_log = logging.getLogger("sievemq.listeners")

_Reply: TypeAlias = tuple[Destination, Message]


class Listeners(Registry):
    """An application of functions that are called with messages.

    ::

        app = Listeners("sievemq://localhost/shop")


        @app.listener("queue:orders", selector="region = 'EU'", concurrency=4, retries=Retry(attempts=5))
        def take(order: Order) -> Receipt: ...


        app.run()

    A message is acknowledged when its listener has returned. If the listener raises, the message is redelivered as
    `retries` says, and becomes a dead letter in the end, with the last line of the traceback. One whose body does not
    fit the annotation becomes a dead letter at once.

    Each of a listener's `concurrency` has a thread of its own.

    Args:
        url: of the broker, as of a :class:`ConnectionFactory`.
        user_name, password: credentials.
        stop_timeout: how long a listener that runs may go on when the application stops: a timedelta, or an int of
            milliseconds. Then it is given up, and its message is redelivered.
        options: as of a :class:`ConnectionFactory`. `reconnect` is ``forever`` unless it is given: the application
            waits for its broker.

    Raises:
        ValueError: the URL or an option is wrong; says which part.
    """

    _context: ClassVar[type] = JMSContext
    _awaits: ClassVar[bool] = False

    def __init__(
        self,
        url: str | BrokerURL | None = None,
        *,
        user_name: str | None = None,
        password: str | None = None,
        stop_timeout: Milliseconds = 30_000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(url, user_name=user_name, password=password, stop_timeout=stop_timeout, **options)
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _is_started(self) -> bool:
        return self._running is not None and not self._running.over

    @property
    def healthy(self) -> bool:
        """True while the application listens: it is started, its connection is up, and the broker has closed none of
        its consumers."""
        running = self._running
        return running is not None and running.listens

    def run(self, *, health: str | None = None) -> None:
        """Start, listen until SIGTERM or SIGINT, and stop in order: messages in work are finished, others go back.
        A second signal gives up what is in work. Outside of the main thread no signal is handled.

        Args:
            health: ``host:port`` to answer probes at: ``/livez`` while the process runs, ``/readyz`` while
                :attr:`healthy`.

        Raises:
            JMSException: the broker refused the connection or a consumer; or it ended one for good.
        """
        serve(self, health)

    def start(self, url: str | None = None) -> None:
        """Connect, and begin to listen. Waits for the broker as the option `reconnect` says.

        Args:
            url: of another broker than the application's own, such as that of a test.

        Raises:
            RuntimeError: it is started already.
            JMSException: the broker refused the connection or a consumer.
        """
        if self._is_started:
            raise RuntimeError("the application is started already")
        address = self._url if url is None else self._address(url)
        factory = ConnectionFactory(address, user_name=self._user, password=self._password)
        running = self._running = _Running()
        try:
            running.connect(factory)
            for registration in self._registered.values():
                for _ in range(registration.concurrency):
                    running.add(registration)
            running.listen()
        except BaseException:
            self._running = None
            running.close()
            raise
        for registration in self._registered.values():
            _log.info("listening: %s", registration)

    def stop(self) -> None:
        """Stop in order: no listener is called any more, one that runs has `stop_timeout` to return, messages that
        were only fetched go back uncounted. Idempotent.
        :meth:`run` returns then.

        Raises:
            IllegalStateException: in a listener of this application.
        """
        if self._running is not None:
            self._running.end(self._stop_seconds)

    def _ended(self) -> None:
        """Return when it is to stop, or when it cannot listen any more."""
        if self._running is not None:
            self._running.ending.wait()

    def _told(self) -> None:
        """A signal: stop; or, the second time, give up what is in work."""
        if self._running is not None:
            self._running.ending.tell()

    @property
    def _failure(self) -> Exception | None:
        return None if self._running is None else self._running.failure


class _Running:
    """An application that is started.

    Attributes:
        context: of the connection; sends what belongs to no transaction.
        failure: why it cannot listen any more; None while it can.
        over: it has stopped.
    """

    def __init__(self) -> None:
        self.context: JMSContext | None = None
        self.sessions: list[Session] = []
        self.consumers: list[EngineConsumer] = []
        self.ending = Ending()
        self.over = False
        self._stopping: Once | None = None

    def connect(self, factory: ConnectionFactory) -> None:
        self.context = context = factory.create_context()
        self._stopping = Once(context._connection._transport)
        context.set_auto_start(False)
        context.set_exception_listener(self._heard)

    def add(self, registration: Registration) -> None:
        """One more consumer of a listener, in a session of its own."""
        assert self.context is not None
        mode = SESSION_TRANSACTED if registration.transacted else AUTO_ACKNOWLEDGE
        context = self.context.create_context(mode)
        context.set_auto_start(False)
        consumer = _consumer(context, registration)
        context._session._engine.retry_by(registration.rule)
        consumer.set_message_listener(_callback(registration, context, self.context))
        self.sessions.append(context._session)
        self.consumers.append(consumer._consumer._engine)

    def listen(self) -> None:
        assert self.context is not None
        self.context.start()

    @property
    def failure(self) -> Exception | None:
        if self.context is None:
            return None
        gone = next((consumer.gone for consumer in self.consumers if consumer.gone is not None), None)
        return self.context._connection._engine.failure or gone

    @property
    def listens(self) -> bool:
        if self.context is None or self.failure is not None:
            return False
        engine = self.context._connection._engine
        return engine.started and not engine.down and not engine.closed

    def _heard(self, error: JMSException) -> None:
        if self.failure is None:
            _log.warning("%s", error)
        else:
            self.ending.end()

    def end(self, seconds: float) -> None:
        for session in self.sessions:
            session._control.check_may_close("the application")
        self.ending.end()
        if self._stopping is not None and not self.over:
            self._stopping.run(lambda: self._end(seconds))

    def _end(self, seconds: float) -> None:
        assert self.context is not None
        connection = self.context._connection
        with suppress(JMSException), connection._transport.lock:
            connection._engine.stop()
        deliveries = [session._control.delivery for session in self.sessions]
        if not finished(deliveries, seconds, self.ending):
            busy = [delivery for delivery in deliveries if delivery.calling is not None]
            for delivery in busy:
                delivery.abandon()
            _log.warning("%s not returned in time, given up: the message goes back", counted(len(busy), "listener"))
        self.close()

    def close(self) -> None:
        try:
            if self.context is not None:
                self.context._connection.close()
        finally:
            self.over = True


def _consumer(context: JMSContext, registration: Registration) -> JMSConsumer:
    target, selector, name = registration.destination, registration.selector, registration.subscription
    if name is None:
        return context.create_consumer(target, selector)
    assert isinstance(target, Topic)
    if registration.durable:
        return context.create_shared_durable_consumer(target, name, selector)
    return context.create_shared_consumer(target, name, selector)


def _callback(registration: Registration, context: JMSContext, outside: JMSContext) -> Callable[[Message], None]:
    """What is called with each message of one consumer. Arguments as of :class:`_Caller`."""
    if registration.plan.silent and not registration.transacted:
        return registration.plan.bind(context)
    caller = _Caller(registration, context, outside)
    return caller.call_in_transaction if registration.transacted else caller.call


class _Caller:
    """Calls the function of a listener with each message of one consumer.

    Args:
        context: where the messages are received.
        outside: sends what belongs to no transaction.
    """

    __slots__ = ("_call", "_fixed", "_late", "_producer", "_session")

    def __init__(self, registration: Registration, context: JMSContext, outside: JMSContext) -> None:
        self._call = registration.plan.bind(context)
        self._fixed = registration.reply_to
        self._session = context._session
        self._producer = context.create_producer()
        self._late = outside.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)

    def call(self, message: Message) -> Any:
        result = self._call(message)
        if result is not None:
            return self._finish(message, result)
        return None

    def call_in_transaction(self, message: Message) -> None:
        answer: _Reply | None = None
        try:
            result = self._call(message)
            refuse_awaitable(result)
            if result is not None:
                answer = self._reply(message, result)
        except BaseException as error:
            with suppress(JMSException):  # the connection is lost for good, which rolls back as well
                self._session._roll_back_for(error)
            raise
        self._session.commit()
        self._follow(answer)

    def _finish(self, message: Message, result: Any) -> None:
        refuse_awaitable(result)
        if result is not None:
            self._follow(self._reply(message, result))

    def _reply(self, message: Message, result: object) -> _Reply | None:
        """Reply, or return a reply that is to follow when the message is done with: if its requester is gone, there
        is no reason to do the work again."""
        target = reply_to(message, self._fixed)
        if target is None:
            return None
        answer = reply_of(result, message)
        if is_temporary(target):
            return target, answer
        self._producer.send(target, answer)
        return None

    def _follow(self, answer: _Reply | None) -> None:
        if answer is not None:
            try:
                self._late.send(*answer)
            except InvalidDestinationException as error:
                _log.warning("the queue for the reply is gone: %s", error)
