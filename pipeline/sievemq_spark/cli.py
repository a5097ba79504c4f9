"""``sievemq pipeline …``: the jobs on the command line. PySpark is imported when a job starts, so --help is quick."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sievemq.cli.broker_access import DEFAULT_URL, SelectorOption, UrlOption, UserOption
from sievemq.cli.exits import FAILED, NOT_FOUND, REFUSED, USAGE
from sievemq.exceptions import InvalidSelectorException, InvalidURLException, JMSException, JMSSecurityException
from sievemq_spark.connect import connect
from sievemq_spark.errors import MissingSparkError, NoArchiveError, PipelineError
from sievemq_spark.failures import explain_failure
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
    from pyspark.sql import functions as f

    from sievemq.destinations import parse_destination
    from sievemq_spark.archive import read_archive

    frame = read_archive(spark, path)
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


def _password(user: str | None) -> str | None:
    return os.environ.get("SIEVEMQ_PASSWORD") if user is not None else None


def _print(result: Any, as_json: bool, *tables: Table) -> None:
    if as_json:
        data = {field.name: _plain(getattr(result, field.name)) for field in dataclasses.fields(result)}
        typer.echo(json.dumps(data))
        return
    console = Console(highlight=False, markup=False)
    for table in tables:
        console.print(table)


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


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


@pipeline.command()
def archive(
    destinations: Annotated[list[str], typer.Argument(metavar="QUEUE…", help="queue:NAME, or NAME.")],
    to: Annotated[str, typer.Option("--to", help="Folder of the archive.")],
    selector: SelectorOption = None,
    dialect: DialectOption = "jakarta",
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Browse queues and add what an archive does not have yet, as Parquet. The queues stay as they are."""
    from sievemq_spark import archive as job

    with _spark(master, [selector], dialect, url, user) as spark:
        frame = job.read_queues(
            spark, url, destinations, user=user, password=_password(user), selector=selector, dialect=dialect
        )
        done = job.archive(spark, frame, to)
        if as_json:
            _print(done, as_json=True)
        else:
            typer.echo(f"{done.seen:,} messages seen, {done.added:,} added to {to}")


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
) -> None:
    """What selectors would have matched in the archive, and which absent property made the answer UNKNOWN."""
    from sievemq_spark.backtest import backtest as job

    with _spark(master, selectors, dialect) as spark:
        result = job(_messages(spark, archive, first, last, destination), selectors, dialect=dialect, sample=sample)
        counts = _table(f"{result.messages:,} messages", "selector", "TRUE", "FALSE", "UNKNOWN", "UNKNOWN because of")
        hours = _table("matches by hour (UTC)", "hour", *(f"{number}" for number in range(1, len(selectors) + 1)))
        for line in result.results:
            causes = "; ".join(f"{', '.join(names) or 'other types'}: {rows:,}" for names, rows in line.causes.items())
            counts.add_row(line.selector, f"{line.matched:,}", f"{line.rejected:,}", f"{line.unknown:,}", causes)
        for hour in sorted({hour for line in result.results for hour in line.hours}):
            hours.add_row(hour, *(f"{line.hours.get(hour, 0):,}" for line in result.results))
        tables = [counts, hours]
        if result.only_first is not None:
            differs = _table("the difference", "matched by", "messages", "such as")
            differs.add_row("the first only", f"{result.only_first:,}", ", ".join(map(str, result.sample_first)))
            differs.add_row("the second only", f"{result.only_second:,}", ", ".join(map(str, result.sample_second)))
            tables.append(differs)
        _print(result, as_json, *tables)


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
) -> None:
    """Which messages no selector matches, or several; which selectors overlap or shadow one another."""
    from sievemq_spark.backtest import coverage as job

    with _spark(master, selectors, dialect) as spark:
        result = job(_messages(spark, archive, first, last, destination), selectors, dialect=dialect)
        sizes = _table(f"{result.messages:,} messages", "matched by", "messages")
        for name, rows in (("none", result.none), ("one", result.one), ("several", result.many)):
            sizes.add_row(name, f"{rows:,}")
        each = _table("selectors", "selector", "messages", "shadowed by")
        for text, rows in result.matched.items():
            each.add_row(text, f"{rows:,}", "; ".join(by for one, by in result.shadowed if one == text))
        pairs = _table("overlaps", "pair", "messages")
        for (one, other), rows in result.overlaps.items():
            pairs.add_row(f"{one}  |  {other}", f"{rows:,}")
        _print(result, as_json, sizes, each, pairs)


@pipeline.command()
def profile(
    archive: ArchiveArgument,
    first: FromOption = None,
    last: ToOption = None,
    destination: DestinationOption = None,
    master: MasterOption = LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Property names with types and cardinality, sizes, messages by hour."""
    from sievemq_spark.profile import profile as job

    with _spark(master, [], "jakarta") as spark:
        result = job(_messages(spark, archive, first, last, destination))
        title = f"{result.messages:,} messages, {result.size_mean:,.0f} bytes on average, {result.size_max:,} at most"
        table = _table(title, "property", "types", "missing", "about so many values")
        for each in result.properties:
            types = ", ".join(f"{name} {rows:,}" for name, rows in each.types.items())
            table.add_row(each.name, types, f"{each.missing:,}", f"{each.distinct:,}")
        _print(result, as_json, table)


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
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
    master: MasterOption = LOCAL,
) -> None:
    """Send archived messages again. With one partition either all are sent or none."""
    from sievemq_spark.replay import replay as job

    with _spark(master, [selector], dialect, url, user) as spark:
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
        )
        typer.echo(f"{count:,} messages {'would be sent' if dry_run else 'sent'}")
