"""All endpoints together, over one server."""

from __future__ import annotations

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
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.api.router import Api

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


def make_api(management: Management) -> Api:
    """The API of one server."""
    return Api(management, [endpoint for routes in ROUTES for endpoint in routes.endpoints])
