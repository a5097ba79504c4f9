"""All endpoints together, over one server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.server.http.api import (
    actions,
    brokers,
    connections,
    consumers,
    dead_letters,
    destinations,
    events,
    messages,
    namespaces,
    selectors,
    subscriptions,
    taps,
    whoami,
)
from sievemq_broker.server.http.api.router import Api

if TYPE_CHECKING:
    from sievemq_broker.server.http.api.hub import Hub
    from sievemq_broker.server.http.api.series import Sampler
    from sievemq_broker.server.server import Server

__all__ = ["ROUTES", "make_api"]

ROUTES = tuple(
    module.routes
    for module in (
        brokers,
        whoami,
        namespaces,
        destinations,
        messages,
        actions,
        consumers,
        subscriptions,
        taps,
        dead_letters,
        connections,
        selectors,
        events,
    )
)


def make_api(server: Server, sampler: Sampler, hub: Hub) -> Api:
    """The API of one server."""
    return Api(server, [endpoint for routes in ROUTES for endpoint in routes.endpoints], sampler, hub)
