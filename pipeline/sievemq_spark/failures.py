"""What went wrong in Spark, in one line that a user can act on; its own stack traces are screens long."""

from __future__ import annotations

import re
from typing import Final

from sievemq_spark.runs import SLOW_WORKER

__all__ = ["explain_failure"]

#: How the SDK's and the pipeline's own errors begin in the traceback of a Python worker.
_OURS: Final = re.compile(
    r"^(?:pyspark\S*: )?sievemq[\w.]*\.\w+(?:Exception|Error): "
    r"(?P<text>.*?)(?=^\S*Traceback|^\s*SQLSTATE|^\tat |\Z)",
    re.MULTILINE | re.DOTALL,
)
_PARQUET: Final = re.compile(r"(?P<path>(?:file|hdfs|s3a?)?:?/[^\s\"']*?\.parquet)\b", re.IGNORECASE)
_BROKEN: Final = ("is not a Parquet file", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "Could not read footer",
                  "ParquetDecodingException")  # fmt: skip
_UNRESOLVED: Final = re.compile(r"\[UNRESOLVED_COLUMN[^\]]*\][^`]*`(?P<name>[^`]+)`")


def explain_failure(error: BaseException) -> str:
    """The cause of an error in words, the first line of Spark's own text where it is none that is known."""
    text = str(error)
    ours = list(_OURS.finditer(text))
    if ours:
        return ours[-1]["text"].strip()
    if any(mark in text for mark in _BROKEN):
        path = _PARQUET.search(text)
        where = f": {path['path']}" if path else ""
        return f"a Parquet file cannot be read, it is damaged or none{where}. Restore or remove it"
    if SLOW_WORKER in text:
        return (
            "Spark waits ten seconds for a Python process to start, and this machine is too busy for that. "
            "Nothing was done; start it again"
        )
    unresolved = _UNRESOLVED.search(text)
    if unresolved:
        return f"there is no column {unresolved['name']!r} in these rows"
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
