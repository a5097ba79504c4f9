"""The API before its first request: its imports wait for that; the figures for charts are counted from the start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sievemq_broker.server.http.api.hub import Hub
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.api.series import Sampler

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from sievemq_broker.server.http.api.router import Api
    from sievemq_broker.server.server import Server

__all__ = ["LazyApi"]


class LazyApi:
    """An ASGI application that becomes the API when somebody asks.

    Args:
        server: the broker.
    """

    def __init__(self, server: Server) -> None:
        self._sampler = Sampler(server)
        self._hub = Hub(server, self._sampler)
        self._management = Management(server, self._sampler, self._hub)
        self._api: Api | None = None
        self._making = asyncio.Lock()

    def start(self) -> None:
        """Begin to count along."""
        self._sampler.start(self._hub.look)

    async def stop(self) -> None:
        """End the streams of events and the counting."""
        self._hub.end()
        await self._sampler.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        await (await self.ready())(scope, receive, send)

    async def ready(self) -> Api:
        """The API; made off the loop when it is first needed."""
        async with self._making:
            if self._api is None:
                self._api = await asyncio.get_running_loop().run_in_executor(None, self._make)
        return self._api

    def _make(self) -> Api:
        from sievemq_broker.server.http.api.assemble import make_api

        return make_api(self._management)
