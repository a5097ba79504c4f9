"""How far a Spark job is, on the terminal: a bar over its tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["progress", "tasks_of"]

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


@contextmanager
def progress(spark: SparkSession, title: str, console: Console | None = None) -> Iterator[None]:
    """While a job runs, a bar on standard error; nothing if that is no terminal.

    Args:
        spark: the session that works.
        title: stands before the bar.
        console: where the bar goes.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    over = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks of this stage"))
    bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        task = bar.add_task(title, total=None)
        while not over.wait(LOOK_SECONDS):
            done, total = tasks_of(tracker)
            bar.update(task, completed=done, total=total or None)

    with bar:
        watcher = threading.Thread(target=watch, name="sievemq-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
