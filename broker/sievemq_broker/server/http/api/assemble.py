"""All endpoints together, and over one broker."""

from __future__ import annotations

from sievemq_broker.server import test_control
from sievemq_broker.server.http.api import (
    actions,
    attention,
    audit,
    brokers,
    charts,
    connections,
    consumers,
    dead_letters,
    definitions,
    destinations,
    events,
    live,
    messages,
    namespaces,
    refusals,
    selectors,
    shards,
    subscriptions,
    tail,
    taps,
    transfer,
    whoami,
)
from sievemq_broker.server.http.api.declare import Endpoint
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.api.operation import Operation

ROUTES = tuple(
    module.routes
    for module in (
        brokers,
        attention,
        whoami,
        namespaces,
        shards,
        destinations,
        charts,
        messages,
        transfer,
        tail,
        actions,
        consumers,
        subscriptions,
        taps,
        definitions,
        live,
        dead_letters,
        connections,
        refusals,
        selectors,
        audit,
        events,
    )
)


ENDPOINTS = tuple(endpoint for routes in ROUTES for endpoint in routes.endpoints)


def endpoints(with_test_control: bool) -> tuple[Endpoint, ...]:
    """What a broker answers: with test control also what the test kit has."""
    return (*ENDPOINTS, *test_control.load().endpoints()) if with_test_control else ENDPOINTS


def make_api(management: Management) -> list[Operation]:
    return [Operation(endpoint, management) for endpoint in endpoints(management.server.settings.test_control)]
