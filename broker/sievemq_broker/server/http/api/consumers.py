"""Consumers, with their selectors and what those let through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.connections import connection_number, names_of
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import (
    LAST,
    PLACE_UNITS,
    Order,
    by_age,
    decode_cursor,
    encode_cursor,
    name_matcher,
    page_of,
)
from sievemq_broker.server.http.api.shown import Seen, show_messages
from sievemq_broker.server.http.errors import not_found
from sievemq_broker.server.http.tasks import each, run
from sievemq_broker.server.watch.counts import age_of
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Verb
from sievemq_core.errors import ErrorCode
from sievemq_core.message.destination import parse_address

routes = Routes("Consumers")

_PATH = "/namespaces/{ns}/destinations/{address}/consumers"


class _Row(NamedTuple):
    """A consumer and its connection."""

    connection: Peer
    consumer: Consumer

    @property
    def id(self) -> str:
        return f"{self.connection.member.id}.{self.consumer.id}"

    @property
    def address(self) -> str:
        return self.consumer.source.place.destination

    @property
    def place(self) -> tuple[int, int]:
        """Its place among all, in the order in which their connections were opened."""
        return connection_number(self.connection.member.id), self.consumer.id


@routes.add("GET", _PATH, Verb.VIEW, answers.Consumers, query=requests.FindConsumers)
async def list_destination_consumers(call: Call[requests.FindConsumers, Any]) -> answers.Consumers:
    """Consumers of a queue, or of a topic's subscriptions.

    `matched` of `examined` messages met the selector since it came into use there.
    """
    label = call.destination().label
    wanted = requests.ListConsumers(namespace=call.namespace().name, destination=label)
    return await _list(call, wanted)


@routes.add("GET", "/consumers", None, answers.Consumers, query=requests.ListConsumers)
async def list_consumers(call: Call[requests.ListConsumers, Any]) -> answers.Consumers:
    """Consumers of the destinations that the caller may view."""
    await call.expect_here(call.query.namespace)
    return await _list(call, call.query)


@routes.add("GET", "/consumers/{id}", None, answers.Consumer)
async def get_consumer(call: Call[Any, Any]) -> answers.Consumer:
    """A consumer."""
    return _show(call, _the_row(call, Verb.VIEW))


@routes.add("GET", "/consumers/{id}/messages", None, answers.Messages, query=requests.Page)
async def list_held_messages(call: Call[requests.Page, Any]) -> answers.Messages:
    """The messages that a consumer holds: delivered to it, and neither acknowledged nor returned. Oldest first."""
    row, limit = _the_row(call, Verb.BROWSE), call.query.limit
    after = decode_cursor(call.query.cursor, int) or 0
    consumer = row.consumer
    first = min(max(consumer.base, after), consumer.tag)
    window = list(islice(consumer.window, first - consumer.base, first - consumer.base + limit))
    held = [Seen.of(entry) for entry in window if entry is not None]
    more = first + len(window) < consumer.tag
    return answers.Messages(
        messages=await run(call.server, lambda now, budget: show_messages(held, 0, budget)),
        next=encode_cursor(first + len(window)) if more and window else None,
    )


@routes.add("DELETE", _PATH + "/{id}", Verb.MANAGE, answers.Touched, query=requests.DryRun)
async def close_consumer(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """Close a consumer and inform its client. What it holds stays with its session until that acknowledges or ends."""
    destination, row = call.destination(), _find(call)
    if row is None or row.connection.namespace is not call.namespace() or row.address != destination.label:
        raise not_found(f"{destination.label} has no consumer {call.path['id'][:200]!r}", id=call.path["id"][:300])
    if not call.query.dry_run:
        row.consumer.expel(ErrorCode.CLOSED_BY_ADMINISTRATOR, "closed by an administrator", call.now)
        call.server.turn.worked()
    return answers.Touched.of(1, call.query.dry_run)


def _find(call: Call[Any, Any]) -> _Row | None:
    """The consumer of the path; None if there is none."""
    identifier, _, number = call.path["id"].rpartition(".")
    connection = call.server.shard.services.connections.get(identifier)
    if connection is None or not (number.isascii() and number.isdigit() and len(number) < 19):
        return None
    deliveries = connection.deliveries
    consumer = None if int(number) in deliveries.retired else deliveries.consumers.get(int(number))
    return None if consumer is None else _Row(connection, consumer)


def _the_row(call: Call[Any, Any], verb: Verb) -> _Row:
    """The consumer of the path.

    Raises:
        ApiError: 404, there is none, or none that the caller may view.
        RequestError: SECURITY, the caller must not do that with its destination.
    """
    row = _find(call)
    if row is None or not call.identity.may(Verb.VIEW, row.connection.namespace.name, row.address):
        raise not_found(f"there is no consumer {call.path['id'][:200]!r}", id=call.path["id"][:300])
    call.identity.require(verb, row.connection.namespace.name, row.address)
    return row


async def _list(call: Call[Any, Any], wanted: requests.ListConsumers) -> answers.Consumers:
    query: requests.FindConsumers = call.query
    fits = name_matcher(query.like)
    slow = call.server.shard.slow_consumers.slow
    only: Mapping[str | None, Callable[[_Row], object]] = {
        None: lambda _: True,
        "slow": lambda row: row.consumer in slow,
        "holding": lambda row: row.consumer.unacknowledged,
        "waiting": lambda row: row.consumer.waiting,
    }
    test, totals = only[query.only], answers.ConsumerTotals()

    def keep(row: _Row) -> bool:
        names = (row.id, row.address, row.consumer.selector or "", *names_of(row.connection))
        return (
            call.identity.may(Verb.VIEW, row.connection.namespace.name, row.address)
            and any(map(fits, names))
            and bool(test(row))
        )

    def add(row: _Row) -> None:
        totals.add(row.consumer.unacknowledged, row.consumer.tag, row.consumer.acknowledged)

    order: Order[_Row] = Order(query.sort, _TEXTS, _FIGURES, lambda row: row.place, tuple[int, int])
    chosen, total, more = await page_of(
        call.server,
        await run(call.server, partial(_rows, call, wanted)),
        order.place,
        decode_cursor(query.cursor, order.kind),
        query.limit,
        keep,
        add,
        lambda _: 2 * PLACE_UNITS,
    )
    shown = await each(call.server, chosen, partial(_show, call))
    return answers.Consumers(consumers=shown, total=total, totals=totals, next=more)


#: Texts and figures to sort by.
_TEXTS: Final[Mapping[str, Callable[[_Row], str]]] = {
    "client_id": lambda row: row.connection.member.client_id or LAST,
    "peer": lambda row: row.connection.address,
    "address": lambda row: row.address,
}
_FIGURES: Final[Mapping[str, Callable[[_Row], float]]] = {
    "opened": lambda row: row.place[0],
    "in_flight": lambda row: row.consumer.unacknowledged,
    "oldest": lambda row: by_age(row.consumer.held_since),
    "delivered": lambda row: row.consumer.tag,
    "acknowledged": lambda row: row.consumer.acknowledged,
    "credit": lambda row: row.consumer.credit,
}


def _rows(call: Call[Any, Any], wanted: requests.ListConsumers, now: int, budget: Budget) -> Task[list[_Row]]:
    """The consumers of a namespace, connection, client id or destination."""
    connections, rows = call.server.shard.services.connections, list[_Row]()
    label = None if wanted.destination is None else str(parse_address(wanted.destination))
    one = None if wanted.connection is None else connections.get(wanted.connection)
    for connection in list(connections.values()) if wanted.connection is None else filter(None, [one]):
        if budget.spent:
            yield
        deliveries = connection.deliveries
        budget.spend(1 + len(deliveries.consumers))
        if wanted.namespace in (None, connection.namespace.name) and wanted.client_id in (
            None,
            connection.member.client_id,
        ):
            rows += [
                _Row(connection, consumer)
                for number, consumer in deliveries.consumers.items()
                if number not in deliveries.retired and label in (None, consumer.source.place.destination)
            ]
    return rows


def _show(call: Call[Any, Any], row: _Row) -> answers.Consumer:
    connection, consumer = row
    destination = connection.namespace.destinations.get(row.address)
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
        id=row.id,
        connection=connection.member.id,
        consumer=consumer.id,
        namespace=connection.namespace.name,
        address=row.address,
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
        may=call.identity.verbs(connection.namespace.name, row.address),
        match_ratio=round(matched / examined, 4) if examined else None,
    )
