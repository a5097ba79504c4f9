"""Consumers of a destination, with their selectors and what those let through."""

from __future__ import annotations

from functools import partial
from typing import Any

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.namespace import Destination
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.connections import connection_number
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import decode_cursor, page_of
from sievemq_broker.server.http.errors import not_found
from sievemq_broker.server.http.tasks import each, run
from sievemq_broker.server.watch.counts import age_of
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Verb
from sievemq_core.errors import ErrorCode

routes = Routes("Consumers")

_PATH = "/namespaces/{ns}/destinations/{address}/consumers"

_Row = tuple[int, Peer, Consumer]


@routes.add("GET", _PATH, Verb.VIEW, answers.Consumers, query=requests.Page)
async def list_consumers(call: Call[requests.Page, Any]) -> answers.Consumers:
    """Consumers of a queue, or of a topic's subscriptions, by age of their connections.

    `matched` of `examined` messages met the selector since it came into use there.
    """
    destination = call.destination()
    rows = await run(call.server, partial(_rows, call, destination))
    after = decode_cursor(call.query.cursor, tuple[int, int])
    chosen, total, more = await page_of(call.server, rows, lambda row: (row[0], row[2].id), after, call.query.limit)
    shown = await each(call.server, chosen, lambda row: _show(call, row[1], row[2], destination))
    return answers.Consumers(consumers=shown, total=total, next=more)


@routes.add("DELETE", _PATH + "/{id}", Verb.MANAGE, answers.Touched, query=requests.DryRun)
async def close_consumer(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """Close a consumer and inform its client. What it holds stays with its session until that acknowledges or ends."""
    destination = call.destination()
    dry_run = call.query.dry_run
    for _, connection, consumer in await run(call.server, partial(_rows, call, destination)):
        if _identifier(connection, consumer) == call.path["id"]:
            if not dry_run:
                consumer.expel(ErrorCode.CLOSED_BY_ADMINISTRATOR, "closed by an administrator", call.now)
                call.server.turn.worked()
            return answers.Touched.of(1, dry_run)
    raise not_found(f"{destination.label} has no consumer {call.path['id'][:200]!r}", id=call.path["id"][:300])


def _identifier(connection: Peer, consumer: Consumer) -> str:
    return f"{connection.member.id}.{consumer.id}"


def _rows(call: Call[Any, Any], destination: Destination, now: int, budget: Budget) -> Task[list[_Row]]:
    space, rows = call.namespace(), list[_Row]()
    for connection in list(call.server.shard.services.connections.values()):
        if budget.spent:
            yield
        deliveries = connection.deliveries
        budget.spend(1 + len(deliveries.consumers))
        if connection.namespace is space:
            place = connection_number(connection.member.id)
            rows += [
                (place, connection, consumer)
                for number, consumer in deliveries.consumers.items()
                if number not in deliveries.retired and consumer.source.place.destination == destination.label
            ]
    return rows


def _show(call: Call[Any, Any], connection: Peer, consumer: Consumer, destination: Destination) -> answers.Consumer:
    subscription = destination.subscription_of(consumer.source) if isinstance(destination, Topic) else None
    if subscription is None:
        condition = consumer.view.condition
        matched, examined = consumer.source.matched(consumer.view)
        if condition is None:
            matched = examined = consumer.source.enqueued
    else:
        condition = subscription.condition
        matched, examined = subscription.queue.enqueued, subscription.topic.published - subscription.since
    return answers.Consumer(
        id=_identifier(connection, consumer),
        connection=connection.member.id,
        consumer=consumer.id,
        namespace=connection.namespace.name,
        address=destination.label,
        subscription=None if subscription is None else subscription.name,
        client_id=connection.member.client_id,
        user=connection.member.identity.user,
        peer=connection.address,
        selector=None if condition is None else condition.text,
        dialect=None if condition is None else str(condition.dialect),
        credit=consumer.credit,
        in_flight=consumer.unacknowledged,
        delivered=consumer.tag,
        acknowledged=consumer.acknowledged,
        waiting=consumer.waiting,
        congested=connection.out.congested,
        slow_since=call.server.shard.slow_consumers.slow.get(consumer),
        oldest_ms=age_of(consumer.held_since, call.now),
        idle_ms=age_of(consumer.idle_since, call.now),
        matched=matched,
        examined=examined,
        attention=call.server.attention.marks(consumer),
        match_ratio=round(matched / examined, 4) if examined else None,
    )
