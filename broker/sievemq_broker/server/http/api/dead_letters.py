"""Dead letters of a namespace: which queues hold some, where from, and why."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sievemq_broker.domain.namespace import Destination
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import Order, decode_cursor, name_matcher, page_of
from sievemq_broker.server.http.tasks import ROW, run
from sievemq_broker.session.rights import Verb
from sievemq_core.errors import SieveError
from sievemq_core.message import dead_letters as notes

routes = Routes("Dead letters")


@routes.add("GET", "/namespaces/{ns}/dead-letters", None, answers.DeadLetters, query=requests.ListDeadLetters)
async def list_dead_letters(call: Call[requests.ListDeadLetters, Any]) -> answers.DeadLetters:
    """Dead-letter queues that hold something, their messages grouped by origin and reason.

    Of each queue the first `examine` messages are read; of one that the caller may only view, none.
    """
    query, space = call.query, call.namespace()
    fits = name_matcher(query.like)

    def keep(destination: Destination) -> bool:
        return (
            destination.label.startswith(f"queue:{notes.PREFIX}")
            and isinstance(destination, Queue)
            and destination.depth > 0
            and fits(destination.label.partition(":")[2])
            and call.identity.may(Verb.VIEW, space.name, destination.label)
        )

    order: Order[Destination] = Order(
        query.sort,
        {"address": lambda queue: queue.label},
        {"depth": lambda queue: sum(each.depth for each in queue.queues)},
        lambda queue: queue.label,
        str,
    )
    chosen, total, more = await page_of(
        call.server,
        list(space.destinations.values()),
        order.place,
        decode_cursor(query.cursor, order.kind),
        query.limit,
        keep,
    )
    queues = await run(call.server, partial(_rows, call, chosen, query.examine))
    return answers.DeadLetters(queues=queues, total=total, next=more)


def _rows(
    call: Call[Any, Any], queues: list[Destination], examine: int, now: int, budget: Budget
) -> Task[list[answers.DeadLetterQueue]]:
    rows: list[answers.DeadLetterQueue] = []
    for queue in queues:
        assert isinstance(queue, Queue)
        if budget.spent:
            yield
        budget.spend(ROW)
        may_read = call.identity.may(Verb.BROWSE, queue.place.namespace, queue.label)
        rows.append((yield from _groups(call, queue, examine if may_read else 0, now, budget)))
    return rows


def _groups(
    call: Call[Any, Any], queue: Queue, examine: int, now: int, budget: Budget
) -> Task[answers.DeadLetterQueue]:
    groups: dict[tuple[Any, ...], answers.DeadLetterGroup] = {}
    examined = 0
    latest = queue.complete
    walk = queue.backlog.walk()
    for _ in walk.gather(budget):
        yield
    while not walk.done and examined < examine:
        if budget.spent:
            yield
            continue
        budget.spend(1)
        for entry in walk.take(min(budget.left + 1, examine - examined)):
            examined += 1
            budget.spend(1)
            if entry.sequence > latest:
                continue
            try:
                properties = entry.envelope.properties
            except SieveError:
                properties = {}
            origin, reason = properties.get(notes.ORIGIN), properties.get(notes.REASON)
            subscription = properties.get(notes.SUBSCRIPTION)
            entry.envelope.compact()
            key = (origin, subscription, reason)
            group = groups.get(key)
            if group is None:
                group = groups[key] = answers.DeadLetterGroup(
                    origin=_text(origin),
                    subscription=_text(subscription),
                    reason=_text(reason),
                    messages=0,
                    first_failure=0,
                    last_failure=0,
                )
            first, last = properties.get(notes.FIRST_FAILURE), properties.get(notes.LAST_FAILURE)
            group.add(first, last, _failed_by(properties), _text(properties.get(notes.ERROR)))
    ordered = sorted(groups.values(), key=lambda group: -group.messages)
    return answers.DeadLetterQueue(
        address=queue.label,
        depth=queue.depth,
        examined=examined,
        groups=ordered,
        may=call.identity.verbs(queue.place.namespace, queue.label),
    )


def _failed_by(properties: Mapping[str, object]) -> answers.FailedBy | None:
    names = (
        notes.FAILED_BY_CLIENT_ID, notes.FAILED_BY_USER, notes.FAILED_BY_ADDRESS, notes.FAILED_BY_CONSUMER,
    )  # fmt: skip
    client_id, user, address, consumer = [_text(properties.get(name)) for name in names]
    if client_id is user is address is consumer is None:
        return None
    return answers.FailedBy(client_id=client_id, user=user, address=address, consumer=consumer)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
