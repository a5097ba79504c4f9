"""The two APIs as a program of the model calls them: plain calls, whichever waits."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import sievemq
import sievemq.aio
from sievemq_broker import EmbeddedBroker


class BlockingWorld:
    """``sievemq``."""

    def connect(self, url: str, **options: Any) -> Any:
        """A connection."""
        return sievemq.ConnectionFactory(url, **options).create_connection()

    def acknowledge(self, message: Any) -> None:
        """Acknowledge a message and wait for the answer."""
        message.acknowledge()

    def advance(self, broker: EmbeddedBroker, seconds: int) -> None:
        """Move the clock; returns when clients have seen it."""
        broker.clock.advance(seconds=seconds)

    def close(self) -> None:
        """The end of a program."""


class AioWorld:
    """``sievemq.aio``, on a loop that turns only while something is called."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def connect(self, url: str, **options: Any) -> Any:
        """A connection, behind a proxy."""

        async def connect() -> Any:
            return await sievemq.aio.ConnectionFactory(url, **options).create_connection()

        return _Plain(self, self.run(connect()))

    def run(self, awaitable: Any) -> Any:
        """Let the loop turn until it is done."""

        async def wait() -> Any:
            return await asyncio.wait_for(awaitable, 60)

        return self.loop.run_until_complete(wait())

    def acknowledge(self, message: Any) -> None:
        """Acknowledge a message and wait for the answer; on the connection's loop, as everything (THR-06)."""

        async def acknowledge() -> None:
            result = message.acknowledge()
            if inspect.isawaitable(result):
                await result

        self.run(acknowledge())

    def advance(self, broker: EmbeddedBroker, seconds: int) -> None:
        """Move the clock; returns when clients have seen it."""

        async def advance() -> None:
            await broker.clock.advance(seconds=seconds)

        self.run(advance())

    def close(self) -> None:
        """The end of a program."""
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class _Plain:
    """An object of the asyncio API whose methods wait themselves."""

    def __init__(self, world: AioWorld, real: Any) -> None:
        self._world = world
        self._real = real

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **keywords: Any) -> Any:
            async def invoke() -> Any:
                result = value(*arguments, **keywords)
                return await result if inspect.isawaitable(result) else result

            result = self._world.run(invoke())
            return _Plain(self._world, result) if type(result).__module__.startswith("sievemq.aio") else result

        return call

    def __enter__(self) -> _Plain:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        async def collect() -> list[Any]:
            return [item async for item in self._real]

        return iter(self._world.run(collect()))
