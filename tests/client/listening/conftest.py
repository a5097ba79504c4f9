"""Applications of listeners in both APIs: a test that takes `world` runs twice."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

import sievemq
import sievemq.aio
from sievemq_broker.domain.broker import Broker
from sievemq_testing import BrokerClock, TestBroker, TestNamespace

#: Seconds for what must come.
SOON = 60


class World:
    """One API.

    Attributes:
        context: its class of contexts.
        awaits: True in asyncio.
    """

    def __init__(self, name: str, namespace: TestNamespace) -> None:
        self.awaits = name == "aio"
        self.namespace = namespace
        self.context = sievemq.aio.JMSContext if self.awaits else sievemq.JMSContext

    def app(self, **options: Any) -> Any:
        kind = sievemq.aio.Listeners if self.awaits else sievemq.Listeners
        return kind(self.namespace.url, **options)

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method that waits."""
        if self.awaits:
            return await method(*arguments)
        return await asyncio.to_thread(method, *arguments)

    @asynccontextmanager
    async def running(self, app: Any) -> AsyncIterator[Any]:
        await self.call(app.start)
        try:
            yield app
        finally:
            await self.call(app.stop)

    async def until(self, assertion: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Wait for an assertion of the test kit."""
        return await asyncio.to_thread(assertion, *arguments, within=SOON, **keywords)

    async def consumed(self, queue: str = "orders", count: int = 1) -> Any:
        return await self.until(self.namespace.queue(queue).assert_consumed, count=count)

    async def dead(self, queue: str = "orders", count: int = 1, reason: str | None = None) -> Any:
        return await self.until(self.namespace.queue(queue).assert_dead_letters, count=count, reason=reason)

    async def scheduled(self, count: int = 1, queue: str = "orders") -> None:
        """Wait until so many messages wait for the end of a delay."""
        view = self.namespace.queue(queue)

        def there(broker: Broker) -> bool:
            found = view._destination(broker)
            return found is not None and len(found.scheduled) == count

        await asyncio.to_thread(self.namespace.broker.wait_for, there, SOON)

    async def delete(self, address: str) -> None:
        """Delete a destination that has consumers, as an administrator."""
        name = self.namespace.name
        await asyncio.to_thread(self.namespace.broker.call, lambda broker: broker.namespaces[name].delete(address))

    async def until_ending(self, app: Any) -> None:
        """Wait until the application has ended by itself."""
        if self.awaits:
            await asyncio.wait_for(app._ended(), SOON)
        else:
            thread = threading.Thread(target=app._ended, daemon=True)
            thread.start()
            await asyncio.to_thread(thread.join, SOON)
            assert not thread.is_alive()

    async def advance(self, clock: BrokerClock, step: timedelta) -> None:
        await asyncio.to_thread(lambda: clock.advance(step))

    async def got(self, result: Any) -> Any:
        """The result of a call of the API in a listener."""
        return await result if inspect.isawaitable(result) else result


@pytest.fixture(params=["blocking", "aio"])
def world(request: pytest.FixtureRequest, sievemq_namespace: TestNamespace) -> World:
    return World(request.param, sievemq_namespace)


@pytest.fixture
def own_broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker
