"""Where the files of an archive are reached from: the driver's JVM; over Spark Connect, which has none, a task.

Such a task runs in a Python process of the server, or of an executor. It answers in JSON: nothing that a server
sends is unpickled here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sievemq_spark.arrow_files import ArrowFiles, require_uri, settings_of
from sievemq_spark.errors import NoArchiveError, NoDestinationError, PipelineError
from sievemq_spark.files import Files, check_writable
from sievemq_spark.hadoop_files import HadoopFiles
from sievemq_spark.spark import CONNECT, is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")

_ERRORS: Final = {each.__name__: each for each in (PipelineError, NoArchiveError, NoDestinationError)}


def check_place(path: str, master: str) -> None:
    """Raise if a folder can certainly not be written. Needs no Spark.

    Raises:
        PipelineError: says why.
    """
    if master.startswith(CONNECT):
        require_uri(path)
    else:
        check_writable(path)


def on_files(spark: SparkSession, path: str, work: Callable[[Files], T]) -> T:
    """Do something with the files below a folder.

    Args:
        spark: the session.
        path: the folder, as Spark takes it.
        work: does it; it can be pickled, and JSON can hold what it returns. A tuple may become a list.

    Returns:
        What the work returns.

    Raises:
        PipelineError: the folder cannot be reached; or as the work.
    """
    if not is_connect(spark):
        return work(HadoopFiles(spark, path))
    require_uri(path)
    settings = settings_of(spark, path)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"answer": [_answer(path, settings, work)] * batch.num_rows})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(task, "answer STRING").collect()
    answer = json.loads(row["answer"])
    if "error" in answer:
        raise _ERRORS[answer["error"]](answer["text"])
    found: T = answer["found"]
    return found


def _answer(path: str, settings: dict[str, str], work: Callable[[Files], Any]) -> str:
    """Do the work in a task. An error is an answer as well: Spark would run the task again."""
    from pyarrow import ArrowException

    try:
        return json.dumps({"found": work(ArrowFiles(path, settings))})
    except PipelineError as error:
        return json.dumps({"error": type(error).__name__, "text": str(error)})
    except (OSError, ArrowException) as error:
        return json.dumps({"error": PipelineError.__name__, "text": f"{path} cannot be reached: {error}"})
