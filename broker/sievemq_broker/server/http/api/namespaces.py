"""Namespaces."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from sievemq_broker.domain.management import DROPPED_AT_ONCE, emptied
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.brokers import view
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import PLACE_UNITS, Order, decode_cursor, name_matcher, page_of
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.gate import expect_here
from sievemq_broker.server.http.tasks import ROW, run
from sievemq_broker.server.watch.counts import fill_of, queues_at
from sievemq_broker.session.checks import check_identifier
from sievemq_broker.session.rights import Verb
from sievemq_core.counted import counted

routes = Routes("Namespaces")

#: Figures to sort by.
_FIGURES: Final = ("depth", "in_flight", "scheduled", "bytes", "destinations", "connections")


@routes.add("GET", "/namespaces", None, answers.Namespaces, query=requests.ListNamespaces)
async def list_namespaces(call: Call[requests.ListNamespaces, Any]) -> answers.Namespaces:
    """Namespaces, those in shards of other brokers apart; figures are those of what the caller may view."""
    query, placement = call.query, call.server.placement
    rights = call.identity.rights
    fits = name_matcher(query.like)
    names, others = list(call.server.shard.broker.namespaces), dict[str, str]()
    urls: dict[str, str | None] = {}
    if placement is not None:
        listing = await placement.listed()
        # In a thread: there may be many.
        names, others = await asyncio.to_thread(_divided, names, listing.namespaces, placement.shard)
        urls = {sight.shard: sight.owner.http_url or None for sight in listing.shards if sight.owner is not None}

    def wanted(name: str) -> bool:
        return fits(name) and rights.enters(name)

    rows: dict[str, answers.Namespace] = {}
    if query.sort != "name":  # the figures of all of them
        rows = await run(call.server, partial(_rows, call, names, wanted))
    figures = {figure: partial(_figure, rows, figure) for figure in _FIGURES}
    order: Order[str] = Order(query.sort, {"name": str}, figures, str, str)
    after = decode_cursor(query.cursor, order.kind)
    chosen, total, more = await page_of(call.server, names, order.place, after, query.limit, wanted)
    rows.update(await run(call.server, partial(_rows, call, chosen, lambda name: name not in rows)))
    elsewhere = [
        answers.Elsewhere(name=name, shard=others[name], url=urls.get(others[name]))
        for name in chosen
        if name in others
    ]
    shown = [rows[name] for name in chosen if name in rows and name not in others]
    return answers.Namespaces(namespaces=shown, elsewhere=elsewhere, total=total, next=more)


@routes.add(
    "POST", "/namespaces", None, answers.Namespace, body=requests.Space, status=(201, 200)
)  # fmt: skip
async def create_namespace(call: Call[Any, requests.Space]) -> answers.Namespace:
    """Make a namespace; 200 if it is there already. In a cluster it gets a shard for good."""
    name, placement = call.body.name, call.server.placement
    call.identity.require(Verb.MANAGE, name, "*")
    check_identifier("the name of a namespace", name)
    call.about["namespace"] = name
    if placement is not None:
        await placement.claim(name)
        await expect_here(call.server, name)
    if name in call.server.shard.broker.namespaces:
        call.existed()
    return await run(call.server, partial(_row, call, call.server.shard.broker.namespace(name), 0))


@routes.add("DELETE", "/namespaces/{ns}", Verb.MANAGE, answers.Touched, query=requests.DryRun)
async def delete_namespace(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """Delete a namespace with everything in it; counts are those of its messages.

    Refused while clients are connected to it.
    """
    space, dry_run = call.namespace(), call.query.dry_run
    _refuse_if_connected(call, space)
    messages = await run(call.server, partial(_emptied, space, dry_run))
    if not dry_run:
        _refuse_if_connected(call, space)  # a client may have connected in the meantime
        if call.server.shard.broker.namespaces.get(space.name) is space:
            call.server.shard.broker.delete_namespace(space.name)
        call.server.turn.worked()
    return answers.Touched.of(messages, dry_run)


def _emptied(space: Namespace, dry_run: bool, now: int, budget: Budget) -> Task[int]:
    """How many messages a namespace holds; its destinations are deleted, one by one."""
    messages = 0
    for label in list(space.destinations):
        if budget.spent:
            yield
        destination = space.destinations.get(label)
        if destination is None:
            continue
        held = yield from emptied(queues_at(destination), dry_run, now, budget)
        messages += held
        budget.spend(ROW)
        if not dry_run and space.destinations.get(label) is destination:
            budget.spend(min(held, DROPPED_AT_ONCE))
            space.delete(label)
    return messages


def _refuse_if_connected(call: Call[Any, Any], space: Namespace) -> None:
    connected = sum(connection.namespace is space for connection in call.server.shard.services.connections.values())
    if connected:
        raise ApiError(
            409,
            "ILLEGAL_STATE",
            f"namespace {space.name!r} has {counted(connected, 'connection')}; close what is open first",
            {"namespace": space.name, "connections": connected},
        )


def _figure(rows: Mapping[str, answers.Namespace], figure: str, name: str) -> float:
    return float(getattr(rows.get(name), figure, 0))


def _divided(here: list[str], namespaces: Mapping[str, str], own: str) -> tuple[list[str], dict[str, str]]:
    """The names of all namespaces, and of those in other shards the shard."""
    others = {name: shard for name, shard in namespaces.items() if shard != own}
    return [*(name for name in here if name not in others), *others], others


def _rows(
    call: Call[Any, Any], names: list[str], wanted: Callable[[str], bool], now: int, budget: Budget
) -> Task[dict[str, answers.Namespace]]:
    """The rows of those that are wanted, and are here."""
    rows: dict[str, answers.Namespace] = {}
    namespaces = call.server.shard.broker.namespaces
    if not namespaces:  # a broker that owns no shard has no clients either
        return rows
    clients = Counter(connection.namespace.name for connection in call.server.shard.services.connections.values())
    for name in names:
        if budget.spent:
            yield
        budget.spend(PLACE_UNITS)
        space = namespaces.get(name)
        if space is not None and wanted(name):
            connected = clients[name] if call.identity.may(Verb.VIEW, name, "*") else 0
            rows[name] = yield from _row(call, space, connected, now, budget)
    return rows


def _row(call: Call[Any, Any], space: Namespace, connections: int, now: int, budget: Budget) -> Task[answers.Namespace]:
    viewed = yield from view(call, [space], now, budget)
    limits = space.policy if call.identity.may(Verb.VIEW, space.name, "*") else None
    return answers.Namespace(
        name=space.name,
        destinations=viewed.destinations,
        connections=connections,
        depth=viewed.held.ready,
        in_flight=viewed.held.in_flight,
        scheduled=viewed.held.scheduled,
        bytes=viewed.held.bytes,
        fill=round(fill_of(limits, [viewed.held]), 4) if limits is not None else None,
    )
