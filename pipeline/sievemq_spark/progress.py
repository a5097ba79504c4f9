"""The progress of a Spark job on the terminal: rows read, batches of a stream, a bar over its tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sievemq_core.counted import counted
from sievemq_spark.spark import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.2


def tasks_of(tracker: Any) -> tuple[int, int]:
    """Tasks done and in all, of the stages that Spark works on now.

    Args:
        tracker: a SparkContext's ``statusTracker()``.
    """
    done = total = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None:  # it has just ended
            done += info.numCompletedTasks
            total += info.numTasks
    return done, total


def rows_of(store: Any) -> int:
    """Rows that the running stages have read so far, from files, sources and other stages.

    Args:
        store: Java's AppStatusStore.
    """
    stages = store.activeStages()
    found = [stages.apply(number) for number in range(stages.size())]
    return sum(int(stage.inputRecords()) + int(stage.shuffleReadRecords()) for stage in found)


def batches_of(queries: Any) -> int:
    """Batches that the running streams have done.

    Args:
        queries: a session's ``streams.active``.
    """
    progresses = [query.lastProgress for query in queries]
    return sum(each["batchId"] + 1 for each in progresses if each is not None)


def _looked(spark: SparkSession) -> tuple[int, int, int]:
    """Tasks done, tasks, rows read. Spark Connect does not tell them."""
    if is_connect(spark):
        return 0, 0, 0
    store: Any = spark.sparkContext._jsc
    return *tasks_of(spark.sparkContext.statusTracker()), rows_of(store.sc().statusStore())


def _said(rows: int, batches: int) -> str:
    said = []
    if batches:
        said.append(counted(batches, "batch", many="batches", form=","))
    if rows:
        said.append(f"{counted(rows, 'row', form=',')} read")
    return ", ".join(said)


@contextmanager
def progress(spark: SparkSession, title: str, console: Console | None = None) -> Iterator[None]:
    """While a job runs, a bar on standard error; nothing if that is no terminal.

    Args:
        spark: the session that works.
        title: stands before the bar.
        console: the console that shows the progress bar.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    over = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
    bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)

    def watch() -> None:
        task = bar.add_task(title, total=None, said="")
        while not over.wait(LOOK_SECONDS):
            done, total, rows = _looked(spark)
            bar.update(task, completed=done, total=total or None, said=_said(rows, batches_of(spark.streams.active)))

    with bar:
        watcher = threading.Thread(target=watch, name="sievemq-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
