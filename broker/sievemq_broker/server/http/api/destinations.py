"""Queues and topics: what they hold, their rules, making and deleting them, their series."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final

from sievemq_broker.domain import management
from sievemq_broker.domain.dead_letters import dead_letter_address
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.brokers import counters_of
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import decode_cursor, name_matcher, page_of
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.tasks import ROW, run
from sievemq_broker.server.watch.counts import Counts, Gauges, age_of, figures_of, queues_at
from sievemq_broker.session.rights import Verb
from sievemq_core.message.dead_letters import PREFIX
from sievemq_core.message.destination import Kind, parse_address

routes = Routes("Destinations")

_PATH = "/namespaces/{ns}/destinations"

_RULES = tuple(field.name for field in fields(DestinationPolicy) if field.init)


@routes.add("GET", _PATH, None, answers.Destinations, query=requests.Find)
async def list_destinations(call: Call[requests.Find, Any]) -> answers.Destinations:
    """Queues and topics with what they hold and how fast they go."""
    query, space = call.query, call.namespace()
    identity = call.identity
    everything = identity.may(Verb.VIEW, space.name, "*")
    after = decode_cursor(query.cursor, tuple[float, str])
    fits = name_matcher(query.like)
    # A pasted address means that destination; "queue" means any name with this text in it.
    by_address = query.like is not None and query.like.startswith(tuple(f"{kind.value}:" for kind in Kind))
    prefix = "" if query.kind is None else f"{query.kind}:"

    def keep(destination: Queue | Topic) -> bool:
        label = destination.label
        return (
            label.startswith(prefix)
            and fits(label if by_address else label.partition(":")[2])
            and (everything or identity.may(Verb.VIEW, space.name, label))
        )

    name = query.sort.removeprefix("-")
    sign = -1.0 if query.sort.startswith("-") else 1.0

    def place(destination: Queue | Topic) -> tuple[float, str]:
        return (0.0 if name == "address" else sign * _figure(call, destination, name), destination.label)

    chosen, total, more = await page_of(call.server, list(space.destinations.values()), place, after, query.limit, keep)
    rows = await run(call.server, partial(_rows, call, chosen))
    return answers.Destinations(destinations=rows, total=total, next=more)


@routes.add("GET", _PATH + "/{address}", Verb.VIEW, answers.DestinationDetails)
async def get_destination(call: Call[Any, Any]) -> answers.DestinationDetails:
    """A queue or topic with its rules."""
    return await run(call.server, partial(_details, call, call.destination()))


@routes.add(
    "PUT",
    _PATH + "/{address}",
    Verb.MANAGE,
    answers.DestinationDetails,
    body=requests.Declare,
    body_optional=True,
    status=(201, 200),
)
async def put_destination(call: Call[Any, Any]) -> answers.DestinationDetails:
    """Make a queue or topic; 200 if it is there already.

    Its rules are those of the first pattern that fits it (`/rules`).
    """
    space, address = call.namespace(), call.address()
    if space.find(address) is not None:
        call.existed()
    elif address.kind.is_temporary:
        raise ApiError(409, "ILLEGAL_STATE", f"{address} is temporary: only a client's connection can create it")
    return await run(call.server, partial(_details, call, space.create(address)))


@routes.add("DELETE", _PATH + "/{address}", Verb.MANAGE, answers.Touched, query=requests.DryRun)
async def delete_destination(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """Delete a queue or topic with its messages and subscriptions; consumers are closed. Counts are of messages."""
    space, destination = call.namespace(), call.destination()
    messages = await run(call.server, partial(management.emptied, queues_at(destination), call.query.dry_run))
    if not call.query.dry_run:
        if space.destinations.get(destination.label) is destination:
            space.delete(destination.label)
        call.server.turn.worked()
    return answers.Touched.of(messages, call.query.dry_run)


_FIGURES: Final[Mapping[str, Callable[[Queue], int]]] = {
    "depth": lambda queue: queue.depth,
    "in_flight": lambda queue: queue.in_flight,
    "bytes": lambda queue: queue.bytes,
    "scheduled": lambda queue: len(queue.scheduled),
    "consumers": lambda queue: len(queue.consumers),
    "dead_lettered": lambda queue: queue.counts.dead_lettered,
}


def _sum(destination: Queue | Topic, name: str) -> int:
    return sum(map(_FIGURES[name], queues_at(destination)))


def _figure(call: Call[Any, Any], destination: Queue | Topic, name: str) -> float:
    match name:
        case "in_rate":
            return round(call.management.sampler.rates(destination)[0], 2)
        case "out_rate":
            return round(call.management.sampler.rates(destination)[1], 2)
    return _sum(destination, name)


def _facts(call: Call[Any, Any], destination: Queue | Topic, counts: Counts, held: Gauges) -> dict[str, Any]:
    address = parse_address(destination.label)
    in_rate, out_rate = call.management.sampler.rates(destination)
    return {
        "namespace": destination.place.namespace,
        "address": destination.label,
        "kind": address.kind.value,
        "name": address.name,
        "depth": held.ready,
        "in_flight": held.in_flight,
        "scheduled": held.scheduled,
        "bytes": held.bytes,
        "consumers": held.consumers,
        "subscriptions": len(destination.subscriptions) if isinstance(destination, Topic) else 0,
        "paused": destination.paused,
        "at_limit": held.at_limit > 0,
        "blocked_senders": held.blocked,
        "fill": round(held.fill, 4) if destination.policy.limited else None,
        "oldest_ms": age_of(held.since, call.now),
        "oldest_in_flight_ms": age_of(held.held_since, call.now),
        "attention": call.server.attention.marks(destination),
        "dead_letter_queue": address.name.startswith(PREFIX) and isinstance(destination, Queue),
        "in_rate": round(in_rate, 2),
        "out_rate": round(out_rate, 2),
        "counters": counters_of(counts),
        "may": call.identity.verbs(destination.place.namespace, destination.label),
    }


def _rows(
    call: Call[Any, Any], destinations: list[Queue | Topic], now: int, budget: Budget
) -> Task[list[answers.Destination]]:
    rows: list[answers.Destination] = []
    for destination in destinations:
        counts, held = yield from figures_of(destination, now, budget)
        budget.spend(ROW)
        rows.append(answers.Destination(**_facts(call, destination, counts, held)))
    return rows


def _details(
    call: Call[Any, Any], destination: Queue | Topic, now: int, budget: Budget
) -> Task[answers.DestinationDetails]:
    index = destination.index
    counts, held = yield from figures_of(destination, now, budget)
    return answers.DestinationDetails(
        **_facts(call, destination, counts, held),
        policy={name: getattr(destination.policy, name) for name in _RULES},
        rule=destination.policy.pattern,
        dead_letters=dead_letter_address(destination.label),
        owner=parse_address(destination.label).owner,
        selectors=len(index),
        evaluations=index.evaluations,
        matches=index.matches,
    )
