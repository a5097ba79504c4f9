"""The floods of floods.py. Each is a generator: its set-up ends with `yield`, the flood follows, and then it may yield
what is to be noted beside the waits. A verb that several protocols have is one function for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from benchmarks.doors import DOORS, MARK, Amqp, Door, Http, Place, Sieve, Stomp, WebSocket, attach, http
from sievemq_broker.protocols.amqp.frames import frame_of
from sievemq_broker.protocols.amqp.performatives import Accepted, Disposition, Flow, Source
from sievemq_broker.protocols.amqp.types import Symbol
from sievemq_core.message.body import encode_map
from sievemq_core.message.envelope import BodyKind

Steps: TypeAlias = Iterator[Any]
Play: TypeAlias = Callable[[Place, float], Steps]


class Row(NamedTuple):
    """A flood."""

    title: str
    play: Play


FLOODS: dict[str, Row] = {}


def row(name: str, title: str, doors: Sequence[type[Door]] = (), **fixed: Any) -> Callable[[Any], Any]:
    """Enter a function as a row, or as one for each of several doors."""

    def enter(play: Any) -> Any:
        for door in doors:
            FLOODS[f"{name}-{door.name}"] = Row(f"{title}, {door.name}", partial(play, door=door, **fixed))
        if not doors:
            FLOODS[name] = Row(title, partial(play, **fixed))
        return play

    return enter


def at_once(acts: Iterable[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def listening(at: Place, door: type[Door], address: str, connections: int = 1, each: int = 1, qty: str = "") -> None:
    """Connections with so many consumers each, who take everything."""
    for _ in range(connections):
        client = door(at)
        client.subscribe(address, each, qty=qty)
        client.drain()


def filled(at: Place, address: str, count: int) -> None:
    """Messages in a queue."""
    client = Sieve(at)
    for _ in range(0, count, 10_000):
        client.flood(client.sends(address, min(count, 10_000)))
    client.close()


def holding(at: Place, door: type[Door], count: int, *, transacted: bool = False) -> Door:
    """A client with so many unsettled deliveries."""
    filled(at, "queue:flood", count)
    client = door(at, transacted=transacted)
    client.subscribe("queue:flood", settles=True)
    client.until(MARK, count)
    return client


def spam(clients: Sequence[Door], data: bytes, seconds: float) -> None:
    """Send the same as fast as it is taken, read nothing."""
    end = time.monotonic() + seconds
    for client in clients:
        client.sock.setblocking(False)
    while time.monotonic() < end:
        for client in clients:
            try:
                client.sock.send(data)
            except BlockingIOError:
                pass
        time.sleep(0.002)


# -- sends -------------------------------------------------------------------------------------------------------------


@row("queue", "one producer, one queue, one consumer", DOORS)
def queue(at: Place, scale: float, door: type[Door]) -> Steps:
    listening(at, door, "queue:flood")
    client = door(at)
    data = client.sends("queue:flood", int(50_000 * scale))
    yield
    client.flood(data)


@row("queue-http", "pipelined sends by the management API")
def queue_http(at: Place, scale: float) -> Steps:
    clients = [Http(at) for _ in range(10)]
    data = clients[0].sends("queue:flood", int(200 * scale))
    yield
    at_once([partial(client.flood, data) for client in clients])


@row("producers", "100 producers, one queue, one consumer", DOORS)
def producers(at: Place, scale: float, door: type[Door]) -> Steps:
    listening(at, door, "queue:flood")
    clients = [door(at) for _ in range(100)]
    floods = [partial(client.flood, client.sends("queue:flood", int(500 * scale))) for client in clients]
    yield
    at_once(floods)


@row("topic", "a topic with 1,000 subscribers on 10 connections", DOORS, connections=10, each=100)
@row("group", "1,000 subscribers with the same selector on 10 connections", DOORS, connections=10, each=100, qty=">= 0")
@row("connections", "a topic with 1,000 subscribers on 1,000 connections", connections=1_000, each=1)
def topic(
    at: Place, scale: float, connections: int, each: int, qty: str = "", door: type[Door] = Sieve
) -> Steps:  # fmt: skip
    listening(at, door, "topic:flood", connections, each, qty)
    client = door(at)
    data = client.sends("topic:flood", int(500 * scale))
    yield
    client.flood(data)


@row("fan-out", "one message to 4,000 subscriptions of one connection, five times", DOORS, count=4_000)
@row("fan-out-15000", "one message to 15,000 subscriptions of one connection", [Stomp], count=15_000)
def fan_out(at: Place, scale: float, door: type[Door], count: int) -> Steps:
    subscriber, publisher = door(at), Sieve(at)
    count, messages = int(count * scale), 1 + 4 * (count < 5_000)
    subscriber.subscribe("topic:flood", count)
    yield
    for _ in range(messages):
        publisher.say(publisher.sends("topic:flood"))
        subscriber.until(MARK, count)


@row("consumers", "5,000 consumers with selectors, opened at once", DOORS)
@row("subscribe-15000", "15,000 subscriptions, opened at once", [Stomp], count=15_000, qty="")
def consumers(
    at: Place, scale: float, door: type[Door], count: int = 5_000, qty: str = "BETWEEN {n} AND {n}2"
) -> Steps:
    client = door(at)
    yield
    client.subscribe("topic:flood", int(count * scale), qty=qty)


@row("values", "200 maps of 3,490 entries are read", DOORS)
def values(at: Place, scale: float, door: type[Door]) -> Steps:
    publisher, reader = Sieve(at), door(at)
    body = encode_map({MARK.decode(): 0, **{f"value{n}": n for n in range(3_490)}})
    count = int(200 * scale)
    publisher.flood(publisher.sends("queue:flood", count, kind=BodyKind.MAP, body=body))
    yield
    reader.subscribe("queue:flood")
    reader.until(MARK, count)


# -- transactions ------------------------------------------------------------------------------------------------------


@row("commit-20000", "COMMIT of 20,000", DOORS, count=20_000)
@row("commit-100000", "COMMIT of 100,000", DOORS, count=100_000)
def commit(at: Place, scale: float, door: type[Door], count: int) -> Steps:
    client = door(at, transacted=True)
    client.flood(client.sends("queue:flood", int(count * scale)))
    yield
    client.flood(client.commit(), client.committed)


@row("commits-16", "16 sessions commit 1,500 each at once", count=16)
@row("commits-48", "48 sessions commit 1,500 each at once", count=48)
def commits(at: Place, scale: float, count: int) -> Steps:
    clients = [Sieve(at, transacted=True) for _ in range(count)]
    for client in clients:
        client.flood(client.sends("queue:flood", int(1_500 * scale)))
    answered: list[float] = []

    def act(client: Sieve) -> None:
        client.flood(client.commit())
        answered.append(time.monotonic())

    yield
    begin = time.monotonic()
    at_once([partial(act, client) for client in clients])
    first, last = ((when - begin) * 1e3 for when in (answered[0], answered[-1]))
    yield f"answered after {first:,.0f} to {last:,.0f} ms, {{writes}} writes meanwhile"


@row("transactions", "transactions of 1,000 messages to 200 subscribers", DOORS)
def transactions(at: Place, scale: float, door: type[Door]) -> Steps:
    listening(at, door, "topic:flood", 10, 20)
    client = door(at, transacted=True)
    count = max(1, int(3 * scale))
    data = b"".join([client.sends("topic:flood", 1_000) + client.commit() for _ in range(count)])
    yield
    client.flood(data, client.committed, count if client.committed else 1)


# -- settlements -------------------------------------------------------------------------------------------------------


@row("settle", "all of 16,000 deliveries settled by one verb", DOORS, count=16_000)
@row("settle-50000", "one disposition over 50,000 deliveries", [Amqp], count=50_000)
@row("settle-100000", "one disposition over 100,000 deliveries", [Amqp], count=100_000)
def settle(at: Place, scale: float, door: type[Door], count: int) -> Steps:
    count = int(count * scale)
    client = holding(at, door, count)
    yield
    client.flood(client.settle(count))


@row("commit-settled", "16,000 deliveries settled by a transaction", DOORS, count=16_000)
@row("commit-settled-100000", "100,000 deliveries settled by a disposition in a transaction", [Amqp], count=100_000)
def commit_settled(at: Place, scale: float, door: type[Door], count: int) -> Steps:
    count = int(count * scale)
    client = holding(at, door, count, transacted=True)
    data = client.settle(count)
    yield
    client.flood(data + client.commit(), client.committed, 2 if client.committed else 1)


@row("end", "a session ends with 16,000 deliveries", DOORS, count=16_000)
@row("end-100000", "a session ends with 100,000 deliveries", [Amqp], count=100_000)
@row("lost", "a connection is lost with 16,000 deliveries", DOORS, count=16_000, lost=True)
@row("lost-100000", "a connection is lost with 100,000 deliveries", [Amqp], count=100_000, lost=True)
def end(at: Place, scale: float, door: type[Door], count: int, lost: bool = False) -> Steps:
    client, other = holding(at, door, int(count * scale)), Sieve(at)
    yield
    if lost:
        client.close()
        time.sleep(0.5)
        other.ask()
    else:
        client.flood(client.end(), client.ended)


@row("miss", "1,000 dispositions that settle nothing of 100,000 deliveries")
def miss(at: Place, scale: float) -> Steps:
    client = holding(at, Amqp, int(100_000 * scale))
    frame = frame_of(Disposition(role=True, first=2**31, last=2**32 - 1, settled=True, state=Accepted()))
    yield
    client.flood(frame * 1_000)


# -- frames that are no messages ---------------------------------------------------------------------------------------


@row("nothing", "100 connections send empty frames, not signed in", (Amqp, Stomp, WebSocket, Http))
@row("nothing", "100 connections send heartbeats", [Sieve], signed_in=True)
def nothing(at: Place, scale: float, door: type[Door], signed_in: bool = False) -> Steps:
    clients = [door(at, signed_in=signed_in) for _ in range(100)]
    yield
    spam(clients, door.nothing * 5_000, 3 * scale)


@row("shut-window", "1,000 flows with a shut window over 30,000 links")
def shut_window(at: Place, scale: float) -> Steps:
    client = Amqp(at)
    client.subscribe("queue:flood", int(30_000 * scale), credit=0)
    flow = Flow(next_incoming_id=0, incoming_window=0, next_outgoing_id=0, outgoing_window=1)
    yield
    client.flood(frame_of(flow) * 1_000)


@row("refused", "50 refused attaches of 0.8 MB")
def refused(at: Place, scale: float) -> Steps:
    client = Amqp(at)
    source = Source(capabilities=[Symbol("c" * 420)] * 1_900)  # as many values as a frame may have
    frames = [frame_of(attach(n, target=None).having(source=source)) for n in range(int(50 * scale))]
    yield
    client.flood(b"".join(frames))


@row("gets", "60 connections with 50 GETs of 1 MB that do not read the answers")
def gets(at: Place, scale: float) -> Steps:
    publisher = Sieve(at)
    publisher.flood(publisher.sends("queue:flood", kind=BodyKind.TEXT, body=b"y" * 1_000_000))
    clients = [Http(at) for _ in range(60)]
    path = "/api/v1/namespaces/default/destinations/queue:flood/messages/ID:1?body_limit=1000000"
    yield
    for client in clients:
        client.say(http("GET", path) * 50)
    time.sleep(2 * scale)
    yield "grown by {grown_mb} MB"
