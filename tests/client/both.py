"""One text of a test for both APIs.

A test that takes the fixture ``api`` is an ``async def`` written against the asyncio API, and runs twice: over
``sievemq.aio``, whose objects it gets as they are, and over ``sievemq``, whose objects it gets behind a proxy. What is
awaited in aio is awaited in both worlds, what is plain there is plain in both::

    async def test_ack_08_recover_brings_it_again(api: Api) -> None:
        session = await api.session(api.CLIENT_ACKNOWLEDGE)
        await api.fill("orders", "one", "two")
        consumer = await session.create_consumer(api.queue("orders"))
        assert await api.texts(consumer, 2) == ["one", "two"]
        await session.recover()
        message = await consumer.receive(SOON)
        assert message.get_jms_redelivered()

**How the blocking world works.** The proxy of a ``Session`` knows from ``sievemq.aio.Session`` which methods wait.
Those run on a worker thread that belongs to the awaiting task: a task is a thread of control, here as there;
``api.task(…)`` starts a second one. The others run where they are called. Results that are API objects get a proxy too;
messages and temporary destinations stay themselves, but their ``acknowledge()`` and ``delete()`` can be awaited.

**Listeners** may be plain or coroutine functions in both worlds. In the blocking one they run on the session's delivery
thread, where a call such as ``await session.recover()`` runs on that very thread. A listener may await API calls and
``api.signal()``, nothing else of asyncio. ``api.listener(act)`` collects messages, ``api.completions(act)`` outcomes.

**Waiting.** No sleeps: a :class:`Signal` is set and awaited anywhere, ``listener.arrived(3)`` waits for messages, a
receive has a timeout: ``SOON`` for what must come. For "nothing comes" use ``receive_no_wait()``, which asks the
broker. Every wait of the harness ends after ``LIMIT`` seconds with an error that names the call.

**Brokers.** One for all, a namespace per test. ``api.start_broker(users=…)`` starts one of the test's own, for what
touches the whole broker: its clock (``await api.broker.clock.advance(seconds=60)``), users, limits.

Everything made through ``api`` is closed at the end of the test.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import queue as queues
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest

import sievemq
import sievemq.aio
from sievemq import JMSException, Message, Queue, TemporaryQueue, TemporaryTopic, TextMessage, Topic
from sievemq_broker import EmbeddedBroker

__all__ = ["LIMIT", "SOON", "Api", "Completions", "Listener", "Signal", "api", "both_broker", "outline", "text"]

#: Milliseconds for a receive of what must come.
SOON = 60_000
#: Seconds after which a wait has failed.
LIMIT = 90.0

_numbers = itertools.count(1)


def text(message: Message | None) -> str | None:
    """The text of a message that must have arrived."""
    assert isinstance(message, TextMessage), message
    return message.get_text()


def outline(message: Message | None) -> tuple[str | None, bool, int]:
    """Text, redelivered, delivery count."""
    assert message is not None
    return text(message), message.get_jms_redelivered(), message.get_int_property("JMSXDeliveryCount")


class Signal:
    """An event that threads and tasks set and await alike."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._event = threading.Event()
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        self._event.set()
        if threading.get_ident() == self._thread:
            self._release()
        else:
            self._loop.call_soon_threadsafe(self._release)

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        if threading.get_ident() != self._thread:  # in a listener of the blocking world
            assert self._event.wait(LIMIT), "a signal was not set"
        elif not self._event.is_set():
            future = self._loop.create_future()
            self._waiters.append(future)
            async with asyncio.timeout(LIMIT):
                await future

    def _release(self) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters.clear()


class _Collector:
    """Keeps what arrives; `arrived` waits for a number of them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._wanted: list[tuple[int, Signal]] = []
        self._count = 0

    def _arrived(self) -> None:
        with self._lock:
            self._count += 1
            ready = [signal for number, signal in self._wanted if number <= self._count]
        for signal in ready:
            signal.set()

    async def _wait(self, number: int) -> None:
        signal = self._api.signal()
        with self._lock:
            self._wanted.append((number, signal))
            enough = self._count >= number
        if not enough:
            await signal.wait()


class Listener(_Collector):
    """A message listener that keeps what it gets.

    Args:
        act: plain or coroutine function, called with each message before it is kept; may raise.
    """

    def __init__(self, api: Api, act: Callable[[Message], Any] | None = None) -> None:
        super().__init__(api)
        self.messages: list[Message] = []
        self._act = act

    async def on_message(self, message: Message) -> None:
        try:
            if self._act is not None:
                result = self._act(message)
                if inspect.isawaitable(result):
                    await result
        finally:
            self.messages.append(message)
            self._arrived()

    async def arrived(self, number: int) -> list[Message]:
        """The messages, once there are so many; the call for the last has nearly returned then."""
        await self._wait(number)
        return list(self.messages)

    @property
    def texts(self) -> list[str | None]:
        return [text(message) for message in self.messages]


class Completions(_Collector):
    """A completion listener that keeps outcomes: (message, None) or (message, exception), in order of the calls.

    Args:
        act: plain or coroutine function, called with message and exception; what it raises is kept in `errors`.
    """

    def __init__(self, api: Api, act: Callable[[Message, Exception | None], Any] | None = None) -> None:
        super().__init__(api)
        self.outcomes: list[tuple[Message, Exception | None]] = []
        self.errors: list[BaseException] = []
        self._act = act

    async def on_completion(self, message: Message) -> None:
        await self._keep(message, None)

    async def on_exception(self, message: Message, exception: Exception) -> None:
        await self._keep(message, exception)

    async def _keep(self, message: Message, exception: Exception | None) -> None:
        try:
            if self._act is not None:
                result = self._act(message, exception)
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            self.errors.append(error)
        finally:
            self.outcomes.append((message, exception))
            self._arrived()

    async def arrived(self, number: int) -> list[tuple[Message, Exception | None]]:
        """The outcomes, once there are so many."""
        await self._wait(number)
        return list(self.outcomes)


class Api:
    """What a test gets. `world` is "aio" or "blocking"."""

    SESSION_TRANSACTED: ClassVar[int] = 0
    AUTO_ACKNOWLEDGE: ClassVar[int] = 1
    CLIENT_ACKNOWLEDGE: ClassVar[int] = 2
    DUPS_OK_ACKNOWLEDGE: ClassVar[int] = 3

    def __init__(self, world: str, broker: EmbeddedBroker) -> None:
        self.world = world
        self.broker = broker
        self.namespace = f"{world}{next(_numbers)}"
        self.loop = asyncio.get_running_loop()
        self._bridge = _Bridge(self.loop) if world == "blocking" else None
        self._own: list[EmbeddedBroker] = []
        self._closeables: list[Any] = []
        self._signals: list[Signal] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"<{self.world}>"

    # -- brokers, connections -----------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.broker.namespace(self.namespace).url

    def start_broker(self, **options: Any) -> EmbeddedBroker:
        """A broker of the test's own; everything made from here on goes to it."""
        self.broker = EmbeddedBroker(**options).start()
        self._own.append(self.broker)
        return self.broker

    def factory(self, url: str | None = None, **options: Any) -> Any:
        """A ConnectionFactory. What it makes is for the test to close."""
        return self._world(sievemq.aio.ConnectionFactory, url or self.url, **options)

    async def connect(self, start: bool = True, **options: Any) -> Any:
        """A connection, started; options as a ConnectionFactory has them."""
        connection = await self.factory(**options).create_connection()
        self._closeables.append(connection)
        if start:
            await connection.start()
        return connection

    async def session(self, mode: int = 1, **options: Any) -> Any:
        """A session on a started connection of its own."""
        return await (await self.connect(**options)).create_session(mode)

    async def context(self, mode: int = 1, **options: Any) -> Any:
        """A JMSContext on a connection of its own."""
        context = await self.factory(**options).create_context(session_mode=mode)
        self._closeables.append(context)
        return context

    async def requestor(self, kind: type[Any], session: Any, destination: Any) -> Any:
        """``kind`` is QueueRequestor or TopicRequestor of ``sievemq.aio``."""
        if self._bridge is not None:
            return await self._bridge.call(lambda: self._world(kind, session, destination), kind.__name__)
        return kind(session, destination)

    def _world(self, kind: type[Any], *arguments: Any, **keywords: Any) -> Any:
        return kind(*arguments, **keywords) if self._bridge is None else self._bridge.make(kind, arguments, keywords)

    # -- destinations, messages ---------------------------------------------------------------------------------------

    def queue(self, name: str = "orders") -> Queue:
        return Queue(name)

    def topic(self, name: str = "prices") -> Topic:
        return Topic(name)

    async def fill(self, destination: Any, *texts: str, **properties: object) -> None:
        """Send text messages through a connection of their own; a name is that of a queue."""
        if isinstance(destination, str):
            destination = Queue(destination)
        async with await self.factory().create_context() as context:
            producer = context.create_producer()
            for name, value in properties.items():
                producer.set_property(name, value)
            for body in texts:
                await producer.send(destination, body)

    async def texts(self, consumer: Any, count: int) -> list[str | None]:
        """The texts of the next messages, which must come."""
        return [text(await consumer.receive(SOON)) for _ in range(count)]

    async def outlines(self, consumer: Any, count: int) -> list[tuple[str | None, bool, int]]:
        """Text, redelivered and delivery count of the next messages, which must come."""
        return [outline(await consumer.receive(SOON)) for _ in range(count)]

    async def left(self, destination: Any = "orders") -> list[str | None]:
        """What a browser shows of a queue: neither held by a consumer nor uncommitted nor delayed nor expired."""
        queue = Queue(destination) if isinstance(destination, str) else destination
        async with await self.factory().create_context() as context:
            return [text(message) async for message in await context.create_browser(queue)]

    async def acknowledge(self, message: Message) -> None:
        """``message.acknowledge()`` of any message, also of one that the test made without a session."""
        result = message.acknowledge()
        if inspect.isawaitable(result):
            await result

    # -- listeners, waiting -------------------------------------------------------------------------------------------

    def signal(self) -> Signal:
        signal = Signal(self.loop)
        self._signals.append(signal)
        return signal

    def listener(self, act: Callable[[Message], Any] | None = None) -> Listener:
        return Listener(self, act)

    def completions(self, act: Callable[[Message, Exception | None], Any] | None = None) -> Completions:
        return Completions(self, act)

    def task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A second thread of control: a task, and in the blocking world a thread."""
        task = self.loop.create_task(coroutine)
        self._tasks.append(task)
        return task

    async def until_receiving(self, consumer: Any) -> None:
        """Return once another task waits in a receive of the consumer."""
        engine = _engine(consumer)
        await self._until(lambda: engine.waker is not None)

    async def until_quiet(self, consumer: Any) -> None:
        """Return once everything that the consumer's connection has to say by itself is written."""
        connection = _engine(consumer).session.connection
        await self._until(lambda: not connection.has_output)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not condition():  # noqa: ASYNC110 - a thread may make it so
                await asyncio.sleep(0)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        for signal in self._signals:
            signal.set()
        for closeable in reversed(self._closeables):
            with suppress(JMSException):
                await closeable.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for broker in self._own:
            await self.loop.run_in_executor(None, broker.stop)
        if self._bridge is not None:
            self._bridge.close()


# -- the blocking world -----------------------------------------------------------------------------------------------

#: Arguments that are listeners, by method; everything else is passed on.
_LISTENERS = {"set_message_listener", "set_exception_listener", "set_async"}
_TWINS: dict[type[Any], type[Any]] = {
    getattr(sievemq, name): getattr(sievemq.aio, name)
    for name in sievemq.aio.__all__
    if getattr(sievemq, name, None) is not getattr(sievemq.aio, name) and inspect.isclass(getattr(sievemq, name, None))
}
_BLOCKING: dict[type[Any], type[Any]] = {twin: kind for kind, twin in _TWINS.items()}


class _Lane:
    """The worker thread of one task."""

    def __init__(self) -> None:
        self._work: queues.SimpleQueue[Callable[[], None] | None] = queues.SimpleQueue()
        threading.Thread(target=self._run, name="both-lane", daemon=True).start()

    def put(self, work: Callable[[], None] | None) -> None:
        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class _Bridge:
    """Runs blocking calls so that they can be awaited, and coroutine listeners on blocking threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._lanes: weakref.WeakKeyDictionary[asyncio.Task[Any], _Lane] = weakref.WeakKeyDictionary()

    def make(self, kind: type[Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return self.wrap(_BLOCKING[kind](*map(_real, arguments), **keywords))

    async def call(self, work: Callable[[], Any], what: str) -> Any:
        """Run `work` on the thread of the running task; in a listener's thread right there."""
        if threading.get_ident() != self._thread:
            return work()
        task = asyncio.current_task()
        assert task is not None
        lane = self._lanes.get(task)
        if lane is None:
            lane = self._lanes[task] = _Lane()
            weakref.finalize(task, lane.put, None)
        future: asyncio.Future[Any] = self._loop.create_future()

        def run() -> None:
            try:
                result, error = work(), None
            except BaseException as raised:
                result, error = None, raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(settle, result, error)

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # a future cannot carry it
                future.set_result(_END)
            else:
                future.set_exception(error)

        lane.put(run)
        done, _ = await asyncio.wait((future,), timeout=LIMIT)
        assert done, f"{what} has not returned within {LIMIT} s"
        return future.result()

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.put(None)

    # -- results ------------------------------------------------------------------------------------------------------

    def wrap(self, result: Any) -> Any:
        """A result as the test sees it."""
        for kind in type(result).__mro__:
            if kind in _TWINS:
                return _Proxy(self, result, _TWINS[kind])
        if isinstance(result, _Foreign):
            return result.original
        if isinstance(result, Message):
            return self._awaitable(result)
        if isinstance(result, (TemporaryQueue, TemporaryTopic)):
            delete = result._delete
            if delete is not None:
                object.__setattr__(result, "_delete", lambda: self.call(delete, "delete"))
        return result

    def _awaitable(self, message: Message) -> Message:
        acknowledge = message._acknowledge
        if not isinstance(acknowledge, _Acknowledge):
            message._acknowledge = _Acknowledge(self, acknowledge)
        return message

    # -- listeners ----------------------------------------------------------------------------------------------------

    def listen(self, listener: Any) -> Any:
        """A listener as the blocking API gets it."""
        if listener is None:
            return None
        if isinstance(listener, tuple):
            return tuple(self._callback(callback) for callback in listener)
        return _Foreign(self, listener)

    def _callback(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> None:
            for argument in arguments:
                if isinstance(argument, Message) and argument._acknowledge is not None:
                    self._awaitable(argument)
            result = callback(*arguments)
            if inspect.isawaitable(result):
                _drive(result)

        return call


class _Acknowledge:
    """Stands in for what a message's acknowledge() calls."""

    def __init__(self, bridge: _Bridge, real: Callable[[], Any] | None) -> None:
        self._bridge = bridge
        self._real = real

    def __call__(self) -> Any:
        return self._bridge.call(self._real or (lambda: None), "acknowledge")


_METHODS = ("on_message", "on_completion", "on_exception", "on_connection_lost", "on_connection_restored")


class _Foreign:
    """A listener of the test behind one that the blocking API can call; has the methods that the original has."""

    def __init__(self, bridge: _Bridge, original: Any) -> None:
        self.original = original
        methods = [name for name in _METHODS if hasattr(original, name)]
        for name in methods:
            setattr(self, name, bridge._callback(getattr(original, name)))
        if callable(original) and not methods:
            self._call = bridge._callback(original)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def _drive(awaitable: Awaitable[Any]) -> Any:
    """Run a coroutine listener on the thread that called it; nothing in it may really suspend."""
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a listener of the blocking world may await API calls and api.signal(), nothing else")


def _engine(consumer: Any) -> Any:
    real = _real(consumer)
    return (real._consumer if hasattr(real, "_consumer") else real)._engine


def _real(argument: Any) -> Any:
    return argument._object if isinstance(argument, _Proxy) else argument


_END = object()


class _Proxy:
    """A blocking object with the face of its asyncio twin."""

    def __init__(self, bridge: _Bridge, real: Any, twin: type[Any]) -> None:
        self._bridge = bridge
        self._object = real
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._object)

    def __eq__(self, other: object) -> bool:
        return self._object is _real(other)

    def __hash__(self) -> int:
        return hash(self._object)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._object, name)
        if not callable(value):
            return value
        if inspect.iscoroutinefunction(inspect.unwrap(getattr(self._twin, name))):
            return self._waiting(name, value)
        return self._plain(name, value)

    def _waiting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            real, named = self._arguments(name, arguments, keywords)
            what = f"{type(self._object).__name__}.{name}"
            return self._result(await self._bridge.call(lambda: method(*real, **named), what))

        return call

    def _plain(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            real, named = self._arguments(name, arguments, keywords)
            result = method(*real, **named)
            if name == "get_enumeration":
                return self._iterate(result)
            return self._result(result)

        return call

    def _arguments(
        self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        real = tuple(map(_real, arguments))
        named = {key: _real(value) for key, value in keywords.items()}
        if name in _LISTENERS:
            real = tuple(map(self._bridge.listen, real))
            named = {key: self._bridge.listen(value) for key, value in named.items()}
        elif "completion_listener" in named:
            named["completion_listener"] = self._bridge.listen(named["completion_listener"])
        return real, named

    def _result(self, result: Any) -> Any:
        return self if result is self._object else self._bridge.wrap(result)

    async def _iterate(self, iterator: Iterator[Any]) -> AsyncIterator[Any]:
        while True:
            item = await self._bridge.call(lambda: next(iterator, _END), "iteration")
            if item is _END:
                return
            yield self._bridge.wrap(item)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._iterate(iter(self._object))

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


# -- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def both_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests that do not start their own."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(params=["blocking", "aio"])
async def api(request: pytest.FixtureRequest, both_broker: EmbeddedBroker) -> AsyncIterator[Api]:
    """The API under test, in two worlds; see the module."""
    api = Api(request.param, both_broker)
    me = asyncio.current_task()

    def give_up() -> None:
        for task in asyncio.all_tasks(api.loop):
            if task is not me:
                task.cancel("the test has taken too long")

    watchdog = api.loop.call_later(2 * LIMIT, give_up)
    try:
        yield api
    finally:
        watchdog.cancel()
        await api._close()
