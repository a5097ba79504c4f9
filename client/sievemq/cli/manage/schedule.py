"""``sievemq schedule …``: messages that wait for their delivery time."""

from __future__ import annotations

import typer

from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import MostOption, Place, QueueArgument, address_of
from sievemq.cli.manage.actions import Care, Chosen, JsonOption, act
from sievemq.cli.manage.output import Columns, moment, number, print_rows
from sievemq.cli.options import JsonOption as LinesOption
from sievemq.cli.options import SelectorOption

schedule = typer.Typer(help="Scheduled messages: ls, cancel.", no_args_is_help=True)

_COLUMNS: Columns = {
    "delivery (UTC)": lambda row: moment(row["due"]),
    "message": lambda row: row["message_id"] or row["id"],
    "type": lambda row: row["type"] or "",
    "priority": number("priority"),
    "bytes": number("size"),
}


@schedule.command("ls")
@grouped
def list_scheduled(
    name: QueueArgument,
    *,
    selector: SelectorOption = None,
    most: MostOption = 0,
    place: Place,
    as_json: LinesOption = False,
) -> None:
    """List the scheduled messages of a queue, earliest delivery time first."""
    api = place.api()
    address = address_of(name)
    rows = api.rows(api.place(address, "scheduled"), "messages", most, selector=selector)
    print_rows(rows, _COLUMNS, as_json, f"nothing is scheduled in {address}")


@schedule.command()
@grouped
def cancel(name: QueueArgument, chosen: Chosen, care: Care, place: Place, *, as_json: JsonOption = False) -> None:
    """Delete scheduled messages before their time."""
    address = address_of(name)
    question = f"Cancel {{}} scheduled on {address}?"
    act(place.api(), address, "cancel", chosen, care, as_json, past="cancelled", question=question)
