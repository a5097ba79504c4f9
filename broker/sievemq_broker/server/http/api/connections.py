"""Connections of clients."""

from __future__ import annotations

from functools import partial
from typing import Any

from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.brokers import address_at
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import decode_cursor, page_of
from sievemq_broker.server.http.errors import not_found
from sievemq_broker.server.http.tasks import each
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Verb
from sievemq_core.errors import ErrorCode

routes = Routes("Connections")


@routes.add("GET", "/connections", None, answers.Connections, query=requests.ListConnections)
async def list_connections(call: Call[requests.ListConnections, Any]) -> answers.Connections:
    """Connections, oldest first, of the namespaces that the caller may view as a whole."""
    query = call.query

    def keep(connection: Peer) -> bool:
        namespace = connection.namespace.name
        if query.id not in (None, connection.member.id):
            return False
        return query.namespace in (None, namespace) and call.identity.may(Verb.VIEW, namespace, "*")

    chosen, total, more = await page_of(
        call.server,
        list(call.server.shard.services.connections.values()),
        lambda connection: connection_number(connection.member.id),
        decode_cursor(query.cursor, int),
        query.limit,
        keep,
    )
    shown = await each(call.server, chosen, partial(_show, call))
    return answers.Connections(connections=shown, total=total, next=more)


@routes.add("DELETE", "/connections/{id}", None, answers.Touched, query=requests.DryRun)
async def close_connection(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """Close a connection and inform its client. Messages that it held return to their queues, and may be delivered
    again."""
    identifier, dry_run = call.path["id"], call.query.dry_run
    connection = call.server.shard.services.connections.get(identifier)
    if connection is None or not call.identity.may(Verb.VIEW, connection.namespace.name, "*"):
        raise not_found(f"there is no connection {identifier[:200]!r}", id=identifier[:300])
    call.about.update(
        namespace=connection.namespace.name,
        closed_client=connection.member.client_id,
        closed_user=connection.member.identity.user,
        closed_peer=connection.address,
    )
    call.identity.require(Verb.MANAGE, connection.namespace.name, "*")
    if not dry_run:
        connection.close(ErrorCode.CLOSED_BY_ADMINISTRATOR, "closed by an administrator", call.now)
        call.server.turn.worked()
    return answers.Touched.of(1, dry_run)


def connection_number(identifier: str) -> int:
    """The counter in a connection's id: ids are given in order."""
    digits = identifier.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


def _show(call: Call[Any, Any], connection: Peer) -> answers.Connection:
    link = call.server.links.of(connection)
    sender = min(connection.blocked_senders, key=lambda sender: sender.since, default=None)
    return answers.Connection(
        id=connection.member.id,
        peer=connection.address,
        namespace=connection.namespace.name,
        user=connection.member.identity.user,
        client_id=connection.member.client_id,
        protocol=connection.out.protocol,
        agent=connection.member.agent,
        sessions=len(connection.sessions),
        consumers=len(connection.deliveries.consumers) - len(connection.deliveries.retired),
        unacknowledged=sum(consumer.unacknowledged for consumer in connection.deliveries.consumers.values()),
        congested=connection.out.congested,
        port=connection.port,
        blocked_since=None if sender is None else sender.since,
        blocked_by=None if sender is None else sender.text,
        blocked_at=None if sender is None else address_at(sender.places[0]),
        staged_bytes=connection.staged.used,
        committed=connection.tally.committed,
        rolled_back=connection.tally.rolled_back,
        refused=connection.tally.refused,
        temporary_destinations=connection.member.temporaries,
        bytes_in=0 if link is None else link.bytes_in,
        bytes_out=0 if link is None else link.bytes_out,
        attention=call.server.attention.marks(connection),
        may=call.identity.verbs(connection.namespace.name, "*"),
    )
