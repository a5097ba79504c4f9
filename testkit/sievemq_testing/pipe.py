"""Client and broker of one process, joined by a pair of sockets that have no address: no port, no network.

The bytes, the broker and both clients are the same as over TCP; only how they meet differs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import sievemq
import sievemq.aio
from sievemq import Connection
from sievemq._engine import ClientConnection, EngineOptions
from sievemq.aio import Connection as AioConnection
from sievemq.aio.transport import Transport as AioTransport
from sievemq.aio.transport import wall_clock
from sievemq.blocking.transport import Transport
from sievemq.url import BrokerURL

if TYPE_CHECKING:
    from sievemq_testing.broker import TestBroker

__all__ = ["AioPipeFactory", "PipeFactory"]


def _options(url: BrokerURL, user: str | None, password: str | None) -> EngineOptions:
    return EngineOptions.from_url(url, user, password, "sievemq-testing pipe")


class PipeFactory(sievemq.ConnectionFactory):
    """A blocking ConnectionFactory whose connections never leave the process.

    Args:
        broker: where they lead.
        url: says namespace and options; its host is not used.
    """

    __slots__ = ("_broker",)

    def __init__(self, broker: TestBroker, url: str) -> None:
        super().__init__(url)
        self._broker = broker

    def create_connection(self, user_name: str | None = None, password: str | None = None) -> Connection:
        """A connection, stopped; see ConnectionFactory."""
        url = self._url
        engine = ClientConnection(_options(url, user_name, password), wall_clock)
        transport = Transport(engine, self._broker.open_pipe(), url.options.request_timeout)
        opened = engine.open()
        transport.start()
        try:
            transport.wait_at_most(opened, url.options.connect_timeout, f"{self._broker!r} says nothing")
        except BaseException:
            transport.close()
            raise
        return Connection(engine, transport)


class AioPipeFactory(sievemq.aio.ConnectionFactory):
    """The same for asyncio.

    Args:
        broker: where the connections lead.
        url: says namespace and options; its host is not used.
    """

    __slots__ = ("_broker",)

    def __init__(self, broker: TestBroker, url: str) -> None:
        super().__init__(url)
        self._broker = broker

    async def create_connection(self, user_name: str | None = None, password: str | None = None) -> AioConnection:
        """A connection, stopped; see ConnectionFactory."""
        url = self._url
        engine = ClientConnection(_options(url, user_name, password), wall_clock)
        loop = asyncio.get_running_loop()
        transport = AioTransport(engine, loop, url.options.request_timeout)
        await loop.create_connection(lambda: transport, sock=self._broker.open_pipe())
        try:
            await transport.wait_at_most(engine.open(), url.options.connect_timeout, f"{self._broker!r} says nothing")
        except BaseException:
            transport.abort()
            raise
        transport.keep_alive()
        return AioConnection(engine, transport)
