"""Subscriptions of a namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from sievemq_broker.domain import management
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.topic import Subscription, Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.brokers import counters_of
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import LAST, Order, by_age, decode_cursor, name_matcher, page_of
from sievemq_broker.server.http.errors import not_found
from sievemq_broker.server.http.tasks import each, run
from sievemq_broker.server.watch.counts import Counts, age_of, waits_since
from sievemq_broker.session.rights import Verb

routes = Routes("Subscriptions")

_PATH = "/namespaces/{ns}/subscriptions"

_Row = tuple[tuple[str, str, str, int], Subscription]


@routes.add("GET", _PATH, None, answers.Subscriptions, query=requests.ListSubscriptions)
async def list_subscriptions(call: Call[requests.ListSubscriptions, Any]) -> answers.Subscriptions:
    """Subscriptions to topics: by topic, client id and name unless `sort` is given. Those without a name are one for
    each consumer."""
    query, space = call.query, call.namespace()
    fits = name_matcher(query.like)
    only, totals = _ONLY[query.only], answers.Totals()

    def keep(row: _Row) -> bool:
        found = row[1]
        return (
            query.durable in (None, found.durable)
            and query.client_id in (None, found.client_id)
            and any(map(fits, (found.name or "", found.client_id or "", found.topic.label.partition(":")[2])))
            and bool(only(found))
        )

    def add(row: _Row) -> None:
        queue = row[1].queue
        totals.add(queue.depth, queue.in_flight, len(queue.scheduled), queue.bytes, len(queue.consumers))

    order: Order[_Row] = Order(query.sort, _TEXTS, _FIGURES, lambda row: row[0], tuple[str, str, str, int])
    chosen, total, more = await page_of(
        call.server,
        await run(call.server, partial(_rows, call, space)),
        order.place,
        decode_cursor(query.cursor, order.kind),
        query.limit,
        keep,
        add,
    )
    shown = await each(call.server, chosen, lambda row: _show(call, row[1]))
    return answers.Subscriptions(subscriptions=shown, total=total, totals=totals, next=more)


@routes.add("DELETE", _PATH + "/{client_id}/{name}", None, answers.Touched, query=requests.DryRun)
async def delete_subscription(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """Delete a durable subscription with its messages; counts are those of its messages.

    Refused while it has a consumer or messages that are not acknowledged."""
    space = call.namespace()
    client_id, name = call.path["client_id"], call.path["name"]
    durable = space.subscriptions.durable
    found = durable.get((client_id, name))
    if found is None and client_id == "-":
        found = durable.get((None, name))
    if found is None or not call.identity.may(Verb.VIEW, space.name, found.topic.label):
        raise not_found(
            f"namespace {space.name!r} has no durable subscription {name[:200]!r} "
            + ("without a client id" if client_id == "-" else f"of client id {client_id[:200]!r}"),
            client_id=client_id[:300],
            name=name[:300],
        )
    call.identity.require(Verb.MANAGE, space.name, found.topic.label)
    messages = found.queue.depth + len(found.queue.scheduled)
    if not call.query.dry_run:
        if messages > management.DROPPED_AT_ONCE and not found.active and not found.queue.in_flight:
            await run(call.server, partial(management.purge, found.queue, management.Choice()))
        space.unsubscribe(found.client_id, name)
        call.server.turn.worked()
    return answers.Touched.of(messages, call.query.dry_run)


_ONLY: Final[Mapping[str | None, Callable[[Subscription], object]]] = {
    None: lambda _: True,
    "offline": lambda found: not found.active,
    "waiting": lambda found: found.queue.depth,
    "in_flight": lambda found: found.queue.in_flight,
}
_TEXTS: Final[Mapping[str, Callable[[_Row], str]]] = {
    "topic": lambda row: row[0][0],
    "name": lambda row: row[1].name or LAST,
    "client_id": lambda row: row[1].client_id or LAST,
}
_FIGURES: Final[Mapping[str, Callable[[_Row], float]]] = {
    "depth": lambda row: row[1].queue.depth,
    "oldest": lambda row: by_age(waits_since(row[1].queue)),
    "in_flight": lambda row: row[1].queue.in_flight,
    "bytes": lambda row: row[1].queue.bytes,
    "consumers": lambda row: len(row[1].queue.consumers),
}


def _rows(call: Call[requests.ListSubscriptions, Any], space: Namespace, now: int, budget: Budget) -> Task[list[_Row]]:
    topic, rows = call.query.topic, list[_Row]()
    for destination in list(space.destinations.values()):
        if budget.spent:
            yield
        budget.spend(1)
        label = destination.label
        if not isinstance(destination, Topic) or (topic is not None and label != _topic(topic)):
            continue
        if call.identity.may(Verb.VIEW, space.name, label):
            for number, found in enumerate(list(destination.subscriptions)):
                if budget.spent:
                    yield
                budget.spend(1)
                number = 0 if found.name is not None else number
                rows.append(((label, found.client_id or "", found.name or "", number * 2 + found.durable), found))
    return rows


def _topic(name: str) -> str:
    return name if name.startswith(("topic:", "temporary-topic:")) else f"topic:{name}"


def _show(call: Call[Any, Any], found: Subscription) -> answers.Subscription:
    queue, condition = found.queue, found.condition
    counts = Counts()
    counts.add(queue)
    return answers.Subscription(
        namespace=found.topic.place.namespace,
        topic=found.topic.label,
        name=found.name,
        client_id=found.client_id,
        durable=found.durable,
        shared=found.shared,
        no_local=found.no_local,
        active=found.active,
        selector=None if condition is None else condition.text,
        dialect=None if condition is None else str(condition.dialect),
        depth=queue.depth,
        in_flight=queue.in_flight,
        scheduled=len(queue.scheduled),
        bytes=queue.bytes,
        fill=round(queue.fill, 4) if queue.policy.limited else None,
        oldest_ms=age_of(waits_since(queue), call.now),
        oldest_in_flight_ms=age_of(queue.held_since, call.now),
        consumers=len(queue.consumers),
        paused=queue.paused,
        attention=call.server.attention.marks(queue),
        counters=counters_of(counts),
        may=call.identity.verbs(found.topic.place.namespace, found.topic.label),
    )
