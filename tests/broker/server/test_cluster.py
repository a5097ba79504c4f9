"""Brokers of one cluster: each has its own namespaces, and clients of others are told where these are."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.broker.protocols.amqp import AmqpSocket
from tests.broker.server.wire_client import WireClient
from tests.broker.store.sharing import DEADLINE, LONG, Cluster, SharingBroker, until
from websockets.sync.client import connect as web_connect
from websockets.typing import Subprotocol

from sievemq_broker import EmbeddedBroker
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command

USERS = {"ann": "secret"}


class Brokers:
    """The owners of the shards a and b."""

    def __init__(self, stack: ExitStack, **options: Any) -> None:
        self.cluster = Cluster("a", "b")
        self._stack, self._options = stack, options
        self.a, self.b = self.start(), self.start()

    def start(self) -> SharingBroker:
        broker = self.prepare()
        broker.wait_until_serving(DEADLINE)
        return broker

    def prepare(self) -> SharingBroker:
        """Start a broker that may have to follow."""
        options = {**self._options, "settings": {"shards": "a,b", **self._options.get("settings", {})}}
        broker = SharingBroker(self.cluster.worlds, LONG, store="postgresql://nobody@nowhere/none", **options)
        return self._stack.enter_context(broker)


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(stack)


def hello(broker: EmbeddedBroker, namespace: str, user: str | None = None) -> Any:
    """The answer to HELLO."""
    password = None if user is None else USERS[user]
    with WireClient(broker.server.port, namespace=namespace, user=user, password=password) as client:
        return client.welcome


def in_loop(broker: SharingBroker, verb: str, *arguments: object) -> Any:
    """Call a verb of the broker's placement, and wait for its answer."""

    async def call() -> Any:
        assert broker.server.placement is not None
        return await getattr(broker.server.placement, verb)(*arguments)

    assert broker._loop is not None
    return asyncio.run_coroutine_threadsafe(call(), broker._loop).result(DEADLINE)


def test_a_client_of_another_shard_is_told_its_owner(brokers: Brokers) -> None:
    brokers.cluster.patterns["b*"] = "b"
    brokers.cluster.patterns["*"] = "a"
    answers = {name: [hello(broker, name) for broker in (brokers.a, brokers.b)] for name in ("", "a1", "b1")}
    assert [answer[0] for answer in answers[""]] == [Command.WELCOME, Command.ERROR]
    assert [answer[0] for answer in answers["a1"]] == [Command.WELCOME, Command.ERROR]
    assert [answer[0] for answer in answers["b1"]] == [Command.ERROR, Command.WELCOME]
    code, text, details = answers["b1"][0][2:5]
    assert code == ErrorCode.REDIRECT
    assert details == {"url": brokers.b.url, "shard": "b", "namespace": "b1"}
    assert "'b1' is in shard 'b'" in text
    assert brokers.cluster.rows == {"default": "a", "a1": "a", "b1": "b"}


def test_a_used_namespace_stays_and_an_empty_one_goes(brokers: Brokers) -> None:
    in_loop(brokers.a, "assign", "space", "a")
    with WireClient(brokers.a.server.port, namespace="space") as client:
        client.open_session().open_consumer("queue:q", credit=1)
        with pytest.raises(RequestError, match="1 connection, 1 destination") as refused:
            in_loop(brokers.a, "assign", "space", "b")
        assert refused.value.code is ErrorCode.ILLEGAL_STATE
        assert client.request(Command.GOODBYE, ())[0] == Command.OK
    with pytest.raises(RequestError, match="1 destination"):
        in_loop(brokers.a, "assign", "space", "b")
    brokers.a._submit(lambda server: server.shard.broker.namespaces["space"].delete("queue:q")).result()
    in_loop(brokers.a, "assign", "space", "b")
    assert brokers.a._submit(lambda server: "space" in server.shard.broker.namespaces).result() is False
    assert hello(brokers.a, "space")[4]["shard"] == "b"
    assert hello(brokers.b, "space")[0] == Command.WELCOME


def test_the_next_owner_knows_what_is_here(brokers: Brokers) -> None:
    in_loop(brokers.b, "assign", "space", "a")
    spare = brokers.prepare()
    brokers.a.stop()
    spare.wait_until_serving(DEADLINE)
    assert hello(spare, "space")[0] == Command.WELCOME
    assert hello(brokers.b, "space")[4] == {"url": spare.url, "shard": "a", "namespace": "space"}
    spare.stop()
    answer = hello(brokers.b, "space")
    assert answer[2] == ErrorCode.UNAVAILABLE
    assert "'a', which no broker owns" in answer[3]


def test_a_user_without_a_right_learns_nothing_of_the_shard() -> None:
    users = {
        "ann": {"password": "secret", "rights": [{"may": ["send"], "namespace": "mine"}]},
    }
    with ExitStack() as stack:
        brokers = Brokers(stack, users=users)
        brokers.cluster.rows |= {"mine": "b", "theirs": "b", "default": "b"}
        calls = len(brokers.cluster.rows)
        for namespace in ("theirs", "new", ""):
            answer = hello(brokers.a, namespace, "ann")
            assert (answer[2], answer[4]) == (ErrorCode.AUTHENTICATION, {})
        with WireClient(brokers.a.server.port, namespace="mine", user="ann", password="wrong") as client:
            assert (client.welcome[2], client.welcome[4]) == (ErrorCode.AUTHENTICATION, {})
        assert len(brokers.cluster.rows) == calls, "nothing is claimed before the right is checked"
        assert hello(brokers.a, "mine", "ann")[4]["shard"] == "b"


def test_a_client_that_goes_while_its_claim_is_under_way_is_forgotten(brokers: Brokers) -> None:
    """And nothing of it is left when the answer comes; other clients go on meanwhile."""
    in_loop(brokers.a, "assign", "known", "a")
    asked, answer = threading.Event(), threading.Event()
    places = brokers.a.server.placement._places  # type: ignore[union-attr]

    def wait(call: str) -> None:
        if call == "claim":
            asked.set()
            assert answer.wait(DEADLINE)

    places.before = wait  # type: ignore[attr-defined]
    brokers.cluster.patterns["*"] = "a"
    with WireClient(brokers.a.server.port, hello=False) as client:
        client.say(Command.HELLO, PROTOCOL_VERSION, "new", None, None, None, 0, "test", None, {})
        assert asked.wait(DEADLINE)
    assert hello(brokers.a, "known")[0] == Command.WELCOME
    answer.set()
    assert hello(brokers.a, "new")[0] == Command.WELCOME
    until(brokers.a, lambda server: not server.shard.services.connections)


def test_a_handshake_ends_with_the_reason_when_the_database_is_away() -> None:
    with ExitStack() as stack:
        brokers = Brokers(stack, settings={"handshake_seconds": 50})
        in_loop(brokers.a, "assign", "known", "a")
        placement: Any = brokers.a.server.placement
        assert placement._patience == 25
        placement._patience = 0.01  # a short time for the handshake would end that of a client on a busy machine
        placement._places.away()
        answer = hello(brokers.a, "new")
        assert answer[2] == ErrorCode.UNAVAILABLE
        assert "the database has not answered" in answer[3]
        assert hello(brokers.a, "known")[0] == Command.WELCOME


def test_clients_of_all_protocols_are_told_where_to_connect() -> None:
    with ExitStack() as stack:
        brokers = Brokers(stack, http=True, settings={"amqp_port": 0})
        in_loop(brokers.a, "assign", "space", "b")
        with AmqpSocket(brokers.a.server.port_of("amqp"), connect=False) as amqp:
            amqp.connect(host="/space")
            error = amqp.error()
            assert error.condition == "amqp:connection:redirect"
            port = brokers.b.server.port_of("amqp")
            assert error.info == {"hostname": "/space", "network-host": "127.0.0.1", "port": port}
        connect = "CONNECT\naccept-version:1.2\nhost:/space\n\n\0"
        with socket.create_connection(("127.0.0.1", brokers.a.server.port_of("stomp")), DEADLINE) as stomp:
            stomp.sendall(connect.encode())
            port = brokers.b.server.port_of("stomp")
            assert f"redirect:stomp\\c//127.0.0.1\\c{port}\n".encode() in stomp.recv(65_536)
        url = brokers.a.http_url.replace("http", "ws", 1) + "/stomp"
        with web_connect(url, subprotocols=[Subprotocol("v12.stomp")], proxy=None) as web:
            web.send(connect)
            elsewhere = brokers.b.http_url.replace("http", "ws", 1).replace(":", "\\c")
            assert f"redirect:{elsewhere}/stomp\n" in str(web.recv(DEADLINE))
        assert hello(brokers.a, "space")[2] == ErrorCode.REDIRECT
        with pytest.raises(HTTPError, match="421"):
            urlopen(f"{brokers.a.http_url}/api/v1/namespaces/space/destinations")
        assert brokers.a.server.shard.redirects == dict.fromkeys(("sieve", "amqp", "stomp", "web", "http"), 1)
        with urlopen(f"{brokers.a.http_url}/metrics") as answer:
            figures = answer.read().decode()
        assert 'sievemq_redirects_total{protocol="web"} 1.0' in figures
        with urlopen(f"{brokers.a.http_url}/api/v1/shards") as answer:
            assert json.load(answer)["redirects"]["amqp"] == 1
