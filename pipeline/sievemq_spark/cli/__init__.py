"""``sievemq pipeline …``: the jobs on the command line. PySpark is imported when a job starts, so --help is quick."""

from __future__ import annotations

import typer

from sievemq.cli.grouping import grouped
from sievemq_spark.cli.questions import backtest, coverage, deadletters, outcomes, profile
from sievemq_spark.cli.traffic import archive, replay
from sievemq_spark.cli.upkeep import compact, expire

__all__ = ["pipeline"]

pipeline = typer.Typer(
    help="Archive, replay and query traffic with Spark. Needs the extra 'spark' and Java 17.", no_args_is_help=True
)
for _command in (archive, backtest, coverage, profile, outcomes, deadletters, compact, expire, replay):
    pipeline.command()(grouped(_command))
