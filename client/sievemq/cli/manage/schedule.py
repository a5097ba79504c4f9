"""``sievemq schedule …``: messages that wait for their delivery time."""

from __future__ import annotations

from typing import Annotated

import typer

from sievemq.cli.broker_access import SelectorOption, UserOption
from sievemq.cli.manage.access import DEFAULT_HTTP, Api, HttpOption, NamespaceOption, address_of
from sievemq.cli.manage.actions import DryRunOption, IdOption, JsonOption, LimitOption, YesOption, act
from sievemq.cli.manage.output import Columns, moment, number, print_rows

__all__ = ["schedule"]

schedule = typer.Typer(help="Scheduled messages: list, cancel.", no_args_is_help=True)

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="queue:NAME, or NAME.")]

_COLUMNS: Columns = {
    "delivery (UTC)": lambda row: moment(row["due"]),
    "message": lambda row: row["message_id"] or row["id"],
    "type": lambda row: row["type"] or "",
    "priority": number("priority"),
    "bytes": number("size"),
}


@schedule.command("ls")
def list_scheduled(
    name: QueueArgument,
    selector: SelectorOption = None,
    most: Annotated[int, typer.Option("--number", "-n", min=0, help="At most so many; 0 for all.")] = 0,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """List what a queue holds back until its time, earliest first."""
    api = Api(http, user, namespace)
    address = address_of(name)
    rows = api.rows(api.place(address, "scheduled"), "messages", most, selector=selector)
    print_rows(rows, _COLUMNS, as_json, f"nothing is scheduled in {address}")


@schedule.command()
def cancel(
    name: QueueArgument,
    selector: SelectorOption = None,
    ids: IdOption = None,
    most: LimitOption = 0,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """Delete scheduled messages before their time."""
    address = address_of(name)
    act(
        Api(http, user, namespace),
        address,
        "cancel",
        {"selector": selector, "ids": ids},
        most=most,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        past="cancelled",
        question=f"Cancel {{}} scheduled messages of {address}?",
    )
