"""The transport: TLS, a broker that does not read for a while, what is written when."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sievemq import ConnectionFactory, DeliveryMode, JMSException, Queue, TextMessage
from sievemq._engine import ClientConnection, EngineOptions
from sievemq.blocking.transport import CAN_LEAD, Transport, wall_clock
from sievemq_broker import EmbeddedBroker
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

from .helpers import SOON, Background, Collector, receive_text, texts

# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(certificates: Path) -> Iterator[EmbeddedBroker]:
    settings = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


def test_tls_in_both_directions_at_once(secure: EmbeddedBroker, certificates: Path) -> None:
    factory = ConnectionFactory(secure.url, tls_ca=str(certificates / "ca.pem"))
    with factory.create_connection() as connection:
        connection.start()
        session, listener = connection.create_session(), Collector()
        session.create_consumer(Queue("fast")).set_message_listener(listener)
        sending = connection.create_session()
        producer, large = sending.create_producer(Queue("fast")), sending.create_producer(Queue("large"))
        body = "x" * (3 * 1024 * 1024)
        for number in range(2_000):
            producer.send(TextMessage(str(number)), delivery_mode=DeliveryMode.NON_PERSISTENT)
            if number % 500 == 0:
                large.send(TextMessage(body), delivery_mode=DeliveryMode.NON_PERSISTENT)
        consumer = sending.create_consumer(Queue("large"))
        assert texts(consumer, 4) == [body] * 4
        listener.wait(2_000)
        assert listener.texts == [str(number) for number in range(2_000)]


def test_tls_certificates_are_checked(secure: EmbeddedBroker) -> None:
    with pytest.raises(JMSException, match="TLS"):
        ConnectionFactory(secure.url).create_connection()
    ConnectionFactory(secure.url, tls_verify=False).create_connection().close()


def test_tls_files_that_are_missing(secure: EmbeddedBroker) -> None:
    with pytest.raises(JMSException, match=r"nowhere\.pem"):
        ConnectionFactory(secure.url, tls_ca="nowhere.pem").create_connection()


def test_tls_to_a_port_without_tls(url: str) -> None:
    with pytest.raises(JMSException, match="TLS"):
        ConnectionFactory(url.replace("sievemq://", "sievemqs://"), reconnect=0).create_connection()


def test_tls_client_certificate(certificates: Path) -> None:
    settings = {
        "tls_cert": str(certificates / "server.pem"),
        "tls_key": str(certificates / "server.key"),
        "tls_client_ca": str(certificates / "ca.pem"),
    }
    with EmbeddedBroker(settings=settings) as broker:
        factory = ConnectionFactory(
            broker.url,
            tls_ca=str(certificates / "ca.pem"),
            tls_cert=str(certificates / "client.pem"),
            tls_key=str(certificates / "client.key"),
        )
        with factory.create_context() as context:
            context.create_producer().send(Queue("q"), "x")
            assert receive_text(context.create_consumer(Queue("q"))) == "x"


# -- a broker's end under the test's control --------------------------------------------------------------------------


class Peer:
    """The broker's end of one connection, which reads only on request.

    Args:
        io_thread: the client's end has one.
    """

    def __init__(self, *, io_thread: bool = True) -> None:
        ours, self._socket = socket.socketpair()
        self._socket.settimeout(SOON / 1000)
        self.wire = WireConnection("broker")
        self.engine = ClientConnection(EngineOptions(heartbeat=0), wall_clock)
        self.transport = Transport(self.engine, ours)
        handshake = self.engine.hello()
        self.wire.receive_data(handshake.data_to_send())
        self.wire.send(Command.WELCOME, 1, "test", "i", "c1", 0, {}, {})
        handshake.receive_data(self.wire.data_to_send())
        self.engine.welcomed(handshake)
        if io_thread:
            self.transport.start()

    def say(self, *command: object) -> None:
        self.wire.send(*command)
        self._socket.sendall(self.wire.data_to_send())

    def read(self) -> list[tuple[object, ...]]:
        """Commands that have arrived; waits for the first."""
        commands: list[tuple[object, ...]] = []
        while not commands:
            data = self._socket.recv(1 << 20)
            assert data
            commands += self.wire.receive_data(data)
        return commands

    def close(self) -> None:
        self.transport.discard()
        self._socket.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def test_a_broker_that_does_not_read_for_a_while(peer: Peer) -> None:
    """More than the socket takes: no call blocks, and everything arrives in order once the broker reads again."""
    for number in range(200):
        with peer.transport.lock:
            peer.engine.outbox.append((Command.ACKNOWLEDGE, number, 1, 0))
            packed = b"\x94\x19" + b"\xce" + number.to_bytes(4, "big") + b"\x02\x00"
            peer.engine.outbox.put(packed, len(packed))
            peer.engine.outbox.append((Command.RELEASE, number, tuple(range(10_000))))
            peer.transport.write()
    received: list[tuple[object, ...]] = []
    while len(received) < 600:
        received += peer.read()
    assert [command[1] for command in received[::3]] == list(range(200))


def test_queued_output_is_written_soon(peer: Peer) -> None:
    """The I/O thread writes it, be it asleep or not: nobody else does."""
    for _ in range(3):
        with peer.transport.lock:
            peer.engine.outbox.append((Command.ACKNOWLEDGE, 1, 1, 0))
        peer.transport.nudge()
        assert peer.read() == [(Command.ACKNOWLEDGE, 1, 1, 0)]


@pytest.mark.parametrize(
    ("due", "size", "written"),
    [(False, 100, False), (True, 100, True), (False, 64 * 1024 - 1, False), (False, 64 * 1024, True)],
)
def test_a_sender_writes_when_its_connection_is_idle_or_much_has_gathered(
    peer: Peer, due: bool, size: int, written: bool
) -> None:
    transport, outbox = peer.transport, peer.engine.outbox
    packed = b"\x94\x19\x01\x01\x00"
    with transport.lock:
        transport._pace.due, transport._pace.written = time.monotonic() if due else math.inf, math.inf
    outbox.put(packed, size)  # the I/O thread leaves it alone unless it is due
    transport.queued()
    assert (not outbox.queue) is written


def test_sends_of_other_threads_during_a_write_are_written_behind_it(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not wait for it: the writing thread takes them along."""
    transport, outbox, push = peer.transport, peer.engine.outbox, peer.transport._push
    sent: list[bool] = []

    def slow_push(_: Transport) -> None:
        if not sent:
            outbox.put(b"\x94\x19\x02\x01\x00", 5)
            transport.queued()  # of another thread: it would wait for the lock for ever
            sent.append(True)
        push()

    monkeypatch.setattr(Transport, "_push", slow_push)
    outbox.put(b"\x94\x19\x01\x01\x00", 5)
    transport.queued()
    assert not outbox.queue
    assert [command[1] for command in peer.read()] == [1, 2]


def test_no_send_of_several_threads_is_left_unwritten(peer: Peer) -> None:
    """Be the I/O thread asleep, at rest or writing: each thread stops at times until its last send has arrived."""
    threads, rounds = 3, 60
    arrived = [threading.Semaphore(0) for _ in range(threads)]

    def read() -> None:
        left = [rounds * (rounds + 1) // 2] * threads
        while any(left):
            for command in peer.read():
                number = command[1]
                assert isinstance(number, int)
                arrived[number].release()
                left[number] -= 1

    def send(number: int) -> None:
        for count in range(1, rounds + 1):
            for _ in range(count):
                peer.engine.outbox.put(b"\x94\x19" + bytes([number]) + b"\x01\x00", 5)
                peer.transport.queued()
            for _ in range(count):
                assert arrived[number].acquire(timeout=SOON / 1000)

    reading, *sending = Background(read), *[Background(lambda n=n: send(n)) for n in range(threads)]  # type: ignore[misc]
    for each in (*sending, reading):
        each.result()


def test_a_send_is_written_whose_thread_found_the_io_thread_awake_just_before_it_slept(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, lock, unseen = peer.transport, peer.transport.lock, threading.Event()

    class Lock:
        """The transport's lock; a send is queued in the moment in which the I/O thread is about to sleep."""

        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()
            if transport.asleep and threading.current_thread() is transport._thread and not unseen.is_set():
                unseen.set()
                peer.engine.outbox.put(b"\x94\x19\x01\x01\x00", 5)

    with monkeypatch.context() as patch:
        patch.setattr(transport, "lock", Lock())
        transport.wake()
        assert peer.read() == [(Command.ACKNOWLEDGE, 1, 1, 0)]
    assert unseen.is_set()


@pytest.mark.parametrize(("seconds", "written"), [(0.001, False), (0.003, True)])
def test_an_acknowledgement_alone_waits_for_a_reply_to_leave_with(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, seconds: float, written: bool
) -> None:
    """Even where a send would be written at once: a round trip has one write at each end."""
    transport, flushed = peer.transport, []
    with monkeypatch.context() as patch:
        patch.setattr(Transport, "flush", lambda _: flushed.append(True))
        patch.setattr("sievemq.blocking.transport.time", SimpleNamespace(monotonic=lambda: seconds))
        transport._pace.due = transport._pace.written = 0.0
        transport.nudge()
    assert bool(flushed) is written


@pytest.mark.parametrize("due", [-math.inf, math.inf])
def test_the_close_of_a_consumer_is_written_with_the_next_request(due: float) -> None:
    """Whether a send would be written at once or wake the I/O thread: a consumer for each receive costs one write."""
    peer = Peer(io_thread=False)
    transport, engine = peer.transport, peer.engine
    try:
        transport.rests, transport._pace.due = True, due
        with transport.lock:
            engine.outbox.append((Command.CLOSE_CONSUMER, 0, 1, 0))
        transport.flush_later()
        assert engine.outbox.queue
        assert transport.rests  # the thread was not woken
        with transport.lock:
            engine.ping()
            transport.write()
        assert [command[0] for command in peer.read()] == [Command.CLOSE_CONSUMER, Command.PING]
    finally:
        peer.close()


def test_an_answer_is_written_at_once(peer: Peer) -> None:
    peer.say(Command.CLOCK, 5_000)
    assert peer.read() == [(Command.CLOCK_SEEN, 5_000)]
    assert peer.engine.terms.clock_offset == 5_000


@pytest.mark.skipif(not CAN_LEAD, reason="needs select.epoll and select.poll: without them the I/O thread reads")
@pytest.mark.parametrize("answered_first", [0, 1])
def test_the_first_requester_leads_and_a_later_one_follows(peer: Peer, answered_first: int) -> None:
    asking = []
    for number in range(2):
        asking.append(Background(lambda number=number: peer.transport.ask(peer.engine.ping) or number))  # type: ignore[misc]
        request = peer.read()[0][1]
        assert request == number + 1
    while not peer.transport.lead._followers:
        assert asking[1].running
    for number in (answered_first, 1 - answered_first):
        peer.say(Command.OK, number + 1, None)
        assert asking[number].result() == number
    assert peer.transport.lead.thread is None


def test_the_end_of_the_stream(peer: Peer) -> None:
    asking = Background(lambda: peer.transport.ask(peer.engine.ping))
    peer.read()
    peer._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(JMSException, match="closed the connection"):
        asking.result()


def test_bytes_that_are_no_frame(peer: Peer) -> None:
    asking = Background(lambda: peer.transport.ask(peer.engine.ping))
    peer.read()
    peer._socket.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(JMSException, match="lost"):
        asking.result()


def broken(_: object) -> None:
    """Called where what the broker says is carried out."""
    raise ZeroDivisionError("a defect")


def test_a_defect_in_the_io_thread_wakes_waiting_threads(peer: Peer) -> None:
    told = threading.Event()
    with peer.transport.lock:
        asked = peer.engine.ping()
        asked.add_callback(lambda _: told.set())
        peer.engine.ping().add_callback(broken)
        peer.transport.write()
    peer.say(Command.OK, 2, None)
    assert told.wait(SOON / 1000)
    with pytest.raises(JMSException, match="a defect"):
        asked.result()


@pytest.mark.skipif(not CAN_LEAD, reason="needs select.epoll and select.poll: without them the I/O thread reads")
def test_a_defect_in_a_thread_that_reads_for_itself_wakes_all(peer: Peer) -> None:
    asking = [Background(lambda: peer.transport.ask(peer.engine.ping)) for _ in range(2)]
    while peer.transport.lead.thread is None or not peer.transport.lead._followers:
        assert all(each.running for each in asking)
    with peer.transport.lock:
        peer.engine.ping().add_callback(broken)
        peer.transport.write()
    peer.say(Command.OK, 3, None)
    for each in asking:
        with pytest.raises(JMSException, match="a defect"):
            each.result()


def test_sends_are_flushed_at_exit_without_a_close(url: str) -> None:
    program = f"""
from sievemq import ConnectionFactory, Queue, TextMessage
context = ConnectionFactory({url!r}).create_context()
producer = context.create_producer().set_delivery_mode(1)
for number in range(100):
    producer.send(Queue("q"), str(number))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=SOON / 1000)
    with ConnectionFactory(url).create_context() as context:
        assert texts(context.create_consumer(Queue("q")), 100) == [str(number) for number in range(100)]
