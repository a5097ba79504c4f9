"""Ends are bounded (D-43): each close and stop, in each state that a connection can be in."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import sievemq.aio
from sievemq import (
    ConnectionFactory,
    DeliveryMode,
    JMSException,
    Queue,
    TextMessage,
)
from sievemq_broker import EmbeddedBroker

from .both import Api
from .relay import Relay

#: Milliseconds that an end may wait for a broker that is silent; and so many that no test has the time.
BRIEF, ENDLESS = 200, 3_600_000
#: Seconds within which everything here ends, on a slow machine too. Without the bound it takes a minute, or for ever.
BOUND = 20.0
RULES = {"full": {"max_messages": 2, "at_limit": "block"}}


class Scene:
    """Everything that can be ended, on a connection through a relay."""

    def __init__(self, api: Api, relay: Relay) -> None:
        self.api, self.relay = api, relay
        self.errors: list[Exception] = []
        self.heard = api.signal()
        self.completions = api.completions()

    async def open(self, close_timeout: int) -> Scene:
        api = self.api
        url = self.relay.url(api.url)
        options = {"reconnect": "forever", "close_timeout": close_timeout, "heartbeat": 0}
        self.context = await api.factory(url, **options).create_context(session_mode=1)
        self.last = self.context
        self.context = await self.context.create_context(1)
        self.connection = await api.factory(url, **options).create_connection()
        await self.connection.start()
        self.connection.set_exception_listener(self)
        self.session = await self.connection.create_session(0)
        self.producer = await self.session.create_producer(api.queue("full"))
        self.consumer = await self.session.create_consumer(api.queue("other"))
        auto = await self.connection.create_session(1)
        self.sender = await auto.create_producer(api.queue("some"))
        self.auto = auto
        self.browser = await auto.create_browser(api.queue("some"))
        requests = await self.connection.create_session(1)
        self.requestor = await api.requestor(sievemq.aio.QueueRequestor, requests, api.queue("some"))
        return self

    def on_exception(self, error: JMSException) -> None:
        self.errors.append(error)
        self.heard.set()

    @property
    def engines(self) -> list[Any]:
        return [self.connection._engine, self.last._connection._engine]

    async def until_lost(self) -> None:
        self.relay.refuse()
        self.relay.cut()
        await self.api._until(lambda: all(engine.repairing for engine in self.engines))


async def connected(scene: Scene) -> None:
    """All is well."""


async def frozen(scene: Scene) -> None:
    """The broker is there, and says nothing more."""
    scene.relay.stand()


async def unread(scene: Scene) -> None:
    """The peer does not read either, and megabytes are unsent."""
    scene.relay.stand()

    async def fill() -> None:
        for _ in range(64):
            await scene.sender.send(TextMessage("x" * 1_000_000), delivery_mode=DeliveryMode.NON_PERSISTENT)

    filling = scene.api.task(fill())
    transport = scene.connection._transport
    if scene.api.world == "aio":
        await scene.api._until(lambda: transport.paused)
    else:
        await scene.api._until(lambda: bool(transport._backlog))
    filling.add_done_callback(lambda task: task.cancelled() or task.exception())


async def lost(scene: Scene) -> None:
    """The connection is lost, and no broker can be reached."""
    await scene.until_lost()


async def committing(scene: Scene) -> None:
    """Another task's commit waits at an operator's limit."""
    for _ in range(3):
        await scene.producer.send(TextMessage("more"))
    task = scene.api.task(scene.session.commit())
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    await scene.api._until(lambda: bool(scene.connection.blocked))


async def asking_in_an_outage(scene: Scene) -> None:
    """Another task asks the broker for a message while the connection is lost."""
    await scene.until_lost()
    scene.api.task(scene.consumer.receive_no_wait())
    await scene.api._until(lambda: scene.session._engine.awaits_answer)


async def listening(scene: Scene) -> None:
    """A message listener waits in a commit at an operator's limit."""
    session = await scene.connection.create_session(0)
    producer = await session.create_producer(scene.api.queue("full"))
    consumer = await session.create_consumer(scene.api.queue("work"))

    async def work(_: object) -> None:
        for _ in range(3):
            await producer.send(TextMessage("more"))
        await session.commit()

    consumer.set_message_listener(scene.api.listener(lambda message: work(message)))
    scene.session, scene.consumer = session, consumer
    await scene.api.fill("work", "one")
    await scene.api._until(lambda: bool(scene.connection.blocked))


async def sending(scene: Scene) -> None:
    """An asynchronous send waits at an operator's limit."""
    scene.sender = await scene.auto.create_producer(scene.api.queue("full"))
    await scene.sender.send(TextMessage("more"), completion_listener=scene.completions)
    await scene.api._until(lambda: bool(scene.connection.blocked))


async def sending_in_an_outage(scene: Scene) -> None:
    """An asynchronous send waits for the repair of the connection."""
    await scene.until_lost()
    await scene.sender.send(TextMessage("more"), completion_listener=scene.completions)


SILENT = (frozen, unread)
STATES = (
    connected, frozen, unread, lost, committing, asking_in_an_outage, listening, sending, sending_in_an_outage,
)  # fmt: skip

ENDS: dict[str, Callable[[Scene], Awaitable[object]]] = {
    "stop": lambda scene: scene.connection.stop(),
    "consumer": lambda scene: scene.consumer.close(),
    "producer": lambda scene: scene.sender.close(),
    "browser": lambda scene: scene.browser.close(),
    "requestor": lambda scene: scene.requestor.close(),
    "session": lambda scene: scene.session.close(),
    "other session": lambda scene: scene.auto.close(),
    "context": lambda scene: scene.context.close(),
    "contexts": lambda scene: both_contexts(scene),
    "connection": lambda scene: scene.connection.close(),
}


async def both_contexts(scene: Scene) -> None:
    await scene.context.close()
    await scene.last.close()


@asynccontextmanager
async def scene_of(api: Api, close_timeout: int) -> AsyncIterator[Scene]:
    api.start_broker(settings={"destinations": RULES})
    await api.fill("full", "a", "b")
    with Relay(api.broker.port) as relay:
        scene = await Scene(api, relay).open(close_timeout)
        try:
            yield scene
        finally:
            relay.cut()
            for closeable in (scene.connection, scene.context, scene.last):
                await closeable.close()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_every_end_is_bounded(api: Api, state: Callable[[Scene], Awaitable[None]], end: str) -> None:
    """On a lost connection it waits for nothing; on a live one for the broker, but only so long."""
    waits = state in SILENT or (state is listening and end in ("stop", "consumer", "session", "connection"))
    waits = waits or (state is sending and end in ("producer", "other session", "connection"))
    async with scene_of(api, BRIEF if waits else ENDLESS) as scene:
        await state(scene)
        async with asyncio.timeout(BOUND):
            await ENDS[end](scene)
            await ENDS[end](scene)  # once more does no harm


@pytest.mark.parametrize("end", ["requestor", "context", "connection"])
async def test_what_closes_several_things_has_one_bound_for_all(
    api: Api, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_of(api, BRIEF) as scene:
        if end == "context":
            assert await scene.context.request(api.queue("some"), "no program replies", 1) is None
        elif end == "requestor":
            assert await scene.requestor.request(TextMessage("no program replies"), 1) is None
        transport, bounds = type(scene.connection._transport), []
        answered = transport.end

        def record(self: Any, request: Any, until: float) -> Any:
            bounds.append(until)
            return answered(self, request, until)

        monkeypatch.setattr(transport, "end", record)
        scene.relay.stand()
        async with asyncio.timeout(BOUND):
            await ENDS[end](scene)
        assert len(bounds) == {"requestor": 3, "context": 2, "connection": 1}[end]
        assert len(set(bounds)) == 1


async def test_calls_that_wait_end_with_their_connection(api: Api) -> None:
    async with scene_of(api, ENDLESS) as scene:
        for _ in range(3):
            await scene.producer.send(TextMessage("more"))
        committing = api.task(scene.session.commit())
        await api._until(lambda: bool(scene.connection.blocked))
        sending = api.task(scene.sender.send(scene.session.create_text_message("x"), time_to_live=1))
        await sending
        await scene.connection.close()
        with pytest.raises(JMSException):
            await committing


@pytest.mark.parametrize("state", [sending, sending_in_an_outage], ids=lambda state: state.__name__)
async def test_closing_the_connection_fails_asynchronous_sends_before_it_returns(
    api: Api, state: Callable[[Scene], Awaitable[None]]
) -> None:
    """CPL-09: their callbacks have returned."""
    async with scene_of(api, BRIEF) as scene:
        await state(scene)
        async with asyncio.timeout(BOUND):
            await scene.connection.close()
        ((_, error),) = scene.completions.outcomes
        assert isinstance(error, JMSException)
        assert not scene.errors  # nothing is given up that no callback has heard of


async def test_the_number_of_messages_given_up_by_close_is_reported_and_logged(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene_of(api, ENDLESS) as scene:
        await scene.until_lost()
        for _ in range(3):
            await scene.sender.send(TextMessage("x"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        await scene.connection.close()
        await scene.heard.wait()
        (error,) = scene.errors
        assert "3 messages" in str(error)
        assert isinstance(error.__cause__ or error, JMSException)
        assert any("3 messages" in record.getMessage() for record in caplog.records)


async def test_what_a_frozen_broker_has_not_confirmed_is_reported(api: Api) -> None:
    async with scene_of(api, BRIEF) as scene:
        scene.relay.stand()
        for _ in range(2):
            await scene.sender.send(TextMessage("x"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        await scene.connection.close()
        await scene.heard.wait()
        assert ["2 messages" in str(error) for error in scene.errors] == [True]
        assert "close_timeout" in str(scene.errors[0])


async def test_sends_of_a_session_closed_in_an_outage_are_still_delivered(api: Api) -> None:
    async with scene_of(api, ENDLESS) as scene:
        await scene.until_lost()
        await scene.sender.send(TextMessage("kept"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        await scene.auto.close()
        scene.relay.accept()
        consumer = await scene.session.create_consumer(api.queue("some"))
        assert await api.texts(consumer, 1) == ["kept"]
        assert not scene.errors


async def test_a_running_listener_is_awaited_however_long(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """CLO-08: what the application itself does is not bounded."""
    async with scene_of(api, BRIEF) as scene:
        consumer = await scene.auto.create_consumer(api.queue("work"))
        begun, go_on = api.signal(), api.signal()

        async def work(_: object) -> None:
            begun.set()
            await go_on.wait()

        consumer.set_message_listener(work)
        await api.fill("work", "one")
        await begun.wait()
        closing = api.task(scene.connection.close())
        await api._until(lambda: "has not returned" in caplog.text)
        assert not closing.done()
        go_on.set()
        await closing
        assert await api.left("work") == []


def stuck(connection: Any, relay: Relay, unread: bool) -> Any:
    """Let a connection's peer be silent, and perhaps not read megabytes. Returns the engine."""
    relay.stand()
    engine = connection._engine
    if unread:
        engine.outbox.put(b"\xc1" * 30_000_000, 30_000_000)
    return engine


@pytest.mark.parametrize("unread", [False, True])
def test_a_forgotten_connection_ends_its_thread(both_broker: EmbeddedBroker, unread: bool) -> None:
    with Relay(both_broker.port) as relay:
        connection = ConnectionFactory(relay.url(both_broker.url), close_timeout=BRIEF).create_connection()
        thread, engine = connection._transport._thread, stuck(connection, relay, unread)
        with pytest.warns(ResourceWarning, match="unclosed"):
            del connection
        thread.join(BOUND)
        assert not thread.is_alive()
        assert engine.closed


@pytest.mark.parametrize("unread", [False, True])
async def test_a_forgotten_connection_closes_its_socket(both_broker: EmbeddedBroker, unread: bool) -> None:
    with Relay(both_broker.port) as relay:
        factory = sievemq.aio.ConnectionFactory(relay.url(both_broker.url), close_timeout=BRIEF)
        connection = await factory.create_connection()
        transport, engine = connection._transport, stuck(connection, relay, unread)
        with pytest.warns(ResourceWarning, match="unclosed"):
            del connection
        async with asyncio.timeout(BOUND):
            await transport.ended
        assert engine.closed


EXIT = """
import asyncio, logging, sys
from sievemq import DeliveryMode, Queue, TextMessage
from sievemq{aio} import ConnectionFactory

{async_}def main():
    contexts = [
        {await_}ConnectionFactory(url, reconnect="forever", close_timeout=200, heartbeat=0).create_context()
        for url in sys.argv[1:]
    ]
    consumers = [{await_}context.create_consumer(Queue("exits")) for context in contexts]
    print("ready", flush=True)
    sys.stdin.readline()
    for context in contexts:
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        for _ in range(8):
            {await_}producer.send(Queue("some"), TextMessage("x" * 1_000))
    print("ends", flush=True)
    return contexts

kept = {run}
"""


@pytest.mark.parametrize("world", ["blocking", "aio"])
def test_the_interpreter_ends_with_open_connections_in_every_state(both_broker: EmbeddedBroker, world: str) -> None:
    """One is well, the broker of one is frozen, one is lost."""
    program = EXIT.format(
        aio="" if world == "blocking" else ".aio",
        async_="" if world == "blocking" else "async ",
        await_="" if world == "blocking" else "await ",
        run="main()" if world == "blocking" else "asyncio.run(main())",
    )
    with Relay(both_broker.port) as well, Relay(both_broker.port) as frozen, Relay(both_broker.port) as lost:
        url = both_broker.namespace(f"exit{world}").url
        process = subprocess.Popen(
            [sys.executable, "-c", program, *(relay.url(url) for relay in (well, frozen, lost))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            frozen.stand()
            lost.refuse()
            lost.cut()
            printed, _ = process.communicate("\n", timeout=BOUND)
            assert (printed, process.returncode) == ("ends\n", 0)
        finally:
            process.kill()
            process.communicate()


AIO_FORK = """
import asyncio, gc, os, signal, sys, warnings
from sievemq import JMSException, Queue, TextMessage
from sievemq.aio import ConnectionFactory

async def main():
    connection = await ConnectionFactory(sys.argv[1]).create_connection()
    session = await connection.create_session()
    producer = await session.create_producer(Queue("alive"))
    child = os.fork()
    if child == 0:  # as a server that forks in a request: nothing of its parent's may be written, or waited for
        signal.alarm({bound})
        warnings.simplefilter("ignore")
        refused = 0
        for call in (producer.send(TextMessage("x")), session.create_temporary_queue(), connection.close()):
            try:
                call.send(None)
            except JMSException:
                refused += 1
        del connection, session, producer, call
        gc.collect()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    await producer.send(TextMessage("the parent goes on"))
    assert connection._engine.outages == 0
    await connection.close()

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_forked_in_a_running_loop_leaves_its_parents_connection_alone(both_broker: EmbeddedBroker) -> None:
    url = both_broker.namespace("forked").url
    program = AIO_FORK.replace("{bound}", str(int(BOUND)))
    done = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, timeout=2 * BOUND, check=False
    )
    assert done.returncode == 0, done.stderr


FORK = """
import os, signal, sys, threading
from sievemq import ConnectionFactory, JMSException, Queue

def started(work):
    threading.Thread(target=work, daemon=True).start()

def connection(url):
    found = ConnectionFactory(url, reconnect="forever", close_timeout=3_600_000, heartbeat=0).create_connection()
    found.start()
    return found

well, frozen = map(connection, sys.argv[1:])
full, work = Queue("full"), Queue("work")
running, go_on = threading.Event(), threading.Event()
session, transacted, requests, sender = (well.create_session(mode) for mode in (1, 0, 1, 1))
listening = session.create_consumer(work)
listening.set_message_listener(lambda message: (running.set(), go_on.wait()))
sender.create_producer(work).send(sender.create_text_message("one"))
running.wait()
receiving = requests.create_consumer(Queue("other"))
started(receiving.receive)
producer = transacted.create_producer(full)
for _ in range(3):
    producer.send(sender.create_text_message("more"))
started(transacted.commit)
while not (well.blocked and requests._control.receiving):
    pass
print("ready", flush=True)
sys.stdin.readline()
closing = frozen.create_session
started(frozen.close)
while not frozen._closing._lock.locked():
    pass

child = os.fork()
if child == 0:
    signal.alarm({bound})
    for end in (listening, receiving, producer, session, transacted, requests, well, frozen):
        end.close()
    try:
        well.start()
    except JMSException:
        sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
sender.create_producer(Queue("alive")).send(sender.create_text_message("the parent goes on"))
print("ends", flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_closes_what_threads_of_its_parent_were_using() -> None:
    """A listener that runs, a receive, a commit at a limit, a close that waits: as a server that forks may have."""
    with (
        EmbeddedBroker(settings={"destinations": RULES}) as broker,
        Relay(broker.port) as relay,
        ConnectionFactory(broker.url).create_context() as context,
    ):
        for text in ("a", "b"):
            context.create_producer().send(Queue("full"), text)
        process = subprocess.Popen(
            [sys.executable, "-c", FORK.replace("{bound}", str(int(BOUND))), broker.url, relay.url(broker.url)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            relay.stand()
            printed, _ = process.communicate("\n", timeout=2 * BOUND)
            assert (printed, process.returncode) == ("ends\n", 0)
        finally:
            process.kill()
            process.communicate()
        message = context.create_consumer(Queue("alive")).receive(60_000)
        assert message is not None
