"""A thread that waits for a message reads the socket itself (decision 0020), and no other is left waiting."""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sievemq import Connection, ConnectionFactory, JMSContext, Queue, Session
from sievemq.blocking import transport as reading
from sievemq.blocking.transport import CAN_LEAD, Lead, Transport

from .conftest import Connect
from .helpers import SOON, Background, Collector, receive_text, wait_until_receiving
from .test_interruptions import run

pytestmark = pytest.mark.skipif(not CAN_LEAD, reason="needs select.epoll and select.poll")


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON / 1000
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        threading.Event().wait(0.001)


def leading(connection: Connection) -> bool:
    return connection._transport.lead.thread is not None


def hear(connection: Connection) -> None:
    """Ask and have the I/O thread read the answer."""
    heard = threading.Event()
    with connection._transport.lock:
        connection._engine.ping().add_callback(lambda _: heard.set())
        connection._transport.write()
    assert heard.wait(SOON / 1000)


def send(connect: Connect, *texts: str, to: str = "q") -> None:
    session = connect().create_session()
    producer = session.create_producer(Queue(to))
    for text in texts:
        producer.send(session.create_text_message(text))


class Socket:
    """The transport of a leader, with a socket at which nothing happens."""

    can_be_led = True
    asleep = has_callbacks = False
    asked = 0

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.ends = socket.socketpair()
        self.watched = 0

    def fileno(self) -> int:
        return self.ends[0].fileno()

    def watch(self) -> None:
        self.watched += 1

    def read_for_leader(self) -> None:
        raise AssertionError("there is nothing to read")


@pytest.fixture
def idle() -> Iterator[Socket]:
    transport = Socket()
    yield transport
    for end in transport.ends:
        end.close()


@pytest.fixture
def lead(idle: Socket) -> Iterator[Lead]:
    lead = Lead(idle, 0.0)
    yield lead
    for end in lead.forget():
        end.close()


FREE, LED, EVICTED, ENDING, ENDED = range(5)
#: State, event, and what follows, as the comment in the module has them.
STEPS = [
    *[(FREE, "begin", LED), (FREE, "leave", FREE), (FREE, "evict", FREE), (FREE, "close", ENDED)],
    *[(LED, "begin", LED), (LED, "leave", FREE), (LED, "evict", EVICTED), (LED, "close", ENDING)],
    *[(EVICTED, "begin", EVICTED), (EVICTED, "leave", FREE), (EVICTED, "evict", EVICTED), (EVICTED, "close", ENDING)],
    *[(ENDING, "begin", ENDING), (ENDING, "leave", ENDED), (ENDING, "evict", ENDING), (ENDING, "close", ENDING)],
    *[(ENDED, "begin", ENDED), (ENDED, "leave", ENDED), (ENDED, "evict", ENDED), (ENDED, "close", ENDED)],
]
#: Events that lead to a state from the first one.
WAY: dict[int, list[str]] = {
    FREE: [],
    LED: ["begin"],
    EVICTED: ["begin", "evict"],
    ENDING: ["begin", "close"],
    ENDED: ["close"],
}


@pytest.mark.parametrize(("state", "event", "then"), STEPS)
def test_the_table_of_states_names_the_reading_thread(
    idle: Socket, lead: Lead, state: int, event: str, then: int
) -> None:
    woken, other = allocate_lock(), allocate_lock()
    deeds: dict[str, Callable[[], None]] = {
        "begin": lambda: lead.begin(woken),
        "leave": lambda: lead.end(woken),
        "evict": lead.evict,
        "close": lead.close,
    }
    for step in WAY[state]:
        deeds[step]()
    assert lead.state == state
    watched = idle.watched
    if event == "begin" and lead.thread is not None:
        Background(lambda: lead.begin(other)).result()
        assert lead._followers == {other}
    else:
        deeds[event]()
    assert lead.state == then == getattr(reading, f"AT_{event.upper()}")[state]
    assert (lead.thread is not None) == (then in (LED, EVICTED, ENDING))
    if event == "leave":
        assert idle.watched == watched  # no thread follows, and the I/O thread is awake: it watches by itself


def test_the_io_thread_watches_for_a_follower_when_the_leader_leaves(idle: Socket, lead: Lead) -> None:
    woken, other = allocate_lock(), allocate_lock()
    lead.begin(woken)
    Background(lambda: lead.begin(other)).result()
    watched = idle.watched
    lead.end(woken)
    assert (lead.state, idle.watched) == (FREE, watched + 1)


def test_a_signal_handlers_wait_takes_the_lead_from_the_wait_it_interrupts(lead: Lead) -> None:
    woken, inner = allocate_lock(), allocate_lock()
    lead.begin(woken)
    lead.begin(inner)
    assert (lead.state, lead.thread) == (LED, threading.get_ident())
    lead.end(inner)
    assert (lead.state, lead.thread) == (FREE, None)
    lead.end(woken)
    assert not lead._left


def test_a_waiting_thread_leads_and_the_io_thread_reads_otherwise(connection: Connection, connect: Connect) -> None:
    consumer = connection.create_session().create_consumer(Queue("q"))
    for number in range(5):
        waiting = Background(lambda: receive_text(consumer))
        wait_for(lambda: leading(connection))
        send(connect, f"m{number}")
        assert waiting.result() == f"m{number}"
        assert not leading(connection)
        hear(connection)


def test_every_thread_receives_its_message_through_one_leader(connection: Connection, connect: Connect) -> None:
    consumers = [connection.create_session().create_consumer(Queue(f"q{number}")) for number in range(4)]
    for _ in range(3):  # so that each is once the last one
        waiting = [Background(lambda consumer=consumer: receive_text(consumer)) for consumer in consumers]
        for consumer in consumers:
            wait_until_receiving(consumer)
        for number in (3, 0, 2, 1):
            send(connect, str(number), to=f"q{number}")
            assert waiting[number].result() == str(number)


def test_a_receiver_and_a_requester_take_turns_in_leading(connection: Connection) -> None:
    consumer = connection.create_session().create_consumer(Queue("q"))
    transport, engine = connection._transport, connection._engine
    for _ in range(20):
        asking = [Background(lambda: transport.ask(engine.ping)) for _ in range(4)]
        assert consumer.receive(1) is None
        for each in asking:
            each.result()
    hear(connection)


def test_a_listener_receives_while_another_session_leads(connection: Connection, connect: Connect) -> None:
    collector = Collector()
    connection.create_session().create_consumer(Queue("heard")).set_message_listener(collector)
    consumer = connection.create_session().create_consumer(Queue("q"))
    waiting = Background(lambda: receive_text(consumer))
    wait_for(lambda: leading(connection))
    send(connect, "one", "two", to="heard")
    collector.wait(2)
    wait_for(lambda: leading(connection))  # between two waits of one receive, nobody does for a moment
    send(connect, "done")
    assert waiting.result() == "done"


def test_a_thread_that_delivers_leads_while_it_rests(connection: Connection, connect: Connect) -> None:
    sessions = [connection.create_session() for _ in range(2)]
    collectors = [Collector() for _ in sessions]
    consumers = [session.create_consumer(Queue(f"q{n}")) for n, session in enumerate(sessions)]
    for consumer, collector in zip(consumers, collectors, strict=True):
        consumer.set_message_listener(collector)
    threads = [session._control.delivery._thread.ident for session in sessions]
    for number in range(1, 4):
        wait_for(lambda: connection._transport.lead.thread in threads)
        for place in (0, 1):
            send(connect, "one", to=f"q{place}")
            collectors[place].wait(number)
    connection._transport.ask(connection._engine.ping)  # one that follows
    hear(connection)
    consumers[0].close()
    send(connect, "two", to="q1")
    collectors[1].wait(4)
    for session in sessions:
        session.close()
    wait_for(lambda: not leading(connection))
    hear(connection)


@pytest.mark.parametrize("close", ["consumer", "session", "connection"])
def test_a_close_wakes_the_leading_thread(connect: Connect, close: str) -> None:
    connection = connect()
    session = connection.create_session()
    consumer = session.create_consumer(Queue("q"))
    waiting = Background(consumer.receive)
    wait_for(lambda: leading(connection))
    {"consumer": consumer, "session": session, "connection": connection}[close].close()
    assert waiting.result() is None


def test_the_leading_thread_waits_while_the_connection_is_repaired(connection: Connection, connect: Connect) -> None:
    consumer = connection.create_session().create_consumer(Queue("q"))
    waiting = Background(lambda: receive_text(consumer))
    wait_for(lambda: leading(connection))
    transport = connection._transport
    with transport.lock:  # as a heartbeat that is missed
        connection._engine.lost(TimeoutError("the test says so"))
        transport.wake()
    wait_for(lambda: connection._engine.outages == 1 and not connection._engine.repairing)
    send(connect, "one")
    assert waiting.result() == "one"
    hear(connection)


def test_the_leading_thread_does_not_read_a_lost_socket(connection: Connection, connect: Connect) -> None:
    consumer = connection.create_session().create_consumer(Queue("q"))
    waiting = Background(lambda: receive_text(consumer))
    wait_for(lambda: leading(connection))
    transport = connection._transport
    with transport.lock:
        connection._engine.lost(OSError("the test says so"))  # as in a thread that writes
        send(connect, "one")
        assert select.select([transport], [], [], SOON / 1000)[0]  # the broker has delivered it before it knew
    transport.wake()
    assert waiting.result() == "one"
    assert connection._engine.outages == 1


def test_the_leading_thread_keeps_its_timeout(session: Session, connection: Connection) -> None:
    consumer = session.create_consumer(Queue("q"))
    start = time.monotonic()
    assert consumer.receive(50) is None
    assert time.monotonic() - start >= 0.05
    assert not leading(connection)


def test_interrupted_input_is_repeated_on_another_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ConnectionFactory(url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        consumer = context.create_consumer(context.create_queue("q"))
        transport = context._session._transport
        interrupted: list[int] = []
        read = Transport._read

        def interrupting(self: Transport) -> bool:
            more = read(self)
            if self is transport and self.lead.thread is not None and not interrupted:
                interrupted.append(1)
                raise KeyboardInterrupt
            return more

        monkeypatch.setattr(Transport, "_read", interrupting)
        waiting: Any = Background(consumer.receive)
        # The answer to its WANT may be what is interrupted, before anybody looks.
        wait_for(lambda: bool(interrupted) or transport.lead.thread is not None)
        with ConnectionFactory(url).create_context() as other:
            other.create_producer().send(other.create_queue("q"), "one")
        with pytest.raises(KeyboardInterrupt):
            waiting.result()
        assert receive_text(consumer) == "one"
        assert context._connection._engine.outages == 1


HANDLER = """
import os, signal, sys, threading
from sievemq import ConnectionFactory

context = ConnectionFactory(sys.argv[1]).create_context()
other = context.create_context(1)
queue, reply = context.create_queue("q"), context.create_queue("reply")
consumer, own = context.create_consumer(queue), other.create_consumer(reply)
lead = context._session._transport.lead
calls = []

def handler(*_):
    calls.append(1)
    other.create_producer().send(reply, "from the handler")  # PERSISTENT: waits for its confirm
    print(own.receive_body(str, 60_000), flush=True)
    other.create_producer().send(queue, "go on")

signal.signal(signal.SIGUSR1, handler)

def interrupt():
    while lead.thread != threading.main_thread().ident:
        threading.Event().wait(0.001)
    # in the middle of a wait: nothing is on its way, so that no lock is held
    threading.Event().wait(0.2)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

threading.Thread(target=interrupt, daemon=True).start()
print(consumer.receive_body(str, 60_000), calls, flush=True)
context.close()
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signal.pthread_kill")
def test_a_signal_handler_may_use_the_connection_that_its_thread_leads(url: str) -> None:
    said, _ = run(HANDLER, url)
    assert said.splitlines() == ["from the handler", "go on [1]"]


CLOSER = """
import signal, sys, threading
from sievemq import ConnectionFactory

context = ConnectionFactory(sys.argv[1]).create_context()
queue = context.create_queue("q")
consumer = context.create_consumer(queue)
lead = context._session._transport.lead

def handler(*_):
    {what}.close()
    print("closed", flush=True)

signal.signal(signal.SIGTERM, handler)

def interrupt():
    while lead.thread != threading.main_thread().ident:
        threading.Event().wait(0.001)
    threading.Event().wait(0.2)  # as above
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

threading.Thread(target=interrupt, daemon=True).start()
print(consumer.receive(), flush=True)
context.close()
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signal.pthread_kill")
@pytest.mark.parametrize("what", ["consumer", "context"])
def test_clo_06_a_signal_handler_closes_what_its_own_thread_receives_from(url: str, what: str) -> None:
    """As many a program ends. The receive cannot return before the handler does, so that one must not wait for it."""
    said, _ = run(CLOSER.format(what=what), url)
    assert said.splitlines() == ["closed", "None"]


NEIGHBOUR = """
import signal, sys, threading
from sievemq import ConnectionFactory

context = ConnectionFactory(sys.argv[1]).create_context()
other = context.create_context(1)
queue = context.create_queue("q")
consumer, producer = context.create_consumer(queue), other.create_producer()
lead = context._session._transport.lead

# PERSISTENT: waits for its confirm, and reads, mostly in the same breath, the message that is waited for.
signal.signal(signal.SIGUSR1, lambda *_: producer.send(queue, "from the handler"))

def interrupt():
    while lead.thread != threading.main_thread().ident:
        threading.Event().wait(0.001)
    threading.Event().wait(0.1)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

for _ in range(8):
    threading.Thread(target=interrupt, daemon=True).start()
    print(consumer.receive().get_body(str), flush=True)
print(len(lead._left), flush=True)
context.close()
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signal.pthread_kill")
def test_a_signal_handlers_read_for_the_interrupted_thread_is_noticed(url: str) -> None:
    said, _ = run(NEIGHBOUR, url)
    assert said.splitlines() == ["from the handler"] * 8 + ["0"]
