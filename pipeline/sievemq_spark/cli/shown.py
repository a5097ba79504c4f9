"""Results on the terminal."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from sievemq_core.harmless import harmless
from sievemq_core.output import report, show, writing
from sievemq_spark.report import Table, parts_of


def print_json(result: Any, *, done: bool = False) -> None:
    """A result, which is a dataclass, as one JSON object.

    Args:
        result: the dataclass.
        done: it tells what the command did, and is not what the command is for.
    """
    (report if done else show)(json.dumps(_plain(result)))


def print_tables(result: Any) -> None:
    """The tables of a result."""
    console = Console(highlight=False, markup=False)
    for part in parts_of(result):
        if isinstance(part, Table):
            table = RichTable(title=part.title)
            for number, column in enumerate(part.columns):
                table.add_column(column, justify="left" if number == 0 else "right")
            for row in part.rows:
                table.add_row(*map(harmless, row))
            with writing():
                console.print(table)


def _plain(value: Any) -> Any:
    """A result as JSON holds it: keys that are tuples become lists of key and value."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        if any(isinstance(key, tuple) for key in value):
            return [[list(key), _plain(item)] for key, item in value.items()]
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
