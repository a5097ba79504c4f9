"""Where a broker with test control finds this kit: the entry point of ``sievemq.test_control``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sievemq_broker.clock import AdjustableClock
from sievemq_broker.config import Settings
from sievemq_broker.server.server import Server
from sievemq_testing.broker import TestBroker

if TYPE_CHECKING:  # the first request needs it, not the start
    from sievemq_broker.server.http.api.declare import Endpoint


class HostedBroker(TestBroker):
    """The verbs of a test broker, over a server that its process runs.

    Args:
        settings: of the process.
        clock: of its server.
    """

    def __init__(self, settings: Settings, clock: AdjustableClock) -> None:
        super().__init__(settings=settings, clock=clock)

    def make(self, on_failure: Callable[[], None]) -> Server:
        """The server; calls reach it as soon as it serves, and until it ends."""
        server = self._make_server(on_failure)
        server.when_serving(lambda: self._attend(server))
        server.on_stop.insert(0, self._ended)
        return server

    async def _ended(self) -> None:
        self._leave()


def make_server(settings: Settings, clock: AdjustableClock, on_failure: Callable[[], None]) -> Server:
    """See :class:`sievemq_broker.server.test_control.Kit`."""
    return HostedBroker(settings, clock).make(on_failure)


def endpoints() -> Sequence[Endpoint]:
    """See :class:`sievemq_broker.server.test_control.Kit`."""
    from sievemq_testing.control.routes import routes

    return routes.endpoints
