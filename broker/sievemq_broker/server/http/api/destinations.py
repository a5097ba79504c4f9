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
from sievemq_broker.domain.work import Budget, Task, finish
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.brokers import counters_of
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import PLACE_UNITS, Order, by_age, decode_cursor, name_matcher, page_of
from sievemq_broker.server.http.api.series import Sampler
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.tasks import ROW, run
from sievemq_broker.server.watch.counts import Counts, Gauges, age_of, figures_of, queues_at, waits_since
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
    fits = name_matcher(query.like)
    # A pasted address means that destination; "queue" means any name with this text in it.
    by_address = query.like is not None and query.like.startswith(tuple(f"{kind.value}:" for kind in Kind))
    prefix = "" if query.kind is None else f"{query.kind}:"
    only = None if query.only is None else _ONLY[query.only]

    def keep(destination: Queue | Topic) -> bool:
        label = destination.label
        return (
            label.startswith(prefix)
            and fits(label if by_address else label.partition(":")[2])
            and (everything or identity.may(Verb.VIEW, space.name, label))
            and (only is None or any(map(only, queues_at(destination))))
        )

    destinations = list(space.destinations.values())
    figures = Figures(call.management.sampler, await run(call.server, partial(_add_up_large, destinations)))
    order: Order[Queue | Topic] = Order(query.sort, {"address": _label}, figures.by_name, _label, str)
    totals = answers.Totals()
    chosen, total, more = await page_of(
        call.server,
        destinations,
        order.place,
        decode_cursor(query.cursor, order.kind),
        query.limit,
        keep,
        partial(figures.add, totals),
        _cost,
    )
    rows = await run(call.server, partial(_rows, call, chosen))
    return answers.Destinations(destinations=rows, total=total, totals=totals, next=more)


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


_ONLY: Final[Mapping[str, Callable[[Queue], object]]] = {
    "waiting": lambda queue: queue.depth,
    "unconsumed": lambda queue: queue.depth and not queue.consumers,
    "in_flight": lambda queue: queue.in_flight,
    "scheduled": lambda queue: queue.scheduled,
    "paused": lambda queue: queue.paused,
    "at_limit": lambda queue: queue.at_limit,
    "blocked": lambda queue: queue.blocked_senders,
}

#: Subscriptions above which a topic is added up in slices.
_LARGE: Final = 100


def _label(destination: Queue | Topic) -> str:
    return destination.label


def _cost(destination: Queue | Topic) -> int:
    """Units of work for its row in a list. It adds up a small topic; large ones were added up before."""
    return PLACE_UNITS + (min(len(destination.subscriptions), _LARGE) if isinstance(destination, Topic) else 0)


def _add_up_large(
    destinations: list[Queue | Topic], now: int, budget: Budget
) -> Task[dict[Queue | Topic, tuple[Counts, Gauges]]]:
    """The sums of the topics with many subscriptions."""
    large: dict[Queue | Topic, tuple[Counts, Gauges]] = {}
    for destination in [of for of in destinations if isinstance(of, Topic) and len(of.subscriptions) > _LARGE]:
        large[destination] = yield from figures_of(destination, now, budget)
    return large


class Figures:
    """The figures of destinations by which a list is sorted, and that are added up for it.

    Args:
        sampler: that has the rates.
        large: sums of topics with many subscriptions.

    Attributes:
        by_name: functions of a destination.
    """

    def __init__(self, sampler: Sampler, large: Mapping[Queue | Topic, tuple[Counts, Gauges]]) -> None:
        self._large = large
        rates = sampler.rates
        self.by_name: Mapping[str, Callable[[Queue | Topic], float]] = {
            "depth": lambda of: of.depth if isinstance(of, Queue) else self._of(of)[1].ready,
            "in_flight": lambda of: of.in_flight if isinstance(of, Queue) else self._of(of)[1].in_flight,
            "scheduled": lambda of: len(of.scheduled) if isinstance(of, Queue) else self._of(of)[1].scheduled,
            "bytes": lambda of: of.bytes if isinstance(of, Queue) else self._of(of)[1].bytes,
            "consumers": lambda of: len(of.consumers) if isinstance(of, Queue) else self._of(of)[1].consumers,
            "dead_lettered": lambda of: (of.counts if isinstance(of, Queue) else self._of(of)[0]).dead_lettered,
            "published": lambda of: of.published if isinstance(of, Topic) else of.enqueued,
            "subscriptions": lambda of: len(of.subscriptions) if isinstance(of, Topic) else 0,
            "oldest": lambda of: by_age(self._of(of)[1].since if isinstance(of, Topic) else waits_since(of)),
            "oldest_in_flight": lambda of: by_age((of if isinstance(of, Queue) else self._of(of)[1]).held_since),
            "in_rate": lambda of: round(rates(of)[0], 2),
            "out_rate": lambda of: round(rates(of)[1], 2),
        }

    def add(self, totals: answers.Totals, of: Queue | Topic) -> None:
        """Add a destination to totals."""
        if isinstance(of, Queue):
            in_flight = of.in_flight if of.consumers or of.holders else 0
            totals.add(of.depth, in_flight, len(of.scheduled), of.bytes, len(of.consumers))
        else:
            held = self._of(of)[1]
            totals.add(held.ready, held.in_flight, held.scheduled, held.bytes, held.consumers)

    def _of(self, of: Queue | Topic) -> tuple[Counts, Gauges]:
        return self._large.get(of) or finish(partial(figures_of, of), 0)


def _facts(
    call: Call[Any, Any], destination: Queue | Topic, counts: Counts, held: Gauges, recent: int = 0
) -> dict[str, Any]:
    address = parse_address(destination.label)
    sampler = call.management.sampler
    in_rate, out_rate = sampler.rates(destination)
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
        "recent": sampler.recent(destination, recent, held.ready),
        "may": call.identity.verbs(destination.place.namespace, destination.label),
    }


def _rows(
    call: Call[Any, Any], destinations: list[Queue | Topic], now: int, budget: Budget
) -> Task[list[answers.Destination]]:
    rows: list[answers.Destination] = []
    for destination in destinations:
        counts, held = yield from figures_of(destination, now, budget)
        budget.spend(ROW)
        rows.append(answers.Destination(**_facts(call, destination, counts, held, call.query.recent)))
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
