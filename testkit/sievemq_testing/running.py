"""Protocols of a test broker: running code on its thread, and waiting for its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sievemq_broker.domain.broker import Broker
from sievemq_broker.embedded import BrokerClock
from sievemq_broker.server.server import Server
from sievemq_core.durations import Seconds

P = ParamSpec("P")
R = TypeVar("R")


class Running(Protocol):
    """A broker on its own thread; :class:`~sievemq_testing.TestBroker` is one."""

    @property
    def server(self) -> Server:
        """The server; only its own thread may use it."""

    @property
    def clock(self) -> BrokerClock:
        """The broker's clock."""

    def call(self, function: Callable[Concatenate[Broker, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function with the domain, on the broker's thread."""

    def on_server(self, function: Callable[[Server], R]) -> R:
        """Call a function with the server, on the broker's thread."""

    def wait_for(self, look: Callable[[Broker], R], within: Seconds) -> R:
        """Wait until `look` returns a true value."""


class RunningNamespace(Protocol):
    """A namespace of such a broker; :class:`~sievemq_testing.TestNamespace` is one."""

    @property
    def name(self) -> str:
        """The namespace's name."""

    @property
    def broker(self) -> Running:
        """Its broker."""

    @property
    def destinations(self) -> list[str]:
        """Addresses of what exists there."""
