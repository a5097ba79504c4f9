"""Connections of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.brokers import address_at
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import LAST, PLACE_UNITS, Order, by_age, decode_cursor, name_matcher, page_of
from sievemq_broker.server.http.errors import not_found
from sievemq_broker.server.http.tasks import SESSIONS, each
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Verb
from sievemq_broker.session.session import Session
from sievemq_core.errors import ErrorCode

routes = Routes("Connections")

#: Sessions of a connection that are shown.
_SESSIONS: Final = 100


@routes.add("GET", "/connections", None, answers.Connections, query=requests.ListConnections)
async def list_connections(call: Call[requests.ListConnections, Any]) -> answers.Connections:
    """Connections of the namespaces that the caller may view as a whole."""
    query = call.query
    await call.expect_here(query.namespace)
    fits = name_matcher(query.like)
    only = _ONLY[query.only]

    def keep(connection: Peer) -> bool:
        namespace, member = connection.namespace.name, connection.member
        return (
            query.id in (None, member.id)
            and query.namespace in (None, namespace)
            and query.client_id in (None, member.client_id)
            and call.identity.may(Verb.VIEW, namespace, "*")
            and any(map(fits, names_of(connection)))
            and bool(only(connection))
        )

    totals = answers.ConnectionTotals()

    def add(connection: Peer) -> None:
        sessions, staged = len(connection.sessions), connection.staged.used
        totals.add(sessions, _consumers(connection), _unacknowledged(connection), staged)

    links = call.server.links
    figures: Mapping[str, Callable[[Peer], float]] = {
        "opened": _number,
        "blocked": lambda connection: by_age(min((each.since for each in connection.blocked_senders), default=0)),
        "sessions": lambda connection: len(connection.sessions),
        "consumers": _consumers,
        "unacknowledged": _unacknowledged,
        "staged_bytes": lambda connection: connection.staged.used,
        "bytes_in": lambda connection: getattr(links.of(connection), "bytes_in", 0),
        "bytes_out": lambda connection: getattr(links.of(connection), "bytes_out", 0),
    }
    order: Order[Peer] = Order(query.sort, _TEXTS, figures, _number, int)
    chosen, total, more = await page_of(
        call.server,
        list(call.server.shard.services.connections.values()),
        order.place,
        decode_cursor(query.cursor, order.kind),
        query.limit,
        keep,
        add,
        _cost,
    )
    shown = await each(call.server, chosen, lambda connection: answers.Connection(**_facts(call, connection)))
    return answers.Connections(connections=shown, total=total, totals=totals, next=more)


@routes.add("GET", "/connections/{id}", None, answers.ConnectionDetails)
async def get_connection(call: Call[Any, Any]) -> answers.ConnectionDetails:
    """A connection with its sessions."""
    connection = connection_of(call)
    sessions = await each(call.server, list(connection.sessions.values())[:_SESSIONS], _show_session)
    return answers.ConnectionDetails(**_facts(call, connection), open_sessions=sessions)


@routes.add("DELETE", "/connections/{id}", None, answers.Touched, query=requests.DryRun)
async def close_connection(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """Close a connection and inform its client. Messages that it held return to their queues, and may be delivered
    again."""
    connection, dry_run = connection_of(call), call.query.dry_run
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


def names_of(connection: Peer) -> tuple[str, ...]:
    """The texts by which a connection is found."""
    member = connection.member
    return (
        member.id,
        member.client_id or "",
        member.identity.user or "",
        connection.address,
        member.agent,
        connection.out.protocol,
    )


def connection_of(call: Call[Any, Any]) -> Peer:
    """The connection of the path.

    Raises:
        ApiError: 404, there is none, or none that the caller may view.
    """
    identifier = call.path["id"]
    connection = call.server.shard.services.connections.get(identifier)
    if connection is None or not call.identity.may(Verb.VIEW, connection.namespace.name, "*"):
        raise not_found(f"there is no connection {identifier[:200]!r}", id=identifier[:300])
    return connection


_ONLY: Final[Mapping[str | None, Callable[[Peer], object]]] = {
    None: lambda _: True,
    "blocked": lambda connection: connection.blocked_senders,
    "holding": lambda connection: connection.deliveries.hold_messages,
    "congested": lambda connection: connection.out.congested,
}

#: Texts to sort by; what has none comes last.
_TEXTS: Final[Mapping[str, Callable[[Peer], str]]] = {
    "client_id": lambda connection: connection.member.client_id or LAST,
    "user": lambda connection: connection.member.identity.user or LAST,
    "peer": lambda connection: connection.address,
    "protocol": lambda connection: connection.out.protocol,
}


def _number(connection: Peer) -> int:
    return connection_number(connection.member.id)


def _cost(connection: Peer) -> int:
    """Units of work for its row in a list, which counts its consumers and checks each session for a blocked sender."""
    return PLACE_UNITS + len(connection.deliveries.consumers) // 4 + len(connection.sessions) // SESSIONS


def _consumers(connection: Peer) -> int:
    return len(connection.deliveries.consumers) - len(connection.deliveries.retired)


def _unacknowledged(connection: Peer) -> int:
    return sum([consumer.unacknowledged for consumer in connection.deliveries.consumers.values()])


def _show_session(session: Session) -> answers.ClientSession:
    sender = session.blocked_sender
    return answers.ClientSession(
        id=session.id,
        mode=session.mode.name,  # type: ignore[arg-type]
        consumers=len(session.consumers),
        sent=session.sent,
        staged=0 if session.transaction is None else len(session.transaction.staged),
        blocked_since=None if sender is None else sender.since,
        blocked_by=None if sender is None else sender.text,
    )


def _facts(call: Call[Any, Any], connection: Peer) -> dict[str, Any]:
    link = call.server.links.of(connection)
    sender = min(connection.blocked_senders, key=lambda sender: sender.since, default=None)
    return {
        "id": connection.member.id,
        "peer": connection.address,
        "namespace": connection.namespace.name,
        "user": connection.member.identity.user,
        "client_id": connection.member.client_id,
        "protocol": connection.out.protocol,
        "agent": connection.member.agent,
        "sessions": len(connection.sessions),
        "consumers": _consumers(connection),
        "unacknowledged": _unacknowledged(connection),
        "congested": connection.out.congested,
        "port": connection.port,
        "blocked_since": None if sender is None else sender.since,
        "blocked_by": None if sender is None else sender.text,
        "blocked_at": None if sender is None else address_at(sender.places[0]),
        "staged_bytes": connection.staged.used,
        "committed": connection.tally.committed,
        "rolled_back": connection.tally.rolled_back,
        "refused": connection.tally.refused,
        "temporary_destinations": connection.member.temporaries,
        "bytes_in": 0 if link is None else link.bytes_in,
        "bytes_out": 0 if link is None else link.bytes_out,
        "attention": call.server.attention.marks(connection),
        "may": call.identity.verbs(connection.namespace.name, "*"),
    }
