"""The broker as a whole."""

from __future__ import annotations

import time
from typing import Any

from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.server.http.api import answers
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.rights import caller
from sievemq_broker.server.http.api.slices import in_slices
from sievemq_broker.server.watch.counts import Counts, queues_at
from sievemq_broker.session.rights import Verb
from sievemq_broker.version import version

__all__ = ["counters_of", "routes"]

routes = Routes("Broker")


@routes.add("GET", "/broker", None, answers.BrokerInfo)
async def get_broker(call: Call[Any, Any]) -> answers.BrokerInfo:
    """The broker and its totals.

    Totals are those of what the caller may view; memory is said to who may view everything.
    """
    server = call.server
    identity = caller(call.scope)
    everything = identity.may(Verb.VIEW, "*", "*")
    counts = Counts()
    held = answers.Holdings(ready=0, in_flight=0, scheduled=0, bytes=0)
    spaces = [space for space in server.broker.namespaces.values() if identity.rights.enters(space.name)]
    destinations = consumers = 0
    latest = answers.Rates(in_rate=0.0, out_rate=0.0)
    for space in spaces:
        async for destination in in_slices(list(space.destinations.values())):
            if not everything and not identity.may(Verb.VIEW, space.name, destination.label):
                continue
            destinations += 1
            consumers += _add(destination, counts, held)
            in_rate, out_rate = call.management.sampler.rates(destination)
            latest.in_rate += in_rate
            latest.out_rate += out_rate
    if everything:
        for ended in list(server.ended.counts.values()):
            for name in Counts.__slots__:
                setattr(counts, name, getattr(counts, name) + getattr(ended, name))
        latest = server_rates(call)
    connections = [
        connection
        for connection in server.services.connections.values()
        if identity.may(Verb.VIEW, connection.namespace.name, "*")
    ]
    waiting = [connection.stalls for connection in connections if connection.stalls]
    return answers.BrokerInfo(
        version=version(),
        incarnation=server.services.settings.incarnation,
        phase=server.phase.value,
        url=server.url,
        http_url=server.http_url,
        durable=server.services.settings.durable,
        now=call.now,
        uptime_seconds=round(time.time() - server.started_at, 3) if server.started_at else 0.0,
        clock_offset_ms=server.clock.offset,
        blocked=server.services.blocked,
        blocked_connections=len(waiting),
        blocked_since=min((stall.since for stalls in waiting for stall in stalls.values()), default=None),
        memory=answers.Memory(bytes=server.memory.measure(), limit=server.memory.limit) if everything else None,
        namespaces=len(spaces),
        destinations=destinations,
        connections=len(connections),
        consumers=consumers,
        messages=held,
        totals=counters_of(counts),
        rates=answers.Rates(in_rate=round(latest.in_rate, 1), out_rate=round(latest.out_rate, 1)),
        user=identity.user,
    )


def server_rates(call: Call[Any, Any]) -> answers.Rates:
    """Messages per second in all, at the last look."""
    latest = call.management.sampler.latest
    return answers.Rates(in_rate=round(latest.in_rate, 1), out_rate=round(latest.out_rate, 1))


def counters_of(counts: Counts) -> answers.Counters:
    """Counts as they are shown."""
    return answers.Counters(
        enqueued=counts.enqueued,
        delivered=counts.delivered,
        acknowledged=counts.acknowledged,
        redelivered=counts.redelivered,
        expired=counts.expired,
        dead_lettered=counts.dead_lettered,
        removed=counts.removed,
        published=counts.published,
    )


def _add(destination: Queue | Topic, counts: Counts, held: answers.Holdings) -> int:
    counts.add(destination)
    queues = queues_at(destination)
    consumers = 0
    for queue in queues:
        if queue is not destination:
            counts.add(queue)
        held.ready += queue.depth
        held.in_flight += queue.in_flight
        held.scheduled += len(queue.scheduled)
        held.bytes += queue.bytes
        consumers += len(queue.consumers)
    return consumers
