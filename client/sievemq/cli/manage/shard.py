"""``sievemq shard``: which broker of a cluster has which namespaces."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit

import typer

from sievemq.cli.exits import USAGE
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Port
from sievemq.cli.manage.output import Columns, number, print_rows
from sievemq.cli.management_url import split_http
from sievemq.cli.options import JsonOption as LinesOption
from sievemq.cli.show import harmless
from sievemq_core.output import complain, report

shard = typer.Typer(help="Shards of a cluster: ls, patterns, assign, unassign, move.", no_args_is_help=True)

_SHARDS: Final[Columns] = {
    "shard": lambda row: row["name"],
    "namespaces": number("namespaces"),
    "owner": lambda row: row["url"] or "(none)",
    "management port": lambda row: row["http_url"] or "",
    "followers": lambda row: "" if row["followers"] is None else row["followers"],
    "process": lambda row: row["owner"] or "",
}
_PATTERNS: Final[Columns] = {"pattern": lambda row: row["pattern"], "shard": lambda row: row["shard"]}

Name = Annotated[str, typer.Argument(metavar="NAME", help="A namespace; or a pattern with * or ? for new ones.")]
ShardArgument = Annotated[str, typer.Argument(metavar="SHARD", help="Name of a shard.")]


@shard.command()
@grouped
def ls(port: Port, *, as_json: LinesOption = False) -> None:
    """List the shards of a cluster: owner, followers, number of namespaces."""
    print_rows(port.api().get("/shards")["shards"], _SHARDS, as_json, "no shards")


@shard.command()
@grouped
def patterns(port: Port, *, as_json: LinesOption = False) -> None:
    """List the patterns that choose the shard of a new namespace, in order: the first that fits applies."""
    answer = port.api().get("/shards")
    # The broker shows none to a user without the right to view everything.
    nothing = "no patterns, or no right to see them" if answer["cluster"] else "this broker is not part of a cluster"
    print_rows(answer["patterns"], _PATTERNS, as_json, nothing)


@shard.command()
@grouped
def assign(name: Name, shard: ShardArgument, port: Port) -> None:
    """Have a namespace in a shard, if it is empty or does not exist; or new ones whose names fit a pattern."""
    answer = port.api().post(f"{_of(shard)}/actions/assign", {"name": name})
    report(f"{harmless(answer['name'])} is in shard {harmless(answer['shard'])}")


@shard.command()
@grouped
def unassign(pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="As listed.")], port: Port) -> None:
    """Remove a pattern. Namespaces that exist stay in their shard."""
    port.api().delete(f"/shards/patterns/{quote(pattern, safe='')}")
    report(f"{harmless(pattern)} removed")


@shard.command()
@grouped
def move(
    shard: ShardArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="HOST|URL", help="Broker that owns no shard: its host, or URL of its management port."
        ),
    ],
    port: Port,
) -> None:
    """Have the owner of a shard hand it over to another broker. Clients wait for a moment, and lose nothing.

    The owner ends in order, and is to be started again: it follows then. A host alone is asked at the port of --http.
    """
    api = port.api()
    at = urlsplit(api.url)
    host = f"[{to}]" if ":" in to else to
    url = to if "://" in to else f"{at.scheme}://{host}{f':{at.port}' if at.port else ''}"
    split_http(url)  # such as HOST:PORT is neither
    answer: dict[str, Any] = api.at(url).post(f"{_of(shard)}/actions/take", {})
    of = "which has no owner" if answer["owner"] is None else f"and its owner at {harmless(answer['owner'])} ends"
    report(f"{harmless(url)} takes shard {harmless(shard)}, {of}")


def _of(shard: str) -> str:
    if not shard:
        complain("sievemq: the name of a shard is empty; `sievemq shard ls` lists them")
        raise typer.Exit(USAGE)
    return f"/shards/{quote(shard, safe='')}"
