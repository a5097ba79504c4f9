"""Runs Spark for one command, and turns its errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from sievemq import Connection
from sievemq.cli.exits import FAILED, NOT_FOUND, REFUSED, USAGE
from sievemq.exceptions import InvalidSelectorException, InvalidURLException, JMSException, JMSSecurityException
from sievemq_core.output import complain
from sievemq_spark.cli.options import Access
from sievemq_spark.errors import MissingSparkError, NoArchiveError, NoDestinationError, PipelineError
from sievemq_spark.failures import DAMAGED, explain_failure
from sievemq_spark.links import connect, is_lost
from sievemq_spark.options import urls_of
from sievemq_spark.selector_column import checked
from sievemq_spark.shards import shard_of
from sievemq_spark.spark import is_connect, require_spark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The option that names Java's log configuration: log nothing, not even the start of logging.
LOG: Final = "-Dlog4j2.configurationFile="


@contextmanager
def running_spark(  # noqa: C901
    master: str,
    selectors: Sequence[str | None] = (),
    dialect: str = "jakarta",
    broker: Access | None = None,
    *,
    checks: Sequence[Callable[[], object]] = (),
    ask: Callable[[Connection, str], object] | None = None,
    waits: bool = False,
) -> Iterator[SparkSession]:
    """A session for one command; errors as one message and an exit code.

    Args:
        selectors, dialect: checked before Spark starts, which takes seconds.
        broker: must be reachable; checked before as well.
        checks: what else raises if it is wrong; called first of all.
        ask: raises if a shard lacks something that the command needs; it is given a connection and the shard's name.
        waits: shards may be away, as long as one is there.
    """
    code = FAILED
    try:
        for check in checks:
            check()
        for selector in selectors:
            checked(selector, dialect)
        if broker is not None:
            away = 0
            for url in (urls := urls_of(broker.url)):
                try:
                    with connect(url, broker.user, broker.password, dialect) as connection:
                        if ask is not None:
                            ask(connection, str(shard_of(connection, url)))
                except JMSException as error:
                    away += 1
                    if not (waits and is_lost(error) and away < len(urls)):
                        raise
        require_spark(master)
        java = os.environ.get("SPARK_SUBMIT_OPTS", "")
        if LOG not in java:
            os.environ["SPARK_SUBMIT_OPTS"] = f"{java} {LOG}{Path(__file__).with_name('log4j2.properties').as_uri()}"
        # a command has a progress bar of its own, and prints its own errors
        settings = {"spark.ui.showConsoleProgress": "false", "spark.executor.heartbeatInterval": "1s"}  # for its rows
        with _stderr_of_java():
            spark = spark_session(master, "sievemq pipeline", settings)
        if not is_connect(spark):
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
    except (NoArchiveError, NoDestinationError) as error:
        code, text = NOT_FOUND, str(error)
    except (PipelineError, ValueError) as error:
        code, text = USAGE, str(error)
    except JMSException as error:
        text = str(error)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        text = explain_failure(error)
        if NoDestinationError.__name__ in str(error):
            code = NOT_FOUND
        elif text.startswith(DAMAGED):
            code = USAGE
    else:
        return
    complain(f"sievemq: {text}")
    raise typer.Exit(code)


@contextmanager
def _stderr_of_java() -> Iterator[None]:
    """Give a process that is started within a file as its standard error, and show the file if the start fails.

    Java prints what Python workers print. A worker that starts too late finds its socket closed, and its traceback
    would follow the error of the command.
    """
    if sys.stderr is None:  # closed
        yield
        return
    ours = os.dup(2)
    try:
        with tempfile.TemporaryFile() as printed:
            os.dup2(printed.fileno(), 2)
            try:
                yield
            except BaseException:
                printed.seek(0)
                os.write(ours, printed.read())
                raise
            finally:
                os.dup2(ours, 2)
    finally:
        os.close(ours)
