"""``sievemq pipeline backtest``, ``coverage``, ``profile``, ``outcomes``, ``deadletters``: reports about an archive."""

from __future__ import annotations

from typing import Annotated

import typer

from sievemq_spark.cli.options import LOCAL, ArchivePart, DialectOption, MasterOption, Output
from sievemq_spark.cli.running import running_spark
from sievemq_spark.progress import progress


def backtest(
    archived: ArchivePart,
    selectors: Annotated[
        list[str], typer.Argument(metavar="SELECTOR…", help="One or more selectors; two are compared.")
    ],
    *,
    dialect: DialectOption = "jakarta",
    sample: Annotated[int, typer.Option("--sample", min=0, help="Message ids to show for each selector.")] = 5,
    master: MasterOption = LOCAL,
    output: Output,
) -> None:
    """Report which archived messages selectors match, and which absent properties made the result UNKNOWN."""
    from sievemq_spark.backtest import backtest as job

    with running_spark(master, selectors, dialect, checks=[archived.check, output.check]) as spark:
        with progress(spark, "backtest"):
            result = job(archived.messages(spark), selectors, dialect=dialect, sample=sample)
        output.show(result, "Backtest", archived.about)


def coverage(
    archived: ArchivePart,
    selectors: Annotated[list[str], typer.Argument(metavar="SELECTOR…")],
    *,
    dialect: DialectOption = "jakarta",
    master: MasterOption = LOCAL,
    output: Output,
) -> None:
    """Report messages that no selector or several match, and selectors that overlap or shadow one another."""
    from sievemq_spark.backtest import coverage as job

    with running_spark(master, selectors, dialect, checks=[archived.check, output.check]) as spark:
        with progress(spark, "coverage"):
            result = job(archived.messages(spark), selectors, dialect=dialect)
        output.show(result, "Coverage", archived.about)


def profile(archived: ArchivePart, *, master: MasterOption = LOCAL, output: Output) -> None:
    """Report property names with types and cardinality, sizes, and messages by hour."""
    from sievemq_spark.profile import profile as job

    with running_spark(master, checks=[archived.check, output.check]) as spark:
        with progress(spark, "profile"):
            result = job(archived.messages(spark))
        output.show(result, "Profile", archived.about)


def outcomes(archived: ArchivePart, *, master: MasterOption = LOCAL, output: Output) -> None:
    """Report the outcomes of messages: acknowledged, expired, dead-lettered, dropped; when, and after how long."""
    from sievemq_spark.archive import read_outcomes
    from sievemq_spark.outcomes import outcomes as job

    with running_spark(master, checks=[archived.check, output.check]) as spark:
        with progress(spark, "outcomes"):
            messages = archived.messages(spark)
            result = job(messages, archived.chosen(read_outcomes(spark, archived.archive)))
        output.show(result, "Outcomes", archived.about)


def deadletters(
    archived: ArchivePart,
    *,
    values: Annotated[int, typer.Option("--values", min=0, help="Maximum number of property values.")] = 20,
    master: MasterOption = LOCAL,
    output: Output,
) -> None:
    """Report dead letters: reasons, origins, times, and property values that other messages seldom have."""
    from sievemq_spark.deadletters import deadletters as job

    with running_spark(master, checks=[archived.check, output.check]) as spark:
        with progress(spark, "deadletters"):
            others = archived._replace(destination=None).messages(spark)
            result = job(archived.messages(spark), others, values=values)
        output.show(result, "Dead letters", archived.about)
