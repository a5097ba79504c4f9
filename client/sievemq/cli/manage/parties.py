"""``sievemq namespace``, ``subscription``, ``connection`` and ``consumer``."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple
from urllib.parse import quote

import typer

from sievemq.cli.completing import queues
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Api, MostOption, Place, Port, address_of
from sievemq.cli.manage.actions import Care, YesOption, confirm, remove
from sievemq.cli.manage.attention import marks
from sievemq.cli.manage.destination import CONSUMERS
from sievemq.cli.manage.output import Columns, number, print_rows, share, span, yes
from sievemq.cli.options import JsonOption as LinesOption
from sievemq_core.output import report

namespace = typer.Typer(help="Namespaces: ls, create, delete.", no_args_is_help=True)
subscription = typer.Typer(help="Subscriptions of topics: ls, delete.", no_args_is_help=True)
connection = typer.Typer(help="Connections: ls, refused, close.", no_args_is_help=True)
consumer = typer.Typer(help="Consumers: ls, close.", no_args_is_help=True)

#: Figures of a namespace in another shard are at its owner.
_NAMESPACES: Columns = {
    "namespace": lambda row: row["name"],
    "destinations": lambda row: row.get("destinations", ""),
    "connections": lambda row: row.get("connections", ""),
    "ready": lambda row: row.get("depth", ""),
    "in flight": lambda row: row.get("in_flight", ""),
    "scheduled": lambda row: row.get("scheduled", ""),
    "limit used": lambda row: share(row) if "fill" in row else "",
    "shard": lambda row: row.get("shard", ""),
    "owner": lambda row: row.get("url") or "",
}
_SUBSCRIPTIONS: Columns = {
    "subscription": lambda row: row["name"] or "",
    "client id": lambda row: row["client_id"] or "",
    "topic": lambda row: row["topic"],
    "durable": yes("durable"),
    "shared": yes("shared"),
    "consumers": number("consumers"),
    "ready": number("depth"),
    "in flight": number("in_flight"),
    "attention": marks,
    "selector": lambda row: row["selector"] or "",
}
_CONNECTIONS: Columns = {
    "connection": lambda row: row["id"],
    "peer": lambda row: row["peer"],
    "user": lambda row: row["user"] or "",
    "client id": lambda row: row["client_id"] or "",
    "namespace": lambda row: row["namespace"],
    "protocol": lambda row: row["protocol"],
    "sessions": number("sessions"),
    "consumers": number("consumers"),
    "unacknowledged": number("unacknowledged"),
    "refused": lambda row: row["refused"] or "",
    "rolled back": lambda row: row["rolled_back"] or "",
    "waits at": lambda row: row["blocked_at"] or row["blocked_by"] or "",
    "waits to send": lambda row: span(max(1, row["waits"])) if row["waits"] is not None else "",
    "attention": lambda row: marks(row, ("senders_blocked", "sends_refused", "rollbacks")),
    "agent": lambda row: row["agent"],
}
_REFUSED: Columns = {
    "client": lambda row: row["client"],
    "where": lambda row: row["address"] or "",
    "what": lambda row: "open" if row["opens"] else "send",
    "reason": lambda row: row["reason"],
    "times": number("count"),
    "last": lambda row: f"{span(row['ago'])} ago",
    "connection": lambda row: row["connection"] or "",
    "namespace": lambda row: row["namespace"],
}


#: Columns of connections that are shown where some row has something there.
_SELDOM: Final = ("refused", "rolled back", "waits at", "waits to send", "attention")
_PLACED_CONSUMERS: Columns = {**CONSUMERS, "on": lambda row: row["address"]}


class Sought(NamedTuple):
    """Options: which rows, in which order."""

    like: Annotated[
        str | None,
        typer.Option("--like", help="Only rows with this text in an id, a name or an address; * matches any text."),
    ] = None
    only: Annotated[
        str | None,
        typer.Option("--only", help="Connections: blocked, holding, congested. Consumers: slow, holding, waiting."),
    ] = None
    sort: Annotated[
        str, typer.Option("--sort", help="A field, or -FIELD for the largest first, such as -unacknowledged, -oldest.")
    ] = "opened"
    most: MostOption = 0


@namespace.command("ls")
@grouped
def list_namespaces(
    port: Port,
    *,
    sort: Annotated[
        str | None, typer.Option("--sort", help="A figure, or -FIGURE for the largest first, such as -depth.")
    ] = None,
    as_json: LinesOption = False,
) -> None:
    """List namespaces with the numbers of their messages; of those in other shards the URL of the owner."""
    rows = port.api().rows("/namespaces", ("namespaces", "elsewhere"), sort=sort)
    print_rows(rows, _NAMESPACES, as_json, "no namespaces", seldom=("limit used", "shard", "owner"))


@namespace.command("create")
@grouped
def create_namespace(name: str, port: Port) -> None:
    """Create a namespace. (A client's first use creates it as well.)"""
    report(f"{port.api().post('/namespaces', {'name': name})['name']} exists")


@namespace.command("delete")
@grouped
def delete_namespace(name: str, care: Care, port: Port) -> None:
    """Delete a namespace that no client is connected to, with everything in it."""
    api = Place(name, *port).api()
    remove(api, api.place(), name, care, called=f"namespace {name}")


@subscription.command("ls")
@grouped
def list_subscriptions(
    *,
    topic: Annotated[str | None, typer.Option("--topic", help="Only subscriptions of this topic.")] = None,
    place: Place,
    as_json: LinesOption = False,
) -> None:
    """List subscriptions, durable ones without a consumer too."""
    api = place.api()
    of = None if topic is None else address_of(topic, topic=True)
    rows = api.rows(f"{api.place()}/subscriptions", "subscriptions", topic=of)
    nothing = f"no subscriptions in namespace {place.namespace}"
    print_rows(rows, _SUBSCRIPTIONS, as_json, nothing, seldom=("attention",))


@subscription.command("delete")
@grouped
def delete_subscription(
    name: str,
    *,
    client_id: Annotated[
        str | None, typer.Option("--client-id", help="Client id of the subscription, if it has one.")
    ] = None,
    care: Care,
    place: Place,
) -> None:
    """Delete a durable subscription with its messages."""
    api = place.api()
    path = f"{api.place()}/subscriptions/{quote(client_id or '-', safe='')}/{quote(name, safe='')}"
    remove(api, path, name, care, called=f"subscription {name}")


@connection.command("ls")
@grouped
def list_connections(
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-N", help="Only connections in this namespace.")
    ] = None,
    sought: Sought,
    as_json: LinesOption = False,
    port: Port,
) -> None:
    """List connections: user, address, open sessions and consumers, and how long a limit has blocked their sends."""
    api = port.api()
    rows = api.rows(
        "/connections",
        "connections",
        sought.most,
        namespace=namespace,
        like=sought.like,
        only=sought.only,
        sort=sought.sort,
    )
    if not as_json:
        now = api.get("/broker")["now"]
        rows = ({**row, "waits": row["blocked_since"] and now - row["blocked_since"]} for row in rows)
    print_rows(rows, _CONNECTIONS, as_json, "no connections", seldom=_SELDOM)


@connection.command("refused")
@grouped
def list_refused(port: Port, *, as_json: LinesOption = False) -> None:
    """List what the broker has refused lately, by client: sends, and what was to be opened."""
    api = port.api()
    rows = api.get("/refusals")["refused"]
    if not as_json:
        now = api.get("/broker")["now"]
        rows = [{**row, "ago": max(1, now - row["last"])} for row in rows]
    print_rows(rows, _REFUSED, as_json, "nothing was refused lately")


@connection.command("close")
@grouped
def close_connection(
    identity: Annotated[str, typer.Argument(metavar="CONNECTION", help="Its id, as `connection ls` shows it.")],
    *,
    yes: YesOption = False,
    port: Port,
) -> None:
    """Close a connection and inform its client. Unacknowledged messages are redelivered."""
    _close(port.api(), f"/connections/{quote(identity, safe='')}", "connection", identity, yes)


@consumer.command("ls")
@grouped
def list_consumers(
    *,
    connection: Annotated[str | None, typer.Option("--connection", help="Only those of this connection.")] = None,
    client_id: Annotated[str | None, typer.Option("--client-id", help="Only those of this client id.")] = None,
    sought: Sought,
    place: Place,
    as_json: LinesOption = False,
) -> None:
    """List the consumers of a namespace: what they hold, for how long, and on which destination."""
    rows = place.api().rows(
        "/consumers",
        "consumers",
        sought.most,
        namespace=place.namespace,
        connection=connection,
        client_id=client_id,
        like=sought.like,
        only=sought.only,
        sort=sought.sort,
    )
    print_rows(rows, _PLACED_CONSUMERS, as_json, f"no consumers in namespace {place.namespace}", seldom=("attention",))


@consumer.command("close")
@grouped
def close_consumer(
    destination: Annotated[
        str,
        typer.Argument(metavar="DEST", help="queue:NAME, topic:NAME, or NAME of a queue.", autocompletion=queues),
    ],
    identity: Annotated[str, typer.Argument(metavar="CONSUMER", help="Its id, as `queue consumers` shows it.")],
    *,
    yes: YesOption = False,
    place: Place,
) -> None:
    """Close one consumer and inform its client; the rest of its connection continues."""
    api = place.api()
    _close(api, api.place(address_of(destination), "consumers", quote(identity, safe="")), "consumer", identity, yes)


def _close(api: Api, path: str, kind: str, identity: str, yes: bool) -> None:
    api.delete(path, dry_run=True)
    confirm(f"Close {kind} {identity}?", yes)
    api.delete(path)
    report(f"{identity} closed")
