"""Rows as a table for people, as tab-separated text for other programs, or as JSON with the API's own names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sievemq.cli.show import harmless, json_line
from sievemq_core.output import complain, show, writing

#: Heading -> how a row's cell is made. A figure is grouped for people and plain for programs.
Columns: TypeAlias = dict[str, Callable[[dict[str, Any]], str | int | float]]


def print_rows(
    rows: Iterable[dict[str, Any]], columns: Columns, as_json: bool, nothing: str, seldom: Collection[str] = ()
) -> None:
    """Print a list.

    Args:
        as_json: one JSON object per line instead, whole.
        nothing: printed on standard error if there are no rows and the output is a terminal.
        seldom: columns that a person sees only where some row has something there.
    """
    if as_json:
        for row in rows:
            show(json_line(row))
        return
    # A client chooses its id and its selector: neither may break a line nor command a terminal.
    made = [{name: make(row) for name, make in columns.items()} for row in rows]
    if not sys.stdout.isatty():
        show("\t".join(columns))
        for cells in made:
            show("\t".join(harmless(str(cell)) for cell in cells.values()))
        return
    if not made:
        complain(nothing)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = [name for name in columns if name not in seldom or any(cells[name] for cells in made)]
    for name in names:
        figures = all(isinstance(cells[name], int | float) for cells in made)
        table.add_column(name, justify="right" if figures else "left")
    for cells in made:
        # As text: what a destination is called is no markup.
        table.add_row(*(Text(harmless(_for_people(cells[name]))) for name in names))
    with writing():
        Console().print(table)


def print_one(record: dict[str, Any], columns: Columns, as_json: bool) -> None:
    """Print one thing: a line per fact, or one JSON object."""
    if as_json:
        show(json_line(record))
        return
    facts = [(name, harmless(_for_people(make(record)))) for name, make in columns.items()]
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        if text:
            show(f"{name:<{width}}  {text}")


def number(name: str) -> Callable[[dict[str, Any]], int]:
    """A whole number of a row."""
    return lambda row: int(row[name])


def yes(name: str) -> Callable[[dict[str, Any]], str]:
    """``yes`` where it is true of a row."""
    return lambda row: "yes" if row[name] else ""


def moment(milliseconds: int) -> str:
    """A time in UTC; nothing for 0. One that no calendar has stays a number: a producer may choose any."""
    if not milliseconds:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


#: Characters of a time: the date with the blank behind it, and the year.
_DAY, _YEAR = len("2026-11-28 "), len("2026-")


def period(first: int, last: int) -> str:
    """Two times in UTC, to the minute; of the second only what differs."""
    begins, ends = (text[:16] if text[4:5] == "-" else text for text in (moment(first), moment(last)))
    if begins == ends:
        return begins
    sizes = (_DAY, _YEAR) if begins[4:5] == "-" else ()  # a number of ms is whole
    same = next((size for size in sizes if begins[:size] == ends[:size]), 0)
    return f"{begins} to {ends[same:]}"


def span(milliseconds: int) -> str:
    """A length of time in its two largest units; nothing for 0."""
    if not milliseconds:
        return ""
    left = max(1, milliseconds // 1000)
    parts: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count and len(parts) < 2:
            parts.append(f"{count}{unit}")
    return " ".join(parts)


def rate(name: str) -> Callable[[dict[str, Any]], int | float]:
    """A rate per second of a row."""
    return lambda row: round(row[name], 1) if 0 < row[name] < 100 else round(row[name])


def _for_people(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:,}"
