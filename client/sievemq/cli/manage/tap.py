"""``sievemq tap …``: the broker's cursors for readers that read ranges, such as archives and Spark queries."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

import typer

from sievemq.cli.completing import queues
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Api, Place, address_of
from sievemq.cli.manage.actions import Care, JsonOption, remove
from sievemq.cli.manage.output import Columns, moment, number, print_one, print_rows, span, yes
from sievemq.cli.options import JsonOption as LinesOption
from sievemq.cli.options import SelectorOption
from sievemq.cli.values import parse_duration
from sievemq_core.counted import counted
from sievemq_core.output import report

tap = typer.Typer(help="Taps, and how far their readers are behind: ls, info, create, delete.", no_args_is_help=True)

DestinationArgument = Annotated[
    str,
    typer.Argument(
        metavar="DEST",
        help="The tap's destination: queue:NAME, topic:NAME, or NAME of a queue.",
        autocompletion=queues,
    ),
]
TapArgument = Annotated[str, typer.Argument(metavar="TAP", help="The tap's name, as `tap ls` shows it.")]


class Mode(StrEnum):
    """The mode of a tap."""

    COPY = "copy"
    DRAIN = "drain"


class Start(StrEnum):
    """Where a new copy of a queue begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


_LIST: Columns = {
    "tap": lambda row: row["name"],
    "on": lambda row: row["destination"],
    "mode": lambda row: row["mode"],
    "lag": number("lag"),
    "for": lambda row: span(row["lag_ms"]),
    "missed": number("missed"),
    "bytes": number("bytes"),
    "reader": lambda row: row["reader"] or "",
    "connected": yes("connected"),
    "selector": lambda row: row["selector"] or "",
}
_ONE: Columns = {
    "tap": lambda row: row["name"],
    "on": lambda row: row["destination"],
    "mode": lambda row: row["mode"],
    "selector": lambda row: row["selector"] or "",
    "lag": lambda row: (
        counted(row["lag"], "message", form=",") + (f", the oldest for {span(row['lag_ms'])}" if row["lag_ms"] else "")
    ),
    "holds": lambda row: f"{row['first']:,} to {row['last']:,}" if row["first"] <= row["last"] else "nothing",
    "acknowledged": lambda row: f"up to {row['acknowledged']:,}",
    "missed": lambda row: (
        f"{counted(row['missed'], 'message', form=',')}, up to {row['lost']:,}" if row["missed"] else ""
    ),
    "takes no more": lambda row: row["ended"] or "",
    "bytes": number("bytes"),
    "may hold": lambda row: (
        f"{counted(row['retention']['messages'], 'message', form=',')}, {row['retention']['bytes']:,} bytes"
        + (f", for {span(row['retention']['age'])}" if row["retention"]["age"] else "")
    ),
    "lease": lambda row: span(row["retention"]["lease"]),
    "lease ends (UTC)": lambda row: moment(row["lease_ends"]),
    "reader": lambda row: row["reader"] or "",
    "connected": yes("connected"),
    "heard (UTC)": lambda row: moment(row["heard"]),
    "made by": lambda row: row["owner"] or "",
    "id": lambda row: row["id"],
}


@tap.command("ls")
@grouped
def list_taps(
    *,
    destination: Annotated[str | None, typer.Option("--on", help="Only taps of this destination.")] = None,
    place: Place,
    as_json: LinesOption = False,
) -> None:
    """List taps: the lag of their readers in messages and time, lost messages, readers."""
    api = place.api()
    on = None if destination is None else address_of(destination)
    rows = api.rows(f"{api.place()}/taps", "taps", destination=on)
    print_rows(rows, _LIST, as_json, f"no taps in namespace {place.namespace or 'default'}")


@tap.command("info")
@grouped
def show_tap(destination: DestinationArgument, name: TapArgument, *, place: Place, as_json: JsonOption = False) -> None:
    """Show one tap: its messages, its limits, its reader and the end of its lease."""
    api = place.api()
    print_one(api.get(_path(api, destination, name)), _ONE, as_json)


@tap.command("create")
@grouped
def create_tap(
    destination: DestinationArgument,
    name: TapArgument,
    *,
    mode: Annotated[
        Mode, typer.Option("--mode", help="copy: copies arriving messages; drain: consumes a queue.")
    ] = Mode.COPY,
    selector: SelectorOption = None,
    start: Annotated[
        Start, typer.Option("--start", help="Where a copy begins: earliest: waiting messages; latest: later ones.")
    ] = Start.LATEST,
    messages: Annotated[int | None, typer.Option("--retain-messages", min=1, help="Messages to hold at most.")] = None,
    size: Annotated[int | None, typer.Option("--retain-bytes", min=1, help="Bytes to hold at most.")] = None,
    age: Annotated[str | None, typer.Option("--retain-age", help="Time to keep a copied message, such as 7d.")] = None,
    lease: Annotated[
        str | None,
        typer.Option("--lease", help="Silence of the reader after which a drain returns its messages and a copy ends."),
    ] = None,
    place: Place,
) -> None:
    """Create a tap before its reader connects, so that the reader misses nothing; or change an existing one."""
    api = place.api()
    body = {
        "mode": mode.value,
        "selector": selector,
        "start": start.value,
        "retain_messages": messages,
        "retain_bytes": size,
        "retain_age": None if age is None else parse_duration(age),
        "lease": None if lease is None else parse_duration(lease),
    }
    made = api.put(_path(api, destination, name), body)
    report(f"{name} exists on {made['destination']}")


@tap.command("delete")
@grouped
def delete_tap(destination: DestinationArgument, name: TapArgument, *, care: Care, place: Place) -> None:
    """Delete a tap without a reader: a copy with its messages; the messages of a drain are redelivered."""
    api = place.api()
    remove(api, _path(api, destination, name), name, care, called=f"tap {name}")


def _path(api: Api, destination: str, name: str) -> str:
    return api.place(address_of(destination), "taps", quote(name, safe=""))
