"""``sievemq store``: examine the data directory of a broker that is not running."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sievemq_broker.domain.store import StoreError
from sievemq_broker.store.salvage import Report
from sievemq_broker.store.salvage import check as check_store
from sievemq_broker.store.salvage import export as export_store
from sievemq_broker.store.salvage import repair as repair_store
from sievemq_core import output
from sievemq_core.counted import counted

FAILED, REFUSED = 1, 4

store = typer.Typer(help="Check, export or repair a data directory that no broker is using.", no_args_is_help=True)

_Directory = Annotated[Path, typer.Argument(help="The data directory.", metavar="DIRECTORY", file_okay=False)]


def _run(act: Callable[[], Report]) -> Report:
    try:
        return act()
    except (StoreError, OSError) as error:
        output.complain(f"sievemq: {error}")
        raise typer.Exit(FAILED) from None


def _print(report: Report) -> None:
    for finding in report.findings:
        output.complain(f"damaged: {finding}")


@store.command()
def check(directory: _Directory) -> None:
    """Read everything. Exit codes: 0 all is well, 1 it cannot be looked at, 4 something is damaged."""
    report = _run(lambda: check_store(directory))
    _print(report)
    output.report(
        f"{counted(report.messages, 'message')} in {counted(report.batches, 'batch', many='batches')}, "
        f"{counted(report.definitions, 'definition')}"
    )
    if report.findings:
        raise typer.Exit(REFUSED)
    output.report("The store is fine.")


@store.command()
def export(
    directory: _Directory,
    out: Annotated[Path | None, typer.Option("--out", help="File to write (default: standard output).")] = None,
) -> None:
    """Write every message that can be read as one line of JSON. Exit codes as of check."""
    if out is None:
        report = _run(lambda: export_store(directory, output.write))
    else:
        report = _run(lambda: _export_to(directory, out))
    _print(report)
    output.complain(counted(report.messages, "message"))
    if report.findings:
        raise typer.Exit(REFUSED)


def _export_to(directory: Path, out: Path) -> Report:
    # Message bodies: readable by the owner alone, unless there is such a file already.
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        return export_store(directory, file.write)


@store.command()
def repair(directory: _Directory) -> None:
    """Make a new store of everything that can be read; damaged parts are set aside and listed."""
    report = _run(lambda: repair_store(directory, lambda: secrets.token_hex(5)))
    _print(report)
    if report.set_aside is None:
        output.report("The store is fine; nothing was done.")
        return
    output.report(f"The repaired store has {counted(report.messages, 'message')}; the old one is in {report.set_aside}")
