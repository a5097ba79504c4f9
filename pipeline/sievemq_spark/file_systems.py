"""Where the files of an archive are reached from: the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sievemq_spark.files import Files
from sievemq_spark.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def on_files(spark: SparkSession, path: str, work: Callable[[Files], T]) -> T:
    """Do something with the files below a folder.

    Args:
        spark: the session.
        path: the folder, as Spark takes it.
        work: does it.

    Returns:
        What the work returns.

    Raises:
        PipelineError: the folder cannot be reached; or as the work.
    """
    return work(HadoopFiles(spark, path))
