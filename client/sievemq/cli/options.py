"""Options and arguments that many commands share. Those of the management API do not load the SDK."""

from __future__ import annotations

from typing import Annotated

import typer

from sievemq.cli.completing import queues
from sievemq.cli.exits import USAGE
from sievemq.cli.show import harmless
from sievemq.destinations import Destination, parse_destination
from sievemq.exceptions import InvalidDestinationException
from sievemq_core.message.destination import misspelt_kind
from sievemq_core.output import complain

UrlOption = Annotated[
    str,
    typer.Option("--url", "-u", envvar="SIEVEMQ_URL", help="The broker.", show_envvar=True),
]
UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        envvar="SIEVEMQ_USER",
        show_envvar=True,
        help="User name; the password comes from SIEVEMQ_PASSWORD or the context.",
    ),
]
SelectorOption = Annotated[
    str | None, typer.Option("--selector", "-s", help="Only messages for which this condition is true.")
]
DestinationArgument = Annotated[
    str,
    typer.Argument(metavar="DEST", help="queue:NAME, topic:NAME, or NAME of a queue.", autocompletion=queues),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]

DEFAULT_URL = "sievemq://127.0.0.1:7672"


def destination_of(text: str) -> Destination:
    """The destination that an argument names; a name that is not allowed ends the command.

    A bare name with a colon is refused, since ``tpoic:prices`` is probably a mistake; ``queue:tpoic:prices`` is not.
    """
    misspelt = misspelt_kind(text)
    if misspelt is not None:
        complain(f"sievemq: {harmless(misspelt)}")
        raise typer.Exit(USAGE)
    try:
        return parse_destination(text)
    except InvalidDestinationException as error:
        complain(f"sievemq: {error}")
        raise typer.Exit(USAGE) from None
