"""Several hosts (D-44): the first that welcomes the client is taken, and one that does not costs a fraction."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sievemq import InvalidURLException, JMSException, JMSRuntimeException, JMSSecurityException, TextMessage
from sievemq_broker import EmbeddedBroker
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

from .both import Api
from .relay import Relay

#: Of clients here: a round over two hosts gives the first 500 ms.
ROUND = {"connect_timeout": 2_000, "reconnect": "forever"}
#: Seconds; without fail-over nothing here ever ends.
BOUND = 60.0


@contextmanager
def silent_host() -> Iterator[int]:
    """The port of a host that takes connections and says nothing, as one of a frozen process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def full_host() -> Iterator[int]:
    """The port of a host that drops what comes, as one without power: its backlog is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = []
        for _ in range(4):
            waiting.append(sock := socket.socket())
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        yield port
        for sock in waiting:
            sock.close()


@contextmanager
def closing_host() -> Iterator[int]:
    """The port of a host that ends each connection."""
    with Relay(1) as relay:
        relay.refuse()
        yield relay.port


@contextmanager
def absent_host() -> Iterator[int]:
    """A port without a host."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield port


@contextmanager
def following_host() -> Iterator[int]:
    """The port of a broker that follows: taken, and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


HOSTS = (silent_host, full_host, closing_host, absent_host, following_host)


def hosts(url: str, *ports: int | str) -> str:
    """A URL with hosts in front of that of another."""
    return url.replace("://", "://" + ",".join(p if isinstance(p, str) else f"127.0.0.1:{p}" for p in ports) + ",")


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.__name__)
async def test_a_first_host_that_does_not_welcome_costs_a_fraction(api: Api, host: Callable[[], Any]) -> None:
    with host() as port:
        async with asyncio.timeout(BOUND):
            connection = await api.factory(hosts(api.url, port), **ROUND).create_connection()
            session = await connection.create_session()
            await (await session.create_producer(api.queue())).send(TextMessage("one"))
            await connection.close()
    assert await api.left() == ["one"]


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.__name__)
async def test_after_a_loss_a_first_host_that_does_not_welcome_costs_a_fraction(
    api: Api, host: Callable[[], Any]
) -> None:
    api.start_broker()
    with EmbeddedBroker() as first, Relay(first.port) as relay, host() as port:
        url = hosts(api.broker.url, relay.port)
        connection = await api.factory(url, **ROUND).create_connection()
        session = await connection.create_session()
        producer = await session.create_producer(api.queue())
        relay.forward_to(port)
        relay.cut()
        async with asyncio.timeout(BOUND):
            await producer.send(TextMessage("one"))
            await connection.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Api, "url", api.broker.url)
            assert await api.left() == ["one"]


async def test_a_client_finds_a_broker_that_welcome_has_named(api: Api) -> None:
    """Its URL names the first one alone."""
    second = api.start_broker()
    with EmbeddedBroker() as first, following_host() as port:
        services = first.server.shard.services
        services.settings = replace(services.settings, peers=(f"127.0.0.1:{port}", f"127.0.0.1:{second.port}"))
        connection = await api.factory(first.url, **ROUND).create_connection()
        session = await connection.create_session()
        producer = await session.create_producer(api.queue())
        first.stop()
        async with asyncio.timeout(BOUND):
            await producer.send(TextMessage("one"))
            assert connection._engine.terms.peer == ("127.0.0.1", second.port)
            await connection.close()


@asynccontextmanager
async def serving(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[int]:
    """The port of a host whose connections are served by a function. In the end all its clients have to be gone."""
    tasks: list[asyncio.Task[Any]] = []

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        async with asyncio.timeout(BOUND):
            await asyncio.gather(*tasks)


@asynccontextmanager
async def slow_broker(answer: asyncio.Event) -> AsyncIterator[int]:
    """The port of a broker that welcomes when the event is set."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = WireConnection("broker")
        while data := await reader.read(4096):
            for command in wire.receive_data(data):
                if command[0] == Command.HELLO:
                    await answer.wait()
                    wire.send(Command.WELCOME, 1, "slow", "i", "c1", 0, {}, {})
                elif command[0] in (Command.GOODBYE, Command.OPEN_SESSION):
                    wire.send(Command.OK, command[1], None)
            writer.write(wire.data_to_send())

    async with serving(serve) as port:
        yield port


async def test_an_overtaken_host_may_still_welcome_the_client_first(api: Api) -> None:
    answer, asked = asyncio.Event(), asyncio.Event()

    async def second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()

    async with serving(second) as port, slow_broker(answer) as slow:
        url = f"sievemq://127.0.0.1:{slow},127.0.0.1:{port}"
        connecting = api.task(api.factory(url, connect_timeout=60_000, reconnect=2_000).create_connection())
        async with asyncio.timeout(BOUND):
            await asked.wait()
            answer.set()
            connection = await connecting
            assert connection.get_meta_data().get_jms_provider_name()
            assert connection._engine.terms.peer == ("127.0.0.1", slow)
            await connection.close()


async def test_a_host_that_was_overtaken_keeps_no_connection(api: Api) -> None:
    broker = api.start_broker()
    with Relay(broker.port) as relay:
        relay.hold()
        async with asyncio.timeout(BOUND):
            connection = await api.factory(hosts(broker.url, relay.port), **ROUND).create_connection()
            relay.go_on()
            await api._until(lambda: relay.idle)
            # The broker may read the end of that connection later than the relay.
            await api._until(lambda: len(broker.server.shard.services.connections) == 1)
        assert len(broker.server.shard.services.lost) == 0
        await connection.close()


async def test_the_last_word_of_an_overtaken_attempt_does_not_end_a_repaired_connection(api: Api) -> None:
    """Both addresses are of one broker, which reads the HELLO by way of the first when it has welcomed the client."""
    broker = api.start_broker()
    with Relay(broker.port) as relay:
        connection = await api.factory(hosts(broker.url, relay.port), **ROUND).create_connection()
        session = await connection.create_session()
        consumer = await session.create_consumer(api.queue())
        await connection.start()
        relay.hold()
        relay.cut()
        async with asyncio.timeout(BOUND):
            await api._until(lambda: connection._engine.outages == 1 and not connection._engine.repairing)
            relay.go_on()
            await api._until(lambda: relay.idle)
            producer = await session.create_producer(api.queue())
            await producer.send(TextMessage("one"))
            assert await api.texts(consumer, 1) == ["one"]
        assert connection._engine.outages == 1
        await connection.close()


async def test_a_host_that_refuses_the_client_is_left(api: Api) -> None:
    """Also if it would keep the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with serving(serve) as port:  # which waits until the client has left
        with pytest.raises(JMSException, match="does not speak"):
            await api.factory(f"sievemq://127.0.0.1:{port}", **ROUND).create_connection()


# -- what one host answers --------------------------------------------------------------------------------------------


async def test_a_name_that_is_none_is_the_failure_of_that_host(api: Api) -> None:
    connection = await api.factory(hosts(api.url, "a..b"), reconnect=0).create_connection()
    await connection.close()
    with pytest.raises(InvalidURLException, match=r"'a\.\.b' is not the name of a host"):
        await api.factory("sievemq://a..b", reconnect="forever").create_connection()
    with pytest.raises(JMSException, match=r"'a\.\.b' is not the name of a host"):
        await api.factory("sievemq://a..b", reconnect="forever").create_context()


async def test_a_name_that_is_none_does_not_end_a_repair(api: Api) -> None:
    broker = api.start_broker()
    with Relay(broker.port) as relay:
        url = f"sievemq://127.0.0.1:{relay.port},a..b"
        connection = await api.factory(url, reconnect_max_delay=20, **ROUND).create_connection()
        accepted = relay.accepted
        relay.refuse()
        relay.cut()
        await api._until(lambda: relay.accepted > accepted + 1)
        relay.accept()
        async with asyncio.timeout(BOUND):
            session = await connection.create_session()
        await session.close()
        await connection.close()


async def test_wrong_credentials_at_one_host_do_not_keep_the_client_from_another(api: Api) -> None:
    with EmbeddedBroker(users={"ann": "secret"}) as other:
        connection = await api.factory(hosts(api.url, other.port), reconnect=0).create_connection("ann", "wrong")
        await connection.close()
        with pytest.raises(JMSSecurityException):
            await api.factory(other.url, reconnect="forever").create_connection("ann", "wrong")


def tls(certificates: Path, name: str = "server", **more: str) -> EmbeddedBroker:
    files = {"tls_cert": f"{name}.pem", "tls_key": f"{name}.key", **more}
    return EmbeddedBroker(settings={key: str(certificates / file) for key, file in files.items()})


@pytest.mark.parametrize("good_first", [False, True])
async def test_a_service_waits_for_the_good_host_whatever_the_other_shows(
    api: Api, certificates: Path, good_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One host has a certificate of a stranger, the other is down for a moment."""
    with absent_host() as port, tls(certificates, "stranger") as bad:
        ports = [port, bad.port] if good_first else [bad.port, port]
        url = "sievemqs://" + ",".join(f"127.0.0.1:{port}" for port in ports) + f"?tls_ca={certificates / 'ca.pem'}"
        caplog.set_level(logging.WARNING)
        connecting = api.task(api.factory(url, reconnect_max_delay=20, **ROUND).create_connection())
        await api._until(lambda: "trying again" in caplog.text)
        assert not connecting.done()
        good = EmbeddedBroker(
            port=port,
            settings={"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")},
        )
        with good:
            async with asyncio.timeout(BOUND):
                await (await connecting).close()


async def test_certificates_are_read_again_at_each_attempt(api: Api, certificates: Path, tmp_path: Path) -> None:
    trusted = shutil.copy(certificates / "ca.pem", tmp_path / "trusted.pem")
    with tls(certificates) as first, tls(certificates, "stranger") as second, Relay(first.port) as relay:
        url = f"sievemqs://127.0.0.1:{relay.port}?tls_ca={trusted}"
        connection = await api.factory(url, reconnect_max_delay=20, **ROUND).create_connection()
        shutil.copy(certificates / "other.pem", trusted)
        relay.forward_to(second.port)
        relay.cut()
        async with asyncio.timeout(BOUND):
            session = await connection.create_session()
        await session.close()
        await connection.close()


async def test_a_certificate_that_is_being_replaced_does_not_end_a_repair(
    api: Api, certificates: Path, tmp_path: Path
) -> None:
    trusted = shutil.copy(certificates / "ca.pem", tmp_path / "trusted.pem")
    with tls(certificates) as broker, Relay(broker.port) as relay:
        url = f"sievemqs://127.0.0.1:{relay.port}?tls_ca={trusted}"
        connection = await api.factory(url, reconnect_max_delay=20, **ROUND).create_connection()
        await asyncio.to_thread(Path(trusted).unlink)
        relay.cut()
        await api._until(lambda: "TLS cannot be set up" in str(connection._engine.outbox.cause))
        shutil.copy(certificates / "ca.pem", trusted)
        async with asyncio.timeout(BOUND):
            session = await connection.create_session()
        await session.close()
        await connection.close()


@pytest.mark.parametrize(("cert", "text"), [(None, "wants a certificate of the client"), ("stranger", "tls_cert")])
async def test_a_missing_or_refused_client_certificate_is_named_at_once(
    api: Api, certificates: Path, cert: str | None, text: str
) -> None:
    options: dict[str, Any] = {"tls_ca": str(certificates / "ca.pem"), "reconnect": 3_600_000}
    if cert is not None:
        options |= {"tls_cert": str(certificates / f"{cert}.pem"), "tls_key": str(certificates / f"{cert}.key")}
    with tls(certificates, tls_client_ca="ca.pem") as broker:
        async with asyncio.timeout(BOUND):
            with pytest.raises(JMSRuntimeException, match=text) as caught:
                await api.factory(broker.url, **options).create_context()
    assert caught.value.get_error_code() == "TLS"
    assert "it takes TLS" not in str(caught.value)
