"""The end of an application: what is in work has its time, and nothing else is waited for."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from queue import Empty, SimpleQueue
from typing import Any

import pytest

import sievemq.aio
from sievemq import IllegalStateException, JMSContext, Message, Queue
from sievemq.blocking import serving
from sievemq_testing import TestBroker, TestNamespace

from .conftest import SOON, World


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "sievemq")


async def test_prefetched_messages_go_back_uncounted(world: World, sievemq_context: JMSContext) -> None:
    begun, go_on = threading.Event(), threading.Event()
    app = world.app(prefetch=10)

    def take(message: Message) -> None:
        begun.set()
        assert go_on.wait(SOON)

    async def take_in_the_loop(message: Message) -> None:
        begun.set()
        await asyncio.to_thread(go_on.wait, SOON)

    app.listener("orders")(take_in_the_loop if world.awaits else take)
    for number in range(5):
        sievemq_context.create_producer().send(Queue("orders"), str(number))
    await world.call(app.start)
    await asyncio.to_thread(begun.wait, SOON)
    stopping = asyncio.ensure_future(world.call(app.stop))
    while app.healthy:  # noqa: ASYNC110 - a thread may change it
        await asyncio.sleep(0)
    go_on.set()
    await stopping
    left = world.namespace.queue("orders").messages()
    assert [(each.get_body(str), each.get_jms_redelivered()) for each in left] == [
        (str(number), False) for number in range(1, 5)
    ]


@pytest.mark.parametrize("transacted", [False, True])
async def test_a_listener_that_hangs_is_given_up(world: World, sievemq_context: JMSContext, transacted: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()
    app = world.app(stop_timeout=20)

    def take(message: Message) -> None:
        begun.set()
        assert go_on.wait(SOON)

    async def take_in_the_loop(message: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    app.listener("orders", transacted=transacted)(take_in_the_loop if world.awaits else take)
    sievemq_context.create_producer().send(Queue("orders"), "a chair")
    await world.call(app.start)
    await asyncio.to_thread(begun.wait, SOON)
    await world.call(app.stop)
    (left,) = world.namespace.queue("orders").messages()
    go_on.set()
    assert left.get_jms_redelivered()


async def test_only_a_second_signal_hurries_the_end(world: World) -> None:
    """That the broker ends a second consumer, or the connection after that, does not."""
    app = world.app()

    @app.listener("orders", concurrency=2)
    def take(message: Message) -> None:
        """Nothing comes."""

    def hurried() -> bool:
        ending = app._running.ending
        return bool(ending._hurried.is_set() if world.awaits else ending.hurried)

    async with world.running(app):
        await world.delete("queue:orders")
        await world.until_ending(app)
        for _ in range(2):
            app._running._heard(app._failure)
        assert not hurried()
        app._told()
        assert not hurried()
        app._told()
        assert hurried()


async def test_a_listener_that_waits_for_a_lost_broker_is_not_awaited(world: World, own_broker: TestBroker) -> None:
    world.namespace = own_broker.namespace("default")
    app, begun, go_on = world.app(stop_timeout=10 * SOON * 1000), threading.Event(), threading.Event()

    def take(message: Message) -> None:
        begun.set()
        assert go_on.wait(SOON)

    async def take_in_the_loop(message: Message) -> None:
        begun.set()
        await asyncio.to_thread(go_on.wait, SOON)

    app.listener("orders", transacted=True)(take_in_the_loop if world.awaits else take)
    await world.call(app.start)
    with sievemq.ConnectionFactory(own_broker.url).create_context() as context:
        context.create_producer().send(Queue("orders"), "a chair")
    await asyncio.to_thread(begun.wait, SOON)
    await asyncio.to_thread(own_broker.stop)
    stopping = asyncio.ensure_future(world.call(app.stop))
    go_on.set()
    await asyncio.wait_for(stopping, SOON)
    assert not app.healthy


async def test_stop_ends_a_run_in_another_thread(world: World) -> None:
    app = world.app()

    @app.listener("orders")
    def take(message: Message) -> None:
        """Nothing comes."""

    running = asyncio.ensure_future(asyncio.to_thread(app.run))
    while not app.healthy:  # noqa: ASYNC110 - a thread changes it
        await asyncio.sleep(0)
    if world.awaits:
        asyncio.run_coroutine_threadsafe(app.stop(), app._running.context._connection._transport.loop)
    else:
        await asyncio.to_thread(app.stop)
    await asyncio.wait_for(running, SOON)


def test_the_end_is_awaited_in_short_waits_where_a_signal_ends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waits(SimpleQueue[None]):
        def get(self, block: bool = True, timeout: float | None = None) -> None:
            assert timeout == 0.001
            try:
                super().get(block, timeout)
            except Empty:
                ending.tell()  # as a handler of signals between two waits
                raise

    monkeypatch.setattr(serving, "_WAIT", 0.001)
    monkeypatch.setattr(serving, "SimpleQueue", Waits)
    ending = serving.Ending()
    ending.wait()


async def test_a_listener_cannot_stop_its_application(world: World, sievemq_context: JMSContext) -> None:
    app, raised = world.app(), threading.Event()

    def take(message: Message) -> None:
        with pytest.raises(IllegalStateException):
            app.stop()
        raised.set()

    async def take_in_the_loop(message: Message) -> None:
        with pytest.raises(IllegalStateException):
            await app.stop()
        raised.set()

    app.listener("orders")(take_in_the_loop if world.awaits else take)
    async with world.running(app):
        sievemq_context.create_producer().send(Queue("orders"), "a chair")
        await world.consumed()
    assert raised.is_set()


async def test_an_application_starts_again(world: World, sievemq_context: JMSContext) -> None:
    app = world.app()

    @app.listener("orders")
    def take(message: Message) -> None: ...

    for count in (1, 2):
        async with world.running(app):
            with pytest.raises(RuntimeError, match="started already"):
                await world.call(app.start)
            with pytest.raises(RuntimeError, match="registered before"):
                app.listener("others")
            sievemq_context.create_producer().send(Queue("orders"), "a chair")
            await world.consumed(count=count)
        await world.call(app.stop)


async def test_a_refused_start_leaves_nothing_open(world: World, sievemq_faults: Any) -> None:
    app = world.app()

    @app.listener("orders", concurrency=2)
    def take(message: Message) -> None: ...

    sievemq_faults.refuse("open_consumer", times=1, error="SECURITY")
    with pytest.raises(sievemq.JMSSecurityException):
        await world.call(app.start)
    assert not app.healthy
    assert not world.namespace.connections


async def test_a_cancelled_start_leaves_nothing_open(sievemq_namespace: TestNamespace, sievemq_faults: Any) -> None:
    app = sievemq.aio.Listeners(sievemq_namespace.url)

    @app.listener("orders")
    async def take(message: Message) -> None: ...

    with sievemq_faults.hold():
        starting = asyncio.ensure_future(app.start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting


async def test_a_cancelled_stop_is_carried_out(sievemq_namespace: TestNamespace, sievemq_context: JMSContext) -> None:
    app, begun, go_on = sievemq.aio.Listeners(sievemq_namespace.url), asyncio.Event(), asyncio.Event()

    @app.listener("orders")
    async def take(message: Message) -> None:
        begun.set()
        await go_on.wait()

    sievemq_context.create_producer().send(Queue("orders"), "a chair")
    await app.start()
    await begun.wait()
    stopping = asyncio.ensure_future(app.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    go_on.set()
    await app.stop()
    assert not app.healthy
    sievemq_namespace.queue("orders").assert_consumed(count=1)
    async with app:
        assert app.healthy


async def test_the_broker_goes_and_comes(world: World, own_broker: TestBroker) -> None:
    """With the broker away an application waits, and goes on when it is back."""
    world.namespace = own_broker.namespace("default")
    app, called = world.app(reconnect_delay=1, reconnect_max_delay=1), threading.Event()

    @app.listener("orders")
    def take(message: Message) -> None:
        called.set()

    async with world.running(app):
        await asyncio.to_thread(own_broker.restart)
        with sievemq.ConnectionFactory(own_broker.url).create_context() as context:
            context.create_producer().send(Queue("orders"), "a chair")
        assert await asyncio.to_thread(called.wait, SOON)


# -- signals ----------------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, signal, sys, threading
from sievemq{module} import Listeners, Message
set_handler = signal.signal
def shown(number, handler):
    def show(*arguments):
        print("signal", flush=True)
        handler(*arguments)
    before = set_handler(number, show if callable(handler) else handler)
    if number == signal.SIGTERM:
        print("ready", flush=True)
    return before
signal.signal = shown
app = Listeners(sys.argv[1], stop_timeout={stop_timeout}, reconnect_delay=1)
@app.listener("orders")
{prefix}def take(message: Message) -> None:
    print("begun", flush=True)
    {work}
    print("done", flush=True)
app.run()
print("ended", flush=True)
"""


def start(url: str, awaits: bool, work: str, stop_timeout: int = 60_000) -> subprocess.Popen[str]:
    program = PROGRAM.format(
        module=".aio" if awaits else "",
        prefix="async " if awaits else "",
        work=work,
        stop_timeout=stop_timeout,
    )
    return subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True)


def expect(process: subprocess.Popen[str], *lines: str) -> None:
    assert process.stdout is not None
    for line in lines:
        assert process.stdout.readline().strip() == line


@pytest.fixture(params=["blocking", "aio"])
def awaits(request: pytest.FixtureRequest) -> bool:
    return request.param == "aio"


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGTERM")
def test_sigterm_lets_work_finish_and_a_second_one_does_not(
    awaits: bool, sievemq_url: str, sievemq_context: JMSContext, sievemq_namespace: TestNamespace
) -> None:
    work = "await asyncio.Event().wait()" if awaits else "threading.Event().wait()"
    with start(sievemq_url, awaits, work) as process:
        sievemq_context.create_producer().send(Queue("orders"), "a chair")
        expect(process, "ready", "begun")
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            expect(process, "signal")
        expect(process, "ready", "ended")
    assert process.returncode == 0
    assert sievemq_namespace.queue("orders").depth == 1


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGTERM")
def test_sigterm_while_the_broker_is_away(awaits: bool) -> None:
    with start("sievemq://127.0.0.1:1", awaits, "pass") as process:
        expect(process, "ready")
        process.send_signal(signal.SIGTERM)
        expect(process, "signal", "ready", "ended")
    assert process.returncode == 0
