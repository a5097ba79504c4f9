"""Opening and closing with asyncio: cancellation leaves nothing behind, one loop, no thread, TLS, broken peers."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sievemq import (
    IllegalStateException,
    IllegalStateRuntimeException,
    JMSException,
    Message,
    Queue,
    TextMessage,
    Topic,
)
from sievemq.aio import Connection, ConnectionFactory, JMSContext, MessageConsumer, MessageProducer, Session
from sievemq_broker import EmbeddedBroker
from sievemq_core.wire.commands import Command

from ..both import SOON, text
from .scripted import ScriptedBroker, connected, scripted, until


async def cancelled(coroutine: Coroutine[Any, Any, Any], ready: Coroutine[Any, Any, Any]) -> None:
    """Start it, wait for `ready`, cancel it."""
    task = asyncio.create_task(coroutine)
    await ready
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


OPENINGS: list[Any] = [
    pytest.param(lambda s: s.create_consumer(Queue("q")), Command.OPEN_CONSUMER, Command.CLOSE_CONSUMER, id="consumer"),
    pytest.param(
        lambda s: s.create_shared_consumer(Topic("t"), "s"), Command.OPEN_CONSUMER, Command.CLOSE_CONSUMER, id="shared"
    ),
    pytest.param(lambda s: s._connection.create_session(), Command.OPEN_SESSION, Command.CLOSE_SESSION, id="session"),
    pytest.param(
        lambda s: s.create_temporary_queue(), Command.CREATE_TEMPORARY, Command.DELETE_TEMPORARY, id="temporary"
    ),
]


@pytest.mark.parametrize(("opening", "command", "undone"), OPENINGS)
async def test_a_cancelled_create_leaves_nothing_behind(
    linked: Connection, broker: ScriptedBroker, opening: Callable[[Session], Any], command: int, undone: int
) -> None:
    session = await linked.create_session()
    before = broker.count(command)
    broker.silent.add(command)
    await cancelled(opening(session), broker.until(command, before + 1))
    assert broker.count(undone) == 0
    answer = "temporary-queue:c1.1" if command == Command.CREATE_TEMPORARY else None
    broker.say(Command.OK, (await broker.until(command, before + 1))[1], answer)
    await broker.until(undone)
    assert session._engine.consumers == {}


async def test_a_cancelled_connect_leaves_no_socket() -> None:
    async with scripted(mute=True) as broker:
        task = asyncio.create_task(ConnectionFactory(broker.url).create_context())
        await until(lambda: broker.chunks > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: broker.transport.is_closing())


async def test_a_cancelled_close_is_carried_out(
    connection: Connection, session: Session, consumer: MessageConsumer, producer: MessageProducer
) -> None:
    running, go = asyncio.Event(), asyncio.Event()
    handled: list[str | None] = []

    async def on_message(message: Message) -> None:
        running.set()
        await go.wait()
        handled.append(text(message))

    consumer.set_message_listener(on_message)
    await producer.send(TextMessage("one"))
    await cancelled(session.close(), running.wait())
    await cancelled(connection.close(), asyncio.sleep(0))
    assert not connection._engine.closed
    go.set()
    await connection.close()
    assert handled == ["one"]
    assert connection._engine.closed


async def test_clo_01_closing_twice_and_together(connection: Connection, session: Session) -> None:
    consumer = await session.create_consumer(Queue("q"))
    await asyncio.gather(consumer.close(), consumer.close(), session.close(), connection.close(), connection.close())
    for closed in (consumer, session, connection):
        await closed.close()


async def test_thr_06_another_loop_is_refused(connection: Connection, session: Session, queue: Queue) -> None:
    consumer, producer = await session.create_consumer(queue), await session.create_producer(queue)
    calls: list[Callable[[], Any]] = [
        connection.create_session,
        connection.start,
        connection.stop,
        connection.close,
        session.recover,
        session.close,
        consumer.receive,
        consumer.receive_no_wait,
        consumer.close,
        lambda: session.create_consumer(queue),
        lambda: producer.send(TextMessage("x")),
    ]
    refused: list[str] = []

    def elsewhere() -> None:
        for call in calls:
            try:
                asyncio.run(call())
            except IllegalStateException as error:
                refused.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await until(lambda: not thread.is_alive())
    assert len(refused) == len(calls)
    assert all("another event loop" in reason for reason in refused)
    assert await consumer.receive_no_wait() is None  # nothing was sent, nothing is broken


async def test_no_thread_is_started(url: str) -> None:
    before = threading.active_count()
    async with await ConnectionFactory(url).create_context() as context:
        consumer = await context.create_consumer(Queue("q"))
        consumer.set_message_listener(lambda message: None)
        await context.create_producer().send(Queue("q"), "x")
        assert threading.active_count() == before


async def test_no_task_is_left(url: str) -> None:
    async with await ConnectionFactory(url).create_context() as context:
        consumer = await context.create_consumer(Queue("q"))
        consumer.set_message_listener(lambda message: None)
        producer = context.create_producer().set_async((lambda message: None, lambda message, error: None))
        for _ in range(10):
            await producer.send(Queue("q"), "x")
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if "sievemq" in task.get_name()] == []


# -- both kinds of loop -----------------------------------------------------------------------------------------------


def test_uvloop(both_broker: EmbeddedBroker) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def story() -> list[str | None]:
        async with await ConnectionFactory(both_broker.namespace("uvloop").url).create_context() as context:
            queue = context.create_queue("q")
            consumer = await context.create_consumer(queue)
            producer = context.create_producer().set_delivery_mode(1)
            for number in range(1_000):
                await producer.send(queue, str(number))
            assert await (await context.create_consumer(context.create_queue("other"))).receive(1) is None
            return [text(await consumer.receive(SOON)) for _ in range(1_000)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(story()) == [str(number) for number in range(1_000)]


# -- peers that do not behave -----------------------------------------------------------------------------------------


async def test_hosts_are_tried_in_order(url: str) -> None:
    tail = url.removeprefix("sievemq://")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        port = nobody.getsockname()[1]
        connection = await ConnectionFactory(f"sievemq://127.0.0.1:{port},{tail}").create_connection()
        await connection.close()
        with pytest.raises(JMSException, match=f"127.0.0.1:{port}") as failure:
            await ConnectionFactory(f"sievemq://127.0.0.1:{port}", reconnect=0).create_connection()
    assert failure.value.get_error_code() == "CONNECTION_FAILED"
    assert isinstance(failure.value.get_linked_exception(), OSError)


async def test_a_peer_that_says_nothing() -> None:
    async with scripted(mute=True) as broker:
        with pytest.raises(JMSException, match="says nothing"):
            await ConnectionFactory(broker.url, connect_timeout=1_000, reconnect=0).create_connection()


async def test_a_request_without_an_answer() -> None:
    async with scripted() as broker:
        broker.silent.add(Command.OPEN_SESSION)
        connection = await ConnectionFactory(broker.url, request_timeout=500).create_connection()
        with pytest.raises(JMSException, match="request_timeout") as failure:
            await connection.create_session()
        assert failure.value.get_error_code() == "TIMEOUT"
        await connection.close()


async def test_each_of_many_requests_has_its_own_time() -> None:
    async with scripted() as broker:
        connection = await ConnectionFactory(broker.url, request_timeout=1_500).create_connection()
        session = await connection.create_session()
        broker.silent.add(Command.DECLARE)
        asked = [asyncio.create_task(session.create_producer(Queue(f"q{number}"))) for number in range(3)]
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(outcome, JMSException)
            assert outcome.get_error_code() == "TIMEOUT"
        broker.silent.clear()
        await session.create_producer(Queue("q"))  # the time of those before does not end it
        await connection.close()


async def test_con_08_calls_while_a_context_opens_count() -> None:
    async with scripted() as broker:
        connection = await ConnectionFactory(broker.url, reconnect=0).create_connection()
        first = await JMSContext._open(connection, Session.AUTO_ACKNOWLEDGE)
        broker.silent.add(Command.OPEN_SESSION)
        opening = asyncio.create_task(first.create_context(Session.AUTO_ACKNOWLEDGE))
        request = (await broker.until(Command.OPEN_SESSION, 2))[1]
        first.create_producer()  # with that it is too late for a client id
        broker.say(Command.OK, request, None)
        await opening
        with pytest.raises(IllegalStateRuntimeException):
            await first.set_client_id("late")
        await connection.close()


async def test_a_cancelled_request_is_undone_when_its_answer_arrives() -> None:
    async with scripted() as broker:
        broker.silent.add(Command.OPEN_CONSUMER)
        connection = await ConnectionFactory(broker.url, request_timeout=1_500).create_connection()
        session = await connection.create_session()
        task = asyncio.create_task(session.create_consumer(Queue("q")))
        await asyncio.sleep(0)  # it is polled, and no timer can have fired
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        opening = await broker.until(Command.OPEN_CONSUMER)
        with pytest.raises(JMSException, match="request_timeout"):  # asked later, so the time of the first is over
            await session.create_consumer(Queue("q"))
        connection._transport._patience = 0
        broker.say(Command.OK, opening[1], None)
        assert (await broker.until(Command.CLOSE_CONSUMER))[2] == opening[3]
        await connection.close()


async def test_heartbeats_are_sent_and_missed() -> None:
    async with scripted(heartbeat=500) as broker:
        lost = asyncio.Event()
        connection = await connected(broker, heartbeat=500)
        connection.set_exception_listener(lambda error: lost.set())
        await broker.until(Command.HEARTBEAT)
        await asyncio.wait_for(lost.wait(), 60)  # the scripted broker never says anything by itself
        with pytest.raises(JMSException, match="silent"):
            await connection.create_session()
        await connection.close()


async def test_garbage_loses_the_connection(linked: Connection, broker: ScriptedBroker) -> None:
    lost = asyncio.Event()
    linked.set_exception_listener(lambda error: lost.set())
    broker.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await asyncio.wait_for(lost.wait(), 60)
    with pytest.raises(JMSException):
        await linked.create_session()


async def test_eof_loses_the_connection(linked: Connection, broker: ScriptedBroker) -> None:
    lost = asyncio.Event()
    linked.set_exception_listener(lambda error: lost.set())
    broker.transport.close()
    await asyncio.wait_for(lost.wait(), 60)
    with pytest.raises(JMSException):
        linked.get_client_id()


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def identity(tmp_path: Path) -> tuple[str, str]:
    """Key and certificate of a server, self-signed."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate]
    name = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    name += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    subprocess.run(["openssl", "req", "-x509", *new, *name], check=True, capture_output=True)
    return key, certificate


async def test_tls(identity: tuple[str, str], tmp_path: Path) -> None:
    key, certificate = identity
    async with EmbeddedBroker(settings={"tls_cert": certificate, "tls_key": key}) as broker:
        async with await ConnectionFactory(broker.url, tls_ca=certificate).create_context() as context:
            queue = context.create_queue("q")
            await context.create_producer().send(queue, b"x" * 1_000_000)
            body = await (await context.create_consumer(queue)).receive_body(bytes, SOON)
            assert body == b"x" * 1_000_000
        with pytest.raises(JMSException, match="TLS"):
            await ConnectionFactory(broker.url).create_connection()
        async with await ConnectionFactory(broker.url, tls_verify=False).create_connection():
            pass
        with pytest.raises(JMSException, match="TLS cannot be set up"):
            await ConnectionFactory(broker.url, tls_ca=str(tmp_path / "none.pem")).create_connection()
