"""Namespaces."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.destinations import empty
from sievemq_broker.server.http.api.pages import decode_cursor, name_matcher, page_of
from sievemq_broker.server.http.api.slices import in_slices
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.watch.counts import Holdings, queues_at
from sievemq_broker.session.checks import check_identifier
from sievemq_broker.session.rights import Verb
from sievemq_core.counted import counted

routes = Routes("Namespaces")


@routes.add("GET", "/namespaces", None, answers.Namespaces, query=requests.List)
async def list_namespaces(call: Call[requests.List, Any]) -> answers.Namespaces:
    """Namespaces by name; figures are those of what the caller may view."""
    query = call.query
    rights = call.identity.rights
    fits = name_matcher(query.like)
    chosen, total, more = await page_of(
        list(call.server.shard.broker.namespaces),
        str,
        decode_cursor(query.cursor, str),
        query.limit,
        lambda name: fits(name) and rights.enters(name),
    )
    clients = Counter(connection.namespace.name for connection in call.server.shard.services.connections.values())
    rows = []
    for name in chosen:
        space = call.server.shard.broker.namespaces.get(name)
        if space is not None:
            rows.append(await _row(call, space, clients[name] if call.identity.may(Verb.VIEW, name, "*") else 0))
    return answers.Namespaces(namespaces=rows, total=total, next=more)


@routes.add(
    "POST", "/namespaces", None, answers.Namespace, body=requests.Space, status=(201, 200)
)  # fmt: skip
async def create_namespace(call: Call[Any, requests.Space]) -> answers.Namespace:
    """Make a namespace; 200 if it is there already."""
    name = call.body.name
    call.identity.require(Verb.MANAGE, name, "*")
    check_identifier("the name of a namespace", name)
    if name in call.server.shard.broker.namespaces:
        call.existed()
    return await _row(call, call.server.shard.broker.namespace(name), 0)


@routes.add("DELETE", "/namespaces/{ns}", Verb.MANAGE, answers.Touched, query=requests.DryRun)
async def delete_namespace(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """Delete a namespace with everything in it; counts are those of its messages.

    Refused while clients are connected to it.
    """
    space, dry_run = call.namespace(), call.query.dry_run
    _refuse_if_connected(call, space)
    messages = 0
    left = list(space.destinations.values())
    async for destination in in_slices((left.pop() for _ in range(len(left))), every=1):  # each is freed at once
        messages += await empty(call, destination, dry_run=dry_run)
        if not dry_run and space.destinations.get(destination.label) is destination:
            space.delete(destination.label)
    if not dry_run:
        _refuse_if_connected(call, space)  # a client may have connected in the meantime
        if call.server.shard.broker.namespaces.get(space.name) is space:
            call.server.shard.broker.delete_namespace(space.name)
        call.server.turn.worked()
    return answers.Touched.of(messages, dry_run)


def _refuse_if_connected(call: Call[Any, Any], space: Namespace) -> None:
    connected = sum(connection.namespace is space for connection in call.server.shard.services.connections.values())
    if connected:
        raise ApiError(
            409,
            "ILLEGAL_STATE",
            f"namespace {space.name!r} has {counted(connected, 'connection')}; close what is open first",
            {"namespace": space.name, "connections": connected},
        )


async def _row(call: Call[Any, Any], space: Namespace, connections: int) -> answers.Namespace:
    held, destinations = Holdings(), 0
    everything = call.identity.may(Verb.VIEW, space.name, "*")
    async for destination in in_slices(list(space.destinations.values())):
        if not everything and not call.identity.may(Verb.VIEW, space.name, destination.label):
            continue
        destinations += 1
        for queue in queues_at(destination):
            held.add(queue)
    return answers.Namespace(
        name=space.name,
        destinations=destinations,
        connections=connections,
        depth=held.ready,
        in_flight=held.in_flight,
        scheduled=held.scheduled,
    )
