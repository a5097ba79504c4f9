"""``sievemq dlq …``: dead letters with their reasons; retry or delete them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NoReturn

import typer

from sievemq.cli.completing import queues
from sievemq.cli.exits import NOT_FOUND
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Api, Place, address_of
from sievemq.cli.manage.actions import Care, Chosen, JsonOption, act
from sievemq.cli.manage.output import Columns, number, period, print_rows
from sievemq.cli.options import JsonOption as LinesOption
from sievemq_core.message.dead_letters import ORIGIN
from sievemq_core.output import complain

dlq = typer.Typer(help="Dead letters by reason: ls, retry, drop.", no_args_is_help=True)

DeadLettersArgument = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="The dead-letter queue: DLQ.orders for the queue `orders`.",
        autocompletion=queues,
    ),
]

_COLUMNS: Columns = {
    "queue": lambda row: row["address"].removeprefix("queue:"),
    "messages": number("messages"),
    "reason": lambda row: row["reason"] or "",
    "origin": lambda row: row["origin"] or "",
    "subscription": lambda row: row["subscription"] or "",
    "failures (UTC)": lambda row: period(row["first_failure"], row["last_failure"]),
    "failed by": lambda row: _client(row["failed_by"]),
    "why": lambda row: row["error"] or "",
}


@dlq.command("ls")
@grouped
def list_dead_letters(place: Place, *, as_json: LinesOption = False) -> None:
    """List dead-letter queues, their messages grouped by reason and origin."""
    api = place.api()
    queues = api.rows(f"{api.place()}/dead-letters", "queues")
    nothing = f"no dead letters in namespace {place.namespace}"
    print_rows(
        queues if as_json else _groups(queues), _COLUMNS, as_json, nothing, seldom=("subscription", "failed by", "why")
    )


@dlq.command()
@grouped
def retry(name: DeadLettersArgument, chosen: Chosen, care: Care, place: Place, *, as_json: JsonOption = False) -> None:
    """Send dead letters back to their original destinations; their attempts are counted from zero.

    Exit codes: as everywhere; 3 for a queue that is no dead-letter queue and holds no dead letters.
    """
    address = address_of(name)
    question = f"Send {{}} of {address} back to where they came from?"
    api = place.api()
    _check_dead_letters(api, address)
    act(api, address, "retry", chosen, care, as_json, past="sent back", question=question)


@dlq.command()
@grouped
def drop(name: DeadLettersArgument, chosen: Chosen, care: Care, place: Place, *, as_json: JsonOption = False) -> None:
    """Delete the messages of a dead-letter queue permanently.

    Exit codes: as everywhere; 3 for a queue that is no dead-letter queue.
    """
    address = address_of(name)
    api = place.api()
    row = api.get(api.place(address))
    if not row["dead_letter_queue"]:
        _refuse(row, "is no dead-letter queue")
    verb = "delete" if chosen.selector is not None or chosen.ids else "purge"
    question = f"Delete {{}} of {address} for good?"
    act(api, address, verb, chosen, care, as_json, past="deleted", question=question)


def _check_dead_letters(api: Api, address: str) -> None:
    """End the command unless this is a dead-letter queue, or holds dead letters that were moved there."""
    row = api.get(api.place(address))
    if row["dead_letter_queue"]:
        return
    asked = {"selector": f"{ORIGIN} IS NOT NULL", "limit": 1, "dry_run": True}
    if api.post(api.place(address, "actions", "retry"), asked)["matched"]:
        return
    _refuse(row, "is no dead-letter queue and holds no dead letters")


def _refuse(row: dict[str, Any], why: str) -> NoReturn:
    where = f"its dead letters go to {row['dead_letters']}" if row["dead_letters"] else "`sievemq dlq ls` lists them"
    complain(f"sievemq: {row['address']} {why}; {where}")
    raise typer.Exit(NOT_FOUND)


def _groups(queues: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in queues:
        for group in row["groups"]:
            yield {"address": row["address"], **group}
        rest = row["depth"] - row["examined"]
        if rest > 0:  # said, not left out: the broker looks at so many of each queue
            unseen = {"origin": None, "subscription": None, "reason": "(not looked at)", "messages": rest}
            none = {"first_failure": 0, "last_failure": 0, "failed_by": None, "error": None}
            yield {"address": row["address"], **unseen, **none}


def _client(failed_by: dict[str, Any] | None) -> str:
    """The client of the latest failure, by the name that tells most."""
    names = ("client_id", "user", "address", "consumer")
    return next((failed_by[name] for name in names if failed_by[name]), "") if failed_by else ""
