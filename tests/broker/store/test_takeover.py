"""Brokers that share a store: one serves, the others follow, and one of these takes over when the first one ends."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.broker.server.wire_client import WireClient
from websockets.sync.client import connect

from sievemq import ConnectionFactory, JMSContext
from sievemq._management import Management
from sievemq_broker import EmbeddedBroker
from sievemq_broker.clock import Clock
from sievemq_broker.config import load
from sievemq_broker.domain.store import AbandonedError, AwayError, StoreError, StoreFullError
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, frame_of
from sievemq_broker.protocols.amqp.performatives import Begin, Open
from sievemq_broker.server import process
from sievemq_broker.server.http import gate
from sievemq_broker.server.http.api import series
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.server import Server
from sievemq_broker.store.lease import now as machine_now
from sievemq_core.wire.commands import Command

from .sharing import (
    DEADLINE,
    LONG,
    RARE,
    Access,
    SharedStore,
    SharingBroker,
    World,
    get,
    hosts,
    is_away,
    last_words,
    outwait_lease,
    pass_lease,
    send,
    silent,
    until,
)

SOON = int(DEADLINE * 1_000)


@pytest.fixture
def world() -> World:
    return World()


@contextmanager
def pair(world: World, **options: Any) -> Iterator[tuple[SharingBroker, SharingBroker]]:
    """An owner and a follower."""
    with SharingBroker(world, LONG, **options) as owner, SharingBroker(world, LONG, **options) as follower:
        owner.wait_until_serving(DEADLINE)
        yield owner, follower


# -- a follower -------------------------------------------------------------------------------------------------------


def test_a_follower_takes_over_when_the_owner_stops(world: World) -> None:
    with pair(world) as (owner, follower):
        factory = ConnectionFactory(hosts(follower, owner))
        with factory.create_context() as context:
            context.create_producer().send(context.create_queue("q"), "kept")
        owner.stop()
        follower.wait_until_serving(DEADLINE)
        with factory.create_context() as context:
            consumer = context.create_consumer(context.create_queue("q"))
            assert consumer.receive_body(str, SOON) == "kept"
    assert owner.access.closed == ["store", "released", "lease"]
    assert world.sight.epoch == 2


def test_a_client_with_both_hosts_goes_on_after_a_takeover(world: World) -> None:
    with pair(world) as (owner, follower):
        url = hosts(owner, follower) + f"?reconnect={SOON}"
        with ConnectionFactory(url).create_context(JMSContext.SESSION_TRANSACTED) as context:
            queue = context.create_queue("q")
            producer, consumer = context.create_producer(), context.create_consumer(queue)
            for text in ("before", "after"):
                producer.send(queue, text)
                context.commit()
                assert consumer.receive_body(str, SOON) == text
                context.commit()
                owner.stop()
            assert follower.server.is_active


def test_the_ports_of_a_follower_refuse_clients(world: World) -> None:
    with pair(world) as (_, follower), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", follower.port), DEADLINE)


def test_a_follower_has_no_domain_to_call(world: World) -> None:
    with pair(world) as (_, follower):
        with pytest.raises(RuntimeError, match="follows another one"):
            follower.call(lambda broker: broker.namespaces)
        with pytest.raises(TimeoutError):
            follower.wait_until_serving(0)


def test_the_management_port_says_which_broker_serves(world: World) -> None:
    with pair(world, http=True) as (owner, follower):
        assert [get(broker, "/livez")[0] for broker in (owner, follower)] == [200, 200]
        assert [get(broker, "/readyz")[0] for broker in (owner, follower)] == [200, 200]
        assert [get(broker, "/activez") for broker in (owner, follower)] == [
            (200, {"role": "owner", "shard": "main"}),
            (503, {"role": "follower", "follows": ["main"]}),
        ]
        assert get(follower, "/readyz")[1]["role"] == "follower"
        for path in ("/", "/api/v1/broker", "/api/v1/namespaces", "/metrics/detailed", "/openapi.json"):
            status, error = get(follower, path)
            assert (status, error["error"]) == (421, "REDIRECT"), path
            assert error["text"] == f"this broker follows the one at {owner.url}: ask at {owner.http_url}"
            assert error["details"] == {"role": "follower", "owner": owner.url, "shard": "main", "url": owner.http_url}
        assert get(owner, "/api/v1/broker")[1]["role"] == "owner"
        assert 'sievemq_role{role="owner",shard="main"} 1.0' in get(owner, "/metrics")[1]
        assert 'sievemq_role{role="follower",shard="main"} 1.0' in get(follower, "/metrics")[1]
        owner.stop()
        follower.wait_until_serving(DEADLINE)
        assert get(follower, "/activez") == (200, {"role": "owner", "shard": "main"})
        assert get(follower, "/api/v1/broker")[0] == 200


def test_a_follower_takes_the_shard_when_it_is_told_to(world: World) -> None:
    with pair(world, http=True) as (owner, follower):
        answer = Management(follower.http_url, None, None, None).post("/shards/main/actions/take", {})
        assert answer == {"shard": "main", "owner": owner.url}
        follower.wait_until_serving(DEADLINE)
        assert get(follower, "/activez")[1] == {"role": "owner", "shard": "main"}


def test_a_broker_that_shares_no_store_is_active() -> None:
    with EmbeddedBroker(http=True) as broker:
        assert get(broker, "/activez") == (200, {"role": "owner"})


def test_a_follower_says_which_settings_differ(world: World) -> None:
    with (
        SharingBroker(world, LONG, http=True) as owner,
        SharingBroker(world, LONG, http=True, settings={"max_body_bytes": 1_000, "auto_create": False}) as follower,
    ):
        assert "warnings" not in get(owner, "/readyz")[1]
        assert get(follower, "/readyz")[1]["warnings"] == [
            "settings differ from the owner's: auto_create, max_body_bytes"
        ]
        status, answer = get(follower, "/api/v1/attention")
        assert (status, answer["totals"]) == (200, {"shard": 1})
        assert answer["findings"][0]["text"] == "settings differ from the owner's: auto_create, max_body_bytes"


def test_a_follower_whose_owner_is_killed_takes_over_after_the_lease(world: World) -> None:
    with SharingBroker(world, LONG) as owner, SharingBroker(world, LONG) as follower:
        with ConnectionFactory(owner.url).create_context() as context:
            context.create_producer().send(context.create_queue("q"), "kept")
        with owner.access.away():  # it neither beats nor releases
            outwait_lease(follower)
            follower.wait_until_serving(DEADLINE)
            with ConnectionFactory(follower.url).create_context() as context:
                assert context.create_consumer(context.create_queue("q")).receive_body(str, SOON) == "kept"


def test_an_owner_beats_while_it_restores(world: World) -> None:
    """Otherwise two of them would take a large shard from each other for ever."""
    with SharingBroker(world, LONG) as first, ConnectionFactory(first.url).create_context() as context:
        context.create_producer().send(context.create_queue("q"), "kept")
    owner = SharingBroker(world, LONG)
    owner.access.before_reading = lambda: world.until(lambda sight: sight.beat > 3)
    with owner, ConnectionFactory(owner.url).create_context() as context:
        assert context.create_consumer(context.create_queue("q")).receive_body(str, SOON) == "kept"


# -- an owner whose store is away -------------------------------------------------------------------------------------


def test_connections_outlive_a_time_without_the_store(world: World) -> None:
    with SharingBroker(world, LONG) as broker, WireClient(broker.port) as client:
        client.open_session()
        send(client, 1)
        assert client.until(Command.CONFIRM)[1:] == (1, 1)
        with silent(broker):
            send(client, 2)
            assert client.until(Command.FLOW)[1], "the client learns why it waits"
            assert broker.server.links.silent
        assert client.until(Command.CONFIRM)[1:] == (1, 2)
        assert not broker.server.links.silent


def test_clients_learn_after_a_silence_that_the_store_takes_no_writes(world: World) -> None:
    def fail() -> None:
        raise StoreFullError("it is full")

    with SharingBroker(world, LONG) as broker, WireClient(broker.port) as sender, WireClient(broker.port) as idle:
        for client in (sender, idle):
            client.open_session()
        broker.access.before_writing = fail
        send(sender, 1)
        assert idle.until(Command.FLOW)[1:3] == (True, "it is full")
        with silent(broker):
            assert idle.until(Command.FLOW)[1:3] == (True, "the dictionary is away")
        assert idle.until(Command.FLOW)[1:3] == (True, "it is full")
        broker.access.before_writing = lambda: None
        assert idle.until(Command.FLOW)[1:3] == (False, "")


@pytest.mark.parametrize("mode", [1, 2])
def test_nothing_is_carried_out_or_said_while_the_lease_is_over(world: World, mode: int) -> None:
    with SharingBroker(world, LONG) as broker, WireClient(broker.port) as client:
        client.open_session()
        with silent(broker):
            assert client.until(Command.FLOW)
            send(client, 1, mode)
            until(broker, lambda server: True)
            assert not broker.server.shard.broker.namespaces["default"].destinations
        assert client.next(lambda command: command[0] != Command.FLOW)[0] == Command.CONFIRM


def test_what_was_written_before_the_lease_was_over_is_held_back(world: World) -> None:
    """Its write is answered, but another broker may own the shard by then."""
    with SharingBroker(world, LONG) as broker, WireClient(broker.port) as client:
        client.open_session()
        server = broker.server
        keeper, commits = server.shard.keeper, server.shard.commits
        assert keeper is not None
        assert commits is not None
        writes = commits.writes
        broker.call(lambda _: commits._held.__setattr__("_speaks", lambda: False))
        send(client, 1)
        until(broker, lambda server: commits.writes > writes)
        assert [link.held > 0 for link in server.links.open] == [True]
        broker.call(lambda _: commits._held.__setattr__("_speaks", keeper.speaks))
        broker.call(lambda _: commits.opened())
        assert client.until(Command.CONFIRM)[1:] == (1, 1)


def test_heartbeats_pass_what_is_held_back(world: World) -> None:
    with SharingBroker(world, LONG) as broker, WireClient(broker.port, hello=False) as client:
        client.say(Command.HELLO, 1, "", None, None, None, 200, "test", None, {})
        client.until(Command.WELCOME)
        with silent(broker):
            for _ in range(3):
                client.until(Command.HEARTBEAT)


def test_the_api_is_silent_too(world: World) -> None:
    with SharingBroker(world, LONG, http=True) as broker:
        with silent(broker):
            status, ready = get(broker, "/readyz")
            assert (status, ready["role"]) == (503, "silent")
            assert ready["reasons"][0].startswith("another broker may own the shard: ")
            assert get(broker, "/activez") == (503, {"role": "silent", "shard": "main"})
            assert get(broker, "/livez")[0] == 200
            assert 'sievemq_role{role="silent",shard="main"} 1.0' in get(broker, "/metrics")[1]
            for path, method in (
                ("/api/v1/broker", "GET"),
                ("/api/v1/namespaces/n/queues/q", "PUT"),
                ("/stomp", "GET"),
            ):
                status, error = get(broker, path, method)
                assert (status, error["error"]) == (503, "SILENT"), path
        until(broker, lambda server: server.role == "owner")
        assert get(broker, "/api/v1/broker")[0] == 200


async def test_an_answer_that_is_ready_when_the_lease_is_over_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LOOK_SECONDS", 0.01)
    settings = load({"port": 0, **RARE}, {}).settings
    server = Server(settings, Clock(), sources={"main": Access(World())})
    server.bind()
    try:
        await server.start()
        keeper = server.shard.keeper
        assert keeper is not None
        passing = gate.DiskGate(server)
        await passing.passed(False)
        keeper.lease.until = 0.0
        for changes in (False, True):
            with pytest.raises(ApiError) as refused:
                await passing.passed(changes)
            assert refused.value.status == 503
        part = asyncio.create_task(passing.passed(False, more=True))
        keeper.lease.answered(machine_now())
        assert server.shard.commits is not None
        server.shard.commits.opened()
        await asyncio.wait_for(part, DEADLINE)
    finally:
        await server.stop()


# -- an owner that another one has superseded -------------------------------------------------------------------------


def test_a_superseded_owner_cuts_its_clients(world: World) -> None:
    with SharingBroker(world, LONG, http=True) as broker, WireClient(broker.port) as client:
        client.open_session()
        world.seize()
        assert client.at_end()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.server.port), DEADLINE)
        with pytest.raises(RuntimeError, match="taken the shard over"):
            _ = broker.url
        assert get(broker, "/activez") == (503, {"role": "gone", "shard": "main"})
    assert "released" not in broker.access.closed


def test_a_write_that_is_refused_ends_the_owner_at_once(world: World) -> None:
    """Though its beats are an hour apart."""
    with SharingBroker(world, RARE) as broker, WireClient(broker.port) as client:
        client.open_session()
        world.seize()
        send(client, 1)
        assert Command.CONFIRM not in last_words(client)
        assert broker.server.failure is not None
    assert not world.data.messages


def test_an_owner_that_is_superseded_while_it_restores_never_serves(world: World) -> None:
    broker = SharingBroker(world, LONG)

    def seize() -> None:
        world.seize()
        server = broker_server[0]
        assert server.shard.keeper is not None
        while server.shard.failure is None:
            world.set(beat=world.sight.beat + 1)

    broker_server: list[Server] = []
    make = broker._make_server

    def make_server() -> Server:
        broker_server.append(make())
        return broker_server[0]

    broker._make_server = make_server  # type: ignore[method-assign]
    broker.access.before_reading = seize
    with pytest.raises(Exception, match="taken the shard over"):
        broker.start()


def test_an_owner_whose_store_stays_away_gives_up(world: World) -> None:
    with SharingBroker(world, {**LONG, "store_patience": 0.1}) as broker, WireClient(broker.port) as client:
        client.open_session()
        with broker.access.away():
            until(broker, is_away)
            pass_lease(broker)
            assert client.at_end()
            with pytest.raises(RuntimeError, match="store_patience"):
                _ = broker.url


# -- the process ------------------------------------------------------------------------------------------------------


async def run(access: Access, stop_at: Callable[[Server], bool], stop: bool) -> int:
    """The exit code of a process that stops once it is so far."""
    settings = load({"port": 0, "http": False, **LONG}, {}).settings
    stopping = asyncio.Event()
    server = Server(settings, Clock(), on_failure=stopping.set, sources={"main": access})
    port = process.bind(server)
    serving = asyncio.create_task(process._serve(server, port, stopping))
    while not stop_at(server):  # noqa: ASYNC110  there is no event
        await asyncio.sleep(0)
    if stop:
        stopping.set()
        server.give_up()
    else:
        access.world.seize()
    return await asyncio.wait_for(serving, DEADLINE)


def is_ready(server: Server) -> bool:
    return server.is_active


def follows(server: Server) -> bool:
    return server.candidates is not None and server.candidates.follows.is_set()


async def test_a_superseded_process_exits_with_75(world: World) -> None:
    assert await run(Access(world), is_ready, stop=False) == 75


async def test_a_stopped_owner_exits_with_0(world: World) -> None:
    assert await run(Access(world), is_ready, stop=True) == 0
    assert world.sight.released


async def test_an_owner_that_is_asked_for_while_it_stops_exits_with_0(world: World) -> None:
    """A supervisor restarts what exits with 75."""

    async def ask() -> None:
        beat = world.sight.beat
        world.set(heir="another")
        while world.sight.beat < beat + 3:  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0)

    def asked_late(server: Server) -> bool:
        if server.is_active:
            server.when_asked_for(lambda: None)
            server.on_stop.append(ask)
        return server.is_active

    assert await run(Access(world), asked_late, stop=True) == 0


async def test_a_stopped_follower_exits_with_0(world: World) -> None:
    with SharingBroker(world, LONG):
        assert await run(Access(world), follows, stop=True) == 0
        assert not world.sight.released


async def test_a_follower_can_be_stopped_before_its_management_port_is_served(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that needs is imported in a thread."""
    settings = load({"port": 0, "http_port": 0, **LONG}, {}).settings
    stopped = threading.Event()
    import_http = process._import_http

    def late() -> Any:
        assert stopped.wait(DEADLINE)
        return import_http()

    monkeypatch.setattr(process, "_import_http", late)
    server = Server(settings, Clock(), sources={"main": Access(world)})
    port = process.bind(server)
    assert port is not None
    serving = asyncio.create_task(port.start(server))
    await server.stop()
    stopped.set()
    await asyncio.wait_for(serving, DEADLINE)


# -- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead", "waits"), [(300, True), (3_600_000, False)])
async def test_time_does_not_go_back_at_a_takeover(
    world: World, monkeypatch: pytest.MonkeyPatch, ahead: int, waits: bool
) -> None:
    """The former owner's clock was a little ahead, or had been set."""
    monkeypatch.setattr(SharedStore, "time", Clock().now() + ahead)
    settings = load({"port": 0, "http": False, **LONG}, {}).settings
    clock = Clock()
    server = Server(settings, clock, sources={"main": Access(world)})
    server.bind()
    await server.start()
    try:
        assert (clock.now() >= SharedStore.time) is waits
    finally:
        await server.stop()


# -- every door -------------------------------------------------------------------------------------------------------

CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,200\n\n\0"
SEND = b"SEND\ndestination:/queue/q\nreceipt:r\n\nm\0"


def read_until(sock: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        part = sock.recv(1 << 16)
        assert part, data
        data += part
    return data


def test_a_stomp_client_is_kept_and_waits(world: World) -> None:
    with (
        SharingBroker(world, LONG, settings={"heartbeat_seconds": 0.2}) as broker,
        socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as sock,
    ):
        sock.settimeout(DEADLINE)
        sock.sendall(CONNECT)
        read_until(sock, b"\0\n")
        with silent(broker):
            sock.sendall(SEND)
            assert set(read_until(sock, b"\n" * 3)) == {ord("\n")}, "heartbeats alone"
        read_until(sock, b"RECEIPT\nreceipt-id:r\n")


def test_an_amqp_client_is_kept_and_waits(world: World) -> None:
    """It sends no heartbeats while the broker does not read, though it has to, and is not ended for that."""
    beat = b"\0\0\0\x08\x02\0\0\0"
    begin = frame_of(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    with (
        SharingBroker(world, LONG, settings={"heartbeat_seconds": 0.2}) as broker,
        socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as sock,
    ):
        sock.settimeout(DEADLINE)
        sock.sendall(AMQP_HEADER + frame_of(Open(container_id="c", idle_time_out=400)) + begin)
        read_until(sock, beat)
        with silent(broker):
            sock.sendall(frame_of(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), 1))
            data = read_until(sock, beat * 3)
            assert data.replace(beat, b"") == b"", "heartbeats alone"
        assert len(read_until(sock, b"\x02\0\0\x01")) > len(beat)


def test_a_client_by_websocket_is_kept_and_waits(world: World) -> None:
    with SharingBroker(world, LONG, http=True, settings={"heartbeat_seconds": 0.2}) as broker:
        url = broker.http_url.replace("http", "ws", 1) + "/stomp"
        with connect(url, proxy=None, open_timeout=DEADLINE, close_timeout=DEADLINE) as client:
            client.send(CONNECT.decode())
            assert str(client.recv(DEADLINE)).startswith("CONNECTED")
            with silent(broker):
                client.send(SEND.decode())
                assert [client.recv(DEADLINE) for _ in range(3)] == ["\n"] * 3
            while (said := client.recv(DEADLINE)) == "\n":
                pass
            assert str(said).startswith("RECEIPT")


def test_events_wait_for_the_lease_and_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "STEP_SECONDS", 0.02)
    with SharingBroker(world, LONG, http=True) as broker:
        request = urllib.request.urlopen(f"{broker.http_url}/api/v1/events", timeout=DEADLINE)
        with request as stream:
            while b"event: tick" not in stream.readline():
                pass
            with silent(broker):
                pass
            for _ in range(2):
                while b"event: tick" not in stream.readline():
                    pass


# -- names ------------------------------------------------------------------------------------------------------------


def test_owners_give_different_ids_although_a_takeover_was_lost(world: World) -> None:
    """A database that was promoted without the last takeover counts it again."""
    ids: list[str] = []
    for _ in range(2):
        world.set(epoch=4)
        with SharingBroker(world, LONG) as broker, ConnectionFactory(broker.url).create_context() as context:
            ids += broker.call(lambda _: list(broker.server.shard.services.connections))
            reply = context.create_temporary_queue()
            context.create_producer().send(reply, "answer")
            assert context.create_consumer(reply).receive_body(str, SOON) == "answer"
    assert len(set(ids)) == 2
    assert [name.rpartition("-")[0].split("-")[1] for name in ids] == ["5", "5"]


@pytest.mark.parametrize(("error", "code"), [(AwayError("away"), 75), (StoreError("damaged"), 1)])
async def test_a_process_that_cannot_restore_ends(world: World, error: StoreError, code: int) -> None:
    """One that finds the shard damaged does not release it: the others would fail one after the other."""
    access = Access(world)

    def fail() -> None:
        raise error

    access.before_reading = fail
    settings = load({"port": 0, "http": False, **LONG}, {}).settings
    server = Server(settings, Clock(), sources={"main": access})
    port = process.bind(server)
    assert await asyncio.wait_for(process._serve(server, port, asyncio.Event()), DEADLINE) == code
    assert world.sight.released is (code == 75)


async def test_a_start_that_was_given_up_takes_nothing(world: World) -> None:
    settings = load({"port": 0, "http": False, **LONG}, {}).settings
    server = Server(settings, Clock(), sources={"main": Access(world)})
    server.bind()
    server.give_up()
    with pytest.raises(AbandonedError):
        await server.start()
    await server.stop()
    assert not world.sight.token


@pytest.mark.parametrize(
    ("host", "advertised", "address"),
    [("127.0.0.1", None, "127.0.0.1"), ("0.0.0.0", None, ""), ("0.0.0.0", "mq1.example", "mq1.example")],
)
def test_the_address_that_shows_whether_a_process_lives(host: str, advertised: str | None, address: str) -> None:
    port = process.ManagementPort(load({"http_host": host, "http_port": 0, "insecure": True}, {}).settings)
    try:
        assert port.pulse(advertised).rpartition(":")[0] == address
    finally:
        port.close()
