"""A broker that sends the client to another one: the client follows, in both APIs, as far as that is safe."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.broker.store.sharing import DEADLINE, cluster

from sievemq import JMSException, JMSSecurityException
from sievemq_broker import EmbeddedBroker
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

from .both import SOON, Api

#: Seconds; without redirects nothing here ever ends.
BOUND = 60.0


class Redirector:
    """A host that answers each HELLO with a redirect to :attr:`url`.

    Attributes:
        hellos: what was said to it.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self.port = self._listener.getsockname()[1]
        self.url: object = f"sievemq{'s' if tls else ''}://127.0.0.1:{self.port}"
        self.hellos: list[tuple[object, ...]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                with suppress(OSError), sock:
                    self._answer(sock if self._tls is None else self._tls.wrap_socket(sock, server_side=True))

    def _answer(self, sock: socket.socket) -> None:
        with sock:
            wire, commands = WireConnection("broker"), []
            while not commands and (data := sock.recv(65_536)):
                commands = wire.receive_data(data)
            self.hellos += commands
            details = {"url": self.url, "shard": "b"}
            wire.send(Command.ERROR, 0, int(ErrorCode.REDIRECT), "it is elsewhere", details)
            sock.sendall(wire.data_to_send())
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def redirector(tls: ssl.SSLContext | None = None) -> Iterator[Redirector]:
    host = Redirector(tls)
    try:
        yield host
    finally:
        host.close()


def server_context(certificates: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    return context


async def test_the_client_follows_with_its_credentials_and_remembers_the_owner(api: Api) -> None:
    with EmbeddedBroker(users={"ann": "secret"}) as owner, redirector() as first, redirector() as second:
        first.url, second.url = f"sievemq://127.0.0.1:{second.port}", f"{owner.url}/ignored?prefetch=7"
        factory = api.factory(f"sievemq://127.0.0.1:{first.port}/space?reconnect=forever")
        connection = await factory.create_connection("ann", "secret")
        engine = connection._engine
        assert engine.terms.peer == ("127.0.0.1", owner.port)
        assert [hello[2:5] for hello in (*first.hellos, *second.hellos)] == [("space", "ann", "secret")] * 2
        assert engine.terms.hosts([("127.0.0.1", first.port)]) == (
            [("127.0.0.1", first.port), ("127.0.0.1", owner.port)], 1,
        )  # fmt: skip
        await connection.close()
        with pytest.raises(JMSSecurityException):
            await factory.create_connection("ann", "wrong")


async def test_brokers_that_do_not_agree_are_tried_four_times_a_round(api: Api) -> None:
    with redirector() as first, redirector() as second:
        first.url, second.url = f"sievemq://127.0.0.1:{second.port}", f"sievemq://127.0.0.1:{first.port}"
        with pytest.raises(JMSException, match="5 redirects in a row") as caught:
            await api.factory(f"sievemq://127.0.0.1:{first.port}?reconnect=0").create_connection()
        assert (len(first.hellos), len(second.hellos)) == (3, 2)
        assert caught.value.get_error_code() == "CONNECTION_FAILED"
        with EmbeddedBroker() as owner:  # a moment later they agree
            connecting = api.task(
                api.factory(
                    f"sievemq://127.0.0.1:{first.port}?reconnect=forever&reconnect_max_delay=20"
                ).create_connection()
            )
            await api._until(lambda: len(first.hellos) > 6)
            second.url = owner.url
            async with asyncio.timeout(BOUND):
                await (await connecting).close()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sievemqs://127.0.0.1:1", "redirects to sievemqs://127.0.0.1:1, write sievemqs:// in the URL"),
        ("http://127.0.0.1:1", "begins with sievemq://"),
        ("sievemq://:1", "names a host"),
        (None, "is not the URL of a broker"),
        ("sievemq://evil\x1b[2J", "is not a host and port"),
    ],
)
async def test_what_is_no_url_of_this_kind_is_not_followed(api: Api, url: object, text: str) -> None:
    with redirector() as host:
        host.url = url
        async with asyncio.timeout(BOUND):  # it is no passing failure
            with pytest.raises(JMSException) as caught:
                await api.factory(f"sievemq://127.0.0.1:{host.port}?reconnect=3600000").create_connection()
        assert text in str(caught.value)
        assert "\x1b" not in str(caught.value)
        assert caught.value.get_error_code() == "REDIRECT"


async def test_a_client_with_tls_is_not_sent_to_a_host_without(api: Api, certificates: Path) -> None:
    with redirector(server_context(certificates)) as host, EmbeddedBroker() as plain:
        host.url = plain.url
        url = f"sievemqs://127.0.0.1:{host.port}?tls_ca={certificates / 'ca.pem'}&reconnect=3600000"
        async with asyncio.timeout(BOUND):
            with pytest.raises(JMSException, match="which has no TLS; the client does not follow"):
                await api.factory(url).create_connection()


@pytest.mark.parametrize("to", ["127.0.0.1", "127.0.0.2"])
async def test_the_certificate_is_checked_for_the_new_name(api: Api, certificates: Path, to: str) -> None:
    files = {
        "tls_cert": str(certificates / "server.pem"),
        "tls_key": str(certificates / "server.key"),
        "insecure": True,
    }
    with redirector(server_context(certificates)) as host, EmbeddedBroker(host="0.0.0.0", settings=files) as owner:
        host.url = f"sievemqs://{to}:{owner.port}"
        url = f"sievemqs://127.0.0.1:{host.port}?tls_ca={certificates / 'ca.pem'}&reconnect=3600000"
        async with asyncio.timeout(BOUND):
            if to == "127.0.0.1":
                await (await api.factory(url).create_connection()).close()
            else:
                with pytest.raises(JMSException, match=r"127\.0\.0\.2.*TLS") as caught:
                    await api.factory(url).create_connection()
                assert caught.value.get_error_code() == "TLS"


async def test_a_redirect_to_a_host_that_is_down_is_tried_again(api: Api) -> None:
    with EmbeddedBroker() as owner, redirector() as host:
        with socket.create_server(("127.0.0.1", 0)) as down:
            host.url = f"sievemq://127.0.0.1:{down.getsockname()[1]}"
        connecting = api.task(
            api.factory(f"sievemq://127.0.0.1:{host.port}?reconnect=forever&reconnect_max_delay=20").create_connection()
        )
        await api._until(lambda: len(host.hellos) > 2)
        host.url = owner.url
        async with asyncio.timeout(BOUND):
            await (await connecting).close()


async def test_the_faster_of_two_redirects_wins(api: Api) -> None:
    with EmbeddedBroker() as owner, redirector() as first, redirector() as second:
        first.url, second.url = f"sievemq://127.0.0.1:{second.port}", owner.url
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        connection = await api.factory(f"sievemq://{hosts}").create_connection()
        assert connection._engine.terms.peer == ("127.0.0.1", owner.port)
        await connection.close()


# -- a cluster ------------------------------------------------------------------------------------------------------


async def test_a_connection_is_resumed_behind_a_redirect_and_nothing_is_lost_or_doubled(api: Api) -> None:
    """The owner ends; the configured broker redirects the client to the next one."""
    with cluster() as (first, owner, spare):
        factory = api.factory(f"{first.url}/space?reconnect=forever&reconnect_max_delay=20&send_confirm=never")
        connection = await factory.create_connection()
        assert connection._engine.terms.peer == ("127.0.0.1", owner.port)
        await connection.start()
        session = await connection.create_session(api.CLIENT_ACKNOWLEDGE)
        producer, consumer = await session.create_producer(api.queue()), await session.create_consumer(api.queue())
        for number in range(20):
            await producer.send(session.create_text_message(str(number)))
        done = [await consumer.receive(SOON) for _ in range(10)]
        await done[-1].acknowledge()
        held = [await consumer.receive(SOON) for _ in range(3)]
        await asyncio.to_thread(owner.stop)
        for number in range(20, 25):
            await producer.send(session.create_text_message(str(number)))
        await asyncio.to_thread(spare.wait_until_serving, DEADLINE)
        async with asyncio.timeout(BOUND):
            rest = [await consumer.receive(SOON) for _ in range(15)]
        assert [message.get_text() for message in (*done, *rest)] == [str(number) for number in range(25)]
        assert [message.get_text() for message in held] == ["10", "11", "12"]
        assert all(message.get_jms_redelivered() for message in rest[:3]), "these were never acknowledged"
        assert connection._engine.terms.peer == ("127.0.0.1", spare.port)
        with pytest.raises(JMSException, match="repaired since"):
            await rest[-1].acknowledge()
        await rest[-1].acknowledge()
        assert await consumer.receive_no_wait() is None
        await connection.close()


async def test_a_temporary_destination_of_another_shard_is_none_here(api: Api) -> None:
    """A reply cannot cross a namespace: it is sent where its address is unknown."""
    with cluster() as (first, owner, _):
        mine = await api.factory(f"{first.url}/mine?reconnect=forever").create_context()
        theirs = await api.factory(f"{first.url}/space?reconnect=forever").create_context()
        assert {theirs._connection._engine.terms.peer[1]} == {owner.port}
        reply_to = await theirs.create_temporary_queue()
        with pytest.raises(JMSException) as caught:
            await mine.create_producer().send(reply_to, "hello")
        assert caught.value.get_error_code() == "INVALID_DESTINATION"
        await mine.close()
        await theirs.close()
