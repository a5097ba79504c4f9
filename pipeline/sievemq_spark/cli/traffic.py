"""``sievemq pipeline archive`` and ``replay``: messages from a broker into an archive, and back."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer

from sievemq import Connection
from sievemq.cli.options import SelectorOption
from sievemq.cli.values import parse_property
from sievemq_core.counted import counted
from sievemq_core.output import report
from sievemq_spark.cli.options import LOCAL, Access, ArchivePart, DialectOption, JsonOption, MasterOption
from sievemq_spark.cli.running import running_spark
from sievemq_spark.cli.shown import print_json
from sievemq_spark.file_systems import check_place
from sievemq_spark.links import require_queues
from sievemq_spark.options import ReadOptions, WriteOptions
from sievemq_spark.progress import progress


class Unavailable(Enum):
    """What happens if a shard cannot be reached."""

    FAIL = "fail"
    WAIT = "wait"


def archive(
    destinations: Annotated[
        list[str] | None, typer.Argument(metavar="DEST…", help="queue:NAME; with --tap topics too.")
    ] = None,
    *,
    to: Annotated[str, typer.Option("--to", help="Folder of the archive.")],
    tap: Annotated[
        str | None, typer.Option("--tap", help="Name of the taps: add all messages since the last run.")
    ] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", help="With --tap: also all destinations that fit, such as 'queue:orders.*'.")
    ] = "",
    outcomes: Annotated[
        bool, typer.Option("--outcomes", help="With --tap: also archive the outcomes of the messages.")
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept missing destinations; a tap creates them.")
    ] = False,
    unavailable: Annotated[
        Unavailable, typer.Option("--unavailable", help="With --tap: 'wait' archives the other shards if one is away.")
    ] = Unavailable.FAIL,
    selector: SelectorOption = None,
    dialect: DialectOption = "jakarta",
    broker: Access,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Add messages that an archive does not have yet, as Parquet. The destinations stay unchanged.

    Without --tap it adds the messages that wait now. With --tap it adds all messages since the last run under that
    name, consumed or not; the first run creates the taps.
    """
    from sievemq_spark import archive as job

    if outcomes and tap is None:
        raise typer.BadParameter("--outcomes needs --tap: without a tap no outcomes are recorded")
    if pattern and tap is None:
        raise typer.BadParameter("--pattern needs --tap: without one name the queues")
    names = destinations or []
    options = {"url": broker.url, "destination": ",".join(names), "dialect": dialect, "tap": tap or ""}
    options |= {"failonmissing": str(not allow_missing).lower(), "unavailable": unavailable.value}
    options["destinationpattern"] = pattern
    checks = [lambda: ReadOptions.read(options), lambda: check_place(to, master)]

    def ask(connection: Connection, shard: str) -> None:
        if tap is None:
            require_queues(connection, shard, ReadOptions.read(options))

    how: dict[str, Any] = {
        "user": broker.user,
        "password": broker.password,
        "selector": selector,
        "dialect": dialect,
        "fail_on_missing": not allow_missing,
    }
    waits = unavailable is Unavailable.WAIT
    with running_spark(master, [selector], dialect, broker, checks=checks, ask=ask, waits=waits) as spark:
        with progress(spark, "archive"):
            if tap is None:
                done = job.archive(spark, job.read_queues(spark, broker.url, names, **how), to)
            else:
                done = job.archive_stream(
                    spark,
                    broker.url,
                    names,
                    to,
                    tap=tap,
                    outcomes=outcomes,
                    unavailable=unavailable.value,
                    pattern=pattern,
                    **how,
                )
        if as_json:
            print_json(done, done=True)
        else:
            fates = f", and {counted(done.outcomes, 'outcome', form=',')}" if outcomes else ""
            report(f"{counted(done.seen, 'message', form=',')} seen, {done.added:,} added to {to}{fates}")


def replay(
    archived: ArchivePart,
    *,
    to: Annotated[str, typer.Option("--to", help="Destination (default: that of each message).")] = "",
    selector: SelectorOption = None,
    dialect: DialectOption = "jakarta",
    rate: Annotated[float, typer.Option("--rate", min=0, help="Messages per second; 0 for no limit.")] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and count the messages; send nothing.")] = False,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Partitions sent concurrently, in order per group.")
    ] = 1,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Send messages of OLD to NEW.")
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE[:TYPE]", help="A property to set.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="NAME", help="A property to remove.")] = None,
    name: Annotated[
        str, typer.Option("--name", help="Name of the replay: a repeated run sends only missing messages.")
    ] = "",
    transaction_size: Annotated[
        int, typer.Option("--transaction-size", min=0, help="Messages that become visible together; 0 for all.")
    ] = 0,
    broker: Access,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Send archived messages again. All become visible together, or in parts with a rate or transaction size."""
    from sievemq_spark.replay import Changes
    from sievemq_spark.replay import replay as job

    changes = Changes(dict(map(_renaming, rename or ())), dict(map(parse_property, properties or ())), unset or ())
    checks = [archived.check, changes.check, lambda: WriteOptions.read({"url": broker.url, "destination": to})]
    with running_spark(master, [selector], dialect, broker, checks=checks) as spark:
        with progress(spark, "replay"):
            done = job(
                archived.messages(spark),
                broker.url,
                destination=to,
                selector=selector,
                dialect=dialect,
                user=broker.user,
                password=broker.password,
                rate=rate,
                dry_run=dry_run,
                partitions=partitions,
                changes=changes,
                name=name,
                transaction_size=transaction_size,
            )
        if as_json:
            print_json(done, done=True)
        elif dry_run:
            report(f"{counted(done.selected, 'message', form=',')} would be sent")
        else:
            before = f"; an earlier run named {name!r} sent {done.sent_before:,}" if done.sent_before else ""
            report(f"{counted(done.sent, 'message', form=',')} sent{before}")


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise typer.BadParameter(f"{text!r} is not of the form OLD=NEW")
    return old, new
