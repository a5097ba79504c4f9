"""``sievemq dlq …``: dead letters, why they are there, and back to where they came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Place, address_of
from sievemq.cli.manage.actions import Care, Chosen, JsonOption, act
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
@grouped
def list_dead_letters(place: Place, *, as_json: JsonOption = False) -> None:
    """List dead-letter queues, their messages grouped by reason and origin."""
    api = place.api()
    queues = api.rows(f"{api.place()}/dead-letters", "queues")
    nothing = f"no dead letters in namespace {place.namespace}"
    print_rows(queues if as_json else _groups(queues), _COLUMNS, as_json, nothing)


@dlq.command()
@grouped
def retry(name: DeadLettersArgument, chosen: Chosen, care: Care, place: Place, *, as_json: JsonOption = False) -> None:
    """Send dead letters back to where they came from; their attempts are counted anew."""
    address = address_of(name)
    question = f"Send {{}} of {address} back to where they came from?"
    act(place.api(), address, "retry", chosen, care, as_json, past="sent back", question=question)


@dlq.command()
@grouped
def drop(name: DeadLettersArgument, chosen: Chosen, care: Care, place: Place, *, as_json: JsonOption = False) -> None:
    """Delete dead letters for good."""
    address = address_of(name)
    verb = "delete" if chosen.selector is not None or chosen.ids else "purge"
    question = f"Delete {{}} of {address} for good?"
    act(place.api(), address, verb, chosen, care, as_json, past="deleted", question=question)


def _groups(queues: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in queues:
        for group in row["groups"]:
            yield {"address": row["address"], **group}
        rest = row["depth"] - row["examined"]
        if rest > 0:  # said, not left out: the broker looks at so many of each queue
            unseen = {"origin": None, "subscription": None, "reason": "(not looked at)", "messages": rest}
            yield {"address": row["address"], **unseen, "first_failure": 0, "last_failure": 0}
