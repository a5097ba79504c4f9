"""Options that several commands of the pipeline have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sievemq.cli.options import DEFAULT_URL, UrlOption, UserOption
from sievemq_spark.cli.shown import print_json, print_tables
from sievemq_spark.errors import PipelineError
from sievemq_spark.files import check_writable
from sievemq_spark.options import destination_of
from sievemq_spark.report import parts_of, write_html

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MasterOption = Annotated[
    str,
    typer.Option("--master", envvar="SIEVEMQ_SPARK_MASTER", show_envvar=True, help="Spark master, or sc://HOST."),
]
#: The default master of Spark.
LOCAL = "local[*]"

DialectOption = Annotated[str, typer.Option("--dialect", help="Selector dialect: jakarta, ibm-mq, mqe, amqp.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Also write a report with charts to this file.", dir_okay=False)
]
ArchiveArgument = Annotated[str, typer.Argument(metavar="ARCHIVE", help="Folder of the archive.")]
FromOption = Annotated[str | None, typer.Option("--from", help="First day, such as 2026-11-01 (UTC).")]
UntilOption = Annotated[str | None, typer.Option("--until", help="Last day, inclusive.")]
DestinationOption = Annotated[
    str | None, typer.Option("--destination", "-d", help="Only messages of this destination.")
]


class ArchivePart(NamedTuple):
    """Options: the part of an archive that a command reads."""

    archive: ArchiveArgument
    first: FromOption = None
    last: UntilOption = None
    destination: DestinationOption = None

    def check(self) -> None:
        """Raise if a day or the destination cannot be, before Spark starts.

        Raises:
            PipelineError: names the mistake.
        """
        for text in (self.first, self.last):
            if text is not None:
                day(text)
        if self.destination is not None:
            destination_of(self.destination)

    def messages(self, spark: SparkSession) -> DataFrame:
        """The messages.

        Raises:
            NoArchiveError: there is no archive.
            NoDestinationError: it has nothing of the destination.
        """
        from sievemq_spark.archive import read_archive, require_destination

        messages = read_archive(spark, self.archive)
        if self.destination is not None:
            require_destination(spark, self.archive, str(destination_of(self.destination)))
        return self.chosen(messages)

    def chosen(self, frame: DataFrame) -> DataFrame:
        """Filter further data of the archive by the same days and destination."""
        from pyspark.sql import functions as f

        if self.first is not None:
            frame = frame.filter(f.col("date") >= day(self.first))
        if self.last is not None:
            frame = frame.filter(f.col("date") <= day(self.last))
        if self.destination is not None:
            frame = frame.filter(f.col("destination") == str(destination_of(self.destination)))
        return frame

    @property
    def about(self) -> list[str]:
        """The lines of a report about its source: path, chosen messages, time of the report."""
        from datetime import UTC, datetime

        where = self.archive if ":" in self.archive else str(Path(self.archive).absolute())
        span = f"{self.first or 'the beginning'} to {self.last or 'the end'}" if self.first or self.last else "all days"
        of = str(destination_of(self.destination)) if self.destination else "all destinations"
        made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        return [f"Archive {where}", f"Messages of {of}, {span}", f"Made {made}"]


class Output(NamedTuple):
    """In which forms a result is wanted."""

    as_json: JsonOption = False
    html: HtmlOption = None

    def check(self) -> None:
        """Raise if the report's file cannot be written, before Spark starts.

        Raises:
            PipelineError: names the reason.
        """
        if self.html is not None:
            folder = self.html.absolute().parent
            if not folder.is_dir():
                raise PipelineError(f"the report cannot be written: there is no folder {folder}")
            check_writable(str(folder))

    def show(self, result: Any, title: str, about: list[str]) -> None:
        """Show a result on the terminal, or as JSON; and as an HTML file, on request.

        Raises:
            PipelineError: the file cannot be written.
        """
        if self.html is not None:
            try:
                write_html(self.html, title, parts_of(result), about)
            except OSError as error:
                raise PipelineError(f"the report cannot be written: {error}") from error
        if self.as_json:
            print_json(result)
        else:
            print_tables(result)


class Access(NamedTuple):
    """How to reach the broker."""

    url: UrlOption = DEFAULT_URL
    user: UserOption = None

    @property
    def password(self) -> str | None:
        """The user's password, from the environment, so that no list of processes shows it."""
        return os.environ.get("SIEVEMQ_PASSWORD") if self.user is not None else None


def day(text: str) -> str:
    """The day that an option names.

    Raises:
        PipelineError: it is none.
    """
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise PipelineError(f"{text!r} is not a day; write it as 2026-11-01") from None
