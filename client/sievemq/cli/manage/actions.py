"""Shared by commands that change messages: choose, count, confirm, work in pieces with a progress bar, report."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress

from sievemq._management import TIMEOUT
from sievemq.cli.exits import FAILED
from sievemq.cli.manage.access import PIECE, Api
from sievemq.cli.options import SelectorOption
from sievemq.cli.show import harmless
from sievemq_core.counted import counted
from sievemq_core.output import complain, report, show

IdOption = Annotated[
    list[str] | None, typer.Option("--id", help="Only the message with this JMSMessageID; repeatable.")
]
LimitOption = Annotated[int, typer.Option("--number", "-n", min=0, help="Maximum number of messages; 0 for all.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the number of messages; change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
SubscriptionOption = Annotated[
    str | None, typer.Option("--subscription", help="Of a topic: the subscription that holds the messages.")
]
ClientIdOption = Annotated[
    str | None, typer.Option("--client-id", help="Client id of that subscription, if it has one.")
]


class Chosen(NamedTuple):
    """Options: which messages."""

    selector: SelectorOption = None
    ids: IdOption = None
    most: LimitOption = 0


class Whose(NamedTuple):
    """Options: of a topic, the subscription that holds the messages."""

    subscription: SubscriptionOption = None
    client_id: ClientIdOption = None


class Care(NamedTuple):
    """Options: a dry run, and whether to ask for confirmation."""

    dry_run: DryRunOption = False
    yes: YesOption = False


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation before a change; a no ends the command. ``--yes`` answers the question."""
    if yes:
        return
    # Not typer.confirm: it writes a part of the question to standard output, where the result is expected.
    complain(f"{question} [y/N] ", end="")
    try:
        answer = sys.stdin.readline().strip().lower()
    except OSError:  # closed
        answer = ""
    if answer not in ("y", "yes"):
        complain("nothing was changed")
        raise typer.Exit(FAILED)


def act(
    api: Api,
    address: str,
    verb: str,
    chosen: Chosen,
    care: Care,
    as_json: bool,
    *,
    more: Mapping[str, object] | None = None,
    past: str,
    question: str,
    whole: bool = False,
) -> None:
    """Carry out an action on messages of one destination.

    Args:
        verb: ``move``, ``copy``, ``delete``, ``purge``, ``retry``, ``cancel``.
        care: only count; do not ask.
        more: what else the API takes for this action.
        question: the text of the question, with ``{}`` for the messages, ``1 message``.
        whole: one request does it all; it cannot be divided, because the same messages would be chosen again.
    """
    path = api.place(address, "actions", verb)
    asked = {"selector": chosen.selector, "ids": chosen.ids, **(more or {})}
    count = api.post(path, {**asked, "limit": chosen.most or None, "dry_run": True})
    matched = int(count["matched"])
    if care.dry_run:
        show(json.dumps(count) if as_json else f"{_messages(matched)} would be {past}")
        return
    if matched:
        confirm(question.format(_messages(matched)), care.yes)
    touched = skipped = 0
    answer: dict[str, Any] = dict(count, dry_run=False, touched=0)
    # One piece has no progress to show.
    watched = matched > PIECE and sys.stderr.isatty()
    try:
        with Progress(console=Console(stderr=True), transient=True, disable=not watched) as progress:
            task = progress.add_task(past, total=matched)
            while touched + skipped < matched:
                left = matched - touched - skipped
                # Messages that were skipped before remain, and are chosen again.
                piece = left if whole else min(PIECE, left) + skipped
                # What cannot be divided has as long as its pieces would have had.
                timeout = TIMEOUT * -(-piece // PIECE)
                answer = api.post(path, {**asked, "limit": piece, "dry_run": False}, timeout)
                touched += int(answer["touched"])
                stuck = not answer["touched"] and int(answer["skipped"]) <= skipped
                skipped = int(answer["skipped"])
                progress.update(task, completed=touched)
                if whole or stuck or not answer["more"] or answer["stopped"]:
                    break
    except BaseException:
        if touched:
            complain(f"sievemq: {_messages(touched)} {past} before that")
        raise
    stopped = answer.get("stopped")
    answer.update(matched=matched, touched=touched, skipped=skipped)
    text = f"{_messages(touched)} {past}" + (f", {skipped:,} left as they are" if skipped else "")
    report(json.dumps(answer) if as_json else text)
    if stopped:
        complain(f"sievemq: stopped: {harmless(stopped['text'])}")
        raise typer.Exit(FAILED)


def remove(api: Api, path: str, name: str, care: Care, *, called: str = "") -> None:
    """Delete a thing with the messages in it.

    Args:
        care: only count; do not ask.
        called: as the question names it, if not by its name alone.
    """
    count = api.delete(path, dry_run=True)
    if care.dry_run:
        show(f"{name} would be deleted with {_messages(count['matched'])}")
        return
    confirm(f"Delete {called or name} with {_messages(count['matched'])}?", care.yes)
    report(f"{name} deleted with {_messages(api.delete(path)['touched'])}")


def _messages(number: int) -> str:
    return counted(number, "message", form=",")
