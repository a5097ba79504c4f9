"""``sievemq pipeline compact`` and ``expire``: what keeps an archive small."""

from __future__ import annotations

from typing import Annotated

import typer

from sievemq.cli.exits import FAILED
from sievemq_core.counted import counted
from sievemq_core.output import report
from sievemq_spark.cli.options import LOCAL, ArchiveArgument, DestinationOption, JsonOption, MasterOption, day
from sievemq_spark.cli.running import running_spark
from sievemq_spark.cli.shown import print_json
from sievemq_spark.options import destination_of
from sievemq_spark.progress import progress


def compact(
    archive: ArchiveArgument,
    files: Annotated[int, typer.Option("--files", min=2, help="Leave days with fewer files unchanged.")] = 4,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Merge small files of an archive. No other program may use it meanwhile; the command may be killed at any time."""
    from sievemq_spark.compaction import compact as job

    with running_spark(master) as spark:
        with progress(spark, "compact"):
            done = job(spark, archive, files=files)
        if as_json:
            print_json(done, done=True)
        else:
            report(f"{_files(done.before, done.folders, 'in')} became {done.after:,}")


def expire(
    archive: ArchiveArgument,
    before: Annotated[str | None, typer.Option("--before", help="First day to keep, such as 2026-11-01.")] = None,
    keep_days: Annotated[
        int | None, typer.Option("--keep-days", min=0, help="Number of days to keep before today.")
    ] = None,
    destination: DestinationOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the number of files; remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Remove old days from an archive (UTC). Messages without a timestamp stay."""
    from datetime import UTC, date, datetime, timedelta

    from sievemq_spark.retention import expire as job

    if (before is None) == (keep_days is None):
        raise typer.BadParameter("one of --before and --keep-days is needed")
    checks = [lambda: before is None or day(before), lambda: destination is None or destination_of(destination)]
    with running_spark(master, checks=checks) as spark:
        if keep_days is not None:
            limit = datetime.now(UTC).date() - timedelta(days=keep_days)
        else:
            limit = date.fromisoformat(day(before or ""))
        named = None if destination is None else str(destination_of(destination))
        gone = job(spark, archive, limit, destination=named, dry_run=True)
        if not dry_run and gone.days:
            what = f"{_files(gone.files, len(gone.days), 'of')} ({gone.size:,} bytes)"
            if not yes and not typer.confirm(f"Remove {what} from {archive}?", err=True):
                raise typer.Exit(FAILED)
            gone = job(spark, archive, limit, destination=named)
        if as_json:
            print_json(gone, done=True)
        else:
            verb = "would be removed" if dry_run else "removed"
            report(f"{_files(gone.files, len(gone.days), 'of')} ({gone.size:,} bytes) {verb}")


def _files(files: int, folders: int, where: str) -> str:
    return f"{counted(files, 'file', form=',')} {where} {counted(folders, 'folder', form=',')}"
