"""What the API and the console show, as plain data: read from the domain at each request, never kept.

A message's content is not in it, nor are credentials.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.server.counts import queues_of
from sievemq_broker.version import version

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.server.server import Server
    from sievemq_broker.session.connection import BrokerConnection

__all__ = ["Row", "broker", "connections", "consumers", "destinations", "namespaces"]

Row: TypeAlias = dict[str, Any]


def broker(server: Server) -> Row:
    """The broker itself, with totals."""
    queues = list(queues_of(server.broker))
    return {
        "version": version(),
        "incarnation": server.services.settings.incarnation,
        "phase": server.phase.value,
        "url": server.url,
        "http_url": server.http_url,
        "durable": server.services.settings.durable,
        "uptime_seconds": round(time.time() - server.started_at, 3) if server.started_at else 0.0,
        "clock_offset_ms": server.clock.offset,
        "blocked": server.services.blocked,
        "memory": {"bytes": server.memory.measure(), "limit": server.memory.limit},
        "namespaces": len(server.broker.namespaces),
        "destinations": sum(len(space.destinations) for space in server.broker.namespaces.values()),
        "connections": len(server.links.open),
        "consumers": sum(len(queue.consumers) for queue in queues),
        "messages": {
            "ready": sum(queue.depth for queue in queues),
            "in_flight": sum(queue.in_flight for queue in queues),
            "scheduled": sum(len(queue.scheduled) for queue in queues),
            "bytes": sum(queue.bytes for queue in queues),
        },
    }


def namespaces(server: Server) -> list[Row]:
    """All namespaces."""
    spaces = sorted(server.broker.namespaces.items())
    clients = [connection.namespace.name for connection in server.services.connections.values()]
    return [
        {"name": name, "destinations": len(space.destinations), "connections": clients.count(name)}
        for name, space in spaces
    ]


def destinations(server: Server) -> Iterator[Row]:
    """Queues and topics by namespace and address; a topic with its subscriptions."""
    for space_name, space in sorted(server.broker.namespaces.items()):
        for address, destination in sorted(space.destinations.items()):
            row: Row = {"namespace": space_name, "destination": address}
            if isinstance(destination, Topic):
                subscriptions = [_subscription(subscription) for subscription in destination.subscriptions]
                row |= {"kind": "topic", "published": destination.published, "subscriptions": subscriptions}
                for name in ("depth", "in_flight", "scheduled", "bytes", "consumers"):
                    row[name] = sum(subscription[name] for subscription in subscriptions)
            else:
                row |= {"kind": "queue", **_queue(destination)}
            yield row


def _subscription(subscription: Any) -> Row:
    condition = subscription.condition
    return {
        "name": subscription.name,
        "client_id": subscription.client_id,
        "durable": subscription.durable,
        "shared": subscription.shared,
        "selector": None if condition is None else str(condition),
        **_queue(subscription.queue),
    }


def _queue(queue: Queue) -> Row:
    return {
        "depth": queue.depth,
        "in_flight": queue.in_flight,
        "scheduled": len(queue.scheduled),
        "bytes": queue.bytes,
        "consumers": len(queue.consumers),
        "paused": queue.paused,
        "enqueued": queue.enqueued,
        "delivered": queue.delivered,
        "acknowledged": queue.acknowledged,
        "redelivered": queue.redelivered,
        "expired": queue.expired,
        "dead_lettered": queue.dead_lettered,
    }


def connections(server: Server) -> Iterator[Row]:
    """Open connections, oldest first."""
    for connection in server.services.connections.values():
        yield {
            "id": connection.id,
            "peer": connection.peer,
            "namespace": connection.namespace.name,
            "user": connection.identity.user,
            "client_id": connection.client_id,
            "agent": connection.agent,
            "sessions": len(connection.sessions),
            "consumers": len(connection.consumers) - len(connection.retired),
            "unacknowledged": sum(consumer.unacknowledged for consumer in connection.consumers.values()),
            "congested": connection.outbox.paused,
        }


def consumers(server: Server) -> Iterator[Row]:
    """Open consumers, with their selectors."""
    for connection in server.services.connections.values():
        for consumer in _open(connection):
            subscription = consumer.subscription
            condition = consumer.view.condition if subscription is None else subscription.condition
            yield {
                "namespace": connection.namespace.name,
                "destination": consumer.queue.label if subscription is None else subscription.topic.label,
                "subscription": None if subscription is None else subscription.name,
                "selector": None if condition is None else str(condition),
                "connection": connection.id,
                "client_id": connection.client_id,
                "peer": connection.peer,
                "consumer": consumer.id,
                "credit": consumer.credit,
                "in_flight": consumer.unacknowledged,
                "delivered": consumer.tag,
                "acknowledged": consumer.acknowledged,
                "waiting": consumer.waiting,
            }


def _open(connection: BrokerConnection) -> Iterable[Consumer]:
    return [consumer for number, consumer in connection.consumers.items() if number not in connection.retired]
