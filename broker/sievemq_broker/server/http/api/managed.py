"""The interface through which the management API uses its broker; a server has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sievemq_broker.clock import Clock
    from sievemq_broker.config import Settings
    from sievemq_broker.domain.broker import Broker
    from sievemq_broker.server.net.link import Links
    from sievemq_broker.server.net.services import ServerServices
    from sievemq_broker.server.net.turn import Turn
    from sievemq_broker.server.server import Phase
    from sievemq_broker.server.watch.counts import Ended
    from sievemq_broker.server.watch.memory import Memory
    from sievemq_broker.server.watch.slow_consumers import SlowConsumers

__all__ = ["Managed"]


class Managed(Protocol):
    """A broker, as far as the API needs it."""

    @property
    def clock(self) -> Clock:
        """Its time."""

    @property
    def turn(self) -> Turn:
        """Its turns of the loop."""

    @property
    def broker(self) -> Broker:
        """The domain."""

    @property
    def services(self) -> ServerServices:
        """What its connections share."""

    @property
    def links(self) -> Links:
        """The transports of its connections."""

    @property
    def settings(self) -> Settings:
        """Checked settings."""

    @property
    def memory(self) -> Memory:
        """Its memory limit."""

    @property
    def slow_consumers(self) -> SlowConsumers:
        """Its slow consumers."""

    @property
    def ended(self) -> Ended:
        """Counts of deleted destinations."""

    @property
    def phase(self) -> Phase:
        """Whether it takes clients."""

    @property
    def started_at(self) -> float:
        """Seconds since 1970; 0 before its start."""

    @property
    def url(self) -> str:
        """Address for clients."""
