"""What comes from outside at any moment: signal handlers that raise, fork, the end of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from sievemq import ConnectionFactory, DeliveryMode, JMSContext, JMSRuntimeException, TextMessage
from sievemq.blocking.repair import Attempt
from sievemq.blocking.transport import Transport
from sievemq_broker import EmbeddedBroker

from .helpers import SOON


class Once:
    """Raises KeyboardInterrupt after the first call of one method, as a signal does: what was called is done."""

    interrupted = False

    def _interrupt(self) -> None:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt


class InterruptedAppend(Once, deque[Any]):
    def append(self, item: Any) -> None:
        super().append(item)
        self._interrupt()


class InterruptedPop(Once, deque[Any]):
    def popleft(self) -> Any:
        item = super().popleft()
        self._interrupt()
        return item


def bodies(context: JMSContext, count: int) -> list[str | None]:
    consumer = context.create_consumer(context.create_queue("q"))
    return [consumer.receive_body(str, SOON) for _ in range(count)]


@pytest.mark.parametrize("place", ["unconfirmed", "waiting", "queue"])
@pytest.mark.parametrize("mode", [DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT])
def test_a_send_that_is_interrupted_loses_the_connection_and_nothing_confirmed(url: str, place: str, mode: int) -> None:
    with ConnectionFactory(url).create_context() as context:
        producer, queue = context.create_producer().set_delivery_mode(mode), context.create_queue("q")
        session = context._session._engine
        owner = session.outbox if place == "queue" else session.sends
        producer.send(queue, "before")
        setattr(owner, place, interrupting := InterruptedAppend(getattr(owner, place)))
        if place == "waiting" and mode == DeliveryMode.NON_PERSISTENT:
            producer.send(queue, "first")  # nothing waits for it
        else:
            with pytest.raises(KeyboardInterrupt):
                producer.send(queue, "first")
            assert interrupting.interrupted
            assert context._connection._engine.outages == 1
        producer.send(queue, "second")
        producer.send(queue, "third")
        # Whether the one that was interrupted was sent is open. It was counted wholly or not at all: so it comes once.
        counted = ["first"] if place != "waiting" or mode == DeliveryMode.NON_PERSISTENT else []
        sent = ["before", *counted, "second", "third"]
        assert bodies(context, len(sent)) == sent


def test_an_interrupt_before_a_send_counts_leaves_the_connection_alone(url: str) -> None:
    class Interrupting(TextMessage):
        def _encode_body(self) -> bytes | None:
            raise KeyboardInterrupt

    with ConnectionFactory(url).create_context() as context:
        producer, queue = context.create_producer(), context.create_queue("q")
        with pytest.raises(KeyboardInterrupt):
            producer.send(queue, Interrupting("first"))
        producer.send(queue, "second")
        assert bodies(context, 1) == ["second"]
        assert context._connection._engine.outages == 0


def test_an_interrupted_request_loses_the_connection(url: str) -> None:
    with ConnectionFactory(url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        producer, queue = context.create_producer(), context.create_queue("q")
        producer.send(queue, "first")
        connection = context._connection._engine
        connection.outbox.queue = InterruptedAppend(connection.outbox.queue)
        with pytest.raises(KeyboardInterrupt):
            context.rollback()
        assert connection.outages == 1
        context.rollback()
        producer.send(queue, "second")
        context.commit()
        assert bodies(context, 1) == ["second"]


class InterruptedModify:
    """A selector whose modify() is interrupted once in the main thread: Python's then forgets the socket."""

    def __init__(self, selector: Any) -> None:
        self._selector = selector
        self.interrupted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)

    def modify(self, sock: Any, events: int) -> None:
        self._selector.modify(sock, events)
        if not self.interrupted and threading.current_thread() is threading.main_thread():
            self.interrupted = True
            self._selector._fd_to_key.pop(sock.fileno())
            raise KeyboardInterrupt


@pytest.mark.parametrize("reconnect", [0, SOON])
def test_an_interrupt_inside_the_selector_loses_the_connection(url: str, reconnect: int) -> None:
    with ConnectionFactory(url, reconnect=reconnect).create_context() as context:
        producer, queue = context.create_producer(), context.create_queue("q")
        consumer = context.create_consumer(queue)
        transport = context._connection._transport
        selector = transport._selector = InterruptedModify(transport._selector)
        with pytest.raises(KeyboardInterrupt):
            while True:  # until this thread begins to read in the place of the I/O thread
                producer.send(queue, "before")
                assert consumer.receive(SOON) is not None
        assert selector.interrupted
        if reconnect:
            producer.send(queue, "after")
            while consumer.receive_body(str, SOON) != "after":
                pass
            assert context._connection._engine.outages == 1
        else:
            with pytest.raises(JMSRuntimeException, match="the connection to the broker is lost"):
                producer.send(queue, "after")
                consumer.receive_body(str, SOON)


def test_output_interrupted_half_way_is_repeated_on_another_connection(url: str) -> None:
    with ConnectionFactory(url).create_context() as context:
        producer, queue = context.create_producer(), context.create_queue("q")
        context._session._engine.outbox.queue = InterruptedPop()
        with pytest.raises(KeyboardInterrupt):
            producer.send(queue, "first")
        producer.send(queue, "second")
        assert bodies(context, 2) == ["first", "second"]
        assert context._connection._engine.outages == 1


def test_output_that_was_interrupted_half_way_loses_a_connection_that_is_not_repaired(url: str) -> None:
    with ConnectionFactory(url, reconnect=0).create_context() as context:
        producer, queue = context.create_producer(), context.create_queue("q")
        context._session._engine.outbox.queue = InterruptedPop()
        with pytest.raises(KeyboardInterrupt):
            producer.send(queue, "first")
        with pytest.raises(JMSRuntimeException, match="KeyboardInterrupt broke into it"):
            producer.send(queue, "second")


@pytest.mark.parametrize("found", [True, False])
def test_a_signal_ends_connecting_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, found: bool) -> None:
    step = Attempt.step

    def interrupted(attempt: Attempt) -> float | None:
        seconds = step(attempt)
        if not found or seconds is None:
            raise KeyboardInterrupt
        return seconds

    with EmbeddedBroker() as broker, monkeypatch.context() as patch:
        patch.setattr(Attempt, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ConnectionFactory(broker.url, reconnect="forever").create_connection()
        until(lambda: not any(thread.name == "sievemq-reconnect" for thread in threading.enumerate()))
        until(lambda: not broker.server.shard.services.connections)


def test_a_signal_ends_an_opening_and_closes_its_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(transport: Transport) -> None:
        raise KeyboardInterrupt

    with EmbeddedBroker() as broker, monkeypatch.context() as patch:
        patch.setattr(Transport, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ConnectionFactory(broker.url).create_connection()
        until(lambda: not broker.server.shard.services.connections)


def until(condition: Callable[[], bool]) -> None:
    """Return once a thread has made it so."""
    waiting = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        waiting.wait(0.01)
    pytest.fail("it has not become so")


def run(program: str, url: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


FORK = """
import os, sys
from sievemq import ConnectionFactory, JMSRuntimeException

context = ConnectionFactory(sys.argv[1]).create_context()
queue = context.create_queue("q")
consumer, producer = context.create_consumer(queue), context.create_producer()
child = os.fork()
if child == 0:
    for use in (lambda: producer.send(queue, "child"), lambda: consumer.receive(), context.create_temporary_queue):
        try:
            use()
        except JMSRuntimeException as error:
            print(error, flush=True)
    context.close()
    with ConnectionFactory(sys.argv[1]).create_context() as own:
        own.create_producer().send(queue, "the child's own")
    os._exit(0)
print(os.waitpid(child, 0)[1])
producer.send(queue, "parent")
print(consumer.receive_body(str, 60_000))
print(consumer.receive_body(str, 60_000))
context.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_cannot_use_its_parents_connection(url: str) -> None:
    said, _ = run(FORK, url)
    *refusals, status, first, second = said.splitlines()
    assert len(refusals) == 3
    assert all("the process that this one was forked from; make a new one here" in line for line in refusals)
    assert (status, first, second) == ("0", "the child's own", "parent")


LATE = """
import sys
from sievemq import ConnectionFactory

context = ConnectionFactory(sys.argv[1]).create_context()
queue, producer = context.create_queue("q"), context.create_producer()

class Late:
    def __del__(self):
        producer.send(queue, "too late")

late = Late()
late.itself = late
"""


def test_a_send_while_the_interpreter_ends_does_not_hang(url: str) -> None:
    _, complaint = run(LATE, url)
    assert "the interpreter is shutting down" in complaint


def test_a_send_does_not_wait_for_a_thread_that_the_interpreter_has_stopped(url: str) -> None:
    """It stopped while it held the lock, which is never released."""
    _, complaint = run(LATE + "context._connection._transport.lock.acquire()", url)
    assert "the interpreter is shutting down" in complaint
