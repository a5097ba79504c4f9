"""``sievemq dlq …``: dead letters, why they are there, and back to where they came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from sievemq.cli.broker_access import SelectorOption, UserOption
from sievemq.cli.manage.access import DEFAULT_HTTP, Api, HttpOption, NamespaceOption, address_of
from sievemq.cli.manage.actions import DryRunOption, IdOption, JsonOption, LimitOption, YesOption, act
from sievemq.cli.manage.output import Columns, moment, number, print_rows

__all__ = ["dlq"]

dlq = typer.Typer(help="Dead letters: list by reason, retry, drop.", no_args_is_help=True)

DeadLettersArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The dead-letter queue, DLQ.NAME; of `orders` it is DLQ.orders.")
]

_COLUMNS: Columns = {
    "dead-letter queue": lambda row: row["address"].removeprefix("queue:"),
    "messages": number("messages"),
    "reason": lambda row: row["reason"] or "(none)",
    "origin": lambda row: (row["origin"] or "(unknown)") + (f" / {row['subscription']}" if row["subscription"] else ""),
    "first failure": lambda row: moment(row["first_failure"]),
    "last failure": lambda row: moment(row["last_failure"]),
}


@dlq.command("ls")
def list_dead_letters(
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
    http: HttpOption = DEFAULT_HTTP,
    user: UserOption = None,
) -> None:
    """List dead-letter queues, their messages grouped by reason and origin."""
    api = Api(http, user, namespace)
    queues = api.rows(f"{api.place()}/dead-letters", "queues")
    print_rows(queues if as_json else _groups(queues), _COLUMNS, as_json, f"no dead letters in namespace {namespace}")


@dlq.command()
def retry(
    name: DeadLettersArgument,
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
    """Send dead letters back to where they came from; their attempts are counted anew."""
    address = address_of(name)
    act(
        Api(http, user, namespace),
        address,
        "retry",
        {"selector": selector, "ids": ids},
        most=most,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        past="sent back",
        question=f"Send {{}} messages of {address} back to where they came from?",
    )


@dlq.command()
def drop(
    name: DeadLettersArgument,
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
    """Delete dead letters for good."""
    address = address_of(name)
    act(
        Api(http, user, namespace),
        address,
        "delete" if selector is not None or ids else "purge",
        {"selector": selector, "ids": ids},
        most=most,
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
        past="deleted",
        question=f"Delete {{}} messages of {address} for good?",
    )


def _groups(queues: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in queues:
        for group in row["groups"]:
            yield {"address": row["address"], **group}
        rest = row["depth"] - row["examined"]
        if rest > 0:  # said, not left out: the broker looks at so many of each queue
            unseen = {"origin": None, "subscription": None, "reason": "(not looked at)", "messages": rest}
            yield {"address": row["address"], **unseen, "first_failure": 0, "last_failure": 0}
