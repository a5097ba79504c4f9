"""``sievemq healthcheck``: the probe of a container that has no curl."""

from __future__ import annotations

from typing import Annotated

import typer

from sievemq.cli.exits import FAILED, OK, USAGE
from sievemq.cli.probe import TIMEOUT, probe

__all__ = ["healthcheck"]


def healthcheck(
    url: Annotated[
        str | None,
        typer.Option("--url", help="What to ask; by default /readyz where the broker's settings say that it listens."),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait.")] = TIMEOUT,
) -> None:
    """Ask the broker on this machine whether it is ready.

    It reads the broker's settings: options of process 1, SIEVEMQ_… variables, the configuration file. Without HTTP
    (SIEVEMQ_HTTP=false) it asks whether the wire port accepts connections.
    Exit codes: 0 ready, 1 not ready or not there, 2 the URL is wrong.
    """
    try:
        answer, ready = probe(url, timeout)
    except ValueError as error:
        typer.echo(f"sievemq: {error}", err=True)
        raise typer.Exit(USAGE) from None
    typer.echo(answer, err=not ready)
    raise typer.Exit(OK if ready else FAILED)
