"""Rows as a table for people, as tab-separated text for other programs, or as JSON with the API's own names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sievemq.cli.show import harmless, json_line
from sievemq_core.output import complain, show, writing

#: Columns of all tables that a narrow terminal does without, beginning with what matters least. The first column of a
#: table is never one of them.
_LEAST: Final = (
    "agent", "details", "via", "from", "protocol", "bytes", "sessions", "delivered", "credit", "matches", "type",
    "priority", "mode", "shared", "connected", "scheduled", "out/s", "in/s", "user", "namespace", "peer",
    "unacknowledged", "origin", "in flight", "subscriptions", "consumers",
)  # fmt: skip
#: Blanks between two columns, and the width from which on texts are folded.
_GAP, _FOLDED = 2, 24

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
    texts = {name: [harmless(_for_people(cells[name])) for cells in made] for name in columns}
    filled = {name for name in columns if any(cells[name] for cells in made)}
    console = Console()
    shown = [name for name in columns if name not in seldom or name in filled]
    names = fitting(shown, texts, filled, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        figures = all(isinstance(cells[name], int | float) for cells in made if cells[name] != "")
        # What is too long is continued in the next line: a name that is cut off is of no use.
        table.add_column(name, justify="right" if figures else "left", no_wrap=figures, overflow="fold")
    for line in zip(*(texts[name] for name in names), strict=True):
        table.add_row(*map(Text, line))  # as text: what a destination is called is no markup
    with writing():
        console.print(table)
    if len(names) < len(shown):
        hidden = ", ".join(name for name in shown if name not in names)
        complain(f"(without {hidden}: the terminal is narrow; --json has everything)")


def fitting(names: list[str], texts: Mapping[str, list[str]], filled: Collection[str], width: int) -> list[str]:
    """The columns that a terminal has room for. First those go that are empty or zero, from the right, then those that
    matter least. What is left may be folded."""
    first = names[0]
    widths = {name: max(map(cell_len, (name, *texts[name]))) for name in names}
    needed = {
        name: min(size, width * 2 // 3 if name == first else max(_FOLDED, cell_len(name)))
        for name, size in widths.items()
    }
    empty = [name for name in reversed(names[1:]) if name not in filled and name != "consumers"]  # none is a finding
    for name in (*empty, *(each for each in _LEAST if each in names[1:] and each not in empty)):
        if sum(needed[each] + _GAP for each in names) - _GAP <= width:
            break
        names = [each for each in names if each != name]
    return names


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


def share(row: dict[str, Any]) -> str:
    """How much of its limit is in use; nothing without a limit."""
    return "" if row["fill"] is None else f"{row['fill']:.0%}"


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
