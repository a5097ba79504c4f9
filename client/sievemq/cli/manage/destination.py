"""``sievemq queue …`` and ``sievemq topic …``: the same verbs for both kinds of destination."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sievemq.cli.broker_access import SelectorOption, UserOption
from sievemq.cli.manage.access import DEFAULT_HTTP, Api, HttpOption, NamespaceOption, address_of
from sievemq.cli.manage.actions import DryRunOption, JsonOption, LimitOption, YesOption, act, confirm
from sievemq.cli.manage.output import Columns, number, print_one, print_rows, rate

__all__ = ["queue", "topic"]

queue = typer.Typer(help="Queues: list, make, pause, purge, delete.", no_args_is_help=True)
topic = typer.Typer(help="Topics: list, make, delete.", no_args_is_help=True)

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="queue:NAME, or NAME.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="topic:NAME, or NAME.")]
LikeOption = Annotated[str | None, typer.Option("--like", help="Only names with this in them; * for any text.")]
SortOption = Annotated[
    str, typer.Option("--sort", help="address, -depth, -in_flight, -bytes, -consumers, -in_rate, …: most first.")
]
MostOption = Annotated[int, typer.Option("--number", "-n", min=0, help="At most so many; 0 for all.")]

_QUEUES: Columns = {
    "queue": lambda row: row["name"] + (" (paused)" if row["paused"] else ""),
    "ready": number("depth"),
    "in flight": number("in_flight"),
    "scheduled": number("scheduled"),
    "bytes": number("bytes"),
    "consumers": number("consumers"),
    "in/s": rate("in_rate"),
    "out/s": rate("out_rate"),
}
_TOPICS: Columns = {
    "topic": lambda row: row["name"],
    "subscriptions": number("subscriptions"),
    "consumers": number("consumers"),
    "waiting": number("depth"),
    "in/s": rate("in_rate"),
    "out/s": rate("out_rate"),
}
_CONSUMERS: Columns = {
    "consumer": lambda row: row["id"],
    "client": lambda row: row["client_id"] or row["peer"],
    "credit": number("credit"),
    "in flight": number("in_flight"),
    "delivered": number("delivered"),
    "matches": lambda row: "" if row["match_ratio"] is None else f"{row['match_ratio']:.0%}",
    "selector": lambda row: row["selector"] or "",
}


def _details(row: dict[str, Any]) -> Columns:
    columns: Columns = {
        "address": lambda row: row["address"],
        "namespace": lambda row: row["namespace"],
        "ready": number("depth"),
        "in flight": number("in_flight"),
        "scheduled": number("scheduled"),
        "bytes": number("bytes"),
        "consumers": number("consumers"),
        "selectors": number("selectors"),
        "subscriptions": lambda row: f"{row['subscriptions']:,}" if row["kind"] == "topic" else "",
        "paused": lambda row: "yes" if row["paused"] else "",
        "in/s": rate("in_rate"),
        "out/s": rate("out_rate"),
        "dead letters go to": lambda row: row["dead_letters"] or "",
        "belongs to": lambda row: row["owner"] or "",
    }
    columns |= {name.replace("_", " "): _counter(name) for name in row["counters"]}
    columns |= {f"rule {name}": _rule(name) for name in row["policy"]}
    return columns


def _counter(name: str) -> Any:
    return lambda row: f"{row['counters'][name]:,}"


def _rule(name: str) -> Any:
    return lambda row: "" if row["policy"][name] is None else str(row["policy"][name])


# -- queues -----------------------------------------------------------------------------------------------------------


@queue.command("ls")
def list_queues(
    like: LikeOption = None,
    sort: SortOption = "address",
    most: MostOption = 0,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """List queues with what waits in them."""
    api = Api(http, user, namespace)
    rows = api.rows(f"{api.place()}/destinations", "destinations", most, kind="queue", like=like, sort=sort)
    print_rows(rows, _QUEUES, as_json, f"no queues in namespace {namespace}")


@queue.command("info")
def show_queue(
    name: QueueArgument,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Show one queue: figures, counters, rules."""
    api = Api(http, user, namespace)
    row = api.get(api.place(address_of(name)))
    print_one(row, _details(row), as_json)


@queue.command("consumers")
def list_consumers(
    name: QueueArgument,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """List a queue's consumers with their selectors, and the share of messages that these match."""
    api = Api(http, user, namespace)
    address = address_of(name)
    print_rows(
        api.rows(api.place(address, "consumers"), "consumers"), _CONSUMERS, as_json, f"{address} has no consumers"
    )


@queue.command("create")
def create_queue(
    name: QueueArgument,
    namespace: NamespaceOption = "default",
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Make a queue. One that is there already stays as it is."""
    api = Api(http, user, namespace)
    typer.echo(f"{api.put(api.place(address_of(name)))['address']} is there")


@queue.command("delete")
def delete_queue(
    name: QueueArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Delete a queue with all that is in it; its consumers are told."""
    _delete(Api(http, user, namespace), address_of(name), dry_run, yes)


@queue.command("pause")
def pause_queue(
    name: QueueArgument,
    namespace: NamespaceOption = "default",
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Stop deliveries. Sending goes on; what has been delivered can be acknowledged."""
    api = Api(http, user, namespace)
    api.post(api.place(address_of(name), "actions", "pause"), {})
    typer.echo(f"{address_of(name)} is paused")


@queue.command("resume")
def resume_queue(
    name: QueueArgument,
    namespace: NamespaceOption = "default",
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Deliver again."""
    api = Api(http, user, namespace)
    api.post(api.place(address_of(name), "actions", "resume"), {})
    typer.echo(f"{address_of(name)} delivers")


@queue.command("purge")
def purge_queue(
    name: QueueArgument,
    selector: SelectorOption = None,
    most: LimitOption = 0,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Remove what waits in a queue, scheduled messages too. What is in flight stays."""
    address = address_of(name)
    act(
        Api(http, user, namespace),
        address,
        "purge",
        {"selector": selector},
        most=most,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        past="removed",
        question=f"Remove {{}} messages from {address}?",
    )


# -- topics -----------------------------------------------------------------------------------------------------------


@topic.command("ls")
def list_topics(
    like: LikeOption = None,
    sort: SortOption = "address",
    most: MostOption = 0,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """List topics with their subscriptions."""
    api = Api(http, user, namespace)
    rows = api.rows(f"{api.place()}/destinations", "destinations", most, kind="topic", like=like, sort=sort)
    print_rows(rows, _TOPICS, as_json, f"no topics in namespace {namespace}")


@topic.command("info")
def show_topic(
    name: TopicArgument,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Show one topic: figures, counters, rules."""
    api = Api(http, user, namespace)
    row = api.get(api.place(address_of(name, topic=True)))
    print_one(row, _details(row), as_json)


@topic.command("create")
def create_topic(
    name: TopicArgument,
    namespace: NamespaceOption = "default",
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Make a topic. One that is there already stays as it is."""
    api = Api(http, user, namespace)
    typer.echo(f"{api.put(api.place(address_of(name, topic=True)))['address']} is there")


@topic.command("delete")
def delete_topic(
    name: TopicArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Delete a topic with its subscriptions and their messages; consumers are told."""
    _delete(Api(http, user, namespace), address_of(name, topic=True), dry_run, yes)


def _delete(api: Api, address: str, dry_run: bool, yes: bool) -> None:
    count = api.delete(api.place(address), dry_run=True)
    if dry_run:
        typer.echo(f"{address} would be deleted with {count['matched']:,} messages")
        return
    confirm(f"Delete {address} with {count['matched']:,} messages?", yes)
    gone = api.delete(api.place(address))
    typer.echo(f"{address} deleted with {gone['touched']:,} messages")
