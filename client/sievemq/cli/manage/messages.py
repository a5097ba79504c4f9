"""``sievemq move``, ``copy``, ``delete``: messages chosen by selector or id."""

from __future__ import annotations

from typing import Annotated

import typer

from sievemq.cli.completing import queues
from sievemq.cli.exits import USAGE
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.access import Place, address_of
from sievemq.cli.manage.actions import Care, Chosen, JsonOption, Whose, act
from sievemq_core.output import complain

SourceArgument = Annotated[
    str,
    typer.Argument(metavar="FROM", help="queue:NAME, or NAME; or a topic with --subscription.", autocompletion=queues),
]
TargetArgument = Annotated[
    str,
    typer.Argument(metavar="TO", help="queue:NAME, topic:NAME, or NAME of a queue.", autocompletion=queues),
]


@grouped
def move(
    source: SourceArgument,
    target: TargetArgument,
    chosen: Chosen,
    whose: Whose,
    care: Care,
    place: Place,
    *,
    as_json: JsonOption = False,
) -> None:
    """Move waiting messages to another destination, in order. Messages in flight stay."""
    origin, to = address_of(source), address_of(target)
    more = {"to": target, **whose._asdict()}
    question = f"Move {{}} from {origin} to {to}?"
    act(place.api(), origin, "move", chosen, care, as_json, more=more, past="moved", question=question)


@grouped
def copy(
    source: SourceArgument,
    target: TargetArgument,
    chosen: Chosen,
    whose: Whose,
    care: Care,
    place: Place,
    *,
    as_json: JsonOption = False,
) -> None:
    """Copy waiting messages to another destination, in order; they stay where they are as well."""
    origin, to = address_of(source), address_of(target)
    more = {"to": target, **whose._asdict()}
    question = f"Copy {{}} from {origin} to {to}?"
    act(place.api(), origin, "copy", chosen, care, as_json, more=more, past="copied", question=question, whole=True)


@grouped
def delete(
    source: SourceArgument,
    chosen: Chosen,
    whose: Whose,
    care: Care,
    place: Place,
    *,
    as_json: JsonOption = False,
) -> None:
    """Delete waiting messages, chosen by selector or id. (`queue purge` empties a queue, `queue delete` removes it.)"""
    origin = address_of(source)
    if chosen.selector is None and not chosen.ids:
        complain(f"sievemq: choose messages with --selector or --id; to delete all: sievemq queue purge {source}")
        raise typer.Exit(USAGE)
    question = f"Delete {{}} from {origin}?"
    act(place.api(), origin, "delete", chosen, care, as_json, more=whose._asdict(), past="deleted", question=question)
