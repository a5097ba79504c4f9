"""What needs an operator's attention: ``sievemq doctor``, and the head of ``sievemq top``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import typer

from sievemq.cli.exits import REFUSED
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Port
from sievemq.cli.manage.actions import JsonOption
from sievemq.cli.manage.output import Columns, print_rows, span

NOTICE = "notice"
"""Severity of what an operator has chosen: no reason to be woken."""


@grouped
def doctor(*, port: Port, as_json: JsonOption = False) -> None:
    """Show what needs attention on a broker: where, since when, how much, and what to do.

    Exit codes: 0 nothing but notices, 1 the broker cannot be reached, 4 something needs attention.
    """
    answer = port.api().get("/attention")
    now, findings = answer["now"], answer["findings"]
    columns: Columns = {
        "severity": lambda row: row["severity"],
        "where": where,
        "for": lambda row: lasting(row, now),
        "what": lambda row: row["text"],
        "what to do": lambda row: row["advice"],
    }
    print_rows(findings, columns, as_json, "Nothing needs attention.")
    if any(row["severity"] != NOTICE for row in findings):
        raise typer.Exit(REFUSED)


def marks(row: dict[str, Any], but: Collection[str] = ()) -> str:
    """What a row of a list needs attention for, separated by commas.

    Args:
        but: rules that the list shows otherwise.
    """
    return ",".join(rule.replace("_", "-") for rule in row["attention"] if rule not in but)


def where(row: dict[str, Any]) -> str:
    """What a finding is about, in words."""
    namespace, client = row["namespace"], row["client_id"] or row["connection"]
    place = row["subscription"] or row["address"]
    if place is None:
        place = client or namespace or "broker"
    elif client:
        place = f"{place} ({client})"
    return place if namespace in (None, "default", place) else f"{namespace} {place}"


def lasting(row: dict[str, Any], now: int) -> str:
    """For how long it has needed attention."""
    return span(max(1, now - row["since"]))
