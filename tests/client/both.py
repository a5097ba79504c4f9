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

**How the blocking world works** (``bridge.py``). The proxy of a ``Session`` knows from ``sievemq.aio.Session`` which
methods wait. Those run on a worker thread that belongs to the awaiting task: a task is a thread of control, here as
there; ``api.task(…)`` starts a second one. The others run where they are called. Results that are API objects get a
proxy too; messages and temporary destinations stay themselves, but their ``acknowledge()`` and ``delete()`` can be
awaited.

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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest

import sievemq
import sievemq.aio
from sievemq import JMSException, Message, Queue, Topic
from sievemq._engine.consumer import PAUSED
from sievemq_broker import EmbeddedBroker

from .bridge import Bridge, engine_of
from .heard import LIMIT, Completions, Listener, Reports, Signal, outline, text

__all__ = ["LIMIT", "SOON", "Api", "Completions", "Listener", "Signal", "api", "both_broker", "outline", "text"]

#: Milliseconds for a receive of what must come.
SOON = 60_000

_numbers = itertools.count(1)


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
        self._bridge = Bridge(self.loop) if world == "blocking" else None
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

    def reports(self) -> Reports:
        return Reports(self)

    def task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A second thread of control: a task, and in the blocking world a thread."""
        task = self.loop.create_task(coroutine)
        self._tasks.append(task)
        return task

    async def until_receiving(self, consumer: Any) -> None:
        """Return once another task waits in a receive of the consumer."""
        engine = engine_of(consumer)
        await self._until(lambda: engine.waker is not None)

    async def until_gated(self, consumer: Any) -> None:
        """Return once closing or stopping what the consumer belongs to has begun: it is handed nothing more."""
        engine = engine_of(consumer)
        await self._until(lambda: not engine.flowing)

    async def until_paused(self, consumer: Any) -> None:
        """Return once a commit or rollback of the consumer's session is requested."""
        engine = engine_of(consumer)
        await self._until(lambda: bool(engine.stops & PAUSED))

    async def until_quiet(self, consumer: Any) -> None:
        """Return once everything that the consumer's connection has to say by itself is written."""
        outbox = engine_of(consumer)._outbox
        await self._until(lambda: not outbox.has_output)

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
    mark = request.node.get_closest_marker("timeout")
    most = 2 * LIMIT if mark is None else 0.9 * mark.args[0]  # before pytest-timeout ends the whole process

    def give_up() -> None:
        for task in asyncio.all_tasks(api.loop):
            if task is not me:
                task.cancel("the test has taken too long")

    watchdog = api.loop.call_later(most, give_up)
    try:
        yield api
    finally:
        watchdog.cancel()
        await api._close()
