"""``sievemq namespace``, ``subscription``, ``connection``, ``consumer``: who and what is there beside queues."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from sievemq.cli.broker_access import UserOption
from sievemq.cli.manage.access import DEFAULT_HTTP, Api, HttpOption, NamespaceOption, address_of
from sievemq.cli.manage.actions import DryRunOption, JsonOption, YesOption, confirm
from sievemq.cli.manage.output import Columns, number, print_rows

__all__ = ["connection", "consumer", "namespace", "subscription"]

namespace = typer.Typer(help="Namespaces: list, make, delete.", no_args_is_help=True)
subscription = typer.Typer(help="Subscriptions of topics: list, delete.", no_args_is_help=True)
connection = typer.Typer(help="Connections: list, close.", no_args_is_help=True)
consumer = typer.Typer(help="Consumers: close one (`queue consumers` lists them).", no_args_is_help=True)

_NAMESPACES: Columns = {
    "namespace": lambda row: row["name"],
    "destinations": number("destinations"),
    "connections": number("connections"),
    "ready": number("depth"),
    "in flight": number("in_flight"),
    "scheduled": number("scheduled"),
}
_SUBSCRIPTIONS: Columns = {
    "subscription": lambda row: row["name"] or "(none)",
    "client id": lambda row: row["client_id"] or "",
    "topic": lambda row: row["topic"],
    "kind": lambda row: ("durable" if row["durable"] else "") + (" shared" if row["shared"] else ""),
    "consumers": number("consumers"),
    "ready": number("depth"),
    "in flight": number("in_flight"),
    "selector": lambda row: row["selector"] or "",
}
_CONNECTIONS: Columns = {
    "connection": lambda row: row["id"],
    "peer": lambda row: row["peer"],
    "user": lambda row: row["user"] or "",
    "client id": lambda row: row["client_id"] or "",
    "namespace": lambda row: row["namespace"],
    "sessions": number("sessions"),
    "consumers": number("consumers"),
    "unacknowledged": number("unacknowledged"),
    "agent": lambda row: row["agent"],
}


@namespace.command("ls")
def list_namespaces(as_json: JsonOption = False, http: HttpOption = DEFAULT_HTTP, user: UserOption = None) -> None:
    """List namespaces with what they hold."""
    print_rows(Api(http, user).rows("/namespaces", "namespaces"), _NAMESPACES, as_json, "no namespaces")


@namespace.command("create")
def create_namespace(name: str, http: HttpOption = DEFAULT_HTTP, user: UserOption = None) -> None:
    """Make a namespace. (It is made anyway when a client first names it.)"""
    typer.echo(f"{Api(http, user).post('/namespaces', {'name': name})['name']} is there")


@namespace.command("delete")
def delete_namespace(
    name: str,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Delete a namespace that no client is connected to, with everything in it."""
    api = Api(http, user, name)
    count = api.delete(api.place(), dry_run=True)
    if dry_run:
        typer.echo(f"{name} would be deleted with {count['matched']:,} messages")
        return
    confirm(f"Delete namespace {name} with {count['matched']:,} messages?", yes)
    typer.echo(f"{name} deleted with {api.delete(api.place())['touched']:,} messages")


@subscription.command("ls")
def list_subscriptions(
    topic: Annotated[str | None, typer.Option("--topic", help="Only those of this topic.")] = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """List subscriptions, durable ones without a consumer too."""
    api = Api(http, user, namespace)
    of = None if topic is None else address_of(topic, topic=True)
    rows = api.rows(f"{api.place()}/subscriptions", "subscriptions", topic=of)
    print_rows(rows, _SUBSCRIPTIONS, as_json, f"no subscriptions in namespace {namespace}")


@subscription.command("delete")
def delete_subscription(
    name: str,
    client_id: Annotated[str | None, typer.Option("--client-id", help="Whose it is, if it belongs to one.")] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Delete a durable subscription with what has been collected for it."""
    api = Api(http, user, namespace)
    path = f"{api.place()}/subscriptions/{quote(client_id or '-', safe='')}/{quote(name, safe='')}"
    count = api.delete(path, dry_run=True)
    if dry_run:
        typer.echo(f"{name} would be deleted with {count['matched']:,} messages")
        return
    confirm(f"Delete subscription {name} with {count['matched']:,} messages?", yes)
    typer.echo(f"{name} deleted with {api.delete(path)['touched']:,} messages")


@connection.command("ls")
def list_connections(
    namespace: Annotated[str | None, typer.Option("--namespace", "-N", help="Only those in this namespace.")] = None,
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """List connections: who, from where, with what open."""
    rows = Api(http, user).rows("/connections", "connections", namespace=namespace)
    print_rows(rows, _CONNECTIONS, as_json, "no connections")


@connection.command("close")
def close_connection(
    identity: Annotated[str, typer.Argument(metavar="CONNECTION", help="Its id, as `connection ls` shows it.")],
    yes: YesOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Close a connection; its client is told. What it had not acknowledged comes again, marked."""
    api = Api(http, user)
    path = f"/connections/{quote(identity, safe='')}"
    api.delete(path, dry_run=True)
    confirm(f"Close connection {identity}?", yes)
    api.delete(path)
    typer.echo(f"{identity} closed")


@consumer.command("close")
def close_consumer(
    destination: Annotated[str, typer.Argument(metavar="DEST", help="queue:NAME, topic:NAME, or NAME of a queue.")],
    identity: Annotated[str, typer.Argument(metavar="CONSUMER", help="Its id, as `queue consumers` shows it.")],
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Close one consumer; its client is told, the rest of its connection goes on."""
    api = Api(http, user, namespace)
    path = api.place(address_of(destination), "consumers", quote(identity, safe=""))
    api.delete(path, dry_run=True)
    confirm(f"Close consumer {identity}?", yes)
    api.delete(path)
    typer.echo(f"{identity} closed")
