"""``sievemq pipeline …``: the jobs on the command line. PySpark is imported when a job starts, so --help is quick."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from sievemq.cli.broker_access import DEFAULT_URL, SelectorOption, UrlOption, UserOption
from sievemq.cli.exits import FAILED, NOT_FOUND, REFUSED, USAGE
from sievemq.cli.values import parse_property
from sievemq.exceptions import InvalidSelectorException, InvalidURLException, JMSException, JMSSecurityException
from sievemq_spark.connect import connect
from sievemq_spark.errors import MissingSparkError, NoArchiveError, PipelineError
from sievemq_spark.failures import explain_failure
from sievemq_spark.progress import progress
from sievemq_spark.selector_column import checked
from sievemq_spark.spark import require_spark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["pipeline"]

pipeline = typer.Typer(
    help="Archive, replay and ask traffic with Spark. Needs the extra 'spark' and Java 17.", no_args_is_help=True
)

MasterOption = Annotated[
    str,
    typer.Option("--master", envvar="SIEVEMQ_SPARK_MASTER", show_envvar=True, help="Where Spark runs."),
]
DialectOption = Annotated[str, typer.Option("--dialect", help="Selector dialect: jakarta, ibm-mq, mqe.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The result as one JSON object.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Write a report with charts to this file as well.", dir_okay=False)
]
ArchiveArgument = Annotated[str, typer.Argument(metavar="ARCHIVE", help="Folder of the archive.")]
FromOption = Annotated[str | None, typer.Option("--from", help="First day, such as 2026-11-01 (UTC).")]
ToOption = Annotated[str | None, typer.Option("--until", help="Last day, included.")]
DestinationOption = Annotated[
    str | None, typer.Option("--destination", "-d", help="Only messages of this destination.")
]
LOCAL = "local[*]"


@contextmanager
def _spark(
    master: str, selectors: Sequence[str | None], dialect: str, url: str | None = None, user: str | None = None
) -> Iterator[SparkSession]:
    """A session for one command; errors as one message and an exit code.

    Args:
        master: where Spark runs.
        selectors, dialect: checked before Spark starts, which takes seconds.
        url, user: a broker that has to be there, which is looked at before as well.
    """
    code = FAILED
    try:
        for selector in selectors:
            checked(selector, dialect)
        if url is not None:
            connect(url, user, _password(user)).close()
        require_spark()
        spark = spark_session(master, "sievemq pipeline")
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            spark.stop()
    except typer.Exit:
        raise
    except (MissingSparkError, InvalidURLException) as error:
        code, text = USAGE, str(error)
    except (InvalidSelectorException, JMSSecurityException) as error:
        code, text = REFUSED, str(error)
    except NoArchiveError as error:
        code, text = NOT_FOUND, str(error)
    except (PipelineError, ValueError) as error:
        code, text = USAGE, str(error)
    except JMSException as error:
        text = str(error)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        text = explain_failure(error)
    else:
        return
    typer.echo(f"sievemq: {text}", err=True)
    raise typer.Exit(code)


def _messages(
    spark: SparkSession, path: str, first: str | None, last: str | None, destination: str | None
) -> DataFrame:
    from sievemq_spark.archive import read_archive

    return _chosen(read_archive(spark, path), first, last, destination)


def _chosen(frame: DataFrame, first: str | None, last: str | None, destination: str | None) -> DataFrame:
    """Those of some days, of a destination."""
    from pyspark.sql import functions as f

    from sievemq.destinations import parse_destination

    if first is not None:
        frame = frame.filter(f.col("date") >= _day(first))
    if last is not None:
        frame = frame.filter(f.col("date") <= _day(last))
    if destination is not None:
        frame = frame.filter(f.col("destination") == str(parse_destination(destination)))
    return frame


def _day(text: str) -> str:
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise PipelineError(f"{text!r} is no day; write it as 2026-11-01") from None


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise typer.BadParameter(f"{text!r} is not of the form OLD=NEW")
    return old, new


def _password(user: str | None) -> str | None:
    return os.environ.get("SIEVEMQ_PASSWORD") if user is not None else None


def _print(result: Any, as_json: bool, html: Path | None = None, title: str = "", about: Sequence[str] = ()) -> None:
    """A result on the terminal, or as JSON; and as an HTML file, if one is asked for."""
    from sievemq_spark.report import Table, parts_of, write_html

    if html is not None:
        try:
            write_html(html, title, parts_of(result), about)
        except OSError as error:
            raise PipelineError(f"the report cannot be written: {error}") from error
    if as_json:
        data = {field.name: _plain(getattr(result, field.name)) for field in dataclasses.fields(result)}
        typer.echo(json.dumps(data))
        return
    console = Console(highlight=False, markup=False)
    for part in parts_of(result):
        if isinstance(part, Table):
            table = RichTable(title=part.title)
            for number, column in enumerate(part.columns):
                table.add_column(column, justify="left" if number == 0 else "right")
            for row in part.rows:
                table.add_row(*row)
            console.print(table)


def _about(path: str, first: str | None, last: str | None, destination: str | None) -> list[str]:
    span = f", {first or 'the beginning'} to {last or 'the end'}" if first or last else ""
    return [f"Archive {path}{span}" + (f", {destination}" if destination else "")]


def _plain(value: Any) -> Any:
    """A result as JSON holds it: keys that are tuples become lists of key and value."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        if any(isinstance(key, tuple) for key in value):
            return [[list(key), _plain(item)] for key, item in value.items()]
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@pipeline.command()
def archive(
    destinations: Annotated[list[str], typer.Argument(metavar="DEST…", help="queue:NAME; with --tap topics too.")],
    to: Annotated[str, typer.Option("--to", help="Folder of the archive.")],
    tap: Annotated[
        str | None, typer.Option("--tap", help="Name of taps: add all that has gone through since the last run.")
    ] = None,
    outcomes: Annotated[
        bool, typer.Option("--outcomes", help="With --tap: what became of the messages as well.")
    ] = False,
    selector: SelectorOption = None,
    dialect: DialectOption = "jakarta",
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Add to an archive, as Parquet, what it does not have yet. The destinations stay as they are.

    Without --tap, what waits in queues now. With --tap, everything since the last run under that name, consumed or not;
    the first run makes the taps.
    """
    from sievemq_spark import archive as job

    if outcomes and tap is None:
        raise typer.BadParameter("--outcomes needs --tap: what is only looked at has no outcome")
    with _spark(master, [selector], dialect, url, user) as spark:
        secret = _password(user)
        with progress(spark, "archive"):
            if tap is None:
                frame = job.read_queues(
                    spark, url, destinations, user=user, password=secret, selector=selector, dialect=dialect
                )
                done = job.archive(spark, frame, to)
            else:
                done = job.archive_stream(
                    spark,
                    url,
                    destinations,
                    to,
                    tap=tap,
                    user=user,
                    password=secret,
                    selector=selector,
                    dialect=dialect,
                    outcomes=outcomes,
                )
        if as_json:
            _print(done, as_json=True)
        else:
            fates = f", and {done.outcomes:,} outcomes" if outcomes else ""
            typer.echo(f"{done.seen:,} messages seen, {done.added:,} added to {to}{fates}")


@pipeline.command()
def backtest(
    archive: ArchiveArgument,
    selectors: Annotated[list[str], typer.Argument(metavar="SELECTOR…", help="One or more; two are compared.")],
    dialect: DialectOption = "jakarta",
    first: FromOption = None,
    last: ToOption = None,
    destination: DestinationOption = None,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Message ids to show of each.")] = 5,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """What selectors would have matched in the archive, and which absent property made the answer UNKNOWN."""
    from sievemq_spark.backtest import backtest as job

    with _spark(master, selectors, dialect) as spark:
        with progress(spark, "backtest"):
            messages = _messages(spark, archive, first, last, destination)
            result = job(messages, selectors, dialect=dialect, sample=sample)
        _print(result, as_json, html, "Backtest", _about(archive, first, last, destination))


@pipeline.command()
def coverage(
    archive: ArchiveArgument,
    selectors: Annotated[list[str], typer.Argument(metavar="SELECTOR…")],
    dialect: DialectOption = "jakarta",
    first: FromOption = None,
    last: ToOption = None,
    destination: DestinationOption = None,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Which messages no selector matches, or several; which selectors overlap or shadow one another."""
    from sievemq_spark.backtest import coverage as job

    with _spark(master, selectors, dialect) as spark:
        with progress(spark, "coverage"):
            result = job(_messages(spark, archive, first, last, destination), selectors, dialect=dialect)
        _print(result, as_json, html, "Coverage", _about(archive, first, last, destination))


@pipeline.command()
def profile(
    archive: ArchiveArgument,
    first: FromOption = None,
    last: ToOption = None,
    destination: DestinationOption = None,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Property names with types and cardinality, sizes, messages by hour."""
    from sievemq_spark.profile import profile as job

    with _spark(master, [], "jakarta") as spark:
        with progress(spark, "profile"):
            result = job(_messages(spark, archive, first, last, destination))
        _print(result, as_json, html, "Profile", _about(archive, first, last, destination))


@pipeline.command()
def outcomes(
    archive: ArchiveArgument,
    first: FromOption = None,
    last: ToOption = None,
    destination: DestinationOption = None,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """What became of the messages: acknowledged, expired, dead-lettered, dropped; when, and how long it took."""
    from sievemq_spark.archive import read_outcomes
    from sievemq_spark.outcomes import outcomes as job

    with _spark(master, [], "jakarta") as spark:
        with progress(spark, "outcomes"):
            fates = _chosen(read_outcomes(spark, archive), first, last, destination)
            result = job(_messages(spark, archive, first, last, destination), fates)
        _print(result, as_json, html, "Outcomes", _about(archive, first, last, destination))


@pipeline.command()
def deadletters(
    archive: ArchiveArgument,
    first: FromOption = None,
    last: ToOption = None,
    destination: DestinationOption = None,
    values: Annotated[int, typer.Option("--values", min=0, help="Property values to show at most.")] = 20,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Why messages became dead letters: reasons, origins, times, and what sets them apart from the other messages."""
    from sievemq_spark.deadletters import deadletters as job

    with _spark(master, [], "jakarta") as spark:
        with progress(spark, "deadletters"):
            normal = _messages(spark, archive, first, last, None)
            result = job(_messages(spark, archive, first, last, destination), normal, values=values)
        _print(result, as_json, html, "Dead letters", _about(archive, first, last, destination))


@pipeline.command()
def compact(
    archive: ArchiveArgument,
    files: Annotated[int, typer.Option("--files", min=2, help="Days with fewer files stay as they are.")] = 4,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Make few files of many in an archive. Nobody may use it meanwhile; killing it does no harm."""
    from sievemq_spark.compaction import compact as job

    with _spark(master, [], "jakarta") as spark:
        with progress(spark, "compact"):
            done = job(spark, archive, files=files)
        if as_json:
            _print(done, as_json=True)
        else:
            typer.echo(f"{done.before:,} files in {done.folders:,} folders became {done.after:,}")


@pipeline.command()
def expire(
    archive: ArchiveArgument,
    before: Annotated[str | None, typer.Option("--before", help="First day that stays, such as 2026-11-01.")] = None,
    keep_days: Annotated[int | None, typer.Option("--keep-days", min=0, help="Days before today that stay.")] = None,
    destination: DestinationOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Remove old days from an archive (UTC). Messages without a timestamp stay."""
    from datetime import UTC, date, datetime, timedelta

    from sievemq.destinations import parse_destination
    from sievemq_spark.retention import expire as job

    if (before is None) == (keep_days is None):
        raise typer.BadParameter("one of --before and --keep-days is needed")
    with _spark(master, [], "jakarta") as spark:
        if keep_days is not None:
            limit = datetime.now(UTC).date() - timedelta(days=keep_days)
        else:
            limit = date.fromisoformat(_day(before or ""))
        named = None if destination is None else str(parse_destination(destination))
        gone = job(spark, archive, limit, destination=named, dry_run=True)
        if not dry_run and gone.days:
            what = f"{gone.files:,} files of {len(gone.days):,} folders ({gone.size:,} bytes)"
            if not yes and not typer.confirm(f"Remove {what} from {archive}?", err=True):
                raise typer.Exit(FAILED)
            gone = job(spark, archive, limit, destination=named)
        if as_json:
            _print(gone, as_json=True)
        else:
            verb = "would be removed" if dry_run else "removed"
            typer.echo(f"{gone.files:,} files of {len(gone.days):,} folders ({gone.size:,} bytes) {verb}")


@pipeline.command()
def replay(
    archive: ArchiveArgument,
    to: Annotated[str, typer.Option("--to", help="Destination; where each came from if not given.")] = "",
    selector: SelectorOption = None,
    dialect: DialectOption = "jakarta",
    first: FromOption = None,
    last: ToOption = None,
    destination: DestinationOption = None,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Messages per second; 0 for no limit.")] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count and check, send nothing.")] = False,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Sent side by side, in order per group.")] = 1,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Send to NEW what came from OLD.")
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE[:TYPE]", help="A property to set.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="NAME", help="A property to leave out.")] = None,
    name: Annotated[str, typer.Option("--name", help="Run again under this name, it sends only what is missing.")] = "",
    transaction_size: Annotated[
        int, typer.Option("--transaction-size", min=0, help="Messages that become visible together; 0 for all.")
    ] = 0,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
    master: MasterOption = LOCAL,
) -> None:
    """Send archived messages again. All become visible at once, or piece by piece with a rate or transaction size."""
    from sievemq_spark.mapping import Changes
    from sievemq_spark.replay import replay as job

    changes = Changes(dict(map(_renaming, rename or ())), dict(map(parse_property, properties or ())), unset or ())
    with _spark(master, [selector], dialect, url, user) as spark:
        changes.check()
        with progress(spark, "replay"):
            count = job(
                _messages(spark, archive, first, last, destination),
                url,
                destination=to,
                selector=selector,
                dialect=dialect,
                user=user,
                password=_password(user),
                rate=rate,
                dry_run=dry_run,
                partitions=partitions,
                changes=changes,
                name=name,
                transaction_size=transaction_size,
            )
        typer.echo(f"{count:,} messages {'would be sent' if dry_run else 'sent'}")
