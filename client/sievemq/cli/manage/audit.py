"""``sievemq audit``: who did what, when, and to how many messages."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import MostOption, Port
from sievemq.cli.manage.output import Columns, moment, print_rows
from sievemq.cli.options import JsonOption as LinesOption

_COLUMNS: Columns = {
    "time (UTC)": lambda row: moment(row["time"]),
    "user": lambda row: row["user"] or "",
    "action": lambda row: row["action"],
    "namespace": lambda row: row["namespace"] or "",
    "address": lambda row: row["address"] or "",
    "touched": lambda row: "" if row["touched"] is None else row["touched"],
    "outcome": lambda row: row["outcome"] + (f" ({row['times']} times)" if row["times"] > 1 else ""),
    "from": lambda row: row["peer"] or "",
    "via": lambda row: row["via"],
    "details": lambda row: _details(row["details"] or {}),
}


@grouped
def audit(
    *,
    like: Annotated[
        str | None, typer.Option("--like", help="Only rows whose action or address contains this; * matches any text.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Only rows of this user.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-N", help="Only rows about this namespace.")] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="actions: what was done; attempts: sign-ins, and what was refused.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="time, action, user, touched, or -touched for the largest first.")
    ] = None,
    number: MostOption = 100,
    as_json: LinesOption = False,
    port: Port,
) -> None:
    """Show who did what, when, and to how many messages, newest first.

    `--number 0 --json` exports all of it.
    """
    rows = port.api().rows("/audit", "rows", number, like=like, user=by, namespace=namespace, only=only, sort=sort)
    print_rows(rows, _COLUMNS, as_json, "nothing is recorded", seldom=("details", "touched", "namespace", "address"))


def _details(details: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in details.items())
