"""uvicorn inside the broker's loop: it gets a bound socket, and neither handles signals nor configures logging."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Generator
from typing import cast

import uvicorn

from sievemq_broker.server.http import protocol
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.app import make_app
from sievemq_broker.server.http.protocol import HEAD_BYTES, BufferedReads, PatientProtocol
from sievemq_broker.server.net.listener import Acceptor
from sievemq_broker.server.net.turn import Turn
from sievemq_broker.server.server import Server

#: Seconds that open requests may take at the end. Probes and scrapes are short; a stuck one must not hold it up.
GRACE_SECONDS = 1.0


class _Uvicorn(uvicorn.Server):
    """uvicorn without its hands on the process."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None, server: Server) -> None:
        super().__init__(config)
        self._tls = tls
        self._server = server
        self.ready = asyncio.Event()
        self.leaving = asyncio.Event()
        self.servers = []

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are the broker's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and report when requests are answered. uvicorn's own gives a TLS handshake a minute."""
        await self.lifespan.startup()
        order: dict[PatientProtocol, None] = {}
        server = self._server

        def turn() -> Turn | None:
            return server.turn if server.started_at else None

        def connect() -> BufferedReads:
            one = PatientProtocol(self.config, self.server_state, self.lifespan.state, order, turn)
            return BufferedReads(one, server.links, turn)

        for sock in sockets or ():
            acceptor = Acceptor(sock, connect, self._tls, protocol.HEAD_SECONDS)
            self.servers.append(cast("asyncio.Server", acceptor))
        self.started = True
        self.ready.set()

    def leave(self) -> None:
        """Have :meth:`serve` return soon."""
        self.should_exit = True
        self.leaving.set()

    async def main_loop(self) -> None:
        """Wait to be stopped; uvicorn's own loop polls ten times a second. Its Date header needs a tick each second."""
        while not self.leaving.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.leaving.wait(), 1.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close idle connections, let requests finish. uvicorn's own waits a tenth of a second however idle it is."""
        for server in self.servers:
            server.close()
        for server in self.servers:
            await server.wait_closed()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        end = time.monotonic() + GRACE_SECONDS
        while (state.connections or state.tasks) and time.monotonic() < end:  # noqa: ASYNC110  uvicorn has no event
            await asyncio.sleep(0.002)
        for task in state.tasks:
            task.cancel()


class HttpServer:
    """The management port of one server."""

    def __init__(self, server: Server, url: str) -> None:
        self._server = server
        self.management = Management(server, url)
        self._app = make_app(server, self.management)
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Answer requests on a bound socket; returns once it does.

        Args:
            tls: None for clear text.

        Raises:
            RuntimeError: uvicorn ended instead.
        """
        config = uvicorn.Config(
            self._app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # a client with X-Forwarded-For would choose the address that the throttle sees
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        config.load()
        self._uvicorn = _Uvicorn(config, tls, self._server)
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[sock]))
        ready = asyncio.create_task(self._uvicorn.ready.wait())
        await asyncio.wait({ready, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            self._task.result()
            raise RuntimeError("the HTTP server ended before it was ready")
        self._server.when_serving(self.management.start)

    async def stop(self) -> None:
        """Finish open requests, for GRACE_SECONDS at most, and end."""
        if self._uvicorn is not None and self._task is not None:
            await self.management.stop()  # streams end by themselves, not by being cut
            self._uvicorn.leave()
            await self._task
