"""Types of the pytest plugin's fixtures that have no module of their own here, for annotations of tests."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol, Unpack, overload

from sievemq.aio import JMSContext
from sievemq.session_mode import SessionModeLike
from sievemq_broker.embedded import BrokerClock
from sievemq_testing.broker import BrokerOptions, TestBroker

__all__ = ["BrokerClock", "BrokerFactory", "ContextOpener"]


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
