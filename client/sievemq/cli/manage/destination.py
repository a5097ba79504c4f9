"""``sievemq queue …`` and ``sievemq topic …``: the same verbs for both kinds of destination."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from sievemq.cli.completing import topics
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import MostOption, Place, QueueArgument, address_of
from sievemq.cli.manage.actions import Care, Chosen, JsonOption, LimitOption, act, remove
from sievemq.cli.manage.attention import marks
from sievemq.cli.manage.output import Columns, number, print_one, print_rows, rate, share, span, yes
from sievemq.cli.options import JsonOption as LinesOption
from sievemq.cli.options import SelectorOption
from sievemq_core.output import report

queue = typer.Typer(help="Queues: ls, info, consumers, create, pause, resume, purge, delete.", no_args_is_help=True)
topic = typer.Typer(help="Topics: ls, info, create, delete.", no_args_is_help=True)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="topic:NAME, or NAME.", autocompletion=topics)]
LikeOption = Annotated[
    str | None, typer.Option("--like", help="Only names that contain this text; * matches any text.")
]
SortOption = Annotated[
    str,
    typer.Option(
        "--sort",
        help="address, or a figure, with - in front the largest first: -depth, -oldest, -in_flight, "
        "-oldest_in_flight, -scheduled, -bytes, consumers, -in_rate, -out_rate, -dead_lettered.",
    ),
]


class Listing(NamedTuple):
    """Options: which destinations, in which order."""

    like: LikeOption = None
    only: Annotated[
        str | None,
        typer.Option(
            "--only", help="Only those: waiting, unconsumed, in_flight, scheduled, paused, at_limit, blocked."
        ),
    ] = None
    sort: SortOption = "address"
    most: MostOption = 0


_QUEUES: Columns = {
    "queue": lambda row: row["name"],
    "ready": number("depth"),
    "in flight": number("in_flight"),
    "scheduled": number("scheduled"),
    "bytes": number("bytes"),
    "consumers": number("consumers"),
    "in/s": rate("in_rate"),
    "out/s": rate("out_rate"),
    "limit used": share,
    "state": lambda row: state(row),
    "blocked": number("blocked_senders"),
}
_TOPICS: Columns = {
    "topic": lambda row: row["name"],
    "subscriptions": number("subscriptions"),
    "consumers": number("consumers"),
    "waiting": number("depth"),
    "in/s": rate("in_rate"),
    "out/s": rate("out_rate"),
    "limit used": share,
    "state": lambda row: state(row),
    "blocked": number("blocked_senders"),
}
#: Also of `consumer ls`.
CONSUMERS: Columns = {
    "consumer": lambda row: row["id"],
    "client": lambda row: row["client_id"] or row["peer"],
    "credit": number("credit"),
    "in flight": number("in_flight"),
    "oldest held for": lambda row: span(row["oldest_ms"]) if row["in_flight"] else "",
    "delivered": number("delivered"),
    "matches": lambda row: "" if row["match_ratio"] is None else f"{row['match_ratio']:.0%}",
    "attention": marks,
    "selector": lambda row: row["selector"] or "",
}


def state(row: dict[str, Any]) -> str:
    """The unusual facts about a destination, separated by commas."""
    words = [word for word, name in (("paused", "paused"), ("at-limit", "at_limit")) if row[name]]
    found = marks(row, ("paused", "queue_full", "nearly_full", "senders_blocked"))  # columns of their own
    return ",".join(filter(None, (*words, found)))


def _details(row: dict[str, Any]) -> Columns:
    columns: Columns = {
        "address": lambda row: row["address"],
        "namespace": lambda row: row["namespace"],
        "ready": number("depth"),
        "oldest waits for": lambda row: span(row["oldest_ms"]),
        "in flight": number("in_flight"),
        "oldest in flight for": lambda row: span(row["oldest_in_flight_ms"]),
        "scheduled": number("scheduled"),
        "bytes": number("bytes"),
        "consumers": number("consumers"),
        "selectors": number("selectors"),
        "subscriptions": lambda row: row["subscriptions"] if row["kind"] == "topic" else "",
        "paused": yes("paused"),
        "at its limit": yes("at_limit"),
        "limit used": share,
        "senders blocked": lambda row: row["blocked_senders"] or "",
        "in/s": rate("in_rate"),
        "out/s": rate("out_rate"),
        "dead letters go to": lambda row: row["dead_letters"] or "",
        "belongs to": lambda row: row["owner"] or "",
    }
    columns |= {name.replace("_", " "): _counter(name) for name in row["counters"]}
    columns["rules of"] = lambda row: row["rule"]
    columns |= {f"rule {name}": _rule(name) for name in row["policy"]}
    return columns


def _counter(name: str) -> Any:
    return lambda row: row["counters"][name]


def _rule(name: str) -> Any:
    def rule(row: dict[str, Any]) -> str | int | float:
        value = row["policy"][name]
        if value is None:
            return ""
        return ("yes" if value else "no") if isinstance(value, bool) else value

    return rule


# -- queues -----------------------------------------------------------------------------------------------------------


@queue.command("ls")
@grouped
def list_queues(listing: Listing, place: Place, *, as_json: LinesOption = False) -> None:
    """List queues with the numbers of their messages."""
    _list("queue", _QUEUES, listing, place, as_json)


@queue.command("info")
@grouped
def show_queue(name: QueueArgument, place: Place, *, as_json: JsonOption = False) -> None:
    """Show one queue: figures, counters, rules."""
    _show(address_of(name), place, as_json)


@queue.command("consumers")
@grouped
def list_consumers(name: QueueArgument, place: Place, *, as_json: LinesOption = False) -> None:
    """List a queue's consumers with their selectors, and the share of messages that these match."""
    api = place.api()
    address = address_of(name)
    rows = api.rows(api.place(address, "consumers"), "consumers")
    print_rows(rows, CONSUMERS, as_json, f"{address} has no consumers", seldom=("attention",))


@queue.command("create")
@grouped
def create_queue(name: QueueArgument, place: Place) -> None:
    """Create a queue. An existing one is left unchanged."""
    _create(address_of(name), place)


@queue.command("delete")
@grouped
def delete_queue(name: QueueArgument, care: Care, place: Place) -> None:
    """Delete a queue with its messages; its consumers are closed."""
    _delete(address_of(name), care, place)


@queue.command("pause")
@grouped
def pause_queue(name: QueueArgument, place: Place) -> None:
    """Stop deliveries. Sending continues; delivered messages can be acknowledged."""
    api = place.api()
    api.post(api.place(address_of(name), "actions", "pause"), {})
    report(f"{address_of(name)} is paused")


@queue.command("resume")
@grouped
def resume_queue(name: QueueArgument, place: Place) -> None:
    """Resume deliveries."""
    api = place.api()
    api.post(api.place(address_of(name), "actions", "resume"), {})
    report(f"{address_of(name)} delivers")


@queue.command("purge")
@grouped
def purge_queue(
    name: QueueArgument,
    *,
    selector: SelectorOption = None,
    most: LimitOption = 0,
    care: Care,
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Remove the waiting and scheduled messages of a queue. Messages in flight stay."""
    address = address_of(name)
    chosen = Chosen(selector, most=most)
    question = f"Remove {{}} from {address}?"
    act(place.api(), address, "purge", chosen, care, as_json, past="removed", question=question)


# -- topics -----------------------------------------------------------------------------------------------------------


@topic.command("ls")
@grouped
def list_topics(listing: Listing, place: Place, *, as_json: LinesOption = False) -> None:
    """List topics with their subscriptions."""
    _list("topic", _TOPICS, listing, place, as_json)


@topic.command("info")
@grouped
def show_topic(name: TopicArgument, place: Place, *, as_json: JsonOption = False) -> None:
    """Show one topic: figures, counters, rules."""
    _show(address_of(name, topic=True), place, as_json)


@topic.command("create")
@grouped
def create_topic(name: TopicArgument, place: Place) -> None:
    """Create a topic. An existing one is left unchanged."""
    _create(address_of(name, topic=True), place)


@topic.command("delete")
@grouped
def delete_topic(name: TopicArgument, care: Care, place: Place) -> None:
    """Delete a topic with its subscriptions and their messages; its consumers are closed."""
    _delete(address_of(name, topic=True), care, place)


# -- both -------------------------------------------------------------------------------------------------------------


def _list(kind: str, columns: Columns, listing: Listing, place: Place, as_json: bool) -> None:
    api = place.api()
    path = f"{api.place()}/destinations"
    rows = api.rows(
        path, "destinations", listing.most, kind=kind, like=listing.like, only=listing.only, sort=listing.sort
    )
    nothing = f"no {kind}s in namespace {place.namespace}"
    print_rows(rows, columns, as_json, nothing, seldom=("limit used", "state", "blocked"))


def _show(address: str, place: Place, as_json: bool) -> None:
    api = place.api()
    row = api.get(api.place(address))
    print_one(row, _details(row), as_json)


def _create(address: str, place: Place) -> None:
    api = place.api()
    report(f"{api.put(api.place(address))['address']} exists")


def _delete(address: str, care: Care, place: Place) -> None:
    api = place.api()
    remove(api, api.place(address), address, care)
