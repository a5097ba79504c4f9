"""Types of the pytest plugin's fixtures that have no module of their own here, for annotations of tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Protocol, Unpack, overload

from sievemq.aio import ConnectionFactory, JMSContext
from sievemq.aio.listening import Listeners as AioListeners
from sievemq.blocking.listening import Listeners
from sievemq.session_mode import SessionModeLike
from sievemq.url import parse_url
from sievemq_broker.embedded import BrokerClock
from sievemq_testing.broker import BrokerOptions, TestBroker

__all__ = ["BrokerClock", "BrokerFactory", "ContextOpener", "ListenersRunner", "Opener"]


class BrokerFactory(Protocol):
    """The fixture ``sievemq_broker_factory``."""

    def __call__(self, **options: Unpack[BrokerOptions]) -> TestBroker: ...


class ContextOpener(Protocol):
    """The fixture ``sievemq_aio``: opens contexts, with the arguments of ``ConnectionFactory.create_context``."""

    @overload
    def __call__(self, session_mode: SessionModeLike, /) -> AbstractAsyncContextManager[JMSContext]: ...

    @overload
    def __call__(self, *, session_mode: SessionModeLike | None = None) -> AbstractAsyncContextManager[JMSContext]: ...

    @overload
    def __call__(
        self, user_name: str | None, password: str | None, session_mode: SessionModeLike | None = None
    ) -> AbstractAsyncContextManager[JMSContext]: ...


class Opener:
    """The value of the fixture ``sievemq_aio``; a :class:`ContextOpener`.

    Args:
        url: of the test's namespace.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def __repr__(self) -> str:
        return f"<sievemq_aio: opens asyncio contexts at {parse_url(self._url)}>"

    @asynccontextmanager
    async def __call__(self, *arguments: Any, **keywords: Any) -> AsyncIterator[JMSContext]:
        async with ConnectionFactory(self._url).create_context(*arguments, **keywords) as context:
            yield context


class ListenersRunner:
    """The value of the fixture ``sievemq_listeners``.

    Args:
        url: of the test's namespace.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def __repr__(self) -> str:
        return f"<sievemq_listeners: runs applications at {parse_url(self._url)}>"

    @overload
    def __call__(self, application: Listeners) -> AbstractContextManager[Listeners]: ...

    @overload
    def __call__(self, application: AioListeners) -> AbstractAsyncContextManager[AioListeners]: ...

    def __call__(self, application: Any) -> Any:
        """The application runs while the block of a ``with`` does."""
        return self._awaited(application) if isinstance(application, AioListeners) else self._plain(application)

    @contextmanager
    def _plain(self, application: Listeners) -> Iterator[Listeners]:
        application.start(self._url)
        try:
            yield application
        finally:
            application.stop()

    @asynccontextmanager
    async def _awaited(self, application: AioListeners) -> AsyncIterator[AioListeners]:
        await application.start(self._url)
        try:
            yield application
        finally:
            await application.stop()
