"""``sievemq demo``: SieveMQ on real input."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sievemq_core.output import complain, writing
from sievemq_testing.demo.flights import TOTAL

if TYPE_CHECKING:
    from sievemq_testing.demo.story import Outcome

FAILED, USAGE = 1, 2

demo = typer.Typer(help="SieveMQ on real input, checked against an independent referee.", no_args_is_help=True)


@demo.callback()
def _group() -> None:
    """Keeps `flights` a subcommand while it is the only one."""


@demo.command()
def flights(
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help=f"Number of flights; all {TOTAL:,} by default.")
    ] = None,
) -> None:
    """Send real flights through a queue and a topic, and check what every selector received against SQLite.

    The broker runs inside this process; a publisher and seven consumers, a process each, connect over TCP.
    Exit codes: 0 everything agrees, 1 something differs, 2 the flights are not installed.
    """
    from sievemq_testing.demo.story import DemoFailedError, run_story  # `--help` needs no broker

    console = Console(highlight=False)
    total = min(limit or TOTAL, TOTAL)
    try:
        outcome = _with_progress(lambda on: run_story(limit, on), total)
    except FileNotFoundError as error:
        complain(f"sievemq: {error}")
        raise typer.Exit(USAGE) from None
    except DemoFailedError as error:
        complain(f"sievemq: the demo failed: {error}")
        raise typer.Exit(FAILED) from None
    with writing():
        console.print(_table(outcome))
        console.print(_summary(outcome))
    if not outcome.agrees:
        raise typer.Exit(FAILED)


def _with_progress(run: Callable[[Callable[[str, int], None]], Outcome], total: int) -> Outcome:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {
            "published": bar.add_task("flights published to queue and topic", total=total),
            "received": bar.add_task("messages received", total=None),
        }
        return run(lambda what, count: bar.update(tasks[what], advance=count))


def _table(outcome: Outcome) -> Table:
    table = Table(title=f"{outcome.flights:,} flights, each published to topic:flights and to queue:flights")
    for column in ("from", "selector"):
        table.add_column(column)
    for column in ("received", "SQLite says", "checksum", "in order"):
        table.add_column(column, justify="right")
    for line in outcome.lines:
        same = line.got.checksum == line.expected.checksum
        received = f"{line.got.messages:,}"
        table.add_row(
            line.destination,
            line.selector or "(none: the rest)",
            received if line.got.messages == line.expected.messages else f"[red]{received}[/red]",
            f"{line.expected.messages:,}",
            f"{line.got.checksum:x}" if same else f"[red]{line.got.checksum:x} ≠ {line.expected.checksum:x}[/red]",
            "yes" if line.got.in_order else "[red]no[/red]",
            end_section=line is outcome.lines[len(outcome.lines) // 2 - 1],
        )
    return table


def _summary(outcome: Outcome) -> str:
    sent = 2 * outcome.flights
    received = {
        d: sum(line.got.messages for line in outcome.lines if line.destination == d) for d in ("topic", "queue")
    }
    live = (sent + received["topic"]) / outcome.topic_seconds
    wrong = sum(not line.agrees for line in outcome.lines)
    verdict = (
        f"[green]All {len(outcome.lines)} counts and checksums agree with SQLite.[/green]"
        if not wrong
        else f"[red]{wrong} of {len(outcome.lines)} lines do not agree with SQLite.[/red]"
    )
    rate, took = sent / outcome.publish_seconds, received["queue"] / outcome.queue_seconds
    rest = (
        "On the queue consumers took turns, so each line counts what the lines above it left. "
        "air_time is a double, so air_time / distance is a floating division; "
        "distance / 1000 divides integers, in Java's way and in SQLite's."
    )
    return (
        f"Published {sent:,} messages in {outcome.publish_seconds:.1f} s: {rate:,.0f} messages/s "
        f"({live:,.0f}/s with what the subscribers received meanwhile).\n"
        f"Took {received['queue']:,} from the queue in {outcome.queue_seconds:.1f} s: {took:,.0f} messages/s.\n"
        f"{rest}\n{verdict}"
    )
