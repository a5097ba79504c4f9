"""``sievemq top``: the broker at a glance, again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any, Final

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Api, Place
from sievemq.cli.manage.actions import JsonOption
from sievemq.cli.manage.attention import lasting, where
from sievemq.cli.manage.output import fitting
from sievemq.cli.show import harmless, json_line
from sievemq_core.output import show, writing

#: Findings that are listed.
_FINDINGS: Final = 8
#: Heading -> field of a row.
_FIGURES: Final = {
    "ready": "depth", "in flight": "in_flight", "scheduled": "scheduled", "consumers": "consumers", "in/s": "in_rate",
    "out/s": "out_rate",
}  # fmt: skip
_STYLES: Final = {"critical": "bold red", "warning": "yellow"}


@grouped
def top(
    *,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two updates.")] = 1.0,
    rounds: Annotated[int, typer.Option("--rounds", min=0, help="Updates to show; 0 until Ctrl-C.")] = 0,
    most: Annotated[int, typer.Option("--number", "-n", min=1, help="Destinations to show.")] = 20,
    sort: Annotated[
        str, typer.Option("--sort", help="address, or descending: -depth, -in_rate, -out_rate, …")
    ] = "-depth",
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Watch a broker: rates, memory, connections, and its busiest or deepest destinations. Ctrl-C ends it.

    If the output is not a terminal, it prints one update, or as many as --rounds names.
    """
    screen = ExitStack()
    api = place.api(before_failing=screen.close)
    if as_json or not sys.stdout.isatty():
        for number in range(rounds or 1):
            if number:
                time.sleep(interval)
            seen = _look(api, most, sort)
            if as_json:
                show(json_line(seen))
            else:
                with writing():
                    Console(width=120).print(_screen(seen))
        return
    first = _look(api, most, sort)
    with screen:
        live = screen.enter_context(Live(_screen(first), screen=not rounds, auto_refresh=False))
        number = 1
        while not rounds or number < rounds:
            time.sleep(interval)
            live.update(_screen(_look(api, most, sort)), refresh=True)
            number += 1


def _look(api: Api, most: int, sort: str) -> dict[str, Any]:
    destinations = list(api.rows(f"{api.place()}/destinations", "destinations", most, sort=sort))
    return {"broker": api.get("/broker"), "attention": api.get("/attention"), "destinations": destinations}


def _screen(seen: dict[str, Any]) -> RenderableType:
    broker = seen["broker"]
    memory, held, rates = broker["memory"], broker["messages"], broker["rates"]
    used = ""
    if memory is not None:  # only for users who may view everything
        share = f" ({memory['bytes'] / memory['limit']:.0%} of {_size(memory['limit'])})" if memory["limit"] else ""
        used = f"  memory {_size(memory['bytes'])}{share}"
    uptime = int(broker["uptime_seconds"])
    up = f"{uptime // 3600}:{uptime // 60 % 60:02}:{uptime % 60:02}"
    kept = "durable" if broker["durable"] else "in memory"
    parties = " ".join(f" {name} {broker[name]:,} " for name in ("connections", "consumers", "destinations"))
    lines = [
        f"SieveMQ {broker['version']}  {broker['url']}  {broker['phase']}  up {up}  {kept}",
        f"in {rates['in_rate']:,.0f}/s  out {rates['out_rate']:,.0f}/s{used}",
        f"ready {held['ready']:,}  in flight {held['in_flight']:,}  scheduled {held['scheduled']:,} {parties}".rstrip(),
    ]
    parts: list[RenderableType] = [Text(line) for line in lines]
    parts += _attention(seen["attention"], broker["now"])
    return Group(*parts, Text(""), _Destinations(seen["destinations"]))


class _Destinations:
    """The table, which lacks what matters least on a narrow terminal."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        titles = [row["address"] + "".join(f"  ({word})" for word in _words(row)) for row in self._rows]
        texts = {"destination": titles}
        texts |= {name: [f"{row[field]:,.0f}" for row in self._rows] for name, field in _FIGURES.items()}
        filled = {name for name, cells in texts.items() if any(cell != "0" for cell in cells)}
        names = fitting(list(texts), texts, filled, options.max_width)
        table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
        for name in names:
            # Figures have room before a long name has.
            first = name == "destination"
            table.add_column(name, justify="left" if first else "right", no_wrap=True, ratio=1 if first else None)
        for row, *cells in zip(self._rows, *(texts[name] for name in names), strict=True):
            stands_out = row["dead_letter_queue"] and row["depth"]
            table.add_row(Text(cells[0], style="yellow" if stands_out else ""), *cells[1:])
        yield table


def _words(row: dict[str, Any]) -> Iterator[str]:
    if row["paused"]:
        yield "paused"
    if row["blocked_senders"]:
        yield f"at its limit, {row['blocked_senders']:,} blocked"
    elif row["at_limit"]:
        yield "at its limit"


def _attention(attention: dict[str, Any], now: int) -> Iterator[Text]:
    """What needs attention, a line each."""
    findings = attention["findings"]
    if findings:
        yield Text("Needs attention", style="bold")
    for row in findings[:_FINDINGS]:
        line = f"  {lasting(row, now):>6}  {where(row)}: {row['text']}"
        yield Text(harmless(line), style=_STYLES.get(row["severity"], ""))
    more = sum(attention["totals"].values()) - len(findings[:_FINDINGS])
    if more > 0:
        yield Text(f"  and {more:,} more: sievemq doctor")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
